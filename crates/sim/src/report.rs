//! Output for people: the command, and a failure with its place.

use std::any::Any;
use std::cell::RefCell;
use std::panic;
use std::sync::Once;
use std::time::{SystemTime, UNIX_EPOCH};

use random::mix;

/// Suffix of a commit with local changes.
pub const DIRTY: &str = "-dirty";

/// The commit that this was built from.
pub const COMMIT: &str = match option_env!("PARAPET_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Printed before every run: a seed is meaningless without it.
pub fn head() -> String {
    format!("parapet {}, commit {COMMIT}", env!("CARGO_PKG_VERSION"))
}

/// A new seed, derived from the time of day.
pub fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    mix(now.as_nanos() as u64) % 1_000_000_000
}

/// A seed derived from the commit: a second run uses the same one.
pub fn commit_seed() -> u64 {
    // Uncommitted changes do not count: all runs before the next commit use the same seeds.
    let commit = COMMIT.trim_end_matches(DIRTY);
    let commit = commit.bytes().fold(0, |checksum, byte| mix(checksum ^ u64::from(byte)));
    mix(commit) % 1_000_000_000
}

thread_local! {
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Silences panics and records their places: a failing run is reported once, in order.
fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let place = info.location().map(|place| format!("{}:{}", place.file(), place.line()));
            PLACE.with(|slot| *slot.borrow_mut() = place);
        }));
    });
}

/// Runs code that may panic; returns its message and place.
pub fn caught(run: impl FnOnce() -> Result<(), Box<dyn Any + Send>>) -> Option<String> {
    listen();
    let payload = run().err()?;
    let said = payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(|said| (*said).to_string()))
        .unwrap_or_else(|| "a panic without words".into());
    let place = PLACE.with(RefCell::take).unwrap_or_default();
    Some(format!("{said}\n    at {place}"))
}
