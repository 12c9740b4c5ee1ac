//! `private_checksums` under libFuzzer.
#![no_main]

parapet_fuzz::under_libfuzzer!(parapet_fuzz::PRIVATE_CHECKSUMS);
