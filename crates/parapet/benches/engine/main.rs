//! The engine in process, on one core: every level under every load, on memory, on files in memory
//! and on disk files, compared with one raw member file in the same run; the cost of consistency
//! policies and checksums; degraded reads, rebuild, scrub, and the latency of clients meanwhile.
//!
//! `cargo bench -p parapet --bench engine [-- WHAT] [memory|tmpfs|disk]`, where WHAT is `matrix`,
//! `safety`, `degraded` or `background` (`cargo xtask bench engine` stores the figures). Prints one
//! JSON line for each figure: medians over the rounds. Each round measures all subjects in turn,
//! and the ratio is the median of the ratios of the rounds. Rates are MB/s (10⁶ bytes) for
//! sequential loads and thousands of requests per second for random ones. Everything runs on one
//! core: on memory and tmpfs 1000 / (k/s) is the CPU time of a request in µs.

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

/// Number of rounds of each comparison.
const ROUNDS: usize = 5;

/// Pins the process to the last core, as in the measurements of servers.
fn pin() {
    let cores = os::threads::allowed().expect("the kernel reports the allowed cores");
    let last = *cores.last().expect("this process runs on a core");
    os::threads::pin(last).expect("an allowed core");
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
        // Each part has its own executor, which closes its files before the next part begins.
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
