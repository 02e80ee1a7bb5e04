//! Working memory that lives inside a value without being part of it: it keeps its capacity between calls, and
//! neither copies nor compares nor prints.

use std::fmt;

/// A buffer whose content means nothing between calls.
pub(crate) struct Scratch<T>(pub(crate) Vec<T>);

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Clone for Scratch<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> PartialEq for Scratch<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> fmt::Debug for Scratch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}
