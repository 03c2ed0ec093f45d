//! Signatures by keys that have to be fetched: Amazon SNS, PayPal.
//!
//! The request itself says where the certificate is, so anybody could have us fetch anything: an address counts only where it is,
//! from its first letter to its last, one of the provider's own. All that costs nothing is checked before: the fields, the topic,
//! the time. Without the certificate the judgement is [`Rejection::KeyNeeded`]; whoever fetches it asks again with it.
//!
//! Nobody's own secret is in these schemes. SNS signs for every topic of every customer, so what counts is whose topic it is; of
//! PayPal the webhook's id, which is in the signed text.

use http::{HeaderMap, HeaderName};

use super::certificate::Certificate;
use super::encoding::Enc;
use super::found::one;
use super::judge::{Request, Verified, Verifier, When};
use super::member::{at, document, scalar};
use super::public::PublicAlg;
use super::reject::{Rejection, shown};
use super::scheme::{Time, Unit};

/// A signature by a key that has to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Whose.
    pub of: Of,
    /// The signed time.
    pub time: Time,
}

/// Who signs with keys that have to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Amazon SNS: the signature is a member of the body, over some of the others
    /// (docs.aws.amazon.com/sns, "Verifying the signatures of Amazon SNS messages").
    Sns,
    /// PayPal: a header, over id, time, webhook id and the body's CRC-32
    /// (developer.paypal.com, "Verify the webhook signature", "Self verification").
    PayPal,
}

/// Key material that was fetched.
#[derive(Clone, Copy, Debug)]
pub struct Material<'a> {
    /// From where.
    pub url: &'a str,
    /// A certificate in PEM.
    pub pem: &'a [u8],
}

pub(super) const PAYPAL_SIGNATURE: HeaderName = HeaderName::from_static("paypal-transmission-sig");
const PAYPAL_ID: HeaderName = HeaderName::from_static("paypal-transmission-id");
pub(super) const PAYPAL_TIME: HeaderName = HeaderName::from_static("paypal-transmission-time");
const PAYPAL_CERT: HeaderName = HeaderName::from_static("paypal-cert-url");
const PAYPAL_ALGORITHM: HeaderName = HeaderName::from_static("paypal-auth-algo");

/// What a PayPal request must have beside its signature.
pub(super) const PAYPAL_OTHERS: [HeaderName; 4] = [PAYPAL_ID, PAYPAL_TIME, PAYPAL_CERT, PAYPAL_ALGORITHM];

impl Verifier {
    /// Judges a request whose key has to be fetched.
    pub(super) fn fetched(
        &self,
        fetched: &Fetched,
        request: &Request<'_>,
        when: When,
        material: Option<Material<'_>>,
    ) -> Result<Verified, Rejection> {
        match fetched.of {
            Of::Sns => self.sns(request, when, material),
            Of::PayPal => self.paypal(request, when, material),
        }
    }

    fn sns(&self, request: &Request<'_>, when: When, material: Option<Material<'_>>) -> Result<Verified, Rejection> {
        let message = Message::read(request.body)?;
        let topic = message.member("TopicArn")?;
        if !self.agreed.topics.iter().any(|own| **own == *topic) {
            return Err(Rejection::UnknownTopic { topic: shown(topic.as_bytes()) });
        }
        let version = message.member("SignatureVersion")?;
        let alg = match version.as_str() {
            "1" => PublicAlg::RsaPkcs1Sha1,
            "2" => PublicAlg::RsaPkcs1,
            other => return Err(malformed(format!("SignatureVersion is {}, not 1 or 2", shown(other.as_bytes())))),
        };
        let sent = message.member("Timestamp")?;
        let sent_ms = Unit::Rfc3339.read(sent.as_bytes());
        let sent_ms =
            sent_ms.ok_or_else(|| malformed(format!("Timestamp is {}, not a date", shown(sent.as_bytes()))))?;
        let signature = Enc::Base64.decode(message.member("Signature")?.as_bytes());
        let signature = signature.ok_or_else(|| malformed("Signature is not base64"))?;
        let url = message.member("SigningCertURL")?;
        if !is_sns_certificate(&url) {
            return Err(Rejection::UntrustedKey {
                problem: format!("SigningCertURL is no certificate of SNS: {}", shown(url.as_bytes())),
            });
        }
        let text = message.signed_text()?;
        let judged = Verified::without_secret(self);
        // It is believed only after the signature was right; what is too old need not have it fetched.
        let judged = self.in_window(sent_ms, when, judged)?;
        let certificate = fetched_certificate(&url, when, material)?;
        let key = certificate.key(alg).ok_or_else(|| Rejection::UntrustedKey {
            problem: "the certificate's key is not RSA of 2048 to 8192 bits".to_owned(),
        })?;
        match key.verifies(text.as_bytes(), &signature) {
            true => Ok(judged),
            false => Err(Rejection::BadSignature { place: "Signature".to_owned(), secrets: 0, url: None }),
        }
    }

    fn paypal(&self, request: &Request<'_>, when: When, material: Option<Material<'_>>) -> Result<Verified, Rejection> {
        let header = |name: &HeaderName, carries| paypal_header(request.headers, name, carries);
        let signature = header(&PAYPAL_SIGNATURE, "the signature")?;
        let signature = Enc::Base64.decode(signature);
        let signature = signature.ok_or_else(|| Rejection::malformed(&PAYPAL_SIGNATURE, "it is not base64"))?;
        let id = header(&PAYPAL_ID, "the signed id")?;
        let sent = header(&PAYPAL_TIME, "the signed time")?;
        let algorithm = header(&PAYPAL_ALGORITHM, "how the signature is made")?;
        if algorithm != b"SHA256withRSA" {
            let problem = format!("it must be SHA256withRSA; found: {}", shown(algorithm));
            return Err(Rejection::malformed(&PAYPAL_ALGORITHM, problem));
        }
        let sent_ms = Unit::Rfc3339
            .read(sent)
            .ok_or_else(|| Rejection::malformed(&PAYPAL_TIME, format!("{} is not a date", shown(sent))))?;
        let url = header(&PAYPAL_CERT, "where the certificate is")?;
        let host = std::str::from_utf8(url).ok().and_then(paypal_certificate_host);
        let (host, url) = host.ok_or_else(|| Rejection::UntrustedKey {
            problem: format!("{PAYPAL_CERT} is no certificate of PayPal: {}", shown(url)),
        })?;
        let unbelieved = Verified::without_secret(self);
        let skew = self.in_window(sent_ms, when, unbelieved)?.skew_s;
        let certificate = fetched_certificate(url, when, material)?;
        if !certificate.names(host) {
            return Err(Rejection::UntrustedKey { problem: format!("the certificate is not for {host}") });
        }
        let key = certificate.key(PublicAlg::RsaPkcs1).ok_or_else(|| Rejection::UntrustedKey {
            problem: "the certificate's key is not RSA of 2048 to 8192 bits".to_owned(),
        })?;
        let sum = crc32fast::hash(request.body).to_string();
        let matched = self.first_match(when, |armed| {
            let text = [id, sent, armed.value.expose(), sum.as_bytes()].join(&b'|');
            key.verifies(&text, &signature)
        })?;
        let verified = matched.ok_or_else(|| Rejection::BadSignature {
            place: PAYPAL_SIGNATURE.to_string(),
            secrets: self.live_count(when),
            url: None,
        })?;
        Ok(verified.with_skew(skew))
    }
}

/// The certificate that was fetched from `url`, good at this moment.
fn fetched_certificate<'m>(
    url: &str,
    when: When,
    material: Option<Material<'m>>,
) -> Result<Certificate<'m>, Rejection> {
    let Some(material) = material.filter(|material| material.url == url) else {
        return Err(Rejection::KeyNeeded { url: url.into() });
    };
    let untrusted = |problem: &str| Rejection::UntrustedKey { problem: format!("what is at {url} {problem}") };
    let certificate = Certificate::read(material.pem).ok_or_else(|| untrusted("is no certificate"))?;
    match when {
        When::At(now) if !certificate.is_good_at(now) => Err(untrusted("is a certificate of another time")),
        When::At(_) | When::AnyAge | When::Opaque => Ok(certificate),
    }
}

fn paypal_header<'h>(headers: &'h HeaderMap, name: &HeaderName, carries: &'static str) -> Result<&'h [u8], Rejection> {
    one(headers, std::slice::from_ref(name), carries)
}

/// A message of SNS.
struct Message<'b>(&'b serde_json::value::RawValue);

impl<'b> Message<'b> {
    fn read(body: &'b [u8]) -> Result<Self, Rejection> {
        document(body).map(Self).ok_or_else(|| malformed("it is not a JSON document"))
    }

    /// A member that must be there.
    fn member(&self, name: &str) -> Result<String, Rejection> {
        let text = self.maybe(name);
        text.ok_or_else(|| malformed(format!("the text {name} is missing; is raw message delivery on?")))
    }

    /// A member's text; `None` where there is none, or it is no text.
    fn maybe(&self, name: &str) -> Option<String> {
        let value = at(self.0, &[name]).filter(|value| value.get().starts_with('"'))?;
        scalar(value).map(std::borrow::Cow::into_owned)
    }

    /// Name and value of some members, a line each.
    fn signed_text(&self) -> Result<String, Rejection> {
        let names: &[&str] = match self.member("Type")?.as_str() {
            "Notification" => &["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"],
            "SubscriptionConfirmation" | "UnsubscribeConfirmation" => {
                &["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
            }
            other => return Err(malformed(format!("Type is {}, which SNS does not send", shown(other.as_bytes())))),
        };
        let mut text = String::new();
        for name in names {
            match self.maybe(name) {
                Some(value) => text.extend([name, "\n", &value, "\n"]),
                None if *name == "Subject" => {}
                None => return Err(malformed(format!("the text {name} is missing"))),
            }
        }
        Ok(text)
    }
}

/// `https://sns.<region>.amazonaws.com[.cn]` and what follows it.
fn after_sns_host(url: &str) -> Option<&str> {
    let (region, rest) = url.strip_prefix("https://sns.")?.split_once('.')?;
    let rest = rest.strip_prefix("amazonaws.com")?;
    is_region(region).then(|| rest.strip_prefix(".cn").unwrap_or(rest))
}

/// Whether this has the form of a region: `us-east-1`, `us-gov-west-1`, `ap-southeast-2`. Other services have names of their own there
/// (`s3-us-west-2`, `execute-api`), and what stands under them may be anybody's.
fn is_region(text: &str) -> bool {
    let letters = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase());
    let parts: Vec<_> = text.split('-').collect();
    let [first, middle @ .., number] = parts.as_slice() else { return false };
    first.len() == 2
        && letters(first)
        && (1..=2).contains(&middle.len())
        && middle.iter().all(|part| part.len() >= 3 && letters(part))
        && (1..=2).contains(&number.len())
        && number.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a certificate of SNS is here: `/SimpleNotificationService-` and digits.
fn is_sns_certificate(url: &str) -> bool {
    let name =
        after_sns_host(url).and_then(|path| path.strip_prefix("/SimpleNotificationService-")?.strip_suffix(".pem"));
    name.is_some_and(|name| (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Whether a subscription to `topic` is confirmed here.
pub(super) fn is_sns_confirmation(url: &str, topic: &str) -> bool {
    let Some(target) = after_sns_host(url) else { return false };
    let Some(query) = target.strip_prefix("/?Action=ConfirmSubscription&") else { return false };
    let plain = query.bytes().all(|b| b.is_ascii_alphanumeric() || b"=&%:-_.~".contains(&b));
    let own = super::form::query_field(target, b"TopicArn").is_some_and(|named| *named == *topic.as_bytes());
    plain && own && query.len() <= 2_048
}

/// The host that a certificate of PayPal at this address must name, and the address.
fn paypal_certificate_host(url: &str) -> Option<(&'static str, &str)> {
    const HOSTS: [(&str, &str); 4] = [
        ("https://api.paypal.com/", "messageverificationcerts.paypal.com"),
        ("https://api.sandbox.paypal.com/", "messageverificationcerts.sandbox.paypal.com"),
        ("https://api-m.paypal.com/", "messageverificationcerts.paypal.com"),
        ("https://api-m.sandbox.paypal.com/", "messageverificationcerts.sandbox.paypal.com"),
    ];
    let (rest, host) = HOSTS.iter().find_map(|(before, host)| Some((url.strip_prefix(before)?, *host)))?;
    let name = rest.strip_prefix("v1/notifications/certs/CERT-")?;
    let fits = (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    fits.then_some((host, url))
}

fn malformed(problem: impl Into<String>) -> Rejection {
    Rejection::MalformedBody { problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_sns_is_at_sns_in_a_region() {
        let is = |host: &str| is_sns_certificate(&format!("https://{host}/SimpleNotificationService-01.pem"));
        for region in ["us-east-1", "us-gov-west-1", "ap-southeast-2", "eu-central-1", "me-south-1", "il-central-1"] {
            assert!(is(&format!("sns.{region}.amazonaws.com")), "{region}");
        }
        assert!(is("sns.cn-north-1.amazonaws.com.cn"));
        for other in [
            "s3",
            "s3-us-west-2",
            "s3-website-us-east-1",
            "execute-api",
            "---",
            "us-east",
            "us-1",
            "us-east-1a",
            "us--1",
            "us-east-1-2",
            "elb-us-east-1",
            "cloudfront",
            "usa-east-1",
            "us-east-111",
        ] {
            assert!(!is(&format!("sns.{other}.amazonaws.com")), "{other}");
        }
        for host in [
            "sns.us-east-1.amazonaws.com.evil.example",
            "sns.us-east-1.amazonaws.com:443",
            "a@sns.us-east-1.amazonaws.com",
        ] {
            assert!(!is(host), "{host}");
        }
    }
}
