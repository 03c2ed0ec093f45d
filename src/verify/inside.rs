//! Signatures that stand inside a JSON body, over some of its members: Adyen, Mailgun; and tokens
//! that stand there: Microsoft Graph.
//!
//! The body as a whole is not covered, only the values that the scheme names. What stands beside
//! them anybody may change who has seen one genuine request; the presets say so.

use std::borrow::Cow;

use http::HeaderMap;
use serde_json::value::RawValue;

use super::armed::Armed;
use super::encoding::{Enc, KeyForm};
use super::judge::{Request, Verified, Verifier, When};
use super::mac::{self, Hash};
use super::member::{Step, at, document, elements, scalar, with};
use super::reject::Rejection;
use super::scheme::{Place, Time};
use super::sign::{Outgoing, SignError};

/// Signed items of one body; each costs a MAC for every secret. Providers send up to some dozens.
const ITEMS_MAX: usize = 1_000;

/// Names of members, one inside the other.
pub type Path = &'static [&'static str];

/// A signature inside a JSON body, over some of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// How it is made.
    pub proof: Proof,
    /// How a secret becomes the key.
    pub key: KeyForm,
    /// The items that are signed, every one; `None`: the body is the one item.
    pub each: Option<Each>,
    /// Where the signature stands in an item.
    pub signature: Path,
    /// The members that are signed; one that is missing is empty text.
    pub text: &'static [Path],
    /// What stands between them.
    pub between: &'static str,
    /// The signed time, one of the members; of a body that is the one item.
    pub time: Option<Time>,
}

/// How a signature inside a body is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// HMAC (RFC 2104), written so.
    Hmac(Hash, Enc),
    /// It is the secret itself.
    Equal,
}

/// Where signed items stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Each {
    /// The member that is a list of them; it must not be empty.
    pub list: &'static str,
    /// The member of each that is the item, where the list holds only envelopes.
    pub envelope: Option<&'static str>,
}

/// One item's signature, and what it should cover.
struct Item {
    place: String,
    claimed: String,
    text: String,
}

impl Verifier {
    /// Judges a body that holds its own signature.
    pub(super) fn inside(&self, inside: &Inside, request: &Request<'_>, when: When) -> Result<Verified, Rejection> {
        let body = document(request.body).ok_or_else(|| malformed("it is not a JSON document"))?;
        let mut first = None;
        for item in inside.items(body)? {
            let matched = self.first_match(when, |armed| inside.is_right(&item, armed))?;
            let verified = matched.ok_or_else(|| Rejection::BadSignature {
                place: item.place,
                secrets: self.live_count(when),
                url: None,
            })?;
            first.get_or_insert(verified);
        }
        let verified = first.ok_or_else(|| malformed("it holds no signed item"))?;
        match &inside.time {
            Some(Time { place: Place::Body(path), unit, .. }) if when != When::Opaque => {
                let text = at(body, path).and_then(scalar).unwrap_or_default();
                let sent_ms = unit.read(text.as_bytes()).ok_or_else(|| {
                    malformed(format!("what stands at {} is not {}", path.join("."), unit.looks_like()))
                })?;
                self.in_window(sent_ms, when, verified)
            }
            _ => Ok(verified),
        }
    }

    /// `body` with the time and the signatures in it that make it genuine now.
    pub(super) fn complete_inside(&self, inside: &Inside, outgoing: &Outgoing<'_>) -> Result<String, SignError> {
        let no = |problem: String| SignError::Body(problem);
        let read = |text: &str| {
            document(text.as_bytes()).map(ToOwned::to_owned).ok_or_else(|| no("the body is not JSON".to_owned()))
        };
        let put = |text: &str, path: &[Step<'_>], value: &str| {
            let value = serde_json::Value::from(value).to_string();
            let put = read(text).map(|body| with(&body, path, &value))?;
            put.ok_or_else(|| no(format!("there is no room for the signature at {}", inside.signature.join("."))))
        };
        let secret = self.first_secret(outgoing.now)?;
        let mut text = String::from_utf8(outgoing.body.to_vec()).map_err(|_| no("the body is not JSON".to_owned()))?;
        if let Some(Time { place: Place::Body(path), unit, .. }) = &inside.time {
            let path: Vec<Step<'_>> = path.iter().map(|name| Step::Member(name)).collect();
            text = put(&text, &path, &unit.write(outgoing.now))?;
        }
        let count = inside.count(&read(&text)?).map_err(|refused| no(refused.to_string()))?;
        // Some text has to stand in every place for the items to be read.
        for number in 0..count {
            text = put(&text, &inside.path_of(number), "-")?;
        }
        let body = read(&text)?;
        let items = inside.items(&body).map_err(|refused| no(refused.to_string()))?;
        for (number, item) in items.iter().enumerate() {
            let right = match inside.proof {
                Proof::Equal => String::from_utf8_lossy(secret.value.expose()).into_owned(),
                Proof::Hmac(_, enc) => {
                    let tag = secret.tag(&[item.text.as_bytes()]).ok_or(SignError::PublicKeyOnly)?;
                    enc.encode(tag.as_bytes())
                }
            };
            text = put(&text, &inside.path_of(number), &right)?;
        }
        Ok(text)
    }

    /// The body is what it is: a wrong signature in it is told with the right one.
    pub(super) fn sign_inside(&self, inside: &Inside, outgoing: &Outgoing<'_>) -> Result<(), SignError> {
        let headers = HeaderMap::new();
        let refused = match self.inside(inside, &outgoing.as_request(&headers), When::At(outgoing.now)) {
            Ok(_) => return Ok(()),
            Err(refused) => refused,
        };
        let no = |refused: Rejection| SignError::Body(refused.to_string());
        let secret = self.first_secret(outgoing.now)?;
        let body = document(outgoing.body).ok_or_else(|| SignError::Body("the body is not JSON".to_owned()))?;
        let items = inside.items(body).map_err(no)?;
        match items.into_iter().find(|item| !inside.is_right(item, secret)) {
            Some(item) => Err(inside.right(item, secret)),
            None => Err(no(refused)),
        }
    }
}

impl Inside {
    /// Whether the signature over the body covers what stands at `rule`, a `body.` expression.
    pub(super) fn covers(&self, rule: &str) -> bool {
        let mut names = rule.split('.').skip(1);
        if let Some(each) = self.each {
            let number = |name: Option<&str>| name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
            if names.next() != Some(each.list) || !number(names.next()) {
                return false;
            }
            if each.envelope.is_some_and(|envelope| names.next() != Some(envelope)) {
                return false;
            }
        }
        self.text.iter().any(|path| names.clone().eq(path.iter().copied()))
    }

    /// How many items the body has.
    fn count(&self, body: &RawValue) -> Result<usize, Rejection> {
        let Some(each) = self.each else { return Ok(1) };
        let list = at(body, &[each.list]).and_then(|list| elements(list, ITEMS_MAX));
        list.map(|list| list.len())
            .filter(|count| *count > 0)
            .ok_or_else(|| malformed(format!("{} must be a list of one to {ITEMS_MAX} items", each.list)))
    }

    /// Where the signature of the item of this number stands.
    fn path_of(&self, number: usize) -> Vec<Step<'static>> {
        let list = self.each.into_iter().flat_map(|each| {
            [Step::Member(each.list), Step::Index(number)].into_iter().chain(each.envelope.map(Step::Member))
        });
        list.chain(self.signature.iter().map(|name| Step::Member(name))).collect()
    }

    fn items(&self, body: &RawValue) -> Result<Vec<Item>, Rejection> {
        let Some(each) = self.each else { return Ok(vec![self.item(body, "")?]) };
        let list = at(body, &[each.list]).ok_or_else(|| malformed(format!("nothing stands at {}", each.list)))?;
        let list = elements(list, ITEMS_MAX).ok_or_else(|| {
            malformed(format!("what stands at {} is no list of at most {ITEMS_MAX} items", each.list))
        })?;
        let items = list.into_iter().enumerate().map(|(number, value)| {
            let place = format!("{}.{number}.", each.list);
            match each.envelope {
                None => self.item(value, &place),
                Some(envelope) => {
                    let place = format!("{place}{envelope}.");
                    let item = at(value, &[envelope]).ok_or_else(|| malformed(format!("nothing stands at {place}")))?;
                    self.item(item, &place)
                }
            }
        });
        items.collect()
    }

    /// `place` is that of the item, with a dot behind it.
    fn item(&self, item: &RawValue, place: &str) -> Result<Item, Rejection> {
        let read = |path: Path| match at(item, path) {
            None => Ok(Cow::Borrowed("")),
            Some(value) => scalar(value)
                .ok_or_else(|| malformed(format!("what stands at {place}{} is no single value", path.join(".")))),
        };
        let signature = self.signature.join(".");
        let claimed = read(self.signature)?.into_owned();
        if claimed.is_empty() {
            return Err(malformed(format!("nothing stands at {place}{signature}, which carries the signature")));
        }
        let texts = self.text.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(Item { place: format!("{place}{signature}"), claimed, text: texts.join(self.between) })
    }

    fn is_right(&self, item: &Item, armed: &Armed) -> bool {
        match self.proof {
            Proof::Equal => mac::same_text(item.claimed.as_bytes(), armed.value.expose()),
            Proof::Hmac(_, enc) => enc
                .decode(item.claimed.as_bytes())
                .is_some_and(|claimed| armed.gives(&[item.text.as_bytes()], &[claimed])),
        }
    }

    /// What would make an item right; a secret itself is not told.
    fn right(&self, item: Item, armed: &Armed) -> SignError {
        match self.proof {
            Proof::Equal => SignError::Body(format!("the body must hold the secret at {}", item.place)),
            Proof::Hmac(_, enc) => match armed.tag(&[item.text.as_bytes()]) {
                Some(tag) => SignError::BodySignature { path: item.place, example: enc.encode(tag.as_bytes()) },
                None => SignError::PublicKeyOnly,
            },
        }
    }
}

fn malformed(problem: impl Into<String>) -> Rejection {
    Rejection::MalformedBody { problem: problem.into() }
}
