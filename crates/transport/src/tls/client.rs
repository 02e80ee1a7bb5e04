//! The connecting end.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::io::AsyncBufReadExt;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure::connect_failure;
use super::pem::{certificates, pair_problem, private_key, roots};
use super::{ALPN, provider};
use crate::error::TransportError;
use crate::watched::{RELOAD_PERIOD, Watched, WatchedFile};
use crate::wire::Counted;

/// How long a server's first bytes are waited for after a handshake. All ours send them at once; one that waits for the
/// client's is not waited for longer.
const FIRST_BYTES: Duration = Duration::from_secs(1);

/// How servers are verified, and what they are shown. Flatten it into a client's arguments.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "TLS to servers")]
pub struct ClientTlsArgs {
    /// PEM file of the CAs that servers' certificates must be signed by; with it addresses without a scheme are TLS
    /// [default: none, no encryption]
    #[arg(long, env = "FORETOKEN_TLS_CA", value_name = "FILE", value_parser = file())]
    pub tls_ca: Option<PathBuf>,

    /// PEM file of the certificate chain shown to servers that ask for one; needs --tls-client-key [default: none]
    #[arg(long, env = "FORETOKEN_TLS_CLIENT_CERT", value_name = "FILE", value_parser = file())]
    pub tls_client_cert: Option<PathBuf>,

    /// PEM file of that certificate's key: PKCS#8, SEC1 or PKCS#1, not encrypted [default: none]
    #[arg(long, env = "FORETOKEN_TLS_CLIENT_KEY", value_name = "FILE", value_parser = file())]
    pub tls_client_key: Option<PathBuf>,

    /// Name or IP that servers' certificates must be for [default: the address's host]
    #[arg(long, env = "FORETOKEN_TLS_SERVER_NAME", value_name = "NAME")]
    pub tls_server_name: Option<String>,
}

/// A file's path, which may be empty: that is how compose files and shells unset a variable.
pub(crate) fn file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// A path that was given and is not empty.
pub(crate) fn given(path: Option<&PathBuf>) -> Option<&Path> {
    path.map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty())
}

impl ClientTlsArgs {
    /// Reads the files that are named, if any are, and follows them, looking every `period` or, if that is not given,
    /// every half minute. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// If a flag is missing that another needs, or a file cannot be used: which, why, and what to do.
    pub fn load(&self, period: Option<Duration>) -> Result<Option<ClientTls>, TransportError> {
        let (certificate, key) = (given(self.tls_client_cert.as_ref()), given(self.tls_client_key.as_ref()));
        let name = self.tls_server_name.as_deref().filter(|name| !name.is_empty());
        let Some(ca) = given(self.tls_ca.as_ref()) else {
            let flags = [
                ("--tls-client-cert", certificate.is_some()),
                ("--tls-client-key", key.is_some()),
                ("--tls-server-name", name.is_some()),
            ];
            return match flags.into_iter().find(|(_, given)| *given) {
                Some((flag, _)) => Err(TransportError::FlagNeeds { flag, needs: "--tls-ca" }),
                None => Ok(None),
            };
        };
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(TransportError::FlagNeeds {
                    flag: "--tls-client-cert",
                    needs: "--tls-client-key",
                });
            }
            (None, Some(_)) => {
                return Err(TransportError::FlagNeeds {
                    flag: "--tls-client-key",
                    needs: "--tls-client-cert",
                });
            }
        };
        let tls = ClientTls::load(ca, identity, period.unwrap_or(RELOAD_PERIOD))?;
        match name {
            None => Ok(Some(tls)),
            Some(name) => match ServerName::try_from(name.to_owned()) {
                Ok(name) => Ok(Some(ClientTls { name: Some(name), ..tls })),
                Err(_) => Err(TransportError::ServerName { name: name.to_owned() }),
            },
        }
    }
}

/// Whom a client trusts, and what it shows. Clones are handles to the same.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Watched<ClientConfig>,
    /// The name that is verified; else the address's host.
    name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Reads the files, and again whenever one has changed, looking every `period`. `identity` is the certificate chain and
    /// the key that servers are shown. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// If a file cannot be used: which, why, and what to do.
    pub fn load(
        ca: &Path,
        identity: Option<(&Path, &Path)>,
        period: Duration,
    ) -> Result<Self, TransportError> {
        let file = |flag, path: &Path| WatchedFile { flag, path: path.to_owned() };
        let mut files = vec![file("--tls-ca", ca)];
        if let Some((certificate, key)) = identity {
            files.extend([file("--tls-client-cert", certificate), file("--tls-client-key", key)]);
        }
        let named = files.clone();
        let config =
            Watched::load("TLS to servers", files, period, move |contents| config(&named, contents))?;
        Ok(Self { config, name: None })
    }

    /// The same for servers whose certificates are for `host`, whatever their address, unless a name was set before.
    ///
    /// # Errors
    /// If that is no name that a certificate can be for.
    pub fn verifying(&self, host: &str) -> Result<Self, TransportError> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => server_name(host)?,
        };
        Ok(Self { config: self.config.clone(), name: Some(name) })
    }
}

/// A host of a URI, where an IPv6 address is in brackets.
fn server_name(host: &str) -> Result<ServerName<'static>, TransportError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned()).map_err(|_| TransportError::ServerName { name: host.to_owned() })
}

/// Of CA and, if there are three files, certificate and key.
fn config(files: &[WatchedFile], contents: &[Vec<u8>]) -> Result<ClientConfig, TransportError> {
    let roots = roots(&files[0], &contents[0])?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| files[0].problem(error.to_string()))?
        .with_root_certificates(roots);
    let mut config = match (files, contents) {
        ([_, certificate, key], [_, chain, secret]) => builder
            .with_client_auth_cert(certificates(certificate, chain)?, private_key(key, secret)?)
            .map_err(|error| pair_problem(certificate, key, error))?,
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Why a connection could not be secured. It has no source, so that its text is what a caller is shown.
#[derive(Debug)]
pub(crate) struct ConnectError(String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}

/// Encrypts a connection that was just made to `host`, which must be [verifiable](ClientTls::verifying).
///
/// It waits for the server's first bytes too: in TLS 1.3 a server looks at the client's certificate when the client's
/// handshake is already over, and says then, or never, that it does not take it.
pub(crate) async fn connect(
    tls: ClientTls,
    host: &str,
    socket: Counted,
) -> Result<TlsStream<Counted>, ConnectError> {
    let peer = socket.connection().peer();
    let failed = |name: &ServerName<'_>, error: &std::io::Error| {
        ConnectError(format!("TLS with {peer}: {}", connect_failure(error, &name.to_str())))
    };
    let name = match tls.name {
        Some(name) => name,
        None => server_name(host).map_err(|error| ConnectError(error.to_string()))?,
    };
    let connector = TlsConnector::from(tls.config.current());
    let mut stream = connector.connect(name.clone(), socket).await.map_err(|error| failed(&name, &error))?;
    if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        return Err(ConnectError(format!(
            "TLS with {peer}: the server does not speak HTTP/2 (no ALPN protocol h2); is it a gRPC server?"
        )));
    }
    let first = tokio::time::timeout(FIRST_BYTES, stream.fill_buf()).await;
    match first.map(|read| read.map(<[u8]>::is_empty)) {
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(failed(&name, &error)),
        Ok(Ok(true) | Err(_)) => {
            Err(ConnectError(format!("TLS with {peer}: the server closed the connection")))
        }
        Ok(Ok(false)) | Err(_) => Ok(stream),
    }
}
