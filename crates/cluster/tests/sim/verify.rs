//! The invariants that look into members and store.
//!
//! | invariant | checked |
//! |---|---|
//! | I1 | `applied`: a client's write lies in a region that every log in sync holds for it |
//! | I2, I12 | `clean_regions_match`: on the media, with and without their caches |
//! | I3, I9, I10 | `oracle` |
//! | I4 | `stored`: log positions only rise; `applied`: no write of a deposed coordinator |
//! | I5 | `stored`, `applied`: numbers only rise; nothing refused changes the medium |
//! | I6 | `acknowledged`: every member in sync has the write |
//! | I6, I12 | `replaced`: all regions of a blank disk are stale before it is a member |
//! | I7, I8 | `applied`: no resync write in a held region; `alone`: one holder if exclusive |
//! | I11 | `start`: a member finds every mark that was durable; append areas of 0 to 5 entries |
//! | I11 | `stored`: no header has more marks than there is room for; 1 to 3 in some seeds |
//! | I13 | `world`: in the end all requests complete, all members are in sync |
//! | I15 | `flushed`: on the media, without their caches |
//! | I16 | `alone`: an exclusive region has one holder, whatever timed out |
//! | I17 | copies and disorder of all messages, in every seed |
//! | I18 | `decided`: each epoch once, and members enter through REBUILDING |
//!
//! Not expressed yet: I14 (nobody reports mismatches yet). Of I8, overlapping read-modify-writes
//! show as I2, I3 and I6.

use std::collections::BTreeSet;
use std::ops::Range;

use cluster::code;
use cluster::config::{Config, Level, Mode, State};
use cluster::ids::{ClientId, Incarnation, MemberId, Region};
use cluster::member::Header;
use cluster::message::{Stamp, Who};
use cluster::record::{self, Mark};

use crate::ground::Ground;
use crate::oracle::{CELLS, Host};

type Verdict = Result<(), String>;

fn require(holds: bool, story: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(story()) }
}

/// Registers as bytes.
pub fn bytes(value: &[u32]) -> Vec<u8> {
    value.iter().flat_map(|register| register.to_le_bytes()).collect()
}

/// Bytes as registers.
pub fn registers(bytes: &[u8]) -> Vec<u32> {
    let register = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("whole registers"));
    bytes.chunks(4).map(register).collect()
}

/// The stripe of these cells, and the byte of it with which they begin.
fn place(config: &Config, cells: &Range<usize>) -> (u64, usize) {
    let length = code::block_bytes(&config.shape, config.slots.len());
    let (stripe, index) = code::place(config, (cells.start / CELLS) as u64);
    (stripe, index * length + cells.start % CELLS * (length / CELLS))
}

/// True if a write counts: the member is in sync, or is rebuilt in this epoch. Late requests of
/// old epochs reach a member that returns; they end before the epoch opens.
pub fn counts(config: &Config, member: usize, stamp: &Stamp) -> bool {
    match config.slot(MemberId(member as u16)).state {
        State::InSync => true,
        State::Rebuilding => stamp.epoch >= config.epoch,
        State::Missing => false,
    }
}

impl Ground {
    fn marks(&self, config: &Config, member: MemberId) -> &BTreeSet<Mark> {
        &self.named(config, member).header.log.marks
    }

    /// A write took effect on a member's medium.
    pub fn applied(&self, config: &Config, member: usize, stamp: &Stamp, stripe: u64) -> Verdict {
        let promise = &self.members[member].disk.promise;
        require(stamp.epoch >= promise.epoch, || {
            format!("I5: member {member} raised to {:?} executes {stamp:?}", promise.epoch)
        })?;
        let region = config.shape.region(stripe);
        let live = counts(config, member, stamp);
        match stamp.who {
            Who::Client(client, incarnation) => {
                let least = promise.least.get(&client).copied().unwrap_or_default();
                require(incarnation >= least, || {
                    format!("I5: member {member} fenced {client:?} {least:?}, executes {stamp:?}")
                })?;
                let mark = Mark::Held(region, client, incarnation);
                let logged =
                    config.in_sync().all(|member| self.marks(config, member).contains(&mark));
                require(logged || !live, || {
                    format!("I1: {stamp:?} writes stripe {stripe} without a durable {mark:?}")
                })
            }
            Who::Coordinator(term) => {
                require(term >= promise.term, || {
                    format!("I4: member {member} at {:?} executes {stamp:?}", promise.term)
                })?;
                // A mark alone is not a grant: a member that was not asked yet may lack it, and it
                // answers only when the writes of deposed coordinators have ended.
                let held = |mark: &Mark| match *mark {
                    Mark::Held(of, client, incarnation) if of == region => {
                        self.believes(config, client, incarnation, region)
                    }
                    _ => false,
                };
                let held =
                    config.in_sync().any(|member| self.marks(config, member).iter().any(held));
                // One of an earlier epoch is drained before this one is open.
                let current = live && stamp.epoch >= config.epoch;
                require(!held || !current, || {
                    format!("I7, I8: a resync of {term:?} writes {region:?}, which is held")
                })
            }
        }
    }

    /// A member's header became durable.
    pub fn stored(&self, member: usize, old: &Header) -> Verdict {
        let new = &self.members[member].disk.header;
        let least = old.least.iter().all(|(id, least)| new.least.get(id) >= Some(least));
        let rises = new.epoch >= old.epoch && new.term >= old.term && new.boot >= old.boot;
        require(rises && least, || format!("I5: member {member} falls back: {old:?} {new:?}"))?;
        require(new.log.at >= old.log.at, || format!("I4: the log of member {member} falls back"))?;
        let held = |mark: &&Mark| matches!(mark, Mark::Held(..));
        let held = new.log.marks.iter().filter(held).count();
        let unsync = record::unsync(&new.log.marks).count();
        require(held.max(unsync) <= self.most_marks, || {
            format!("I11: member {member} has {held} Held and {unsync} Unsync, too many")
        })
    }

    /// A client holds a region, in its own opinion and in that of a member in sync. A coordinator
    /// that dies before it says `Evicted` leaves others: every such member refuses them.
    fn believes(&self, config: &Config, client: ClientId, of: Incarnation, region: Region) -> bool {
        let Some(node) = self.clients.get(client.0 as usize) else { return false };
        let holds = node.machine.as_ref().is_some_and(|machine| machine.holds(region));
        let refuses = |member: MemberId| {
            let least = &self.named(config, member).header.least;
            least.get(&client).is_some_and(|&least| of < least)
        };
        holds && node.incarnation == of && !config.in_sync().all(refuses)
    }

    /// A client writes a region: if that is exclusive, no other client believes to hold it.
    pub fn alone(&self, config: &Config, writer: ClientId, stripe: u64) -> Verdict {
        let region = config.shape.region(stripe);
        let mut others = self.clients.iter().zip(0..).map(|(node, id)| (ClientId(id), node));
        let other = others.find(|(client, node)| {
            *client != writer && self.believes(config, *client, node.incarnation, region)
        });
        let shared = config.shape.mode == Mode::Shared;
        require(shared || other.is_none(), || {
            format!("I8, I16: {writer:?} writes {region:?}, another client holds it")
        })
    }

    /// Regions that any log of a member in sync calls clean match on all of these, and would match
    /// if all caches were lost.
    pub fn clean_regions_match(&self, config: &Config) -> Verdict {
        let in_sync: Vec<MemberId> = config.in_sync().collect();
        for region in (0..config.shape.regions).map(Region) {
            if in_sync.iter().all(|&member| self.dirty(config, member).contains(&region)) {
                continue;
            }
            for stripe in config.shape.stripes(region) {
                for cached in [true, false] {
                    let matches = self.matches(config, stripe, cached);
                    require(matches, || {
                        format!(
                            "I2: stripe {stripe} of clean {region:?} differs (cached: {cached})"
                        )
                    })?;
                }
            }
        }
        Ok(())
    }

    fn piece(&self, config: &Config, member: MemberId, stripe: u64, cached: bool) -> Vec<u8> {
        let medium = &self.named(config, member).medium;
        let piece = if cached { medium.view(stripe) } else { medium.after_crash(stripe) };
        piece.to_le_bytes().to_vec()
    }

    fn matches(&self, config: &Config, stripe: u64, cached: bool) -> bool {
        let Some(content) = self.content(config, stripe, cached) else { return true };
        self.lacks(config, stripe, &content, cached).is_none()
    }

    /// The blocks of a stripe as a reader would compute them.
    pub fn content(&self, config: &Config, stripe: u64, cached: bool) -> Option<Vec<u8>> {
        let sources = code::sources(config, stripe, |member| config.is_in_sync(member))?;
        let piece = |member: MemberId| (member, self.piece(config, member, stripe, cached));
        let got = sources.into_iter().map(piece).collect();
        Some(code::content(config, stripe, &got))
    }

    /// A member in sync that does not hold its piece of this content.
    fn lacks(
        &self,
        config: &Config,
        stripe: u64,
        content: &[u8],
        cached: bool,
    ) -> Option<MemberId> {
        let pieces = code::pieces(&config.shape, config.slots.len(), stripe, content);
        config
            .in_sync()
            .find(|member| self.piece(config, *member, stripe, cached) != pieces[member])
    }

    /// A write is acknowledged.
    pub fn acknowledged(&self, config: &Config, cells: &Range<usize>, value: &[u32]) -> Verdict {
        let (stripe, at) = place(config, cells);
        if config.shape.level.is_striped() {
            return self.durable(config, (stripe, at), value);
        }
        let medium = |member: MemberId| &self.named(config, member).medium;
        // A restart since may have lost it; the boot in the next epoch accounts for that.
        let lost = |member: MemberId| medium(member).lost.contains(&stripe);
        if cells.len() < CELLS && config.in_sync().any(lost) {
            return Ok(());
        }
        let mut content = self.content(config, stripe, true).expect("enough are in sync");
        content[at..][..4 * value.len()].copy_from_slice(&bytes(value));
        let pieces = code::pieces(&config.shape, config.slots.len(), stripe, &content);
        for member in config.in_sync() {
            let piece = crate::medium::number(&pieces[&member]);
            let has = medium(member).view(stripe) == piece || lost(member);
            require(has, || format!("I6: {cells:?} are acknowledged, {member:?} lacks them"))?;
        }
        Ok(())
    }

    /// A stripe has these registers from a byte on and its pieces match, also if all caches are
    /// lost.
    fn durable(&self, config: &Config, (stripe, at): (u64, usize), value: &[u32]) -> Verdict {
        for cached in [true, false] {
            let Some(content) = self.content(config, stripe, cached) else { continue };
            let holds = content[at..].starts_with(&bytes(value));
            require(holds, || {
                format!("I6: {value:x?} is acknowledged, {stripe} has {content:x?} ({cached})")
            })?;
            let lacks = self.lacks(config, stripe, &content, cached);
            require(lacks.is_none(), || {
                format!(
                    "I6: a write of stripe {stripe} is acknowledged, {lacks:?} lacks it ({cached})"
                )
            })?;
        }
        Ok(())
    }

    /// A flush is acknowledged that covers this write.
    pub fn flushed(
        &self,
        config: &Config,
        host: Host,
        cells: &Range<usize>,
        value: &[u32],
    ) -> Verdict {
        let ((stripe, at), value) = (place(config, cells), bytes(value));
        let lacks = if config.shape.level.is_striped() || cells.len() < CELLS {
            // Other cells of the stripe may be being written.
            self.loses(config, stripe, at, &value)
        } else {
            self.lacks(config, stripe, &value, false)
        };
        require(lacks.is_none(), || {
            format!("I15: {host:?} flushed {cells:?}, {lacks:?} would lose it")
        })
    }

    /// A member in sync whose data would not be these bytes of the stripe, if caches were lost.
    fn loses(&self, config: &Config, stripe: u64, at: usize, bytes: &[u8]) -> Option<MemberId> {
        let (shape, members) = (&config.shape, config.slots.len());
        let mirror = shape.level == Level::Mirror;
        let count = if mirror { members } else { code::stripe_bytes(shape, members) / 8 };
        let columns = code::columns(shape.level, members, stripe).into_iter().take(count);
        let differs = |index: usize, member: MemberId| {
            let first = if mirror { 0 } else { 8 * index };
            let has = (first..).zip(self.piece(config, member, stripe, false));
            has.filter(|(byte, _)| (at..at + bytes.len()).contains(byte))
                .any(|(byte, has)| bytes[byte - at] != has)
        };
        let mut data = columns.enumerate().filter(|(_, member)| config.is_in_sync(*member));
        data.find(|&(index, member)| differs(index, member)).map(|(_, member)| member)
    }
}

impl Ground {
    /// A slot changes its disk: every log in sync says that all its regions are stale.
    pub fn replaced(&self, old: &Config, new: &Config) -> Verdict {
        let disk = |config: &Config, member| config.slot(member).boot.disk();
        for member in old.members().filter(|&member| disk(old, member) != disk(new, member)) {
            let (from, to) = (old.slot(member).state, new.slot(member).state);
            require((from, to) == (State::Missing, State::Rebuilding), || {
                format!("I12: another disk is {member:?}: {old:?} {new:?}")
            })?;
            for region in (0..new.shape.regions).map(Region) {
                let mark = Mark::Stale(member, region);
                let logged = new.in_sync().all(|other| self.marks(new, other).contains(&mark));
                require(logged, || format!("I6: another disk is {member:?} without a {mark:?}"))?;
            }
        }
        Ok(())
    }
}

/// The store has a new configuration.
pub fn decided(old: &Config, new: &Config) -> Verdict {
    if old == new {
        return Ok(());
    }
    require(new.epoch > old.epoch, || format!("I18: {:?} is decided twice", new.epoch))?;
    let pairs = || old.slots.iter().zip(&new.slots);
    let enters =
        pairs().all(|(old, new)| new.state != State::InSync || old.state != State::Missing);
    require(enters, || format!("I12: a missing member is in sync: {old:?} {new:?}"))?;
    require(new.in_sync().count() >= new.needed(), || {
        format!("more members are removed than the level tolerates: {new:?}")
    })?;
    let restarts = pairs().filter(|(old, new)| {
        old.state == State::InSync && new.state == State::InSync && new.boot != old.boot
    });
    require(restarts.count() == 0 || new.in_sync().count() == new.needed(), || {
        format!("a restarted member stays in sync: {old:?} {new:?}")
    })
}
