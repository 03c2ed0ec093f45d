//! HTTP Archive 1.2, as browsers' developer tools and recording proxies export it.

use std::fmt;
use std::io::Read;

use base64::Engine as _;
use bytes::Bytes;
use http::HeaderMap;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Captured, Form, Pieces, many, name, value};
use crate::event::Wall;

#[derive(Deserialize)]
struct Har {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    started_date_time: Option<String>,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Pair>,
    post_data: Option<PostData>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct PostData {
    text: Option<String>,
    /// Not of the standard; some tools write it as it stands for responses there.
    encoding: Option<String>,
    #[serde(default)]
    params: Vec<IgnoredAny>,
}

/// Reads the entry of this number, counted from 0.
pub(super) fn read(text: &[u8], number: usize) -> Result<Captured, String> {
    let har: Har = serde_json::from_slice(text).map_err(|error| format!("it begins as JSON and is no HAR: {error}"))?;
    let count = har.log.entries.len();
    let entry = har.log.entries.into_iter().nth(number);
    let entry = entry.ok_or_else(|| format!("there is no entry {number}: the HAR has {count}, counted from 0"))?;
    let mut notes = Vec::new();
    if count > 1 {
        notes.push(format!("entry {number} of {count} is explained; --entry N chooses another"));
    }
    let at = entry.at().map(|at| (at, "the HAR's startedDateTime"));
    let (parts, body, https) = entry.pieces(&mut notes)?.head()?;
    Ok(Captured { form: Form::Har, parts, body, https, at, notes })
}

/// Gives every request of a HAR to `see` without holding more than one of them.
pub(super) fn each(reader: impl Read, see: &mut dyn FnMut(many::Entry)) -> Result<(), String> {
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    let whole = Member { name: "log", inner: Member { name: "entries", inner: Entries { see } } };
    let read = whole.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    read.map_err(|error| format!("it begins as a HAR and is no HAR: {error}"))
}

/// An object of which one member counts.
struct Member<S> {
    name: &'static str,
    inner: S,
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> DeserializeSeed<'de> for Member<S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> Visitor<'de> for Member<S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {:?}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut inner = Some(self.inner);
        while let Some(name) = map.next_key::<String>()? {
            match inner.take_if(|_| name == self.name) {
                Some(seed) => map.next_value_seed(seed)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if inner.is_none() { Ok(()) } else { Err(A::Error::missing_field(self.name)) }
    }
}

/// The list of entries.
struct Entries<'v> {
    see: &'v mut dyn FnMut(many::Entry),
}

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut number = 0_u64;
        while let Some(entry) = list.next_element::<Entry>()? {
            (self.see)(entry.request().map_err(|why| format!("entry {number}: {why}")));
            number += 1;
        }
        Ok(())
    }
}

impl Entry {
    fn at(&self) -> Option<Wall> {
        let time: jiff::Timestamp = self.started_date_time.as_ref()?.parse().ok()?;
        Some(Wall(u64::try_from(time.as_microsecond()).unwrap_or(0)))
    }

    fn request(self) -> many::Entry {
        let at = self.at();
        let (parts, body, _) = self.pieces(&mut Vec::new())?.head()?;
        Ok(many::Request { parts, body, at })
    }

    fn pieces(self, notes: &mut Vec<String>) -> Result<Pieces, String> {
        let Request { method, url, headers: pairs, post_data } = self.request;
        let body = post_data.map_or_else(|| Ok(Bytes::new()), |data| body(data, notes))?;
        let mut headers = HeaderMap::new();
        // HTTP/2's own, `:authority` and the like, stand in the address already.
        for pair in pairs.iter().filter(|pair| !pair.name.starts_with(':')) {
            let key = name(pair.name.as_bytes())?;
            let text = value(key.as_str(), pair.value.as_bytes())?;
            headers.append(key, text);
        }
        Ok(Pieces { method, url, headers, body })
    }
}

fn body(data: PostData, notes: &mut Vec<String>) -> Result<Bytes, String> {
    match (data.text, data.encoding.as_deref()) {
        (Some(text), Some("base64")) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim());
            bytes.map(Into::into).map_err(|error| format!("postData.text says base64 and is none: {error}"))
        }
        (Some(text), _) => {
            if text.contains(char::REPLACEMENT_CHARACTER) {
                notes.push("the body holds U+FFFD: whoever wrote the HAR replaced bytes there, and no signature over them fits".to_owned());
            }
            Ok(text.into_bytes().into())
        }
        (None, _) if !data.params.is_empty() => {
            Err("postData has only decoded params: the exact bytes, which were signed, are not in this HAR".to_owned())
        }
        (None, _) => Ok(Bytes::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn har(post_data: &str) -> Result<Captured, String> {
        let text = format!(
            r#"{{"log":{{"entries":[{{"request":{{"method":"GET","url":"http://a/first"}}}},
            {{"startedDateTime":"2026-01-31T08:00:00.5+01:00","request":{{"method":"POST","url":"http://user:pass@a:81/x?y#z",
            "headers":[{{"name":":method","value":"POST"}},{{"name":"X-A","value":"1"}},{{"name":"x-a","value":"2"}}],
            "postData":{post_data}}}}}]}}}}"#
        );
        read(text.as_bytes(), 1)
    }

    #[test]
    fn an_entry_is_read_with_its_time_and_host() {
        let got = har(r#"{"text":"AAE=","encoding":"base64"}"#).unwrap();
        assert_eq!((&got.body[..], got.at.unwrap().0.unix_ms()), (&[0, 1][..], 1_769_842_800_500));
        assert_eq!(
            (&got.parts.headers["host"], got.parts.uri.to_string().as_str()),
            (&"a:81".parse().unwrap(), "/x?y")
        );
        assert_eq!(got.parts.headers.get_all("x-a").iter().count(), 2);
        assert!(got.notes[0].contains("entry 1 of 2"), "{:?}", got.notes);
    }

    #[test]
    fn what_the_archive_does_not_hold_is_said() {
        assert!(har(r#"{"params":[{"name":"a","value":"b"}]}"#).unwrap_err().contains("exact bytes"));
        assert!(har("{\"text\":\"a\u{fffd}\"}").unwrap().notes[1].contains("U+FFFD"));
        let text = br#"{"log":{"entries":[]}}"#;
        assert!(read(text, 0).unwrap_err().contains("has 0"));
        assert!(read(b"{}", 0).unwrap_err().contains("no HAR"));
    }
}
