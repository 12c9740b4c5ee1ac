//! The findings of background work: all are counted, the first ones are listed.

use layout::Slot;

/// The most findings, and the most losses, that are listed.
const LISTED: usize = 1000;

/// Findings grow on several members at once: this many of the last ones may be extended.
const GROWING: usize = 8;

/// The findings of one range of background work.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Bytes read from and written to all members.
    pub bytes: u64,
    /// Bytes of the array that were compared with their redundancy.
    pub compared_bytes: u64,
    /// Places where members contradict each other; complete even where the list is not.
    pub mismatches: u64,
    /// Mismatches that have been corrected.
    pub repaired: u64,
    /// The first 1000 of these places.
    pub findings: Vec<Finding>,
    /// Bytes of members that were changed to agree.
    pub repaired_bytes: u64,
    /// Repaired bytes for which no member was identified as wrong: the members agree now, but
    /// possibly on the wrong contents.
    pub guessed_bytes: u64,
    /// Bytes of the array that could not be recovered.
    pub lost_bytes: u64,
    /// The first 1000 such ranges of the array, as (offset, bytes).
    pub lost: Vec<(u64, u64)>,
}

/// A place where members contradict each other: a run of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The first array byte concerned: of the wrong block if that is data, else of the row.
    pub array_offset: u64,
    /// Offset from the start of the member's data: on the wrong member, or on the first member
    /// concerned if none is identified.
    pub member_offset: u64,
    /// The same place, counted from the start of the member's disk.
    pub disk_offset: u64,
    /// How many bytes of a member.
    pub len: u64,
    /// The wrong member, if it is identified.
    pub culprit: Option<Slot>,
    /// The place was written so that the members agree again.
    pub repaired: bool,
}

impl Finding {
    /// Extends this finding by `next` if that one continues it.
    fn join(&mut self, next: &Finding) -> bool {
        let goes_on = (self.culprit, self.repaired) == (next.culprit, next.repaired)
            && self.array_offset + self.len == next.array_offset
            && self.disk_offset + self.len == next.disk_offset;
        if goes_on {
            self.len += next.len;
        }
        goes_on
    }
}

impl Report {
    /// Records that members contradict each other.
    pub(crate) fn find(&mut self, finding: Finding) {
        if self.findings.iter_mut().rev().take(GROWING).any(|last| last.join(&finding)) {
            return;
        }
        self.mismatches += 1;
        self.repaired += u64::from(finding.repaired);
        if self.findings.len() < LISTED {
            self.findings.push(finding);
        }
    }

    /// Records that a range of the array could not be recovered.
    pub(super) fn lose(&mut self, offset: u64, len: u64) {
        self.lost_bytes += len;
        if self.lost.len() < LISTED {
            self.lost.push((offset, len));
        }
    }

    /// Adds the findings of another range.
    pub(crate) fn absorb(&mut self, other: Report) {
        self.bytes += other.bytes;
        self.compared_bytes += other.compared_bytes;
        self.repaired_bytes += other.repaired_bytes;
        self.guessed_bytes += other.guessed_bytes;
        let unlisted = other.mismatches - other.findings.len() as u64;
        let listed = other.findings.iter().filter(|finding| finding.repaired).count() as u64;
        let unlisted_mended = other.repaired - listed;
        other.findings.into_iter().for_each(|finding| self.find(finding));
        self.mismatches += unlisted;
        self.repaired += unlisted_mended;
        let listed: u64 = other.lost.iter().map(|&(_, len)| len).sum();
        other.lost.into_iter().for_each(|(offset, len)| self.lose(offset, len));
        self.lost_bytes += other.lost_bytes - listed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Finding {
        Finding {
            array_offset: offset,
            member_offset: offset,
            disk_offset: offset + 4096,
            len: 512,
            culprit: None,
            repaired: false,
        }
    }

    #[test]
    fn adjacent_findings_are_joined_and_all_are_counted() {
        let mut whole = Report::default();
        for unit in 0..4u64 {
            let mut part = Report::default();
            (0..1500).for_each(|i| part.find(at((unit * 1500 + i) * 1024)));
            whole.absorb(part);
        }
        assert_eq!((whole.mismatches, whole.findings.len()), (6000, LISTED));
        let (mut left, mut right) = (Report::default(), Report::default());
        left.find(at(0));
        left.find(at(512));
        right.find(at(1024));
        right.find(Finding { culprit: Some(Slot(1)), ..at(1536) });
        left.absorb(right);
        assert_eq!((left.mismatches, left.findings[0].len), (2, 1536));
    }

    #[test]
    fn a_place_that_was_mended_is_counted_apart_from_one_that_was_not() {
        let mut whole = Report::default();
        for unit in 0..2u64 {
            let mut part = Report::default();
            for index in 0..600 {
                let place = at((unit * 1200 + 2 * index) * 1024);
                part.find(Finding { repaired: true, ..place });
                part.find(Finding { array_offset: place.array_offset + 512, ..place });
            }
            whole.absorb(part);
        }
        assert_eq!((whole.mismatches, whole.repaired), (2400, 1200));
    }
}
