//! Wire messages to the engine's types (`TryFrom`) and back (`From`).
//!
//! What cannot be represented is a [`Problem`] naming the field; what is merely out of a worker's limits
//! is left to the worker.

mod draft;
mod incoming;
mod logprobs;
mod sampling;
mod session;
mod verify;

pub use incoming::Incoming;
pub use sampling::{adjustment_problem, sampling_from_wire, sampling_to_wire};
pub use session::{confidence_from_wire, rule_from_wire};

use foretoken_engine::Lattice;

use crate::error::{Problem, Reason};
use crate::v1;

/// A message field that must be there.
fn required<T>(value: Option<T>, field: &str) -> Result<T, Problem> {
    value.ok_or_else(|| Problem::field(field, format!("{field} is missing; it is required")))
}

fn key_bytes(bytes: &[u8], field: &str) -> Result<[u8; 32], Problem> {
    bytes
        .try_into()
        .map_err(|_| Problem::field(field, format!("{field} has {} bytes; it must have 32", bytes.len())))
}

/// A length as the wire has it; what cannot occur on it is cut to the largest.
#[must_use]
pub fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn empty_kind() -> Problem {
    Problem::new(Reason::MalformedMessage, "the message has no kind this version knows")
}

impl From<&Lattice> for v1::LatticeQ {
    fn from(lattice: &Lattice) -> Self {
        let mut before = 0;
        let id_deltas = lattice
            .ids()
            .iter()
            .map(|&id| {
                let delta = id - before;
                before = id;
                delta
            })
            .collect();
        Self { id_deltas, counts: lattice.counts().to_vec() }
    }
}

fn lattice_from_wire(wire: v1::LatticeQ, position: usize) -> Result<Lattice, Problem> {
    let field = || format!("q[{position}]");
    let mut ids = wire.id_deltas;
    for i in 1..ids.len() {
        ids[i] = ids[i - 1]
            .checked_add(ids[i])
            .ok_or_else(|| Problem::field(field(), "the id differences add up beyond 32 bits"))?;
    }
    // The vocabulary is checked where it is known: by Block::check.
    Lattice::from_parts(ids, wire.counts, usize::MAX)
        .map_err(|error| Problem::field(field(), error.to_string()))
}

fn lattices_from_wire(wire: Vec<v1::LatticeQ>) -> Result<Option<Vec<Lattice>>, Problem> {
    if wire.is_empty() {
        return Ok(None);
    }
    wire.into_iter()
        .enumerate()
        .map(|(position, q)| lattice_from_wire(q, position))
        .collect::<Result<_, _>>()
        .map(Some)
}

fn lattices_to_wire(q: Option<&Vec<Lattice>>) -> Vec<v1::LatticeQ> {
    q.map(|q| q.iter().map(Into::into).collect()).unwrap_or_default()
}
