//! Tests of the real program with real files and real NBD clients.
//!
//! Needs libnbd-bin, nbdkit, qemu-utils, fio, mdadm, curl, openssl, prometheus and chromium
//! (`cargo xtask tools` installs them); a test whose tool is missing fails and names the package.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

mod actions;
mod admin;
mod alerts;
mod aoe;
mod attach;
mod browser;
mod checksums;
mod clients;
mod cluster;
mod cluster_tls;
mod completions;
mod control;
mod crash;
mod disk_page;
mod disks;
mod former;
mod golden;
mod hang;
mod history;
mod hole;
mod hygiene;
mod import;
mod journal;
mod kept_alerts;
mod lab;
mod ladder;
mod levels;
mod limits;
mod machine;
mod mdadm;
mod memory_group;
mod messages;
mod mixed;
mod modelled;
mod nested;
mod network_faults;
mod network_members;
mod notify;
mod page_password;
mod page_tls;
mod panel;
mod peers;
mod policy;
mod quickstart;
mod recover;
mod reload;
mod remote;
mod scan;
mod schema;
mod scrubs;
mod serving;
mod storage_faults;
mod suspects;
mod threads;
mod tls;
mod webdriver;
mod wires;
mod words;
mod world;
