//! API keys: who may call the orchestrator.
//!
//! A file has a line `NAME KEY` for each. What is kept is a hash of every key, and what is told is its name. Health and
//! reflection are other services and stay open, for probes.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use foretoken_proto::error::{Problem, Reason};
use foretoken_transport::{TransportError, Watched, WatchedFile};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;

use crate::metrics::Metrics;

/// Shortest key: 16 characters drawn from 64 are 96 bits.
const MIN_KEY_CHARS: usize = 16;

/// Longest name.
const MAX_NAME_CHARS: usize = 64;

/// The keys of a file, which is followed. Clones are handles to the same.
#[derive(Debug, Clone)]
pub struct ApiKeys(Watched<Keys>);

impl ApiKeys {
    /// Reads a file, and again whenever it has changed, looking every `period`. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// If it cannot be used: the line, why, and what to do. No key is shown.
    pub fn load(path: &Path, period: Duration) -> Result<Self, TransportError> {
        let file = WatchedFile { flag: "--api-keys", path: path.to_owned() };
        let named = file.clone();
        let make =
            move |contents: &[Vec<u8>]| Keys::parse(&contents[0]).map_err(|reason| named.problem(reason));
        Watched::load("API keys", vec![file], period, make).map(Self)
    }

    /// The name of the key in a call's `authorization`.
    fn check(&self, authorization: Option<&http::HeaderValue>) -> Result<KeyName, Problem> {
        let Some(authorization) = authorization else {
            let message = "this orchestrator asks for an API key; send the metadata `authorization: Bearer KEY` (--api-key-file of the foretoken command)";
            return Err(Problem::new(Reason::ApiKeyMissing, message));
        };
        let Some(key) = bearer(authorization.as_bytes()) else {
            return Err(Problem::new(
                Reason::ApiKeyInvalid,
                "the metadata `authorization` is not `Bearer KEY`",
            ));
        };
        self.0.current().name_of(key).map(KeyName).ok_or_else(|| {
            let message =
                "the API key in `authorization` is none that this orchestrator knows; was it replaced?";
            Problem::new(Reason::ApiKeyInvalid, message)
        })
    }
}

/// What follows the scheme, whose case does not matter (RFC 9110, section 11.1).
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, key) = authorization.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| key.trim_ascii())
}

/// Names, and hashes of their keys.
struct Keys(Vec<(Arc<str>, [u8; 32])>);

/// Not even the hashes.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Keys {
    fn parse(contents: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(contents).map_err(|_| "it is no text in UTF-8".to_owned())?;
        let mut keys: Vec<(Arc<str>, [u8; 32], usize)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, key) = entry(line).map_err(|reason| format!("line {number}: {reason}"))?;
            let hash = hash(key.as_bytes());
            for (other, theirs, earlier) in &keys {
                if **other == *name {
                    return Err(format!(
                        "line {number}: its name is that of line {earlier}; give each key a name of its own"
                    ));
                }
                if *theirs == hash {
                    return Err(format!(
                        "line {number}: its key is that of line {earlier}; give each name a key of its own"
                    ));
                }
            }
            keys.push((name.into(), hash, number));
        }
        if keys.is_empty() {
            return Err(
                "it holds no key, so nobody could call; write a line `NAME KEY` for each client".to_owned()
            );
        }
        Ok(Self(keys.into_iter().map(|(name, hash, _)| (name, hash)).collect()))
    }

    /// Looks at every key, so that the time tells nothing of which one it is or how much of it is right.
    fn name_of(&self, key: &[u8]) -> Option<Arc<str>> {
        let asked = hash(key);
        let (mut found, mut at) = (Choice::from(0), 0u64);
        for (index, (_, hash)) in (0..).zip(&self.0) {
            let same = hash.ct_eq(&asked);
            at.conditional_assign(&index, same);
            found |= same;
        }
        let (name, _) = self.0.get(usize::try_from(at).ok()?)?;
        bool::from(found).then(|| Arc::clone(name))
    }
}

/// Name and key of a line. What is wrong is told without the name: it may be a key in the wrong place.
fn entry(line: &str) -> Result<(&str, &str), String> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(key), None) = (words.next(), words.next(), words.next()) else {
        return Err("it is not `NAME KEY`; neither may hold blanks".to_owned());
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.len() > MAX_NAME_CHARS || !name.chars().all(is_plain) {
        return Err(format!("its name is not of letters, digits and . _ - alone, {MAX_NAME_CHARS} at most"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "its key holds characters that are not printable ASCII; a call could not bring it".to_owned()
        );
    }
    if key.len() < MIN_KEY_CHARS {
        return Err(format!(
            "its key has {} characters; give at least {MIN_KEY_CHARS}, drawn at random",
            key.len()
        ));
    }
    Ok((name, key))
}

fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// The name of the key that a call came with, among its extensions.
#[derive(Debug, Clone)]
pub(crate) struct KeyName(pub(crate) Arc<str>);

/// A service that asks every call for a key, before anything of it is read.
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    inner: S,
    keys: Option<ApiKeys>,
    metrics: Arc<Metrics>,
}

impl<S> Guarded<S> {
    /// `inner`, whose calls must bring one of `keys`; as it is, without any.
    pub(crate) fn new(inner: S, keys: Option<ApiKeys>, metrics: Arc<Metrics>) -> Self {
        Self { inner, keys, metrics }
    }
}

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<http::Request<B>> for Guarded<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        if let Some(keys) = &self.keys {
            match keys.check(request.headers().get(http::header::AUTHORIZATION)) {
                Ok(name) => {
                    request.extensions_mut().insert(name);
                }
                Err(problem) => {
                    let peer =
                        request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
                    tracing::info!(
                        ?peer,
                        reason = problem.reason.as_str(),
                        method = request.uri().path(),
                        "call refused"
                    );
                    let status = Status::from(problem);
                    self.metrics.refused(&status);
                    return Box::pin(std::future::ready(Ok(status.into_http())));
                }
            }
        }
        Box::pin(self.inner.call(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: &str = "alice-0123456789";
    const BOB: &str = "bob/0123456789+=";

    fn parse(text: &str) -> Result<Keys, String> {
        Keys::parse(text.as_bytes())
    }

    #[test]
    fn each_key_has_its_name_and_no_other_has_any() {
        let keys = parse(&format!("# who may call\n\nalice {ALICE}\r\n  bob\t{BOB}  \n")).unwrap();
        assert_eq!(keys.name_of(ALICE.as_bytes()).as_deref(), Some("alice"));
        assert_eq!(keys.name_of(BOB.as_bytes()).as_deref(), Some("bob"));
        for other in ["", "alice", "alice-012345678", "alice-01234567890", "ALICE-0123456789"] {
            assert_eq!(keys.name_of(other.as_bytes()), None, "{other}");
        }
        assert_eq!(format!("{keys:?}"), r#"["alice", "bob"]"#);
    }

    #[test]
    fn a_bad_line_is_named_and_no_key_is_shown() {
        for (text, told) in [
            ("", "it holds no key, so nobody could call"),
            ("# nobody yet\n", "it holds no key"),
            ("alice", "line 1: it is not `NAME KEY`"),
            ("\nalice-0123456789-secret", "line 2: it is not `NAME KEY`"),
            ("alice alice-0123456789-secret more", "line 1: it is not `NAME KEY`"),
            ("alice secret", "line 1: its key has 6 characters; give at least 16"),
            ("secret-0123456789 alice", "line 1: its key has 5 characters"),
            ("secret+0123456789 alice", "line 1: its name is not of letters, digits"),
            ("alice sécret-0123456789", "line 1: its key holds characters that are not printable ASCII"),
            ("a secret-0123456789\nb secret-0123456789", "line 2: its key is that of line 1"),
            ("a secret-0123456789\n\na secret-9876543210", "line 3: its name is that of line 1"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(told), "{error}");
            assert!(!error.contains("cret"), "{error}");
        }
        assert!(Keys::parse(&[0xff]).unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case() {
        assert_eq!(bearer(b"Bearer k"), Some(b"k".as_slice()));
        assert_eq!(bearer(b"bearer  k "), Some(b"k".as_slice()));
        for other in ["", "Bearer", "Basic k", "Bearerk", "k"] {
            assert_eq!(bearer(other.as_bytes()), None, "{other}");
        }
    }
}
