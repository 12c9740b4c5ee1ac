//! What a candidate that does not lead hears of the members.
//!
//! ```text
//!   member 0   ● ● ● ● ● ● ● ● ● ● │                 ● a sign of life
//!   member 1   ● ● ● ● ● ● ● ● ● ● │ takes over: member 2 is late already
//!   member 2   ● ● ●               │
//! ```
//!
//! A candidate that stands by probes the members. So it knows whether it hears enough of them to
//! serve the array before it takes over, and need not wait for those that are dead. It also learns
//! of a leader that it does not hear: members count the probes of one that can serve the array.
//! Without this, two candidates that do not hear each other would replace each other for ever.
//!
//! Invariant: the silence of a member counts only if the others were heard meanwhile. A candidate
//! that was cut off heard nobody, and connections are made again one after the other.

use super::Action;
use crate::config::Config;
use crate::ids::{BootId, MemberId, Ms, Term};
use crate::message::{Answer, FromMember, Order, ToMember};
use crate::timing::Timing;

/// A member, as it was heard.
#[derive(Clone, Copy)]
struct Sign {
    boot: Option<BootId>,
    /// Its count of probes by leaders that can serve the array.
    beats: u64,
    /// When it was heard last, or the listening began.
    heard_ms: Ms,
    /// It was never late since then.
    since_ms: Ms,
}

pub(super) struct Listening {
    timing: Timing,
    signs: Vec<Sign>,
}

impl Listening {
    pub(super) fn begin(members: usize, timing: Timing, now: Ms) -> Listening {
        let sign = Sign { boot: None, beats: 0, heard_ms: now, since_ms: now };
        Listening { timing, signs: vec![sign; members] }
    }

    pub(super) fn members(&self) -> usize {
        self.signs.len()
    }

    /// Asks every member for a sign of life, under a term that orders nothing.
    pub(super) fn probe(&self, out: &mut Vec<Action>) {
        let members = (0..).map(MemberId).take(self.signs.len());
        let probe = ToMember::Control(Term(0), Order::Probe(false));
        out.extend(members.map(|member| Action::Member(member, probe.clone())));
    }

    /// Returns the term of a leader that can serve the array, if the member counts more of its
    /// probes than the last time.
    pub(super) fn hear(&mut self, now: Ms, member: MemberId, message: &FromMember) -> Option<Term> {
        let FromMember::Control(_, boot, ref answer) = *message else { return None };
        let sign = self.signs.get_mut(usize::from(member.0))?;
        if now.saturating_sub(sign.heard_ms) > self.timing.member_ms {
            sign.since_ms = now;
        }
        let known = sign.boot.replace(boot) == Some(boot);
        sign.heard_ms = now;
        let Answer::Deposed(term, beats) = *answer else { return None };
        let before = if known { sign.beats } else { beats };
        sign.beats = before.max(beats);
        (beats > before).then_some(term)
    }

    /// True if so many members in sync have just answered as the array needs. A candidate that is
    /// cut off must not count those that it heard before that: it waits for `takeover_ms` at least.
    /// Members that return do not count at once: the leader hears them, too, and goes on.
    pub(super) fn hears_enough(&self, now: Ms, config: &Config) -> bool {
        let recent = self.timing.takeover_ms / 2;
        self.heard_since(now.saturating_sub(recent), now, recent, config) >= config.needed()
    }

    /// When each member was heard last, if the others tell that this is not for want of a link;
    /// else `now`.
    pub(super) fn last_heard(&self, now: Ms, config: &Config) -> Vec<Ms> {
        // The member on the candidate's own host does not tell.
        let enough = config.needed().max(config.in_sync().count() / 2 + 1);
        let known = |at: Ms| self.heard_since(at, now, self.timing.member_ms, config) >= enough;
        let last = |sign: &Sign| if known(sign.heard_ms) { sign.heard_ms } else { now };
        self.signs.iter().map(last).collect()
    }

    /// Members in sync that were never late from `since` until now, nor silent for `most_ms` now.
    fn heard_since(&self, since: Ms, now: Ms, most_ms: Ms, config: &Config) -> usize {
        let heard = |member: &MemberId| {
            let Some(sign) = self.signs.get(usize::from(member.0)) else { return false };
            let disk = config.slot(*member).boot.disk();
            let known = sign.boot.is_some_and(|boot| boot.is_of(disk));
            let silent = now.saturating_sub(sign.heard_ms) > most_ms;
            known && !silent && sign.since_ms <= since
        };
        config.in_sync().filter(heard).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Level, Mode, Shape, Slot, State};
    use crate::ids::{ArrayId, Epoch};

    const MEMBER_MS: Ms = Timing::DEFAULT.member_ms;

    fn config() -> Config {
        let (level, mode) = (Level::Fragments, Mode::Shared);
        let shape = Shape { level, regions: 1, region_blocks: 1, piece_bytes: 1, mode };
        let slots = vec![Slot { state: State::InSync, boot: BootId(1) }; 3];
        Config { array: ArrayId(1), epoch: Epoch(1), shape, slots }
    }

    fn hear(listening: &mut Listening, now: Ms, member: u16, boot: u64, beats: u64) -> bool {
        let message = FromMember::Control(Term(0), BootId(boot), Answer::Deposed(Term(7), beats));
        listening.hear(now, MemberId(member), &message).is_some()
    }

    #[test]
    fn silence_counts_if_the_others_were_heard_meanwhile() {
        // Member 2 falls silent after 4 s; for how long the others do, too.
        for (others_ms, known) in [(0, true), (MEMBER_MS, true), (MEMBER_MS + 200, false)] {
            let mut listening = Listening::begin(3, Timing::DEFAULT, 0);
            for now in (0..=10_000).step_by(200) {
                let silent = |member| match member {
                    2 => now > 4000,
                    _ => now > 4000 && now < 4000 + others_ms,
                };
                for member in (0..3).filter(|&member| !silent(member)) {
                    hear(&mut listening, now, member, 1, 0);
                }
            }
            let last = if known { 4000 } else { 10_000 };
            assert_eq!(listening.last_heard(10_000, &config()), [10_000, 10_000, last]);
            assert!(listening.hears_enough(10_000, &config()));
        }
    }

    #[test]
    fn another_disk_is_no_member() {
        let mut listening = Listening::begin(3, Timing::DEFAULT, 0);
        let other = BootId::unserved(crate::ids::DiskId(9)).0;
        for (member, boot) in [(0, 1), (1, other)] {
            hear(&mut listening, 100, member, boot, 0);
        }
        assert!(!listening.hears_enough(100, &config()));
        hear(&mut listening, 100, 1, 1, 0);
        assert!(listening.hears_enough(100, &config()));
        let late = 101 + Timing::DEFAULT.takeover_ms / 2;
        assert!(listening.hears_enough(late - 1, &config()));
        assert!(!listening.hears_enough(late, &config()));
    }

    #[test]
    fn a_leader_is_heard_when_a_member_counts_more_of_its_probes() {
        let mut listening = Listening::begin(3, Timing::DEFAULT, 0);
        let steps = [(1, 5, false), (1, 5, false), (1, 6, true), (1, 5, false), (1, 6, false)];
        let restart = [(2, 9, false), (2, 10, true)];
        for (boot, beats, heard) in steps.into_iter().chain(restart) {
            assert_eq!(hear(&mut listening, 0, 0, boot, beats), heard, "{boot} {beats}");
        }
    }
}
