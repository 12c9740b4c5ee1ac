//! Several hosts that share one array: the wiring of `net::cluster` into processes.
//!
//! ```text
//!   cluster create ──▶ NAME.toml (file) ──▶ every other verb
//!   serve-disk     host ◀── connections ──▶ links     coordinator, client
//!   keys           certificates of both ends of a TCP connection
//!   store          the register of decisions          status, evict: one question (links::ask)
//!   show           all of them on one machine (quickstart --cluster)
//! ```
//!
//! Decides nothing about data: `cluster` does.

pub(crate) mod file;
pub(crate) mod host;
pub(crate) mod keys;
pub(crate) mod links;
mod show;
pub(crate) mod store;

pub(crate) use show::demonstrate;
