//! ATA over Ethernet: disks as frames on a wire.
//!
//! ```text
//!   clients ═══ wire ═══ port ─┐                 ┌─ LUN 1.0 ─ Disk
//!                        port ─┴─ target ────────┴─ LUN 1.1 ─ Disk
//!
//!   Disk ─ initiator ─┬─ port ═══ wire ═══ targets
//!                     └─ port
//! ```
//!
//! There are no connections: a request is one frame, its answer another, and the client repeats
//! what is not answered. A repeated request may have another tag, come from another address and
//! arrive at another port, before or after the first, or both may arrive. So the target recognizes
//! requests by what they do (`target::history`), and keeps overlapping ones in order of arrival.
//!
//! The protocol has no authentication and no flush that clients use. Answers to writes therefore
//! mean that the data is durable, unless the host chose otherwise.

pub mod discover;
pub mod initiator;
pub mod target;
pub mod wire;

use std::time::Duration;

pub use discover::discover;
pub use initiator::Initiator;
pub use target::{Host, Lun, LunOptions, LunPolicy, LunState, Target};
pub use wire::Address;

/// How long a frame may be in the wire, from the call that sends it to its arrival. Queues of ports
/// and switches hold frames for milliseconds; older frames are lost. The initiator relies on this
/// bound, and so does a restart of the target, which forgets its history.
pub const FRAME_LIFETIME: Duration = Duration::from_secs(2);
