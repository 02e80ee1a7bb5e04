//! The arithmetic of a pass over plain slices; knows nothing of files, sessions or slots.

pub(crate) mod attention;
pub(crate) mod blocks;
pub(crate) mod linear;
pub(crate) mod matrix;
pub(crate) mod ops;
pub(crate) mod rope;
