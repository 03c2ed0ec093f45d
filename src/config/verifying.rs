//! Who may send to a source: the `verify` block as the verification takes it.

use super::build::Builder;
use super::check;
use super::fields;
use super::scalar;
use super::text;
use super::value::Slot;
use crate::event::{Secret, Wall};
use crate::verify::generic::{Future, HmacSpec, PlaceSpec, TimestampSpec};
use crate::verify::{Agreed, Choice, GenericSpec, Handshakes, Scheme, SecretSpec, Spec, SpecError, Verifier};

/// How a source may say who sends.
const SCHEMES: [&str; 6] = ["provider", "hmac", "token", "bearer", "basic", "none"];

/// Senders to one path: each costs every request that is none of the earlier ones' a judgement.
const SENDERS_MAX: usize = 8;

impl Builder<'_, '_> {
    /// Who may send, each with its place in the file; none where there is a problem.
    pub(super) fn verifiers<'s>(&mut self, path: &str, slot: &'s Slot) -> Vec<(String, &'s Slot, Verifier)> {
        if slot.is_null() || self.checker.is_broken(path) {
            return Vec::new();
        }
        let enforce: bool = slot.at("enforce").get();
        if !enforce {
            self.note(path, "requests that fail are let through, marked, in the lane ~unverified");
        }
        let several = slot.at("any_of").items();
        if several.is_empty() {
            let one = self.verifier(path, slot, enforce);
            return one.map(|verifier| (path.to_owned(), slot, verifier)).into_iter().collect();
        }
        self.only_any_of(path, slot, several);
        let verifiers = several.iter().enumerate().filter_map(|(i, slot)| {
            let path = format!("{path}.any_of[{i}]");
            let verifier = self.verifier(&path, slot, enforce)?;
            if matches!(verifier.scheme(), Scheme::None) {
                let problem = self.checker.problem_at(&path, slot.place, "anybody may send");
                problem.hint = Some("then nothing is refused, and what stands beside it has no effect".to_owned());
                return None;
            }
            Some((path, slot, verifier))
        });
        let verifiers: Vec<_> = verifiers.collect();
        self.names_of_their_own(&verifiers);
        if verifiers.len() == several.len() { verifiers } else { Vec::new() }
    }

    /// What is said beside `any_of` belongs to one of its senders.
    fn only_any_of(&mut self, path: &str, slot: &Slot, several: &[Slot]) {
        for field in fields::SENDER.fields {
            let beside = slot.at(field.name);
            if *beside != check::default(field, beside.place) {
                let found = "stands beside any_of";
                let problem = self.checker.problem_at(&format!("{path}.{}", field.name), beside.place, found);
                problem.hint = Some("move it to the sender that it is for".to_owned());
            }
        }
        if several.len() > SENDERS_MAX {
            let place = slot.at("any_of").place;
            let found = format!("{} senders", several.len());
            let problem = self.checker.problem_at(&format!("{path}.any_of"), place, &found);
            problem.expected = Some(format!("at most {SENDERS_MAX}"));
        }
    }

    /// `Fairlane-Verified` tells senders apart by their names.
    fn names_of_their_own(&mut self, verifiers: &[(String, &Slot, Verifier)]) {
        for (i, (path, slot, verifier)) in verifiers.iter().enumerate() {
            let earlier = verifiers.iter().take(i).find(|(_, _, other)| other.name() == verifier.name());
            if let Some((first, ..)) = earlier {
                let found = format!("{} is {first} already", verifier.name());
                let problem = self.checker.problem_at(path, slot.place, &found);
                problem.hint = Some("one sender may have several secrets; two schemes need two paths".to_owned());
            }
        }
    }

    /// One who may send; `None` where there is a problem.
    fn verifier(&mut self, path: &str, slot: &Slot, enforce: bool) -> Option<Verifier> {
        let choice = self.choice(path, slot)?;
        let secrets = match slot.at("webhook_id").maybe::<String>() {
            Some(id) => vec![self.webhook_id(path, slot, &choice, id)?],
            None => self.secrets(path, slot, &choice)?,
        };
        self.about_secrets(path, &choice, &secrets);
        let handshakes: String = slot.at("handshake").get();
        let handshakes = Handshakes::NAMED.into_iter().find(|(name, _)| *name == handshakes);
        let spec = Spec {
            choice,
            secrets,
            tolerance: slot.at("tolerance").maybe(),
            public_url: slot.at("public_url").maybe(),
            enforce,
            agreed: Agreed {
                token: slot.at("verify_token").maybe(),
                topics: slot.at("topics").items().iter().map(|topic| topic.get::<String>().into()).collect(),
                handshakes: handshakes.map(|(_, handshakes)| handshakes).unwrap_or_default(),
            },
        };
        match Verifier::new(spec) {
            Ok(verifier) => {
                self.about_verifier(path, slot, &verifier);
                if let (true, Err(why)) = (slot.at("resign").get(), verifier.can_resign()) {
                    let found = format!("{} cannot be signed again: {why}", verifier.name());
                    let problem = self.checker.problem_at(&format!("{path}.resign"), slot.at("resign").place, &found);
                    problem.hint =
                        Some("verify Fairlane-Signature in the upstream instead (upstream.signing_secret)".to_owned());
                }
                Some(verifier)
            }
            Err(error) => {
                self.spec_error(path, slot, &error);
                None
            }
        }
    }

    /// Exactly one of the ways to say how senders sign.
    fn choice(&mut self, path: &str, slot: &Slot) -> Option<Choice> {
        let chosen: Vec<&str> = SCHEMES
            .into_iter()
            .filter(|name| !slot.at(name).is_null() && slot.at(name).maybe::<bool>() != Some(false))
            .collect();
        let [one] = chosen.as_slice() else {
            let found = if chosen.is_empty() {
                "does not say who may send".to_owned()
            } else {
                format!("says in {} ways who may send: {}", chosen.len(), chosen.join(", "))
            };
            let problem = self.checker.problem_at(path, slot.place, &found);
            problem.expected = Some(format!("one of {}", SCHEMES.join(", ")));
            problem.hint = chosen.is_empty().then(|| "write verify: none if anybody may send".to_owned());
            return None;
        };
        let detail = slot.at(one);
        let spec = match *one {
            "provider" => return Some(Choice::Preset(detail.get())),
            "hmac" => GenericSpec::Hmac(Box::new(self.hmac(&format!("{path}.hmac"), detail)?)),
            "token" => GenericSpec::Token { header: detail.at("header").get(), prefix: detail.at("prefix").get() },
            "bearer" => GenericSpec::Bearer,
            "basic" => GenericSpec::Basic { user: detail.at("user").maybe() },
            _ => GenericSpec::None,
        };
        match spec.compile() {
            Ok(scheme) => Some(Choice::Scheme(scheme)),
            Err(error) => {
                self.spec_error(path, slot, &error);
                None
            }
        }
    }

    fn hmac(&mut self, path: &str, slot: &Slot) -> Option<HmacSpec> {
        let timestamp = slot.at("timestamp");
        let timestamp =
            if timestamp.is_null() { None } else { Some(self.timestamp(&format!("{path}.timestamp"), timestamp)?) };
        Some(HmacSpec {
            header: slot.at("header").get(),
            algorithm: slot.at("algorithm").maybe(),
            encoding: slot.at("encoding").maybe(),
            prefix: slot.at("prefix").maybe(),
            template: slot.at("template").maybe(),
            key: slot.at("key").maybe(),
            separator: slot.at("separator").maybe(),
            pair: slot.at("pair").maybe(),
            take: slot.at("take").items().iter().map(Slot::get).collect(),
            timestamp,
            id: slot.at("id").at("header").maybe(),
        })
    }

    fn timestamp(&mut self, path: &str, slot: &Slot) -> Option<TimestampSpec> {
        let at = |name: &str| slot.at(name).maybe::<String>();
        let place = match (at("header"), at("item"), at("body")) {
            (Some(name), None, None) => PlaceSpec::Header(name),
            (None, Some(name), None) => PlaceSpec::Item(name),
            (None, None, Some(place)) => PlaceSpec::Body(place),
            _ => {
                self.checker.problem_at(path, slot.place, "where the time stands is not said once").expected =
                    Some("exactly one of header, item, body".to_owned());
                return None;
            }
        };
        let future = at("future").map(|text| match scalar::duration(&text) {
            Ok(span) => Future::Within(span),
            Err(_) => Future::Any,
        });
        Some(TimestampSpec { place, unit: at("unit"), tolerance: slot.at("tolerance").maybe(), future })
    }

    fn secrets(&mut self, path: &str, slot: &Slot, choice: &Choice) -> Option<Vec<SecretSpec>> {
        let (one, many) = (slot.at("secret"), slot.at("secrets"));
        if !one.is_null() && !many.items().is_empty() {
            let problem = self.checker.problem_at(path, one.place, "both secret and secrets are given");
            problem.hint = Some("move the one into the list".to_owned());
            return None;
        }
        let one = (!one.is_null()).then(|| (format!("{path}.secret"), one));
        let many = many.items().iter().enumerate().map(|(i, secret)| (format!("{path}.secrets[{i}]"), secret));
        let all = one.into_iter().chain(many);
        let spaced = choice.scheme().is_some_and(Scheme::has_a_header_for_each_secret);
        all.map(|(path, secret)| {
            let value: Secret = secret.at("value").maybe()?;
            if value.expose().is_empty() && !spaced {
                self.checker.problem_at(&path, secret.place, "the secret is empty").hint =
                    Some("with an empty secret anybody can sign".to_owned());
                return None;
            }
            let until = secret.at("until").maybe::<String>().and_then(|text| text::moment(&text).ok());
            Some(SecretSpec { value, until: until.map(Wall) })
        })
        .collect()
    }

    /// What PayPal signs in place of a secret.
    fn webhook_id(&mut self, path: &str, slot: &Slot, choice: &Choice, id: String) -> Option<SecretSpec> {
        let found = match choice {
            Choice::Preset(name) if name == "paypal" => {
                let beside = !slot.at("secret").is_null() || !slot.at("secrets").items().is_empty();
                if !beside {
                    return Some(SecretSpec::new(Secret::new(id)));
                }
                "stands beside a secret, which is the same for PayPal"
            }
            Choice::Preset(_) | Choice::Scheme(_) => "is PayPal's alone",
        };
        let problem = self.checker.problem_at(&format!("{path}.webhook_id"), slot.at("webhook_id").place, found);
        problem.hint = Some("leave it out".to_owned());
        None
    }

    /// A problem that only the verifier sees, at the field that it is about.
    fn spec_error(&mut self, path: &str, slot: &Slot, error: &SpecError) {
        let field = error.field();
        let own = SCHEMES.into_iter().find(|name| slot.at(name).members().any(|(inner, _)| inner == field));
        let (path, place) = match (own, field) {
            (Some(scheme), _) => (format!("{path}.{scheme}.{field}"), slot.at(scheme).at(field).place),
            (None, "unit") => (format!("{path}.hmac.timestamp.unit"), slot.at("hmac").at("timestamp").at("unit").place),
            (None, "secrets") if !slot.at("secret").is_null() => (format!("{path}.secret"), slot.at("secret").place),
            (None, "secrets" | "tolerance" | "public_url" | "provider" | "verify_token" | "topics" | "handshake") => {
                (format!("{path}.{field}"), slot.at(field).place)
            }
            (None, _) => (path.to_owned(), slot.place),
        };
        let text = error.to_string();
        let prefix = format!("{field}: ");
        let problem = self.checker.problem_at(&path, place, text.strip_prefix(&prefix).unwrap_or(&text));
        if matches!(error, SpecError::NoSecret { .. }) {
            let paypal = slot.at("provider").maybe::<String>().is_some_and(|name| name == "paypal");
            let hint = if paypal {
                "write webhook_id: …, as PayPal shows it"
            } else {
                "write secret: \"${NAME}\", or secret: file:/path"
            };
            problem.hint = Some(hint.to_owned());
        }
    }
}
