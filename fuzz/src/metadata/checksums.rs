//! Pages of the checksum table: any bytes as a page, and operations on its entries.
//!
//! ```text
//!   | orders, array, slot, page (1 + 1 + 1 + 8) | orders (24 each) … | the page's bytes |
//! ```
//!
//! Promises checked: an entry reads back, and nothing else in the page changes; a changed or
//! misplaced block mismatches; generations grow with writes, skip 0, and identify lost writes.
//! Sums, weights and the bytes of a page are computed here a second time, from the document of the
//! format.

use std::sync::LazyLock;

use layout::private::checksums::{self, Behind, ChecksumEntry, Seed};
use layout::{MAX_SLOTS, Slot};

use super::{CRC, TARGET, Uuid, number};
use crate::choice::Choices;
use crate::trail::tell;
use crate::{Target, Trail};

/// Pages of the checksum table.
pub const PRIVATE_CHECKSUMS: Target = Target {
    name: "private_checksums",
    what: "checksum table: entries as they were put, what fits where, who has lost writes",
    body: table,
    seeds,
    words: &[&[1, 0, 0, 0, 0, 0, 0, 0], &[0xff; 4], &[0x89, 0x41, 0xf9, 0x98]],
    most_bytes: HEAD_BYTES + MOST_ORDERS * ORDER_BYTES + PAGE_BYTES + 64,
    ..TARGET
};

const HEAD_BYTES: usize = 11;
const ORDER_BYTES: usize = 24;
const MOST_ORDERS: usize = 15;
const PAGE_BYTES: usize = 4096;
const ENTRIES: usize = 512;
const BLOCK_BYTES: usize = 4096;
/// This many lost writes are identified.
const MOST_LOST: u32 = 256;
/// Pages of a member: its size is a number of bytes.
const MOST_PAGES: u64 = 1 << 42;

/// The primes above [`MOST_LOST`], by data index.
static WEIGHTS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let is_prime = |number: &u32| (2..*number).all(|divisor| !number.is_multiple_of(divisor));
    (MOST_LOST + 1..).filter(is_prime).take(MAX_SLOTS).collect()
});

/// The effect of a command.
type Saw = [bool; 3];

/// A page, the bytes that it must have, and where it belongs.
struct Table {
    array: [u8; 16],
    seed: Seed,
    slot: Slot,
    number: u64,
    page: Vec<u8>,
    due: Vec<u8>,
    /// How the last two orders went: with all of them each input would have a trail of its own.
    lately: [(usize, Saw); 2],
}

fn table(bytes: &[u8]) -> Trail {
    let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return Trail::new() };
    let count = usize::from(head[0]) % (MOST_ORDERS + 1);
    let (orders, page) = rest.split_at(rest.len().min(count * ORDER_BYTES));
    let mut page = page.to_vec();
    page.resize(PAGE_BYTES, 0);
    let array = [head[1]; 16];
    let mut table = Table {
        array,
        seed: Seed::new(&Uuid(array), CRC),
        slot: Slot::new(usize::from(head[2]) % MAX_SLOTS),
        number: number(head, 3, 8) % MOST_PAGES,
        due: page.clone(),
        page,
        lately: [(0, [false; 3]); 2],
    };
    let mut trail = Trail::new();
    trail.note(table.look());
    for order in orders.chunks(ORDER_BYTES) {
        table.order(Choices::new(order));
    }
    trail.note((table.look(), table.lately));
    trail
}

impl Table {
    fn order(&mut self, mut choices: Choices<'_>) {
        let kind = choices.below(8);
        let index = (usize::from(choices.byte()) << 8 | usize::from(choices.byte())) % ENTRIES;
        let saw = match kind {
            0 => self.write(index, &mut choices),
            1 => self.place_any(index, &mut choices),
            2 => self.age(index, choices.word() as u32),
            3 => self.judge_any(index, &mut choices),
            4 => self.lose(index, &mut choices),
            5 => self.live(index, &mut choices),
            6 => cut(&mut choices),
            _ => self.fail(),
        };
        tell(|| format!("order {kind}, entry {index}: {saw:?}"));
        self.lately = [self.lately[1], (kind, saw)];
    }

    /// Every entry matches the bytes. True if there are known entries.
    fn look(&self) -> bool {
        let mut known = false;
        for index in 0..ENTRIES {
            let (checksum, generation) = self.stored(index);
            let entry = ChecksumEntry::get(&self.page, index);
            assert_eq!((entry.checksum, entry.generation), (checksum, generation), "entry {index}");
            assert_eq!(entry.is_known(), generation != 0 || checksum == 0);
            assert!(
                entry.is_known() || !entry.fits(checksum, checksum),
                "an unknown entry matches"
            );
            known |= entry.is_known();
        }
        known
    }

    fn stored(&self, index: usize) -> (u32, u32) {
        let field = |at| number(&self.due, at, 4) as u32;
        (field(8 * index), field(8 * index + 4))
    }

    fn put(&mut self, index: usize, entry: ChecksumEntry) {
        entry.put(&mut self.page, index);
        self.due[8 * index..][..4].copy_from_slice(&entry.checksum.to_le_bytes());
        self.due[8 * index + 4..][..4].copy_from_slice(&entry.generation.to_le_bytes());
        assert!(self.page == self.due, "entry {index} changes another one");
        assert_eq!(ChecksumEntry::get(&self.page, index), entry, "read as it was put");
    }

    fn block(&self, index: usize) -> u64 {
        let block = self.number * ENTRIES as u64 + index as u64;
        assert_eq!(checksums::place(block), (self.number, index));
        block
    }

    /// The checksum of a block according to the format.
    fn checksum(&self, slot: Slot, block: u64, crc: u32) -> u32 {
        let place = [&[slot.0, 0, 0, 0][..], &block.to_le_bytes()].concat();
        let due = CRC(CRC(0, &self.array), &place) ^ crc;
        assert_eq!(self.seed.checksum(slot, block, crc), due, "block {block} of {slot:?}");
        due
    }

    /// A block is written, and rots, and is read at another place.
    fn write(&mut self, index: usize, choices: &mut Choices<'_>) -> Saw {
        let (slot, block) = (self.slot, self.block(index));
        let fill = choices.pick(&[0, 0, 0xff, 0x5a]);
        let mut bytes = [fill; BLOCK_BYTES];
        bytes[usize::from(choices.byte()) * 16] ^= choices.byte();
        let crc = CRC(0, &bytes);
        let checksum = self.checksum(slot, block, crc);
        bytes[usize::from(choices.byte()) * 16 + 15] ^= choices.byte().max(1);
        let other = CRC(0, &bytes);
        let rotten = |entry: ChecksumEntry| entry.fits(other, self.checksum(slot, block, other));

        let old = ChecksumEntry::get(&self.page, index);
        let fitted = old.fits(crc, checksum);
        assert!(!fitted || !rotten(old), "what was there fits, and so does what is not");
        let ages = choices.pick(&[1, 1, 257, u32::MAX]);
        let new = old.next(checksum, ages);
        check_next(old, new, checksum, ages);
        assert!(new.fits(crc, checksum) && !rotten(new), "{new:?}");
        let damaged = ChecksumEntry { checksum: checksum ^ 1 << choices.below(32), ..new };
        assert!(!damaged.fits(crc, checksum), "{damaged:?}");
        self.put(index, new);
        self.misplace(new, block, crc, choices);
        [fitted, old.is_known(), new.generation < old.generation]
    }

    /// The same bytes at another place, or in another array.
    fn misplace(&self, entry: ChecksumEntry, block: u64, crc: u32, choices: &mut Choices<'_>) {
        let (kind, aside) = (choices.below(4), choices.word());
        let (slots, blocks) = match kind {
            0 => (1 + aside as u8 % 127, 0),
            1 => (0, 1 + aside % 511),
            2 => (aside as u8 % 128, (aside >> 8) % (1 << 50)),
            _ => {
                let mut array = self.array;
                array[aside as usize % 16] ^= (aside >> 8) as u8 | 1;
                let checksum = Seed::new(&Uuid(array), CRC).checksum(self.slot, block, crc);
                return assert!(!entry.fits(crc, checksum), "another array's: {entry:?}");
            }
        };
        let detected = is_detected(slots, blocks);
        let there = self.checksum(Slot(self.slot.0 ^ slots), block ^ blocks, crc);
        assert!(!detected || !entry.fits(crc, there), "{entry:?} fits {slots} and {blocks} away");
    }

    /// An entry with arbitrary or special values.
    fn place_any(&mut self, index: usize, choices: &mut Choices<'_>) -> Saw {
        let (kind, any) = (choices.below(4), choices.word());
        let (checksum, generation) = (any as u32, (any >> 32) as u32);
        let entry = match kind {
            0 => ChecksumEntry::ZEROS,
            1 => ChecksumEntry::UNKNOWN,
            2 => ChecksumEntry { checksum, generation: u32::MAX },
            _ => ChecksumEntry { checksum, generation },
        };
        self.put(index, entry);
        let mut block = [0; BLOCK_BYTES];
        let zeros = CRC(0, &block);
        let at_rest = self.seed.checksum_of_zeros(self.slot, self.block(index));
        assert_eq!(at_rest, self.checksum(self.slot, self.block(index), zeros));
        block[checksum as usize % BLOCK_BYTES] ^= (checksum >> 16) as u8 | 1;
        let crc = CRC(0, &block);
        match kind {
            0 => assert!(entry.fits(zeros, !at_rest) && !entry.fits(crc, entry.checksum)),
            1 => assert!(!entry.fits(zeros, at_rest) && !entry.fits(crc, entry.checksum)),
            _ => {}
        }
        [kind < 2, entry.is_known(), entry.fits(crc, checksum)]
    }

    /// Another generation, of the same bytes.
    fn age(&mut self, index: usize, generation: u32) -> Saw {
        let zeros = self.seed.checksum_of_zeros(self.slot, self.block(index));
        let entry = ChecksumEntry::get(&self.page, index);
        let saw = [entry.is_known(), entry == ChecksumEntry::ZEROS, generation == 0];
        if !entry.is_known() {
            return saw;
        }
        let aged = entry.aged(generation, zeros);
        let (crc, checksum) = match entry {
            ChecksumEntry::ZEROS => (CRC(0, &[0; BLOCK_BYTES]), zeros),
            _ => (!entry.checksum, entry.checksum),
        };
        assert!(
            aged.is_known() && entry.fits(crc, checksum) && aged.fits(crc, checksum),
            "{aged:?}"
        );
        assert!(!aged.fits(!crc, !checksum), "{aged:?}");
        let stays = entry == ChecksumEntry::ZEROS && generation == 0;
        let due = if stays { 0 } else { generation.max(1) };
        assert_eq!(aged.generation, due);
        assert_eq!(aged.aged(generation, zeros), aged, "aged twice");
        self.put(index, aged);
        saw
    }

    /// This many entries from this one on, the last of them for parity.
    fn row(&self, index: usize, choices: &mut Choices<'_>) -> (Vec<ChecksumEntry>, ChecksumEntry) {
        let count = 1 + choices.below(MAX_SLOTS - 1);
        let entry = |number: usize| ChecksumEntry::get(&self.page, (index + number) % ENTRIES);
        ((0..count).map(entry).collect(), entry(count))
    }

    /// Generations that never went together.
    fn judge_any(&self, index: usize, choices: &mut Choices<'_>) -> Saw {
        let (row, parity) = self.row(index, choices);
        let data = generations(&row);
        let near = due(&data).wrapping_add(choices.word() as i16 as u32);
        let (any, near) = (judge(parity.generation, &data), judge(near, &data));
        [any == Behind::Unclear, near == Behind::Parity, matches!(near, Behind::Data(_))]
    }

    /// A member with lost writes is identified, whatever the others' generations.
    fn lose(&self, index: usize, choices: &mut Choices<'_>) -> Saw {
        let (row, _) = self.row(index, choices);
        let mut data = generations(&row);
        let parity = due(&data);
        assert_eq!(judge(parity, &data), Behind::Nobody);
        let lost = |choices: &mut Choices<'_>| u32::from(choices.byte());
        let (who, times) = (choices.below(row.len()), 1 + lost(choices));
        data[who] = data[who].wrapping_sub(times);
        assert_eq!(judge(parity, &data), Behind::Data(who), "{times} writes");
        data[who] = data[who].wrapping_add(times);
        let each = WEIGHTS.iter().take(row.len().min(8)).map(|weight| weight * lost(choices));
        let less = each.sum::<u32>() + WEIGHTS[who] * u32::from(times == MOST_LOST);
        let verdict = if less == 0 { Behind::Nobody } else { Behind::Parity };
        assert_eq!(judge(parity.wrapping_sub(less), &data), verdict, "{less} too little");
        [less == 0, times == 1, times == MOST_LOST]
    }

    /// A row is aligned and written a few times, and a disk loses its writes.
    fn live(&mut self, index: usize, choices: &mut Choices<'_>) -> Saw {
        let (old, parity) = self.row(index, choices);
        let is_known = old.iter().all(|entry| entry.is_known()) && parity.is_known();
        if !is_known {
            return [true; 3];
        }
        let all = due(&generations(&old));
        let aligned = parity.aged(all, 7);
        // Entries skip generation 0, and the sum of a row does not: after a wrap the row identifies
        // nothing until it is aligned again.
        let mut round = aligned.generation != all;
        let (mut data, mut parity) = (old.clone(), aligned);
        for _ in 0..=choices.below(3) {
            let written = choices.byte();
            let mut ages = 0_u32;
            for number in (0..data.len()).filter(|number| written >> (number % 8) & 1 == 1) {
                round |= data[number].generation == u32::MAX;
                let new = data[number].next(!data[number].checksum, 1);
                check_next(data[number], new, !data[number].checksum, 1);
                data[number] = new;
                ages = ages.wrapping_add(checksums::weight(number));
            }
            round |= ages != 0 && parity.generation.wrapping_add(ages) == 0;
            parity = if ages == 0 { parity } else { parity.next(9, ages) };
        }
        let who = choices.below(data.len());
        let saw = [round, parity == aligned, data[who] != old[who]];
        if !round {
            check_loss((&old, aligned), (&data, parity), who);
        }
        let row = data.into_iter().chain([parity]).enumerate();
        row.for_each(|(number, entry)| self.put((index + number) % ENTRIES, entry));
        saw
    }

    /// The page cannot be read.
    fn fail(&mut self) -> Saw {
        self.page = ChecksumEntry::unknown_page();
        self.due = [1, 0, 0, 0, 0, 0, 0, 0].repeat(ENTRIES);
        assert!(self.page == self.due, "a page on which nothing is known");
        [false; 3]
    }
}

/// An entry after a write: known, of these bytes, and newer where the one before was known.
fn check_next(old: ChecksumEntry, new: ChecksumEntry, checksum: u32, ages: u32) {
    assert!(new.is_known() && new.checksum == checksum && new.generation != 0, "{new:?}");
    let grown = new.generation.wrapping_sub(old.generation);
    let round = old.generation.wrapping_add(ages) == 0;
    let due = if round { ages.wrapping_add(1) } else { ages };
    assert!(!old.is_known() || grown == due, "{old:?} becomes {new:?} by {ages}");
}

/// No member is stale; a member that loses later writes is.
fn check_loss(
    old: (&[ChecksumEntry], ChecksumEntry),
    new: (&[ChecksumEntry], ChecksumEntry),
    who: usize,
) {
    let data = generations(new.0);
    assert_eq!(judge(new.1.generation, &data), Behind::Nobody);
    let mut lost = data.clone();
    lost[who] = old.0[who].generation;
    let verdict = if lost == data { Behind::Nobody } else { Behind::Data(who) };
    assert_eq!(judge(new.1.generation, &lost), verdict);
    let verdict = if old.1 == new.1 { Behind::Nobody } else { Behind::Parity };
    assert_eq!(judge(old.1.generation, &data), verdict);
}

/// True if the CRC of a place certainly detects these changed bits: they are within the width of
/// the CRC, or fewer than the minimal distance of two places with the same CRC (8, of CRC-32C up to
/// 177 bits).
fn is_detected(slots: u8, blocks: u64) -> bool {
    let bits = u128::from(slots) | u128::from(blocks) << 32;
    let clear = bits.leading_zeros() + bits.trailing_zeros();
    bits != 0 && (u128::BITS - clear <= 32 || bits.count_ones() < 8)
}

fn generations(row: &[ChecksumEntry]) -> Vec<u32> {
    row.iter().map(|entry| entry.generation).collect()
}

/// The generation that goes with data of these.
fn due(data: &[u32]) -> u32 {
    let each = data.iter().zip(&*WEIGHTS).map(|(&age, &weight)| u64::from(age) * u64::from(weight));
    let due = each.fold(0, u64::wrapping_add) as u32;
    assert_eq!(checksums::parity_generation(data.iter().copied()), due);
    due
}

/// The verdict, if it follows from the generations.
fn judge(parity: u32, data: &[u32]) -> Behind {
    let excess = parity.wrapping_sub(due(data));
    let weights = &WEIGHTS[..data.len()];
    let has_lost = |&index: &usize| {
        let weight = weights[index];
        excess != 0 && excess.is_multiple_of(weight) && excess / weight <= MOST_LOST
    };
    let lost: Vec<usize> = (0..data.len()).filter(has_lost).collect();
    let most = weights.iter().sum::<u32>() * MOST_LOST;
    let is_little = lost.is_empty() && (1..=most).contains(&excess.wrapping_neg());
    let verdict = checksums::behind(parity, data.iter().copied());
    let fits = match verdict {
        Behind::Nobody => excess == 0,
        Behind::Data(index) => lost == [index],
        Behind::Parity => is_little,
        Behind::Unclear => excess != 0 && lost.is_empty() && !is_little,
    };
    assert!(fits, "{verdict:?}, with {excess:#x} too much, as if {lost:?} had lost some");
    verdict
}

/// The blocks of a range follow each other, and are all of it.
fn cut(choices: &mut Choices<'_>) -> Saw {
    let start = choices.word() % (MOST_PAGES * ENTRIES as u64 * BLOCK_BYTES as u64);
    let end = start + choices.word() % (64 * BLOCK_BYTES as u64);
    let mut at = start;
    for (block, part) in checksums::blocks(start..end) {
        let bounds = block * BLOCK_BYTES as u64..(block + 1) * BLOCK_BYTES as u64;
        assert!(part.start == at && part.end > at && part.end <= end);
        assert!(bounds.start <= part.start && part.end <= bounds.end);
        at = part.end;
    }
    assert_eq!(at, end);
    let whole = BLOCK_BYTES as u64;
    [start == end, start.is_multiple_of(whole), end.is_multiple_of(whole)]
}

/// One for each order on a page of some entries; then all of them, on a page that is whole.
fn seeds() -> Vec<Vec<u8>> {
    let order = |kind: u8, index: u8, rest: &[u8]| {
        let mut order = [&[kind, 0, index], rest].concat();
        order.resize(ORDER_BYTES, 0);
        order
    };
    let orders = [
        order(0, 3, &[3, 9, 1, 200, 7, 0, 12, 1, 4]),
        order(0, 4, &[0, 9, 0, 200, 7, 2, 31, 2, 4, 0, 0, 1]),
        order(1, 5, &[2, 0x12, 0x34]),
        order(2, 3, &[0xfe, 0xff, 0xff, 0xff]),
        order(3, 0, &[5, 1, 1]),
        order(4, 1, &[7, 3, 255, 1, 0, 2]),
        order(5, 0, &[4, 2, 0xff, 0x12, 0x80, 2]),
        order(6, 0, &[0, 15, 0, 0, 0, 0, 0, 0, 0, 0x80, 2]),
        order(7, 0, &[]),
    ];
    let page = |entries: u32| {
        let entry = |index: u32| [index.to_le_bytes(), (index * index).to_le_bytes()].concat();
        (0..entries).flat_map(entry).collect::<Vec<u8>>()
    };
    let input = |orders: &[Vec<u8>], page: &[u8]| {
        let head = [orders.len() as u8, 7, 2, 1, 0, 0, 0, 0, 0, 0, 0];
        [&head[..], &orders.concat(), page].concat()
    };
    let mut seeds: Vec<Vec<u8>> =
        orders.iter().map(|order| input(std::slice::from_ref(order), &page(16))).collect();
    seeds.push(input(&orders, &page(ENTRIES as u32)));
    seeds
}
