//! TLS for senders: certificates from files, exchanged while we run.
//!
//! New handshakes take what the files held when they were last read. A file that cannot be used leaves the old material in
//! place and is said aloud.

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use pingora_core::listeners::tls::TlsSettings;
use rustls::RootCertStore;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::Tls;

/// What a listener shows and whom it lets in; exchanged as a whole.
#[derive(Debug)]
struct Material {
    key: Arc<CertifiedKey>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    files: Tls,
    /// What the files held, to see when they change.
    digest: [u8; 32],
}

/// The certificates of a listener.
#[derive(Debug)]
pub struct Certificates {
    provider: Arc<CryptoProvider>,
    material: RwLock<Material>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file cannot be used, and why, in words.
    pub fn load(files: &Tls) -> Result<Arc<Self>, String> {
        digest(files)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let material = RwLock::new(Material::read(files, &provider)?);
        Ok(Arc::new(Self { provider, material }))
    }

    /// Reads the files again; true when what they hold is new and is used from now on.
    ///
    /// # Errors
    /// Which file cannot be used; the old material stays.
    pub fn reload(&self) -> Result<bool, String> {
        let files = self.material.read().files.clone();
        self.replace(&files)
    }

    /// Takes over other files; true when what they hold is new and is used from now on.
    ///
    /// # Errors
    /// Which file cannot be used, or that clients' certificates would begin or end to be asked for, which is decided at the start.
    pub fn replace(&self, files: &Tls) -> Result<bool, String> {
        let digest = digest(files)?;
        if self.asks_clients() != files.client_ca.is_some() {
            return Err("listen.tls.client_ca: whether clients show certificates is decided at the start".to_owned());
        }
        let same = {
            let material = self.material.read();
            material.digest == digest && material.files == *files
        };
        if same {
            return Ok(false);
        }
        let material = Material::read(files, &self.provider)?;
        *self.material.write() = material;
        Ok(true)
    }

    fn asks_clients(&self) -> bool {
        self.material.read().clients.is_some()
    }

    /// The settings of a listener that shows these certificates, with HTTP/2 offered.
    ///
    /// # Errors
    /// The library's, in words.
    pub(super) fn settings(self: &Arc<Self>) -> Result<TlsSettings, String> {
        let text = |path: &Path| path.display().to_string();
        let files = self.material.read().files.clone();
        let settings = TlsSettings::intermediate(&text(&files.cert), &text(&files.key));
        let mut settings = settings.map_err(|error| error.to_string())?;
        settings.set_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        if self.asks_clients() {
            settings.set_client_cert_verifier(Arc::clone(self) as Arc<dyn ClientCertVerifier>);
        }
        settings.enable_h2();
        Ok(settings)
    }

    fn clients(&self) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        let clients = self.material.read().clients.clone();
        clients.ok_or_else(|| rustls::Error::General("no client certificates are configured".to_owned()))
    }
}

impl Material {
    fn read(files: &Tls, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let chain = certificates(&files.cert)?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| format!("{}: expected a private key in PEM: {error}", files.key.display()))?;
        let key = CertifiedKey::from_der(chain, key, provider)
            .map_err(|error| format!("{} and {}: {error}", files.cert.display(), files.key.display()))?;
        let clients = files.client_ca.as_deref().map(|path| client_verifier(path, provider)).transpose()?;
        Ok(Self { key: Arc::new(key), clients, files: files.clone(), digest: digest(files)? })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let expected = |error: &dyn std::fmt::Display| format!("{}: expected certificates in PEM: {error}", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|e| expected(&e))?.collect();
    let found = found.map_err(|e| expected(&e))?;
    if found.is_empty() { Err(expected(&"found none")) } else { Ok(found) }
}

fn client_verifier(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    verifier.map_err(|error| format!("{}: {error}", path.display()))
}

fn digest(files: &Tls) -> Result<[u8; 32], String> {
    let mut hash = Sha256::new();
    for path in [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()].into_iter().flatten() {
        // It is read every second by the task that takes signals: a pipe would hold it up for ever.
        if !std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            return Err(format!("{}: expected a regular file", path.display()));
        }
        // The key is among them.
        hash.update(Zeroizing::new(std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?));
    }
    Ok(hash.finalize().into())
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.material.read().key))
    }
}

impl ClientCertVerifier for Certificates {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Hints are optional (RFC 8446 §4.2.4), and a borrowed list could not be exchanged.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.clients()?.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.clients()?.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.clients()?.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
