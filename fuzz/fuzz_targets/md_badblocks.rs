//! `md_badblocks` under libFuzzer.
#![no_main]

parapet_fuzz::under_libfuzzer!(parapet_fuzz::MD_BADBLOCKS);
