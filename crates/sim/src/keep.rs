//! The rest of a shortened run, in the form of `--keep`.
//!
//! Every request and every incident is drawn from its own stream, so each can be removed without a
//! change to the others. Members are removed from the end, disks are halved: requests use shares of
//! the array and incidents numbers of present disks, so both fit any array.
//!
//! Invariant: the seed, the wishes and the [`Keep`] give the run; nothing else is needed to replay.

use std::collections::BTreeSet;
use std::fmt;

use layout::{Layout, Level};

use crate::options::{Options, Shape};

/// Disks are never smaller than this.
const LEAST_BYTES: u64 = 64 << 10;
/// Every number of members up to this is tried, of larger ones every eighth.
const FEW_MEMBERS: usize = 9;
/// Of a run in which nothing is left but the array itself.
const NOTHING: &str = "none";

/// A removable part of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Choice {
    /// A client's request, by its number.
    Request(usize, usize),
    /// An incident, as numbered when it was drawn.
    Incident(usize),
}

/// The rest of a run. The default is all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keep {
    /// The parts that are kept; `None`: all.
    pub choices: Option<BTreeSet<Choice>>,
    /// How many members the clients' array has; `None`: as many as were drawn.
    pub members: Option<usize>,
    /// Where members are arrays: how many members each of these has.
    pub inner: Option<usize>,
    /// How often the size of every disk is halved.
    pub halvings: u32,
}

impl Keep {
    /// Is the run complete?
    pub fn is_all(&self) -> bool {
        *self == Keep::default()
    }

    /// Is this part of the run?
    pub fn keeps(&self, choice: Choice) -> bool {
        self.choices.as_ref().is_none_or(|kept| kept.contains(&choice))
    }

    /// A disk's size in this run.
    pub fn bytes(&self, bytes: u64) -> u64 {
        let halved = (bytes >> self.halvings.min(63)) / LEAST_BYTES * LEAST_BYTES;
        if self.halvings == 0 { bytes } else { halved.max(LEAST_BYTES) }
    }

    /// Parses the output of [`Keep`]: `r0.3,r2.1,i4,m3,h1`.
    ///
    /// # Errors
    /// The word that means nothing.
    pub fn parse(text: &str) -> Result<Keep, String> {
        let mut choices = BTreeSet::new();
        let mut keep = Keep::default();
        for word in text.split(',').filter(|word| !word.is_empty() && *word != NOTHING) {
            let wrong = || format!("--keep: {word:?} is no part of a run");
            let (kind, rest) = word.split_at_checked(1).ok_or_else(wrong)?;
            let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
            match kind {
                "r" => {
                    let (client, index) = rest.split_once('.').ok_or_else(wrong)?;
                    choices.insert(Choice::Request(number(client)?, number(index)?));
                }
                "i" => {
                    choices.insert(Choice::Incident(number(rest)?));
                }
                "m" => keep.members = Some(number(rest)?),
                "n" => keep.inner = Some(number(rest)?),
                "h" => keep.halvings = number(rest)? as u32,
                _ => return Err(wrong()),
            }
        }
        Ok(Keep { choices: Some(choices), ..keep })
    }

    /// How many requests are left, and how many incidents.
    pub fn counts(&self, options: &Options) -> (usize, usize) {
        let all = (options.clients * options.requests, options.incidents_total());
        let Some(choices) = &self.choices else { return all };
        let requests =
            choices.iter().filter(|choice| matches!(choice, Choice::Request(..))).count();
        (requests, choices.len() - requests)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.choices.iter().flatten().map(|part| match part {
            Choice::Request(client, index) => format!("r{client}.{index}"),
            Choice::Incident(number) => format!("i{number}"),
        });
        let members = self.members.map(|members| format!("m{members}"));
        let inner = self.inner.map(|members| format!("n{members}"));
        let halved = (self.halvings > 0).then(|| format!("h{}", self.halvings));
        let words: Vec<String> = parts.chain(members).chain(inner).chain(halved).collect();
        f.write_str(if words.is_empty() { NOTHING } else { "" })?;
        f.write_str(&words.join(","))
    }
}

impl Options {
    /// These options, reduced to the rest.
    ///
    /// # Errors
    /// A number of members that the level cannot have, or that was not there.
    pub fn kept(mut self, keep: Keep) -> Result<Options, String> {
        let each = self.inner.as_ref().map_or(1, |inner| inner.members);
        if let Some(members) = keep.members {
            self.outer = self.outer.with_members(members)?;
        }
        let mut left = each;
        if let Some(members) = keep.inner {
            let inner = self.inner.as_ref().ok_or("--keep: members are no arrays here")?;
            let inner = inner.with_members(members)?;
            left = inner.members;
            self.inner = Some(inner);
        }
        // The first ones of each array stay.
        let arrays = self.data_bytes.chunks(each).take(self.outer.members);
        let stay = arrays.flat_map(|array| &array[..left]);
        self.data_bytes = stay.map(|&bytes| keep.bytes(bytes)).collect();
        self.keep = keep;
        Ok(self)
    }
}

impl Shape {
    /// The fewest members that runs have of a level: one alone makes no array.
    pub fn least_members(level: Level) -> usize {
        level.min_members().max(2)
    }

    /// The same array with at most this many members. If layouts depend on the number of members,
    /// the nearest one: of RAID 3.5 the order that fits, of RAID 10 the same kind of copies, but at
    /// most as many as members.
    ///
    /// # Errors
    /// If there is no such array.
    pub fn with_members(&self, members: usize) -> Result<Shape, String> {
        let (level, most) = (self.layout.level(), self.members);
        let wrong = || format!("--keep: {level} {} of {most} cannot have {members}", self.layout);
        if !(Shape::least_members(level)..=most).contains(&members) {
            return Err(wrong());
        }
        let allowed: Vec<Layout> = Layout::all(level, members).collect();
        let layout = match allowed.contains(&self.layout) {
            true => self.layout,
            false => {
                let nearest = allowed.into_iter().rfind(|&other| alike(other, self.layout));
                nearest.ok_or_else(wrong)?
            }
        };
        let mut shape = Shape { layout, members, ..self.clone() };
        if let (Layout::Raid35 { order: had }, Layout::Raid35 { order }) = (self.layout, layout) {
            // A stripe stays as long as it was.
            shape.chunk_bytes <<= had - order;
        }
        Ok(shape)
    }

    /// Smaller numbers of members that such an array can have, the smallest first.
    pub fn fewer(&self) -> Vec<usize> {
        let tried = |count: &usize| *count <= FEW_MEMBERS || count.is_multiple_of(8);
        let counts = (Shape::least_members(self.layout.level())..self.members).filter(tried);
        counts.filter(|&count| self.with_members(count).is_ok()).collect()
    }
}

/// Are these layouts of one level of the same kind?
fn alike(one: Layout, other: Layout) -> bool {
    let kind = |layout| match layout {
        Layout::Raid10 { near, far, offset } => (near > 1, far > 1, offset),
        _ => (false, false, false),
    };
    kind(one) == kind(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Wish;

    #[test]
    fn keep_is_parsed_again() {
        for text in ["r0.3,r12.1,i4,m3,n2,h2", "m2", "none", "i1"] {
            let keep = Keep::parse(text).expect("as printed");
            assert_eq!(keep.to_string(), text);
        }
        let keep = Keep::parse("r0.3,r12.1,i4,m3,h2").expect("as printed");
        assert_eq!((keep.members, keep.inner), (Some(3), None));
        assert!(keep.keeps(Choice::Incident(4)) && !keep.keeps(Choice::Request(0, 4)));
        assert_eq!((keep.bytes(512 << 10), Keep::default().bytes(1000)), (128 << 10, 1000));
        assert!(Keep::parse("x1").is_err() && Keep::parse("r1").is_err());
        assert!(Keep::default().keeps(Choice::Request(9, 9)));
    }

    /// Leaving out leaves the rest as it was.
    #[test]
    fn the_other_requests_stay() {
        let options = Options::draw(3, Wish::default());
        let whole = crate::workload::draw(&options, 0, 1 << 20, 4096);
        let choices = Some([Choice::Request(0, 2), Choice::Request(1, 0)].into());
        let kept = options.kept(Keep { choices, ..Keep::default() }).expect("all members");
        let keep = crate::workload::draw(&kept, 0, 1 << 20, 4096);
        assert_eq!(keep.len(), 1);
        assert_eq!(keep[0].to_string(), whole[2].to_string());
    }

    /// Each level's rules hold for fewer members, and every remaining member is unchanged.
    #[test]
    fn fewer_members_are_an_array_that_the_level_can_have() {
        let (mut tried, mut nested) = (0, 0);
        for seed in 0..600 {
            let whole = Options::draw(seed, Wish::default());
            let each = whole.inner.as_ref().map_or(1, |inner| inner.members);
            for members in whole.outer.fewer() {
                let keep = Keep { members: Some(members), ..Keep::default() };
                let few = whole.clone().kept(keep).expect("`is_possible` returned true");
                let bytes = vec![1 << 20; members];
                let shape = &few.outer;
                let (layout, chunk_bytes) = (shape.layout, shape.chunk_bytes);
                let shape = layout::Shape { layout, chunk_bytes, members: bytes };
                let geometry = layout::Geometry::new(shape);
                assert!(geometry.is_ok(), "seed {seed}: {members}: {geometry:?}");
                assert_eq!(few.data_bytes, whole.data_bytes[..members * each]);
                tried += 1;
            }
            for inner in whole.inner.iter().flat_map(Shape::fewer) {
                let keep = Keep { inner: Some(inner), ..Keep::default() };
                let few = whole.clone().kept(keep).expect("`is_possible` returned true");
                let firsts = whole.data_bytes.chunks(each).flat_map(|array| &array[..inner]);
                assert!(few.data_bytes.iter().eq(firsts), "seed {seed}: {inner}");
                nested += 1;
            }
        }
        assert!(tried > 1000 && nested > 20, "{tried}, {nested}");
    }

    #[test]
    fn levels_keep_their_counts() {
        let shapes = (0..2000).map(|seed| Options::draw(seed, Wish::default()).outer);
        for shape in shapes {
            let fewer = shape.fewer();
            match shape.layout {
                Layout::Raid35 { order: 3 } => assert_eq!(fewer, [3, 5]),
                Layout::Raid35 { order: 1 } => assert!(fewer.is_empty()),
                Layout::Raid6(_) if shape.members == 6 => assert_eq!(fewer, [4, 5]),
                Layout::Raid10 { near: 7, far: 1, .. } if shape.members == 7 => {
                    assert_eq!(fewer, [2, 3, 4, 5, 6]);
                }
                _ => {}
            }
            assert!(shape.with_members(shape.members + 1).is_err());
            assert!(shape.with_members(1).is_err());
        }
    }
}
