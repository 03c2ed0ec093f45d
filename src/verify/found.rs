//! What a request carries for a scheme: headers, and the signatures inside them.
//!
//! A header that is missing or empty is a refusal, never "unsigned and therefore fine". One that is
//! repeated must have one value: with two, a proxy and the upstream could each believe another.

use http::{HeaderMap, HeaderName};

use super::reject::{Rejection, shown};
use super::scheme::{Carrier, Items, List, Place, Prefix, Signed};

/// Items of one header, or numbered headers, that are looked at: a rotation needs two or three;
/// each costs a comparison for every secret.
const ITEMS_MAX: usize = 64;

/// The value of the first of `names` that the request has, without the blanks around it.
pub(super) fn one<'h>(
    headers: &'h HeaderMap,
    names: &[HeaderName],
    carries: &'static str,
) -> Result<&'h [u8], Rejection> {
    let name = present(headers, names);
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.as_bytes().trim_ascii()).filter(|value| !value.is_empty());
    let first = first.ok_or_else(|| Rejection::MissingHeader { header: name.clone(), carries })?;
    if values.any(|other| other.as_bytes().trim_ascii() != first) {
        return Err(Rejection::malformed(name, "it is there more than once, with different values"));
    }
    Ok(first)
}

/// The first of `names` that the request has; the first at all when it has none.
pub(super) fn present<'n>(headers: &HeaderMap, names: &'n [HeaderName]) -> &'n HeaderName {
    let there = names.iter().find(|name| headers.contains_key(*name));
    there.or_else(|| names.first()).expect("a checked scheme names at least one header")
}

/// The signatures of a request, and the time that stands beside them.
#[derive(Debug)]
pub(super) struct Found<'h> {
    /// Where they stand.
    pub(super) header: HeaderName,
    /// Their texts, prefix taken off; at least one. Where each belongs to one secret, in the order
    /// of those, empty where there is none.
    pub(super) signatures: Vec<&'h [u8]>,
    /// The time's text where the scheme has it among the items.
    pub(super) time: Option<&'h [u8]>,
}

impl<'h> Found<'h> {
    /// Looks for what `signed` wants.
    pub(super) fn find(signed: &Signed, headers: &'h HeaderMap) -> Result<Self, Rejection> {
        match &signed.carrier {
            Carrier::Header(names) => {
                let value = one(headers, names, "the signature")?;
                let header = present(headers, names).clone();
                Self::split(signed, header, value)
            }
            Carrier::Own(names) => {
                let value = |name| match headers.contains_key(name) {
                    true => one(headers, std::slice::from_ref(name), "a signature"),
                    false => Ok(&b""[..]),
                };
                let signatures = names.iter().map(value).collect::<Result<Vec<_>, _>>()?;
                let header = present(headers, names).clone();
                match signatures.iter().all(|text| text.is_empty()) {
                    true => Err(Rejection::MissingHeader { header, carries: "the signature" }),
                    false => Ok(Self { header, signatures, time: None }),
                }
            }
            Carrier::Numbered(before) => {
                let first = HeaderName::from_bytes(format!("{before}1").as_bytes())
                    .expect("a numbered carrier is a header's name without its number");
                let signatures: Vec<_> = headers
                    .iter()
                    .filter(|(name, _)| is_numbered(name, before))
                    .map(|(_, value)| value.as_bytes().trim_ascii())
                    .filter(|value| !value.is_empty())
                    .collect();
                match signatures.len() {
                    0 => Err(Rejection::MissingHeader { header: first, carries: "the signature" }),
                    1..=ITEMS_MAX => Ok(Self { header: first, signatures, time: None }),
                    _ => Err(too_many(&first)),
                }
            }
        }
    }

    fn split(signed: &Signed, header: HeaderName, value: &'h [u8]) -> Result<Self, Rejection> {
        let mut time = None;
        let mut signatures = match &signed.items {
            Items::Whole => vec![value],
            Items::List(list) => items(list, value, &header)?,
            Items::TimeFirst(list) => {
                let mut all = items(list, value, &header)?.into_iter();
                time = all.next();
                all.collect()
            }
            Items::Pairs { list, pair, take } => {
                let all = items(list, value, &header)?;
                let named = |wanted: &[u8]| {
                    let pairs = all.iter().filter_map(|item| cut(item, pair.as_bytes()));
                    pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value).collect::<Vec<_>>()
                };
                if let Some(Place::Item(name)) = signed.time.as_ref().map(|time| &time.place) {
                    time = named(name.as_bytes()).first().copied();
                }
                let signatures: Vec<_> = take.iter().flat_map(|name| named(name.as_bytes())).collect();
                if signatures.is_empty() {
                    return Err(Rejection::malformed(&header, no_such_item(take, pair, &all)));
                }
                signatures
            }
        };
        if let Some(prefix) = &signed.prefix {
            signatures = signatures.into_iter().filter_map(|text| after(prefix, text)).collect();
            if signatures.is_empty() {
                // What stands there instead may be most of somebody's secret: it is not shown.
                let problem = format!("what it holds does not begin with {:?}", prefix.text);
                return Err(Rejection::malformed(&header, problem));
            }
        }
        if signatures.is_empty() {
            return Err(Rejection::malformed(&header, "it holds no signature"));
        }
        Ok(Self { header, signatures, time })
    }
}

fn items<'h>(list: &List, value: &'h [u8], header: &HeaderName) -> Result<Vec<&'h [u8]>, Rejection> {
    let separators = list.separators.as_bytes();
    let items: Vec<_> = value
        .split(|byte| separators.contains(byte))
        .map(|item| if list.trim { item.trim_ascii() } else { item })
        .filter(|item| !item.is_empty())
        .take(ITEMS_MAX + 1)
        .collect();
    if items.len() > ITEMS_MAX { Err(too_many(header)) } else { Ok(items) }
}

/// Says which items there are; by their names only, since a value may be a signature that is right.
fn no_such_item(take: &[Box<str>], pair: &str, items: &[&[u8]]) -> String {
    let names: Vec<_> = items.iter().filter_map(|item| cut(item, pair.as_bytes())).map(|(name, _)| name).collect();
    let found = if names.is_empty() { "none".to_owned() } else { shown(&names.join(&b' ')) };
    format!("it has no item {}; found: {found}", take.join(" or "))
}

fn too_many(header: &HeaderName) -> Rejection {
    Rejection::malformed(header, format!("more than {ITEMS_MAX} signatures"))
}

fn cut<'h>(item: &'h [u8], pair: &[u8]) -> Option<(&'h [u8], &'h [u8])> {
    let at = item.windows(pair.len().max(1)).position(|window| window == pair)?;
    let (name, rest) = item.split_at_checked(at)?;
    Some((name, rest.strip_prefix(pair)?))
}

fn after<'h>(prefix: &Prefix, text: &'h [u8]) -> Option<&'h [u8]> {
    match text.strip_prefix(prefix.text.as_bytes()) {
        Some(rest) => Some(rest),
        None if prefix.optional => Some(text),
        None => None,
    }
}

fn is_numbered(name: &HeaderName, before: &str) -> bool {
    name.as_str()
        .strip_prefix(before)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("x-sig");

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (NAME, HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn one_header_has_one_value() {
        let value = |values: &[&str]| one(&headers(values), &[NAME], "x").map(<[u8]>::to_vec);
        assert_eq!(value(&[" a "]), Ok(b"a".to_vec()));
        assert_eq!(value(&["a", "a"]), Ok(b"a".to_vec()));
        assert_eq!(value(&["a", "b"]).unwrap_err().reason(), "malformed_header");
        assert_eq!(value(&["a", ""]).unwrap_err().reason(), "malformed_header");
        for values in [&[][..], &[""], &["  "], &["", "a"]] {
            assert_eq!(value(values).unwrap_err().reason(), "missing_header", "{values:?}");
        }
    }

    #[test]
    fn the_first_present_name_counts() {
        let names = [HeaderName::from_static("x-new"), NAME];
        assert_eq!(one(&headers(&["old"]), &names, "x"), Ok(&b"old"[..]));
        let mut both = headers(&["old"]);
        both.insert("x-new", HeaderValue::from_static(""));
        assert!(one(&both, &names, "x").is_err(), "an empty one does not hand over to the next");
    }

    #[test]
    fn an_item_is_cut_at_its_first_pair() {
        assert_eq!(cut(b"v1=a=b", b"="), Some((&b"v1"[..], &b"a=b"[..])));
        assert_eq!(cut(b"v1", b"="), None);
        assert_eq!(cut(b"", b"="), None);
        assert_eq!(cut(b"=x", b"="), Some((&b""[..], &b"x"[..])));
    }

    #[test]
    fn the_number_of_items_is_bounded() {
        let list = List { separators: ",".into(), trim: true };
        assert_eq!(items(&list, b"a, b,,c", &NAME).unwrap(), [b"a", b"b", b"c"]);
        assert_eq!(items(&list, "a,".repeat(64).as_bytes(), &NAME).unwrap().len(), 64);
        assert!(items(&list, "a,".repeat(65).as_bytes(), &NAME).is_err());
    }

    #[test]
    fn a_numbered_header_ends_in_a_number() {
        for (name, is) in
            [("x-sig-1", true), ("x-sig-12", true), ("x-sig-", false), ("x-sig-a", false), ("y-sig-1", false)]
        {
            assert_eq!(is_numbered(&HeaderName::from_static(name), "x-sig-"), is, "{name}");
        }
    }
}
