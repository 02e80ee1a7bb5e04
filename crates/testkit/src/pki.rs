//! A certificate authority for one test: certificates as files, as operators have them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use foretoken_transport::{ClientTls, ServerTls};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

/// How often tests' services look at their files.
pub const RELOAD_PERIOD: Duration = Duration::from_millis(20);

/// An authority and a folder of what it has issued, deleted with it.
#[derive(Debug)]
pub struct Pki {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate's files.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The chain: of one, for the authority is the root.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What TLS a service listens with, and with what it and its clients connect to each other.
#[derive(Debug, Clone, Default)]
pub struct Security {
    /// The listeners'.
    pub server: Option<ServerTls>,
    /// The connecting ends'.
    pub client: Option<ClientTls>,
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Now, and for long.
    Now,
    /// Years ago.
    Past,
}

impl Pki {
    /// An authority of this name. Those of one name are told apart by their keys alone.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for certificates");
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a root");
        write(&folder.path().join("ca.pem"), &certificate.pem());
        Self { folder, issuer: Issuer::new(params, key) }
    }

    /// A file in its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Its own certificate's file.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Issues a certificate for these names and addresses, of servers and clients alike, as `FILE.pem` and `FILE.key`; what had
    /// that name is replaced, as a rotation does it.
    pub fn issue(&self, file: &str, names: &[&str], validity: Validity) -> Identity {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names that certificates can be for");
        params.distinguished_name = named(file);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if validity == Validity::Past {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let identity = Identity {
            certificate: self.path(&format!("{file}.pem")),
            key: self.path(&format!("{file}.key")),
        };
        write(&identity.key, &key.serialize_pem());
        write(&identity.certificate, &certificate.pem());
        identity
    }

    /// A certificate for this machine's loopback.
    pub fn loopback(&self, file: &str) -> Identity {
        self.issue(file, &["127.0.0.1", "localhost"], Validity::Now)
    }

    /// A listener with this certificate, which asks clients for one of ours if `mutual`.
    ///
    /// # Panics
    /// If it cannot be used.
    #[must_use]
    pub fn server(&self, identity: &Identity, mutual: bool) -> ServerTls {
        let ca = self.ca();
        let client_ca = mutual.then_some(ca.as_path());
        ServerTls::load(&identity.certificate, &identity.key, client_ca, RELOAD_PERIOD)
            .expect("certificates of ours can be used")
    }

    /// A client that trusts us, and shows this certificate.
    ///
    /// # Panics
    /// If it cannot be used.
    #[must_use]
    pub fn client(&self, identity: Option<&Identity>) -> ClientTls {
        let identity = identity.map(|it| (it.certificate.as_path(), it.key.as_path()));
        ClientTls::load(&self.ca(), identity, RELOAD_PERIOD).expect("certificates of ours can be used")
    }

    /// Mutual TLS everywhere on the loopback.
    #[must_use]
    pub fn mutual(&self) -> Security {
        let identity = self.loopback("everybody");
        Security { server: Some(self.server(&identity, true)), client: Some(self.client(Some(&identity))) }
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// At once, so that nobody reads half a file.
fn write(path: &Path, contents: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, contents).expect("a file of certificates can be written");
    std::fs::rename(&beside, path).expect("a file of certificates can be replaced");
}
