//! A curl command line, as documentation and the "copy as cURL" of browsers give it (curl 8, man page).

use base64::Engine as _;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderName, REFERER, USER_AGENT};

use super::words::split;
use super::{Captured, Form, Pieces, name, value};

/// Options that change nothing of what is sent, or nothing that is looked at here.
const WITHOUT_EFFECT: &[&str] = &[
    "-s",
    "-S",
    "-v",
    "-k",
    "-L",
    "-i",
    "-f",
    "-N",
    "-#",
    "-g",
    "-0",
    "-4",
    "-6",
    "--silent",
    "--show-error",
    "--verbose",
    "--insecure",
    "--location",
    "--include",
    "--show-headers",
    "--fail",
    "--fail-with-body",
    "--no-buffer",
    "--progress-bar",
    "--globoff",
    "--http1.0",
    "--http1.1",
    "--http2",
    "--http2-prior-knowledge",
    "--compressed",
    "--path-as-is",
    "--ipv4",
    "--ipv6",
    "--tcp-nodelay",
];

/// The same, with a value.
const VALUE_WITHOUT_EFFECT: &[&str] = &[
    "-o",
    "-w",
    "-m",
    "-x",
    "-E",
    "-c",
    "-D",
    "--output",
    "--write-out",
    "--max-time",
    "--connect-timeout",
    "--proxy",
    "--cert",
    "--key",
    "--cacert",
    "--resolve",
    "--connect-to",
    "--interface",
    "--retry",
    "--retry-delay",
    "--cookie-jar",
    "--dump-header",
];

/// What is known by two names.
const LONG: &[(&str, &str)] = &[
    ("-X", "--request"),
    ("-H", "--header"),
    ("-d", "--data"),
    ("-u", "--user"),
    ("-A", "--user-agent"),
    ("-e", "--referer"),
    ("-b", "--cookie"),
    ("-G", "--get"),
    ("-I", "--head"),
    ("-F", "--form"),
    ("-T", "--upload-file"),
];

type Files<'f> = &'f dyn Fn(&str) -> std::io::Result<Vec<u8>>;

/// What the options say.
#[derive(Default)]
struct Command {
    url: Option<String>,
    method: Option<String>,
    /// Name and value as given; no value takes the header away.
    headers: Vec<(HeaderName, Option<Vec<u8>>)>,
    data: Option<Vec<u8>>,
    json: bool,
    get: bool,
    head: bool,
}

/// Reads the command; `files` reads what `@` names.
pub(super) fn read(text: &str, files: Files<'_>) -> Result<Captured, String> {
    let at = text.find("curl").unwrap_or_default();
    let words = split(text.get(at..).unwrap_or_default())?;
    let mut command = Command::default();
    let mut words = words.into_iter().skip(1);
    while let Some(word) = words.next() {
        let mut rest = word.as_slice();
        if !rest.starts_with(b"-") || rest == b"-" {
            command.address(&text_of(&word)?)?;
            continue;
        }
        if rest.starts_with(b"--") {
            command.option(&text_of(rest)?, None, &mut words, files)?;
            continue;
        }
        // Letters in a row: `-sSXPOST` is -s, -S and -X POST.
        rest = rest.get(1..).unwrap_or_default();
        while let [letter, tail @ ..] = rest {
            let option = format!("-{}", char::from(*letter));
            rest = if command.option(&option, Some(tail), &mut words, files)? { b"" } else { tail };
        }
    }
    command.request()
}

fn text_of(word: &[u8]) -> Result<String, String> {
    String::from_utf8(word.to_vec()).map_err(|_| "an address or option is not UTF-8 text".to_owned())
}

impl Command {
    fn address(&mut self, url: &str) -> Result<(), String> {
        match &self.url {
            None => self.url = Some(url.to_owned()),
            Some(first) => return Err(format!("the command has two addresses, {first:?} and {url:?}: give it one")),
        }
        Ok(())
    }

    /// Takes an option; true where the rest of its word, or the next word, was its value.
    fn option(
        &mut self,
        given: &str,
        tail: Option<&[u8]>,
        words: &mut dyn Iterator<Item = Vec<u8>>,
        files: Files<'_>,
    ) -> Result<bool, String> {
        let option = LONG.iter().find(|(short, _)| *short == given).map_or(given, |(_, long)| long);
        match option {
            "--get" => self.get = true,
            "--head" => self.head = true,
            _ if WITHOUT_EFFECT.contains(&option) => {}
            "--form" | "--form-string" => {
                return Err(format!(
                    "{given} makes a multipart body with a boundary that curl chooses anew each time: give the request as raw HTTP"
                ));
            }
            "--upload-file" => return Err(format!("{given} is not read here: give the body with --data-binary @FILE")),
            _ => {
                let own = tail.filter(|tail| !tail.is_empty()).map(<[u8]>::to_vec);
                let known = self.takes(option);
                if !known {
                    return Err(format!(
                        "curl's option {given} is not known here; leave it out, or give the request as raw HTTP"
                    ));
                }
                let value = own.or_else(|| words.next()).ok_or_else(|| format!("{given} needs a value"))?;
                self.with_value(option, &value, files)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn takes(&self, option: &str) -> bool {
        const OURS: [&str; 13] = [
            "--url",
            "--request",
            "--header",
            "--data",
            "--data-ascii",
            "--data-raw",
            "--data-binary",
            "--data-urlencode",
            "--json",
            "--user",
            "--user-agent",
            "--referer",
            "--cookie",
        ];
        OURS.contains(&option) || VALUE_WITHOUT_EFFECT.contains(&option)
    }

    fn with_value(&mut self, option: &str, given: &[u8], files: Files<'_>) -> Result<(), String> {
        match option {
            "--url" => self.address(&text_of(given)?)?,
            "--request" => self.method = Some(text_of(given)?),
            "--header" => self.header(given)?,
            "--data" | "--data-ascii" => {
                let data = from_file(given, files)?;
                // Of a file's text curl takes the line ends out, of a text on the command line it does not.
                let data = data.map(|mut data| {
                    data.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0));
                    data
                });
                self.data(&data.unwrap_or_else(|| given.to_vec()), b"&");
            }
            "--data-raw" => self.data(given, b"&"),
            "--data-binary" => self.data(&from_file(given, files)?.unwrap_or_else(|| given.to_vec()), b"&"),
            "--data-urlencode" => {
                let encoded = urlencoded(given, files)?;
                self.data(&encoded, b"&");
            }
            "--json" => {
                self.json = true;
                self.data(&from_file(given, files)?.unwrap_or_else(|| given.to_vec()), b"");
            }
            "--user" => {
                let credentials = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(given));
                self.headers.push((AUTHORIZATION, Some(credentials.into_bytes())));
            }
            "--user-agent" => self.headers.push((USER_AGENT, Some(given.to_vec()))),
            "--referer" => self.headers.push((REFERER, Some(given.to_vec()))),
            "--cookie" => self.headers.push((COOKIE, Some(given.to_vec()))),
            _ => {}
        }
        Ok(())
    }

    /// `Name: value`; `Name;` is an empty one, `Name:` takes curl's own away.
    fn header(&mut self, line: &[u8]) -> Result<(), String> {
        let at = line.iter().position(|byte| *byte == b':');
        let (key, text) = match (at, line.strip_suffix(b";")) {
            (Some(at), _) => {
                let text = line.get(at + 1..).unwrap_or_default().trim_ascii();
                (line.get(..at).unwrap_or_default(), Some(text).filter(|text| !text.is_empty()))
            }
            (None, Some(key)) => (key, Some(&b""[..])),
            (None, None) => return Err("a -H is no `Name: value`".to_owned()),
        };
        // Browsers write HTTP/2's `:authority` and the like too; curl leaves them out.
        if !key.is_empty() {
            self.headers.push((name(key)?, text.map(<[u8]>::to_vec)));
        }
        Ok(())
    }

    fn data(&mut self, more: &[u8], between: &[u8]) {
        let data = self.data.get_or_insert_default();
        if !data.is_empty() {
            data.extend_from_slice(between);
        }
        data.extend_from_slice(more);
    }

    fn request(mut self) -> Result<Captured, String> {
        let mut url = self.url.take().ok_or("the command names no address")?;
        if !url.contains("://") {
            url = format!("http://{url}");
        }
        if let (true, Some(data)) = (self.get, self.data.take_if(|_| self.get)) {
            url = format!("{url}{}{}", if url.contains('?') { '&' } else { '?' }, text_of(&data)?);
        }
        let method = self.method.take().unwrap_or_else(|| {
            let method = if self.head {
                "HEAD"
            } else if self.data.is_some() {
                "POST"
            } else {
                "GET"
            };
            method.to_owned()
        });
        let mut headers = HeaderMap::new();
        if self.data.is_some() {
            let kind = if self.json { "application/json" } else { "application/x-www-form-urlencoded" };
            headers.insert(CONTENT_TYPE, value("Content-Type", kind.as_bytes())?);
        }
        let mut notes = Vec::new();
        if self.data.is_some() && !self.json && !self.headers.iter().any(|(key, _)| *key == CONTENT_TYPE) {
            let text = "without a Content-Type curl sends the body as a form, and key expressions read it as one";
            notes.push(text.to_owned());
        }
        let mut own = Vec::new();
        for (key, text) in self.headers {
            // A header that is written replaces curl's own; written twice, it is sent twice.
            if !own.contains(&key) {
                headers.remove(&key);
                own.push(key.clone());
            }
            if let Some(text) = text {
                let text = value(key.as_str(), &text)?;
                headers.append(key, text);
            }
        }
        let body = self.data.unwrap_or_default().into();
        let (parts, body, https) = Pieces { method, url, headers, body }.head()?;
        Ok(Captured { form: Form::Curl, parts, body, https, at: None, notes })
    }
}

/// The contents of the file that `@name` names; `None` where it names none.
fn from_file(given: &[u8], files: Files<'_>) -> Result<Option<Vec<u8>>, String> {
    let Some(path) = given.strip_prefix(b"@") else { return Ok(None) };
    let path = text_of(path)?;
    if path == "-" {
        return Err("@- reads the body from standard input: write it into a file and name that".to_owned());
    }
    files(&path).map(Some).map_err(|error| format!("the body cannot be read from {path}: {error}"))
}

/// `content`, `=content`, `name=content`, `@file` or `name@file`, the content percent-encoded.
fn urlencoded(given: &[u8], files: Files<'_>) -> Result<Vec<u8>, String> {
    let at = given.iter().position(|byte| matches!(byte, b'=' | b'@'));
    let (name, mark, content) = match at {
        Some(at) => (given.get(..at).unwrap_or_default(), given.get(at), given.get(at + 1..).unwrap_or_default()),
        None => (&b""[..], None, given),
    };
    let content = match mark {
        Some(b'@') => from_file(&[b"@", content].concat(), files)?.unwrap_or_default(),
        _ => content.to_vec(),
    };
    const KEPT: percent_encoding::AsciiSet =
        percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let encoded = percent_encoding::percent_encode(&content, &KEPT).to_string();
    let before = if name.is_empty() { Vec::new() } else { [name, b"="].concat() };
    Ok([&before, encoded.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &str) -> std::io::Result<Vec<u8>> {
        if path == "body.json" { Ok(b"{\r\n}\n".to_vec()) } else { Err(std::io::ErrorKind::NotFound.into()) }
    }

    fn body(command: &str) -> String {
        let got = read(command, &files).unwrap();
        String::from_utf8(got.body.to_vec()).unwrap()
    }

    #[test]
    fn bodies_are_made_as_curl_makes_them() {
        assert_eq!(body("curl a -d x=1 -d y=2"), "x=1&y=2");
        assert_eq!(body("curl a -d @body.json"), "{}");
        assert_eq!(body("curl a --data-binary @body.json"), "{\r\n}\n");
        assert_eq!(body("curl a --data-raw @body.json"), "@body.json");
        assert_eq!(body("curl a --data-urlencode 'a=b c&' --data-urlencode =é"), "a=b%20c%26&%C3%A9");
        assert_eq!(body("curl a --json '{\"a\"' --json ':1}'"), "{\"a\":1}");
        assert_eq!(body("curl a --data-raw $'{\"a\":\"\\u00e9\\n\"}'"), "{\"a\":\"é\n\"}");
    }

    #[test]
    fn method_headers_and_address_come_out_as_curl_sends_them() {
        let got = read(
            "curl -sSXPUT 'a.example/x?y=1#z' -H 'X-A: 1' -H 'X-A: 2' -H 'Content-Type:' -H 'X-E;' -d a -u me:pass",
            &files,
        );
        let got = got.unwrap();
        assert_eq!((got.parts.method.as_str(), got.parts.uri.to_string().as_str()), ("PUT", "/x?y=1"));
        let headers = &got.parts.headers;
        assert_eq!(headers.get_all("x-a").iter().count(), 2);
        assert!(!headers.contains_key("content-type") && headers["x-e"].is_empty());
        assert_eq!(
            (&headers["authorization"], &headers["host"]),
            (&"Basic bWU6cGFzcw==".parse().unwrap(), &"a.example".parse().unwrap())
        );
        let get = read("curl -G https://a/x -d a=1", &files).unwrap();
        assert_eq!(
            (get.parts.method.as_str(), get.parts.uri.to_string().as_str(), get.body.len()),
            ("GET", "/x?a=1", 0)
        );
        let form = read("curl a -d a", &files).unwrap();
        assert_eq!(form.parts.headers["content-type"], "application/x-www-form-urlencoded");
    }

    #[test]
    fn what_cannot_be_known_is_refused_and_no_credential_is_repeated() {
        for (command, why) in [
            ("curl", "no address"),
            ("curl a b", "two addresses"),
            ("curl a -F x=1", "multipart"),
            ("curl a --aws-sigv4 x", "--aws-sigv4 is not known"),
            ("curl a -H", "-H needs a value"),
            ("curl a -d @nothing", "cannot be read from nothing"),
            ("curl a -d @-", "standard input"),
        ] {
            let error = read(command, &files).unwrap_err();
            assert!(error.contains(why), "{command}: {error}");
        }
        let error = read("curl a -H $'X-A: hush\\n'x", &files).unwrap_err();
        assert!(!error.contains("hush"), "{error}");
    }
}
