//! The shape of an array, from its superblocks; and the kinds of array that Parapet does not run.

use io::broken::{Broken, broken};
use layout::geometry::Shape;
use layout::md::superblock::RAID35_LEVEL;
use layout::md::{Features, Magic, SECTOR, Superblock};
use layout::{Geometry, Layout, LayoutError, Level, Raid0Layout, Slot};

use crate::assemble::group::Members;
use crate::assemble::probe::MemberProbe;
use crate::assemble::roles::Standing;
use crate::assemble::{Options, refuse, with_reasons};
use crate::error::{Error, ErrorKind, Result};

/// The level of an array; `None` if it has no data.
pub(crate) fn level(superblock: &Superblock) -> Option<Level> {
    match (superblock.magic, superblock.level) {
        (Magic::Parapet, RAID35_LEVEL) => Some(Level::Raid35),
        (Magic::Md, number) => Level::from_md(number),
        _ => None,
    }
}

/// Level and layout of an array.
///
/// # Errors
/// An unknown level or layout. [`LayoutError::Unspecified`] is a separate case.
pub(crate) fn layout(superblock: &Superblock) -> std::result::Result<Layout, Unknown> {
    let number = superblock.level;
    let level = level(superblock).ok_or(Unknown::Level(number))?;
    // On RAID 0 the field is valid only with a feature flag.
    let says = superblock.features.contains(Features::RAID0_LAYOUT);
    let word = if level == Level::Raid0 && !says { 0 } else { superblock.layout };
    Layout::from_md(level, word).map_err(Unknown::Layout)
}

/// The unknown property of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unknown {
    /// No such level.
    Level(i32),
    /// No such layout.
    Layout(LayoutError),
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unknown::Level(-4) => f.write_str("level multipath (-4) is not supported"),
            Unknown::Level(-5) => f.write_str("level faulty (-5) is not supported"),
            Unknown::Level(-6) => f.write_str("level container (-6) is not supported"),
            Unknown::Level(number) => write!(f, "level {number} is not known"),
            Unknown::Layout(error) => error.fmt(f),
        }
    }
}

/// The reason why an array cannot even be read safely, with a hint; `None` if it can.
pub(crate) fn not_run(superblock: &Superblock) -> Option<String> {
    let features = superblock.features;
    let has = |feature| features.contains(feature);
    Some(if has(Features::RESHAPE) {
        "is being reshaped; let Linux finish that first".to_string()
    } else if has(Features::JOURNAL) {
        "has a journal device, which may hold the latest data; let Linux run it and remove that \
         first (mdadm MD --fail JOURNAL --remove JOURNAL, then write `resync` to \
         /sys/block/MD/md/consistency_policy)"
            .to_string()
    } else if has(Features::CLUSTERED) {
        "is shared by a cluster of Linux machines (md-cluster), which is not supported; let Linux \
         run it, or copy the data to a new one"
            .to_string()
    } else if features.unknown() != Features::NONE {
        format!("has features that are not known here ({features}): a newer Parapet may know them")
    } else {
        return None;
    })
}

/// Refuses the kinds of array that cannot even be read safely.
pub(super) fn permit_features(found: &MemberProbe) -> Result<()> {
    match not_run(&found.superblock) {
        Some(what) => refuse(format!("the array {what} (superblock of {})", found.name)),
        None => Ok(()),
    }
}

/// The geometry of the array of these members.
pub(super) fn of_array(members: &Members, options: &Options) -> Result<Geometry> {
    let latest = members.latest();
    let superblock = &latest.superblock;
    let found = layout(superblock);
    let (layout, unsaid) = match found {
        Ok(layout) => (layout, false),
        Err(Unknown::Layout(LayoutError::Unspecified)) => {
            let given = options.raid0_layout;
            (Layout::Raid0(given.unwrap_or(Raid0Layout::Original)), given.is_none())
        }
        Err(unknown) => return refuse(format!("{}: {unknown}", latest.name)),
    };
    let layout = match layout {
        Layout::Raid0(_) if broken(Broken::Raid0Guessed) => Layout::Raid0(Raid0Layout::Original),
        given => given,
    };
    let sizes = match layout.level() {
        Level::Linear | Level::Raid0 => own_sizes(members, layout)?,
        _ => {
            fit_all(members)?;
            vec![superblock.size * SECTOR; superblock.raid_disks as usize]
        }
    };
    let chunk_bytes = match layout {
        Layout::Raid1 => 0,
        _ => u64::from(superblock.chunk_sectors) * SECTOR,
    };
    let shape = Shape { layout, chunk_bytes, members: sizes };
    let geometry = Geometry::new(shape)
        .map_err(|error| Error::refused(format!("{}: {error}", latest.name)))?;
    if unsaid && geometry.is_zoned() {
        let unsaid = LayoutError::Unspecified;
        return refuse(format!(
            "{}: {unsaid} Choose one; the superblocks do not record it",
            latest.name
        ));
    }
    Ok(geometry)
}

/// The sizes of all members, for an array that uses each one whole; none may be missing then.
fn own_sizes(members: &Members, layout: Layout) -> Result<Vec<u64>> {
    let slots = members.latest().superblock.raid_disks as usize;
    let mut sizes = vec![None; slots];
    for (_, found, standing) in members.counted() {
        if let Standing::Active(slot) = standing {
            sizes[slot.index()] = Some(found.superblock.data_size * SECTOR);
        }
    }
    let missing = sizes.iter().position(Option::is_none);
    if let Some(slot) = missing {
        let what = format!(
            "{} holds each byte once, and slot {slot} of {slots} is missing: bring that \
             member back",
            layout.level()
        );
        let what = with_reasons(what, &members.notes);
        return Err(Error::new(ErrorKind::DataLost, what).in_slot(Slot::new(slot)));
    }
    Ok(sizes.into_iter().flatten().collect())
}

/// Checks that every member is large enough for the array.
fn fit_all(members: &Members) -> Result<()> {
    let size = members.latest().superblock.size;
    for (_, found, standing) in members.counted() {
        let room = found.superblock.data_size;
        if matches!(standing, Standing::Active(_)) && room < size {
            return refuse(format!(
                "{} has {} bytes for data, the array uses {} of each member: wrong disk, or a \
                 damaged superblock; leave it out",
                found.name,
                room * SECTOR,
                size * SECTOR
            ));
        }
    }
    Ok(())
}
