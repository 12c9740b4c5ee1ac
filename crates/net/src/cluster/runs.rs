//! Pieces that lie side by side on a member's disk, as one request to it.
//!
//! ```text
//!   asked     W7  R3·4  W8·9  R5  W10  W12
//!   requests  R3·4·5   W7·8·9·10   W12
//! ```
//!
//! Several clients, and one that cuts a long request, ask for pieces that continue each other. They
//! arrive together, so no piece waits for another. A long piece is written in parts.

use cluster::member::IoId;
use io::{Pool, Work};

/// Most member requests in one: the kernel takes no more buffers at once.
const MOST_ASKED: usize = 1024;
/// Most bytes of a read, if it has several.
const MOST_READ: u64 = 1 << 20;
/// Bytes of a write: a disk takes the next one while it writes this one. One request for all that
/// arrives together would be answered at once, and the disk would stand until the next ones come.
const MOST_WRITTEN: usize = 128 << 10;

/// Bytes of the disk that are read, or written with these.
pub(super) struct Asked {
    pub(super) io: IoId,
    pub(super) at: u64,
    pub(super) len: usize,
    pub(super) bytes: Option<Vec<u8>>,
}

/// Splits them into runs of one kind, each without gaps.
pub(super) fn runs(mut asked: Vec<Asked>) -> Vec<Vec<Asked>> {
    let kind = |asked: &Asked| asked.bytes.is_some();
    // Stable: two requests for one piece keep their order, in runs of their own.
    asked.sort_by_key(|asked| (kind(asked), asked.at));
    let mut runs: Vec<Vec<Asked>> = Vec::new();
    let goes_on = |run: &[Asked], next: &Asked| {
        let (first, last) = (run.first()?, run.last()?);
        let joined = kind(last) == kind(next) && last.at + last.len as u64 == next.at;
        let bytes = next.at + next.len as u64 - first.at.min(next.at);
        let most = if kind(next) { MOST_WRITTEN as u64 } else { MOST_READ };
        let few = run.len() < MOST_ASKED && bytes <= most;
        (joined && few).then_some(())
    };
    for next in asked {
        match runs.last_mut().filter(|run| goes_on(run, &next).is_some()) {
            Some(run) => run.push(next),
            None => runs.push(vec![next]),
        }
    }
    runs
}

/// The requests to the disk for a run, one after the other: a read, or writes.
pub(super) fn works(run: &[Asked], pool: &Pool) -> Vec<Work> {
    let copied = |bytes: &[u8]| pool.copy_of(bytes).freeze();
    match run {
        [Asked { bytes: Some(bytes), .. }] => {
            bytes.chunks(MOST_WRITTEN).map(|part| Work::Write(vec![copied(part)])).collect()
        }
        [Asked { bytes: None, .. }, ..] => {
            vec![Work::Read(run.iter().map(|asked| pool.take(asked.len)).collect())]
        }
        _ => {
            let pieces = run.iter().flat_map(|asked| &asked.bytes);
            vec![Work::Write(pieces.map(|bytes| copied(bytes)).collect())]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(number: u64, piece: u64, count: usize, write: bool) -> Asked {
        let len = 512 * count;
        let bytes = write.then(|| vec![0; len]);
        Asked { io: IoId(number), at: 512 * piece, len, bytes }
    }

    fn shown(asked: Vec<Asked>) -> Vec<Vec<u64>> {
        let numbers = |run: &Vec<Asked>| run.iter().map(|asked| asked.io.0).collect();
        runs(asked).iter().map(numbers).collect()
    }

    #[test]
    fn neighbours_of_one_kind_go_together() {
        let list = [
            (7, 1, true),
            (3, 2, false),
            (8, 2, true),
            (5, 1, false),
            (10, 1, true),
            (12, 1, true),
            (8, 2, true),
        ];
        let list = (0..)
            .zip(list)
            .map(|(number, (piece, count, write))| asked(number, piece, count, write));
        assert_eq!(shown(list.collect()), [vec![1, 3], vec![0, 2], vec![6, 4], vec![5]]);
    }

    #[test]
    fn runs_are_bounded() {
        let lengths = |asked| shown(asked).iter().map(Vec::len).collect::<Vec<_>>();
        let many = (0..MOST_ASKED as u64 + 1).map(|piece| asked(piece, piece, 1, false));
        assert_eq!(lengths(many.collect()), [MOST_ASKED, 1]);
        for (most, write) in [(MOST_READ as usize, false), (MOST_WRITTEN, true)] {
            let half = most / 1024;
            let long = (0..3).map(|number| asked(number, number * half as u64, half, write));
            assert_eq!(lengths(long.collect()), [2, 1]);
            let longer =
                (0..2).map(|number| asked(number, number * 4 * half as u64, 4 * half, write));
            assert_eq!(lengths(longer.collect()), [1, 1]);
        }
    }

    #[test]
    fn a_long_piece_is_written_in_parts() {
        let lengths = |pieces: usize, write| {
            let works = works(&[asked(0, 0, pieces, write)], &Pool::new(0));
            works.iter().map(|work| work.len() as usize).collect::<Vec<_>>()
        };
        let most = MOST_WRITTEN / 512;
        assert_eq!(lengths(most - 1, true), [MOST_WRITTEN - 512]);
        assert_eq!(lengths(most, true), [MOST_WRITTEN]);
        assert_eq!(lengths(most + 1, true), [MOST_WRITTEN, 512]);
        assert_eq!(lengths(most + 1, false), [MOST_WRITTEN + 512]);
    }
}
