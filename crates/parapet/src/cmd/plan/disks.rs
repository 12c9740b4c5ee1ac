//! Disks as the user names them: `10xhd501lj`, `10x500GB:hd501lj`, `8x4TB:nearline`.

use ::lab::disk::catalogue::{CLASSES, Catalogue, Entry};
use ::lab::reliability::DiskKind;

use crate::size::Size;

const FORM: &str = "write a number, x and a model or class: 10xhd501lj, 8x4TB:nearline";

/// Equal disks.
#[derive(Clone)]
pub(super) struct Disks {
    /// As the user has written it.
    pub(super) text: String,
    pub(super) count: usize,
    /// The model that stands for them, in the catalogue.
    pub(super) model: String,
    /// That model, in the size that the user has given.
    pub(super) entry: Entry,
}

impl Disks {
    pub(super) fn parse(text: &str) -> Result<Disks, String> {
        let (count, rest) = text.split_once('x').ok_or(FORM)?;
        let count: usize = count.trim().parse().map_err(|_| FORM)?;
        if !(2..=100).contains(&count) {
            return Err("choose 2 to 100 disks".into());
        }
        let (size, name) = match rest.rsplit_once(':') {
            Some((size, name)) => (Some(size.parse::<Size>()?), name),
            None => (None, rest),
        };
        let catalogue = Catalogue::get();
        let known = catalogue.of_class(name);
        let model = known.map_or(name, |(model, _)| model);
        let entry = catalogue.entry(model).ok_or_else(|| {
            let classes = CLASSES.map(|(class, _)| class).join(", ");
            format!("no model or class {name:?}; classes: {classes}; models: parapet lab disks")
        })?;
        let sized = size.map_or(Some(entry.clone()), |size| entry.resized(size.0));
        let entry = sized.ok_or_else(|| {
            let own = Size(entry.bytes()).in_thousands();
            format!("{name} has {own}; choose a size near that, at most four times as large")
        })?;
        Ok(Disks { text: text.into(), count, model: model.into(), entry })
    }

    pub(super) fn kind(&self) -> DiskKind {
        let (outer_rate, inner_share) = self.entry.rates();
        DiskKind { name: self.model.clone(), bytes: self.entry.bytes(), outer_rate, inner_share }
    }
}
