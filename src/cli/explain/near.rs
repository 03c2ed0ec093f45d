//! What a refused request would have been genuine with: the usual slips of copying a secret or a body, tried one after another.
//!
//! Pure: it judges the same request again with another body or another secret. It says which change fits and never what a secret is.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::event::Secret;
use crate::verify::scheme::Scheme;
use crate::verify::{Rejection, Request, Verifier, When};

/// Who else may send somewhere in the configuration, and how to call that place.
pub(super) struct Other<'a> {
    pub(super) name: &'a str,
    pub(super) verifier: &'a Verifier,
}

/// What the request would have been genuine with, in words; `None` where the rejection is of another kind than a wrong proof.
pub(super) fn near(
    request: &Request<'_>,
    verifier: &Verifier,
    rejection: &Rejection,
    others: &[Other<'_>],
) -> Option<String> {
    matches!(rejection, Rejection::BadSignature { .. } | Rejection::BadToken { .. }).then(|| {
        let found = changed(request, verifier).or_else(|| elsewhere(request, verifier, others));
        found.map_or_else(|| nothing(verifier), |what| format!("it fits {what}"))
    })
}

/// The first of all changes that fits; those of the body alone, or of the secret alone, before both at once.
fn changed(request: &Request<'_>, verifier: &Verifier) -> Option<String> {
    if genuine(verifier, request) {
        return Some("a secret whose `until` is over: the provider still signs with the old one".to_owned());
    }
    let bodies = bodies(request.body);
    let with_body = |body| Request { body, ..*request };
    if let Some((what, _)) = bodies.iter().find(|(_, body)| genuine(verifier, &with_body(body))) {
        return Some((*what).to_owned());
    }
    let verifiers: Vec<(&str, Verifier)> =
        SLIPS.iter().filter_map(|(what, change)| Some((*what, changing(verifier, *change)?))).collect();
    if let Some((what, _)) = verifiers.iter().find(|(_, other)| genuine(other, request)) {
        return Some((*what).to_owned());
    }
    verifiers.iter().find_map(|(secret, other)| {
        let (body, _) = bodies.iter().find(|(_, body)| genuine(other, &with_body(body)))?;
        Some(format!("{secret}, and {body}"))
    })
}

/// Whose else it is: another sender's altogether, or signed with the secret that another source has.
fn elsewhere(request: &Request<'_>, verifier: &Verifier, others: &[Other<'_>]) -> Option<String> {
    let secret = |other: &&Other<'_>| {
        let theirs = verifier.with_secrets(other.verifier.secrets().cloned());
        theirs.is_ok_and(|theirs| genuine(&theirs, request))
    };
    let others = || others.iter().filter(|other| !matches!(other.verifier.scheme(), Scheme::None | Scheme::Fetched(_)));
    let whole = others().find(|other| genuine(other.verifier, request));
    whole.map(|other| format!("the source {}: it was sent to the wrong path", other.name)).or_else(|| {
        others().find(secret).map(|other| format!("the secret of the source {}: the two were mixed up", other.name))
    })
}

fn nothing(verifier: &Verifier) -> String {
    let address =
        if verifier.scheme().covers_url() { ", or the address is another one (verify.public_url)" } else { "" };
    format!("no usual slip fits: the secret is another one, or the body was changed on the way{address}")
}

/// Whether it is genuine, of whatever age: a slip is one whenever it is looked at.
fn genuine(verifier: &Verifier, request: &Request<'_>) -> bool {
    verifier.judge_when(request, When::AnyAge).is_ok()
}

/// The verifier with each secret changed; `None` where no secret is another one afterwards, or the scheme cannot use it.
fn changing(verifier: &Verifier, change: Change) -> Option<Verifier> {
    let secrets = verifier.secrets().filter_map(|secret| change(secret.expose()).map(Secret::new));
    let secrets: Vec<Secret> = secrets.collect();
    (!secrets.is_empty()).then(|| verifier.with_secrets(secrets).ok()).flatten()
}

type Change = fn(&[u8]) -> Option<Vec<u8>>;

/// How secrets are miscopied, and what each slip makes of one.
const SLIPS: [(&str, Change); 7] = [
    ("the secret without the blanks or the line end around it", |text| {
        let trimmed = text.trim_ascii();
        (trimmed != text).then(|| trimmed.to_owned())
    }),
    ("the secret without its `whsec_`", |text| text.strip_prefix(b"whsec_").map(<[u8]>::to_owned)),
    ("the secret with `whsec_` before it", |text| (!text.starts_with(b"whsec_")).then(|| [b"whsec_", text].concat())),
    ("the secret decoded from base64: the sender signs with the bytes", |text| STANDARD.decode(text.trim_ascii()).ok()),
    ("the secret decoded from hexadecimal: the sender signs with the bytes", unhex),
    // Where the scheme decodes, encoding first gives the text itself.
    ("the secret as text, not decoded from base64", |text| Some(STANDARD.encode(text).into_bytes())),
    ("the secret as text, not decoded from hexadecimal", |text| {
        Some(text.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect())
    }),
];

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = text.iter().map(digit).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    (rest.is_empty() && !pairs.is_empty()).then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// How bodies are changed by copying, editors and programs that read and write JSON again.
fn bodies(body: &[u8]) -> Vec<(&'static str, Cow<'_, [u8]>)> {
    let mut bodies = vec![
        ("the body with a final \\n: it was lost", [body, b"\n"].concat().into()),
        ("the body with a final \\r\\n: it was lost", [body, b"\r\n"].concat().into()),
    ];
    if let Some(shorter) = body.strip_suffix(b"\r\n").or_else(|| body.strip_suffix(b"\n")) {
        bodies.push(("the body without its final line end: it was added", shorter.into()));
    }
    if let Some(minified) = minified(body).filter(|minified| minified != body) {
        bodies.push(("the body without the blanks between its JSON: it was written anew", minified.into()));
    }
    bodies
}

/// JSON without blanks outside its texts, otherwise as it stands: numbers and the order of members are signed too.
fn minified(body: &[u8]) -> Option<Vec<u8>> {
    serde_json::from_slice::<serde::de::IgnoredAny>(body).ok()?;
    let (mut text, mut escape) = (false, false);
    let kept = body.iter().filter(|byte| {
        let (was_text, was_escape) = (text, escape);
        escape = was_text && !was_escape && **byte == b'\\';
        text ^= **byte == b'"' && !was_escape;
        was_text || !byte.is_ascii_whitespace()
    });
    Some(kept.copied().collect())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;
    use crate::event::Wall;
    use crate::verify::{Choice, Outgoing, SecretSpec, Spec};

    const NOW: Wall = Wall(1_767_225_600_000_000);

    fn verifier(provider: &str, secret: &str) -> Verifier {
        Verifier::new(Spec::new(Choice::Preset(provider.into()), vec![SecretSpec::new(Secret::new(secret))])).unwrap()
    }

    /// What is said where `signed` was signed with one secret, and `got` came to where another is configured.
    fn told(provider: &str, secrets: [&str; 2], signed: &str, got: &str, others: &[Other<'_>]) -> String {
        let [theirs, ours] = secrets;
        let method = Method::POST;
        let mut headers = HeaderMap::new();
        let url = "https://a.example/in";
        let outgoing = Outgoing { method: &method, url, body: signed.as_bytes(), now: NOW, id: "msg_1" };
        verifier(provider, theirs).sign(&outgoing, &mut headers).unwrap();
        let request = Request {
            method: &method,
            target: "/in",
            seen_url: Some("https://a.example"),
            headers: &headers,
            body: got.as_bytes(),
        };
        let ours = verifier(provider, ours);
        let rejection = ours.judge(&request, NOW).unwrap_err();
        let text = near(&request, &ours, &rejection, others).unwrap();
        for secret in secrets {
            assert!(!text.contains(secret.trim()), "{text}");
        }
        text
    }

    #[test]
    fn each_slip_is_named() {
        let same = ["hush-1", "hush-1"];
        let body = r#"{"a": "x \" y", "b":1.50}"#;
        let minified = r#"{"a":"x \" y","b":1.50}"#;
        let line = |end: &str| format!("{body}{end}");
        for (secrets, signed, got, fits) in [
            (same, &*line("\n"), body, "with a final \\n"),
            (same, &line("\r\n"), body, "with a final \\r\\n"),
            (same, body, &line("\n"), "without its final line end"),
            (same, body, &line("\r\n"), "without its final line end"),
            (same, minified, body, "without the blanks between its JSON"),
            (["hush-1", " hush-1\n"], body, body, "without the blanks or the line end around it"),
            (["hush-1", "whsec_hush-1"], body, body, "without its `whsec_`"),
            (["whsec_hush-1", "hush-1"], body, body, "with `whsec_` before it"),
            (["hush-1", "aHVzaC0x"], body, body, "decoded from base64"),
            (["hush-1", "687573682d31"], body, body, "decoded from hexadecimal"),
            (["hush-1", "hush-1\n"], body, &line("\n"), "around it, and the body without its final line end"),
            (["hush-1", "hush-2"], body, body, "no usual slip fits: the secret is another one"),
            (same, body, "{}", "no usual slip fits: the secret is another one"),
        ] {
            let text = told("github", secrets, signed, got, &[]);
            assert!(text.contains(fits), "{fits}: {text}");
        }
        for (provider, secrets, fits) in [
            ("airtable", ["YUhWemFDMHg=", "aHVzaC0x"], "as text, not decoded from base64"),
            ("squarespace", ["363837353733363832643331", "687573682d31"], "as text, not decoded from hexadecimal"),
        ] {
            let text = told(provider, secrets, body, body, &[]);
            assert!(text.contains(fits), "{fits}: {text}");
        }
    }

    #[test]
    fn another_source_is_named() {
        let (shopify, slack, github) =
            (verifier("shopify", "hush-1"), verifier("slack", "hush-2"), verifier("github", "hush-3"));
        let others = [
            Other { name: "/shopify", verifier: &shopify },
            Other { name: "/slack", verifier: &slack },
            Other { name: "/github", verifier: &github },
        ];
        let text = told("github", ["hush-2", "hush-0"], "{}", "{}", &others);
        assert!(text.contains("the secret of the source /slack"), "{text}");
        let text = told("github", ["hush-3", "hush-0"], "{}", "{}", &others);
        assert!(text.contains("the source /github: it was sent to the wrong path"), "{text}");
    }

    #[test]
    fn other_refusals_are_no_slips() {
        let ours = verifier("github", "hush-1");
        let headers = HeaderMap::new();
        let request = Request { method: &Method::POST, target: "/", seen_url: None, headers: &headers, body: b"" };
        let rejection = ours.judge(&request, NOW).unwrap_err();
        assert_eq!(near(&request, &ours, &rejection, &[]), None);
    }
}
