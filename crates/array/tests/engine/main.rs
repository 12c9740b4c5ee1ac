//! Tests of the engine on disks in memory. One program: linking each file by itself takes longer
//! than running it.

mod ahead;
mod assemble;
mod bad_blocks;
mod bits;
mod cache;
mod checksums;
mod contract;
mod corrupt;
mod create;
mod extents;
mod flush;
mod full;
mod intents;
mod journal;
mod larger;
mod lifecycle;
mod limits;
mod policy;
mod power_loss;
mod ppl;
mod rare_faults;
mod resynced;
mod scrub;
mod slow;
mod stale_members;
mod takeover;
mod unsynced;
mod wide;
#[path = "../world/mod.rs"]
mod world;
