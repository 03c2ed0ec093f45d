//! TLS towards the upstream: whom it trusts, and the certificate that it shows.
//!
//! The files are read by the configuration, which reads them again when they change; here is their text. A client is made of it once, so
//! a changed certificate is one more client, and connections that stand go on with what they began with.

use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

use crate::event::Secret;

/// Whom TLS trusts and what it shows (`upstream.tls` in the configuration), as PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The certificates that are trusted in place of the operating system's.
    pub ca: Option<Arc<str>>,
    /// What is shown to an upstream that asks for it.
    pub identity: Option<Identity>,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those between it and the root that the upstream trusts.
    pub cert: Arc<str>,
    /// Its private key.
    pub key: Secret,
}

impl Tls {
    /// Whether a client can be made of it, apart from what the operating system has.
    ///
    /// # Errors
    /// What is wrong with which text (`ca`, `cert`, `key`), in words.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let roots = self.ca.as_deref().map(roots).transpose().map_err(|error| ("ca", error))?;
        self.finished(builder().with_root_certificates(roots.unwrap_or_else(RootCertStore::empty))).map(|_| ())
    }

    /// The client's settings; `wanted`: whether any address is reached by TLS. Else the operating system's certificates are not read.
    pub(super) fn client(&self, wanted: bool) -> Result<ClientConfig, Unusable> {
        let roots = match &self.ca {
            Some(ca) => builder().with_root_certificates(roots(ca).map_err(Unusable::Given)?),
            None if wanted => builder().with_native_roots().map_err(|error| Unusable::NoRoots(error.to_string()))?,
            None => builder().with_root_certificates(RootCertStore::empty()),
        };
        self.finished(roots).map_err(|(which, error)| Unusable::Given(format!("{which}: {error}")))
    }

    fn finished(
        &self,
        roots: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> Result<ClientConfig, (&'static str, String)> {
        let Some(identity) = &self.identity else { return Ok(http1_only(roots.with_no_client_auth())) };
        let chain = certificates(&identity.cert).map_err(|error| ("cert", error))?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.expose())
            .map_err(|error| ("key", format!("expected a private key in PEM: {error}")))?;
        let made = roots.with_client_auth_cert(chain, key);
        made.map(http1_only).map_err(|error| ("key", format!("certificate and key do not fit: {error}")))
    }
}

/// Why there is no TLS client.
#[derive(Debug)]
pub(super) enum Unusable {
    /// The operating system has no certificates to trust.
    NoRoots(String),
    /// What was given is no use.
    Given(String),
}

/// TLS that trusts the operating system's certificates.
///
/// # Errors
/// There are none, in words.
pub(super) fn of_the_system() -> Result<ClientConfig, String> {
    let roots = builder().with_native_roots().map_err(|error| error.to_string())?;
    Ok(http1_only(roots.with_no_client_auth()))
}

/// TLS that trusts these certificates.
pub(super) fn with(roots: RootCertStore) -> ClientConfig {
    http1_only(builder().with_root_certificates(roots).with_no_client_auth())
}

fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks the default versions")
}

fn http1_only(mut tls: ClientConfig) -> ClientConfig {
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls
}

fn roots(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| format!("a certificate in it cannot be trusted: {error}"))?;
    }
    Ok(roots)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(|error| format!("expected certificates in PEM: {error}"))?;
    if found.is_empty() { Err("expected certificates in PEM, found none".to_owned()) } else { Ok(found) }
}
