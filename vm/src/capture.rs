//! What goes over a wire, recorded and decoded by programs of others.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::failure::{Failure, Result, ensure};

/// Headers, and whole frames up to an MTU of 1500.
const FRAME_BYTES: &str = "1600";

/// A recording of an interface; it ends with this value.
pub(crate) struct Capture {
    recorder: Child,
    file: PathBuf,
}

impl Capture {
    /// Begins to record an interface into this file.
    pub(crate) fn start(interface: &str, file: PathBuf) -> Result<Capture> {
        let mut command = Command::new("dumpcap");
        command.args(["-q", "-s", FRAME_BYTES, "-i", interface, "-w"]).arg(&file);
        let started = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut recorder = started
            .map_err(|why| Failure::new(format!("dumpcap: {why}: install the package tshark")))?;
        let said = recorder.stderr.take().expect("it was asked for");
        let mut lines = BufReader::new(said).lines();
        let begun = lines.any(|line| line.is_ok_and(|line| line.starts_with("File:")));
        let capture = Capture { recorder, file };
        ensure(begun, || format!("dumpcap does not record {interface}"))?;
        Ok(capture)
    }

    /// Ends the recording: it has at least so many requests that were answered, and no frame that
    /// tshark cannot decode. Returns how often a target has announced itself.
    pub(crate) fn verify(mut self, least: usize) -> Result<usize> {
        let id = self.recorder.id().to_string();
        Command::new("kill").args(["-s", "INT", &id]).status()?;
        self.recorder.wait()?;
        let malformed = self.frames("_ws.malformed || aoe.lba && !aoe.cmd")?;
        ensure(malformed.is_empty(), || format!("tshark cannot decode frames {malformed:?}"))?;
        let answered = self.frames("aoe.response_to")?.len();
        ensure(answered >= least, || format!("tshark finds {answered} answers in the recording"))?;
        self.announcements()
    }

    fn announcements(&self) -> Result<usize> {
        Ok(self.frames("aoe.response == 1 && aoe.tag == 0 && eth.dst == ff:ff:ff:ff:ff:ff")?.len())
    }

    /// The numbers of the frames that a filter of tshark accepts.
    fn frames(&self, filter: &str) -> Result<Vec<String>> {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&self.file).args(["-Y", filter, "-T", "fields", "-e"]);
        let output = command.arg("frame.number").stdin(Stdio::null()).output()?;
        let why = || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        ensure(output.status.success(), why)?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().map(String::from).collect())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}
