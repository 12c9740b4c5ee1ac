//! A machine that moves to another QEMU while it runs. It has only a disk, and two channels: its
//! console, and QEMU's monitor (QMP), one line of JSON for each command and each answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Kernel, Machine, PATIENCE};
use crate::failure::{Failure, Result, ensure};

/// One that runs, or waits for one that arrives; killed if it is dropped.
pub(crate) struct Moved {
    process: Child,
    monitor: BufReader<UnixStream>,
    console: PathBuf,
}

impl Moved {
    /// Starts it: files of this name in the folder are its own, and the NBD export is its disk.
    pub(crate) fn boot(kernel: &Kernel, folder: &Path, name: &str, disk: &str) -> Result<Moved> {
        Moved::start(kernel, folder, name, disk, None)
    }

    /// The same, for the machine that arrives at this socket.
    pub(crate) fn await_arrival(
        kernel: &Kernel,
        folder: &Path,
        name: &str,
        (disk, socket): (&str, &Path),
    ) -> Result<Moved> {
        Moved::start(kernel, folder, name, disk, Some(socket))
    }

    fn start(
        kernel: &Kernel,
        folder: &Path,
        name: &str,
        disk: &str,
        arrives_at: Option<&Path>,
    ) -> Result<Moved> {
        let Machine::Qemu(machine) = &kernel.machine else {
            return Err(Failure::new("user-mode Linux cannot be moved"));
        };
        let console = folder.join(format!("console.{name}"));
        let monitor = folder.join(format!("monitor.{name}"));
        let mut command = machine.with_disk(disk);
        command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        if let Some(socket) = arrives_at {
            command.arg("-incoming").arg(format!("unix:{}", socket.display()));
        }
        let file = std::fs::File::create(&console)?;
        command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file);
        let mut process = command.spawn()?;
        let stream = match connect(&monitor, &mut process) {
            Ok(stream) => stream,
            Err(failure) => {
                let _ = process.kill();
                return Err(failure);
            }
        };
        let mut machine = Moved { process, monitor: BufReader::new(stream), console };
        machine.answer()?;
        machine.order("qmp_capabilities", &json!({}))?;
        Ok(machine)
    }

    /// A command of the monitor, with its answer.
    fn order(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.monitor.get_mut(), "{line}")?;
        let answer = self.answer()?;
        ensure(answer["error"].is_null(), || format!("QEMU's {command}: {answer}"))?;
        Ok(answer["return"].clone())
    }

    /// The next line that is no event.
    fn answer(&mut self) -> Result<Value> {
        loop {
            let mut line = String::new();
            self.monitor.read_line(&mut line)?;
            let answer: Value = serde_json::from_str(&line)
                .map_err(|_| Failure::of_guest(format!("QEMU's monitor says {line:?}")))?;
            if answer["event"].is_null() {
                return Ok(answer);
            }
        }
    }

    /// Moves it to the QEMU that waits at this socket; this one ends.
    pub(crate) fn move_to(mut self, socket: &Path) -> Result {
        let uri = format!("unix:{}", socket.display());
        self.order("migrate", &json!({ "uri": uri }))?;
        let started = Instant::now();
        loop {
            let state = self.order("query-migrate", &json!({}))?;
            match state["status"].as_str() {
                Some("completed") => break,
                Some("failed" | "cancelled") => {
                    return Err(Failure::new(format!("it was not moved: {state}")));
                }
                _ => ensure(started.elapsed() < PATIENCE, || format!("it does not move: {state}"))?,
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.order("quit", &json!({}))?;
        self.process.wait()?;
        Ok(())
    }

    /// Is it this QEMU that runs the machine?
    pub(crate) fn runs(&mut self) -> Result<bool> {
        Ok(self.order("query-status", &json!({}))?["status"] == "running")
    }

    /// What it has said on its console.
    pub(crate) fn said(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.console)?).into_owned())
    }

    /// Waits until it has said what it should.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> Result {
        let started = Instant::now();
        loop {
            let ended = self.process.try_wait()?;
            let said = self.said()?;
            let bad = said.lines().find(|line| line.contains("FAILED") || line.contains("Oops"));
            ensure(bad.is_none(), || bad.unwrap_or_default().into())?;
            if is_so(&said) {
                return Ok(());
            }
            let patient = ended.is_none() && started.elapsed() < PATIENCE;
            ensure(patient, || format!("waited in vain for {what}: {}", last(&said)))?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a line to its console.
    pub(crate) fn tell(&mut self, word: &str) -> Result {
        let mut input = self.process.stdin.as_ref().expect("it was asked for");
        Ok(writeln!(input, "{word}")?)
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        // `timeout` hands this signal on; QEMU ends by it.
        let id = self.process.id().to_string();
        let mut kill = Command::new("kill");
        let _ = kill.args(["-s", "TERM", &id]).stderr(Stdio::null()).status();
        let _ = self.process.wait();
    }
}

/// The monitor, once QEMU has opened it.
fn connect(path: &Path, process: &mut Child) -> Result<UnixStream> {
    let started = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(why) => {
                let waits = process.try_wait()?.is_none() && started.elapsed() < PATIENCE;
                ensure(waits, || format!("{}: {why}", path.display()))?;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn last(said: &str) -> String {
    let from = said.lines().count().saturating_sub(6);
    said.lines().skip(from).collect::<Vec<_>>().join("\n")
}
