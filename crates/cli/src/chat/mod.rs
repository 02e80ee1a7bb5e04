//! `foretoken chat`: a conversation.
//!
//! Services run as for `generate`, or are somebody else's. The conversation is kept here and sent whole with every
//! message; the services know nothing of it in between. An answer that fails or is stopped ends itself and not the
//! conversation.

mod args;
mod history;
mod input;
mod line;
mod settings;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::ArgMatches;
use clap::parser::ValueSource;
use foretoken_proto::v1::generate_request::Prompt;
use foretoken_proto::v1::orchestrator_client::OrchestratorClient;
use indicatif::MultiProgress;
use tonic::Response;

pub(crate) use self::args::ChatArgs;
use self::history::History;
use self::input::{Input, Read};
use self::line::{HELP, Line};
use self::settings::Settings;
use crate::access::Orchestrator;
use crate::cluster::{Cluster, Plan};
use crate::failure::UsageError;
use crate::generate::render::{LiveView, TextWriter};
use crate::generate::stream::{Answer, Complete, End, follow};
use crate::generate::summary::{duration, speculation_off};
use crate::generate::{connect, death, plan, request};
use crate::interrupt::{Interrupts, Signal};
use crate::terminal::{Style, note, print, progress, reader_left, spinner};
use crate::{local, runtime};

/// What is said of Ctrl-C at the prompt, the first time.
const ONCE_MORE: &str = "Ctrl-C once more, Ctrl-D or /quit ends\n";

/// Runs the command.
pub(crate) fn run(args: &ChatArgs, matches: &ArgMatches) -> Result<ExitCode> {
    let given = matches.subcommand_matches("chat").context("the command line is another one: a bug")?;
    let asked = |id: &&str| given.value_source(id).is_some_and(|source| source != ValueSource::DefaultValue);
    if let Some(id) = settings::WITHOUT.iter().copied().find(asked) {
        let text = format!(
            "--{id} is of no use in a conversation, which has one answer at a time and shows its text"
        );
        return Err(UsageError(text).into());
    }
    let mut settings = Settings::new(given)?;
    let progress = progress(!args.quiet && !args.models.verbose);
    // Before signals are taken in hand: Ctrl-C ends a download at once, and its pip with it.
    let plan = match args.server {
        Some(_) => None,
        None => {
            let drafter = local::drafter(&args.models)?;
            if settings.values().drafter.is_none() {
                settings.set("drafter", Some(drafter.name())).map_err(|error| anyhow!(error))?;
            }
            Some(plan(&args.models, drafter, &progress)?)
        }
    };
    runtime::block_on(hold(args, settings, plan, progress))
}

/// Holds the conversation, and ends the services that were started for it.
async fn hold(
    args: &ChatArgs,
    settings: Settings,
    plan: Option<Plan>,
    progress: MultiProgress,
) -> Result<ExitCode> {
    let mut interrupts = Interrupts::listen().context("cannot wait for signals")?;
    let waiting = spinner(&progress, "");
    let (channel, cluster) = tokio::select! {
        connected = connect(args.server.as_deref(), &args.access, plan, &waiting) => connected?,
        signal = interrupts.next() => return Ok(signal.exit_code()),
    };
    waiting.finish_and_clear();
    let terminal = io::stdout().is_terminal();
    let mut chat = Chat {
        client: OrchestratorClient::new(channel),
        cluster,
        history: History::new(args.system.clone()),
        settings,
        interrupts,
        progress,
        terminal,
        color: args.color.enabled(terminal),
        quiet: args.quiet,
    };
    if terminal && !args.quiet {
        note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D ends\n");
    }
    let ended = chat.talk(&mut Input::start()?).await;
    let Chat { client, cluster, mut interrupts, .. } = chat;
    drop(client);
    if let Some(cluster) = cluster {
        tokio::select! {
            stopped = cluster.stop() => stopped?,
            // Whoever asks again does not want to wait: what is left is killed.
            signal = interrupts.next() => return Ok(signal.exit_code()),
        }
    }
    ended
}

/// A conversation and what it runs on.
struct Chat {
    client: OrchestratorClient<Orchestrator>,
    /// The services, if they were started here.
    cluster: Option<Cluster>,
    history: History,
    settings: Settings,
    interrupts: Interrupts,
    progress: MultiProgress,
    /// Whether standard output is one.
    terminal: bool,
    color: bool,
    quiet: bool,
}

impl Chat {
    /// Reads, answers, and reads again.
    async fn talk(&mut self, input: &mut Input) -> Result<ExitCode> {
        // Whether the last thing that happened was a Ctrl-C.
        let mut interrupted = false;
        loop {
            let read = tokio::select! {
                read = input.next() => read?,
                signal = self.interrupts.next() => match signal {
                    Signal::Interrupt => Read::Interrupt,
                    Signal::Terminate => return Ok(signal.exit_code()),
                },
            };
            let line = match read {
                Read::End => return Ok(ExitCode::SUCCESS),
                Read::Interrupt if interrupted => return Ok(Signal::Interrupt.exit_code()),
                Read::Interrupt => {
                    interrupted = true;
                    note(ONCE_MORE);
                    continue;
                }
                Read::Line(line) => line,
            };
            interrupted = false;
            match Line::parse(&line) {
                Line::Empty => {}
                Line::Quit => return Ok(ExitCode::SUCCESS),
                Line::Message(message) => match self.answer(&message).await? {
                    Then::GoOn => {}
                    Then::Stopped => interrupted = true,
                    Then::Leave(code) => return Ok(code),
                },
                command => self.obey(command),
            }
        }
    }

    /// Does what needs no services.
    fn obey(&mut self, command: Line) {
        match command {
            Line::Show => note(&self.settings.list()),
            Line::Set(name, value) => {
                if let Err(error) = self.settings.set(&name, value.as_deref()) {
                    note(&format!("{error}\n"));
                }
            }
            Line::System(text) => self.history.set_system(text),
            Line::Reset => self.history.reset(),
            Line::Unknown(text) => note(&format!("there is no command {text}; /help lists them\n")),
            Line::Help => note(HELP),
            // Not for here.
            Line::Empty | Line::Message(_) | Line::Quit => {}
        }
    }

    /// Shows the answer to a message. What goes wrong with it is told; only what ends the conversation is an error.
    async fn answer(&mut self, message: &str) -> Result<Then> {
        let values = self.settings.values();
        let prompt = Prompt::Chat(self.history.ask(message));
        let request = match request::assemble(prompt, &values.sampling, values.rounds, values.drafter) {
            Ok(request) => request,
            Err(error) => {
                note(&format!("{error}\n"));
                return Ok(Then::GoOn);
            }
        };
        let text = TextWriter::new(io::stdout(), self.color, self.terminal);
        let mut view = LiveView::new(spinner(&self.progress, "sending the message"), Some(text), 1);
        let client = &mut self.client;
        let call = async { client.generate(request).await.map(Response::into_inner) };
        let answer = follow(call, 1, &mut view, self.interrupts.next()).await;
        view.finish().or_else(|error| if reader_left(&error) { Ok(()) } else { Err(error) })?;
        if !self.terminal && answer.token_count() > 0 {
            // A line of its own for whoever reads along.
            print("\n")?;
        }
        let tokens = answer.samples.iter().flat_map(|sample| &sample.tokens);
        let said: String = tokens.map(|token| token.text.as_str()).collect();
        self.history.answered(message, &said);
        self.close(answer).await
    }

    /// Says how an answer ended.
    async fn close(&mut self, answer: Answer) -> Result<Then> {
        match &answer.end {
            End::Complete => {
                let complete = answer.samples.iter().find_map(|sample| sample.complete.as_ref());
                if let Some(complete) = complete.filter(|_| !self.quiet) {
                    let color = self.color && io::stderr().is_terminal();
                    note(&Style::Dim.paint(&figures(&answer, complete), color));
                    note("\n");
                }
            }
            End::Interrupted(Signal::Interrupt) => {
                note("stopped\n");
                return Ok(Then::Stopped);
            }
            End::Interrupted(signal) => return Ok(Then::Leave(signal.exit_code())),
            End::ReaderLeft => return Ok(Then::Leave(ExitCode::SUCCESS)),
            End::Unwritable(error) => bail!("cannot write to standard output: {error}"),
            End::Failed(error) => {
                if let Some(death) = death(self.cluster.as_mut()).await {
                    bail!("{error}\n{death}");
                }
                note(&format!("error: {error}\n{}", way_out(error.reason.as_deref())));
            }
        }
        Ok(Then::GoOn)
    }
}

/// What comes after an answer.
enum Then {
    /// The next message.
    GoOn,
    /// The same, but Ctrl-C was pressed.
    Stopped,
    /// The end.
    Leave(ExitCode),
}

/// What to do about an answer that was refused.
fn way_out(reason: Option<&str>) -> &'static str {
    match reason {
        Some("PROMPT_TOO_LONG" | "CONTEXT_EXCEEDED" | "KV_TOO_SMALL") => {
            "the conversation may have become too long: /reset forgets it, or /set max_tokens to less\n"
        }
        _ => "",
    }
}

/// A line of figures behind an answer, and one for each time nobody drafted.
fn figures(answer: &Answer, complete: &Complete) -> String {
    let ledger = &complete.ledger;
    let count = answer.token_count();
    let mut text =
        format!("{count} token{} in {}", if count == 1 { "" } else { "s" }, duration(answer.whole));
    if let Some(first) = answer.first_token {
        let rest = answer.whole.saturating_sub(first).as_secs_f64();
        if count > 1 && rest > 0.0 {
            text.push_str(&format!(", {:.1} tokens/s behind the first", (count - 1) as f64 / rest));
        }
    }
    text.push_str(&format!(", {} of {} passes saved", ledger.saved_passes, ledger.output_tokens));
    if ledger.drafted > 0 {
        text.push_str(&format!(", {} of {} drafted stand", ledger.accepted, ledger.drafted));
    }
    if !complete.stopped {
        text.push_str(", cut at max_tokens");
    }
    for off in &complete.speculation_off {
        text.push_str(&format!("\n{}", speculation_off(off)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::stream::{Origin, Sample, Token};
    use foretoken_proto::v1::Ledger;
    use std::time::Duration;

    #[test]
    fn the_figures_are_one_line() {
        let ledger =
            Ledger { output_tokens: 21, accepted: 10, drafted: 16, saved_passes: 12, ..Ledger::default() };
        let complete = Complete {
            stopped: false,
            ledger,
            drafter: "ngram".to_owned(),
            speculation_off: Vec::new(),
            rounds: Vec::new(),
        };
        let token = Token { id: 1, text: "x".to_owned(), origin: Origin::Plain, logprobs: None };
        let answer = Answer {
            started: None,
            samples: vec![Sample { tokens: vec![token; 21], complete: None }],
            end: End::ReaderLeft,
            first_token: Some(Duration::from_millis(500)),
            whole: Duration::from_millis(2_500),
        };
        assert_eq!(
            figures(&answer, &complete),
            "21 tokens in 2.50 s, 10.0 tokens/s behind the first, 12 of 21 passes saved, 10 of 16 drafted stand, cut at \
             max_tokens"
        );
    }
}
