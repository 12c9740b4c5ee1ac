//! Disks of arrays, changed between sessions, and requests to the arrays assembled from them.
//!
//! ```text
//!   create ─▶ session ─▶ edits ─▶ session ─▶ … ─▶ session with all disks
//!             some disks  flips, lies,  each: assemble, requests, stop or crash, examine
//!                         cuts, blanks
//! ```
//!
//! The input chooses everything; see [`story`] for the promises. It is the idea of SQLite's
//! dbsqlfuzz: image and requests are mutated together.

use crate::{Target, as_it_is};

mod disk;
mod edit;
mod model;
mod session;
mod story;
mod world;

/// Images and requests.
pub const IMAGE: Target = Target {
    name: "image",
    what: "arrays from mutated members, with requests: honest failure, one history",
    body: story::run,
    seeds,
    mend: as_it_is,
    words: &[],
    // Mostly unwritten members of about 2 MiB, the engine's buffers, a resync.
    memory_bytes: 64 << 20,
    most_bytes: 512,
};

/// For each shape: a life without faults, one with a missing member, one with split brain, and one
/// with lies; then some with changed checksum tables.
fn seeds() -> Vec<Vec<u8>> {
    let writes = [3, 1, 0, 4, 1, 9, 7, 1, 30, 2];
    let mut seeds = Vec::new();
    for shape in 0..story::SHAPES.len() as u8 {
        for missing in [0_u8, 1, 2] {
            let mut bytes = vec![shape, 1 | missing << 1, 3];
            for session in 0..3 {
                bytes.extend([0, missing << session, session & 1, 0]);
                bytes.extend(writes);
            }
            seeds.push(bytes);
        }
    }
    for lie in 0..8 {
        seeds.push(vec![4, 1, 2, 0, 0, 1, 0, 2, 1, 0, 4, 1, 9, 7, 3, lie, 1, lie * 5, 1, 9]);
    }
    for kind in 0..5 {
        let session = [0, 0, 2, 1, 0, 4, 1, 2, 0, 16, 4, 0];
        let edit = [1, 0, 255, kind, 1, 2, 9, 0, 0, 0, 1, 0, 0, 0, 0, 5];
        seeds.push([&[4, 1, 0][..], &session, &edit].concat());
    }
    seeds
}
