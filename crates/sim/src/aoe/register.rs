//! The values that a sector on the wire may hold.
//!
//! Answers mean durable, so a restart of the target changes nothing here. A sector is a register:
//!
//! ```text
//!   base      the values that it may hold if nothing in flight has landed: one, but for writes
//!             that a client gave up
//!   flying    the values of writes that were not answered
//!   read      must return a value that was in one of both while it was under way
//! ```
//!
//! An answered write leaves one value. Values come from a small alphabet, so that the same data is
//! written again after other data.

use std::ops::Range;

use io::Time;
use net::aoe::FRAME_LIFETIME;

use crate::medium::SECTOR;
use crate::pattern::Value;

/// Names a request in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u64);

struct Sector {
    base: Vec<Value>,
    flying: Vec<(Ticket, Value)>,
    /// Until then a write that was given up may land.
    loose_until: Time,
}

struct Read {
    ticket: Ticket,
    sectors: Range<u64>,
    /// For each sector, what was allowed so far.
    allowed: Vec<Vec<Value>>,
    changed: bool,
}

/// All sectors.
pub(super) struct Register {
    sectors: Vec<Sector>,
    reads: Vec<Read>,
    next: u64,
}

/// The value of this letter of a client's alphabet in a sector.
pub(super) fn value(letter: u64, sector: u64) -> Value {
    Value::of(letter, sector)
}

impl Sector {
    fn allowed(&self) -> impl Iterator<Item = Value> + '_ {
        self.base.iter().copied().chain(self.flying.iter().map(|&(_, value)| value))
    }
}

impl Register {
    /// Sectors of zeros.
    pub(super) fn new(sectors: u64) -> Register {
        let sector =
            || Sector { base: vec![Value::ZERO], flying: Vec::new(), loose_until: Time::default() };
        Register { sectors: (0..sectors).map(|_| sector()).collect(), reads: Vec::new(), next: 0 }
    }

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    /// A write of this letter begins. Returns its data too.
    pub(super) fn write(&mut self, sectors: Range<u64>, letter: u64) -> (Ticket, Vec<u8>) {
        let ticket = self.ticket();
        let mut bytes = vec![0; ((sectors.end - sectors.start) * SECTOR) as usize];
        for (sector, bytes) in sectors.clone().zip(bytes.chunks_mut(SECTOR as usize)) {
            let value = value(letter, sector);
            value.fill(bytes);
            self.sectors[sector as usize].flying.push((ticket, value));
        }
        self.widen(sectors);
        (ticket, bytes)
    }

    /// The write was answered.
    pub(super) fn acknowledge(&mut self, ticket: Ticket) {
        for sector in &mut self.sectors {
            let Some(at) = sector.flying.iter().position(|(it, _)| *it == ticket) else { continue };
            sector.base = vec![sector.flying.remove(at).1];
        }
        self.changed();
    }

    /// The write was given up, or failed: it may have landed, or may still.
    pub(super) fn give_up(&mut self, ticket: Ticket, now: Time) {
        for sector in &mut self.sectors {
            let Some(at) = sector.flying.iter().position(|(it, _)| *it == ticket) else { continue };
            sector.base.push(sector.flying.remove(at).1);
            sector.loose_until = now + FRAME_LIFETIME;
        }
        self.changed();
    }

    /// A read begins.
    pub(super) fn read(&mut self, sectors: Range<u64>) -> Ticket {
        let ticket = self.ticket();
        let allowed = self.sectors[sectors.start as usize..sectors.end as usize]
            .iter()
            .map(|sector| sector.allowed().collect())
            .collect();
        self.reads.push(Read { ticket, sectors, allowed, changed: false });
        ticket
    }

    /// A read ended without data.
    pub(super) fn drop_read(&mut self, ticket: Ticket) {
        self.reads.retain(|it| it.ticket != ticket);
    }

    /// A read has returned these bytes.
    ///
    /// # Errors
    /// The first sector whose value is not allowed.
    pub(super) fn check(&mut self, ticket: Ticket, bytes: &[u8], now: Time) -> Result<(), String> {
        let at = self.reads.iter().position(|it| it.ticket == ticket).expect("a read ends once");
        let Read { sectors, allowed, changed, .. } = self.reads.swap_remove(at);
        let seen = bytes.chunks(SECTOR as usize).map(Value::read);
        for ((sector, seen), allowed) in sectors.zip(seen).zip(allowed) {
            if !allowed.contains(&seen) {
                let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
                return Err(format!(
                    "I1: sector {sector} reads {seen}; allowed: {}",
                    allowed.join(", ")
                ));
            }
            let sector = &mut self.sectors[sector as usize];
            if !changed && sector.flying.is_empty() && sector.loose_until <= now {
                sector.base = vec![seen];
            }
        }
        Ok(())
    }

    /// Reads under way may see what was just begun.
    fn widen(&mut self, changed: Range<u64>) {
        for read in &mut self.reads {
            for (sector, allowed) in read.sectors.clone().zip(&mut read.allowed) {
                if changed.contains(&sector) {
                    allowed.extend(self.sectors[sector as usize].allowed());
                    read.changed = true;
                }
            }
        }
    }

    fn changed(&mut self) {
        self.reads.iter_mut().for_each(|read| read.changed = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(letter: u64, sectors: Range<u64>) -> Vec<u8> {
        Register::new(8).write(sectors, letter).1
    }

    #[test]
    fn an_answered_write_leaves_one_value() {
        let mut register = Register::new(8);
        let (first, _) = register.write(0..4, 1);
        register.acknowledge(first);
        let during = register.read(0..4);
        let (second, _) = register.write(2..3, 2);
        assert!(register.check(during, &bytes(1, 0..4), Time(0)).is_ok());
        register.acknowledge(second);
        let after = register.read(0..4);
        let error = register.check(after, &bytes(1, 0..4), Time(0)).expect_err("it is old");
        assert!(error.contains("sector 2"), "{error}");
    }

    #[test]
    fn a_write_that_was_given_up_may_land_for_a_while() {
        let mut register = Register::new(8);
        let (lost, _) = register.write(0..1, 1);
        register.give_up(lost, Time(0));
        let zeros = vec![0; SECTOR as usize];
        let late = Time(0) + FRAME_LIFETIME;
        for (now, seen, is_allowed) in [
            (Time(0), &zeros, true),
            (Time(0), &bytes(1, 0..1), true),
            (late, &zeros, true),
            (late, &bytes(1, 0..1), false),
        ] {
            let read = register.read(0..1);
            assert_eq!(register.check(read, seen, now).is_ok(), is_allowed, "{now:?}");
        }
    }
}
