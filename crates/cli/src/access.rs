//! How a server that was named is called: whom to trust, what to show it, and the API key.

use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use foretoken_transport::{ChannelConfig, ClientTlsArgs, channel, is_encrypted};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// An orchestrator's channel, whose calls bring the key if there is one.
pub(crate) type Orchestrator = InterceptedService<Channel, Bearer>;

/// Longest file that a key is read from: one key, and line ends.
const MAX_KEY_FILE_BYTES: u64 = 4096;

/// How the server of `--server` is called. Of no meaning for services that are started here.
#[derive(Args, Clone)]
pub(crate) struct AccessArgs {
    /// How it is verified, and what it is shown
    #[command(flatten)]
    tls: ClientTlsArgs,

    /// File with the API key that the server asks for, and nothing else [default: none]
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Models and services",
        env = "FORETOKEN_API_KEY_FILE",
        value_parser = OsStringValueParser::new().map(PathBuf::from),
    )]
    api_key_file: Option<PathBuf>,

    /// The API key itself, better in the variable: a command line can be read by others [default: none]
    #[arg(
        long,
        value_name = "KEY",
        help_heading = "Models and services",
        env = "FORETOKEN_API_KEY",
        hide_env_values = true
    )]
    api_key: Option<String>,
}

/// Without the key.
impl fmt::Debug for AccessArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tls, api_key_file, api_key } = self;
        let api_key = api_key.as_ref().map(|_| "given");
        f.debug_struct("AccessArgs")
            .field("tls", tls)
            .field("api_key_file", api_key_file)
            .field("api_key", &api_key)
            .finish()
    }
}

impl AccessArgs {
    /// A channel to `server`, and what its calls bring.
    pub(crate) fn channel(&self, server: &str) -> Result<(Channel, Bearer)> {
        let config = ChannelConfig::with_tls(self.tls.load(None)?);
        let bearer = self.bearer()?;
        let channel = channel(server, &config)?;
        if bearer.0.is_some() && !is_encrypted(server, &config) && !is_loopback(server) {
            tracing::warn!(
                server,
                "the API key is sent without encryption: give --tls-ca, or whoever is on the way can read it"
            );
        }
        Ok((channel, bearer))
    }

    fn bearer(&self) -> Result<Bearer> {
        let file = self.api_key_file.as_deref().filter(|path| !path.as_os_str().is_empty());
        let key = self.api_key.as_deref().filter(|key| !key.is_empty());
        match (file, key) {
            (None, None) => Ok(Bearer::default()),
            (None, Some(key)) => Bearer::of(key).context("--api-key cannot be used"),
            (Some(path), None) => {
                read(path).with_context(|| format!("--api-key-file {} cannot be used", path.display()))
            }
            (Some(_), Some(_)) => {
                bail!(
                    "--api-key-file and --api-key (or their variables) are both given; give only one of them"
                )
            }
        }
    }
}

fn read(path: &Path) -> Result<Bearer> {
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_KEY_FILE_BYTES + 1).read_to_string(&mut text));
    // An error would not show the contents, but says more than enough.
    read.map_err(|error| anyhow!("it cannot be read: {error}"))?;
    if text.len() as u64 > MAX_KEY_FILE_BYTES {
        bail!("it is larger than {MAX_KEY_FILE_BYTES} bytes; it should hold one key and nothing else");
    }
    Bearer::of(text.trim())
}

/// Whether an address, with or without its scheme, is this machine's own.
fn is_loopback(server: &str) -> bool {
    let authority = server.split_once("://").map_or(server, |(_, rest)| rest);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Puts the API key on every call, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    fn of(key: &str) -> Result<Self> {
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("it holds no key, or more than one: a key is of printable ASCII characters without blanks");
        }
        let mut value: MetadataValue<Ascii> = format!("Bearer {key}").parse()?;
        // Not shown where requests are, and not kept in tables of headers.
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    const KEY: &str = "secret-0123456789";

    #[derive(Parser, Debug)]
    struct Words {
        #[command(flatten)]
        access: AccessArgs,
    }

    fn args(words: &[&str]) -> AccessArgs {
        Words::try_parse_from(std::iter::once(&"x").chain(words)).unwrap().access
    }

    fn bearer(words: &[&str]) -> Result<Option<String>, String> {
        let bearer = args(words).bearer().map_err(|error| format!("{error:#}"))?;
        Ok(bearer.0.map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn a_key_comes_from_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, format!("  {KEY}\n")).unwrap();
        let file = format!("--api-key-file={}", path.display());
        let sent = Ok(Some(format!("Bearer {KEY}")));
        assert_eq!(bearer(&[&file]), sent);
        assert_eq!(bearer(&["--api-key", KEY, "--api-key-file="]), sent);
        assert_eq!(bearer(&[]), Ok(None));
        assert_eq!(bearer(&["--api-key=", "--api-key-file="]), Ok(None));
        assert!(bearer(&[&file, "--api-key", KEY]).unwrap_err().contains("give only one of them"));
        std::fs::write(&path, format!("alice {KEY}")).unwrap();
        for error in [bearer(&[&file]), bearer(&["--api-key", "s p"]), bearer(&["--api-key-file=no/such"])] {
            let error = error.unwrap_err();
            assert!(error.starts_with("--api-key") && error.contains("cannot be used: it "), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        let args = args(&["--api-key", KEY]);
        let shown = format!("{args:?} {:?}", args.bearer().unwrap());
        assert!(!shown.contains("secret") && shown.contains("given"), "{shown}");
    }

    #[test]
    fn this_machine_is_known_by_its_addresses() {
        for (server, own) in [
            ("127.0.0.1:7450", true),
            ("http://localhost:7450", true),
            ("[::1]:7450", true),
            ("10.0.0.7:7450", false),
            ("http://orchestrator:7450", false),
        ] {
            assert_eq!(is_loopback(server), own, "{server}");
        }
    }
}
