//! Runs a program of another package, for a limited time.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How often a running program is looked at.
const INTERVAL: Duration = Duration::from_millis(20);
/// How long a killed program may take to end; one that waits for a hung disk cannot.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of output that are read; more is lost.
const MOST_BYTES: u64 = 4 << 20;

/// What a program left.
pub(crate) struct Ended {
    /// Its exit status; none if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) out: Vec<u8>,
    /// Standard error.
    pub(crate) errors: Vec<u8>,
}

/// Runs it to its end.
///
/// # Errors
/// It cannot be started, takes longer than `limit`, or `is_stopped` becomes true.
pub(crate) fn run(
    mut command: Command,
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Ended, String> {
    // Standard output is the server's report: a program must not write into it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such program".into(),
        _ => error.to_string(),
    })?;
    let out = child.stdout.take().map(read);
    let errors = child.stderr.take().map(read);
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if is_stopped() => {
                end(&mut child);
                return Err("stopped".into());
            }
            None if Instant::now() >= deadline => {
                end(&mut child);
                return Err(format!("it took more than {} s", limit.as_secs()));
            }
            None => std::thread::sleep(INTERVAL),
        }
    };
    // A child of the program may hold the pipes open.
    let text = |pipe: Option<mpsc::Receiver<Vec<u8>>>| {
        pipe.and_then(|pipe| pipe.recv_timeout(LAST_PATIENCE).ok()).unwrap_or_default()
    };
    Ok(Ended { code: status.code(), out: text(out), errors: text(errors) })
}

/// Reads a pipe on a thread, so that a program that writes much does not block.
fn read(pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.take(MOST_BYTES).read_to_end(&mut bytes);
        // Nobody waits for it after a timeout.
        let _ = sender.send(bytes);
    });
    received
}

/// Kills it, and waits for its end for a while.
fn end(child: &mut Child) {
    let _ = child.kill();
    let deadline = Instant::now() + LAST_PATIENCE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration, is_stopped: bool) -> Result<Ended, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, limit, &|| is_stopped)
    }

    #[test]
    fn a_program_is_run_and_one_that_hangs_is_killed() {
        let long = Duration::from_secs(60);
        let ended = shell("echo out; echo err >&2; exit 3", long, false).expect("it runs");
        assert_eq!(
            (ended.code, &ended.out[..], &ended.errors[..]),
            (Some(3), &b"out\n"[..], &b"err\n"[..])
        );
        // More than a pipe holds.
        let ended = shell("head -c 300000 /dev/zero", long, false).expect("it runs");
        assert_eq!(ended.out.len(), 300_000);
        let why = shell("exec sleep 60", Duration::from_millis(1), false).err();
        assert!(why.is_some_and(|why| why.contains("took more than")));
        assert_eq!(shell("exec sleep 60", long, true).err().as_deref(), Some("stopped"));
        let why = run(Command::new("/nonexistent"), long, &|| false).err();
        assert_eq!(why.as_deref(), Some("there is no such program"));
    }
}
