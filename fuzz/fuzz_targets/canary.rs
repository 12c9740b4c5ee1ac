//! A target that fails on purpose: a fuzzer that does not find it finds nothing.
#![no_main]

use parapet_fuzz::{Target, Trail, as_it_is};

const CANARY: Target = Target {
    name: "canary",
    what: "a fault on purpose",
    body: |bytes| {
        assert!(!bytes.windows(8).any(|window| window == b"Pprivate"), "the canary's fault");
        Trail::new()
    },
    seeds: Vec::new,
    mend: as_it_is,
    words: &[],
    memory_bytes: 1 << 20,
    most_bytes: 64,
};

parapet_fuzz::under_libfuzzer!(CANARY);
