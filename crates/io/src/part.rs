//! A part of a disk, as a disk of its own: a partition inside an image.

use std::ops::Range;
use std::rc::Rc;

use crate::completion::Completion;
use crate::disk::{Disk, Done, Limits, Op, Work};
use crate::error::Error;

/// A run of another disk's bytes. Everything is passed on, further back on the disk.
pub struct Part {
    whole: Rc<dyn Disk>,
    range: Range<u64>,
}

impl Part {
    /// These bytes of the disk; `None` if they do not all lie on it, or it cannot be asked for them
    /// since they do not begin and end at its blocks.
    pub fn new(whole: Rc<dyn Disk>, range: Range<u64>) -> Option<Part> {
        let limits = whole.limits();
        let mask = u64::from(limits.logical_block) - 1;
        let fits = range.start <= range.end && range.end <= limits.bytes;
        (fits && (range.start | range.end) & mask == 0).then_some(Part { whole, range })
    }
}

impl Disk for Part {
    fn submit(&self, mut op: Op) -> Completion<Done> {
        // A flush has no place.
        if !matches!(op.work, Work::Flush) {
            if let Some(fault) = self.limits().check(&op) {
                let error = Error::refused(format!("a partition, offset {}: {fault}", op.offset));
                return Completion::ready(Done::failed(op.work, error));
            }
            op.offset += self.range.start;
        }
        self.whole.submit(op)
    }

    /// Those of the whole disk, but for the size.
    fn limits(&self) -> Limits {
        Limits { bytes: self.range.end - self.range.start, ..self.whole.limits() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::complete;
    use crate::{ErrorKind, MemDisk, Pool};

    #[test]
    fn a_part_is_the_bytes_that_it_names_and_no_others() {
        let (whole, pool) = (Rc::new(MemDisk::new(1 << 20)), Pool::new(1 << 20));
        let part =
            Part::new(Rc::clone(&whole) as _, 65_536..131_072).expect("the range lies on the disk");
        assert_eq!(part.limits().bytes, 65_536);
        let run = |op| complete(part.submit(op)).expect("a memory disk completes at once");
        run(Op::write(512, pool.copy_of(&[7; 1024]).freeze())).result.expect("in range");
        let mut found = [0; 1024];
        whole.peek(65_536 + 512, &mut found);
        assert_eq!(found, [7; 1024]);
        assert_eq!(&run(Op::read(512, pool.take(1024))).into_buf()[..], &found[..]);
        run(Op::flush()).result.expect("the member has no slot");
        let beyond = run(Op::read(65_536 - 512, pool.take(1024)));
        assert_eq!(
            beyond.result.expect_err("that is another partition").kind(),
            ErrorKind::Refused
        );
    }

    #[test]
    fn a_part_lies_on_its_disk_at_its_blocks() {
        let whole: Rc<dyn Disk> = Rc::new(MemDisk::new(1 << 20));
        for range in [512..(1 << 20) + 512, 100..512, 0..1000] {
            assert!(Part::new(Rc::clone(&whole), range.clone()).is_none(), "{range:?}");
        }
        assert!(Part::new(whole, 0..1 << 20).is_some());
    }
}
