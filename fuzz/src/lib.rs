//! Everything that reads what others have written, as functions that take any bytes.
//!
//! ```text
//!   fuzz_targets/*   libFuzzer, nightly          main, run   our own mutator, stable
//!          └──────────────┬──────────────────────────┘
//!                      TARGETS        a body, good seeds, a way to mend checksums, a budget
//!       ┌──────────┬──────┴──────┬──────────┐
//!   metadata      nbd         config      image
//! ```
//!
//! A *body* takes any bytes, calls what is to be tested, and panics where a promise is broken. It
//! gives a [`Trail`] of what happened: inputs that leave a new trail are worth mutating further, so
//! that the stable run finds its way without a compiler's help. Bodies are deterministic.
//!
//! A new target is a `pub const` of type [`Target`], its row in [`TARGETS`], a file of two lines in
//! `fuzz_targets` and its `[[bin]]` in `Cargo.toml`; a test says what was forgotten.
#![deny(unsafe_code)]

pub mod choice;
pub mod config;
pub mod image;
pub mod metadata;
pub mod mutate;
pub mod nbd;
pub mod trail;

pub use config::CONFIG;
pub use image::IMAGE;
pub use metadata::{
    FOREIGN, JOURNAL_HEADER, MD_BADBLOCKS, MD_BITMAP, MD_PPL, MD_SUPERBLOCK, MD_SUPERBLOCK_090,
    PRIVATE_BAD, PRIVATE_HEADER, PRIVATE_LOG, PRIVATE_SUMS,
};
pub use nbd::{NBD_CLIENT, NBD_HANDSHAKE, NBD_TRANSMISSION};
pub use trail::Trail;

#[cfg(feature = "libfuzzer")]
pub use libfuzzer_sys;

/// Something that reads foreign bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// As the command line and the corpus call it.
    pub name: &'static str,
    /// What is checked.
    pub what: &'static str,
    /// Runs one input; panics if a promise is broken.
    pub body: fn(&[u8]) -> Trail,
    /// Good inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Makes checksums right again, so that mutations get past them.
    pub mend: fn(&mut [u8]),
    /// What a mutation may put anywhere: magic numbers, keywords.
    pub words: &'static [&'static [u8]],
    /// No input may have more than so many bytes allocated at once.
    pub memory_bytes: usize,
    /// Longest input that is tried.
    pub most_bytes: usize,
}

/// All there are.
pub const TARGETS: &[Target] = &[
    NBD_HANDSHAKE,
    NBD_TRANSMISSION,
    NBD_CLIENT,
    MD_SUPERBLOCK,
    MD_SUPERBLOCK_090,
    MD_BITMAP,
    MD_BADBLOCKS,
    MD_PPL,
    PRIVATE_HEADER,
    JOURNAL_HEADER,
    PRIVATE_LOG,
    PRIVATE_BAD,
    PRIVATE_SUMS,
    FOREIGN,
    CONFIG,
    IMAGE,
];

/// There is no checksum to mend.
pub fn as_it_is(_: &mut [u8]) {}

/// The entry points that libFuzzer calls, for one target. It mutates, we mend.
#[cfg(feature = "libfuzzer")]
#[macro_export]
macro_rules! under_libfuzzer {
    ($target:expr) => {
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
            ($target.body)(bytes);
        });
        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8],
                                              size: usize,
                                              max_size: usize,
                                              seed: u32| {
            let size = $crate::libfuzzer_sys::fuzzer_mutate(data, size, max_size);
            if seed % 4 != 0 {
                ($target.mend)(&mut data[..size]);
            }
            size
        });
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_its_file_and_its_row() {
        let manifest = include_str!("../Cargo.toml");
        for target in TARGETS {
            let row = format!("name = \"{0}\"\npath = \"fuzz_targets/{0}.rs\"", target.name);
            assert!(manifest.contains(&row), "no [[bin]] for {}", target.name);
            let file = format!("{}/fuzz_targets/{}.rs", env!("CARGO_MANIFEST_DIR"), target.name);
            let text = std::fs::read_to_string(&file).expect("a file for each target");
            let constant = target.name.to_uppercase();
            assert!(text.contains(&format!("parapet_fuzz::{constant})")), "{file}");
        }
    }

    #[test]
    fn seeds_are_good_inputs_and_leave_different_trails() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{} has no seeds", target.name);
            let nothing = (target.body)(&[]);
            for seed in &seeds {
                assert!(seed.len() <= target.most_bytes, "{}: a long seed", target.name);
                assert_ne!((target.body)(seed), nothing, "{}: an idle seed", target.name);
                let mut mended = seed.clone();
                (target.mend)(&mut mended);
                let (trail, again) = ((target.body)(seed), (target.body)(&mended));
                assert_eq!(trail, again, "{}: mending breaks a seed", target.name);
            }
        }
    }
}
