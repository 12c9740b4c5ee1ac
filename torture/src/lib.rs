//! What `torture` and `hosts` have in common: an NBD client, choices, and the beginning and end of
//! processes.
#![forbid(unsafe_code)]

pub mod client;
pub mod first_line;
pub mod process_group;
pub mod random;
