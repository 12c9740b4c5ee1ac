//! Traces against the real fio: its logs are read, and it replays ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::trace::{self, Kind};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs fio in a folder; returns its output.
fn fio(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("fio").args(arguments).current_dir(folder).output();
    let output = output.expect("fio is there: cargo xtask tools");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && error.is_empty(), "{arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn logs_of_fio_are_read() {
    let scratch = Scratch::new("read");
    let job = "--name=a --filename=disk --size=1M --rw=randrw --bs=4k --fsync=10 --ioengine=psync";
    let arguments: Vec<&str> = job.split(' ').chain(["--write_iolog=log"]).collect();
    fio(&scratch.0, &arguments);
    let trace = trace::read(&fs::read(scratch.0.join("log")).unwrap()).unwrap();
    let data = trace.requests.iter().filter(|request| request.kind != Kind::Flush);
    assert_eq!(data.clone().map(|request| request.bytes).sum::<u64>(), 1 << 20);
    assert!(data.clone().any(|request| request.kind == Kind::Read));
    assert!(trace.requests.len() > data.count() + 5);
    assert_eq!(trace.end(), 1 << 20);
}

#[test]
fn fio_replays_ours() {
    let scratch = Scratch::new("write");
    let mut text = "fio version 3 iolog\n0 f add\n0 f open\n".to_string();
    for number in 0..64u64 {
        let verb = if number % 4 == 0 { "write" } else { "read" };
        text += &format!("{} f {verb} {} 4096\n", number * 300, number * 37 % 64 * 4096);
    }
    text += "20000 f sync 0 0\n";
    let trace = trace::read(text.as_bytes()).unwrap();
    fs::write(scratch.0.join("disk"), vec![0; 1 << 20]).unwrap();
    fs::write(scratch.0.join("log"), trace::to_iolog(&trace, "disk").unwrap()).unwrap();
    let job = "--name=a --read_iolog=log --ioengine=psync --output-format=json";
    let json = fio(&scratch.0, &job.split(' ').collect::<Vec<_>>());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let job = &json["jobs"][0];
    let counts = [&job["read"], &job["write"]].map(|side| side["total_ios"].as_u64());
    assert_eq!(counts, [Some(48), Some(16)]);
    assert_eq!(job["sync"]["total_ios"], 1);
}
