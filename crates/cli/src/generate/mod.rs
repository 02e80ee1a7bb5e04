//! `foretoken generate`: one prompt, one answer.
//!
//! The prompt is read and models are fetched before anything is started; then the services run, unless a server is
//! given, the answer streams, and whatever end it takes the services end before the command does.

mod jaeger;
mod record;
pub(crate) mod render;
pub(crate) mod request;
pub(crate) mod stream;
pub(crate) mod summary;
mod timeline;
mod verdict;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use foretoken_proto::service_name;
use foretoken_proto::v1::GenerateRequest;
use foretoken_proto::v1::orchestrator_client::OrchestratorClient;
use foretoken_transport::wait_healthy;
use indicatif::{MultiProgress, ProgressBar};
use tonic::Response;

use self::record::Record;
use self::render::{LiveView, TextWriter};
use self::stream::{Answer, End, follow};
use crate::access::{AccessArgs, Bearer, Orchestrator};
use crate::cli::{Drafter, GenerateArgs, LocalArgs};
use crate::cluster::{ANY_PORT, Cluster, Plan};
use crate::interrupt::Interrupts;
use crate::rounds::RoundArgs;
use crate::terminal::{note, print, progress, reader_left, spinner};
use crate::{local, runtime};

/// How long a server that was named may take to be ready.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the services' streams may go on after the end. There are none: the answer is whole or not wanted.
const DRAIN: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(args: &GenerateArgs) -> Result<ExitCode> {
    let prompt = request::prompt(args)?;
    let progress = progress(!args.quiet && !args.models.verbose);
    // Before signals are taken in hand: Ctrl-C ends a download at once, and its pip with it.
    let (request, plan) = if args.server.is_some() {
        (request::request(args, prompt, args.models.drafter)?, None)
    } else {
        let drafter = local::drafter(&args.models)?;
        let request = request::request(args, prompt, Some(drafter))?;
        (request, Some(plan(&args.models, drafter, &progress)?))
    };
    runtime::block_on(generate(args, request, plan, &progress))
}

/// Services for one client, for as long as its command runs.
pub(crate) fn plan(models: &LocalArgs, drafter: Drafter, progress: &MultiProgress) -> Result<Plan> {
    let (target, drafting) = local::models(models, drafter, progress)?;
    Ok(Plan {
        target,
        drafting,
        verifiers: 1,
        draft_workers: 1,
        listen: ANY_PORT,
        rounds: RoundArgs::default(),
        show_logs: models.verbose,
        start_timeout: models.start_timeout,
        drain: DRAIN,
    })
}

async fn generate(
    args: &GenerateArgs,
    request: GenerateRequest,
    plan: Option<Plan>,
    progress: &MultiProgress,
) -> Result<ExitCode> {
    let mut interrupts = Interrupts::listen().context("cannot wait for signals")?;
    let waiting = spinner(progress, "");
    let (channel, mut cluster) = tokio::select! {
        connected = connect(args.server.as_deref(), &args.access, plan, &waiting) => connected?,
        signal = interrupts.next() => return Ok(signal.exit_code()),
    };

    let terminal = io::stdout().is_terminal();
    let color = args.color.enabled(terminal);
    let text = (!args.json).then(|| TextWriter::new(io::stdout(), color, terminal));
    waiting.set_message("sending the prompt");
    let samples = args.sampling.samples as usize;
    let mut view = LiveView::new(waiting, text, samples);
    let mut client = OrchestratorClient::new(channel);
    let call = async { client.generate(request).await.map(Response::into_inner) };
    let answer = follow(call, samples, &mut view, interrupts.next()).await;
    view.finish().or_else(|error| if reader_left(&error) { Ok(()) } else { Err(error) })?;

    if args.json {
        for record in Record::all(&answer) {
            let record = serde_json::to_string(&record).context("cannot write the record")?;
            print(&format!("{record}\n"))?;
        }
    } else if !args.quiet {
        let color_notes = args.color.enabled(io::stderr().is_terminal());
        for complete in answer.samples.iter().filter_map(|sample| sample.complete.as_ref()) {
            note(&timeline::timeline(&complete.rounds, color_notes));
        }
        note(&summary::summary(&answer, color_notes, color));
        let trace_id = answer.started.as_ref().map_or("", |started| &started.trace_id);
        if let Some(page) = jaeger::page(trace_id, &args.jaeger_url) {
            note(&summary::row("trace", &page, color_notes));
        }
    }
    let result = exit(answer, cluster.as_mut()).await;
    drop(client);
    if let Some(cluster) = cluster {
        tokio::select! {
            stopped = cluster.stop() => stopped?,
            // Whoever asks again does not want to wait: what is left is killed.
            signal = interrupts.next() => return Ok(signal.exit_code()),
        }
    }
    result
}

/// A channel to the orchestrator, and the cluster it belongs to if that was started here. What `access` says is for a
/// `server` alone.
pub(crate) async fn connect(
    server: Option<&str>,
    access: &AccessArgs,
    plan: Option<Plan>,
    waiting: &ProgressBar,
) -> Result<(Orchestrator, Option<Cluster>)> {
    if let Some(plan) = plan {
        let cluster = Cluster::start(&plan, |stage| waiting.set_message(stage.to_owned())).await?;
        return Ok((Orchestrator::new(cluster.channel(), Bearer::default()), Some(cluster)));
    }
    let server = server.unwrap_or_default();
    waiting.set_message(format!("connecting to {server}"));
    let (channel, bearer) = access.channel(server)?;
    wait_healthy(channel.clone(), service_name::ORCHESTRATOR, SERVER_TIMEOUT)
        .await
        .with_context(|| format!("cannot use the server {server}"))?;
    Ok((Orchestrator::new(channel, bearer), None))
}

/// The death of a service started here that may be behind a failed call.
pub(crate) async fn death(cluster: Option<&mut Cluster>) -> Option<String> {
    match cluster {
        Some(cluster) => cluster.recent_death().await,
        None => None,
    }
}

/// What the command's end tells the shell, or the user.
async fn exit(answer: Answer, cluster: Option<&mut Cluster>) -> Result<ExitCode> {
    let came = answer.token_count();
    match answer.end {
        End::Complete | End::ReaderLeft => Ok(ExitCode::SUCCESS),
        End::Interrupted(signal) => Ok(signal.exit_code()),
        End::Unwritable(error) => Err(error).context("cannot write to standard output"),
        End::Failed(error) => {
            let error = match death(cluster).await {
                Some(death) => anyhow!("{error}\n{death}"),
                None => error.into(),
            };
            Err(if came == 0 {
                error
            } else {
                error.context(format!("the answer broke off after {came} tokens"))
            })
        }
    }
}
