//! Predicts whether an array recovers by itself, so that `wait` does not wait forever.
//!
//! Uses only the reported state of the array, as its server does. Sends no requests.

use super::{Array, JobKind, Slot, SlotState, State};

impl Array {
    /// Returns true if a slot is missing its member.
    pub(crate) fn is_short(&self) -> bool {
        self.slots.iter().any(|slot| slot.state == SlotState::Missing)
    }

    /// Returns true if a spare is present that takes over a missing slot by itself.
    pub(crate) fn awaits_spare(&self) -> bool {
        let able = self.writable && self.state != State::Failed && self.redundancy > 0;
        able && self.is_short() && !self.spares.is_empty()
    }

    /// Returns true if a member is being rebuilt, or will be without a command.
    pub(crate) fn is_filling(&self) -> bool {
        self.awaits_spare() || self.slots.iter().any(Slot::is_filling)
    }

    /// Returns true if a resync runs or will start by itself; not while a slot is missing its
    /// member.
    pub(crate) fn is_syncing(&self) -> bool {
        let resync = self.job.as_ref().is_some_and(|job| job.kind == JobKind::Resync);
        let able = self.writable && self.state != State::Failed;
        let whole = !self.is_short() || self.is_filling();
        resync || self.integrity.unsynced_bytes > 0 && able && whole && !self.lacks_parity()
    }

    /// Returns true if parity is not computed although the level has it.
    pub(crate) fn lacks_parity(&self) -> bool {
        self.has_parity() && !self.parity
    }

    /// Returns why the array will not become complete by itself; none if it is or will be.
    pub(crate) fn stays_short(&self) -> Option<String> {
        let missing = self.slots.iter().filter(|slot| slot.state == SlotState::Missing).count();
        if missing == 0 || self.state != State::Failed && self.is_filling() {
            return None;
        }
        Some(match missing {
            1 => format!("{}: one slot has no member, and no spare is available", self.name),
            _ => {
                format!("{}: {missing} slots have no member, and no spare is available", self.name)
            }
        })
    }

    /// Returns why the array will not become in sync by itself; none if it is or will be.
    pub(crate) fn stays_unsynced(&self) -> Option<String> {
        if self.integrity.unsynced_bytes == 0 || self.is_syncing() {
            return None;
        }
        let size = crate::size::Size(self.integrity.unsynced_bytes);
        let why = if self.state == State::Failed {
            "the array has failed"
        } else if !self.writable {
            "the array is read-only"
        } else if self.lacks_parity() {
            "parity is off"
        } else {
            "a member is missing"
        };
        Some(format!("{}: {size} out of sync; cannot resync: {why}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degraded(more: serde_json::Value) -> Array {
        let mut array = serde_json::json!({
            "uuid": "", "name": "tank", "level": "raid5", "layout": "none", "chunk_bytes": 0,
            "capacity_bytes": 1, "state": "critical", "writable": true, "dirty": false,
            "unsynced_bytes": 0, "redundancy": 1, "redundancy_left": 0, "parity": true,
            "slots": [{"slot": 0, "state": "missing", "member": null, "replacement": null}],
            "spares": [], "faulty": [], "job": null, "last_scrub": null,
            "speed": {"min": 0, "max": null}, "exports": [], "problems": []
        });
        for (key, value) in more.as_object().unwrap() {
            array[key] = value.clone();
        }
        serde_json::from_value(array).unwrap()
    }

    fn spare() -> serde_json::Value {
        serde_json::json!([{
            "name": "s0", "uuid": "", "serial": null, "read_errors": 0, "write_errors": 0,
            "repaired_bytes": 0, "trouble": null
        }])
    }

    #[test]
    fn an_empty_slot_is_filled_only_by_a_spare_and_only_if_writes_are_taken() {
        assert!(degraded(serde_json::json!({})).stays_short().is_some());
        assert!(degraded(serde_json::json!({ "spares": spare() })).stays_short().is_none());
        for (key, value) in [("writable", false.into()), ("state", "failed".into())] {
            let mut more = serde_json::json!({ "spares": spare() });
            more[key] = value;
            assert!(degraded(more).stays_short().is_some(), "{key}");
        }
    }

    #[test]
    fn nothing_is_synced_while_a_slot_stays_empty() {
        let unsynced = |more: serde_json::Value| {
            let mut array = degraded(more);
            array.integrity.unsynced_bytes = 1 << 20;
            array
        };
        let reason = unsynced(serde_json::json!({})).stays_unsynced().unwrap();
        assert!(reason.contains("1 MiB") && reason.contains("a member is missing"), "{reason}");
        assert!(unsynced(serde_json::json!({ "spares": spare() })).is_syncing());
        assert!(unsynced(serde_json::json!({ "slots": [] })).is_syncing());
        for (key, value) in [("writable", false), ("parity", false)] {
            let mut more = serde_json::json!({ "slots": [] });
            more[key] = value.into();
            assert!(unsynced(more).stays_unsynced().is_some(), "{key}");
        }
    }
}
