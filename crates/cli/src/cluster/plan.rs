//! What a local cluster consists of, and the command line of each of its services.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use foretoken_proto::service_name;

use super::child::Spec;
use crate::rounds::RoundArgs;

/// The hidden subcommands by which this binary runs as a service.
const ORCHESTRATOR: &str = "orchestrator";
const TARGET_VERIFIER: &str = "target-verifier";
const DRAFT_WORKER: &str = "draft-worker";

/// All of them, for the test that the command line has them.
#[cfg(test)]
pub(crate) const SUBCOMMANDS: [&str; 3] = [ORCHESTRATOR, TARGET_VERIFIER, DRAFT_WORKER];

/// Any free port of the loopback: where everything listens that only the cluster itself must find.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The name by which a draft worker runs without weights.
const NGRAM: &str = "ngram";

/// Who drafts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Drafting {
    /// Nobody: plain decoding.
    None,
    /// Look-up in the text so far, and the table of this name or file.
    Ngram(Option<String>),
    /// The model in this file or folder.
    Model(PathBuf),
}

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The target model's file or folder.
    pub(crate) target: PathBuf,
    /// Who drafts.
    pub(crate) drafting: Drafting,
    /// How many verifiers.
    pub(crate) verifiers: u32,
    /// How many draft workers, if anybody drafts.
    pub(crate) draft_workers: u32,
    /// Where the orchestrator listens.
    pub(crate) listen: SocketAddr,
    /// How drafts are made and judged unless a request says otherwise; the orchestrator's defaults where not given.
    pub(crate) rounds: RoundArgs,
    /// Whether the services' logs go to standard error.
    pub(crate) show_logs: bool,
    /// How long a service may take until it serves.
    pub(crate) start_timeout: Duration,
    /// How long requests in work may go on once the cluster is asked to end.
    pub(crate) drain: Duration,
}

impl Plan {
    /// The workers: verifiers, then draft workers.
    pub(crate) fn workers(&self) -> Vec<Spec> {
        let verifier = self.spec(TARGET_VERIFIER, service_name::TARGET_VERIFIER, ANY_PORT);
        let verifier = with(verifier, "--model", &self.target);
        let mut specs = numbered(&verifier, self.verifiers);
        let drafter = self.spec(DRAFT_WORKER, service_name::DRAFT_WORKER, ANY_PORT);
        let drafter = match &self.drafting {
            Drafting::None => return specs,
            // Also without a table: the variable of the same meaning must not bring one in.
            Drafting::Ngram(table) => {
                with(with(drafter, "--model", NGRAM), "--ngram-table", table.as_deref().unwrap_or_default())
            }
            Drafting::Model(path) => with(drafter, "--model", path),
        };
        specs.extend(numbered(&drafter, self.draft_workers));
        specs
    }

    /// The orchestrator of workers at these addresses.
    pub(crate) fn orchestrator(&self, verifiers: &[SocketAddr], draft_workers: &[SocketAddr]) -> Spec {
        let mut spec = self.spec(ORCHESTRATOR, service_name::ORCHESTRATOR, self.listen);
        spec = with(spec, "--verifiers", list(verifiers));
        // Also if there are none: the variables of the same meaning must not bring in strangers.
        spec = with(spec, "--draft-workers", list(draft_workers));
        spec = with(spec, "--untrusted-draft", "");
        if let Some(draft_len) = self.rounds.draft_len {
            spec = with(spec, "--draft-len", draft_len.to_string());
        }
        if let Some(rule) = self.rounds.rule {
            spec = with(spec, "--rule", rule.name());
        }
        if let Some(min_confidence) = self.rounds.min_confidence {
            spec = with(spec, "--min-confidence", min_confidence.to_string());
        }
        spec
    }

    fn spec(&self, subcommand: &str, service: &'static str, listen: SocketAddr) -> Spec {
        let args = [subcommand, "--announce", "--exit-on-stdin-close"].map(OsString::from).to_vec();
        let spec = Spec { label: subcommand.to_owned(), service, args };
        let spec = with(spec, "--listen", listen.to_string());
        with(spec, "--drain-timeout", format!("{}ms", self.drain.as_millis()))
    }
}

fn with(mut spec: Spec, flag: &str, value: impl Into<OsString>) -> Spec {
    // One word, so that a value that begins with a dash is not taken for a flag.
    let mut word = OsString::from(flag);
    word.push("=");
    word.push(value.into());
    spec.args.push(word);
    spec
}

/// Copies of a worker, told apart by number if there are several.
fn numbered(spec: &Spec, count: u32) -> Vec<Spec> {
    if count == 1 {
        return vec![spec.clone()];
    }
    (1..=count).map(|number| Spec { label: format!("{}-{number}", spec.label), ..spec.clone() }).collect()
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::Rule;

    fn plan() -> Plan {
        Plan {
            target: "/models/-target.gguf".into(),
            drafting: Drafting::Ngram(Some("a.ngram".to_owned())),
            verifiers: 1,
            draft_workers: 1,
            listen: ANY_PORT,
            rounds: RoundArgs::default(),
            show_logs: false,
            start_timeout: Duration::from_secs(1),
            drain: Duration::from_secs(2),
        }
    }

    fn words(spec: &Spec) -> String {
        spec.args.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_service_gets_its_command_line() {
        let plan = plan();
        let common = "--announce --exit-on-stdin-close --listen=127.0.0.1:0 --drain-timeout=2000ms";
        let workers = plan.workers();
        assert_eq!(words(&workers[0]), format!("target-verifier {common} --model=/models/-target.gguf"));
        assert_eq!(words(&workers[1]), format!("draft-worker {common} --model=ngram --ngram-table=a.ngram"));
        assert_eq!(workers.len(), 2);

        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let spec = plan.orchestrator(&[at(1), at(2)], &[at(3)]);
        assert_eq!(
            words(&spec),
            format!(
                "orchestrator {common} --verifiers=127.0.0.1:1,127.0.0.1:2 --draft-workers=127.0.0.1:3 --untrusted-draft="
            )
        );
    }

    #[test]
    fn several_workers_are_told_apart_and_nobody_drafts_if_nobody_should() {
        let rounds = RoundArgs { draft_len: Some(3), rule: Some(Rule::Block), min_confidence: Some(0.5) };
        let plan = Plan { drafting: Drafting::None, verifiers: 2, rounds, ..plan() };
        let labels: Vec<_> = plan.workers().into_iter().map(|spec| spec.label).collect();
        assert_eq!(labels, ["target-verifier-1", "target-verifier-2"]);
        let words = words(&plan.orchestrator(&[ANY_PORT], &[]));
        assert!(
            words.ends_with(
                " --draft-workers= --untrusted-draft= --draft-len=3 --rule=block --min-confidence=0.5"
            ),
            "{words}"
        );
    }
}
