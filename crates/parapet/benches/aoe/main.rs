//! The client of `cargo xtask bench aoe`: Parapet's own initiator, which loads any AoE target.
//!
//! ```text
//!   aoe load PORT[,PORT] SHELF.SLOT read|write|randread BYTES DEPTH MILLIS     rate, frames
//!   aoe first PORT SHELF.SLOT                  when the first answer to IDENTIFY came
//! ```
//!
//! One JSON object is printed. The host of the measurement has no AoE driver, and every server gets
//! the same client. It runs on the core that `taskset` gives it.

#![forbid(unsafe_code)]

// The engine's bench describes loads in words; this one is told what to do.
#[allow(dead_code)]
#[path = "../engine/client.rs"]
mod client;
mod first;

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use io::{Clock, Link, Pool};
use net::aoe::{Address, Initiator};
use os::link::{Filter, Role};
use os::{Executor, Port};
use serde_json::json;

use client::{Client, Load};

/// Unused memory that the client keeps for frames.
const POOL_BYTES: usize = 32 << 20;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match &words[..] {
        ["load", ports, address, load @ ..] => measure(ports, address, load),
        ["first", port, address] => first::measure(port, address),
        // As `cargo bench` without arguments runs it.
        [] => Ok(json!({})),
        _ => Err("see the first lines of benches/aoe/main.rs".into()),
    };
    match outcome {
        Ok(figures) => println!("{figures}"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Opens a network interface for answers.
fn open(name: &str, pool: &Pool, on: &Executor) -> Result<Rc<dyn Link>> {
    let filter = Filter { role: Role::Initiator, shelves: Vec::new(), slot: None };
    let port = Port::interface(name, &filter, pool.clone(), &on.spawner());
    Ok(Rc::new(port.map_err(|error| format!("{name}: {error}"))?))
}

/// Loads the target for a while.
fn measure(ports: &str, address: &str, words: &[&str]) -> Result<serde_json::Value> {
    let &[way, bytes, depth, millis] = words else { return Err("load takes six words".into()) };
    let (bytes, depth) = (bytes.parse()?, depth.parse()?);
    let load = Load { write: way == "write", bytes, depth, random: way == "randread" };
    let duration = Duration::from_millis(millis.parse()?);
    let address: Address = address.parse()?;
    let on = Executor::new(os::Config::default())?;
    let pool = Pool::new(POOL_BYTES);
    let names: Vec<&str> = ports.split(',').collect();
    let links = names.iter().map(|name| open(name, &pool, &on)).collect::<Result<Vec<_>>>()?;
    let clock: Rc<dyn Clock> = on.clock();
    let disk = on.block_on(Initiator::open(address, links, clock, pool));
    let disk = disk.map_err(|error| format!("{address}: {error:?}"))?;
    let driving = disk.run();
    on.spawn_local(async move {
        // It ends with the process.
        let _ = driving.await;
    });
    let before = frames(&names)?;
    let mut measured = on.block_on(Client::new(load).run_for(&disk, duration));
    Ok(json!({
        "requests": measured.requests,
        "bytes_per_second": measured.requests as f64 * bytes as f64 / measured.seconds,
        "p99_us": measured.p99_us(),
        "frames": frames(&names)? - before,
    }))
}

/// The frames that these interfaces have sent: the requests, and those repeated.
fn frames(ports: &[&str]) -> Result<u64> {
    let mut sum = 0;
    for port in ports {
        let path = format!("/sys/class/net/{port}/statistics/tx_packets");
        sum += std::fs::read_to_string(path)?.trim().parse::<u64>()?;
    }
    Ok(sum)
}
