//! `nbd_handshake` under libFuzzer.
#![no_main]

parapet_fuzz::under_libfuzzer!(parapet_fuzz::NBD_HANDSHAKE);
