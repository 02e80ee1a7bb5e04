//! Flags that every service has, and the listener made from them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;

use crate::duration::parse_duration;
use crate::error::TransportError;
use crate::health::HealthSwitch;
use crate::serve::ServerConfig;
use crate::tls::{ServerTls, file, given};

/// Largest message a service takes unless told otherwise: gRPC's own limit.
pub const DEFAULT_MAX_MESSAGE_BYTES: u32 = 4 << 20;

/// Where a service listens, what it takes and how it ends. Flatten it into a service's arguments.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Server")]
pub struct ListenArgs {
    /// Address to listen on; port 0 lets the system choose. Without --tls-cert traffic is not encrypted: keep to a loopback or trusted network
    /// [default: 127.0.0.1 and the service's own port]
    #[arg(long, env = "FORETOKEN_LISTEN", value_name = "IP:PORT")]
    pub listen: Option<SocketAddr>,

    /// PEM file of the listener's certificate chain, its own certificate first; with it the listener speaks TLS and nothing else
    /// [default: none, no encryption]
    #[arg(long, env = "FORETOKEN_TLS_CERT", value_name = "FILE", value_parser = file())]
    pub tls_cert: Option<PathBuf>,

    /// PEM file of that certificate's key: PKCS#8, SEC1 or PKCS#1, not encrypted [default: none]
    #[arg(long, env = "FORETOKEN_TLS_KEY", value_name = "FILE", value_parser = file())]
    pub tls_key: Option<PathBuf>,

    /// PEM file of CAs: a client must show a certificate signed by one of them (mutual TLS); needs --tls-cert
    /// [default: clients are asked for none]
    #[arg(long, env = "FORETOKEN_TLS_CLIENT_CA", value_name = "FILE", value_parser = file())]
    pub tls_client_ca: Option<PathBuf>,

    /// How often files of certificates and keys are looked at for changes
    #[arg(
        long,
        env = "FORETOKEN_RELOAD_PERIOD",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = parse_duration,
        hide = true,
    )]
    pub reload_period: Duration,

    /// Largest message taken, in bytes; larger ones are refused with RESOURCE_EXHAUSTED
    #[arg(
        long,
        env = "FORETOKEN_MAX_MESSAGE_BYTES",
        value_name = "BYTES",
        default_value_t = DEFAULT_MAX_MESSAGE_BYTES,
        value_parser = clap::value_parser!(u32).range(1024..=1 << 30),
    )]
    pub max_message_bytes: u32,

    /// Streams that one connection may have open at the same time; further ones wait
    #[arg(
        long,
        env = "FORETOKEN_MAX_CONNECTION_STREAMS",
        value_name = "N",
        default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..),
    )]
    pub max_connection_streams: u32,

    /// How long running streams may go on after the process is asked to end (500ms, 30s, 2m)
    #[arg(
        long,
        env = "FORETOKEN_DRAIN_TIMEOUT",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = parse_duration,
    )]
    pub drain_timeout: Duration,

    /// End when standard input closes: set by a parent process that must leave no orphan
    #[arg(long, env = "FORETOKEN_EXIT_ON_STDIN_CLOSE", hide = true)]
    pub exit_on_stdin_close: bool,

    /// Print one JSON line with service name and address on standard output when ready
    #[arg(long, env = "FORETOKEN_ANNOUNCE", hide = true)]
    pub announce: bool,
}

impl ListenArgs {
    /// The address asked for, else the service's own.
    pub fn listen_or(&self, default: SocketAddr) -> SocketAddr {
        self.listen.unwrap_or(default)
    }

    /// Opens the listener. Do it before loading a model: an address that is taken should be known at once.
    pub async fn bind(&self, default: SocketAddr) -> Result<TcpListener, TransportError> {
        let address = self.listen_or(default);
        if !address.ip().is_loopback() && given(self.tls_cert.as_ref()).is_none() {
            tracing::warn!(%address, "listening beyond this machine without encryption: whoever reaches the address can use it");
        }
        TcpListener::bind(address).await.map_err(|source| TransportError::Bind { address, source })
    }

    /// The listener's certificate, if there is one. Read it before a model is loaded: what cannot be used should be known
    /// at once. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// If a flag is missing that another needs, or a file cannot be used: which, why, and what to do.
    pub fn tls(&self) -> Result<Option<ServerTls>, TransportError> {
        let paths = [&self.tls_cert, &self.tls_key, &self.tls_client_ca].map(|path| given(path.as_ref()));
        let needs = |flag, needs| Err(TransportError::FlagNeeds { flag, needs });
        match paths {
            [Some(certificate), Some(key), client_ca] => {
                ServerTls::load(certificate, key, client_ca, self.reload_period).map(Some)
            }
            [Some(_), None, _] => needs("--tls-cert", "--tls-key"),
            [None, Some(_), _] => needs("--tls-key", "--tls-cert"),
            [None, None, Some(_)] => needs("--tls-client-ca", "--tls-cert"),
            [None, None, None] => Ok(None),
        }
    }

    /// What [`serve`](crate::serve()) needs, with health reporting SERVING.
    pub fn server_config(&self, service_name: &'static str, tls: Option<ServerTls>) -> ServerConfig {
        ServerConfig {
            service_name,
            // A u32 fits a usize on every platform that can hold a model.
            max_message_bytes: self.max_message_bytes as usize,
            max_connection_streams: self.max_connection_streams,
            drain_timeout: self.drain_timeout,
            announce: self.announce,
            health: HealthSwitch::new(),
            tls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        listen: ListenArgs,
    }

    fn parse(args: &[&str]) -> Result<ListenArgs, clap::Error> {
        Cli::try_parse_from(std::iter::once("service").chain(args.iter().copied())).map(|cli| cli.listen)
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let args = parse(&[]).unwrap();
        let default = SocketAddr::from(([127, 0, 0, 1], 50051));
        assert_eq!(args.listen_or(default), default);
        let config = args.server_config("test.v1.Test", args.tls().unwrap());
        assert_eq!(config.max_message_bytes, 4 * 1024 * 1024);
        assert_eq!(config.drain_timeout, Duration::from_secs(30));
        assert!(!config.announce && !args.exit_on_stdin_close && config.tls.is_none());
    }

    #[test]
    fn flags_of_certificates_go_together() {
        for (given, told) in [
            (["--tls-cert=c", "--tls-key="], "--tls-cert is given without --tls-key"),
            (["--tls-cert=", "--tls-key=k"], "--tls-key is given without --tls-cert"),
            (["--tls-cert=", "--tls-client-ca=a"], "--tls-client-ca is given without --tls-cert"),
        ] {
            let error = parse(&given).unwrap().tls().unwrap_err().to_string();
            assert_eq!(error, format!("{told}; give both or neither"));
        }
        assert!(parse(&["--tls-cert=", "--tls-key=", "--tls-client-ca="]).unwrap().tls().unwrap().is_none());
    }

    #[test]
    fn bad_values_name_flag_and_value() {
        for (flag, value) in [
            ("--listen", "localhost"),
            ("--max-message-bytes", "12"),
            ("--max-connection-streams", "0"),
            ("--drain-timeout", "soon"),
        ] {
            let text = parse(&[flag, value]).unwrap_err().to_string();
            assert!(text.contains(flag) && text.contains(value), "{text}");
        }
    }

    #[tokio::test]
    async fn a_taken_address_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = parse(&["--listen", &address.to_string()]).unwrap().bind(address).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot listen on {address}")), "{error}");
    }
}
