//! HTTP Archive 1.2, as browsers' developer tools and recording proxies export it.

use base64::Engine as _;
use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;

use super::{Captured, Form, Pieces, name, value};
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
    params: Vec<serde::de::IgnoredAny>,
}

/// Reads the entry of this number, counted from 0.
pub(super) fn read(text: &[u8], number: usize) -> Result<Captured, String> {
    let har: Har = serde_json::from_slice(text).map_err(|error| format!("it begins as JSON and is no HAR: {error}"))?;
    let count = har.log.entries.len();
    let entry = har.log.entries.into_iter().nth(number);
    let Entry { started_date_time, request } =
        entry.ok_or_else(|| format!("there is no entry {number}: the HAR has {count}, counted from 0"))?;
    let mut notes = Vec::new();
    if count > 1 {
        notes.push(format!("entry {number} of {count} is explained; --entry N chooses another"));
    }
    let body = match request.post_data {
        None => Bytes::new(),
        Some(data) => body(data, &mut notes)?,
    };
    let mut headers = HeaderMap::new();
    // HTTP/2's own, `:authority` and the like, stand in the address already.
    for pair in request.headers.iter().filter(|pair| !pair.name.starts_with(':')) {
        let key = name(pair.name.as_bytes())?;
        let text = value(key.as_str(), pair.value.as_bytes())?;
        headers.append(key, text);
    }
    let at = started_date_time.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let at = at.map(|time| (Wall(u64::try_from(time.as_microsecond()).unwrap_or(0)), "the HAR's startedDateTime"));
    let (parts, body, https) = Pieces { method: request.method, url: request.url, headers, body }.head()?;
    Ok(Captured { form: Form::Har, parts, body, https, at, notes })
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
