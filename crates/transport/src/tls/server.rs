//! The listener's end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};

use super::pem::{certificates, pair_problem, private_key, roots};
use super::{ALPN, provider};
use crate::error::TransportError;
use crate::watched::{Watched, WatchedFile};

/// A listener's certificate, and whose certificates it asks its clients for. Clones are handles to the same.
#[derive(Debug, Clone)]
pub struct ServerTls(Watched<ServerConfig>);

impl ServerTls {
    /// Reads the files, and again whenever one has changed, looking every `period`. With `client_ca` a client must show a
    /// certificate signed by one of those. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// If a file cannot be used: which, why, and what to do.
    pub fn load(
        certificate: &Path,
        key: &Path,
        client_ca: Option<&Path>,
        period: Duration,
    ) -> Result<Self, TransportError> {
        let file = |flag, path: &Path| WatchedFile { flag, path: path.to_owned() };
        let mut files = vec![file("--tls-cert", certificate), file("--tls-key", key)];
        files.extend(client_ca.map(|path| file("--tls-client-ca", path)));
        let named = files.clone();
        Watched::load("the listener's certificate", files, period, move |contents| config(&named, contents))
            .map(Self)
    }

    /// What a connection that begins now is accepted with.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.0.current()
    }
}

/// Of certificate, key and, if there is a third, client CA.
fn config(files: &[WatchedFile], contents: &[Vec<u8>]) -> Result<ServerConfig, TransportError> {
    let chain = certificates(&files[0], &contents[0])?;
    let key = private_key(&files[1], &contents[1])?;
    let unusable = |error| pair_problem(&files[0], &files[1], error);
    let provider = provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match files.get(2) {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = Arc::new(roots(file, &contents[2])?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| file.problem(format!("nobody can be verified with it: {error}")))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would be as good as the certificate that it began with, however long ago.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
