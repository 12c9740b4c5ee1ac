//! A walk through a file system under a guess: checks that its table references are right.
//!
//! | file system | references |
//! |---|---|
//! | ext2, 3, 4 | group descriptor → inode table → directory → its first entry: its own number |
//! | XFS 5 | allocation group → inode tree with its own address → inodes with their own numbers |
//!
//! Each step is at another place in the array, so only the right order of the right disks works.
//!
//! Source: as [`super::signatures`].

use std::rc::Rc;

use layout::Family;

use crate::recover::pages::{PAGE, Pages};
use crate::recover::rows::Agreement;
use crate::recover::signatures::{Sign, big, little};
use crate::recover::slot_order::Order;
use crate::recover::{Hypothesis, signatures};

/// This many steps are enough evidence.
const MOST_STEPS: usize = 128;
/// This many failed steps without a good one: the guess is wrong.
const HOPELESS: usize = 4;
const MOST_GROUPS: u64 = 24;
const MOST_INODES: u64 = 256;

/// Reads the array under a guess.
pub(super) struct Walker<'a> {
    pub(super) pages: &'a Pages<'a>,
    pub(super) hypothesis: &'a Hypothesis,
    pub(super) order: &'a Order,
}

impl Walker<'_> {
    /// Bytes of the array within one page; `None` if their disk is missing.
    async fn bytes(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let page = self.page(at).await?;
        page.get((at % PAGE) as usize..)?.get(..len).map(<[u8]>::to_vec)
    }

    async fn page(&self, at: u64) -> Option<Rc<[u8]>> {
        let places = self.hypothesis.places(at);
        let sits = |(slot, offset): &(usize, u64)| Some((self.order[*slot]?, *offset));
        match places.iter().find_map(sits) {
            Some((disk, offset)) => self.pages.page(disk, offset).await,
            None => self.restored(at, places.first()?.1).await,
        }
    }

    /// A page of a missing disk, recovered from the row's parity.
    async fn restored(&self, at: u64, offset: u64) -> Option<Rc<[u8]>> {
        let geometry = &self.hypothesis.geometry;
        if geometry.family() != Family::Parity {
            return None;
        }
        let (stripe, missing, _) = geometry.stripe_of(at);
        let map = geometry.stripe(stripe);
        let others = (0..map.data_count()).filter(|&index| index != missing);
        let mut restored = vec![0; PAGE as usize];
        for slot in others.map(|index| map.data(index)).chain([map.p()]) {
            let page = self.pages.page(self.order[slot.index()]?, offset).await?;
            parity::best().xor_into(&[&page], &mut restored);
        }
        Some(restored.into())
    }

    /// Counts the signs that are in their places.
    pub(super) async fn signs(&self, signs: &[Sign]) -> Agreement {
        let mut found = Agreement::default();
        for sign in signs {
            let page = self.page(sign.at).await;
            page.iter().for_each(|page| found.count(sign.is_in(page)));
        }
        found
    }

    /// Counts the steps that lead to the expected table, from these starts in the array.
    pub(super) async fn walk(&self, starts: &[u64]) -> Agreement {
        let mut steps = Agreement::default();
        for &at in starts {
            let Some(page) = self.page(at).await else { continue };
            match signatures::start(&page).map(|start| start.name) {
                Some(signatures::EXT) => self.ext(at, &page[1024..2048], &mut steps).await,
                Some(signatures::XFS) => self.xfs(at, &page, &mut steps).await,
                _ => {}
            }
        }
        steps
    }

    async fn ext(&self, base: u64, superblock: &[u8], steps: &mut Agreement) {
        const META_BG: u64 = 0x10;
        const HAS_64BIT: u64 = 0x80;
        const INODES_UNUSED: u64 = 1;
        let number = |at: usize, size: usize| little(superblock, at, size);
        let (block, incompatible) = (1024_u64 << number(0x18, 4), number(0x60, 4));
        let (group_inodes, first) = (number(0x28, 4), number(0x14, 4));
        let inode_bytes = if number(0x4c, 4) == 0 { 128 } else { number(0x58, 2) };
        let wide = incompatible & HAS_64BIT != 0;
        let descriptor_bytes = if wide { number(0xfe, 2).clamp(64, 1024) } else { 32 };
        let high = if wide { number(0x150, 4) << 32 } else { 0 };
        let blocks = number(0x4, 4) | high;
        let sane = inode_bytes.is_power_of_two() && (128..=PAGE).contains(&inode_bytes);
        if incompatible & META_BG != 0 || !sane || group_inodes == 0 {
            return;
        }
        let groups = blocks.saturating_sub(first).div_ceil(number(0x20, 4).max(1));
        let step = groups.div_ceil(MOST_GROUPS).max(1);
        for group in (0..groups).step_by(step as usize) {
            let at = place(base, first + 1, block);
            let at = at.saturating_add(group.saturating_mul(descriptor_bytes));
            let Some(descriptor) = self.bytes(at, descriptor_bytes as usize).await else {
                continue;
            };
            let high = if wide { little(&descriptor, 0x28, 4) << 32 } else { 0 };
            let table = little(&descriptor, 0x8, 4) | high;
            if table == 0 || table >= blocks {
                steps.count(false);
            } else if little(&descriptor, 0x12, 2) & INODES_UNUSED == 0 {
                let used = group_inodes.saturating_sub(little(&descriptor, 0x1c, 2));
                for index in 0..used.min(MOST_INODES) {
                    let at = place(base, table, block).saturating_add(index * inode_bytes);
                    let inode = self.bytes(at, 128).await;
                    let directory = inode.and_then(|inode| first_block(&inode));
                    let number = group.wrapping_mul(group_inodes).wrapping_add(index + 1);
                    if let Some(directory) = directory {
                        let found = self.bytes(place(base, directory, block), 12).await;
                        found.iter().for_each(|entry| steps.count(is_itself(entry, number)));
                    } else if number == ROOT {
                        steps.count(false);
                    }
                    if is_enough(steps) {
                        return;
                    }
                }
            }
            if is_enough(steps) {
                return;
            }
        }
    }

    async fn xfs(&self, base: u64, superblock: &[u8], steps: &mut Agreement) {
        let number = |at: usize, size: usize| big(superblock, at, size);
        let (block, sector) = (number(4, 4), number(102, 2));
        let (group_blocks, groups) = (number(84, 4), number(88, 4));
        let (inodes_log, group_log) = (superblock[123], superblock[124]);
        if number(100, 2) & 0xf != 5 || inodes_log > 7 || group_log > 32 {
            return;
        }
        for group in 0..groups.min(MOST_GROUPS) {
            let start = base + group * group_blocks * block;
            let Some(agi) = self.bytes(start + 2 * sector, 32).await else { continue };
            let root = start + big(&agi, 20, 4) * block;
            let Some(tree) = self.page(root).await else { continue };
            let knows = tree.starts_with(b"IAB3") && place(base, big(&tree, 16, 8), 512) == root;
            steps.count(knows);
            let (level, records) = (big(&tree, 4, 2), big(&tree, 6, 2));
            let records = if knows && level == 0 { records.min(MOST_INODES) } else { 0 };
            for record in tree[56..].chunks_exact(16).take(records as usize) {
                let inode = big(record, 0, 4);
                let found = self.bytes(start + (inode >> inodes_log) * block, 160).await;
                let number = group << (inodes_log + group_log) | inode;
                let is_itself =
                    |found: &Vec<u8>| found.starts_with(b"IN") && big(found, 152, 8) == number;
                found.iter().for_each(|found| steps.count(is_itself(found)));
            }
            if is_enough(steps) {
                return;
            }
        }
    }
}

/// The byte offset of a file system block; past the end of any array if the number is impossible.
fn place(base: u64, number: u64, block: u64) -> u64 {
    number.saturating_mul(block).saturating_add(base)
}

fn is_enough(steps: &Agreement) -> bool {
    steps.tried >= MOST_STEPS || steps.tried >= HOPELESS && steps.agree == 0
}

/// The root directory's inode.
const ROOT: u64 = 2;

/// The first block of a directory, if this is the inode of one that has blocks.
fn first_block(inode: &[u8]) -> Option<u64> {
    const EXTENTS: u64 = 0x8_0000;
    const INLINE: u64 = 0x1000_0000;
    let (mode, flags, map) = (little(inode, 0, 2), little(inode, 0x20, 4), &inode[0x28..]);
    if mode & 0xf000 != 0x4000 || flags & INLINE != 0 {
        return None;
    }
    let block = if flags & EXTENTS == 0 {
        little(map, 0, 4)
    } else if little(map, 0, 2) == 0xf30a && little(map, 2, 2) > 0 && little(map, 6, 2) == 0 {
        little(map, 20, 4) | little(map, 18, 2) << 32
    } else {
        return None;
    };
    (block > 0).then_some(block)
}

/// True if this is the entry `.` of the directory with this number.
fn is_itself(entry: &[u8], number: u64) -> bool {
    little(entry, 0, 4) == number && entry[6] == 1 && entry[8] == b'.'
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use io::tasks::complete;
    use io::{Disk, MemDisk};
    use layout::{Geometry, Layout, Shape};

    use super::*;
    use crate::assemble::Candidate;
    use crate::commit::member_io::MemberIo;
    use crate::test_disk::Still;

    const BYTES: u64 = 256 << 10;

    /// Random numbers, with some plausible ones among them.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.0 >> 24
        }

        fn number(&mut self) -> u64 {
            const ODD: [u64; 10] = [0, 1, 2, 7, 32, 128, 512, 4096, 1 << 31, u64::MAX];
            match self.next() % 12 {
                choice @ 0..10 => ODD[choice as usize],
                _ => self.next(),
            }
        }

        /// Puts numbers into some of these fields: offset and size.
        fn corrupt(&mut self, page: &mut [u8], fields: &[(usize, usize)], is_big: bool) {
            for &(at, size) in fields {
                if self.next().is_multiple_of(3) {
                    let number = self.number();
                    let (big, little) = (number.to_be_bytes(), number.to_le_bytes());
                    let bytes = if is_big { &big[8 - size..] } else { &little[..size] };
                    page[at..at + size].copy_from_slice(bytes);
                }
            }
        }
    }

    fn ext(noise: &mut Noise) -> Vec<u8> {
        let mut page = vec![0; PAGE as usize];
        let sound: [(usize, &[u8]); 6] = [
            (0x4, &[0, 1]),
            (0x18, &[2]),
            (0x20, &[0, 1]),
            (0x28, &[64]),
            (0x38, &[0x53, 0xef]),
            (0x58, &[128, 0]),
        ];
        sound
            .iter()
            .for_each(|(at, bytes)| page[1024 + at..][..bytes.len()].copy_from_slice(bytes));
        let fields =
            [(0x4, 4), (0x18, 1), (0x20, 4), (0x28, 4), (0x4c, 4), (0x58, 2), (0x60, 4), (0xfe, 2)];
        noise.corrupt(&mut page[1024..], &fields, false);
        noise.corrupt(&mut page[1024..], &[(0x14, 4), (0x150, 4)], false);
        page
    }

    fn xfs(noise: &mut Noise) -> Vec<u8> {
        let mut page = vec![0; PAGE as usize];
        let sound: [(usize, &[u8]); 6] = [
            (0, b"XFSB"),
            (4, &[0, 0, 16, 0]),
            (84, &[0, 0, 0, 8]),
            (88, &[0, 0, 0, 8]),
            (100, &[0xb4, 0xa5]),
            (102, &[2, 0]),
        ];
        sound.iter().for_each(|(at, bytes)| page[*at..][..bytes.len()].copy_from_slice(bytes));
        let fields = [(4, 4), (84, 4), (88, 4), (102, 2), (123, 1), (124, 1)];
        noise.corrupt(&mut page, &fields, true);
        page
    }

    /// A page that passes as any table and leads anywhere.
    fn table(noise: &mut Noise) -> Vec<u8> {
        let mut page: Vec<u8> = (0..PAGE).map(|_| noise.number() as u8).collect();
        for inode in page.chunks_exact_mut(128) {
            inode[..2].copy_from_slice(&[0xed, 0x41]);
            inode[0x20..0x24].copy_from_slice(&[0, 0, 8, 0]);
            inode[0x28..0x30].copy_from_slice(&[0x0a, 0xf3, 1, 0, 4, 0, 0, 0]);
        }
        if noise.next().is_multiple_of(2) {
            page[..8].copy_from_slice(b"IAB3\0\0\xff\xff");
            let own = noise.next() % (BYTES / 512);
            page[16..24].copy_from_slice(&own.to_be_bytes());
        }
        page
    }

    #[test]
    fn numbers_that_make_no_sense_lead_nowhere_and_soon() {
        let (mut noise, mut walked) = (Noise(1), 0);
        let shape = Shape { layout: Layout::Raid1, chunk_bytes: 0, members: vec![BYTES; 2] };
        let geometry = Geometry::new(shape).unwrap();
        let hypothesis = Hypothesis { geometry, offset: 0, member_bytes: BYTES };
        let disk = Rc::new(MemDisk::new(BYTES));
        let disks = [Candidate::new(Rc::clone(&disk) as Rc<dyn Disk>, "disk")];
        for turn in 0..4000 {
            let begins = if turn % 2 == 0 { ext(&mut noise) } else { xfs(&mut noise) };
            disk.poke(0, &begins);
            let at = noise.next() % (BYTES / PAGE - 1) + 1;
            disk.poke(at * PAGE, &table(&mut noise));
            let reach = MemberIo::within(Rc::new(Still), Duration::from_secs(1));
            let pages = Pages::new(&reach, &disks);
            let order = vec![Some(0), None];
            let walker = Walker { pages: &pages, hypothesis: &hypothesis, order: &order };
            let steps = complete(walker.walk(&[0])).expect("the future completes");
            walked += usize::from(steps.tried > 0);
            assert!(steps.tried <= MOST_STEPS + MOST_INODES as usize, "{}", steps.tried);
        }
        assert!(walked > 200, "{walked}");
    }
}
