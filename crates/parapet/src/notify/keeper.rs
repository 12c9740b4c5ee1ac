//! The thread that keeps the messages of a channel on disk.
//!
//! A thread of its own: the state folder may lie on the very array whose events are told, and a
//! message must not wait for it, nor must the array.

use std::sync::PoisonError;

use super::line::{Shared, State};
use super::now;
use super::store::Store;

/// Reads what the server before has left, and stores each change until the sender has ended.
pub(super) fn run(shared: &Shared) {
    let channel = shared.lock().outbox.channel().clone();
    let warn = |error| {
        tracing::warn!("{}: alerts are not kept over a restart: {error}", channel.name);
    };
    match Store::claim(&channel) {
        Ok((store, left)) => {
            // Revisions begin at 0: what is on disk is older than any change.
            shared.restore(left, Some(0));
            keep(shared, store, &warn);
        }
        Err(error) => {
            warn(error);
            shared.restore(Vec::new(), None);
        }
    }
    shared.lock().is_closed = true;
    shared.changed.notify_all();
}

fn keep(shared: &Shared, mut store: Store, warn: &dyn Fn(std::io::Error)) {
    let (mut seen, mut has_warned) = (None, false);
    loop {
        let (kept, revision, is_over) = {
            let is_idle =
                |state: &mut State| seen == Some(state.outbox.revision()) && !state.is_over;
            let waited = shared.changed.wait_while(shared.lock(), is_idle);
            let state = waited.unwrap_or_else(PoisonError::into_inner);
            let kept = state.outbox.kept(now(), jiff::Timestamp::now());
            (kept, state.outbox.revision(), state.is_over)
        };
        seen = Some(revision);
        let stored = match store.put(&kept) {
            Ok(()) => Some(revision),
            Err(error) => {
                if !std::mem::replace(&mut has_warned, true) {
                    warn(error);
                }
                None
            }
        };
        shared.lock().stored = stored;
        shared.changed.notify_all();
        if is_over {
            return;
        }
    }
}
