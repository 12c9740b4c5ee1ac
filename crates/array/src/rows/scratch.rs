//! The memory that units are carried out with.

use std::rc::Rc;

use layout::Place;

use crate::member::batch::{Batch, Failure};
use crate::rows::checksum;
use crate::rows::read::Parts;
use crate::rows::{Outgoing, Piece, RowWork};
use crate::shard::cache::map;

/// What a worker keeps between units, so that none of it is allocated anew.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) batch: Batch,
    pub(crate) failures: Vec<Failure>,
    pub(crate) rows: Vec<RowWork>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) outgoing: Vec<Outgoing>,
    pub(crate) parts: Parts,
    pub(crate) chosen: Vec<Place>,
    /// Parts of members whose checksums are needed, their pages, and checksums to be.
    pub(crate) wanted: Vec<checksum::Wanted>,
    pub(crate) pages: Vec<Rc<checksum::Page>>,
    pub(crate) news: Vec<checksum::New>,
    /// What the cache held of a range when its read began, and room to sort it.
    pub(crate) held: Vec<map::Piece>,
    pub(crate) order: Vec<(u64, u64)>,
    /// What was written has taken blocks off a list of bad ones, which is not on record yet.
    pub(crate) healed: bool,
}

impl Scratch {
    /// Who rests holds no member, and so no disk: it may have been removed, and wanted elsewhere.
    pub(crate) fn let_go(&mut self) {
        self.failures.clear();
        self.wanted.clear();
        self.pages.clear();
    }
}
