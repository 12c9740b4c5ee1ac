//! The pretend world.
fn main() {}
