//! Metadata contexts: the kinds of block status that an export offers.
//!
//! Contexts have a name in a namespace. `base:` is the protocol's; `x-parapet:` is ours, and has no
//! context yet. Owns the names and the meaning of their status flags.

use io::ExtentKind;

use super::wire::allocation;

/// A metadata context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaContext {
    /// `base:allocation`: stored data and holes.
    Allocation,
}

impl MetaContext {
    /// All there are.
    pub const ALL: [MetaContext; 1] = [MetaContext::Allocation];

    /// The full name, namespace included.
    pub fn name(self) -> &'static str {
        match self {
            MetaContext::Allocation => "base:allocation",
        }
    }

    /// The number that stands for the context on one connection.
    pub fn id(self) -> u32 {
        match self {
            MetaContext::Allocation => 1,
        }
    }

    /// The context with this full name.
    pub fn named(name: &str) -> Option<MetaContext> {
        MetaContext::ALL.into_iter().find(|context| context.name() == name)
    }

    /// The contexts that match a query of LIST_META_CONTEXT: a name, or a namespace and a colon for
    /// all its names.
    pub fn matching(query: &str) -> impl Iterator<Item = MetaContext> + '_ {
        MetaContext::ALL.into_iter().filter(move |context| {
            let name = context.name();
            name == query || query.ends_with(':') && name.starts_with(query)
        })
    }

    /// The status flags of bytes of this kind.
    pub fn status(self, kind: ExtentKind) -> u32 {
        match (self, kind) {
            (MetaContext::Allocation, ExtentKind::Data) => 0,
            (MetaContext::Allocation, ExtentKind::Zero) => allocation::ZERO,
            (MetaContext::Allocation, ExtentKind::Hole) => allocation::HOLE | allocation::ZERO,
        }
    }
}
