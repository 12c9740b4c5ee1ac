//! Disks that the lab knows, each parameter with its source.
//!
//! Two files of data: `catalogue.toml` has disks as data sheets describe them, `extracted.toml`
//! those whose parameters were measured from outside. A parameter is a pair `[value, source]`; the
//! source is a key of the file's table `sources`. Units are in the names: `seek_average_ms`.

mod hdd;

use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use self::hdd::HddEntry;

use super::Model;
use super::SECTOR;
use super::flash::{self, Flash};
use super::hdd::Hdd;

/// A value and the key of its source.
#[derive(Clone, PartialEq, Deserialize, Debug)]
pub struct Sourced<T>(pub T, pub String);

/// A catalogued disk.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A hard disk.
    Hdd(Box<HddEntry>),
    /// A flash disk.
    Flash(Box<flash::FlashEntry>),
}

/// A model of a catalogued disk, and what its host can ask it.
pub struct Built {
    /// The model.
    pub model: Box<dyn Model>,
    /// Distance costs time.
    pub rotational: bool,
    /// A power cut empties its write cache.
    pub volatile: bool,
}

impl Entry {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Entry::Hdd(hdd) => hdd.sectors() * SECTOR,
            Entry::Flash(disk) => disk.spec().sectors * SECTOR,
        }
    }

    /// Sequential bytes per second at the outside, and the rate at the inside divided by that; of
    /// flash the bus's rate, and 1.
    pub fn rates(&self) -> (f64, f64) {
        match self {
            Entry::Hdd(hdd) => {
                let (geometry, sectors) = (hdd.spec().geometry, hdd.sectors());
                // A hundredth of the disk at each end.
                let part = sectors / 100;
                let outer = geometry.pass(0, part) as f64;
                let inner = geometry.pass(sectors - part, part) as f64;
                ((part * SECTOR) as f64 * 1e9 / outer, outer / inner)
            }
            Entry::Flash(disk) => (disk.spec().bus_rate as f64, 1.0),
        }
    }

    /// The same disk with another size: rates, seek times and revolutions stay. About its own size
    /// means its own. `None` if the size is out of range, or the disk's zones do not reach so far.
    pub fn resized(&self, bytes: u64) -> Option<Entry> {
        if bytes.abs_diff(self.bytes()) < self.bytes() / ROUND {
            return Some(self.clone());
        }
        let sizes = self.bytes() / SMALLER..=self.bytes() * LARGER;
        let sectors = Some(bytes / SECTOR).filter(|_| sizes.contains(&bytes))?;
        match self {
            Entry::Hdd(hdd) => Some(Entry::Hdd(Box::new(hdd.resized(sectors)?))),
            Entry::Flash(disk) => Some(Entry::Flash(Box::new(disk.resized(sectors)))),
        }
    }

    /// A new disk of this kind.
    pub fn build(&self) -> Built {
        self.prepared().build()
    }

    /// All that new disks of this kind have in common: seek curves take a while to compute.
    pub fn prepared(&self) -> Prepared {
        match self {
            Entry::Hdd(hdd) => Prepared::Hdd(Box::new(hdd.spec())),
            Entry::Flash(disk) => Prepared::Flash(Box::new(disk.spec())),
        }
    }
}

/// See [`Entry::prepared`].
#[derive(Clone, Debug)]
pub enum Prepared {
    /// A hard disk.
    Hdd(Box<super::hdd::Spec>),
    /// A flash disk.
    Flash(Box<flash::Spec>),
}

impl Prepared {
    /// A new disk.
    pub fn build(&self) -> Built {
        match self {
            Prepared::Hdd(spec) => {
                let volatile = spec.write_cache.is_some();
                let model = Box::new(Hdd::new(spec.as_ref().clone()));
                Built { model, rotational: true, volatile }
            }
            Prepared::Flash(spec) => {
                let volatile = !spec.protected;
                let model = Box::new(Flash::new(spec.as_ref().clone()));
                Built { model, rotational: false, volatile }
            }
        }
    }

    /// Distance costs time.
    pub fn is_rotational(&self) -> bool {
        matches!(self, Prepared::Hdd(_))
    }
}

/// Classes of disks, each with the catalogued one that stands for it.
pub const CLASSES: [(&str, &str); 5] = [
    ("nearline", "nearline-16t"),
    ("desktop", "desktop-2t"),
    ("sas15k", "cheetah-15k5"),
    ("ssd", "pm883-960"),
    ("nvme", "pm9a3-1t9"),
];

/// How much larger and smaller than catalogued a disk can be made: beyond it is another disk.
const LARGER: u64 = 4;
const SMALLER: u64 = 50;
/// A size that differs by less than a twentieth is the disk's own, in round numbers.
const ROUND: u64 = 20;

/// A parameter for people.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Parameter {
    /// Its name, with the unit.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it comes from.
    pub source: String,
}

/// The catalogue.
#[derive(Debug)]
pub struct Catalogue {
    entries: BTreeMap<String, (Entry, Vec<Parameter>)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sources: BTreeMap<String, String>,
    #[serde(default)]
    hdd: BTreeMap<String, HddEntry>,
    #[serde(default)]
    flash: BTreeMap<String, flash::FlashEntry>,
}

const FILES: [&str; 2] =
    [include_str!("../../data/catalogue.toml"), include_str!("../../data/extracted.toml")];

impl Catalogue {
    /// The catalogue of this program.
    ///
    /// # Panics
    /// Never: a test reads the embedded files.
    pub fn get() -> &'static Catalogue {
        static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
        CATALOGUE.get_or_init(|| Catalogue::read(&FILES).expect("the embedded catalogue is valid"))
    }

    /// Reads catalogue files.
    ///
    /// # Errors
    /// If a file is no catalogue, names a source that it does not have, or repeats a disk.
    pub fn read(files: &[&str]) -> Result<Catalogue, String> {
        let mut entries = BTreeMap::new();
        for text in files {
            let file: File = toml::from_str(text).map_err(|e| format!("catalogue: {e}"))?;
            let tables: toml::Table = toml::from_str(text).map_err(|e| e.to_string())?;
            let hdd = file.hdd.into_iter().map(|(id, hdd)| (id, Entry::Hdd(Box::new(hdd))));
            let flash = file.flash.into_iter().map(|(id, disk)| (id, Entry::Flash(Box::new(disk))));
            for (id, entry) in hdd.chain(flash) {
                let kind = if matches!(entry, Entry::Hdd(_)) { "hdd" } else { "flash" };
                let table = tables[kind][&id].as_table();
                let parameters = parameters(table.into_iter().flatten(), &file.sources)
                    .map_err(|cause| format!("catalogue: {id}: {cause}"))?;
                if entries.insert(id.clone(), (entry, parameters)).is_some() {
                    return Err(format!("catalogue: {id}: listed twice"));
                }
            }
        }
        Ok(Catalogue { entries })
    }

    /// The names of all disks, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// A disk by its name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        Some(&self.entries.get(name)?.0)
    }

    /// The disk that stands for a class of [`CLASSES`], and its name.
    pub fn of_class(&self, class: &str) -> Option<(&'static str, &Entry)> {
        let (_, name) = CLASSES.iter().find(|(known, _)| *known == class)?;
        Some((name, self.entry(name)?))
    }

    /// The parameters of a disk, with their sources.
    pub fn parameters(&self, name: &str) -> Option<&[Parameter]> {
        Some(&self.entries.get(name)?.1)
    }

    /// A hard disk by its name.
    pub fn hdd(&self, name: &str) -> Option<&HddEntry> {
        match self.entry(name)? {
            Entry::Hdd(hdd) => Some(hdd),
            Entry::Flash(_) => None,
        }
    }

    /// A flash disk by its name.
    pub fn flash(&self, name: &str) -> Option<&flash::FlashEntry> {
        match self.entry(name)? {
            Entry::Flash(disk) => Some(disk),
            Entry::Hdd(_) => None,
        }
    }
}

/// The pairs of a table for people. Lists are summed up by their lengths.
fn parameters<'a>(
    table: impl Iterator<Item = (&'a String, &'a toml::Value)>,
    sources: &BTreeMap<String, String>,
) -> Result<Vec<Parameter>, String> {
    let mut found = Vec::new();
    for (name, value) in table {
        if name == "name" {
            continue;
        }
        let pair = value.as_array().map(Vec::as_slice);
        let Some([value, toml::Value::String(key)]) = pair else {
            return Err(format!("{name}: not a pair of value and source"));
        };
        let source = sources.get(key).ok_or_else(|| format!("{name}: no source {key:?}"))?;
        let value = match value {
            toml::Value::Array(list) => format!("{} entries", list.len()),
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        found.push(Parameter { name: name.clone(), value, source: source.clone() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disk_can_be_built_and_every_parameter_has_a_source() {
        let catalogue = Catalogue::read(&FILES).unwrap_or_else(|cause| panic!("{cause}"));
        assert!(catalogue.names().count() >= 15, "{:?}", catalogue.names().collect::<Vec<_>>());
        for name in catalogue.names() {
            let built = catalogue.entry(name).expect("listed").build();
            assert!(built.model.sectors() > 1_000_000, "{name}");
            assert_eq!(built.rotational, catalogue.hdd(name).is_some(), "{name}");
            let parameters = catalogue.parameters(name).unwrap_or_default();
            assert!(parameters.len() > 5, "{name}");
            assert!(parameters.iter().all(|p| p.source.len() > 8), "{name}: {parameters:?}");
        }
    }

    #[test]
    fn a_class_has_a_disk_and_every_size_can_be_built() {
        let catalogue = Catalogue::get();
        for (class, name) in CLASSES {
            let (found, entry) = catalogue.of_class(class).expect("in the catalogue");
            assert_eq!(found, name);
            for bytes in [entry.bytes() / 10, entry.bytes() * 3] {
                let resized = entry.resized(bytes).expect("in range");
                assert!(resized.bytes().abs_diff(bytes) <= SECTOR, "{name}");
                let (before, after) = (entry.rates(), resized.rates());
                assert!((after.0 / before.0 - 1.0).abs() < 0.05, "{name}: {before:?} {after:?}");
                assert!((after.1 / before.1 - 1.0).abs() < 0.05, "{name}: {before:?} {after:?}");
                assert_eq!(resized.build().model.sectors() * SECTOR, resized.bytes());
            }
            assert!(entry.resized(1_000_000).is_none() && entry.resized(u64::MAX).is_none());
        }
        let own = catalogue.entry("hd501lj").expect("catalogued");
        assert_eq!(own.resized(500_000_000_000).map(|it| it.bytes()), Some(own.bytes()));
        let extracted = catalogue.entry("cheetah4lp").expect("catalogued");
        assert!(extracted.resized(2 * extracted.bytes()).is_none(), "its zones are known");
    }

    #[test]
    fn a_parameter_without_a_source_is_refused() {
        let text = FILES[0].replacen("rpm = [15000, ", "rpm = [15000, \"nowhere\"] # ", 1);
        assert_ne!(text, FILES[0]);
        let cause = Catalogue::read(&[&text]).err().unwrap_or_default();
        assert!(cause.contains("no source \"nowhere\""), "{cause}");
    }
}
