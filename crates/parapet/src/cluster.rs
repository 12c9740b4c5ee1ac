//! Several hosts that share one array.
//!
//! Owns the wiring of the protocol in the crate `cluster`; decides nothing about data.

#[allow(dead_code, reason = "used by the verbs of a cluster")]
pub(crate) mod store;
