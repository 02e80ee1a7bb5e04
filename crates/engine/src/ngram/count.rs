//! Counting: which token followed which context how often, and which of that is worth its bytes.
//!
//! All positions are sorted once by the tokens before them, the last token first. Positions of one context are then
//! neighbours, at every length of context at the same time, and every context lies inside the one that is a token
//! shorter: counts of all orders come out of one walk, in memory that grows with the text and with nothing else.

use std::collections::HashMap;

use thiserror::Error;

use super::smoothing::TABLE;
use super::table::{Head, NO_CONTEXT, ORDERS, Row, Table, TableError, rows_within, with_earlier};

/// Stands between texts: no context reaches across it.
const BREAK: u32 = u32::MAX;

/// Continuations kept of one context at most: as many as a proposal has.
const MAX_CONTINUATIONS: usize = 32;

/// Rows held for each one wanted before the worst are let go.
const SPARE: usize = 4;

/// What a table shall be.
#[derive(Debug, Clone)]
pub struct CountConfig {
    /// Size of the vocabulary.
    pub vocab_size: u32,
    /// Fingerprint of the tokenizer that the tokens belong to.
    pub tokenizer_fingerprint: String,
    /// Bytes of the file at most; the least useful rows are left out.
    pub max_bytes: usize,
}

/// Why there is no table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CountError {
    /// An order that no table has.
    #[error("the order is {0}; it must be between 2 and 8")]
    Order(u32),
    /// More text than positions can be numbered.
    #[error("the texts have more than 4 billion tokens; count fewer")]
    TooLong,
    /// A token that the vocabulary does not have.
    #[error("the texts hold token {token}; the vocabulary has {vocab_size}")]
    Token {
        /// The token.
        token: u32,
        /// The vocabulary's size.
        vocab_size: u32,
    },
    /// The head cannot be written.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Texts to be counted.
#[derive(Debug, Clone)]
pub struct Corpus {
    order: u32,
    /// All texts, a [`BREAK`] before each.
    tokens: Vec<u32>,
    /// Positions of tokens that are counted, as what follows.
    counted: Vec<u32>,
}

/// A row with its context's count and its worth.
#[derive(Debug, Clone, Copy)]
struct Worth {
    row: Row,
    total: u32,
    worth: f32,
}

impl Corpus {
    /// No texts yet; contexts will have up to `order` − 1 tokens.
    ///
    /// # Errors
    /// An order that no table has.
    pub fn new(order: u32) -> Result<Self, CountError> {
        if ORDERS.contains(&order) {
            Ok(Self { order, tokens: Vec::new(), counted: Vec::new() })
        } else {
            Err(CountError::Order(order))
        }
    }

    /// Adds a text. Tokens of `before` are only what others follow, as a prompt's are.
    ///
    /// # Errors
    /// If the texts become too long to be numbered.
    pub fn add(&mut self, before: &[u32], text: &[u32]) -> Result<(), CountError> {
        // What is farther back is in no context.
        let before = &before[before.len().saturating_sub(self.order as usize - 1)..];
        self.tokens.push(BREAK);
        self.tokens.extend(before);
        let first = self.tokens.len();
        self.tokens.extend(text);
        let position = |at| u32::try_from(at).map_err(|_| CountError::TooLong);
        self.counted.extend(position(first)?..position(self.tokens.len())?);
        Ok(())
    }

    /// Tokens counted so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counted.len()
    }

    /// Whether nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counted.is_empty()
    }

    /// Counts, keeps what is most useful within the bytes allowed, and writes it.
    ///
    /// A row is worth the tokens it would help to guess: its count times how much likelier its token is in its own
    /// context than in the one a token shorter.
    ///
    /// # Errors
    /// A token outside the vocabulary, or a fingerprint that is none.
    pub fn table(mut self, config: &CountConfig) -> Result<Vec<u8>, CountError> {
        let outside = self.tokens.iter().find(|&&token| token != BREAK && token >= config.vocab_size);
        if let Some(&token) = outside {
            return Err(CountError::Token { token, vocab_size: config.vocab_size });
        }
        let mut positions = std::mem::take(&mut self.counted);
        positions.sort_unstable_by(|&a, &b| self.contexts_of(a).cmp(self.contexts_of(b)));
        let limit = rows_within(config.max_bytes, config.vocab_size);
        let mut walk =
            Walk { corpus: &self, rows: Vec::new(), limit: limit.saturating_mul(SPARE).max(1 << 16) };
        walk.visit(&positions, 1, NO_CONTEXT, &[]);
        let rows = most_useful(walk.rows, limit, config.vocab_size);
        let head = Head {
            order: self.order,
            vocab_size: config.vocab_size,
            counted: positions.len() as u64,
            tokenizer_fingerprint: config.tokenizer_fingerprint.clone(),
        };
        Ok(Table::encode(&head, rows)?)
    }

    /// The token `back` before a position.
    fn earlier(&self, position: u32, back: u32) -> u32 {
        position.checked_sub(back).map_or(BREAK, |at| self.tokens[at as usize])
    }

    /// The tokens before a position, last first, up to the order and to the text's beginning.
    fn contexts_of(&self, position: u32) -> impl Iterator<Item = u32> + '_ {
        (1..self.order).map(move |back| self.earlier(position, back)).take_while(|&token| token != BREAK)
    }
}

/// The walk over contexts.
struct Walk<'a> {
    corpus: &'a Corpus,
    rows: Vec<Worth>,
    /// Rows worth holding on to.
    limit: usize,
}

impl Walk<'_> {
    /// Counts the contexts of `back` tokens among positions that share the last `back` − 1, whose hash is `context`.
    /// `shorter` says how likely each token is after those, in ascending order of tokens.
    fn visit(&mut self, positions: &[u32], back: u32, context: u64, shorter: &[(u32, f64)]) {
        let corpus = self.corpus;
        let same = |a: &u32, b: &u32| corpus.earlier(*a, back) == corpus.earlier(*b, back);
        for group in positions.chunk_by(same) {
            let token = corpus.earlier(group[0], back);
            if token == BREAK {
                continue;
            }
            let context = with_earlier(context, token);
            // The same positions as without the token: it tells nothing new, but a longer context may.
            let likely = if group.len() == positions.len() && back > 1 {
                shorter.to_vec()
            } else {
                self.count(group, context, shorter)
            };
            if back + 1 < corpus.order && group.len() > 1 {
                self.visit(group, back + 1, context, &likely);
            }
        }
    }

    /// Counts one context; says how likely each token is after it.
    fn count(&mut self, group: &[u32], context: u64, shorter: &[(u32, f64)]) -> Vec<(u32, f64)> {
        let mut next: Vec<u32> = group.iter().map(|&at| self.corpus.tokens[at as usize]).collect();
        next.sort_unstable();
        let total = group.len() as u32;
        let counts = next.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32));
        let Some(level) = TABLE.level(counts.clone().map(|(_, count)| count.into()), 0.0) else {
            return Vec::new();
        };
        let mut likely = Vec::new();
        let mut rows = Vec::new();
        for (token, count) in counts {
            let found = shorter.binary_search_by_key(&token, |&(token, _)| token);
            let before = found.map_or(0.0, |index| shorter[index].1);
            let now = level.prob(count.into(), before);
            likely.push((token, now));
            let worth = (f64::from(count) * (now - before)) as f32;
            rows.push(Worth { row: Row { context, token, count }, total, worth });
        }
        rows.sort_unstable_by_key(|worth| (std::cmp::Reverse(worth.row.count), worth.row.token));
        rows.truncate(MAX_CONTINUATIONS);
        self.rows.extend(rows.into_iter().filter(|row| row.worth > 0.0));
        if self.rows.len() > self.limit.saturating_mul(2) {
            self.rows.select_nth_unstable_by(self.limit, by_worth);
            self.rows.truncate(self.limit);
        }
        likely
    }
}

fn by_worth(a: &Worth, b: &Worth) -> std::cmp::Ordering {
    let tie = |worth: &Worth| (worth.row.context, worth.row.token);
    b.worth.total_cmp(&a.worth).then_with(|| tie(a).cmp(&tie(b)))
}

/// The rows of most worth, and for each context one more for all it leaves out; `limit` of both at most.
fn most_useful(mut rows: Vec<Worth>, limit: usize, vocab_size: u32) -> Vec<Row> {
    rows.sort_unstable_by(by_worth);
    // What a context's kept rows leave out of its count.
    let mut left_out: HashMap<u64, u32> = HashMap::new();
    let mut kept = Vec::new();
    let mut used = 0;
    for Worth { row, total, .. } in rows {
        let before = left_out.get(&row.context).copied();
        let after = before.unwrap_or(total).saturating_sub(row.count);
        let needs = 1 + usize::from(after > 0);
        let had = usize::from(before.is_some_and(|left| left > 0));
        if used + needs - had > limit {
            break;
        }
        used = used + needs - had;
        left_out.insert(row.context, after);
        kept.push(row);
    }
    let rest = left_out.into_iter().filter(|&(_, left)| left > 0);
    kept.extend(rest.map(|(context, count)| Row { context, token: vocab_size, count }));
    kept
}

#[cfg(test)]
mod tests;
