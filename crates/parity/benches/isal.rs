//! Our best kernel beside ISA-L's, in one process, round by round in turn, over the same bytes.
//!
//! `cargo bench -p parapet-parity --features isal --bench isal [-- FILTER]` (Debian: libisal-dev);
//! pin it to a core with taskset. `--kernel NAME` takes another kernel than the best;
//! `avx2` is compared with ISA-L's AVX2 code. One JSON
//! line a figure: GB/s of data blocks (of changed data for updates), medians of the rounds; the
//! ratio is the median of each round's own. Results are compared before anything is timed, so
//! this is an interoperability test as well.

mod stage;

use std::ffi::{c_int, c_uchar, c_uint, c_void};
use std::hint::black_box;
use std::time::Duration;

use parity::{Kernel, best, by_name, crc32c};
use stage::{Room, Row, Shape, Stage, median, seconds};

type Generate = unsafe extern "C" fn(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
type Encode = unsafe extern "C" fn(
    len: c_int,
    k: c_int,
    rows: c_int,
    tables: *const c_uchar,
    data: *const *const c_uchar,
    coding: *const *mut c_uchar,
);
type Update = unsafe extern "C" fn(
    len: c_int,
    k: c_int,
    rows: c_int,
    vec_i: c_int,
    tables: *const c_uchar,
    data: *const c_uchar,
    coding: *const *mut c_uchar,
);

/// ISA-L's functions for one instruction set.
struct Functions {
    xor_gen: Generate,
    pq_gen: Generate,
    ec_encode_data: Encode,
    ec_encode_data_update: Update,
}

/// Declares what `$name` links to, and puts it into a table.
macro_rules! functions {
    ($name:ident: $xor:ident, $pq:ident, $encode:ident, $update:ident) => {
        static $name: Functions = {
            unsafe extern "C" {
                fn $xor(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
                fn $pq(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
                fn $encode(
                    len: c_int,
                    k: c_int,
                    rows: c_int,
                    tables: *const c_uchar,
                    data: *const *const c_uchar,
                    coding: *const *mut c_uchar,
                );
                fn $update(
                    len: c_int,
                    k: c_int,
                    rows: c_int,
                    vec_i: c_int,
                    tables: *const c_uchar,
                    data: *const c_uchar,
                    coding: *const *mut c_uchar,
                );
            }
            Functions {
                xor_gen: $xor,
                pq_gen: $pq,
                ec_encode_data: $encode,
                ec_encode_data_update: $update,
            }
        };
    };
}

// ISA-L's own choice for this CPU, and its choice without AVX-512.
functions!(CHOSEN: xor_gen, pq_gen, ec_encode_data, ec_encode_data_update);
#[cfg(target_arch = "x86_64")]
functions!(AVX2: xor_gen_avx, pq_gen_avx2, ec_encode_data_avx2, ec_encode_data_update_avx2);

// ISA-L's raid.h, erasure_code.h and crc.h.
#[link(name = "isal")]
unsafe extern "C" {
    fn ec_init_tables(k: c_int, rows: c_int, a: *const c_uchar, tables: *mut c_uchar);
    fn gf_invert_matrix(input: *mut c_uchar, output: *mut c_uchar, n: c_int) -> c_int;
    fn gf_mul(a: c_uchar, b: c_uchar) -> c_uchar;
    fn crc32_iscsi(buffer: *const c_uchar, len: c_int, init: c_uint) -> c_uint;
}

const ROUNDS: usize = 9;
const SLICE: Duration = Duration::from_millis(25);

/// ISA-L's functions, and its prepared coefficients for this row width.
struct Isal {
    functions: &'static Functions,
    encode: Vec<u8>,
    /// From (data 2 … n−1, P, Q) to data 0 and 1.
    decode: Vec<u8>,
}

impl Isal {
    fn new(functions: &'static Functions, data: usize) -> Self {
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
        Self {
            functions,
            encode: expand(data, &encode_rows),
            decode: expand(data, &inverse[..2 * data]),
        }
    }
}

fn expand(data: usize, rows: &[u8]) -> Vec<u8> {
    let mut tables = vec![0; 32 * rows.len()];
    // SAFETY: two rows of `data` coefficients, 32 bytes of table for each.
    unsafe { ec_init_tables(data as c_int, 2, rows.as_ptr(), tables.as_mut_ptr()) }
    tables
}

type Run = fn(Kernel, &Isal, &mut Row<'_>) -> usize;

/// Name, ours, ISA-L's. Each treats one row and says how many bytes count.
const CONTESTS: [(&str, Run, Run); 6] = [
    ("xor : xor_gen", our_xor, isal_xor),
    ("pq : pq_gen", our_pq, isal_pq),
    ("pq : ec_encode_data", our_pq, isal_encode),
    ("update_pq : ec_encode_data_update", our_update, isal_update),
    ("update_pq : xor_gen + ec_encode_data_update", our_update, isal_delta_update),
    ("recover_two : ec_encode_data", our_recover, isal_recover),
];

fn our_xor(kernel: Kernel, _: &Isal, row: &mut Row<'_>) -> usize {
    let [p, ..] = &mut row.parity;
    kernel.xor(&row.sources, p);
    p.len() * row.sources.len()
}

fn our_pq(kernel: Kernel, _: &Isal, row: &mut Row<'_>) -> usize {
    let [p, q, ..] = &mut row.parity;
    kernel.pq(&row.terms, p, q);
    p.len() * row.terms.len()
}

fn our_update(kernel: Kernel, _: &Isal, row: &mut Row<'_>) -> usize {
    let [p, q, new, _] = &mut row.parity;
    kernel.update_pq(2, row.sources[2], new, p, q);
    p.len()
}

fn our_recover(kernel: Kernel, _: &Isal, row: &mut Row<'_>) -> usize {
    let [p, q, x, y] = &mut row.parity;
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

fn isal_xor(_: Kernel, isal: &Isal, row: &mut Row<'_>) -> usize {
    let (count, length) = (row.sources.len(), row.sources[0].len());
    let mut array = addresses(&row.sources, &mut row.parity[..1]);
    // SAFETY: count + 1 blocks of `length` bytes; ISA-L writes to the last only.
    unsafe { (isal.functions.xor_gen)(count as c_int + 1, length as c_int, array.as_mut_ptr()) };
    count * length
}

fn isal_pq(_: Kernel, isal: &Isal, row: &mut Row<'_>) -> usize {
    let (count, length) = (row.sources.len(), row.sources[0].len());
    let mut array = addresses(&row.sources, &mut row.parity[..2]);
    // SAFETY: count + 2 blocks of `length` bytes; ISA-L writes to the last two only.
    unsafe { (isal.functions.pq_gen)(count as c_int + 2, length as c_int, array.as_mut_ptr()) };
    count * length
}

fn isal_encode(_: Kernel, isal: &Isal, row: &mut Row<'_>) -> usize {
    let [p, q, ..] = &mut row.parity;
    encode(isal, &isal.encode, &row.sources, [p, q])
}

fn isal_recover(_: Kernel, isal: &Isal, row: &mut Row<'_>) -> usize {
    let [p, q, x, y] = &mut row.parity;
    let count = row.sources.len();
    let mut survivors: [&[u8]; 16] = [&[]; 16];
    survivors[..count - 2].copy_from_slice(&row.sources[2..]);
    survivors[count - 2..count].copy_from_slice(&[&**p, &**q]);
    encode(isal, &isal.decode, &survivors[..count], [x, y])
}

fn encode(isal: &Isal, tables: &[u8], sources: &[&[u8]], mut targets: [&mut [u8]; 2]) -> usize {
    let (count, length) = (sources.len(), sources[0].len());
    let array = addresses(sources, &mut targets);
    let (data, coding) = (array.as_ptr(), array[count..].as_ptr());
    // SAFETY: `count` sources and two targets of `length` bytes, tables for both targets.
    unsafe {
        let k = count as c_int;
        (isal.functions.ec_encode_data)(
            length as c_int,
            k,
            2,
            tables.as_ptr(),
            data.cast(),
            coding.cast(),
        );
    }
    count * length
}

/// ISA-L's function: the caller has computed old ^ new before.
fn isal_update(_: Kernel, isal: &Isal, row: &mut Row<'_>) -> usize {
    let [p, q, delta, _] = &mut row.parity;
    update(isal, row.sources.len(), delta, [p, q])
}

/// All steps of a read-modify-write.
fn isal_delta_update(_: Kernel, isal: &Isal, row: &mut Row<'_>) -> usize {
    let [p, q, new, delta] = &mut row.parity;
    let mut array = addresses(&[row.sources[2], new], &mut [&mut *delta]);
    // SAFETY: three blocks of one length; ISA-L writes to the last only.
    unsafe { (isal.functions.xor_gen)(3, delta.len() as c_int, array.as_mut_ptr()) };
    update(isal, row.sources.len(), delta, [p, q])
}

fn update(isal: &Isal, count: usize, delta: &[u8], [p, q]: [&mut [u8]; 2]) -> usize {
    let coding = [p.as_mut_ptr(), q.as_mut_ptr()];
    let (length, k) = (delta.len() as c_int, count as c_int);
    // SAFETY: all three blocks have `length` bytes; the tables are for k blocks.
    unsafe {
        let (tables, data) = (isal.encode.as_ptr(), delta.as_ptr());
        (isal.functions.ec_encode_data_update)(length, k, 2, 2, tables, data, coding.as_ptr());
    }
    delta.len()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.iter().position(|argument| argument == "--kernel");
    let kernel = named.map_or_else(best, |at| by_name(&arguments[at + 1]).expect("no such kernel"));
    let functions = match kernel.name() {
        #[cfg(target_arch = "x86_64")]
        "avx2" => &AVX2,
        _ => &CHOSEN,
    };
    let filter = arguments.first().filter(|argument| !argument.starts_with('-'));
    for shape in Shape::all() {
        let mut room = Room::new(shape);
        let mut stage = room.stage();
        let theirs = Isal::new(functions, shape.data);
        for contest in CONTESTS {
            assert_agreement(kernel, &theirs, shape, contest);
            if filter.is_none_or(|filter| contest.0.contains(filter.as_str())) {
                measure(kernel, &theirs, &mut stage, contest);
            }
        }
    }
    if filter.is_none_or(|filter| "crc32c".contains(filter.as_str())) {
        measure_crc();
    }
}

/// Both sides leave the same bytes behind, from the same start.
fn assert_agreement(kernel: Kernel, isal: &Isal, shape: Shape, contest: (&str, Run, Run)) {
    let (name, our_run, isal_run) = contest;
    if name == "update_pq : ec_encode_data_update" {
        return; // its input is a delta, ours is old and new: compared as the contest after it
    }
    let parity = |run: Run| {
        let mut room = Room::new(Shape::in_l2(shape.data));
        let mut stage = room.stage();
        our_pq(kernel, isal, stage.next());
        run(kernel, isal, stage.next());
        let results = if name.starts_with("recover") { 0..4 } else { 0..2 };
        stage.next().parity[results].iter().map(|block| block.to_vec()).collect::<Vec<_>>()
    };
    assert!(parity(our_run) == parity(isal_run), "{name} at {}+2", shape.data);
}

fn measure(kernel: Kernel, isal: &Isal, stage: &mut Stage<'_>, contest: (&str, Run, Run)) {
    let (name, our_run, isal_run) = contest;
    let rate = |stage: &mut Stage<'_>, run: Run| {
        let mut bytes = 0;
        let seconds = seconds(SLICE, || bytes = run(kernel, isal, stage.next()));
        bytes as f64 / seconds / 1e9
    };
    let rounds = (0..ROUNDS).map(|_| (rate(stage, our_run), rate(stage, isal_run))).collect();
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
