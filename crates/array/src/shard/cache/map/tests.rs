//! The map against a plain array of bytes, and its bookkeeping.

use io::{Budget, Pool};

use super::*;

struct Fixture {
    pool: Pool,
    room: Budget,
    held: Held,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { pool: Pool::new(1 << 20), room: Budget::new(1 << 30), held: Held::default() }
    }

    fn piece(&self, start: u64, bytes: &[u8]) -> Piece {
        let memory = self.room.try_take(memory_of(bytes.len() as u64)).expect("there is space");
        Piece::new(start, self.pool.copy_of(bytes).freeze(), Rc::new(memory))
    }

    /// Adds `len` bytes of `fill`, in spans of 100 bytes.
    fn put(&mut self, start: u64, len: usize, fill: u8) -> bool {
        let piece = self.piece(start, &vec![fill; len]);
        let span = start / 100 * 100;
        self.held.put(span..span + 100, piece, Time(start))
    }

    /// A reader's view of a range over members full of zeros.
    fn read(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let mut pieces = Vec::new();
        self.held.look(&range, &mut pieces);
        for piece in &pieces {
            let at = (piece.start - range.start) as usize;
            bytes[at..at + piece.bytes.len()].copy_from_slice(&piece.bytes);
        }
        bytes
    }
}

#[test]
fn newer_bytes_trim_older_ones_and_memory_goes_with_the_last_piece() {
    let mut map = Fixture::new();
    map.put(0, 30, 1);
    assert_eq!(map.room.used(), 4096);
    map.put(10, 10, 2);
    assert_eq!(map.read(0..40), [[1; 10], [2; 10], [1; 10], [0; 10]].concat());
    assert_eq!(map.room.used(), 2 * 4096, "both parts of the first hold its memory");
    map.put(0, 10, 3);
    assert_eq!(map.room.used(), 3 * 4096);
    map.put(20, 10, 3);
    assert_eq!(map.room.used(), 3 * 4096, "the first is gone");
    map.put(0, 40, 4);
    assert_eq!((map.room.used(), map.held.open_memory()), (4096, 4096));
    assert_eq!(map.read(0..50), [[4; 40].as_slice(), &[0; 10]].concat());
}

#[test]
fn a_span_is_full_when_no_byte_is_missing() {
    let mut map = Fixture::new();
    assert!(!map.put(0, 50, 1));
    assert!(!map.put(60, 40, 1));
    assert!(!map.put(40, 15, 1));
    assert!(map.put(50, 10, 1));
}

#[test]
fn frozen_blocks_lie_under_newer_ones_until_they_have_left() {
    let mut map = Fixture::new();
    map.put(0, 20, 1);
    let (first, range) = map.held.freeze(0).expect("one file is open");
    assert_eq!(range, 0..20);
    assert!(map.held.freeze(0).is_none());
    map.put(10, 20, 2);
    let (second, range) = map.held.freeze(0).expect("another is open");
    assert_eq!(range, 10..30);
    map.put(15, 5, 3);
    let all = [[1; 10].as_slice(), &[2; 5], &[3; 5], &[2; 10]].concat();
    assert_eq!(map.read(0..30), all);
    assert!(map.held.is_leaving_before(map.held.next()));
    map.held.left(first);
    assert_eq!(map.read(0..30), [[0; 10].as_slice(), &[2; 5], &[3; 5], &[2; 10]].concat());
    map.held.left(second);
    assert!(!map.held.is_leaving());
    assert_eq!(map.read(0..30), [[0; 15].as_slice(), &[3; 5], &[0; 10]].concat());
    assert!(!map.held.is_empty());
}

#[test]
fn stuck_blocks_are_read_until_newer_bytes_are_on_the_members() {
    let mut map = Fixture::new();
    map.put(0, 20, 1);
    map.put(100, 20, 1);
    let (first, _) = map.held.freeze(0).expect("open");
    map.held.stick(first);
    assert!(!map.held.is_leaving(), "no request waits for stuck blocks");
    assert_eq!(map.read(0..20), [1; 20]);
    map.put(5, 5, 2);
    let (second, _) = map.held.freeze(0).expect("open");
    map.held.left(second);
    assert_eq!(map.read(0..20), [[1; 5], [0; 5], [1; 5], [1; 5]].concat(), "members show there");
    map.held.overtaken(&(0..200));
    assert_eq!(map.read(0..20), [0; 20]);
    assert_eq!(map.read(100..120), [1; 20], "the open member is newer");
    assert_eq!(map.room.used(), 4096);
}

#[test]
fn the_oldest_comes_first_and_overlaps_are_found() {
    let mut map = Fixture::new();
    map.put(300, 10, 1);
    map.put(0, 10, 1);
    assert_eq!(map.held.oldest(), Some((300, Time(300))));
    assert_eq!(map.held.open_within(&(5..310)), Some(300));
    assert_eq!(map.held.open_within(&(5..300)), Some(0));
    assert_eq!(map.held.open_within(&(10..300)), None);
    map.held.freeze(300);
    assert_eq!(map.held.oldest(), Some((0, Time(0))));
}

#[test]
fn cover_sees_gaps() {
    let map = Fixture::new();
    let pieces = |ranges: &[Range<u64>]| -> Vec<Piece> {
        let one = |r: &Range<u64>| map.piece(r.start, &vec![0; (r.end - r.start) as usize]);
        ranges.iter().map(one).collect()
    };
    let mut order = Vec::new();
    assert!(cover(&pieces(&[5..10, 0..5]), &(0..10), &mut order));
    assert!(cover(&pieces(&[3..10, 0..5]), &(0..10), &mut order));
    assert!(!cover(&pieces(&[0..9, 0..9]), &(0..10), &mut order));
    assert!(!cover(&pieces(&[0..4, 0..4, 5..10]), &(0..10), &mut order));
    assert!(!cover(&pieces(&[1..10, 1..10]), &(0..10), &mut order));
}

#[test]
fn any_order_of_writes_and_write_outs_reads_as_an_array_does() {
    let mut state = 1_u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % limit
    };
    let mut map = Fixture::new();
    let (mut members, mut whole) = ([0_u8; 400], [0_u8; 400]);
    let mut queue: Vec<Leaving> = Vec::new();
    for round in 0..20_000_u64 {
        let at = below(400);
        match below(4) {
            0 | 1 => {
                let len = (1 + below(30)).min(100 - at % 100) as usize;
                let fill = round as u8;
                map.put(at, len, fill);
                whole[at as usize..at as usize + len].fill(fill);
            }
            2 => queue.extend(map.held.freeze(at / 100 * 100).map(|(name, _)| name)),
            _ if !queue.is_empty() => {
                // In order within a span, in any order between spans.
                let pick = queue[below(queue.len() as u64) as usize];
                let first = queue.iter().position(|name| name.span == pick.span);
                let name = queue.remove(first.expect("picked from there"));
                let (mut next, mut list) = (0, Vec::new());
                while let Some(run) = map.held.run(name, next, &mut list) {
                    next += list.len();
                    let bytes: Vec<u8> = list.drain(..).flat_map(|part| part.to_vec()).collect();
                    members[run.start as usize..run.end as usize].copy_from_slice(&bytes);
                }
                map.held.left(name);
            }
            _ => {}
        }
        let (start, end) = (below(400), below(401));
        let range = start.min(end)..end.max(start);
        let mut seen = members[range.start as usize..range.end as usize].to_vec();
        let mut pieces = Vec::new();
        map.held.look(&range, &mut pieces);
        for piece in pieces {
            let at = (piece.start - range.start) as usize;
            seen[at..at + piece.bytes.len()].copy_from_slice(&piece.bytes);
        }
        assert_eq!(seen, whole[range.start as usize..range.end as usize], "round {round}");
    }
    map.held = Held::default();
    assert_eq!(map.room.used(), 0);
}
