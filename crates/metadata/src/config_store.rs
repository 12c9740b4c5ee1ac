//! The authority over an array's configuration.
//!
//! The keeper proposes the next configuration; [`Decisions`] accepts it if no other host was
//! faster. On one host that is the superblocks of the members ([`Local`]). For an array shared by
//! several hosts it will be a store with compare-and-set; the engine does not see the difference.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use layout::{Epoch, MemberId};

use crate::commit::{Decision, MetadataWriter};

/// Why a decision was not made.
#[derive(Debug)]
pub enum Undecided {
    /// These members could not be written; the others were. Decide again without them.
    Members(Vec<(MemberId, io::Error)>),
    /// The array's configuration has changed: another host has decided.
    Overtaken,
}

/// Compare-and-set of the configuration.
pub trait Decisions {
    /// Makes `next` durable as the array's configuration, if it is still at `expected`. A
    /// checkpoint has `expected` for its own epoch.
    ///
    /// # Errors
    /// [`Undecided`] says why not.
    fn decide<'a>(&'a self, expected: Epoch, next: &'a Decision) -> Verdict<'a>;
}

/// The answer to come.
pub type Verdict<'a> = Pin<Box<dyn Future<Output = Result<(), Undecided>> + 'a>>;

/// The superblocks decide: this process alone has the members open.
pub struct Local(pub Rc<MetadataWriter>);

impl Decisions for Local {
    fn decide<'a>(&'a self, _: Epoch, next: &'a Decision) -> Verdict<'a> {
        Box::pin(async move { self.0.commit(next).await.map_err(Undecided::Members) })
    }
}
