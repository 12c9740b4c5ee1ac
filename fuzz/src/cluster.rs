//! The cluster: frames of every kind, and a member among hostile peers.

use crate::Target;

mod frames;
mod member;

/// All frames.
pub const CLUSTER_WIRE: Target = Target {
    name: "cluster_wire",
    what: "frames of every kind: encode(decode(x)) = x",
    body: frames::body,
    seeds: frames::seeds,
    mend: frames::mend,
    words: &[b"PpCl"],
    memory_bytes: 1 << 20,
    most_bytes: 4096,
};

/// A member's server.
pub const CLUSTER_MEMBER: Target = Target {
    name: "cluster_member",
    what: "member: any requests and orders, with power cuts; nobody below the fence is served",
    body: member::body,
    seeds: member::seeds,
    mend: crate::as_it_is,
    words: &[],
    memory_bytes: 8 << 20,
    most_bytes: 4096,
};
