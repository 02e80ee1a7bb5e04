//! The `healthcheck` subcommand that every service's binary has: one question over gRPC, answered by the exit status.
//!
//! It is what a container's health probe runs where there is no shell and no other tool. It starts nothing,
//! loads nothing and logs nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::channel::{ChannelConfig, cause, channel};
use crate::duration::parse_duration;
use crate::error::TransportError;
use crate::tls::ClientTlsArgs;

/// The subcommand's name.
const HEALTHCHECK: &str = "healthcheck";

/// What a service's binary was asked to do. Flatten it into the binary's arguments.
///
/// Without a subcommand the flags are those of the service, as if there were no subcommand at all.
#[derive(Debug, Clone)]
pub enum Invocation<A> {
    /// Serve.
    Serve(A),
    /// Ask a running service whether it serves.
    Healthcheck(HealthcheckArgs),
}

impl<A: Args> FromArgMatches for Invocation<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand() {
            Some((HEALTHCHECK, matches)) => HealthcheckArgs::from_arg_matches(matches).map(Self::Healthcheck),
            _ => A::from_arg_matches(matches).map(Self::Serve),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: Args> Args for Invocation<A> {
    fn augment_args(command: Command) -> Command {
        let healthcheck = Command::new(HEALTHCHECK).about(
            "Ask a running service whether it serves; the exit status is 0 only if it reports SERVING",
        );
        A::augment_args(command)
            .subcommand(HealthcheckArgs::augment_args(healthcheck))
            .disable_help_subcommand(true)
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Whom to ask, and for how long.
#[derive(Args, Debug, Clone)]
pub struct HealthcheckArgs {
    /// Address of the service, host:port [default: where FORETOKEN_LISTEN says, else the service's own port on 127.0.0.1]
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,

    /// Name that is asked after; the empty name asks only whether the process lives [default: the service's full name]
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,

    /// How long the answer may take (500ms, 2s)
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub timeout: Duration,

    /// How the service is verified, and what it is shown
    #[command(flatten)]
    pub tls: ClientTlsArgs,

    /// Where the service beside this process listens: its own variable.
    #[arg(long, env = "FORETOKEN_LISTEN", hide = true)]
    listen: Option<SocketAddr>,
}

impl HealthcheckArgs {
    /// Asks once.
    ///
    /// # Errors
    /// Unless the service reports SERVING in time: why not.
    pub async fn run(&self, service_name: &str, default: SocketAddr) -> Result<(), TransportError> {
        let address = match &self.address {
            Some(address) => address.clone(),
            None => reachable(self.listen.unwrap_or(default)).to_string(),
        };
        let service = self.service.as_deref().unwrap_or(service_name);
        let tls = self.tls.load(None)?;
        let config = ChannelConfig { connect_timeout: self.timeout, ..ChannelConfig::with_tls(tls) };
        let mut client = HealthClient::new(channel(&address, &config)?);
        let question = client.check(HealthCheckRequest { service: service.to_owned() });
        let not_serving =
            |answer| TransportError::NotServing { service: service.to_owned(), address, answer };
        match tokio::time::timeout(self.timeout, question).await {
            Ok(Ok(answer)) => match answer.get_ref().status() {
                ServingStatus::Serving => Ok(()),
                other => Err(not_serving(format!("it reports {}", other.as_str_name()))),
            },
            Ok(Err(status)) => Err(not_serving(cause(&status))),
            Err(_) => Err(not_serving(format!("no answer within {:?}", self.timeout))),
        }
    }
}

/// An address by which a service that listens at `listen` is reached from its own machine.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Args, Debug, Clone)]
    struct Service {
        #[arg(long)]
        model: String,
    }

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        invocation: Invocation<Service>,
    }

    fn parse(words: &[&str]) -> Result<Invocation<Service>, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"service").chain(words)).map(|cli| cli.invocation)
    }

    #[test]
    fn without_a_subcommand_the_service_is_asked_for() {
        assert!(
            matches!(parse(&["--model", "m"]).unwrap(), Invocation::Serve(Service { model }) if model == "m")
        );
        let missing = parse(&[]).unwrap_err().to_string();
        assert!(missing.contains("--model"), "{missing}");
    }

    #[test]
    fn the_subcommand_needs_none_of_the_services_flags_and_takes_none() {
        let asked = parse(&["healthcheck", "--service", "", "--timeout", "500ms"]).unwrap();
        let Invocation::Healthcheck(args) = asked else { panic!("{asked:?}") };
        assert_eq!((args.service.as_deref(), args.timeout), (Some(""), Duration::from_millis(500)));
        assert!(parse(&["--model", "m", "healthcheck"]).is_err());
        assert!(parse(&["healthcheck", "--model", "m"]).is_err());
    }

    #[test]
    fn a_service_that_listens_everywhere_is_asked_on_loopback() {
        for (listen, asked) in
            [("0.0.0.0:7450", "127.0.0.1:7450"), ("[::]:7450", "[::1]:7450"), ("10.0.0.7:1", "10.0.0.7:1")]
        {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }
}
