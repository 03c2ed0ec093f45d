//! Certificates that a provider signs with: the key, the names and the time that they are for.
//!
//! A certificate is trusted for where it was fetched from: an address of the provider's own that `fetched.rs` knows whole,
//! over TLS that ends at public roots. What is checked here is that it is of its time, and names whom it should.

use std::ops::RangeInclusive;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use super::public::{PublicAlg, PublicKey, SEQUENCE, value, whole};
use super::time::wall_ms;
use crate::event::Wall;

/// `[0] EXPLICIT`, the version of a certificate (RFC 5280 §4.1).
const VERSION: u8 = 0xa0;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// A certificate that was read.
pub(super) struct Certificate<'a> {
    der: CertificateDer<'a>,
    spki: Vec<u8>,
    /// When it is good, in milliseconds since 1970.
    good: RangeInclusive<i64>,
}

impl Certificate<'_> {
    /// The first certificate in `pem`.
    pub(super) fn read(pem: &[u8]) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem).ok()?;
        let spki = EndEntityCert::try_from(&der).ok()?.subject_public_key_info().to_vec();
        let good = validity(&der)?;
        Some(Self { der, spki, good })
    }

    /// Its key, for signatures of this kind.
    pub(super) fn key(&self, alg: PublicAlg) -> Option<PublicKey> {
        PublicKey::read(alg, &self.spki)
    }

    pub(super) fn is_good_at(&self, now: Wall) -> bool {
        self.good.contains(&wall_ms(now))
    }

    /// Whether it is for a host of this name.
    pub(super) fn names(&self, host: &str) -> bool {
        let name = ServerName::try_from(host);
        let read = EndEntityCert::try_from(&self.der);
        name.is_ok_and(|name| read.is_ok_and(|read| read.verify_is_valid_for_subject_name(&name).is_ok()))
    }
}

/// The times between which a certificate is good (RFC 5280 §4.1.2.5).
fn validity(der: &[u8]) -> Option<RangeInclusive<i64>> {
    let (certified, _) = value(SEQUENCE, whole(SEQUENCE, der)?)?;
    let after_version = value(VERSION, certified).map_or(certified, |(_, rest)| rest);
    let (_serial, rest) = value(INTEGER, after_version)?;
    let (_algorithm, rest) = value(SEQUENCE, rest)?;
    let (_issuer, rest) = value(SEQUENCE, rest)?;
    let (times, _) = value(SEQUENCE, rest)?;
    let (from, rest) = moment(times)?;
    let (until, _) = moment(rest)?;
    Some(from..=until)
}

/// A `Time`, and what follows it.
fn moment(der: &[u8]) -> Option<(i64, &[u8])> {
    let (text, rest) = match value(UTC_TIME, der) {
        Some((text, rest)) => {
            // Years below 50 are of this century (RFC 5280 §4.1.2.5.1).
            let century = if text.first().is_some_and(|digit| *digit < b'5') { "20" } else { "19" };
            (format!("{century}{}", std::str::from_utf8(text).ok()?), rest)
        }
        None => {
            let (text, rest) = value(GENERALIZED_TIME, der)?;
            (std::str::from_utf8(text).ok()?.to_owned(), rest)
        }
    };
    let part = |from, to| text.get(from..to);
    let date = format!("{}-{}-{}", part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let time = format!("{}:{}:{}", part(8, 10)?, part(10, 12)?, part(12, 15)?);
    let moment: jiff::Timestamp = format!("{date}T{time}").parse().ok()?;
    Some((moment.as_millisecond(), rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn a_certificate_says_when_it_is_good_and_for_whom() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["sns.amazonaws.com".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 2), date_time_ymd(2051, 3, 4));
        let pem = params.self_signed(&key).unwrap().pem();
        let certificate = Certificate::read(pem.as_bytes()).unwrap();
        let at = |text: &str| Wall(text.parse::<jiff::Timestamp>().unwrap().as_microsecond().try_into().unwrap());
        for (moment, good) in [
            ("2026-01-01T23:59:59Z", false),
            ("2026-01-02T00:00:00Z", true),
            ("2051-03-04T00:00:00Z", true),
            ("2051-03-04T00:00:01Z", false),
        ] {
            assert_eq!(certificate.is_good_at(at(moment)), good, "{moment}");
        }
        assert!(certificate.names("sns.amazonaws.com"));
        assert!(!certificate.names("sns.example.com") && !certificate.names(""));
        assert!(certificate.key(PublicAlg::EcdsaP256).is_some());
        assert!(certificate.key(PublicAlg::RsaPkcs1).is_none());
    }

    #[test]
    fn what_is_no_certificate_is_none() {
        for text in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "<html>"] {
            assert!(Certificate::read(text.as_bytes()).is_none(), "{text}");
        }
    }
}
