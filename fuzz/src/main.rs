//! `seeds FOLDER`: writes the seeds and the dictionary of each target, for libFuzzer.
//!
//! ```text
//!   FOLDER/TARGET/seeds/00 …     good inputs
//!   FOLDER/TARGET/dictionary     byte strings that a mutation may insert
//! ```
#![deny(unsafe_code)]

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use parapet_fuzz::{TARGETS, Target};

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: seeds FOLDER");
        return ExitCode::from(2);
    };
    for target in TARGETS {
        let folder = Path::new(&folder).join(target.name);
        if let Err(error) = write(target, &folder) {
            eprintln!("{}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn write(target: &Target, folder: &Path) -> std::io::Result<()> {
    let seeds = folder.join("seeds");
    if seeds.exists() {
        std::fs::remove_dir_all(&seeds)?;
    }
    std::fs::create_dir_all(&seeds)?;
    for (number, seed) in (target.seeds)().into_iter().enumerate() {
        std::fs::write(seeds.join(format!("{number:02}")), seed)?;
    }
    let mut dictionary = String::new();
    for word in target.words {
        let bytes = word.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "\\x{byte:02x}");
            text
        });
        let _ = writeln!(dictionary, "\"{bytes}\"");
    }
    // libFuzzer refuses an empty dictionary.
    if dictionary.is_empty() {
        return Ok(());
    }
    std::fs::write(folder.join("dictionary"), dictionary)
}
