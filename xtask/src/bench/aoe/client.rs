//! The client of all targets (`crates/parapet/benches/aoe`), and its results.

use super::stand::Server;
use crate::failure::Failure;
use crate::shell;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The core that the client runs on.
const CORE: &str = "0";

/// See the module.
pub(super) struct Client<'a> {
    pub(super) program: &'a Path,
    pub(super) namespace: &'a str,
    /// Words before the program: its priority.
    pub(super) priority: &'static [&'static str],
}

/// An access pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// `read`, `write` or `randread`.
    pub(super) way: &'static str,
    pub(super) kibibytes: usize,
    pub(super) depth: usize,
}

/// A result.
pub(super) struct Seen {
    pub(super) megabytes: f64,
    /// CPU time of the server for a frame, its own and the kernel's for it.
    pub(super) cpu_us: f64,
}

impl Load {
    pub(super) fn name(&self) -> String {
        let way = match self.way {
            "write" => "sequential write",
            "read" => "sequential read",
            _ => "random read",
        };
        format!("{way} {} KiB, depth {}", self.kibibytes, self.depth)
    }

    pub(super) fn is_random(&self) -> bool {
        self.way.starts_with("rand")
    }
}

impl Client<'_> {
    /// Loads a server for so long.
    pub(super) fn load(&self, load: &Load, millis: u32, server: &Server) -> Result<Seen, Failure> {
        let [bytes, depth] = [load.kibibytes << 10, load.depth].map(|number| number.to_string());
        let millis = millis.to_string();
        let before = server.cpu_seconds()?;
        let asked = ["load", &server.ports, &server.address, load.way, &bytes, &depth, &millis];
        let text = shell::output(Path::new("/"), &[&self.words()[..], &asked].concat())?;
        let cpu = server.cpu_seconds()? - before;
        let seen = serde_json::from_str::<Value>(text.trim()).ok().and_then(|report| {
            Some(Seen {
                megabytes: report["bytes_per_second"].as_f64()? / 1e6,
                cpu_us: cpu * 1e6 / report["frames"].as_f64().filter(|&frames| frames > 0.0)?,
            })
        });
        seen.ok_or_else(|| Failure::new(format!("the client printed {text:?}"), "run it by hand"))
    }

    /// Begins to ask for the first answer to IDENTIFY.
    pub(super) fn first(&self, ports: &str, address: &str) -> Result<First, Failure> {
        let port = ports.split(',').next().unwrap_or(ports);
        let words = [&self.words()[..], &["first", port, address]].concat();
        let failed = |error: std::io::Error| Failure::new(format!("the client: {error}"), "run it");
        let mut command = shell::command(Path::new("/"), &words);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let output = child.stdout.take().expect("it was asked for");
        let mut output: Box<dyn BufRead> = Box::new(BufReader::new(output));
        output.read_line(&mut String::new()).map_err(failed)?;
        Ok(First { child, output })
    }

    fn words(&self) -> Vec<&str> {
        let program = self.program.to_str().expect("cargo prints paths as text");
        let pinned = ["ip", "netns", "exec", self.namespace, "taskset", "--cpu-list", CORE];
        [&pinned[..], self.priority, &[program]].concat()
    }
}

/// A client that asks.
pub(super) struct First {
    child: Child,
    output: Box<dyn BufRead>,
}

impl First {
    /// Waits for the answer, and returns when it came: the time since 1970.
    pub(super) fn answer(mut self) -> Result<Duration, Failure> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        let report = read.ok().and_then(|_| serde_json::from_str::<Value>(line.trim()).ok());
        let micros = report.and_then(|report| report["answered_us"].as_u64());
        micros
            .map(Duration::from_micros)
            .ok_or_else(|| Failure::new("no target answered", "see the server's messages"))
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The time since 1970.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
