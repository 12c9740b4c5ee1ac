//! Ends the run when one input takes too long: a loop without end cannot be left otherwise.
//!
//! Owns what is known about the input under way. The limit is far beyond what any input takes, also
//! on a busy machine, so that it only ever means a loop.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No input takes so long.
const MOST: Duration = Duration::from_secs(30);
const BEAT: Duration = Duration::from_millis(500);

/// Grows with every input: the watchdog looks whether it still does.
static STARTED: AtomicU64 = AtomicU64::new(0);
static UNDER_WAY: Mutex<Option<(&'static str, Vec<u8>)>> = Mutex::new(None);

/// An input is run now.
pub(crate) fn begin(target: &'static str, bytes: &[u8]) {
    let mut under_way = UNDER_WAY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match under_way.as_mut() {
        Some((name, known)) => {
            *name = target;
            known.clear();
            known.extend_from_slice(bytes);
        }
        None => *under_way = Some((target, bytes.to_vec())),
    }
    STARTED.fetch_add(1, Ordering::Relaxed);
}

/// No input is run now.
pub(crate) fn end() {
    *UNDER_WAY.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
}

/// Watches from now on.
pub(crate) fn start() {
    std::thread::spawn(|| {
        let (mut seen, mut beats) = (0, 0);
        loop {
            std::thread::sleep(BEAT);
            let now = STARTED.load(Ordering::Relaxed);
            let idle = UNDER_WAY.lock().is_ok_and(|under_way| under_way.is_none());
            beats = if now == seen && !idle { beats + 1 } else { 0 };
            seen = now;
            if BEAT * beats > MOST {
                give_up("time");
            }
        }
    });
}

/// Saves the input under way and ends the process: there is no way back.
pub(crate) fn give_up(what: &str) -> ! {
    // `try_lock`: the memory may have run out while the input was being noted.
    if let Ok(under_way) = UNDER_WAY.try_lock()
        && let Some((target, bytes)) = under_way.as_ref()
    {
        let path = save(target, what, bytes);
        println!("{target}: out of {what}, given up; the input is {}", path.display());
    }
    println!("test result: FAILED. 0 passed; 1 failed");
    std::process::exit(1);
}

/// Saves an input that broke something; gives its place.
pub(crate) fn save(target: &str, what: &str, bytes: &[u8]) -> PathBuf {
    let folder = crate::home().join("artifacts").join(target);
    let sum = bytes.iter().fold(bytes.len() as u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let path = folder.join(format!("{what}-{sum:016x}"));
    let saved = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, bytes));
    if let Err(error) = saved {
        println!("{}: {error}", path.display());
    }
    path
}
