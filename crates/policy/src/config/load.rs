//! Several files to one configuration: a later file adds to an earlier one, and overrides it.
//!
//! Keeps where each setting comes from, for `parapet config show --origin`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::Config;

/// A file of the configuration.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its name, for messages.
    pub name: String,
    /// Its text: TOML.
    pub text: String,
}

/// A configuration, and where its settings come from.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// File and line of each setting, by key.
    origins: BTreeMap<String, String>,
}

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key, such as `scrub.every`.
    pub key: String,
    /// Its value, as TOML.
    pub value: String,
    /// File and line; none for a default.
    pub origin: Option<String>,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The line, from 1; none if the whole file is meant.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

/// Reads the files, in this order.
///
/// # Errors
/// A file is not TOML, has an unknown key, or a value out of its range.
pub fn load(documents: &[Document]) -> Result<Loaded, Problem> {
    let (mut merged, mut origins) = (Table::new(), BTreeMap::new());
    for document in documents {
        let problem = |error: toml::de::Error| Problem {
            file: document.name.clone(),
            line: error.span().map(|span| line_of(&document.text, span.start)),
            what: error.message().trim().replace('\n', ": "),
        };
        // Each file by itself: an error then has its line.
        let _: Config = toml::from_str(&document.text).map_err(problem)?;
        let spanned = DeTable::parse(&document.text).map_err(problem)?;
        note_origins(spanned.get_ref(), "", document, &mut origins);
        merge(&mut merged, toml::from_str(&document.text).map_err(problem)?);
    }
    let config = Config::deserialize(Value::Table(merged)).map_err(|error| Problem {
        file: documents.last().map_or_else(String::new, |last| last.name.clone()),
        line: None,
        what: error.message().to_owned(),
    })?;
    Ok(Loaded { config, origins })
}

impl Loaded {
    /// File and line of a setting; none for a default.
    pub fn origin(&self, key: &str) -> Option<&str> {
        self.origins.get(key).map(String::as_str)
    }

    /// Every setting in force, by key.
    pub fn settings(&self) -> Vec<Setting> {
        let mut found = Vec::new();
        // It was made of TOML, so it can be written as TOML.
        let table = Table::try_from(&self.config).unwrap_or_default();
        flatten(&Value::Table(table), "", &mut |key, value| {
            let origin = self.origins.get(key).cloned();
            found.push(Setting { key: key.into(), value: value.to_string(), origin });
        });
        found
    }
}

/// The number of the line at this byte.
pub fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes().iter().take(byte).filter(|&&byte| byte == b'\n').count() + 1
}

/// The key of `name` in the table `prefix`.
fn joined(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.into() } else { format!("{prefix}.{name}") }
}

fn note_origins(
    table: &DeTable<'_>,
    prefix: &str,
    document: &Document,
    origins: &mut BTreeMap<String, String>,
) {
    for (name, value) in table.iter() {
        let key = joined(prefix, name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => note_origins(inner, &key, document, origins),
            _ => {
                let line = line_of(&document.text, name.span().start);
                let origin = format!("{}:{line}", document.name);
                // Lists of sections come from several files.
                origins
                    .entry(key)
                    .and_modify(|known| match value.get_ref() {
                        DeValue::Array(items) if are_sections(items) => {
                            *known = format!("{known}, {origin}");
                        }
                        _ => known.clone_from(&origin),
                    })
                    .or_insert(origin);
            }
        }
    }
}

fn are_sections(items: &[toml::Spanned<DeValue<'_>>]) -> bool {
    items.iter().any(|item| matches!(item.get_ref(), DeValue::Table(_)))
}

/// Adds `new` to `all`: tables are merged, lists of sections appended, other values replaced.
fn merge(all: &mut Table, new: Table) {
    for (name, value) in new {
        match (all.get_mut(&name), value) {
            (Some(Value::Table(known)), Value::Table(more)) => merge(known, more),
            (Some(Value::Array(known)), Value::Array(more)) if more.iter().any(Value::is_table) => {
                known.extend(more);
            }
            (_, value) => drop(all.insert(name, value)),
        }
    }
}

fn flatten(value: &Value, key: &str, each: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(name, value)| flatten(value, &joined(key, name), each));
        }
        _ => each(key, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::period::Period;

    fn document(name: &str, text: &str) -> Document {
        Document { name: name.into(), text: text.into() }
    }

    #[test]
    fn later_files_add_and_override_and_are_named() {
        let main = "[arrays]\nscan = [\"/dev\"]\n\n[scrub]\nevery = \"7 days\"\n[array.tank]\n\
                    attach = true\n";
        let more = "[scrub]\nevery = \"14 days\"\n[array.vault]\nexport = false\n";
        let loaded = load(&[document("a", main), document("b", more)]).unwrap();
        assert_eq!(loaded.config.scrub.every, Period::days(14));
        assert!(loaded.config.of("tank", "").attach && !loaded.config.of("vault", "").export);
        let settings = loaded.settings();
        let of = |key: &str| settings.iter().find(|setting| setting.key == key).unwrap();
        assert_eq!(of("scrub.every").origin.as_deref(), Some("b:2"));
        assert_eq!(of("scrub.every").value, "\"14 days\"");
        assert_eq!(of("array.tank.attach").origin.as_deref(), Some("a:7"));
        assert_eq!(of("arrays.degraded_after").origin, None, "a default");
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, line, part) in [
            ("[scrub]\nevery = \"often\"\n", 2, "is no period"),
            ("[scrub]\n\nwindow = 1\n", 3, "unknown field `window`"),
            ("[array.tank]\nlevel = 5\n", 2, "unknown field `level`"),
            ("[scrub]\nwindows = [\"22-6\"]\n", 2, "is no window"),
            ("a = \n", 1, ""),
        ] {
            let problem = load(&[document("f", text)]).unwrap_err();
            assert_eq!(problem.line, Some(line), "{text:?}: {problem}");
            assert!(problem.what.contains(part), "{problem}");
        }
    }

    #[test]
    fn no_file_is_the_default() {
        let loaded = load(&[]).unwrap();
        assert_eq!(loaded.config, Config::default());
        assert!(loaded.settings().iter().all(|setting| setting.origin.is_none()));
        assert!(loaded.config.starts("any", "uuid"));
    }
}
