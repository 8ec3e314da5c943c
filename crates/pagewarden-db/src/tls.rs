//! Who is trusted to say that a server is itself.
//!
//! The authorities are those of a file that the URL names, and of no other, as libpq has it:
//! who names one wants no other to do. Without one they are those that the system trusts and
//! those of Mozilla. A server's certificate must hold its name, unless the URL
//! asks for encryption only (`tls=require`). Servers that ask who we are get the
//! certificate that the URL names (`cert=`, `key=`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::location::{Location, Tls};

/// Where systems keep the authorities that they trust.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file with the authorities that the system trusts.
pub fn system_bundle() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named.into_iter().chain(BUNDLES.iter().map(PathBuf::from)).find(|path| path.is_file())
}

/// The rules for a connection to a place.
pub fn config(location: &Location) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    if location.tls() == Tls::Require {
        let verifier = Arc::new(Anybody(provider));
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        return with_identity(builder, location);
    }
    let trusted = trusted(location.authorities.as_deref())?;
    with_identity(builder.with_root_certificates(trusted), location)
}

/// The authorities: those of the file that was named, alone.
fn trusted(named: Option<&Path>) -> Result<RootCertStore, String> {
    let mut trusted = RootCertStore::empty();
    if let Some(path) = named {
        for certificate in certificates(path)? {
            trusted.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        if trusted.is_empty() {
            return Err(format!("{} holds no certificate", path.display()));
        }
        return Ok(trusted);
    }
    trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(bundle) = system_bundle() {
        // What the system holds for trusted and we cannot read is not trusted.
        trusted.add_parsable_certificates(certificates(&bundle).unwrap_or_default());
    }
    Ok(trusted)
}

fn with_identity(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    location: &Location,
) -> Result<ClientConfig, String> {
    match identity(location)? {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
            format!("{error}\nhint: cert= and key= must name a certificate and its own key")
        }),
    }
}

/// The files of our certificate and its key, where they were named.
///
/// # Errors
/// Only one of them was.
pub fn identity_files(location: &Location) -> Result<Option<(&Path, &Path)>, String> {
    match (location.certificate.as_deref(), location.key.as_deref()) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (Some(_), None) => Err("a certificate was named, and no key\nhint: key=FILE".to_owned()),
        (None, Some(_)) => Err("a key was named, and no certificate\nhint: cert=FILE".to_owned()),
    }
}

/// A chain of certificates, and the key of the first.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// By what we prove who we are, where it was named.
///
/// # Errors
/// It cannot be read.
pub fn identity(location: &Location) -> Result<Option<Identity>, String> {
    let Some((certificate, key)) = identity_files(location)? else { return Ok(None) };
    let chain = certificates(certificate)?;
    if chain.is_empty() {
        return Err(format!("{} holds no certificate in PEM", certificate.display()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        format!(
            "cannot read {}: {error}\nhint: a private key in PEM without a passphrase",
            key.display()
        )
    })?;
    Ok(Some((chain, key)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fail =
        |error: rustls::pki_types::pem::Error| format!("cannot read {}: {error}", path.display());
    CertificateDer::pem_file_iter(path).map_err(fail)?.collect::<Result<_, _>>().map_err(fail)
}

/// Takes every server for what it says it is.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_that_are_named_are_trusted_alone() {
        let Some(bundle) = system_bundle() else {
            eprintln!("SKIPPED: this system has no bundle of certificates");
            return;
        };
        let text = std::fs::read_to_string(bundle).unwrap();
        let end = "-----END CERTIFICATE-----\n";
        let (first, _) = text.split_once(end).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, format!("{first}{end}")).unwrap();
        assert_eq!(trusted(Some(&file)).unwrap().len(), 1);
        assert!(trusted(None).unwrap().len() > 1);
        // None at all is no pin that holds.
        std::fs::write(&file, "").unwrap();
        assert!(trusted(Some(&file)).unwrap_err().contains("no certificate"));
    }
}
