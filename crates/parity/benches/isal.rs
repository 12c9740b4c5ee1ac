//! Our best kernel beside ISA-L's, in one process, round by round in turn, over the same bytes.
//!
//! `cargo bench -p parapet-parity --features isal --bench isal [-- FILTER]` (Debian: libisal-dev);
//! pin it to a core with taskset. `--kernel NAME` takes another kernel than the best. One JSON
//! line a figure: GB/s of data blocks (of changed data for updates), medians of the rounds; the
//! ratio is the median of each round's own. Results are compared before anything is timed, so
//! this is an interoperability test as well.

mod stage;

use std::ffi::{c_int, c_uchar, c_uint, c_void};
use std::hint::black_box;
use std::time::Duration;

use parity::{Kernel, best, by_name, crc32c};
use stage::{Row, Shape, Stage, median, seconds};

// ISA-L's raid.h, erasure_code.h and crc.h.
#[link(name = "isal")]
unsafe extern "C" {
    fn xor_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
    fn pq_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
    fn ec_init_tables(k: c_int, rows: c_int, a: *const c_uchar, tables: *mut c_uchar);
    fn ec_encode_data(
        len: c_int,
        k: c_int,
        rows: c_int,
        tables: *const c_uchar,
        data: *const *const c_uchar,
        coding: *const *mut c_uchar,
    );
    fn ec_encode_data_update(
        len: c_int,
        k: c_int,
        rows: c_int,
        vec_i: c_int,
        tables: *const c_uchar,
        data: *const c_uchar,
        coding: *const *mut c_uchar,
    );
    fn gf_invert_matrix(input: *mut c_uchar, output: *mut c_uchar, n: c_int) -> c_int;
    fn gf_mul(a: c_uchar, b: c_uchar) -> c_uchar;
    fn crc32_iscsi(buffer: *const c_uchar, len: c_int, init: c_uint) -> c_uint;
}

const ROUNDS: usize = 9;
const SLICE: Duration = Duration::from_millis(25);

/// ISA-L's prepared coefficients for this row width.
struct Tables {
    encode: Vec<u8>,
    /// From (data 2 … n−1, P, Q) to data 0 and 1.
    decode: Vec<u8>,
}

impl Tables {
    fn new(data: usize) -> Self {
        let mut power = 1;
        let mut encode_rows = vec![1; 2 * data];
        for row in &mut encode_rows[data..] {
            *row = power;
            // SAFETY: a pure function.
            power = unsafe { gf_mul(power, 2) };
        }
        // Rows of the survivors: data 2 … n−1, P, Q.
        let mut survivors = vec![0; data * data];
        for row in 0..data - 2 {
            survivors[row * data + row + 2] = 1;
        }
        survivors[(data - 2) * data..].copy_from_slice(&encode_rows);
        let mut inverse = vec![0; data * data];
        // SAFETY: both matrices have data × data bytes.
        let singular = unsafe {
            gf_invert_matrix(survivors.as_mut_ptr(), inverse.as_mut_ptr(), data as c_int)
        };
        assert_eq!(singular, 0);
        Self { encode: expand(data, &encode_rows), decode: expand(data, &inverse[..2 * data]) }
    }
}

fn expand(data: usize, rows: &[u8]) -> Vec<u8> {
    let mut tables = vec![0; 32 * rows.len()];
    // SAFETY: two rows of `data` coefficients, 32 bytes of table for each.
    unsafe { ec_init_tables(data as c_int, 2, rows.as_ptr(), tables.as_mut_ptr()) }
    tables
}

type Run = fn(Kernel, &Tables, Row<'_>) -> usize;

/// Name, ours, ISA-L's. Each treats one row and says how many bytes count.
const CONTESTS: [(&str, Run, Run); 6] = [
    ("xor : xor_gen", our_xor, isal_xor),
    ("pq : pq_gen", our_pq, isal_pq),
    ("pq : ec_encode_data", our_pq, isal_encode),
    ("update_pq : ec_encode_data_update", our_update, isal_update),
    ("update_pq : xor_gen + ec_encode_data_update", our_update, isal_delta_update),
    ("recover_two : ec_encode_data", our_recover, isal_recover),
];

fn our_xor(kernel: Kernel, _: &Tables, row: Row<'_>) -> usize {
    let [p, ..] = row.parity;
    kernel.xor(&row.sources, p);
    p.len() * row.sources.len()
}

fn our_pq(kernel: Kernel, _: &Tables, row: Row<'_>) -> usize {
    let [p, q, ..] = row.parity;
    kernel.pq(&row.terms, p, q);
    p.len() * row.terms.len()
}

fn our_update(kernel: Kernel, _: &Tables, row: Row<'_>) -> usize {
    let [p, q, new, _] = row.parity;
    kernel.update_pq(2, row.sources[2], new, p, q);
    p.len()
}

fn our_recover(kernel: Kernel, _: &Tables, row: Row<'_>) -> usize {
    let [p, q, x, y] = row.parity;
    kernel.recover_two(&row.terms[2..], p, q, (0, x), (1, y));
    p.len() * row.terms.len()
}

/// Addresses of the sources, then of the targets, as ISA-L wants them.
fn addresses(sources: &[&[u8]], targets: &mut [&mut [u8]]) -> [*mut c_void; 16] {
    let mut addresses = [std::ptr::null_mut(); 16];
    for (to, source) in addresses.iter_mut().zip(sources) {
        *to = source.as_ptr().cast_mut().cast();
    }
    for (to, target) in addresses[sources.len()..].iter_mut().zip(targets) {
        *to = target.as_mut_ptr().cast();
    }
    addresses
}

fn isal_xor(_: Kernel, _: &Tables, mut row: Row<'_>) -> usize {
    let (count, length) = (row.sources.len(), row.sources[0].len());
    let mut array = addresses(&row.sources, &mut row.parity[..1]);
    // SAFETY: count + 1 blocks of `length` bytes; ISA-L writes to the last only.
    unsafe { xor_gen(count as c_int + 1, length as c_int, array.as_mut_ptr()) };
    count * length
}

fn isal_pq(_: Kernel, _: &Tables, mut row: Row<'_>) -> usize {
    let (count, length) = (row.sources.len(), row.sources[0].len());
    let mut array = addresses(&row.sources, &mut row.parity[..2]);
    // SAFETY: count + 2 blocks of `length` bytes; ISA-L writes to the last two only.
    unsafe { pq_gen(count as c_int + 2, length as c_int, array.as_mut_ptr()) };
    count * length
}

fn isal_encode(_: Kernel, tables: &Tables, row: Row<'_>) -> usize {
    let [p, q, ..] = row.parity;
    encode(&tables.encode, &row.sources, [p, q])
}

fn isal_recover(_: Kernel, tables: &Tables, row: Row<'_>) -> usize {
    let [p, q, x, y] = row.parity;
    let mut survivors: Vec<&[u8]> = row.sources[2..].to_vec();
    survivors.extend([&*p, &*q]);
    encode(&tables.decode, &survivors, [x, y])
}

fn encode(tables: &[u8], sources: &[&[u8]], mut targets: [&mut [u8]; 2]) -> usize {
    let (count, length) = (sources.len(), sources[0].len());
    let array = addresses(sources, &mut targets);
    let (data, coding) = (array.as_ptr(), array[count..].as_ptr());
    // SAFETY: `count` sources and two targets of `length` bytes, tables for both targets.
    unsafe {
        let k = count as c_int;
        ec_encode_data(length as c_int, k, 2, tables.as_ptr(), data.cast(), coding.cast());
    }
    count * length
}

/// What ISA-L offers: the caller has computed old ^ new before.
fn isal_update(_: Kernel, tables: &Tables, row: Row<'_>) -> usize {
    let [p, q, delta, _] = row.parity;
    update(tables, row.sources.len(), delta, [p, q])
}

/// The whole of what a read-modify-write needs.
fn isal_delta_update(_: Kernel, tables: &Tables, row: Row<'_>) -> usize {
    let [p, q, new, delta] = row.parity;
    let mut array = addresses(&[row.sources[2], new], &mut [&mut *delta]);
    // SAFETY: three blocks of one length; ISA-L writes to the last only.
    unsafe { xor_gen(3, delta.len() as c_int, array.as_mut_ptr()) };
    update(tables, row.sources.len(), delta, [p, q])
}

fn update(tables: &Tables, count: usize, delta: &[u8], [p, q]: [&mut [u8]; 2]) -> usize {
    let coding = [p.as_mut_ptr(), q.as_mut_ptr()];
    let (length, k) = (delta.len() as c_int, count as c_int);
    // SAFETY: all three blocks have `length` bytes; the tables are for k blocks.
    unsafe {
        let tables = tables.encode.as_ptr();
        ec_encode_data_update(length, k, 2, 2, tables, delta.as_ptr(), coding.as_ptr());
    }
    delta.len()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.iter().position(|argument| argument == "--kernel");
    let kernel = named.map_or_else(best, |at| by_name(&arguments[at + 1]).expect("no such kernel"));
    let filter = arguments.first().filter(|argument| !argument.starts_with('-'));
    for shape in Shape::all() {
        let mut stage = Stage::new(shape);
        let tables = Tables::new(shape.data);
        for contest in CONTESTS {
            assert_agreement(kernel, &tables, shape, contest);
            if filter.is_none_or(|filter| contest.0.contains(filter.as_str())) {
                measure(kernel, &tables, &mut stage, contest);
            }
        }
    }
    if filter.is_none_or(|filter| "crc32c".contains(filter.as_str())) {
        measure_crc();
    }
}

/// Both sides leave the same bytes behind, from the same start.
fn assert_agreement(kernel: Kernel, tables: &Tables, shape: Shape, contest: (&str, Run, Run)) {
    let (name, ours, isal) = contest;
    if name == "update_pq : ec_encode_data_update" {
        return; // its input is a delta, ours is old and new: compared as the contest after it
    }
    let parity = |run: Run| {
        let mut stage = Stage::new(Shape::in_l2(shape.data));
        our_pq(kernel, tables, stage.next());
        run(kernel, tables, stage.next());
        let results = if name.starts_with("recover") { 0..4 } else { 0..2 };
        stage.next().parity[results].iter().map(|block| block.to_vec()).collect::<Vec<_>>()
    };
    assert!(parity(ours) == parity(isal), "{name} at {}+2", shape.data);
}

fn measure(kernel: Kernel, tables: &Tables, stage: &mut Stage, contest: (&str, Run, Run)) {
    let (name, ours, isal) = contest;
    let rate = |stage: &mut Stage, run: Run| {
        let mut bytes = 0;
        let seconds = seconds(SLICE, || bytes = run(kernel, tables, stage.next()));
        bytes as f64 / seconds / 1e9
    };
    let rounds = (0..ROUNDS).map(|_| (rate(stage, ours), rate(stage, isal))).collect();
    let Shape { place, data, .. } = stage.shape;
    report(&format!("{name}, {data}+2 {place}, {}", kernel.name()), rounds);
}

fn measure_crc() {
    for (place, length) in [("L1", 16 << 10), ("L2", 192 << 10), ("4K", 4096)] {
        let bytes: Vec<u8> = (0..length).map(|i: usize| ((i * 31) >> 3) as u8).collect();
        // SAFETY: `length` bytes are there.
        let isal = || unsafe { crc32_iscsi(bytes.as_ptr(), length as c_int, !0) };
        assert_eq!(crc32c(0, &bytes), !isal());
        let rate = |seconds: f64| length as f64 / seconds / 1e9;
        let rounds = (0..ROUNDS).map(|_| {
            let ours = seconds(SLICE, || _ = black_box(crc32c(0, black_box(&bytes))));
            (rate(ours), rate(seconds(SLICE, || _ = black_box(isal()))))
        });
        report(&format!("crc32c : crc32_iscsi, {place}"), rounds.collect());
    }
}

fn report(name: &str, rounds: Vec<(f64, f64)>) {
    let ratio = median(rounds.iter().map(|(ours, isal)| ours / isal).collect());
    let (ours, isal) = rounds.into_iter().unzip::<f64, f64, Vec<_>, Vec<_>>();
    let (ours, isal) = (median(ours), median(isal));
    println!(r#"{{"name":"{name}","ours":{ours:.1},"isal":{isal:.1},"ratio":{ratio:.2}}}"#);
}
