//! Workers behind the engine's link traits that answer by a table and a script, without any transport.

use std::collections::VecDeque;

use foretoken_acceptance::block_rule::BlockRule;
use foretoken_acceptance::{
    CoinKey, Distribution, Lattice, LatticeShape, Proposal, Rule as RuleName, gumbel, overlap, repair,
    threshold,
};
use foretoken_engine::conversation::{
    Ask, Block, DraftFrame, DraftOpen, DraftReply, Drafted, Refusal, RunEnd, RunFinished, RunToken,
    SessionOpen, TokenLogprobs, Verdict, VerifyFrame, VerifyOpen, VerifyReply, WorkerText, WorkerTimes,
};
use foretoken_engine::generate::{ClientGone, FinishReason, Output};
use foretoken_engine::ledger::Origin;
use foretoken_engine::link::{Drafter, DrafterSource, LinkError, Traffic, Verifier};

use crate::adjusted::{Before, Mistake, adjusted};
use crate::table::{Table, TableModel};

/// What one position of a block is judged by.
#[derive(Debug)]
pub struct Position<'a> {
    /// The target's distribution there.
    pub p: Distribution,
    /// What the token is said to be drawn from.
    pub q: Proposal<'a>,
    /// The drafted token.
    pub token: u32,
    /// Its place in the text.
    pub at: u64,
    /// The coin of its repair.
    pub coin: f64,
}

/// How a verifier turns a block into a verdict: the part that is right or wrong. Provided is the session's own rule,
/// the token rule in two steps of which a wrong one replaces either.
pub trait Rule: Send + 'static {
    /// min(1, p/q), or what is taken for it.
    fn threshold(&mut self, p: &Distribution, q: Proposal<'_>, token: u32) -> f64 {
        threshold(p, q, token)
    }

    /// The token drawn for the case that `token` is rejected.
    fn repair(&mut self, p: &Distribution, q: Proposal<'_>, _token: u32, coin: f64) -> u32 {
        repair(p, q, coin)
    }

    /// What the target emits at `position` by Gumbel coupling.
    fn emitted(&mut self, p: &Distribution, noise: &CoinKey, position: u64) -> u32 {
        gumbel::draw(p, &mut noise.noise(position))
    }

    /// All of a block but its bonus. None of it may be left out: the block's length is known.
    fn judge(&mut self, rule: RuleName, positions: &[Position<'_>], noise: &CoinKey) -> Verdict {
        match rule {
            RuleName::Token => self.by_token(positions),
            RuleName::Block => by_block(positions),
            RuleName::Gumbel => {
                let repairs = positions.iter().map(|x| self.emitted(&x.p, noise, x.at)).collect();
                Verdict { repairs, ..Verdict::default() }
            }
        }
    }

    /// [`judge`](Self::judge) token by token.
    fn by_token(&mut self, positions: &[Position<'_>]) -> Verdict {
        let mut verdict = Verdict::default();
        for x in positions {
            verdict.thresholds.push(self.threshold(&x.p, x.q, x.token));
            verdict.repairs.push(self.repair(&x.p, x.q, x.token, x.coin));
            verdict.overlaps.push(overlap(&x.p, x.q));
        }
        verdict
    }
}

/// [`Rule::judge`] by the block rule.
pub fn by_block(positions: &[Position<'_>]) -> Verdict {
    let (mut rule, mut verdict) = (BlockRule::default(), Verdict::default());
    for x in positions {
        let step = rule.step(&x.p, x.q, x.token, x.coin);
        verdict.thresholds.extend(step.threshold_before);
        verdict.repairs.push(step.repair);
        verdict.overlaps.push(overlap(&x.p, x.q));
        verdict.reach.push(step.reach);
    }
    verdict.thresholds.extend(rule.last_threshold());
    verdict
}

/// The session's rule, exactly.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExactRule;

impl Rule for ExactRule {}

/// A verifier over a table.
pub struct TableVerifier<R> {
    table: Table,
    rule: R,
    open: VerifyOpen,
    text: WorkerText,
    replies: VecDeque<VerifyReply>,
    /// Blocks judged so far, with their starts.
    judged: Vec<(usize, Vec<u32>)>,
    /// What it gets wrong about penalties and the like.
    pub mistake: Option<Mistake>,
    /// Breaks the link after this many frames.
    pub breaks_after: Option<usize>,
}

impl<R> std::fmt::Debug for TableVerifier<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableVerifier").field("text", &self.text).finish_non_exhaustive()
    }
}

fn distribution(table: &Table, text: &[u32], open: &SessionOpen, history: &[u32]) -> Distribution {
    let before = Before { output_len: text.len() - open.prompt.len(), history };
    let logits = TableModel::logits_of(&table(text));
    let logits = adjusted(&logits, &open.adjustments, &open.prompt, before);
    Distribution::from_logits(&logits, &open.sampling).expect("a table's row is a distribution")
}

impl<R: Rule> TableVerifier<R> {
    /// A verifier of one session.
    #[must_use]
    pub fn new(table: Table, rule: R, open: VerifyOpen) -> Self {
        let text = WorkerText::new(&open.session.prompt);
        let (replies, judged) = (VecDeque::new(), Vec::new());
        Self { table, rule, open, text, replies, judged, mistake: None, breaks_after: None }
    }

    /// p behind the text, at a place of a block that began at `start`.
    fn p(&self, start: usize, drafted: bool) -> Distribution {
        let (text, open) = (self.text.tokens(), &self.open.session);
        let prompt_len = open.prompt.len();
        match self.mistake {
            Some(Mistake::OnlyTheBonusIsAdjusted) if drafted => {
                Distribution::from_logits(&TableModel::logits_of(&(self.table)(text)), &open.sampling)
                    .expect("a table's row is a distribution")
            }
            Some(Mistake::HistoryOfTheBlocksStart) => {
                distribution(&self.table, text, open, &text[prompt_len..start])
            }
            Some(Mistake::RejectedTokensCount) => {
                let rejected = |(start, tokens): &(usize, Vec<u32>)| {
                    let stands = |(index, token): &(usize, &u32)| text.get(start + index) == Some(token);
                    let gone = tokens.iter().enumerate().filter(move |place| !stands(place));
                    gone.map(|(_, &token)| token).collect::<Vec<_>>()
                };
                let history: Vec<u32> =
                    text[prompt_len..].iter().copied().chain(self.judged.iter().flat_map(rejected)).collect();
                distribution(&self.table, text, open, &history)
            }
            _ => distribution(&self.table, text, open, &text[prompt_len..]),
        }
    }

    fn judge(&mut self, frame: &VerifyFrame, block: &Block) -> Verdict {
        let (seq, epoch, start) = (frame.text.seq, frame.text.epoch, frame.text.start as u64);
        let mut positions = Vec::new();
        for (i, &token) in block.tokens.iter().enumerate() {
            let q = block.q.as_ref().map_or(Proposal::OneHot(token), |q| Proposal::Lattice(&q[i]));
            let at = start + i as u64;
            let coin = self.open.keys.repair().coin(at, epoch);
            let p = self.p(frame.text.start, true);
            positions.push(Position { p, q, token, at, coin });
            self.text.push(token);
        }
        let rule = self.open.session.rule;
        let verdict = self.rule.judge(rule, &positions, &self.open.keys.noise());
        let bonus = self.open.keys.bonus();
        let position = frame.text.start + block.tokens.len();
        let bonus = Some(self.next(frame.text.start, &bonus, position, epoch));
        if self.mistake == Some(Mistake::RejectedTokensCount) {
            self.judged.push((frame.text.start, block.tokens.clone()));
        }
        Verdict { seq, epoch, bonus, ..verdict }
    }

    /// A token of the target's own: bonus or plain. `start` is where its block or run began.
    fn next(&mut self, start: usize, coins: &CoinKey, position: usize, epoch: u64) -> u32 {
        let (p, position) = (self.p(start, false), position as u64);
        match self.open.session.rule {
            RuleName::Token | RuleName::Block => p.draw(coins.coin(position, epoch)),
            RuleName::Gumbel => self.rule.emitted(&p, &self.open.keys.noise(), position),
        }
    }

    fn decode(&mut self, frame: &VerifyFrame, grant: usize) {
        let (seq, epoch) = (frame.text.seq, frame.text.epoch);
        let mut end = RunEnd::Grant;
        while self.text.tokens().len() < grant {
            let position = self.text.tokens().len();
            let plain = self.open.keys.plain();
            let token = self.next(position, &plain, position, epoch);
            self.text.push(token);
            let times = WorkerTimes::default();
            let run_token = RunToken { seq, epoch, position, token, times, logprobs: None };
            self.replies.push_back(VerifyReply::Token(run_token));
            if self.open.stop_ids.contains(&token) {
                end = RunEnd::Stop;
                break;
            }
        }
        let len = self.text.tokens().len();
        self.replies.push_back(VerifyReply::Finished(RunFinished { seq, epoch, end, len }));
    }
}

impl<R: Rule> Verifier for TableVerifier<R> {
    async fn send(&mut self, frame: VerifyFrame) -> Result<(), LinkError> {
        count_down(&mut self.breaks_after)?;
        if let Err(kind) = self.text.agree(&frame.text) {
            self.replies.push_back(VerifyReply::Refused(Refusal { seq: frame.text.seq, kind }));
            return Ok(());
        }
        match &frame.ask {
            Ask::Block(block) => {
                let verdict = self.judge(&frame, block);
                self.replies.push_back(VerifyReply::Verdict(verdict));
            }
            Ask::Decode { grant } => self.decode(&frame, *grant),
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<VerifyReply, LinkError> {
        match self.replies.pop_front() {
            Some(reply) => Ok(reply),
            None => std::future::pending().await,
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

fn count_down(left: &mut Option<usize>) -> Result<(), LinkError> {
    match left {
        Some(0) => {
            Err(LinkError { reason: "SCRIPTED".into(), message: "the script breaks the link here".into() })
        }
        Some(left) => {
            *left -= 1;
            Ok(())
        }
        None => Ok(()),
    }
}

/// What to say next for a text.
pub type NextToken = std::sync::Arc<dyn Fn(&[u32]) -> u32 + Send + Sync>;

/// How a drafter proposes.
#[derive(Clone)]
pub enum Guess {
    /// Draws from a table's lattice, as a draft model does.
    Table(Table),
    /// Says what the function says for a text, one-hot.
    OneHot(NextToken),
    /// Never answers.
    Silence,
    /// Answers with a block that no one may take.
    Malformed(Block),
}

impl std::fmt::Debug for Guess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Guess::Table(_) => "Table",
            Guess::OneHot(_) => "OneHot",
            Guess::Silence => "Silence",
            Guess::Malformed(_) => "Malformed",
        })
    }
}

/// A drafter of one session.
#[derive(Debug)]
pub struct TableDrafter {
    guess: Guess,
    open: DraftOpen,
    text: WorkerText,
    replies: VecDeque<DraftReply>,
    breaks_after: Option<usize>,
    trusted: bool,
}

impl TableDrafter {
    fn draft(&mut self, epoch: u64, draft_len: usize, min_confidence: f64) -> Block {
        let mut block = Block::default();
        for _ in 0..draft_len {
            let position = self.text.tokens().len() as u64;
            let token = match &self.guess {
                Guess::Table(table) => {
                    let (text, open) = (self.text.tokens(), &self.open.session);
                    let p = distribution(table, text, open, &text[open.prompt.len()..]);
                    if p.confidence() < min_confidence {
                        break;
                    }
                    if self.open.session.sampling.is_greedy() {
                        p.argmax()
                    } else if self.open.session.rule == RuleName::Gumbel {
                        gumbel::draw(&p, &mut self.open.key.noise(position))
                    } else {
                        let mut q = Lattice::default();
                        q.fill(&p, LatticeShape::default());
                        let token = q.draw(self.open.key.word(position, epoch));
                        block.q.get_or_insert_default().push(q);
                        token
                    }
                }
                Guess::OneHot(guess) => guess(self.text.tokens()),
                Guess::Silence => break,
                Guess::Malformed(block) => return block.clone(),
            };
            block.tokens.push(token);
            self.text.push(token);
        }
        block
    }
}

impl Drafter for TableDrafter {
    fn name(&self) -> &str {
        "scripted"
    }

    fn must_be_one_hot(&self) -> bool {
        !self.trusted
    }

    async fn send(&mut self, frame: DraftFrame) -> Result<(), LinkError> {
        count_down(&mut self.breaks_after)?;
        let (seq, epoch) = (frame.text.seq, frame.text.epoch);
        if let Err(kind) = self.text.agree(&frame.text) {
            self.replies.push_back(DraftReply::Refused(Refusal { seq, kind }));
            return Ok(());
        }
        if !matches!(self.guess, Guess::Silence) {
            let block = self.draft(epoch, frame.draft_len, frame.min_confidence);
            let times = WorkerTimes::default();
            self.replies.push_back(DraftReply::Drafted(Drafted { seq, epoch, block, times }));
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<DraftReply, LinkError> {
        match self.replies.pop_front() {
            Some(reply) => Ok(reply),
            None => std::future::pending().await,
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

/// Opens scripted drafters: the first script for the first open, and so on; the last one for ever.
#[derive(Debug, Clone)]
pub struct Scripts {
    scripts: Vec<Script>,
    opened: usize,
    trusted: bool,
}

/// One opening of a drafter.
#[derive(Debug, Clone)]
pub enum Script {
    /// Nobody answers, for this reason.
    Absent(&'static str),
    /// A drafter whose link breaks after so many frames, if any number is given.
    Drafts(Guess, Option<usize>),
}

impl Scripts {
    /// Follows `scripts`.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(scripts: Vec<Script>) -> Self {
        assert!(!scripts.is_empty(), "a source of drafters needs a script");
        Self { scripts, opened: 0, trusted: true }
    }

    /// The same drafters, not believed what they say of their proposals.
    #[must_use]
    pub fn untrusted(self) -> Self {
        Self { trusted: false, ..self }
    }

    /// One drafter that never fails.
    #[must_use]
    pub fn steady(guess: Guess) -> Self {
        Self::new(vec![Script::Drafts(guess, None)])
    }
}

impl DrafterSource for Scripts {
    type Drafter = TableDrafter;

    fn open(
        &mut self,
        open: DraftOpen,
    ) -> impl Future<Output = Result<TableDrafter, LinkError>> + Send + 'static {
        let script = self.scripts[self.opened.min(self.scripts.len() - 1)].clone();
        self.opened += 1;
        let trusted = self.trusted;
        async move {
            match script {
                Script::Absent(reason) => {
                    Err(LinkError { reason: reason.into(), message: "the script has no drafter here".into() })
                }
                Script::Drafts(guess, breaks_after) => {
                    let text = WorkerText::new(&open.session.prompt);
                    Ok(TableDrafter { guess, open, text, replies: VecDeque::new(), breaks_after, trusted })
                }
            }
        }
    }
}

/// An output that keeps everything, and stops where it is told.
#[derive(Debug, Default)]
pub struct Collected {
    /// All tokens with their origins.
    pub tokens: Vec<(u32, Origin)>,
    /// Their log-probabilities, where wanted.
    pub logprobs: Vec<TokenLogprobs>,
    /// Completes a stop string after so many tokens.
    pub stops_after: Option<usize>,
    /// The client goes after so many tokens.
    pub gone_after: Option<usize>,
    /// Told by the last emit.
    pub finish: Option<FinishReason>,
}

impl Output for Collected {
    fn push(&mut self, token: u32, origin: Origin, logprobs: Option<TokenLogprobs>) -> bool {
        self.tokens.push((token, origin));
        self.logprobs.extend(logprobs);
        self.stops_after == Some(self.tokens.len())
    }

    async fn emit(&mut self, finish: Option<FinishReason>) -> Result<(), ClientGone> {
        self.finish = finish;
        match self.gone_after {
            Some(limit) if self.tokens.len() >= limit => Err(ClientGone),
            _ => Ok(()),
        }
    }
}
