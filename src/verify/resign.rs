//! Signing again: an event that waited gets a signature of its provider's scheme that is fresh.
//!
//! The upstream's own check refuses a time that is minutes old, and an event may wait for days. Where the gateway holds the secret
//! it can sign as the provider would: the same scheme over the same body and id, at the present time. Every header that carried
//! the proof or its time is replaced; no other one changes.

use http::{HeaderMap, HeaderName, Method};

use super::form::FormText;
use super::judge::Verifier;
use super::scheme::{Alg, Carrier, Place, Scheme, Signed};
use super::sign::{Outgoing, SignError};
use crate::event::Wall;

/// A request that goes on.
#[derive(Clone, Copy, Debug)]
pub struct Again<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Path and query as they were received.
    pub target: &'a str,
    /// `scheme://host` as the sender saw it; used where no `public_url` is configured.
    pub seen_url: Option<&'a str>,
    /// Its body.
    pub body: &'a [u8],
    /// When it is sent.
    pub now: Wall,
}

/// A header that came under another name than the first, which is the one that is written.
struct Other {
    first: HeaderName,
    other: HeaderName,
    came_under_both: bool,
}

impl Verifier {
    /// Whether requests of this scheme can be signed again by whoever has its secrets.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn can_resign(&self) -> Result<(), &'static str> {
        const PRIVATE: &str = "only the provider can sign: it keeps the private key";
        match &self.scheme {
            Scheme::None => Err("nothing is signed"),
            Scheme::Fetched(_) => Err(PRIVATE),
            Scheme::Signed(signed) => match (&signed.alg, signed.time.as_ref().map(|time| &time.place)) {
                (Alg::Public(_), _) => Err(PRIVATE),
                (_, Some(Place::Body(_))) => Err("the signed time stands in the body, which goes out as it came"),
                _ => Ok(()),
            },
            Scheme::Posted(_) | Scheme::Inside(_) => Err("the signature stands in the body, which goes out as it came"),
            Scheme::Jwt(_) => Err("its token holds what only the provider can say anew"),
            Scheme::Form(_) | Scheme::Token(_) | Scheme::Basic(_) => Ok(()),
        }
    }

    /// Whether an event whose [`super::Verified::label`] this is was genuine for this verifier.
    #[must_use]
    pub fn has_verified(&self, label: &str) -> bool {
        label.strip_prefix(self.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with(" secret="))
    }

    /// Replaces in `headers`, those of a request that was genuine for this verifier, what proved that, by a proof made now with the
    /// first secret in use.
    ///
    /// # Errors
    /// What is missing, or cannot be written; then some of `headers` may be gone.
    pub fn resign(&self, again: &Again<'_>, headers: &mut HeaderMap) -> Result<(), SignError> {
        self.can_resign().map_err(|why| SignError::Body(why.to_owned()))?;
        let base = self.public_url().or(again.seen_url).unwrap_or_default();
        let url = format!("{base}{}", again.target);
        let id = self.signed_id(headers);
        let other_names = self.other_names(headers);
        self.drop_carriers(headers);
        let id = id.as_deref().unwrap_or_default();
        let outgoing = Outgoing { method: again.method, url: &url, body: again.body, now: again.now, id };
        self.sign(&outgoing, headers)?;
        for Other { first, other, came_under_both } in other_names {
            if let Some(value) = headers.get(&first).cloned() {
                headers.insert(other, value);
            }
            if !came_under_both {
                headers.remove(first);
            }
        }
        Ok(())
    }

    /// The id that is signed and stays the same.
    fn signed_id(&self, headers: &HeaderMap) -> Option<String> {
        let names = match &self.scheme {
            Scheme::Signed(signed) => signed.id.as_slice(),
            Scheme::Form(form) => match &form.text {
                FormText::Plivo { nonce } => std::slice::from_ref(nonce),
                FormText::Twilio | FormText::Mandrill => &[],
            },
            _ => &[],
        };
        let value = names.iter().find_map(|name| headers.get(name))?;
        value.to_str().ok().map(|text| text.trim().to_owned())
    }

    /// The headers that came under a later one of their names.
    fn other_names(&self, headers: &HeaderMap) -> Vec<Other> {
        let lists: Vec<&[HeaderName]> = match &self.scheme {
            Scheme::Signed(signed) => signed.alternatives(),
            Scheme::Token(token) => vec![&token.headers],
            _ => Vec::new(),
        };
        let others = lists.into_iter().filter_map(|names| names.split_first());
        let others = others.flat_map(|(first, others)| others.iter().map(move |other| (first, other)));
        let came = others.filter(|(_, other)| headers.contains_key(*other));
        came.map(|(first, other)| Other {
            came_under_both: headers.contains_key(first),
            first: first.clone(),
            other: other.clone(),
        })
        .collect()
    }

    /// Takes out every proof: of a sender that signs with several keys only one is made again.
    fn drop_carriers(&self, headers: &mut HeaderMap) {
        for carrier in self.scheme.headers().carriers {
            let is_it = |name: &str| match carrier.strip_suffix('-') {
                Some(_) => name.strip_prefix(&*carrier).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit())),
                None => name == carrier,
            };
            let names: Vec<HeaderName> = headers.keys().filter(|name| is_it(name.as_str())).cloned().collect();
            for name in names {
                headers.remove(name);
            }
        }
    }
}

impl Signed {
    /// The lists of names of which the first present one counts.
    fn alternatives(&self) -> Vec<&[HeaderName]> {
        let mut lists = vec![self.id.as_slice()];
        if let Carrier::Header(names) = &self.carrier {
            lists.push(names);
        }
        if let Some(Place::Header(names)) = self.time.as_ref().map(|time| &time.place) {
            lists.push(names);
        }
        lists
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::event::Secret;
    use crate::verify::{Choice, Request, SecretSpec, Spec, presets};

    const SENT: Wall = Wall(1_767_225_600_000_000);
    /// Five days later.
    const NOW: Wall = Wall(SENT.0 + 5 * 86_400 * 1_000_000);
    const BODY: &[u8] = br#"{"id":1}"#;

    fn verifier(name: &str, secrets: &[&str]) -> Result<Verifier, crate::verify::SpecError> {
        let secrets = secrets.iter().map(|text| SecretSpec::new(Secret::new(*text))).collect();
        Verifier::new(Spec {
            public_url: Some("https://a.example".into()),
            ..Spec::new(Choice::Preset(name.into()), secrets)
        })
    }

    fn body_for(scheme: &Scheme) -> &'static [u8] {
        if matches!(scheme, Scheme::Form(_)) { b"a=1&b=2" } else { BODY }
    }

    #[test]
    fn what_was_signed_again_is_accepted_days_later_by_the_provider_s_own_check() {
        let mut signed_again = Vec::new();
        for preset in presets() {
            let secrets = ["MDEyMzQ1Njc4OWFiY2RlZg==", "00112233445566778899aabbccddeeff", "user:word"];
            let Some(verifier) = secrets.iter().find_map(|text| verifier(preset.name, &[text]).ok()) else { continue };
            let method = Method::POST;
            let body = body_for(&preset.scheme);
            let url = "https://a.example/in?x=1";
            let outgoing = Outgoing { method: &method, url, body, now: SENT, id: "msg_1" };
            let mut headers = HeaderMap::new();
            headers.insert("x-own", HeaderValue::from_static("stays"));
            if verifier.can_resign().is_err() || verifier.sign(&outgoing, &mut headers).is_err() {
                continue;
            }
            let judge = |headers: &HeaderMap, now| {
                let request = Request { method: &method, target: "/in?x=1", seen_url: None, headers, body };
                verifier.judge(&request, now)
            };
            judge(&headers, SENT).unwrap();
            let before = headers.clone();
            let again = Again { method: &method, target: "/in?x=1", seen_url: None, body, now: NOW };
            verifier.resign(&again, &mut headers).unwrap_or_else(|no| panic!("{}: {no}", preset.name));
            judge(&headers, NOW).unwrap_or_else(|no| panic!("{}: {no}", preset.name));
            assert_eq!(headers["x-own"], "stays");
            assert_eq!(before.keys().count(), headers.keys().count(), "{}", preset.name);
            if preset.scheme.time().is_some() {
                assert!(judge(&before, NOW).is_err(), "{}: nothing was to be done", preset.name);
                signed_again.push(preset.name);
            }
        }
        for name in [
            "stripe",
            "slack",
            "standard-webhooks",
            "svix",
            "twitch",
            "zoom",
            "recurly",
            "hubspot-v3",
            "box",
            "contentful",
        ] {
            assert!(signed_again.contains(&name), "{name} is not among {signed_again:?}");
        }
    }

    #[test]
    fn the_id_stays_and_names_under_which_it_came_are_kept() {
        let svix = verifier("svix", &["whsec_MDEyMzQ1Njc4OWFiY2RlZg=="]).unwrap();
        let names = ["svix-id", "svix-timestamp", "svix-signature"];
        let mut headers = HeaderMap::new();
        for (name, value) in names.into_iter().zip(["msg_7", "1", "v1,AAAA v1,BBBB"]) {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let again = Again { method: &Method::POST, target: "/", seen_url: None, body: BODY, now: NOW };
        svix.resign(&again, &mut headers).unwrap();
        let request = Request { method: &Method::POST, target: "/", seen_url: None, headers: &headers, body: BODY };
        svix.judge(&request, NOW).unwrap();
        assert_eq!(
            (&headers["svix-id"], &headers["svix-timestamp"]),
            (&"msg_7".parse().unwrap(), &NOW.unix_s().into())
        );
        assert!(!headers["svix-signature"].to_str().unwrap().contains("AAAA"));
        assert_eq!(headers.len(), 3, "under no further name: {headers:?}");
    }

    #[test]
    fn who_cannot_sign_is_told_why() {
        let refused = |name: &str, secret: &str| verifier(name, &[secret]).unwrap().can_resign().unwrap_err();
        assert!(refused("adyen-payload", "00112233").contains("body"));
        assert!(refused("linear", "s").contains("time stands in the body"));
        assert!(
            refused("discord", "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
                .contains("private key")
        );
        assert!(refused("messagebird-jwt", "s").contains("token"));
        assert!(refused("paypal", "s").contains("private key"));
    }
}
