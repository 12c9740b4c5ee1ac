//! `md_superblock` under libFuzzer.
#![no_main]

parapet_fuzz::under_libfuzzer!(parapet_fuzz::MD_SUPERBLOCK);
