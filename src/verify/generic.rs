//! Schemes that an operator writes in `gateway.yaml`: the plain values of the text, and their
//! meaning. The YAML is described in [`super`].

use std::time::Duration;

use http::HeaderName;

use super::encoding::{Enc, KeyForm};
use super::mac::Hash;
use super::scheme::{
    Alg, Basic, Before, Carrier, Items, List, Place, Prefix, Scheme, Signed, Time, Token, Unit, WINDOW_DEFAULT, Window,
};
use super::spec::SpecError;
use super::template::Template;

/// A scheme as written, nothing checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GenericSpec {
    /// `hmac: { … }`
    Hmac(Box<HmacSpec>),
    /// `bearer: {}`
    Bearer,
    /// `token: { header: X-Api-Key, prefix: "" }`
    Token {
        /// `header`
        header: String,
        /// `prefix`; empty for none.
        prefix: String,
    },
    /// `basic: { user: … }`
    Basic {
        /// `user`; without it each secret is `user:password`.
        user: Option<String>,
    },
    /// `none: true`
    None,
}

/// `hmac: { … }` as written. What is `None` was not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HmacSpec {
    /// `header`; the only field that must be there.
    pub header: String,
    /// `algorithm`: `sha256` (the default), `sha1`, `sha384`, `sha512`; with `plain-` before it the
    /// plain hash of a text that contains `{secret}`.
    pub algorithm: Option<String>,
    /// `encoding`: `hex` (the default), `base64`, `base64url`.
    pub encoding: Option<String>,
    /// `prefix` before each signature.
    pub prefix: Option<String>,
    /// `template`; default `{body}`.
    pub template: Option<String>,
    /// `key`: `text` (the default), `hex`, `base64`, `whsec`.
    pub key: Option<String>,
    /// `separator`: any of its characters cuts the header's value into items.
    pub separator: Option<String>,
    /// `pair`: between an item's name and value.
    pub pair: Option<String>,
    /// `take`: the names of items that are signatures.
    pub take: Vec<String>,
    /// `timestamp: { … }`
    pub timestamp: Option<TimestampSpec>,
    /// `id: { header: … }`
    pub id: Option<String>,
}

/// `timestamp: { … }` as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimestampSpec {
    /// Where it stands: exactly one of the three may be written.
    pub place: PlaceSpec,
    /// `unit`: `s` (the default), `ms`, `rfc3339`, `http-date`.
    pub unit: Option<String>,
    /// `tolerance`, for times gone by; default 300 s.
    pub tolerance: Option<Duration>,
    /// `future`, for times to come; default: as `tolerance`.
    pub future: Option<Future>,
}

/// Where a signed time stands, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceSpec {
    /// `header: X-Ts`
    Header(String),
    /// `item: t`; `item: first` of a list without `pair` is its first item.
    Item(String),
    /// `body: a.b`
    Body(String),
}

/// `future:` as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Future {
    /// A duration.
    Within(Duration),
    /// `any`
    Any,
}

impl GenericSpec {
    /// The scheme that this text means.
    ///
    /// # Errors
    /// [`SpecError::Field`], naming the field at fault.
    pub fn compile(&self) -> Result<Scheme, SpecError> {
        let scheme = match self {
            Self::None => Scheme::None,
            Self::Bearer => Scheme::Token(Token { headers: vec![http::header::AUTHORIZATION], before: Before::Bearer }),
            Self::Token { header, prefix } => {
                let before = if prefix.is_empty() { Before::Nothing } else { Before::Text(prefix.as_str().into()) };
                Scheme::Token(Token { headers: vec![header_name("header", header)?], before })
            }
            Self::Basic { user } => Scheme::Basic(Basic { user: user.as_deref().map(Box::from) }),
            Self::Hmac(hmac) => Scheme::Signed(Box::new(hmac.compile()?)),
        };
        scheme.check().map_err(|(field, problem)| SpecError::Field { field, problem })?;
        Ok(scheme)
    }
}

impl TryFrom<&GenericSpec> for Scheme {
    type Error = SpecError;

    fn try_from(spec: &GenericSpec) -> Result<Self, SpecError> {
        spec.compile()
    }
}

impl HmacSpec {
    fn compile(&self) -> Result<Signed, SpecError> {
        let template = self.template.as_deref().unwrap_or("{body}");
        Ok(Signed {
            alg: self.algorithm()?,
            carrier: Carrier::Header(vec![header_name("header", &self.header)?]),
            items: self.items()?,
            prefix: self
                .prefix
                .as_deref()
                .filter(|text| !text.is_empty())
                .map(|text| Prefix { text: text.into(), optional: false }),
            enc: one_of("encoding", self.encoding.as_deref().unwrap_or("hex"), &Enc::NAMED)?,
            template: Template::parse(template).map_err(|problem| wrong("template", problem))?,
            key: one_of("key", self.key.as_deref().unwrap_or("text"), &KeyForm::NAMED)?,
            time: self.timestamp.as_ref().map(|timestamp| self.time(timestamp)).transpose()?,
            id: self.id.iter().map(|name| header_name("id", name)).collect::<Result<_, _>>()?,
            fixed: Vec::new(),
        })
    }

    fn algorithm(&self) -> Result<Alg, SpecError> {
        let name = self.algorithm.as_deref().unwrap_or("sha256");
        match name.strip_prefix("plain-") {
            Some(plain) => one_of("algorithm", plain, &Hash::NAMED).map(Alg::Digest),
            None => one_of("algorithm", name, &Hash::NAMED).map(Alg::Hmac),
        }
    }

    fn items(&self) -> Result<Items, SpecError> {
        // The blanks around an item are never part of a signature or a number.
        let list = |separators: &str| List { separators: separators.into(), trim: true };
        Ok(match (&self.separator, &self.pair) {
            (separator, Some(pair)) => Items::Pairs {
                list: list(separator.as_deref().unwrap_or(",")),
                pair: pair.as_str().into(),
                take: self.take.iter().map(|name| name.as_str().into()).collect(),
            },
            (_, None) if !self.take.is_empty() => {
                return Err(wrong(
                    "take",
                    "it names items, which needs `pair`: the text between an item's name and its value",
                ));
            }
            (Some(separator), None) if self.time_is_first() => Items::TimeFirst(list(separator)),
            (Some(separator), None) => Items::List(list(separator)),
            (None, None) => Items::Whole,
        })
    }

    fn time_is_first(&self) -> bool {
        self.timestamp.as_ref().is_some_and(|time| matches!(&time.place, PlaceSpec::Item(name) if name == "first"))
    }

    fn time(&self, spec: &TimestampSpec) -> Result<Time, SpecError> {
        let place = match &spec.place {
            PlaceSpec::Header(name) => Place::Header(vec![header_name("timestamp", name)?]),
            PlaceSpec::Item(name) if name == "first" && self.pair.is_none() => Place::FirstItem,
            PlaceSpec::Item(name) => Place::Item(name.as_str().into()),
            PlaceSpec::Body(path) if path.split('.').any(str::is_empty) => {
                return Err(wrong("timestamp", "the path into the body is names joined by dots, e.g. event.sent_at"));
            }
            PlaceSpec::Body(path) => Place::Body(path.split('.').map(Box::from).collect()),
        };
        let old = spec.tolerance.unwrap_or(WINDOW_DEFAULT);
        let future = match spec.future {
            None => Some(old),
            Some(Future::Within(span)) => Some(span),
            Some(Future::Any) => None,
        };
        let unit = one_of("unit", spec.unit.as_deref().unwrap_or("s"), &Unit::NAMED)?;
        Ok(Time { place, unit, window: Some(Window { old, future }) })
    }
}

fn wrong(field: &'static str, problem: impl Into<String>) -> SpecError {
    SpecError::Field { field, problem: problem.into() }
}

fn header_name(field: &'static str, name: &str) -> Result<HeaderName, SpecError> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(field, format!("{name:?} is not a header's name")))
}

fn one_of<T: Copy>(field: &'static str, name: &str, known: &[(&'static str, T)]) -> Result<T, SpecError> {
    known.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        wrong(field, format!("{name:?} is unknown; known: {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hmac() -> HmacSpec {
        HmacSpec { header: "X-Sig".into(), ..HmacSpec::default() }
    }

    fn at(place: PlaceSpec) -> Option<TimestampSpec> {
        Some(TimestampSpec { place, unit: None, tolerance: None, future: None })
    }

    fn refusal(spec: HmacSpec) -> (&'static str, String) {
        let error = GenericSpec::Hmac(Box::new(spec)).compile().unwrap_err();
        (error.field(), error.to_string())
    }

    #[test]
    fn a_header_alone_is_hmac_sha256_in_hex_over_the_body() {
        let Ok(Scheme::Signed(signed)) = GenericSpec::Hmac(Box::new(hmac())).compile() else { panic!("not signed") };
        assert_eq!(signed.alg, Alg::Hmac(Hash::Sha256));
        assert_eq!((signed.enc, signed.key, signed.items), (Enc::Hex, KeyForm::Text, Items::Whole));
        assert_eq!(signed.template, Template::parse("{body}").unwrap());
    }

    #[test]
    fn each_wrong_field_is_named() {
        let text = |text: &str| Some(text.to_owned());
        let cases = [
            (HmacSpec { header: "a b".into(), ..hmac() }, "header"),
            (HmacSpec { algorithm: text("md5"), ..hmac() }, "algorithm"),
            (HmacSpec { algorithm: text("plain-sha256"), ..hmac() }, "template"),
            (HmacSpec { encoding: text("base32"), ..hmac() }, "encoding"),
            (HmacSpec { template: text("{boddy}"), ..hmac() }, "template"),
            (HmacSpec { template: text("{ts}{body}"), ..hmac() }, "template"),
            (HmacSpec { template: text("{id}{body}"), ..hmac() }, "template"),
            (HmacSpec { id: text("X-Id"), ..hmac() }, "id"),
            (HmacSpec { key: text("pem"), ..hmac() }, "key"),
            (HmacSpec { separator: text(""), ..hmac() }, "separator"),
            (HmacSpec { take: vec!["v1".into()], ..hmac() }, "take"),
            (HmacSpec { pair: text("="), ..hmac() }, "take"),
            (HmacSpec { pair: text(""), take: vec!["v1".into()], ..hmac() }, "pair"),
            (HmacSpec { timestamp: at(PlaceSpec::Header("X-Ts".into())), ..hmac() }, "template"),
            (HmacSpec { timestamp: at(PlaceSpec::Body("a..b".into())), ..hmac() }, "timestamp"),
            (
                HmacSpec { template: text("{ts}.{body}"), timestamp: at(PlaceSpec::Body("a".into())), ..hmac() },
                "template",
            ),
            (
                HmacSpec { template: text("{ts}.{body}"), timestamp: at(PlaceSpec::Item("t".into())), ..hmac() },
                "timestamp",
            ),
            (
                HmacSpec { template: text("{ts}.{body}"), timestamp: at(PlaceSpec::Item("first".into())), ..hmac() },
                "timestamp",
            ),
        ];
        for (spec, field) in cases {
            let told = refusal(spec.clone());
            assert_eq!(told.0, field, "{spec:?}: {}", told.1);
        }
        let unit = TimestampSpec { unit: Some("min".into()), ..at(PlaceSpec::Header("X-Ts".into())).unwrap() };
        let told = refusal(HmacSpec { template: text("{ts}{body}"), timestamp: Some(unit), ..hmac() });
        assert_eq!(told, ("unit", "unit: \"min\" is unknown; known: s, ms, rfc3339, http-date".into()));
        assert_eq!(GenericSpec::Basic { user: Some("a:b".into()) }.compile().unwrap_err().field(), "user");
        assert_eq!(
            GenericSpec::Token { header: String::new(), prefix: String::new() }.compile().unwrap_err().field(),
            "header"
        );
    }

    #[test]
    fn an_unsigned_time_is_refused_with_the_reason() {
        let told = refusal(HmacSpec { timestamp: at(PlaceSpec::Header("X-Ts".into())), ..hmac() });
        assert!(told.1.contains("anybody could renew it"), "{}", told.1);
    }

    #[test]
    fn the_window_is_the_default_both_ways_unless_written() {
        let window = |tolerance, future| {
            let timestamp = TimestampSpec { tolerance, future, ..at(PlaceSpec::Header("X-Ts".into())).unwrap() };
            let spec = HmacSpec { template: Some("{ts}.{body}".into()), timestamp: Some(timestamp), ..hmac() };
            GenericSpec::Hmac(Box::new(spec)).compile().unwrap().time().unwrap().window
        };
        let ten = Duration::from_secs(10);
        assert_eq!(window(None, None), Some(Window::both(WINDOW_DEFAULT)));
        assert_eq!(window(Some(ten), None), Some(Window::both(ten)));
        assert_eq!(window(None, Some(Future::Any)), Some(Window { old: WINDOW_DEFAULT, future: None }));
        assert_eq!(
            window(Some(ten), Some(Future::Within(Duration::ZERO))),
            Some(Window { old: ten, future: Some(Duration::ZERO) })
        );
    }
}
