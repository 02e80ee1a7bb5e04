//! Certificates and keys from PEM files, with what to do when there are none.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::TransportError;
use crate::watched::WatchedFile;

/// All certificates of a file, in their order.
pub(super) fn certificates(
    file: &WatchedFile,
    contents: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(contents).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(file.problem(
            "it holds no certificate; give a PEM file with at least one `-----BEGIN CERTIFICATE-----`",
        )),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(file.problem(format!("it is no PEM file: {error}"))),
    }
}

/// The first private key of a file.
pub(super) fn private_key(
    file: &WatchedFile,
    contents: &[u8],
) -> Result<PrivateKeyDer<'static>, TransportError> {
    use rustls::pki_types::pem::Error;
    PrivateKeyDer::from_pem_slice(contents).map_err(|error| match error {
        Error::NoItemsFound => file.problem(
            "it holds no private key; give a PEM file with a PKCS#8, SEC1 or PKCS#1 key that is not encrypted",
        ),
        error => file.problem(format!("it is no PEM file: {error}")),
    })
}

/// The certificates of a file as what is trusted.
pub(super) fn roots(file: &WatchedFile, contents: &[u8]) -> Result<RootCertStore, TransportError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, contents)? {
        roots
            .add(certificate)
            .map_err(|error| file.problem(format!("a certificate in it cannot be trusted: {error}")))?;
    }
    Ok(roots)
}

/// What is wrong with a certificate and its key, as rustls says it.
pub(super) fn pair_problem(
    certificate: &WatchedFile,
    key: &WatchedFile,
    error: rustls::Error,
) -> TransportError {
    use rustls::{Error, InconsistentKeys};
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => key.problem(format!(
            "it is not the key of the first certificate in {}; give the key that the certificate was made with",
            certificate.path.display()
        )),
        Error::InvalidCertificate(error) => certificate.problem(format!("its first certificate is not valid: {error}")),
        error => key.problem(format!("the key cannot be used: {error}")),
    }
}
