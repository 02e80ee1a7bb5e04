//! The `foretoken` command.
fn main() {}
