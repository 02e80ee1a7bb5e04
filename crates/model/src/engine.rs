//! The engines that can run a model, and one decoder type over all of them.

use crate::decoder::LlamaDecoder;
use crate::fused::FusedDecoder;
use crate::graph::GraphDecoder;
use foretoken_acceptance::Sampling;
use foretoken_runtime::decoder::{
    Decoder, DecoderError, ModelShape, Row, RowAnswer, RowAsk, SessionRows, Slot,
};

/// What runs the passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// The one made for the device: on the CPU the fused one, unless the file holds a tensor type
    /// that it has no kernel for.
    #[default]
    Auto,
    /// Packed weights and kernels made for one another, on the CPU.
    Fused,
    /// Plain arithmetic on the CPU: slow, and what the others are tested against.
    Reference,
    /// Candle's tensors, on any device. The only engine of GPUs; on the CPU for tests.
    Graph,
}

/// A model in the engine it was loaded for.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a process holds one or two of them")]
pub enum ModelDecoder {
    /// See [`Engine::Fused`].
    Fused(FusedDecoder),
    /// See [`Engine::Reference`].
    Reference(LlamaDecoder),
    /// See [`Engine::Graph`].
    Graph(GraphDecoder),
}

/// Calls the method of whichever engine it is.
macro_rules! each {
    ($self:ident, $decoder:ident => $call:expr) => {
        match $self {
            Self::Fused($decoder) => $call,
            Self::Reference($decoder) => $call,
            Self::Graph($decoder) => $call,
        }
    };
}

impl Decoder for ModelDecoder {
    fn shape(&self) -> &ModelShape {
        each!(self, decoder => decoder.shape())
    }

    fn allocate(&mut self, capacity: usize) -> Result<Slot, DecoderError> {
        each!(self, decoder => decoder.allocate(capacity))
    }

    fn len(&self, slot: Slot) -> usize {
        each!(self, decoder => decoder.len(slot))
    }

    fn truncate(&mut self, slot: Slot, len: usize) {
        each!(self, decoder => decoder.truncate(slot, len));
    }

    fn release(&mut self, slot: Slot) {
        each!(self, decoder => decoder.release(slot));
    }

    fn forward(&mut self, batch: &[SessionRows<'_>]) -> Result<(), DecoderError> {
        each!(self, decoder => decoder.forward(batch))
    }

    fn judge(&self, sampling: &Sampling, asks: &[RowAsk<'_>]) -> Option<Vec<RowAnswer>> {
        each!(self, decoder => decoder.judge(sampling, asks))
    }

    fn copied_to_host(&self) -> u64 {
        each!(self, decoder => decoder.copied_to_host())
    }

    fn row(&self, index: usize) -> Row<'_> {
        each!(self, decoder => decoder.row(index))
    }
}
