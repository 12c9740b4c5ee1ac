//! `aoe_initiator` under libFuzzer.
#![no_main]

parapet_fuzz::under_libfuzzer!(parapet_fuzz::AOE_INITIATOR);
