//! Write amplification: how many pages flash programs for a page that the host writes.
//!
//! Flash erases blocks of pages, and writes a page only once. To reuse a block, the disk first
//! copies its valid pages elsewhere. The fewer spare pages there are, the more valid pages each
//! block still has.

use std::collections::VecDeque;

/// Write amplification of uniform random writes, cleaned in the order of writing (Desnoyers,
/// SYSTOR 2012): `α / (α + W₀(−α·e^(−α)))` with α physical over logical pages.
///
/// # Panics
/// If there is no spare page.
pub fn fifo_amplification(physical_over_logical: f64) -> f64 {
    let alpha = physical_over_logical;
    assert!(alpha > 1.0, "without spare pages nothing can be cleaned");
    alpha / (alpha + lambert_w(-alpha * (-alpha).exp()))
}

/// The principal branch of `w·e^w = x`, for `−1/e < x < 0`, by Newton's method.
fn lambert_w(x: f64) -> f64 {
    // From 0 the iteration descends to the root without passing it.
    let mut w = 0.0f64;
    for _ in 0..100 {
        let step = (w * w.exp() - x) / (w.exp() * (1.0 + w));
        w -= step;
        if step.abs() < 1e-14 {
            break;
        }
    }
    w
}

/// Which block is cleaned next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cleaning {
    /// The block that was written first.
    Fifo,
    /// The block with the fewest valid pages.
    Greedy,
}

/// Free blocks beside the open one, below which the disk cleans.
const RESERVE: usize = 2;

/// No page.
const NONE: u32 = u32::MAX;

/// The translation of a small flash disk, page by page.
#[derive(Clone, Debug)]
pub struct Translation {
    cleaning: Cleaning,
    block_pages: u32,
    /// Physical page of each logical one.
    places: Vec<u32>,
    /// Logical page of each physical one, or [`NONE`].
    owners: Vec<u32>,
    /// Valid pages of each block.
    valid: Vec<u32>,
    /// Full blocks, first written first.
    full: VecDeque<u32>,
    free: VecDeque<u32>,
    open: u32,
    next: u32,
    programs: u64,
}

impl Translation {
    /// An empty disk of `blocks` blocks that shows `logical` pages.
    ///
    /// # Panics
    /// If fewer than three blocks are spare: cleaning needs two beside the open one.
    pub fn new(cleaning: Cleaning, blocks: u32, block_pages: u32, logical: u32) -> Translation {
        assert!(logical <= (blocks - 3) * block_pages, "three blocks must be spare");
        Translation {
            cleaning,
            block_pages,
            places: vec![NONE; logical as usize],
            owners: vec![NONE; (blocks * block_pages) as usize],
            valid: vec![0; blocks as usize],
            full: VecDeque::new(),
            free: (1..blocks).collect(),
            open: 0,
            next: 0,
            programs: 0,
        }
    }

    /// The host writes a page. Gives the number of programs that it took.
    pub fn write(&mut self, page: u32) -> u64 {
        let before = self.programs;
        if self.next == self.block_pages {
            self.open_block();
        }
        self.program(page);
        self.programs - before
    }

    /// Programs of all writes so far.
    pub fn programs(&self) -> u64 {
        self.programs
    }

    fn program(&mut self, page: u32) {
        let old = std::mem::replace(
            &mut self.places[page as usize],
            self.open * self.block_pages + self.next,
        );
        if old != NONE {
            self.owners[old as usize] = NONE;
            self.valid[(old / self.block_pages) as usize] -= 1;
        }
        self.owners[self.places[page as usize] as usize] = page;
        self.valid[self.open as usize] += 1;
        self.next += 1;
        self.programs += 1;
    }

    /// Opens a free block; cleans if few are left.
    fn open_block(&mut self) {
        loop {
            self.full.push_back(self.open);
            self.open = self.free.pop_front().expect("a block is free");
            self.next = 0;
            if self.free.len() >= RESERVE {
                return;
            }
            self.clean();
            if self.next < self.block_pages {
                return;
            }
        }
    }

    /// Copies the valid pages of a block to the open one, and erases it.
    fn clean(&mut self) {
        let index = match self.cleaning {
            Cleaning::Fifo => 0,
            Cleaning::Greedy => {
                let valid = |&index: &usize| self.valid[self.full[index] as usize];
                (0..self.full.len()).min_by_key(valid).expect("a full block")
            }
        };
        let block = self.full.remove(index).expect("a full block");
        for page in block * self.block_pages..(block + 1) * self.block_pages {
            let owner = self.owners[page as usize];
            if owner != NONE {
                self.program(owner);
            }
        }
        self.free.push_back(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Rng;

    /// Spare in percent; formula, simulated FIFO, simulated greedy (facts of the lab, 1.7).
    const TABLE: [(u32, f64, f64, f64); 5] = [
        (7, 7.82, 8.53, 7.61),
        (15, 4.02, 4.17, 3.93),
        (28, 2.48, 2.53, 2.46),
        (50, 1.72, 1.73, 1.70),
        (100, 1.26, 1.26, 1.24),
    ];

    #[test]
    fn the_formula_gives_the_table() {
        for (spare, expected, ..) in TABLE {
            let found = fifo_amplification(1.0 + f64::from(spare) / 100.0);
            assert!((found - expected).abs() < 0.005, "{spare} %: {found}");
        }
    }

    fn simulated(cleaning: Cleaning, spare: u32) -> f64 {
        let (blocks, pages) = (512, 64);
        let logical = blocks * pages * 100 / (100 + spare);
        let mut disk = Translation::new(cleaning, blocks, pages, logical);
        (0..logical).for_each(|page| _ = disk.write(page));
        let mut rng = Rng::stream(u64::from(spare), "flash", 0);
        let mut write = |count: u64| {
            let before = disk.programs();
            (0..count).for_each(|_| _ = disk.write(rng.below(u64::from(logical)) as u32));
            (disk.programs() - before) as f64 / count as f64
        };
        // The order of the first pass must be forgotten.
        write(300_000);
        write(500_000)
    }

    #[test]
    fn simulated_cleaning_gives_the_table() {
        for (spare, _, fifo, greedy) in TABLE {
            for (cleaning, expected) in [(Cleaning::Fifo, fifo), (Cleaning::Greedy, greedy)] {
                let found = simulated(cleaning, spare);
                println!("{spare} %, {cleaning:?}: {found:.2}, expected {expected}");
                let off = (found / expected - 1.0).abs();
                assert!(off < 0.05, "{spare} %, {cleaning:?}: {found:.3}, expected {expected}");
            }
        }
    }

    #[test]
    fn a_fresh_disk_does_not_amplify_until_the_spare_is_used() {
        let mut disk = Translation::new(Cleaning::Greedy, 64, 16, 800);
        let mut rng = Rng::stream(1, "fresh", 0);
        for write in 0..62 * 16 {
            assert_eq!(disk.write(rng.below(800) as u32), 1, "write {write}");
        }
        let later: u64 = (0..1000).map(|_| disk.write(rng.below(800) as u32)).sum();
        assert!(later > 1500, "{later}");
    }
}
