//! Closed loads on a model: the next request comes with an answer.

use lab::disk::{Answer, Model, Nanos, Request};

/// What a load has got.
pub(crate) struct Outcome {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Times of the requests, ns, sorted.
    #[allow(dead_code, reason = "not every test looks at latencies")]
    pub(crate) times: Vec<Nanos>,
}

impl Outcome {
    /// This share of the requests took at most so long, ns.
    #[allow(dead_code, reason = "not every test looks at latencies")]
    pub(crate) fn quantile(&self, share: f64) -> Nanos {
        self.times[((self.times.len() - 1) as f64 * share) as usize]
    }
}

/// Keeps `depth` requests in flight until `count` are answered after `warm_up` others. `next` makes
/// the request with this number.
pub(crate) fn run(
    disk: &mut dyn Model,
    depth: usize,
    warm_up: u64,
    count: u64,
    mut next: impl FnMut(u64) -> Request,
) -> Outcome {
    let mut submitted: Vec<Nanos> = Vec::new();
    let mut times = Vec::new();
    let (mut now, mut started): (Nanos, Nanos) = (0, 0);
    let mut answers: Vec<Answer> = Vec::new();
    let mut submit = |disk: &mut dyn Model, submitted: &mut Vec<Nanos>, now: Nanos| {
        let tag = submitted.len() as u64;
        submitted.push(now);
        disk.submit(now, Request { tag, ..next(tag) });
    };
    for _ in 0..depth {
        submit(disk, &mut submitted, now);
    }
    let mut answered = 0;
    while answered < warm_up + count {
        now = disk.next_event().expect("requests are in flight");
        answers.clear();
        disk.advance(now, &mut answers);
        for answer in &answers {
            answered += 1;
            if answered == warm_up {
                started = answer.at;
            }
            if answered > warm_up {
                times.push(answer.at - submitted[answer.tag as usize]);
            }
            submit(disk, &mut submitted, answer.at);
        }
    }
    times.sort_unstable();
    Outcome { rate: count as f64 * 1e9 / (now - started) as f64, times }
}
