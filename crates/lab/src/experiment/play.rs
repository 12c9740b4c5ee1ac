//! A load on any disk: the workers of an experiment without the rest of it.

use std::rc::Rc;

use io::{Disk, Time};

use super::outcome::Figures;
use super::record::Recorder;
use super::schema::WorkerChoice;
use super::tasks::Crowd;
use super::workers::Target;
use super::{Fault, run, workers};
use crate::world::{Core, World};

/// Runs the workers, and returns the figures of requests answered within the window.
///
/// # Errors
/// If a zone does not fit the disk, or a request fails.
pub(crate) async fn play(
    world: &World,
    disk: Rc<dyn Disk>,
    choices: &[WorkerChoice],
    seed: u64,
    (from, until): (Time, Time),
) -> Result<Figures, Fault> {
    let recorder: Rc<Recorder> = Rc::default();
    let target = Target { world: world.clone(), disk, recorder: Rc::clone(&recorder) };
    recorder.open(from, until);
    let crowd = Crowd::new(world, Core::FIRST);
    workers::start(&target, choices, (seed, until), &crowd)?;
    crowd.fewer_than(1).await;
    if let (count, Some(first)) = recorder.errors() {
        let cause = format!("{count} requests failed, the first one: {first}");
        return Err(Fault::new("load", cause, "report it with the load"));
    }
    let [read, write, trim, _] = recorder.sides((until.0 - from.0) as f64 / 1e9);
    Ok(run::figures([&read, &write, &trim]))
}
