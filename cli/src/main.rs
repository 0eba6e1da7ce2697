//! The `mooring` program.
fn main() {}
