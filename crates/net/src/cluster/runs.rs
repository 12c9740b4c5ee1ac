//! Pieces that lie side by side on a member's disk, as one request to it.
//!
//! ```text
//!   asked     W7  R3  W8  R4  W9  W12
//!   requests  R3·R4   W7·W8·W9   W12
//! ```
//!
//! A client asks for each block by itself: of a long request a member has many small pieces. They
//! arrive together, so no piece waits for another.

use cluster::member::IoId;

/// Most pieces of a request: the kernel takes no more buffers at once.
const MOST_PIECES: usize = 1024;
/// Most bytes of a request.
const MOST_BYTES: usize = 1 << 20;

/// A piece that is read, or written with these bytes.
pub(super) struct Asked {
    pub(super) io: IoId,
    pub(super) block: u64,
    pub(super) bytes: Option<Vec<u8>>,
}

/// Splits pieces of this length into runs of one kind, each of consecutive blocks.
pub(super) fn runs(mut asked: Vec<Asked>, piece_bytes: usize) -> Vec<Vec<Asked>> {
    let most = MOST_PIECES.min(MOST_BYTES / piece_bytes.max(1)).max(1);
    let kind = |asked: &Asked| asked.bytes.is_some();
    // Stable: two requests for one block keep their order, in runs of their own.
    asked.sort_by_key(|asked| (kind(asked), asked.block));
    let mut runs: Vec<Vec<Asked>> = Vec::new();
    let goes_on = |last: &Asked, next: &Asked| {
        kind(last) == kind(next) && last.block.checked_add(1) == Some(next.block)
    };
    for next in asked {
        let run = runs.last_mut().filter(|run| run.len() < most);
        match run.filter(|run| run.last().is_some_and(|last| goes_on(last, &next))) {
            Some(run) => run.push(next),
            None => runs.push(vec![next]),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_kind_go_together() {
        let asked = |number: u64, block: u64, write: bool| Asked {
            io: IoId(number),
            block,
            bytes: write.then(|| vec![0; 512]),
        };
        let list = [(7, true), (3, false), (8, true), (4, false), (9, true), (12, true), (8, true)];
        let list = (0..).zip(list).map(|(number, (block, write))| asked(number, block, write));
        let shown = |asked: Vec<Asked>| -> Vec<Vec<u64>> {
            let numbers = |run: &Vec<Asked>| run.iter().map(|asked| asked.io.0).collect();
            runs(asked, 512).iter().map(numbers).collect()
        };
        assert_eq!(shown(list.collect()), [vec![1, 3], vec![0, 2], vec![6, 4], vec![5]]);
        let long = (0..MOST_PIECES as u64 + 1).map(|block| asked(block, block, true)).collect();
        assert_eq!(shown(long).iter().map(Vec::len).collect::<Vec<_>>(), [MOST_PIECES, 1]);
        let large = (0..3).map(|block| asked(block, block, false)).collect();
        assert_eq!(runs(large, MOST_BYTES).len(), 3);
        let last = [asked(0, u64::MAX, true), asked(1, 0, true)].into();
        assert_eq!(shown(last), [[1], [0]]);
    }
}
