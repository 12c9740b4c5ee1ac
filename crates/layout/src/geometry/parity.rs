//! RAID 4, 5, 6 and 3.5: which slot of a stripe holds which data, P and Q.
//!
//! Owns the rotation rules and the exponents of Q. Never computes parity.
//! Invariants: in each stripe every slot has exactly one role; exponents of one stripe are
//! distinct.

use crate::units::{Slot, Stripe};

use super::Owner;
use super::divisor::Divisor;
use super::names::{Layout, Raid5Layout, Raid6Layout};

/// Where P is in stripe s, on a ring of r slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// r − 1 − s mod r.
    Left,
    /// r − 1 − (s + 1) mod r.
    LeftAhead,
    /// s mod r.
    Right,
    /// Always on this slot.
    Fixed(u8),
}

/// Where Q is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Second {
    /// There is none.
    None,
    /// On the slot after P.
    After,
    /// On the slot before P.
    Before,
    /// Always on this slot.
    Fixed(u8),
}

/// Where data 0 is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Data {
    /// On the first slot without parity, the others ascending.
    Ascending,
    /// This many slots after P, the others following on the ring.
    After(u8),
}

/// The rules of one layout on one number of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rule {
    p: Turn,
    q: Second,
    data: Data,
    /// How many slots take part in the rotation: all, or all but the last ("-6" layouts).
    ring: u8,
    /// Exponents are slot numbers instead of being counted from Q.
    ddf: bool,
}

impl Rule {
    /// The table of md's `raid5_compute_sector` (Linux 6.1, `raid5.c`).
    const fn of(layout: Layout, n: u8) -> Rule {
        use Data::{After as Behind, Ascending};
        use Raid5Layout as Five;
        use Raid6Layout as Six;
        use Second::{After, Before};
        use Turn::{Fixed, Left, LeftAhead, Right};
        let last = n - 1;
        let (p, q, data, ring, ddf) = match layout {
            Layout::Raid4 | Layout::Raid35 { .. } => {
                (Fixed(last), Second::None, Ascending, n, false)
            }
            Layout::Raid5(five) => match five {
                Five::LeftAsymmetric => (Left, Second::None, Ascending, n, false),
                Five::RightAsymmetric => (Right, Second::None, Ascending, n, false),
                Five::LeftSymmetric => (Left, Second::None, Behind(1), n, false),
                Five::RightSymmetric => (Right, Second::None, Behind(1), n, false),
                Five::ParityFirst => (Fixed(0), Second::None, Ascending, n, false),
                Five::ParityLast => (Fixed(last), Second::None, Ascending, n, false),
            },
            Layout::Raid6(six) => match six {
                Six::LeftAsymmetric => (Left, After, Ascending, n, false),
                Six::RightAsymmetric => (Right, After, Ascending, n, false),
                Six::LeftSymmetric => (Left, After, Behind(2), n, false),
                Six::RightSymmetric => (Right, After, Behind(2), n, false),
                Six::ParityFirst => (Fixed(0), After, Ascending, n, false),
                Six::ParityLast => (Fixed(n - 2), After, Ascending, n, false),
                Six::DdfZeroRestart => (Right, After, Ascending, n, true),
                Six::DdfNRestart => (LeftAhead, After, Ascending, n, true),
                Six::DdfNContinue => (Left, Before, Behind(1), n, true),
                Six::LeftAsymmetric6 => (Left, Second::Fixed(last), Ascending, last, false),
                Six::RightAsymmetric6 => (Right, Second::Fixed(last), Ascending, last, false),
                Six::LeftSymmetric6 => (Left, Second::Fixed(last), Behind(1), last, false),
                Six::RightSymmetric6 => (Right, Second::Fixed(last), Behind(1), last, false),
                Six::ParityFirst6 => (Fixed(0), Second::Fixed(last), Ascending, n, false),
            },
            Layout::Linear | Layout::Raid0(_) | Layout::Raid1 | Layout::Raid10 { .. } => {
                panic!("this layout has no parity")
            }
        };
        Rule { p, q, data, ring, ddf }
    }
}

/// The map of an array with parity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Parity {
    rule: Rule,
    slots: u8,
    stripes: u64,
    /// By the chunk, a power of two.
    chunk: Divisor,
    /// By the data chunks of a stripe.
    data: Divisor,
    /// By the slots that rotate.
    ring: Divisor,
}

impl Parity {
    /// `slots` members of `stripes` chunks each; the layout has parity.
    pub(super) fn new(layout: Layout, slots: usize, chunk: u64, stripes: u64) -> Parity {
        let rule = Rule::of(layout, slots as u8);
        let parities = if rule.q == Second::None { 1 } else { 2 };
        assert!(slots as u64 > parities && stripes > 0, "no data beside parity");
        let data = slots as u64 - parities;
        Parity {
            rule,
            slots: slots as u8,
            stripes,
            chunk: Divisor::new(chunk, u64::MAX),
            data: Divisor::new(data, stripes.saturating_mul(data)),
            ring: Divisor::new(rule.ring.into(), stripes),
        }
    }

    pub(super) const fn data_count(&self) -> usize {
        self.data.get() as usize
    }

    pub(super) const fn parity_count(&self) -> usize {
        self.slots as usize - self.data_count()
    }

    pub(super) const fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Stripe, index of its data, offset in the chunk.
    pub(super) const fn stripe_of(&self, array_offset: u64) -> (Stripe, usize, u64) {
        let (chunk, within) = self.chunk.split(array_offset);
        let (stripe, index) = self.data.split(chunk);
        (Stripe(stripe), index as usize, within)
    }

    pub(super) fn stripe(&self, Stripe(stripe): Stripe) -> StripeMap {
        let (n, ring) = (self.slots, self.rule.ring);
        let turn = self.ring.split(stripe).1 as u8;
        let p = match self.rule.p {
            Turn::Left => ring - 1 - turn,
            Turn::LeftAhead if turn == ring - 1 => ring - 1,
            Turn::LeftAhead => ring - 2 - turn,
            Turn::Right => turn,
            Turn::Fixed(slot) => slot,
        };
        let q = match self.rule.q {
            Second::None => NO_SLOT,
            Second::After => wrap(p + 1, n),
            Second::Before => wrap(p + n - 1, n),
            Second::Fixed(slot) => slot,
        };
        let first = match self.rule.data {
            Data::Ascending => NO_SLOT,
            Data::After(slots) => wrap(p + slots, ring),
        };
        assert!(p < n && (q == NO_SLOT || (q < n && q != p)), "P and Q on two slots of the array");
        let member_offset = stripe * self.chunk.get();
        StripeMap { member_offset, slots: n, p, q, first, ring, ddf: self.rule.ddf }
    }

    /// The content at an offset of a member within the used part.
    pub(super) fn owner(&self, slot: Slot, member_offset: u64) -> Owner {
        let (stripe, within) = self.chunk.split(member_offset);
        let len = self.chunk.get() - within;
        match self.stripe(Stripe(stripe)).role(slot) {
            StripeRole::P => Owner::P { stripe: Stripe(stripe), len },
            StripeRole::Q => Owner::Q { stripe: Stripe(stripe), len },
            StripeRole::Data(index) => {
                let chunk = stripe * self.data.get() + index as u64;
                Owner::Data { array_offset: chunk * self.chunk.get() + within, len, copy: 0 }
            }
        }
    }
}

/// `slot` on a ring of `ring` slots, of which it is at most one turn beyond.
const fn wrap(slot: u8, ring: u8) -> u8 {
    if slot >= ring { slot - ring } else { slot }
}

const NO_SLOT: u8 = u8::MAX;

/// The roles of the slots in one stripe: 16 bytes, every answer a few additions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeMap {
    member_offset: u64,
    slots: u8,
    p: u8,
    /// Or [`NO_SLOT`].
    q: u8,
    /// The slot of data 0 on the ring, or [`NO_SLOT`]: data ascends over the slots without parity.
    first: u8,
    ring: u8,
    ddf: bool,
}

/// The content of a slot in a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StripeRole {
    /// Data of this index: 0 ≤ index < data chunks of the stripe.
    Data(usize),
    /// The XOR of the data.
    P,
    /// The checksum of g^exponent · data.
    Q,
}

impl StripeMap {
    /// How many data chunks: k.
    pub const fn data_count(&self) -> usize {
        self.slots as usize - if self.q == NO_SLOT { 1 } else { 2 }
    }

    /// The slot of data `index`.
    ///
    /// # Panics
    /// If `index` is not below [`StripeMap::data_count`].
    pub const fn data(&self, index: usize) -> Slot {
        assert!(index < self.data_count());
        let index = index as u8;
        if self.first != NO_SLOT {
            return Slot(wrap(self.first + index, self.ring));
        }
        let (low, high) = self.parities();
        let past_low = index + (index >= low) as u8;
        Slot(past_low + (past_low >= high) as u8)
    }

    /// The slot of P.
    pub const fn p(&self) -> Slot {
        Slot(self.p)
    }

    /// The slot of Q, on RAID 6.
    pub const fn q(&self) -> Option<Slot> {
        if self.q == NO_SLOT { None } else { Some(Slot(self.q)) }
    }

    /// The content of `slot`.
    ///
    /// # Panics
    /// If the array has no such slot.
    pub const fn role(&self, slot: Slot) -> StripeRole {
        let Slot(slot) = slot;
        assert!(slot < self.slots);
        if slot == self.p {
            return StripeRole::P;
        }
        if slot == self.q {
            return StripeRole::Q;
        }
        let index = if self.first != NO_SLOT {
            wrap(slot + self.ring - self.first, self.ring)
        } else {
            let (low, high) = self.parities();
            slot - (slot > low) as u8 - (slot > high) as u8
        };
        StripeRole::Data(index as usize)
    }

    /// The exponent of g that weighs data `index` in Q; 0 where there is no Q.
    ///
    /// md counts data slots from the one after Q, around the end, leaving out P. Where data does
    /// not start there (asymmetric and "-6" symmetric layouts) that is not the index. DDF layouts
    /// take the slot number. (Linux 6.1, `raid5.c`: `raid6_d0`, `raid6_idx_to_slot`.)
    ///
    /// # Panics
    /// If `index` is not below [`StripeMap::data_count`].
    pub fn exponent(&self, index: usize) -> u8 {
        let Slot(slot) = self.data(index);
        if self.q == NO_SLOT {
            return 0;
        }
        if self.ddf {
            return slot;
        }
        let after_q = |of: u8| wrap(of + self.slots - self.q - 1, self.slots);
        let (data, p) = (after_q(slot), after_q(self.p));
        data - (p < data) as u8
    }

    /// The offset of the stripe's chunk, the same on each member.
    pub const fn member_offset(&self) -> u64 {
        self.member_offset
    }

    /// The slots of P and Q in ascending order; [`NO_SLOT`] is above all.
    const fn parities(&self) -> (u8, u8) {
        if self.p < self.q { (self.p, self.q) } else { (self.q, self.p) }
    }
}
