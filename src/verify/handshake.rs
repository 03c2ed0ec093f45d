//! Handshakes: a provider asks whether an address is willing, and wants one exact answer.
//!
//! One row for each question, as data: what marks it, whether it must be signed, what the answer
//! is made of. A request without a row's own marker is none of it and goes the ordinary way.
//!
//! Strangers can ask too, so an answer gives nothing away. An echo is plain text of the token's
//! own letters, short, and marked `nosniff`, so that no browser takes it for a page. Where a token
//! is answered with its HMAC, whoever asks has a text of their own signed: a request whose signed text
//! such a token could be is no event, however right its signature is. A signed question is answered only after its signature was right. No secret is
//! ever taken from a request: one that is handed over is acknowledged while the operator lets it, and
//! the operator takes it from there.

mod words;

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::value::RawValue;

use super::encoding::Enc;
use super::fetched;
use super::form::query_field;
use super::judge::{Request, Verified, Verifier, When};
use super::mac::{self, Hash, Mac, Tag};
use super::member::{at, document, scalar};
use super::spec::{Agreed, Handshakes, SpecError};
pub use words::questions;

/// The longest token that is answered, in bytes; those of providers are far shorter.
const TOKEN_BYTES_MAX: usize = 1_024;
/// Larger bodies are no questions, and are not read for one.
const BODY_BYTES_MAX: usize = 16 * 1_024;

/// The answer to a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The media type; `None` where there is no body.
    pub content_type: Option<&'static str>,
    /// Further headers.
    pub headers: HeaderMap,
    /// The body, to be sent as it is.
    pub body: Vec<u8>,
    /// An address of the provider's own that has to be asked for, with success, before this answer is given: so a
    /// subscription is confirmed.
    pub visit: Option<Box<str>>,
}

/// A request that may be a handshake, and what its answer may be made of.
pub struct Asked<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The public address with path and query, where it is known.
    pub url: Option<&'a str>,
    /// Whether its signature was right.
    pub verified: bool,
    /// What is agreed on with the provider.
    pub agreed: &'a Agreed,
    /// The HMAC of a text with the source's own secret; `None` where the scheme has none.
    pub hmac: &'a dyn Fn(&[u8]) -> Option<Tag>,
    /// What stands before the HMAC where the answer names the key: Braintree's public key.
    pub key_name: Option<&'a [u8]>,
}

/// One question of one provider.
struct Row {
    /// The preset's name; `None`: schemes of the operator's own.
    provider: Option<&'static str>,
    method: Method,
    /// All of these hold.
    marks: &'static [Mark],
    signed: bool,
    /// Answered only while the operator waits for it.
    open: bool,
    answer: Answer,
}

/// What marks a question.
enum Mark {
    Has(Place),
    Is(Place, &'static str),
    Lacks(Place),
}

/// Where a text stands in a request.
#[derive(Clone, Copy)]
enum Place {
    Query(&'static str),
    Header(&'static str),
    Member(&'static [&'static str]),
}

/// What the answer is made of.
enum Answer {
    /// This status, nothing else.
    Status(u16),
    /// This JSON text.
    Json(&'static str),
    /// The text, plain.
    Echo(Place, Letters),
    /// The text, plain, if another text is the agreed token; else 403.
    EchoIfToken { echo: Place, token: Place },
    /// The text, plain, if another text is one of the topics, or none are written down; else 404.
    EchoIfTopic { echo: Place, topic: Place },
    /// 200, after the address was asked for where SNS confirms a subscription to the topic.
    Visit { address: Place, topic: Place },
    /// The header, as it came.
    HeaderBack(&'static str),
    /// The text as this member of a JSON object.
    EchoJson(&'static str, Place),
    /// Zoom's: the text and its HMAC in hex.
    ZoomTokens(Place),
    /// X's: the HMAC of the text in base64.
    XCrc(Place),
    /// eBay's: the SHA-256 of text, agreed token and address, in hex.
    EbayHash(Place),
    /// Braintree's: public key and HMAC of the text, which is 20 to 32 hex digits.
    BraintreeHmac(Place),
    /// CloudEvents': the origin that may send.
    AllowOrigin(Place),
}

/// The letters that a token may have.
#[derive(Clone, Copy)]
enum Letters {
    /// Letters, digits and `-._~+/=`: every kind of token, and nothing that JSON or HTML begins with.
    Token,
    /// Those, blanks and colons: Microsoft Graph sends a sentence.
    Sentence,
}

const CHALLENGE: Place = Place::Member(&["challenge"]);
const TYPE: Place = Place::Member(&["type"]);
const EVENT: Place = Place::Member(&["event"]);
const HUB_CHALLENGE: Place = Place::Query("hub.challenge");
const TWITCH_TYPE: Place = Place::Header("twitch-eventsub-message-type");
const HOOK_SECRET: &str = "x-hook-secret";
const ORIGIN: Place = Place::Header("webhook-request-origin");

/// A question that is not signed.
const fn row(provider: &'static str, method: Method, marks: &'static [Mark], answer: Answer) -> Row {
    Row { provider: Some(provider), method, marks, signed: false, open: false, answer }
}

/// A question by POST that is signed as events are.
const fn signed(provider: &'static str, marks: &'static [Mark], answer: Answer) -> Row {
    Row { provider: Some(provider), method: Method::POST, marks, signed: true, open: false, answer }
}

/// A POST in which a secret is handed over.
const fn handing_over(provider: &'static str, marks: &'static [Mark], answer: Answer) -> Row {
    Row { provider: Some(provider), method: Method::POST, marks, signed: false, open: true, answer }
}

static ROWS: [Row; 20] = [
    // docs.slack.dev, "url_verification event"
    signed(
        "slack",
        &[Mark::Is(TYPE, "url_verification"), Mark::Has(CHALLENGE)],
        Answer::Echo(CHALLENGE, Letters::Token),
    ),
    // developers.facebook.com, Graph API webhooks, "Verification requests"
    row(
        "meta",
        Method::GET,
        &[Mark::Is(Place::Query("hub.mode"), "subscribe"), Mark::Has(HUB_CHALLENGE)],
        Answer::EchoIfToken { echo: HUB_CHALLENGE, token: Place::Query("hub.verify_token") },
    ),
    // developers.zoom.us, "Validate your webhook endpoint"; zoom/webhook-sample
    signed(
        "zoom",
        &[Mark::Is(EVENT, "endpoint.url_validation")],
        Answer::ZoomTokens(Place::Member(&["payload", "plainToken"])),
    ),
    // learn.microsoft.com, change notifications, "Endpoint validation"
    row(
        "microsoft-graph",
        Method::POST,
        &[Mark::Has(Place::Query("validationToken"))],
        Answer::Echo(Place::Query("validationToken"), Letters::Sentence),
    ),
    // docs.x.com, Account Activity, "Securing webhooks"
    row("x", Method::GET, &[Mark::Has(Place::Query("crc_token"))], Answer::XCrc(Place::Query("crc_token"))),
    // okta-developer-docs, event hooks, "One-time verification request"
    row(
        "okta",
        Method::GET,
        &[Mark::Has(Place::Header("x-okta-verification-challenge"))],
        Answer::EchoJson("verification", Place::Header("x-okta-verification-challenge")),
    ),
    // dropbox.com/developers/reference/webhooks, "The verification request"
    row(
        "dropbox",
        Method::GET,
        &[Mark::Has(Place::Query("challenge"))],
        Answer::Echo(Place::Query("challenge"), Letters::Token),
    ),
    // dev.twitch.tv, EventSub, "Responding to a challenge request"
    signed(
        "twitch",
        &[Mark::Is(TWITCH_TYPE, "webhook_callback_verification")],
        Answer::Echo(CHALLENGE, Letters::Token),
    ),
    // w3c/websub, "Hub Verifies Intent of the Subscriber". To end a subscription is refused: whoever
    // knows the address could ask a hub for it. Not renewed, it ends by itself.
    row(
        "websub",
        Method::GET,
        &[
            Mark::Is(Place::Query("hub.mode"), "subscribe"),
            Mark::Has(Place::Query("hub.topic")),
            Mark::Has(HUB_CHALLENGE),
        ],
        Answer::EchoIfTopic { echo: HUB_CHALLENGE, topic: Place::Query("hub.topic") },
    ),
    row(
        "websub",
        Method::GET,
        &[Mark::Is(Place::Query("hub.mode"), "unsubscribe"), Mark::Has(HUB_CHALLENGE)],
        Answer::Status(404),
    ),
    // developer.ebay.com, marketplace account deletion; eBay/event-notification-nodejs-sdk
    row(
        "ebay",
        Method::GET,
        &[Mark::Has(Place::Query("challenge_code"))],
        Answer::EbayHash(Place::Query("challenge_code")),
    ),
    // developer.monday.com, webhooks, "URL verification"
    row("monday", Method::POST, &[Mark::Has(CHALLENGE), Mark::Lacks(EVENT)], Answer::EchoJson("challenge", CHALLENGE)),
    // braintree/braintree_python webhook_notification_gateway, verify
    row(
        "braintree",
        Method::GET,
        &[Mark::Has(Place::Query("bt_challenge"))],
        Answer::BraintreeHmac(Place::Query("bt_challenge")),
    ),
    // discord-api-docs: PING of interactions is 1, of webhook events 0; an event is 1 too, and has `event`
    signed("discord", &[Mark::Is(TYPE, "1"), Mark::Lacks(EVENT)], Answer::Json(r#"{"type":1}"#)),
    signed("discord", &[Mark::Is(TYPE, "0")], Answer::Status(204)),
    // developer.atlassian.com, Trello webhooks: a HEAD at creation, and nothing that marks it
    row("trello", Method::HEAD, &[], Answer::Status(200)),
    // docs.aws.amazon.com/sns, "Confirm the subscription"
    Row {
        provider: Some("aws-sns"),
        method: Method::POST,
        marks: &[Mark::Is(Place::Member(&["Type"]), "SubscriptionConfirmation")],
        signed: true,
        open: true,
        answer: Answer::Visit { address: Place::Member(&["SubscribeURL"]), topic: Place::Member(&["TopicArn"]) },
    },
    // Asana/developer-docs, webhooks, "The webhook handshake": 200 or 204 with the same header
    handing_over("asana", &[Mark::Has(Place::Header(HOOK_SECRET))], Answer::HeaderBack(HOOK_SECRET)),
    // developers.notion.com, webhooks, "Verify the subscription": any 2xx
    handing_over(
        "notion",
        &[Mark::Has(Place::Member(&["verification_token"])), Mark::Lacks(TYPE)],
        Answer::Status(200),
    ),
    // cloudevents/spec http-webhook.md, §4 "Abuse protection"
    Row {
        provider: None,
        method: Method::OPTIONS,
        marks: &[Mark::Has(ORIGIN)],
        signed: false,
        open: false,
        answer: Answer::AllowOrigin(ORIGIN),
    },
];

/// Whether what is agreed on can have an effect.
///
/// # Errors
/// A word or topics that no handshake of this provider uses.
pub(super) fn check(provider: Option<&'static str>, agreed: &Agreed) -> Result<(), SpecError> {
    let rows = || ROWS.iter().filter(|row| row.provider == provider);
    let unused = |field, problem: String| Err(SpecError::Field { field, problem });
    let name = provider.unwrap_or("a scheme of your own");
    let takes_token = |row: &Row| matches!(row.answer, Answer::EchoIfToken { .. } | Answer::EbayHash(_));
    if agreed.token.is_some() && !rows().any(takes_token) {
        return unused("verify_token", format!("{name} has no handshake with an agreed word: remove it"));
    }
    let of_topic = |row: &Row| matches!(row.answer, Answer::EchoIfTopic { .. } | Answer::Visit { .. });
    if !agreed.topics.is_empty() && !rows().any(of_topic) {
        return unused("topics", format!("{name} sends no topics to choose from: remove them"));
    }
    if agreed.handshakes == Handshakes::Open && !rows().any(|row| row.open) {
        return unused(
            "handshake",
            format!("{name} hands no secret over and has nothing confirmed, so open has no effect: write answer"),
        );
    }
    Ok(())
}

impl Verifier {
    /// Whether a request with the head of `head`, whose body is not looked at, may be a handshake.
    #[must_use]
    pub fn may_ask(&self, head: &Request<'_>) -> bool {
        let may = |mark: &Mark| mark.is_in_body() || mark.holds(head);
        self.rows(head.method).any(|row| row.marks.iter().all(may))
    }

    /// Whether `request` is a handshake of this provider, as far as it can be one before its signature is judged.
    #[must_use]
    pub fn asks(&self, request: &Request<'_>) -> bool {
        self.rows(request.method).any(|row| row.marks.iter().all(|mark| mark.holds(request)))
    }

    /// The answer to `request` where it is a handshake; `None` where it is not, or where it is one that must be signed
    /// and is not: then it goes the ordinary way, which refuses it. `verified` is what came of its judgement.
    #[must_use]
    pub fn answer(&self, request: &Request<'_>, verified: Option<&Verified>, when: When) -> Option<Reply> {
        if self.agreed.handshakes == Handshakes::Off {
            return None;
        }
        let secret = self.in_use(verified.and_then(|verified| verified.secret), when);
        let hmac = |text: &[u8]| secret?.tag(&[text]);
        let url = self.url(request).ok();
        answer(
            self.provider(),
            &Asked {
                request,
                url: url.as_deref(),
                verified: verified.is_some(),
                agreed: &self.agreed,
                hmac: &hmac,
                key_name: secret.and_then(|secret| super::posted::public_key(secret.value.expose())),
            },
        )
    }

    /// [`Verifier::asks`], the judgement, and [`Verifier::answer`] in one.
    #[must_use]
    pub fn handshake(&self, request: &Request<'_>, when: When) -> Option<Reply> {
        // Ordinary requests are not judged twice.
        if !self.asks(request) {
            return None;
        }
        self.answer(request, self.judge_when(request, when).ok().as_ref(), when)
    }

    /// Whether there are handshakes that it answers.
    #[must_use]
    pub fn answers_handshakes(&self) -> bool {
        self.all_rows().any(|row| row.is_answered(self.agreed.handshakes))
    }

    /// Whether its handshake needs a word to be agreed on.
    #[must_use]
    pub fn wants_token(&self) -> bool {
        let takes = |row: &Row| matches!(row.answer, Answer::EchoIfToken { .. } | Answer::EbayHash(_));
        self.agreed.token.is_none() && self.agreed.handshakes != Handshakes::Off && self.all_rows().any(takes)
    }

    /// Whether what `request` has signed is a text that a handshake would sign for anybody who asks. Whether handshakes
    /// are answered now does not matter: an answer of another day is as good.
    pub(super) fn has_signed_on_demand(&self, request: &Request<'_>) -> bool {
        let mut on_demand = self.all_rows().filter(|row| !row.signed).map(|row| &row.answer).peekable();
        if on_demand.peek().is_none() {
            return false;
        }
        let text = self.posted_payload(request.body).unwrap_or(Cow::Borrowed(request.body));
        on_demand.any(|answer| answer.signs(&text))
    }

    fn provider(&self) -> Option<&'static str> {
        self.preset().map(|preset| preset.name)
    }

    fn all_rows(&self) -> impl Iterator<Item = &'static Row> {
        let provider = self.provider();
        ROWS.iter().filter(move |row| row.provider == provider)
    }

    /// The questions that are answered, of this method.
    fn rows(&self, method: &Method) -> impl Iterator<Item = &'static Row> {
        let handshakes = self.agreed.handshakes;
        self.all_rows().filter(move |row| row.method == *method && row.is_answered(handshakes))
    }
}

impl Row {
    fn is_answered(&self, handshakes: Handshakes) -> bool {
        match handshakes {
            Handshakes::Off => false,
            Handshakes::Answer => !self.open,
            Handshakes::Open => true,
        }
    }
}

/// The answer of the first of the provider's rows that `asked` fits; `None` for the provider: of a
/// scheme of the operator's own.
#[must_use]
pub fn answer(provider: Option<&str>, asked: &Asked<'_>) -> Option<Reply> {
    let rows = ROWS.iter().filter(|row| row.provider == provider && row.method == *asked.request.method);
    rows.filter(|row| row.is_answered(asked.agreed.handshakes) && (asked.verified || !row.signed))
        .filter(|row| row.marks.iter().all(|mark| mark.holds(asked.request)))
        .find_map(|row| row.answer.make(asked))
}

impl Mark {
    fn is_in_body(&self) -> bool {
        let (Self::Has(place) | Self::Is(place, _) | Self::Lacks(place)) = self;
        matches!(place, Place::Member(_))
    }

    fn holds(&self, request: &Request<'_>) -> bool {
        match self {
            Self::Has(place) => place.read(request).is_some_and(|text| !text.is_empty()),
            Self::Is(place, wanted) => place.read(request).is_some_and(|text| *text == *wanted.as_bytes()),
            Self::Lacks(place) => !place.exists(request),
        }
    }
}

impl Place {
    fn read<'r>(self, request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
        match self {
            Self::Query(name) => query_field(request.target, name.as_bytes()),
            Self::Header(name) => request.headers.get(name).map(|value| Cow::Borrowed(value.as_bytes().trim_ascii())),
            Self::Member(path) => Some(match scalar(member(request, path)?)? {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            }),
        }
    }

    /// Whether anything stands there, of whatever kind.
    fn exists(self, request: &Request<'_>) -> bool {
        match self {
            Self::Member(path) => member(request, path).is_some(),
            Self::Query(_) | Self::Header(_) => self.read(request).is_some(),
        }
    }

    /// The token that stands there; `None` when it is not made of these letters.
    fn token(self, request: &Request<'_>, letters: Letters) -> Option<String> {
        let text = self.read(request)?;
        let good = is_token(&text, letters);
        if good { String::from_utf8(text.into_owned()).ok() } else { None }
    }
}

/// Whether a text is made of these letters, and short.
fn is_token(text: &[u8], letters: Letters) -> bool {
    let allowed = |byte: &u8| match byte {
        b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=' => true,
        b' ' | b':' => matches!(letters, Letters::Sentence),
        byte => byte.is_ascii_alphanumeric(),
    };
    !text.is_empty() && text.len() <= TOKEN_BYTES_MAX && text.iter().all(allowed)
}

/// Braintree's tokens are 20 to 32 hexadecimal digits.
fn is_braintree_token(text: &[u8]) -> bool {
    matches!(text.len(), 20..=32) && text.iter().all(u8::is_ascii_hexdigit)
}

fn member<'r>(request: &Request<'r>, path: &[&str]) -> Option<&'r RawValue> {
    let body = Some(request.body).filter(|body| body.len() <= BODY_BYTES_MAX)?;
    at(document(body)?, path)
}

impl Answer {
    /// Whether its answer holds the HMAC of exactly this text for whoever asks.
    fn signs(&self, text: &[u8]) -> bool {
        match self {
            Self::XCrc(_) | Self::ZoomTokens(_) => is_token(text, Letters::Token),
            Self::BraintreeHmac(_) => is_braintree_token(text),
            // Nothing in these is made with the secret that signs events.
            Self::Status(_)
            | Self::Json(_)
            | Self::Echo(..)
            | Self::EchoIfToken { .. }
            | Self::EchoIfTopic { .. }
            | Self::Visit { .. }
            | Self::HeaderBack(_)
            | Self::EchoJson(..)
            | Self::EbayHash(_)
            | Self::AllowOrigin(_) => false,
        }
    }

    fn make(&self, asked: &Asked<'_>) -> Option<Reply> {
        let token = |place: &Place| place.token(asked.request, Letters::Token);
        match self {
            Self::Status(status) => Some(bare(*status)),
            Self::Json(text) => Some(typed("application/json", (*text).to_owned())),
            Self::Echo(place, letters) => Some(plain(place.token(asked.request, *letters)?)),
            Self::EchoIfToken { echo, token: claimed } => {
                let agreed = asked.agreed.token.as_ref()?;
                let claimed = claimed.read(asked.request).unwrap_or_default();
                match mac::same_text(&claimed, agreed.expose()) {
                    true => Some(plain(token(echo)?)),
                    false => Some(bare(403)),
                }
            }
            Self::EchoIfTopic { echo, topic: claimed } => {
                let topics = &asked.agreed.topics;
                let claimed = claimed.read(asked.request).unwrap_or_default();
                match topics.is_empty() || topics.iter().any(|topic| topic.as_bytes() == &*claimed) {
                    true => Some(plain(token(echo)?)),
                    false => Some(bare(404)),
                }
            }
            Self::Visit { address, topic } => {
                let text = |place: &Place| String::from_utf8(place.read(asked.request)?.into_owned()).ok();
                let address = text(address)?;
                fetched::is_sns_confirmation(&address, &text(topic)?)
                    .then(|| Reply { visit: Some(address.into()), ..bare(200) })
            }
            Self::HeaderBack(name) => {
                let value = HeaderValue::try_from(token(&Place::Header(name))?).ok()?;
                let mut reply = bare(200);
                reply.headers.insert(HeaderName::from_static(name), value);
                Some(reply)
            }
            Self::EchoJson(name, place) => Some(json(&[(name, token(place)?)])),
            Self::ZoomTokens(place) => {
                let text = token(place)?;
                let sealed = Enc::Hex.encode((asked.hmac)(text.as_bytes())?.as_bytes());
                Some(json(&[("plainToken", text), ("encryptedToken", sealed)]))
            }
            Self::XCrc(place) => {
                let tag = (asked.hmac)(token(place)?.as_bytes())?;
                Some(json(&[("response_token", format!("sha256={}", Enc::Base64.encode(tag.as_bytes())))]))
            }
            Self::EbayHash(place) => {
                let mut hash = Mac::plain(Hash::Sha256);
                hash.update(token(place)?.as_bytes());
                hash.update(asked.agreed.token.as_ref()?.expose());
                hash.update(asked.url?.split('?').next().unwrap_or_default().as_bytes());
                Some(json(&[("challengeResponse", Enc::Hex.encode(hash.finish().as_bytes()))]))
            }
            Self::BraintreeHmac(place) => {
                let text = token(place).filter(|text| is_braintree_token(text.as_bytes()))?;
                let tag = Enc::Hex.encode((asked.hmac)(text.as_bytes())?.as_bytes());
                Some(plain(format!("{}|{tag}", std::str::from_utf8(asked.key_name?).ok()?)))
            }
            Self::AllowOrigin(place) => {
                let origin = HeaderValue::try_from(token(place)?).ok()?;
                let mut reply = bare(200);
                reply.headers.insert(HeaderName::from_static("webhook-allowed-origin"), origin);
                reply.headers.insert(http::header::ALLOW, HeaderValue::from_static("POST, OPTIONS"));
                Some(reply)
            }
        }
    }
}

fn bare(status: u16) -> Reply {
    Reply { status, content_type: None, headers: HeaderMap::new(), body: Vec::new(), visit: None }
}

fn typed(content_type: &'static str, text: String) -> Reply {
    let mut reply = Reply { content_type: Some(content_type), body: text.into_bytes(), ..bare(200) };
    reply.headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

fn plain(text: String) -> Reply {
    typed("text/plain", text)
}

/// A JSON object of texts, in this order.
fn json(members: &[(&str, String)]) -> Reply {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let members: Vec<_> = members.iter().map(|(name, text)| format!("{}:{}", quoted(name), quoted(text))).collect();
    typed("application/json", format!("{{{}}}", members.join(",")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Secret, Wall};
    use crate::verify::{Choice, GenericSpec, Outgoing, SecretSpec, Spec, preset};

    const NOW: Wall = Wall(1_767_225_600_000_000);

    fn verifier(name: &str, secret: &str) -> Verifier {
        Verifier::new(Spec::new(Choice::Preset(name.into()), vec![SecretSpec::new(Secret::new(secret))])).unwrap()
    }

    fn agreeing(name: &str, agreed: Agreed) -> Verifier {
        let secrets = vec![SecretSpec::new(Secret::new("s"))];
        Verifier::new(Spec { agreed, ..Spec::new(Choice::Preset(name.into()), secrets) }).unwrap()
    }

    fn request<'a>(method: &'a Method, target: &'a str, headers: &'a HeaderMap, body: &'a str) -> Request<'a> {
        Request { method, target, seen_url: Some("https://a.example"), headers, body: body.as_bytes() }
    }

    fn get(verifier: &Verifier, target: &str) -> Option<Reply> {
        verifier.handshake(&request(&Method::GET, target, &HeaderMap::new(), ""), When::At(NOW))
    }

    /// Posts a body that the verifier itself signs; with another body, it is forged.
    fn post(verifier: &Verifier, signed: &str, sent: &str) -> Option<Reply> {
        let mut headers = HeaderMap::new();
        headers.insert("twitch-eventsub-message-type", HeaderValue::from_static("webhook_callback_verification"));
        let url = "https://a.example/";
        let outgoing = Outgoing { method: &Method::POST, url, body: signed.as_bytes(), now: NOW, id: "1" };
        verifier.sign(&outgoing, &mut headers).unwrap();
        verifier.handshake(&request(&Method::POST, "/", &headers, sent), When::At(NOW))
    }

    fn body(reply: Option<Reply>) -> Option<String> {
        reply.map(|reply| String::from_utf8(reply.body).unwrap())
    }

    #[test]
    fn every_row_belongs_to_a_preset() {
        for row in &ROWS {
            assert!(row.provider.is_none_or(|name| preset(name).is_some()), "{:?}", row.provider);
        }
    }

    #[test]
    fn an_echo_is_plain_text_and_nothing_else() {
        let reply = get(&verifier("dropbox", "s"), "/in?challenge=a-b_c.1").unwrap();
        assert_eq!((reply.status, reply.content_type, &*reply.body), (200, Some("text/plain"), &b"a-b_c.1"[..]));
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
        let dropbox = verifier("dropbox", "s");
        for token in ["", "%3Cscript%3E", "a%20b", "a%0Ab", "%C3%A9", "%7B%7D", "%FF"] {
            assert_eq!(get(&dropbox, &format!("/in?challenge={token}")), None, "{token}");
        }
        assert!(get(&dropbox, &format!("/in?challenge={}", "a".repeat(1_024))).is_some());
        assert_eq!(get(&dropbox, &format!("/in?challenge={}", "a".repeat(1_025))), None);
        assert_eq!(get(&dropbox, "/in?other=1"), None, "the marker is missing");
        assert_eq!(get(&verifier("shopify", "s"), "/in?challenge=a"), None, "another provider's");
    }

    #[test]
    fn a_signed_question_is_answered_only_when_signed_right() {
        let slack = r#"{"type":"url_verification","challenge":"3eZbrw1aBm2rZgRNFdxV"}"#;
        let zoom = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
        let zoom_answer = concat!(
            r#"{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":"#,
            // printf '%s' qgg8vlvZRS6UYooatFL8Aw | openssl dgst -sha256 -hmac s
            r#""93aa52bcb22637104b103fa602ee132a2459036070fc4ef715f04d8ce8a99166"}"#
        );
        for (name, question, wanted) in [
            ("slack", slack, "3eZbrw1aBm2rZgRNFdxV"),
            ("zoom", zoom, zoom_answer),
            ("twitch", r#"{"challenge":"pogchamp-kappa"}"#, "pogchamp-kappa"),
        ] {
            let verifier = verifier(name, "s");
            assert_eq!(body(post(&verifier, question, question)).as_deref(), Some(wanted), "{name}");
            assert_eq!(post(&verifier, "{}", question), None, "{name}: forged");
        }
        let slack = verifier("slack", "s");
        for event in [r#"{"type":"event_callback","challenge":"a"}"#, r#"{"type":"url_verification"}"#, "{}", ""] {
            assert_eq!(post(&slack, event, event), None, "{event}");
        }
    }

    #[test]
    fn a_token_that_is_not_the_agreed_one_is_refused() {
        let meta = agreeing("meta", Agreed { token: Some(Secret::new("agreed")), ..Agreed::default() });
        let ask = |token| get(&meta, &format!("/?hub.mode=subscribe&hub.challenge=1158&hub.verify_token={token}"));
        assert_eq!(body(ask("agreed")).as_deref(), Some("1158"));
        assert_eq!((ask("other").unwrap().status, ask("").unwrap().status), (403, 403));
        let target = "/?hub.mode=subscribe&hub.challenge=1&hub.verify_token=";
        assert_eq!(get(&verifier("meta", "s"), target), None, "nothing is agreed on");
        assert_eq!(get(&meta, "/?hub.mode=other&hub.challenge=1&hub.verify_token=agreed"), None);
    }

    #[test]
    fn no_event_can_be_signed_by_asking() {
        let x = verifier("x", "s");
        // A form of one field, a number, a token: each could be read as an event by somebody.
        for text in ["abc", "for_user_id=4242", "12345", "true"] {
            let answer = body(get(&x, &format!("/?crc_token={}", text.replace('=', "%3D")))).unwrap();
            let signature = answer.split('"').nth(3).unwrap();
            let mut headers = HeaderMap::new();
            headers.insert("x-twitter-webhooks-signature", signature.parse().unwrap());
            let refused = x.judge(&request(&Method::POST, "/", &headers, text), NOW).unwrap_err();
            assert_eq!(refused.reason(), "malformed_body", "{text}: {refused}");
        }
        for body in ["%7B%22for_user_id%22%3A1%7D", "%5B%5D", "%22a%22", "a%20b"] {
            assert_eq!(get(&x, &format!("/?crc_token={body}")), None, "{body}");
        }
        let braintree = verifier("braintree", "public:private");
        for challenge in ["20f9f8ed05f77439fe955c977e4c8a53", "0123456789abcdef01234567"] {
            let answer = body(get(&braintree, &format!("/?bt_challenge={challenge}"))).unwrap();
            assert!(answer.starts_with("public|") && answer.len() == 47, "{answer}");
            let form = format!("bt_signature={}&bt_payload={challenge}", answer.replace('|', "%7C"));
            let refused = braintree.judge(&request(&Method::POST, "/", &HeaderMap::new(), &form), NOW).unwrap_err();
            assert_eq!(refused.reason(), "malformed_body", "{challenge}: {refused}");
        }
        for challenge in ["20f9", "zzzzzzzzzzzzzzzzzzzzzzzz", "20f9f8ed05f77439fe955c977e4c8a5320f9"] {
            assert_eq!(get(&braintree, &format!("/?bt_challenge={challenge}")), None, "{challenge}");
        }
    }

    /// Whatever an unsigned question has signed is no event, for any provider and any text.
    #[test]
    fn what_an_answer_holds_opens_no_door() {
        let headers = HeaderMap::new();
        proptest!(|(text in "[a-zA-Z0-9=_.~+/-]{1,40}|[0-9a-f]{20,32}")| {
            for name in ["x", "braintree", "zoom", "meta", "dropbox", "okta", "monday", "microsoft-graph", "websub"] {
                let secret = if name == "braintree" { "public:private" } else { "s" };
                let own = verifier(name, secret);
                let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
                for target in ["crc_token", "bt_challenge", "challenge", "validationToken", "hub.challenge"] {
                    let Some(answer) = body(get(&own, &format!("/?{target}={query}"))) else { continue };
                    let signed = own.in_use(None, When::At(NOW)).and_then(|secret| secret.tag(&[text.as_bytes()]));
                    let Some(tag) = signed else { continue };
                    let holds = [Enc::Hex, Enc::Base64].iter().any(|enc| answer.contains(&enc.encode(tag.as_bytes())));
                    let form = format!("bt_payload={text}");
                    let event = if name == "braintree" { form.as_str() } else { text.as_str() };
                    let event = request(&Method::POST, "/", &headers, event);
                    prop_assert!(!holds || own.has_signed_on_demand(&event), "{} {}", name, text);
                }
            }
        });
    }

    #[test]
    fn each_other_provider_gets_its_own_answer() {
        let websub = verifier("websub", "s");
        let ask = |mode| get(&websub, &format!("/?hub.mode={mode}&hub.topic=https://t.example/&hub.challenge=abc"));
        assert_eq!(body(ask("subscribe")).as_deref(), Some("abc"));
        assert_eq!(ask("unsubscribe").unwrap().status, 404);
        assert_eq!(ask("denied"), None);

        let mut headers = HeaderMap::new();
        headers.insert("x-okta-verification-challenge", HeaderValue::from_static("a1"));
        let asked = request(&Method::GET, "/", &headers, "");
        let answer = verifier("okta", "s").handshake(&asked, When::At(NOW));
        assert_eq!(body(answer).as_deref(), Some(r#"{"verification":"a1"}"#));

        let none = HeaderMap::new();
        let ask = |name, method, target, text| {
            verifier(name, "s").handshake(&request(&method, target, &none, text), When::At(NOW))
        };
        let target = "/?validationToken=Validation%3a+Testing+client";
        assert_eq!(
            body(ask("microsoft-graph", Method::POST, target, "")).as_deref(),
            Some("Validation: Testing client")
        );
        let monday = ask("monday", Method::POST, "/", r#"{"challenge":"a"}"#);
        assert_eq!(body(monday).as_deref(), Some(r#"{"challenge":"a"}"#));
        assert_eq!(ask("monday", Method::POST, "/", r#"{"challenge":"a","event":{}}"#), None);
        assert_eq!(ask("trello", Method::HEAD, "/", ""), Some(bare(200)));
        assert_eq!(ask("trello", Method::GET, "/", ""), None);
    }

    #[test]
    fn a_secret_that_is_handed_over_is_acknowledged_only_while_the_operator_waits_for_it() {
        let mut headers = HeaderMap::new();
        headers.insert("x-hook-secret", HeaderValue::from_static("b537207f20cbfa02"));
        let asana = request(&Method::POST, "/", &headers, "{}");
        let none = HeaderMap::new();
        let notion = request(&Method::POST, "/", &none, r#"{"verification_token":"secret_tMrlL1qK5"}"#);
        let open = |name| agreeing(name, Agreed { handshakes: Handshakes::Open, ..Agreed::default() });
        let reply = open("asana").handshake(&asana, When::At(NOW)).unwrap();
        assert_eq!((reply.status, &reply.headers["x-hook-secret"]), (200, &headers["x-hook-secret"]));
        assert_eq!(open("notion").handshake(&notion, When::At(NOW)), Some(bare(200)));
        for (name, request) in [("asana", &asana), ("notion", &notion)] {
            assert_eq!(verifier(name, "s").handshake(request, When::At(NOW)), None, "{name}");
            let off = agreeing(name, Agreed { handshakes: Handshakes::Off, ..Agreed::default() });
            assert!(!off.may_ask(request), "{name}");
        }
    }

    #[test]
    fn a_hub_is_told_which_topics_are_ours() {
        let topics = vec!["https://t.example/a".into()];
        let websub = agreeing("websub", Agreed { topics, ..Agreed::default() });
        let ask = |topic| get(&websub, &format!("/?hub.mode=subscribe&hub.topic={topic}&hub.challenge=abc"));
        assert_eq!(body(ask("https://t.example/a")).as_deref(), Some("abc"));
        assert_eq!(ask("https://t.example/b").unwrap().status, 404);
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        let refused = |name: &str, agreed| {
            let secrets = vec![SecretSpec::new(Secret::new("s"))];
            let spec = Spec { agreed, ..Spec::new(Choice::Preset(name.into()), secrets) };
            Verifier::new(spec).unwrap_err().field()
        };
        let token = Some(Secret::new("s"));
        assert_eq!(refused("slack", Agreed { token, ..Agreed::default() }), "verify_token");
        assert_eq!(refused("slack", Agreed { topics: vec!["a".into()], ..Agreed::default() }), "topics");
        assert_eq!(refused("slack", Agreed { handshakes: Handshakes::Open, ..Agreed::default() }), "handshake");
    }

    #[test]
    fn a_head_says_what_may_be_a_question() {
        let none = HeaderMap::new();
        let may = |name, method, target| verifier(name, "s").may_ask(&request(&method, target, &none, ""));
        assert!(may("slack", Method::POST, "/"), "its body has to be seen");
        assert!(!may("slack", Method::GET, "/"));
        assert!(may("x", Method::GET, "/?crc_token=a") && !may("x", Method::GET, "/"));
        assert!(!may("shopify", Method::POST, "/"));
    }

    #[test]
    fn discord_s_pings_are_not_its_events() {
        let headers = HeaderMap::new();
        let ask = |verified, text: &str| {
            let request = request(&Method::POST, "/", &headers, text);
            let asked = Asked {
                request: &request,
                url: None,
                verified,
                agreed: &Agreed::default(),
                hmac: &|_| None,
                key_name: None,
            };
            answer(Some("discord"), &asked)
        };
        assert_eq!(body(ask(true, r#"{"type":1}"#)).as_deref(), Some(r#"{"type":1}"#));
        assert_eq!(ask(true, r#"{"type":0}"#).unwrap().status, 204);
        assert_eq!(ask(true, r#"{"type":1,"event":{"type":"X"}}"#), None);
        assert_eq!(ask(true, r#"{"type":2}"#), None);
        assert_eq!(ask(false, r#"{"type":1}"#), None, "wrong on purpose: it wants 401");
    }

    #[test]
    fn cloudevents_are_for_schemes_of_one_s_own() {
        let spec = GenericSpec::Bearer.compile().unwrap();
        let own = Verifier::new(Spec::new(Choice::Scheme(spec), vec![SecretSpec::new(Secret::new("s"))])).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("webhook-request-origin", HeaderValue::from_static("eventemitter.example.com"));
        let asked = request(&Method::OPTIONS, "/", &headers, "");
        let reply = own.handshake(&asked, When::At(NOW)).unwrap();
        assert_eq!(reply.headers["webhook-allowed-origin"], "eventemitter.example.com");
        assert_eq!(verifier("shopify", "s").handshake(&asked, When::At(NOW)), None);
    }

    proptest! {
        #[test]
        fn whatever_is_asked_an_echo_holds_only_its_letters(
            provider in prop::sample::select(ROWS.iter().filter_map(|row| row.provider).collect::<Vec<_>>()),
            method in prop::sample::select(vec![Method::GET, Method::POST, Method::HEAD]),
            name in "(challenge|hub\\.challenge|crc_token|validationToken|bt_challenge|challenge_code)",
            query in "[ -~]{0,40}",
            text in prop_oneof![any::<String>(), r#"\{"(type|challenge|event)":("[a-z<]{0,9}"|[01])\}"#],
        ) {
            let headers = HeaderMap::new();
            let target = format!("/?hub.mode=subscribe&hub.topic=t&{name}={query}");
            let request = request(&method, &target, &headers, &text);
            let agreed = Agreed { token: Some(Secret::new("")), handshakes: Handshakes::Open, ..Agreed::default() };
            let asked = Asked {
                request: &request,
                url: Some(&target),
                verified: true,
                agreed: &agreed,
                hmac: &|_| Some(mac::sha256(b"")),
                key_name: Some(b"public"),
            };
            if let Some(reply) = answer(Some(provider), &asked) {
                prop_assert!(reply.body.len() <= TOKEN_BYTES_MAX + 100);
                if reply.content_type == Some("text/plain") {
                    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/= :|".contains(byte);
                    prop_assert!(reply.body.iter().all(plain));
                }
                prop_assert_eq!(reply.headers.contains_key("x-content-type-options"), !reply.body.is_empty());
            }
        }
    }
}
