//! Deviations from the default schedule, at chosen steps: `model` tries all of them.

use cluster::ids::Ms;

use super::{Event, World};

/// Something else than the default at one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deviation {
    /// A message, or a request to the store, is lost.
    Lose,
    /// It arrives late, after its copies and its successors.
    Delay,
    /// It arrives again later.
    Copy,
    /// The node dies before the step, and starts at once: no timeout sees it.
    Restart,
    /// The node dies before the step, and starts when others have noticed.
    Leave,
}

/// Steps and what deviates there.
pub type Plan = Vec<(u64, Deviation)>;

const MESSAGE: &[Deviation] = {
    use Deviation::{Copy, Delay, Leave, Lose, Restart};
    &[Lose, Delay, Copy, Restart, Leave]
};
const STORE: &[Deviation] = &[Deviation::Lose, Deviation::Delay];
const OTHER: &[Deviation] = &[Deviation::Restart, Deviation::Leave];

/// Clients of a run with a plan work until then: a takeover, and some rounds of grants.
pub const WORK_MS: Ms = 1400;
/// Longer than a lease: evictions and takeovers happen meanwhile.
const LEAVE_MS: Ms = 1800;
const DELAY_MS: Ms = 600;
const COPY_MS: Ms = 150;

fn possible(event: &Event) -> &'static [Deviation] {
    match event {
        Event::Deliver(..) => MESSAGE,
        Event::Ask(..) => STORE,
        _ if World::node_of(event).is_some() => OTHER,
        _ => &[],
    }
}

impl World {
    /// The event of this step, if it happens now.
    pub fn deviate(&mut self, step: u64, event: Event) -> Option<Event> {
        let Some(plan) = &self.plan else { return Some(event) };
        let planned = plan.iter().find(|(at, _)| *at == step);
        let planned = planned.map(|&(_, deviation)| deviation);
        // Until the first look at the end, every step comes here: the list has no gaps.
        if self.now < self.work_ms {
            self.possible.push(possible(&event));
        }
        let Some(deviation) = planned else { return Some(event) };
        assert!(possible(&event).contains(&deviation), "step {step}: {deviation:?} of {event:?}");
        self.tell(|| format!("step {step}: {deviation:?} of {event:?}"));
        match deviation {
            Deviation::Lose => None,
            Deviation::Delay => {
                self.at(self.now + DELAY_MS, event);
                None
            }
            Deviation::Copy => {
                self.at(self.now + COPY_MS, event.clone());
                Some(event)
            }
            Deviation::Restart | Deviation::Leave => {
                let node = World::node_of(&event).expect("it is possible");
                if !self.is_dead(node) {
                    self.crash(node);
                    let time = if deviation == Deviation::Restart { 5 } else { LEAVE_MS };
                    self.at(self.now + time, Event::Start(node));
                }
                Some(event)
            }
        }
    }
}
