//! The program under torture: its commands, and its server as a process that can be killed.

use parapet_torture::first_line::first_line;
use parapet_torture::process_group::ProcessGroup;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Longer than this, and it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program in a folder of its own.
pub(crate) struct Program<'a> {
    pub(crate) path: &'a Path,
    pub(crate) folder: &'a Path,
    pub(crate) group: &'a ProcessGroup,
    /// In this way its engine is broken.
    pub(crate) broken: Option<&'a str>,
}

/// How a command ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    /// Its JSON output: the data, or the error.
    pub(crate) said: Value,
}

impl Program<'_> {
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    /// Any program of the round, with nothing of the machine's state.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder).stdin(Stdio::null());
        command.env("PARAPET_STATE", self.folder.join("state"));
        command.env("PARAPET_RUNTIME", self.folder.join("run"));
        for name in ["PARAPET_CONTROL", "PARAPET_LOG", "NOTIFY_SOCKET", "LISTEN_FDS"] {
            command.env_remove(name);
        }
        if let Some(way) = self.broken {
            command.env("PARAPET_BROKEN", way);
        }
        self.group.adopt(&mut command);
        command
    }

    fn log(&self) -> Stdio {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"));
        log.map_or_else(|_| Stdio::null(), Stdio::from)
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// If it cannot be started, or does not end.
    pub(crate) fn run(&self, words: &[String]) -> Result<Ran, String> {
        let mut command = self.command("timeout");
        command.args(["-s", "KILL", &PATIENCE.as_secs().to_string()]).arg(self.path).args(words);
        let output = command.arg("--json").stderr(self.log()).output();
        let output = output.map_err(|error| format!("{}: {error}", self.path.display()))?;
        let said = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
        match output.status.code() {
            Some(124 | 137) => Err(format!("`parapet {}` hangs", words.join(" "))),
            code => Ok(Ran { code, said }),
        }
    }

    /// Runs an order to the server, which must be carried out; gives the data.
    ///
    /// # Errors
    /// The program's error.
    pub(crate) fn order(&self, words: &[&str]) -> Result<Value, String> {
        let mut words: Vec<String> = words.iter().map(|word| String::from(*word)).collect();
        words.push(format!("--control=unix:{}", self.folder.join("control.sock").display()));
        let ran = self.run(&words)?;
        match ran.code {
            Some(0) => Ok(ran.said["data"].clone()),
            code => Err(format!("`parapet {}` ended with {code:?}: {}", words.join(" "), ran.said)),
        }
    }

    /// The array as the server shows it.
    ///
    /// # Errors
    /// As [`Program::order`].
    pub(crate) fn status(&self) -> Result<Value, String> {
        self.order(&["status", "tank"])
    }

    /// Waits until nothing is being done.
    ///
    /// # Errors
    /// As [`Program::order`].
    pub(crate) fn wait_until_idle(&self) -> Result<Value, String> {
        Ok(self.order(&["wait", "tank", "--timeout", "50", "--quiet"])?["array"].clone())
    }

    /// Starts a server.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn serve(&self, words: &[String]) -> Result<Server, String> {
        let mut command = self.command(self.path);
        let nbd = format!("unix:{}", self.socket().display());
        let control = format!("unix:{}", self.folder.join("control.sock").display());
        command.args(["serve", "--json", "-v", "--nbd", &nbd, "--control", &control]).args(words);
        let started = command.stdout(Stdio::piped()).stderr(self.log()).spawn();
        let mut child = started.map_err(|error| format!("{}: {error}", self.path.display()))?;
        let first = first_line(&mut child);
        Ok(Server { child, first })
    }
}

/// A server.
pub(crate) struct Server {
    child: Child,
    first: Receiver<String>,
}

impl Server {
    /// Waits until it serves the array, or returns its error.
    ///
    /// # Errors
    /// If it says nothing.
    pub(crate) fn ready(&self) -> Result<Result<Value, Value>, String> {
        let Ok(line) = self.first.recv_timeout(PATIENCE) else {
            return Err("the server does not say that it is ready".into());
        };
        match serde_json::from_str::<Value>(&line) {
            Ok(said) if said["error"].is_null() => Ok(Ok(said["data"]["arrays"][0].clone())),
            Ok(said) => Ok(Err(said["error"].clone())),
            Err(_) => Err(format!("the server died as it started; it said {line:?}")),
        }
    }

    /// True if it has ended by itself.
    pub(crate) fn is_dead(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it; it ends when the kernel has let go of it: [`Server::wait`].
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Asks it to stop.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub(crate) fn stop(&self) -> Result<(), String> {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        match asked.is_ok_and(|status| status.success()) {
            true => Ok(()),
            false => Err("the server has ended by itself".into()),
        }
    }

    /// Waits for its end: its exit status, if it was not killed.
    ///
    /// # Errors
    /// If it does not end.
    pub(crate) fn wait(mut self) -> Result<Option<i32>, String> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status.code()),
                _ if begun.elapsed() > PATIENCE => return Err("the server does not end".into()),
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}
