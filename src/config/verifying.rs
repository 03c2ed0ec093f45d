//! Who may send to a source: the `verify` block as the verification takes it.

use super::build::Builder;
use super::scalar;
use super::text;
use super::value::Slot;
use crate::event::{Secret, Wall};
use crate::verify::generic::{Future, HmacSpec, PlaceSpec, TimestampSpec};
use crate::verify::{Choice, GenericSpec, Scheme, SecretSpec, Spec, SpecError, Verifier};

/// How a source may say who sends.
const SCHEMES: [&str; 6] = ["provider", "hmac", "token", "bearer", "basic", "none"];

impl Builder<'_, '_> {
    /// Who may send; `None` where there is a problem.
    pub(super) fn verifier(&mut self, path: &str, slot: &Slot) -> Option<Verifier> {
        if slot.is_null() || self.checker.is_broken(path) {
            return None;
        }
        let choice = self.choice(path, slot)?;
        let secrets = self.secrets(path, slot, &choice)?;
        self.about_secrets(path, &choice, &secrets);
        let spec = Spec {
            choice,
            secrets,
            tolerance: slot.at("tolerance").maybe(),
            public_url: slot.at("public_url").maybe(),
            enforce: slot.at("enforce").get(),
        };
        match Verifier::new(spec) {
            Ok(verifier) => {
                self.about_verifier(path, slot, &verifier);
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

    /// A problem that only the verifier sees, at the field that it is about.
    fn spec_error(&mut self, path: &str, slot: &Slot, error: &SpecError) {
        let field = error.field();
        let own = SCHEMES.into_iter().find(|name| slot.at(name).members().any(|(inner, _)| inner == field));
        let (path, place) = match (own, field) {
            (Some(scheme), _) => (format!("{path}.{scheme}.{field}"), slot.at(scheme).at(field).place),
            (None, "unit") => (format!("{path}.hmac.timestamp.unit"), slot.at("hmac").at("timestamp").at("unit").place),
            (None, "secrets") if !slot.at("secret").is_null() => (format!("{path}.secret"), slot.at("secret").place),
            (None, "secrets" | "tolerance" | "public_url" | "provider") => {
                (format!("{path}.{field}"), slot.at(field).place)
            }
            (None, _) => (path.to_owned(), slot.place),
        };
        let text = error.to_string();
        let prefix = format!("{field}: ");
        let problem = self.checker.problem_at(&path, place, text.strip_prefix(&prefix).unwrap_or(&text));
        if matches!(error, SpecError::NoSecret { .. }) {
            problem.hint = Some("write secret: \"${NAME}\", or secret: file:/path".to_owned());
        }
    }
}
