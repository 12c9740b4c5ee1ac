//! `cluster_member` under libFuzzer.
#![no_main]

parapet_fuzz::under_libfuzzer!(parapet_fuzz::CLUSTER_MEMBER);
