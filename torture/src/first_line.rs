//! The first line that a process prints: the programs say so that they serve.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};

/// Receives it once it is there; nothing but an empty one if the process ends before.
///
/// # Panics
/// If the output of the process is not piped.
pub fn first_line(child: &mut Child) -> Receiver<String> {
    let output = child.stdout.take().expect("its output was asked for");
    let (sender, first) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        // What cannot be read is no line; who waits for it may have gone.
        let _ = BufReader::new(output).read_line(&mut line);
        let _ = sender.send(line);
    });
    first
}
