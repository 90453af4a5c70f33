//! The lab's command.
fn main() {}
