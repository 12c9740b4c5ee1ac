//! Tests of traces: each format, errors with lines, and arbitrary bytes.

use super::*;

const FIO: &str = include_str!("../../tests/experiments/fio-3.33.iolog");

const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427
  8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]
  8,0    3        3     0.000007519   697  D   W 223490 + 8 [kjournald]
  8,0    3        4     0.000100000   700  Q WFS 500 + 16 [dbench]
  8,0    0        5     0.002000001     0  C   W 223490 + 8 [0]
  8,0    0        6     0.003000100     0  C WFS 500 + 16 [0]
  8,0    1        7     0.004000000   700  Q  RA 1000 + 256 [dbench]
  8,0    1        8     0.005000000   700  Q FWS [dbench]
  8,0    1        9     0.006000000   700  m   N cfq700 some message
  8,16   1       10     0.007000000   701  Q   D 0 + 2048 [fstrim]

CPU0 (sda):
 Reads Queued:           1,      128KiB\t Writes Queued:           2,       12KiB
";

const SNIA: &str = "\
128166372003061629,hm,1,Read,383496192,32768,413
128166372016382155,hm,1,Write,310983680,4096,15106
128166372016000000,hm,0,read,1000,100,20
";

fn kinds(trace: &Trace) -> Vec<Kind> {
    trace.requests.iter().map(|request| request.kind).collect()
}

#[test]
fn an_iolog_of_fio_is_read() {
    let trace = read(FIO.as_bytes()).unwrap();
    assert!(trace.timed);
    assert_eq!(trace.requests[0].offset, 0);
    assert_eq!(
        trace.requests[1],
        Request {
            at_ns: (3765 - 211) * 1000,
            kind: Kind::Read,
            offset: 45_056,
            bytes: 4096,
            durable: false,
            latency_ns: None,
            think_ns: None,
        }
    );
    assert!(kinds(&trace).contains(&Kind::Write) && kinds(&trace).contains(&Kind::Flush));
    assert_eq!(trace.end(), 65_536);
}

#[test]
fn waits_are_think_times_and_files_follow_each_other() {
    let text = "fio version 2 iolog\na b add\na b open\nc add\nc open\na b read 512 512\n\
                a b wait 300 0\nc write 0 4096\nc wait 50 0\nc wait 50 0\n\
                a b trim 0 100\nc close\n";
    let trace = read(text.as_bytes()).unwrap();
    assert!(trace.timed);
    let places: Vec<_> = trace.requests.iter().map(|one| (one.offset, one.bytes)).collect();
    assert_eq!(places, [(512, 512), (ALIGN, 4096), (0, 512)]);
    let times: Vec<_> = trace.requests.iter().map(|one| (one.at_ns, one.think_ns)).collect();
    assert_eq!(times, [(0, None), (300_000, Some(300_000)), (400_000, Some(100_000))]);
}

#[test]
fn the_text_of_blkparse_is_read_with_answers() {
    let trace = read(BLKPARSE.as_bytes()).unwrap();
    let kinds = kinds(&trace);
    assert_eq!(kinds, [Kind::Write, Kind::Write, Kind::Read, Kind::Flush, Kind::Discard]);
    let [first, fua, ahead, flush, discard] = trace.requests[..] else { panic!("{trace:?}") };
    assert_eq!((first.at_ns, first.latency_ns), (0, Some(1_998_172)));
    assert!(fua.durable && fua.offset == 256_000 && fua.bytes == 8192);
    // Answered after 3.000100 ms, asked at 4 ms.
    assert_eq!(ahead.think_ns, Some(999_900));
    assert_eq!((flush.offset, flush.bytes), (0, 0));
    // The second device begins where the first one ends.
    assert_eq!(discard.offset, ((223_490 + 8) * 512u64).next_multiple_of(ALIGN));
}

#[test]
fn the_csv_of_snia_is_read_in_order_of_time() {
    for text in [
        SNIA.to_string(),
        format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{SNIA}"),
    ] {
        let trace = read(text.as_bytes()).unwrap();
        let [first, second, third] = trace.requests[..] else { panic!("{trace:?}") };
        assert_eq!((first.at_ns, first.kind, first.latency_ns), (0, Kind::Read, Some(41_300)));
        // Whole sectors, on a disk of its own.
        assert_eq!((second.bytes, second.kind), (1024, Kind::Read));
        assert_eq!(third.at_ns, 1_332_052_600);
        assert_eq!((third.offset, third.bytes), (310_983_680, 4096));
    }
}

#[test]
fn errors_name_the_line() {
    for (text, line, cause) in [
        ("fio version 3 iolog\n0 f add\n0 f read x 4096\n", 3, "offset"),
        ("fio version 3 iolog\nnow f read 0 4096\n", 2, "time"),
        ("fio version 2 iolog\n\nf read 0\n", 3, "no file and action"),
        ("fio version 2 iolog\nf read 0 99999999999\n", 2, "a request of"),
        ("fio version 7 iolog\n", 1, "newer"),
        ("8,0 1 1 0.000000001 5 Q R\n8,0 1 1 0.000000001 5 Q R 1 + x [a]\n", 2, "length"),
        ("8,0 1 1 0.000000001 5\n", 1, "cut"),
        ("1,h,0,Read,0,512,1\n1,h,0,Erase,0,512,1\n", 2, "Erase"),
        ("1,h,0,Read,0,512,1\n1,h,0,Read,0,512\n", 2, "fields"),
        ("1,h,0,Read,99999999999999999999,512,1\n", 1, "offset"),
    ] {
        let error = read(text.as_bytes()).unwrap_err();
        assert_eq!(error.line, line, "{text:?}: {error}");
        assert!(error.to_string().contains(cause), "{text:?}: {error}");
    }
    assert_eq!(read(b"1,h,0,Read,0,512,1\n\xff\n").unwrap_err().line, 2);
    for nothing in ["", "hello", "fio version 2 iolog\nf add\n", "8,0 1 1 0.000000001 5 m N hi\n"] {
        assert_eq!(read(nothing.as_bytes()).unwrap_err().line, 0, "{nothing:?}");
    }
}

#[test]
fn a_written_iolog_is_read_again() {
    let original = read(BLKPARSE.as_bytes()).unwrap();
    let text = to_iolog(&original, "disk").unwrap();
    let again = read(text.as_bytes()).unwrap();
    let plain = |trace: &Trace| -> Vec<_> {
        let flushless = trace.requests.iter().filter(|one| one.kind != Kind::Flush);
        flushless.map(|one| (one.kind, one.offset, one.bytes)).collect()
    };
    assert_eq!(plain(&again), plain(&original));
    let last = (again.requests.last().unwrap(), original.requests.last().unwrap());
    assert!(last.0.at_ns.abs_diff(last.1.at_ns) < 200_000, "{last:?}");
    assert!(to_iolog(&original, "a b").is_err() && to_iolog(&original, "").is_err());
}

/// Texts of the formats with bytes changed, lines cut, doubled and mixed.
#[test]
fn no_bytes_panic() {
    let seeds = [FIO, BLKPARSE, SNIA, "fio version 2 iolog\nf add\nf wait 5 0\nf read 0 512\n"];
    let numbers =
        ["18446744073709551615", "4611686018427387903", "-1", "", "+", ",", "\u{e9}", "0"];
    let mut state = 1;
    let mut random = |below: usize| (random::next(&mut state) % below as u64) as usize;
    let mut read_well = 0;
    for round in 0..20_000 {
        let mut bytes = seeds[round % seeds.len()].as_bytes().to_vec();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 => drop(bytes.splice(at..at, numbers[random(numbers.len())].bytes())),
                3 => {
                    let end = (at + random(40)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => drop(bytes.splice(at..at, seeds[random(seeds.len())].bytes().take(300))),
            }
        }
        for format in [Format::Fio, Format::Blkparse, Format::Snia] {
            if let Ok(trace) = read_as(&bytes, format) {
                assert!(trace.requests.is_sorted_by_key(|request| request.at_ns));
                assert!(trace.end() < 1 << 63);
                assert!(to_iolog(&trace, "disk").is_ok());
                read_well += 1;
            }
        }
        let _ = read(&bytes);
    }
    assert!(read_well > 1000, "{read_well}");
}
