//! The program, as its users use it: its commands, its server, and an NBD client.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::failure::{Failure, Result, ensure};

/// Seconds; more, and a tool hangs.
const PATIENCE_S: &str = "120";

/// The program, in a folder, with nothing of the machine's state.
pub(crate) struct Parapet<'a> {
    pub(crate) program: &'a Path,
    pub(crate) folder: PathBuf,
}

impl Parapet<'_> {
    /// A program, in this folder, that sees nothing of the machine's state.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).stdin(Stdio::null()).env("LC_ALL", "C");
        command.env("PARAPET_STATE", self.folder.join("state"));
        command.env("PARAPET_RUNTIME", self.folder.join("run"));
        for name in ["PARAPET_CONTROL", "PARAPET_LOG", "NOTIFY_SOCKET", "LISTEN_FDS"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command, which must succeed; gives the data of its answer.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Value> {
        let answer = self.answer(arguments)?;
        ensure(answer["error"].is_null(), || {
            format!("parapet {arguments:?}: {}", answer["error"])
        })?;
        Ok(answer["data"].clone())
    }

    fn answer(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = self.command("timeout");
        command.arg(PATIENCE_S).arg(self.program).args(arguments).arg("--json");
        let output = command.output()?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            Failure::new(format!("parapet {arguments:?}: {}: {said}", output.status))
        })
    }

    /// Serves the array `tank` of these members.
    pub(crate) fn serve(&self, members: &[&str], more: &[&str]) -> Result<Server<'_>> {
        self.serve_called("tank", members, more)
    }

    /// Serves the array of this name or UUID, as `tank`.
    pub(crate) fn serve_called(
        &self,
        name: &str,
        members: &[&str],
        more: &[&str],
    ) -> Result<Server<'_>> {
        std::fs::create_dir_all(self.folder.join("run"))?;
        let fixed = ["--nbd", "unix:nbd", "--control", "unix:control"];
        let words = ["serve", name, "--export-name", "tank"];
        let process = self.start(&[&words, members, &fixed, more].concat())?;
        Ok(Server { parapet: self, process })
    }

    /// Starts a command that serves until it is stopped; it has said that it is ready.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Process> {
        // Servers have no limit.
        let mut command = self.command(self.program);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("server.log"))?;
        command.args(arguments).arg("--json").stdout(Stdio::piped()).stderr(log);
        let mut running = command.spawn()?;
        let out = running.stdout.take().expect("its output was asked for");
        let mut process = Process { running, ready: Value::Null };
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        process.ready = serde_json::from_str(&line).unwrap_or_default();
        let started = process.ready["error"].is_null() && !process.ready["data"].is_null();
        ensure(started, || format!("parapet {arguments:?} says {line}"))?;
        Ok(process)
    }

    /// Another program, which must succeed.
    pub(crate) fn tool(&self, words: &[&str]) -> Result<String> {
        let output = self.command("timeout").arg(PATIENCE_S).args(words).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure(output.status.success(), || {
            let error = String::from_utf8_lossy(&output.stderr);
            format!("{}: {}: {said} {error}", words.join(" "), output.status)
        })?;
        Ok(said)
    }
}

/// A process of the program that serves; killed if it is dropped.
pub(crate) struct Process {
    running: Child,
    /// Its first words.
    pub(crate) ready: Value,
}

impl Process {
    /// Stops it as a service manager does, and waits for its good end.
    pub(crate) fn terminate(mut self) -> Result {
        let id = self.running.id().to_string();
        Command::new("kill").args(["-s", "TERM", &id]).status()?;
        self.has_ended()
    }

    fn has_ended(&mut self) -> Result {
        let ended = self.running.wait()?;
        ensure(ended.success(), || format!("the server ended with {ended}"))
    }

    /// Ends it without a warning.
    pub(crate) fn kill(mut self) -> Result {
        self.running.kill()?;
        self.running.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// The server of an array.
pub(crate) struct Server<'a> {
    parapet: &'a Parapet<'a>,
    pub(crate) process: Process,
}

impl Server<'_> {
    pub(crate) fn order(&self, arguments: &[&str]) -> Result<Value> {
        self.parapet.run(&[arguments, &["--control", "unix:control"]].concat())
    }

    /// Waits until no job is running and, if `whole`, every slot is in sync.
    pub(crate) fn wait_until_idle(&self, whole: bool) -> Result<Value> {
        if whole {
            let words = ["wait", "tank", "--for", "whole", "--timeout", PATIENCE_S, "--quiet"];
            self.order(&words)?;
        }
        self.order(&["wait", "tank", "--timeout", PATIENCE_S, "--quiet"])?;
        self.order(&["status", "tank"])
    }

    /// Compares all redundancy, which must agree.
    pub(crate) fn scrub(&self) -> Result {
        self.order(&["scrub", "tank"])?;
        let status = self.wait_until_idle(false)?;
        let found = &status["last_scrub"]["mismatches"];
        ensure(found == 0, || format!("our scrub finds {found} mismatches"))
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///tank?socket={}", self.parapet.folder.join("nbd").display())
    }

    /// Reads the whole array into a file of the folder.
    pub(crate) fn dump(&self, file: &str) -> Result {
        let _ = std::fs::remove_file(self.parapet.folder.join(file));
        self.parapet.tool(&["nbdcopy", &self.uri(), file]).map(drop)
    }

    /// The unreadable ones of this many blocks of the array.
    pub(crate) fn unreadable(&self, block: usize, count: usize) -> Result<Vec<usize>> {
        let mut reader = self.parapet.command("qemu-io");
        reader.args(["-r", "-f", "raw"]);
        for number in 0..count {
            reader.args(["-c", &format!("read {} {block}", number * block)]);
        }
        let output = reader.arg(self.uri()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        // `read 4096/4096 bytes at offset 8192`, or `read failed: Input/output error`.
        let said = said.lines().filter(|line| line.starts_with("read "));
        let said: Vec<bool> = said.map(|line| line.starts_with("read failed")).collect();
        ensure(said.len() == count, || format!("{} of {count} blocks were read", said.len()))?;
        Ok((0..count).filter(|&number| said[number]).collect())
    }

    /// Checks that the array has this file's content.
    pub(crate) fn holds(&self, expected: &str) -> Result {
        self.dump("content")?;
        self.parapet.tool(&["cmp", expected, "content"]).map(drop)
    }

    /// Writes the whole array.
    pub(crate) fn fill(&self, from: &str) -> Result {
        self.parapet.tool(&["nbdcopy", "--flush", from, &self.uri()]).map(drop)
    }

    /// Writes these runs `(offset, bytes, byte)`, here and to the file with the expected content.
    pub(crate) fn write(&self, expected: &str, runs: &[(u64, u64, u8)]) -> Result {
        self.write_unflushed(expected, runs)?;
        self.parapet.tool(&["qemu-io", "-f", "raw", "-c", "flush", &self.uri()]).map(drop)
    }

    /// As [`Server::write`]; the members' caches may hold it still.
    pub(crate) fn write_unflushed(&self, expected: &str, runs: &[(u64, u64, u8)]) -> Result {
        let mut words = vec!["qemu-io".to_owned(), "-f".into(), "raw".into()];
        for (offset, len, byte) in runs {
            words.extend(["-c".into(), format!("write -P {byte} {offset} {len}")]);
        }
        words.push(self.uri());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = self.parapet.tool(&words)?;
        ensure(!said.contains("failed"), || said)?;
        let file = std::fs::File::options().write(true).open(self.parapet.folder.join(expected))?;
        for &(offset, len, byte) in runs {
            std::os::unix::fs::FileExt::write_all_at(&file, &vec![byte; len as usize], offset)?;
        }
        Ok(())
    }

    /// Writes this file's bytes over the whole array, and dies when it has written half of it.
    pub(crate) fn die_writing(self, from: &str) -> Result {
        let capacity = self.order(&["status", "tank"])?["capacity_bytes"].as_u64();
        let half = capacity.unwrap_or_default() / 2;
        let mut copy = self.parapet.command("nbdcopy");
        copy.args(["--request-size=8192", "--connections=1", from, &self.uri()]);
        copy.stderr(Stdio::null());
        let written = |status: &Value| {
            let slots = status["slots"].as_array().into_iter().flatten();
            slots.filter_map(|slot| slot["member"]["written_bytes"].as_u64()).sum::<u64>()
        };
        let before = written(&self.order(&["status", "tank"])?);
        let mut copy = copy.spawn()?;
        let begun = std::time::Instant::now();
        loop {
            let ended = copy.try_wait()?.is_some();
            if written(&self.order(&["status", "tank"])?) >= before + half {
                break;
            }
            let patient = begun.elapsed().as_secs() < 60 && !ended;
            ensure(patient, || "it was not written to".into())?;
        }
        self.kill()?;
        copy.wait()?;
        Ok(())
    }

    /// Stops its array cleanly; then it exits.
    pub(crate) fn stop(mut self) -> Result {
        self.order(&["stop", "tank"])?;
        self.process.has_ended()
    }

    /// Restarts it like a service manager: a clean stop, and its clients wait.
    pub(crate) fn terminate(self) -> Result {
        self.process.terminate()
    }

    /// Ends it without a warning.
    pub(crate) fn kill(self) -> Result {
        self.process.kill()
    }
}
