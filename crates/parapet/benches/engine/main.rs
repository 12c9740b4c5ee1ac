//! The engine in process, on one core: every level under every load, on memory, on files in memory
//! and on disk files, beside one raw member file in the same run; what policies against the write
//! hole and checksums cost; degraded reads, rebuild, scrub, and what clients feel of those.
//!
//! `cargo bench -p parapet --bench engine [-- WHAT] [memory|tmpfs|disk]`, where WHAT is `matrix`,
//! `safety`, `degraded` or `background` (`cargo xtask bench engine` keeps the figures). One JSON
//! line a figure: medians of the rounds,
//! in each of which everything compared is measured in turn; the ratio is the median of the rounds'
//! own. Rates are MB/s (10⁶ bytes) for sequential loads and thousands of requests a second for
//! random ones. All of it runs on one core: on memory and tmpfs 1000 / (k/s) is the CPU time of a
//! request in µs.

#![forbid(unsafe_code)]

mod client;
mod lifecycle;
mod matrix;
mod medium;
mod row;
mod safety;
mod stage;

use medium::Medium;
use os::Executor;

/// Of everything that is compared.
const ROUNDS: usize = 5;

/// The core that all of it runs on: the last one, as servers are measured.
fn pin() {
    let cores = os::threads::allowed().expect("the kernel tells");
    let last = *cores.last().expect("we run on one");
    os::threads::pin(last).expect("a core that is allowed");
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is = |name: &str, all: &[&str]| {
        wanted.iter().any(|word| word == name)
            || !wanted.iter().any(|word| all.contains(&word.as_str()))
    };
    let parts = ["matrix", "safety", "degraded", "background"];
    let media = Medium::ALL.map(Medium::name);
    pin();
    for medium in Medium::ALL.into_iter().filter(|medium| is(medium.name(), &media)) {
        // Each part has an executor of its own: what it opened is closed before the next begins.
        let on = || Executor::new(os::Config::default()).expect("an event loop");
        if is("matrix", &parts) {
            let on = on();
            on.block_on(matrix::measure(medium, &on));
        }
        if is("safety", &parts) {
            let on = on();
            on.block_on(safety::measure(medium, &on));
        }
        if medium != Medium::Memory && is("degraded", &parts) {
            let on = on();
            on.block_on(lifecycle::degraded(medium, &on));
        }
        if medium != Medium::Memory && is("background", &parts) {
            let on = on();
            on.block_on(lifecycle::background(medium, &on));
        }
    }
}
