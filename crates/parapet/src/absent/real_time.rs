//! Stand-in for `crate::modelled::real_time`: there is no modelled disk.

use std::rc::Rc;

use io::Disk;
use os::Spawner;

use super::refusal;
use crate::failure::Result;

/// A model: no value exists.
pub(crate) enum Model {}

impl Model {
    /// Refuses every model.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn named(_: &str, member: &str) -> Result<Model> {
        Err(refusal(member, "lab"))
    }

    pub(crate) fn bytes(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn in_front(&self, _: Rc<dyn Disk>, _: &Spawner) -> Rc<dyn Disk> {
        match *self {}
    }
}
