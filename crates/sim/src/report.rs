//! What people see: what was run, and a failure with its place.

use std::any::Any;
use std::cell::RefCell;
use std::panic;
use std::sync::Once;

/// At the end of a commit that is not what this was built from: something was changed since.
pub const DIRTY: &str = "-dirty";

/// The commit that this was built from.
pub const COMMIT: &str = match option_env!("PARAPET_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// What stands above everything that is run: a seed means nothing without it.
pub fn head() -> String {
    format!("parapet {}, commit {COMMIT}", env!("CARGO_PKG_VERSION"))
}

thread_local! {
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes panics silent, and remembers where they were: a run that fails is reported once, in order.
fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let place = info.location().map(|place| format!("{}:{}", place.file(), place.line()));
            PLACE.with(|slot| *slot.borrow_mut() = place);
        }));
    });
}

/// Runs something that may panic; gives what it said and where.
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
