//! The parts that a build can lack, and how it refuses their use.
//!
//! ```text
//!   feature   verbs                  flags               configuration, members
//!   cluster   cluster, serve-disk    quickstart --cluster
//!   lab       lab, plan                                  model:NAME:FILE
//!   notify    notify                 serve --notify      [[notify]], [heartbeat]
//!   page      page                   serve --page…       [page]
//! ```
//!
//! Each part that is not built has a stand-in here: a module with the names that the rest of the
//! program uses. A stand-in does nothing, or refuses: nothing that a user asks for is ignored.

use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use policy::config::Loaded;

use crate::failure::{Failure, Id, Result};

#[cfg(not(feature = "cluster"))]
pub(crate) mod cluster;
#[cfg(not(feature = "notify"))]
pub(crate) mod notify;
#[cfg(not(feature = "page"))]
pub(crate) mod page;
#[cfg(not(feature = "lab"))]
pub(crate) mod real_time;

/// A part with a feature of its own.
struct Part {
    feature: &'static str,
    is_built: bool,
    verbs: &'static [&'static str],
    /// The start of the flags of other verbs; a stand-in refuses those that are not here.
    flag: Option<&'static str>,
    /// Sections of a configuration.
    sections: &'static [&'static str],
}

const PARTS: [Part; 4] = [
    Part {
        feature: "cluster",
        is_built: cfg!(feature = "cluster"),
        verbs: &["cluster", "serve-disk"],
        flag: None,
        sections: &[],
    },
    Part {
        feature: "lab",
        is_built: cfg!(feature = "lab"),
        verbs: &["lab", "plan"],
        flag: None,
        sections: &[],
    },
    Part {
        feature: "notify",
        is_built: cfg!(feature = "notify"),
        verbs: &["notify"],
        flag: Some("--notify"),
        sections: &["notify", "heartbeat"],
    },
    Part {
        feature: "page",
        is_built: cfg!(feature = "page"),
        verbs: &["page"],
        flag: Some("--page"),
        sections: &["page"],
    },
];

/// Returns the parts that this build lacks.
fn absent() -> impl Iterator<Item = &'static Part> {
    PARTS.iter().filter(|part| !part.is_built)
}

/// Returns the version, and the features that this build lacks.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let absent: Vec<&str> = absent().map(|part| part.feature).collect();
        match absent.is_empty() {
            true => env!("CARGO_PKG_VERSION").into(),
            false => format!("{} (without {})", env!("CARGO_PKG_VERSION"), absent.join(", ")),
        }
    });
    &VERSION
}

/// Refuses a use of a feature that this build lacks.
pub(crate) fn refusal(object: &str, feature: &str) -> Failure {
    let message = format!("{object}: this program was built without the feature `{feature}`");
    Failure::new(Id::Usage, message, "build it with default features, or use the package")
}

/// Replaces the error of an unknown verb or flag, if it belongs to a part that this build lacks.
pub(crate) fn explained(error: clap::Error) -> clap::Error {
    let Some(failure) = named(&error) else { return error };
    let text = format!("{}\n\n  tip: {}\n", failure.message, failure.action);
    clap::Error::raw(error.kind(), text)
}

/// Returns the refusal of the verb or flag that an error names.
fn named(error: &clap::Error) -> Option<Failure> {
    let place = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(place) else { return None };
    let is_flag = |flag: &str| word == flag || word.starts_with(&format!("{flag}-"));
    let verb = |part: &Part| part.verbs.iter().find(|verb| *verb == word).copied();
    let object = |part: &Part| verb(part).or(part.flag.filter(|flag| is_flag(flag)));
    absent().find_map(|part| Some(refusal(object(part)?, part.feature)))
}

/// Refuses sections of a configuration for parts that this build lacks.
///
/// # Errors
/// Names the first setting, its place, and the feature.
pub(crate) fn check(loaded: &Loaded) -> Result<()> {
    for setting in loaded.settings() {
        let section = setting.key.split('.').next().unwrap_or_default();
        let part = absent().find(|part| part.sections.contains(&section));
        if let (Some(part), Some(origin)) = (part, &setting.origin) {
            return Err(refusal(&format!("{origin}: {}", setting.key), part.feature));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::flags::Cli;

    #[test]
    fn a_verb_exists_or_is_explained() {
        for part in &PARTS {
            for verb in part.verbs {
                let error = Cli::command().try_get_matches_from(["parapet", verb, "--help"]);
                let error = error.expect_err("help ends the parser");
                assert_eq!(named(&error).is_some(), !part.is_built, "{verb}");
            }
        }
    }

    #[test]
    fn the_version_names_what_is_missing() {
        let all = PARTS.iter().all(|part| part.is_built);
        assert_eq!(version() == env!("CARGO_PKG_VERSION"), all);
    }
}
