//! Changes of an experiment by dotted paths of its file: `hardware.cache.acknowledge_us`,
//! `load.worker.0.count`.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::{Experiment, Fault};

/// Values by their paths.
pub type Changes = BTreeMap<String, Value>;

impl Experiment {
    /// The same experiment with other values, checked.
    ///
    /// # Errors
    /// If a path leads nowhere, or the changed experiment cannot be.
    pub fn changed(&self, changes: &Changes) -> Result<Experiment, Fault> {
        let changed = self.read_with(changes)?;
        changed.check()?;
        Ok(changed)
    }

    fn read_with(&self, changes: &Changes) -> Result<Experiment, Fault> {
        let mut table = self.table()?;
        for (path, value) in changes {
            put(&mut table, path, value.clone())?;
        }
        let key = changes.keys().cloned().collect::<Vec<_>>().join(", ");
        let wrong = |cause: toml::de::Error| unfit(&key, cause.message());
        Value::Table(table).try_into().map_err(wrong)
    }

    /// The same experiment with a number at this path: as it is, else rounded, else as bytes of a
    /// size.
    ///
    /// # Errors
    /// As [`Experiment::changed`].
    pub fn with_number(&self, path: &str, number: f64) -> Result<Experiment, Fault> {
        let whole = number.round();
        let forms = [
            Value::Float(number),
            Value::Integer(whole as i64),
            Value::String(format!("{whole:.0}B")),
        ];
        let read = |form| self.read_with(&Changes::from([(path.to_string(), form)]));
        let mut outcome = Err(unfit(path, "not a number"));
        for form in forms {
            outcome = read(form);
            if outcome.is_ok() {
                break;
            }
        }
        let changed = outcome?;
        changed.check()?;
        Ok(changed)
    }

    /// The number at a path, if the file has one there.
    pub fn number(&self, path: &str) -> Option<f64> {
        let mut value = Value::Table(self.table().ok()?);
        for name in path.split('.') {
            value = match &mut value {
                Value::Table(table) => table.remove(name)?,
                Value::Array(values) => values.get(name.parse::<usize>().ok()?)?.clone(),
                _ => return None,
            };
        }
        match value {
            Value::Float(number) => Some(number),
            Value::Integer(number) => Some(number as f64),
            Value::String(text) => {
                super::schema::Size::try_from(text).ok().map(|size| size.0 as f64)
            }
            _ => None,
        }
    }

    fn table(&self) -> Result<Table, Fault> {
        Table::try_from(self).map_err(|cause| Fault::new("", cause.to_string(), ""))
    }
}

fn unfit(path: &str, cause: &str) -> Fault {
    Fault::new(path, cause, "write a path of the experiment: hardware.cache.acknowledge_us")
}

/// Puts a value at a path; tables on the way are made.
fn put(table: &mut Table, path: &str, value: Value) -> Result<(), Fault> {
    let (way, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut here = table;
    let mut names = way.split('.').filter(|name| !name.is_empty());
    while let Some(name) = names.next() {
        let next = here.entry(name).or_insert_with(|| Value::Table(Table::new()));
        here = match next {
            Value::Table(table) => table,
            Value::Array(values) => {
                let index = names.next().and_then(|name| name.parse::<usize>().ok());
                let found = index.and_then(|index| values.get_mut(index)?.as_table_mut());
                found.ok_or_else(|| unfit(path, "no such element of a list"))?
            }
            _ => return Err(unfit(path, "no table on the way")),
        };
    }
    here.insert(last.to_string(), value);
    Ok(())
}
