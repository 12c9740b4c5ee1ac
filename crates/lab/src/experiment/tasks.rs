//! Tasks that a run waits for.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use io::Signal;

use crate::world::{Core, World};

/// Tasks on the clients' core, and the number that have not ended.
pub(super) struct Crowd {
    world: World,
    core: Core,
    left: Cell<usize>,
    changed: Signal,
}

impl Crowd {
    pub(super) fn new(world: &World, core: Core) -> Rc<Crowd> {
        Rc::new(Crowd { world: world.clone(), core, left: Cell::new(0), changed: Signal::new() })
    }

    pub(super) fn spawn(self: &Rc<Crowd>, task: impl Future<Output = ()> + 'static) {
        self.left.set(self.left.get() + 1);
        let crowd = Rc::clone(self);
        self.world.spawn(self.core, async move {
            task.await;
            crowd.left.set(crowd.left.get() - 1);
            crowd.changed.raise();
        });
    }

    /// Tasks that have not ended.
    pub(super) fn left(&self) -> usize {
        self.left.get()
    }

    /// Completes once fewer than this many tasks are left.
    pub(super) async fn fewer_than(&self, count: usize) {
        while self.left.get() >= count {
            self.changed.wait().await;
        }
    }
}
