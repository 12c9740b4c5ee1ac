//! fio beside our own clients: it verifies its flushed data by its own checksums after every
//! restart, and writes while the program is killed.
//!
//! ```text
//!   │ … our clients' windows … │ written once, and flushed │ written whenever a life ends │
//!                                FIO_BYTES / 2               FIO_BYTES / 2
//! ```

use crate::round::{Outcome, Round};
use std::process::{Child, Command, Stdio};

/// At the end of the array, where fio writes.
pub(crate) const FIO_BYTES: u64 = 2 << 20;

/// fio, which ends when this does.
pub(crate) struct Writing(Child);

impl Drop for Writing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Round<'_> {
    /// Writes its first half, and flushes it.
    pub(crate) fn fio_writes(&mut self) -> Outcome {
        self.fio(&["--rw=randwrite", "--do_verify=0", "--end_fsync=1"])
    }

    /// Checks the flushed data.
    pub(crate) fn fio_verifies(&mut self) -> Outcome {
        self.fio(&["--rw=randread", "--verify_only"])
    }

    /// Writes its second half until it, or its server, is ended.
    pub(crate) fn fio_goes_on(&mut self) -> Outcome<Writing> {
        let mut fio = self.program.command("fio");
        // One process: nothing of it is left when that is killed.
        self.common_options(fio.arg("--thread"), FIO_BYTES / 2);
        fio.args(["--rw=randwrite", "--do_verify=0", "--fsync=16", "--time_based"]);
        let fio = fio.arg("--runtime=30").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        fio.map(Writing).map_err(|error| format!("fio: {error}"))
    }

    fn fio(&mut self, more: &[&str]) -> Outcome {
        let mut fio = self.program.command("timeout");
        self.common_options(fio.args(["60", "fio"]), 0);
        let output = fio.args(more).output();
        let output = output.map_err(|error| format!("fio: {error}"))?;
        if output.status.success() {
            self.note(format!("fio {}", more.join(" ")));
            return Ok(());
        }
        Err(format!("fio {}: {}", more.join(" "), String::from_utf8_lossy(&output.stderr)))
    }

    /// The common options; `at` counts from the beginning of fio's part.
    fn common_options(&self, fio: &mut Command, at: u64) {
        fio.args(["--name=t", "--ioengine=nbd", "--bs=4k", "--iodepth=16"]);
        fio.args(["--verify=crc32c", "--verify_fatal=1", "--randseed=5"]);
        fio.arg(format!("--uri=nbd+unix:///tank?socket={}", self.program.socket().display()));
        fio.arg(format!("--offset={}", self.bytes - FIO_BYTES + at));
        fio.arg(format!("--size={}", FIO_BYTES / 2));
    }
}
