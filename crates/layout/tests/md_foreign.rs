//! Signatures: every line of the table is found where it says, and real file systems, made by
//! their own programs (Debian packages `e2fsprogs`, `util-linux`, `fdisk`, `dosfstools`), are found
//! where wipefs finds them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use layout::md::foreign::{Check, PROBES, Signature, probe};

const MIB: u64 = 1 << 20;

/// A device of zeros, except for a few places.
struct Sparse {
    bytes: u64,
    written: BTreeMap<u64, Vec<u8>>,
}

impl Sparse {
    fn new(bytes: u64, written: &[(u64, &[u8])]) -> Sparse {
        let written = written.iter().map(|&(offset, bytes)| (offset, bytes.to_vec())).collect();
        Sparse { bytes, written }
    }

    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        for (&start, written) in &self.written {
            for (index, &byte) in (start..).zip(written) {
                if (offset..offset + length as u64).contains(&index) {
                    bytes[(index - offset) as usize] = byte;
                }
            }
        }
        Some(bytes)
    }

    fn probe(&self) -> Vec<Signature> {
        probe(|offset, length| self.read(offset, length), self.bytes)
    }
}

#[test]
fn every_signature_is_found_alone_where_it_lies() {
    let device_bytes = (300 << 30) + 512 * 77;
    for line in PROBES.iter().filter(|line| line.check == Check::None) {
        let start = line.place.offset(device_bytes).expect("300 GiB suffice");
        for offset in [start, start + 1024 * line.more] {
            let device = Sparse::new(device_bytes, &[(offset, line.bytes)]);
            let expected = Signature { name: line.name, offset, length: line.bytes.len() as u64 };
            assert_eq!(device.probe(), [expected], "{line:?}");
        }
    }
}

#[test]
fn a_wiped_signature_is_gone() {
    let device_bytes = 300 << 30;
    for line in PROBES.iter().filter(|line| line.check == Check::None) {
        let start = line.place.offset(device_bytes).expect("300 GiB suffice");
        let mut device = Sparse::new(device_bytes, &[(start, line.bytes)]);
        for signature in device.probe() {
            let wipe = signature.wipe();
            device.written.insert(wipe.start, vec![0; (wipe.end - wipe.start) as usize]);
        }
        assert_eq!(device.probe(), [], "{line:?}");
    }
}

#[test]
fn small_and_unreadable_devices_have_no_signatures_and_do_not_panic() {
    for bytes in [0, 1, 511, 512, 4096, 65_536, MIB, 4 * MIB] {
        let reads_end = |offset: u64, length: usize| {
            assert!(offset + length as u64 <= bytes, "{offset} + {length} of {bytes}");
            Some(vec![0; length])
        };
        assert_eq!(probe(reads_end, bytes), []);
        assert_eq!(probe(|_, _| None::<&[u8]>, bytes), []);
        assert_eq!(probe(|_, _| Some(Vec::new()), bytes), []);
        let mut noise = 1_u8;
        let _ = probe(
            |_, length| {
                noise = noise.wrapping_mul(31).wrapping_add(7);
                Some(vec![noise; length])
            },
            bytes,
        );
    }
}

#[test]
fn the_boot_signature_is_a_partition_table_only_with_partitions() {
    let find = |sector: &[(u64, &[u8])]| {
        let found = Sparse::new(64 * MIB, sector).probe();
        found.iter().map(|signature| signature.name).collect::<Vec<_>>()
    };
    let boot: (u64, &[u8]) = (510, &[0x55, 0xaa]);
    assert_eq!(find(&[boot]), [""; 0], "no partition");
    assert_eq!(find(&[boot, (450, &[0x83])]), ["dos"]);
    assert_eq!(find(&[boot, (446, &[0x80]), (450, &[0x83])]), ["dos"]);
    assert_eq!(find(&[boot, (446, &[0x33]), (450, &[0x83])]), [""; 0], "code, not partitions");
    // 512 bytes in a sector, 4 sectors in a cluster, 1 reserved, 2 FATs; a fixed disk
    let fat: (u64, &[u8]) = (11, &[0, 2, 4, 1, 0, 2, 0, 2, 0, 0, 0xf8]);
    assert_eq!(find(&[boot, (450, &[0x83]), (0, &[0xeb]), fat]), ["vfat", "vfat"]);
    assert_eq!(find(&[boot, (450, &[0x83]), fat]), ["dos"], "nothing jumps over the parameters");
    assert_eq!(find(&[boot, (450, &[0x83]), (3, b"NTFS    ")]), ["ntfs"]);
}

/// A file that is removed when the test ends.
struct Image(PathBuf);

impl Image {
    fn new(name: &str) -> Image {
        let name = format!("parapet-foreign-{}-{name}", std::process::id());
        let image = Image(std::env::temp_dir().join(name));
        let file = File::create(&image.0).expect("the temporary directory is writable");
        file.set_len(64 * MIB).expect("a sparse file");
        image
    }

    fn probe(&self) -> Vec<Signature> {
        let file = File::open(&self.0).expect("created above");
        let read = |offset, length| {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
        };
        probe(read, 64 * MIB)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn run(program: &str, package: &str, arguments: &[&str], image: &Path, input: &str) -> String {
    let spawned = Command::new(program)
        .args(arguments)
        .arg(image)
        .env("LC_ALL", "C")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut process = spawned.unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("{program} is missing: install the package {package}"),
        _ => panic!("{program}: {error}"),
    });
    let mut stdin = process.stdin.take().expect("the input is piped");
    stdin.write_all(input.as_bytes()).expect("the program reads its input");
    drop(stdin);
    let output = process.wait_with_output().expect("the program ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program}: {text}{output:?}");
    text
}

/// A program that makes something, and the signatures it leaves.
type Maker = (&'static str, &'static str, &'static [&'static str], &'static str, &'static [Found]);
type Found = (&'static str, u64);

const LAST: u64 = 64 * MIB - 512;

const MAKERS: [Maker; 9] = [
    ("mke2fs", "e2fsprogs", &["-q", "-F", "-t", "ext2"], "", &[("ext2", 0x438)]),
    ("mke2fs", "e2fsprogs", &["-q", "-F", "-t", "ext3"], "", &[("ext3", 0x438)]),
    ("mke2fs", "e2fsprogs", &["-q", "-F", "-t", "ext4"], "", &[("ext4", 0x438)]),
    ("mkswap", "util-linux", &["-p", "4096"], "", &[("swap", 4086)]),
    ("mkswap", "util-linux", &["-p", "65536"], "", &[("swap", 65526)]),
    ("mkfs.vfat", "dosfstools", &["-F", "16"], "", &[("vfat", 0), ("vfat", 510), ("vfat", 0x36)]),
    ("mkfs.vfat", "dosfstools", &["-F", "32"], "", &[("vfat", 0), ("vfat", 510), ("vfat", 0x52)]),
    ("sfdisk", "fdisk", &["-q", "--label", "dos"], ",,L\n", &[("dos", 510)]),
    (
        "sfdisk",
        "fdisk",
        &["-q", "--label", "gpt"],
        ",,L\n",
        &[("dos", 510), ("gpt", 512), ("gpt", LAST)],
    ),
];

#[test]
fn real_ones_are_found_where_wipefs_finds_them() {
    for (index, (program, package, arguments, input, expected)) in MAKERS.into_iter().enumerate() {
        let image = Image::new(&index.to_string());
        run(program, package, arguments, &image.0, input);
        let found: Vec<Found> = image.probe().iter().map(|s| (s.name, s.offset)).collect();
        assert_eq!(found, expected, "{program} {arguments:?}");

        let arguments = ["--noheadings", "--parsable", "--output", "OFFSET,LENGTH"];
        let text = run("wipefs", "util-linux", &arguments, &image.0, "");
        let mut theirs: Vec<(u64, u64)> = text.lines().map(offset_and_length).collect();
        let mut ours: Vec<_> = image.probe().iter().map(|s| (s.offset, s.length)).collect();
        theirs.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, theirs, "{program} {arguments:?}");
    }
}

fn offset_and_length(line: &str) -> (u64, u64) {
    let (offset, length) = line.split_once(',').expect("two columns");
    let offset = u64::from_str_radix(offset.trim_start_matches("0x"), 16).expect("hexadecimal");
    (offset, length.parse().expect("decimal"))
}

#[test]
fn members_of_md_and_of_parapet_are_found_at_each_of_their_places() {
    let md = [0xfc, 0x4e, 0x2b, 0xa9];
    let device = Sparse::new(
        64 * MIB,
        &[(0, &md), (4096, &md), (64 * MIB - 8192, &md), (64 * MIB - 65536, &md)],
    );
    assert_eq!(device.probe().len(), 4);
    assert!(device.probe().iter().all(|signature| signature.name == "linux_raid_member"));
    let device = Sparse::new(64 * MIB, &[(4096, b"Pp35")]);
    assert_eq!(device.probe()[0].name, "parapet_member");
}
