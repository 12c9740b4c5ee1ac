//! numbers → numbers: the place of every byte of an array, the plan of a read or write, and the
//! on-disk formats of members.
//!
//! Owns geometry, plans and on-disk formats. Never does I/O, never looks at a clock, never
//! allocates on the data path.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

extern crate alloc;

pub mod config;
pub mod geometry;
pub mod md;
pub mod plan;
pub mod private;
pub mod ranges;
pub mod sync;
pub mod units;

pub use config::{Configuration, MemberId, Mode, SlotAssignment};
pub use geometry::{
    Family, Geometry, GeometryError, Layout, LayoutError, Level, Owner, Place, Places, Raid0Layout,
    Raid5Layout, Raid6Layout, Shape, StripeMap, StripeRole,
};
pub use ranges::RangeSet;
pub use units::{Epoch, MAX_SLOTS, Slot, SlotSet, Stripe};
