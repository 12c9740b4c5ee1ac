//! `journal_header` under libFuzzer.
#![no_main]

parapet_fuzz::under_libfuzzer!(parapet_fuzz::JOURNAL_HEADER);
