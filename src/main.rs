//! rke-operator
fn main() {}
