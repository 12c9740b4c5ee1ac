//! The programs, their parameters, and the figures in what they print.

use super::stand::{Mounted, Stand};
use super::table::Figure;
use crate::failure::Failure;
use crate::shell;
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// The package `linux-source-6.1` of Debian.
pub(super) const SOURCE: &str = "/usr/src/linux-source-6.1.tar.xz";

/// How much the programs do.
pub(super) struct Scale {
    pub(super) name: &'static str,
    /// Folders of the kernel's source; none for all of it.
    folders: &'static [&'static str],
    /// Files of sysbench together, in MiB, and its seconds.
    sysbench: (u32, u32),
    /// Thousands (1,024) of files of bonnie++, which takes minutes for each; none for fio with a
    /// few hundred.
    mails: Option<u32>,
    /// Megabytes of a stream.
    stream: u32,
}

impl Scale {
    /// A few minutes.
    pub(super) const SHORT: Scale = Scale {
        name: "short parameters",
        folders: &["fs", "net"],
        sysbench: (1024, 15),
        mails: None,
        stream: 256,
    };
    /// As the reference systems were measured, as far as memory allows.
    pub(super) const FULL: Scale = Scale {
        name: "full parameters",
        folders: &[],
        sysbench: (6144, 120),
        mails: Some(4),
        stream: 1024,
    };
}

/// A program with its parameters.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// tar of the kernel's source, which is in memory, then umount.
    Untar,
    /// cp of that archive, then umount.
    Copy,
    /// R2: 64 files, 16 KiB random writes with O_DIRECT, 16 threads, no fsync.
    Sysbench,
    /// R5: bonnie++ -b, files of 500 to 25,000 bytes in 16 folders, an fsync for each; in short fio
    /// with 256 files of 4 to 24 KiB in one folder.
    Mail,
    /// fio with O_DIRECT, 1 MiB, depth 8: one writer, one reader, four readers.
    Streams,
}

impl Load {
    /// Runs it; gives its figures.
    pub(super) fn run(
        self,
        stand: &Stand,
        at: &mut Mounted,
        scale: &Scale,
    ) -> Result<Vec<Figure>, Failure> {
        match self {
            Load::Untar => {
                let archive = archive(stand, scale)?;
                timed("untar", at, &["tar", "--no-same-owner", "-xf", &archive])
            }
            Load::Copy => {
                let archive = archive(stand, scale)?;
                timed("cp", at, &["cp", &archive, "copy"])
            }
            Load::Sysbench => sysbench(at.folder(), scale),
            Load::Mail => mail(at.folder(), scale),
            Load::Streams => streams(at.folder(), scale),
        }
    }
}

/// The kernel's source, or a part of it, as an archive in memory that costs no time to unpack.
fn archive(stand: &Stand, scale: &Scale) -> Result<String, Failure> {
    let path = stand.path("linux.tar");
    let text = path.display().to_string();
    if path.exists() {
        return Ok(text);
    }
    let tree = stand.path("linux");
    std::fs::create_dir_all(&tree)
        .map_err(|error| Failure::new(format!("{}: {error}", tree.display()), "free some room"))?;
    let parts: Vec<String> =
        scale.folders.iter().map(|folder| format!("linux-source-6.1/{folder}")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    shell::output(&tree, &[&["tar", "-xJf", SOURCE][..], &parts].concat())?;
    shell::output(&tree, &["tar", "-cf", &text, "linux-source-6.1"])?;
    std::fs::remove_dir_all(&tree)
        .map_err(|error| Failure::new(format!("{}: {error}", tree.display()), "remove it"))?;
    Ok(text)
}

/// The time of a command in the file system, and that of the umount after it.
fn timed(name: &str, at: &mut Mounted, words: &[&str]) -> Result<Vec<Figure>, Failure> {
    let begun = Instant::now();
    shell::output(at.folder(), words)?;
    let run = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    at.unmount()?;
    let unmount = begun.elapsed().as_secs_f64();
    at.mount_again()?;
    Ok(vec![Figure::new(&format!("{name} s"), run), Figure::new("umount s", unmount)])
}

fn sysbench(folder: &Path, scale: &Scale) -> Result<Vec<Figure>, Failure> {
    let (mebibytes, seconds) = scale.sysbench;
    let (size, time) = (format!("--file-total-size={mebibytes}M"), format!("--time={seconds}"));
    let common = ["sysbench", "fileio", "--file-num=64", &size];
    let with = |more: &[&str]| shell::output(folder, &[&common[..], more].concat());
    with(&["--file-extra-flags=direct", "--file-block-size=1048576", "prepare"])?;
    let text = with(&[
        "--file-test-mode=rndwr",
        "--file-block-size=16384",
        "--file-extra-flags=direct",
        "--file-fsync-freq=0",
        "--threads=16",
        &time,
        "run",
    ])?;
    with(&["cleanup"])?;
    let value = |name: &str| after(&text, name).ok_or_else(|| unreadable("sysbench", &text));
    Ok(vec![
        Figure::new("writes/s", value("writes/s:")?),
        Figure::new("mean ms", value("avg:")?),
        Figure::new("95 % ms", value("95th percentile:")?),
    ])
}

/// The number behind a name.
fn after(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
    line.trim().parse().ok()
}

fn mail(folder: &Path, scale: &Scale) -> Result<Vec<Figure>, Failure> {
    let Some(thousands) = scale.mails else { return few_mails(folder) };
    let files = format!("{thousands}:25000:500:16");
    let words = ["bonnie++", "-q", "-b", "-u", "root", "-d", ".", "-s", "0", "-n", &files];
    let text = shell::output(folder, &words)?;
    mail_figures(&text).ok_or_else(|| unreadable("bonnie++", &text))
}

/// Files that are made, written, flushed and closed one after the other.
fn few_mails(folder: &Path) -> Result<Vec<Figure>, Failure> {
    const FILES: u32 = 256;
    let line = format!(
        "fio --name=mail --nrfiles={FILES} --filesize=4k-24k --rw=write --bs=4k --openfiles=1 \
         --file_service_type=sequential --create_on_open=1 --fallocate=none --fsync_on_close=1 \
         --ioengine=sync --output-format=json"
    );
    let report = fio(folder, &line.split_whitespace().collect::<Vec<_>>())?;
    let millis = report["jobs"][0]["job_runtime"].as_f64().filter(|millis| *millis > 0.0);
    let millis = millis.ok_or_else(|| unreadable("fio", &report.to_string()))?;
    Ok(vec![Figure::new("creates/s", f64::from(FILES) * 1000.0 / millis)])
}

/// The report of fio.
fn fio(folder: &Path, words: &[&str]) -> Result<Value, Failure> {
    let text = shell::output(folder, words)?;
    // Remarks may stand before the report.
    let start = text.find('{').unwrap_or(0);
    serde_json::from_str(&text[start..]).map_err(|_| unreadable("fio", &text))
}

/// From a line of bonnie++'s CSV, format 1.98: rates of the passes over the files. A pass that was
/// too fast to be measured has none.
fn mail_figures(csv: &str) -> Option<Vec<Figure>> {
    let fields: Vec<&str> = csv.trim().lines().last()?.split(',').collect();
    let figure = |(name, field): &(&str, usize)| {
        let rate = match *fields.get(*field)? {
            text if text.starts_with('+') => f64::NAN,
            text => text.parse().ok()?,
        };
        Some(Figure::new(name, rate))
    };
    let passes = [("creates/s", 26), ("deletes/s", 30), ("random creates/s", 32)];
    passes.iter().chain(&[("random deletes/s", 36)]).map(figure).collect()
}

fn streams(folder: &Path, scale: &Scale) -> Result<Vec<Figure>, Failure> {
    let size = format!("--size={}M", scale.stream);
    let stream = |way: &str, jobs: u32| {
        let line = format!(
            "fio --name=stream --ioengine=libaio --direct=1 --bs=1M --iodepth=8 {size} --rw={way} \
             --numjobs={jobs} --group_reporting --output-format=json"
        );
        let report = fio(folder, &line.split_whitespace().collect::<Vec<_>>())?;
        let rate = report["jobs"][0][way]["bw_bytes"].as_f64();
        rate.map(|rate| rate / 1e6).ok_or_else(|| unreadable("fio", &report.to_string()))
    };
    // Four files, of which the first is read alone.
    let four_writers = stream("write", 4)?;
    Ok(vec![
        Figure::new("1 writer MB/s", stream("write", 1)?),
        Figure::new("4 writers MB/s", four_writers),
        Figure::new("1 reader MB/s", stream("read", 1)?),
        Figure::new("4 readers MB/s", stream("read", 4)?),
    ])
}

fn unreadable(program: &str, text: &str) -> Failure {
    let last: Vec<&str> = text.lines().rev().take(4).collect();
    Failure::new(format!("{program} printed no figure: {last:?}"), "is it another version?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let text = "File operations:\n    writes/s:                     968.25\n   avg:  8.1\n";
        assert_eq!(after(text, "writes/s:"), Some(968.25));
        assert_eq!(after(text, "avg:"), Some(8.1));
        assert_eq!(after(text, "fsyncs/s:"), None);
        let csv = "1.98,2.00a,x,1,1795730959,,,,,,,,,,,,,,,,,1,25000,500,,16,\
                   52,+++,+++++,+++,61,1,53,1,+++++,+++,62,1,,,,,,,1ms,1ms,1ms,1ms,1ms,1ms\n";
        let figures = mail_figures(csv).expect("a report");
        let texts: Vec<String> = figures.iter().map(ToString::to_string).collect();
        let wanted = ["creates/s 52.0", "deletes/s 61.0", "random creates/s 53.0"];
        assert_eq!(texts[..3], wanted);
        assert_eq!(texts[3], "random deletes/s 62.0");
        assert!(mail_figures("1.98,x").is_none());
    }
}
