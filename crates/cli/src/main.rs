//! The `foretoken` command.

#[allow(dead_code, unused_imports, reason = "the commands that use it are still to come")]
mod catalogue;

fn main() {}
