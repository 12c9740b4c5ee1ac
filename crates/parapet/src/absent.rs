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
use policy::config::Config;

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
    /// The start of the flags of other verbs.
    flag: Option<&'static str>,
}

const PARTS: [Part; 4] = [
    Part {
        feature: "cluster",
        is_built: cfg!(feature = "cluster"),
        verbs: &["cluster", "serve-disk"],
        flag: Some("--cluster"),
    },
    Part { feature: "lab", is_built: cfg!(feature = "lab"), verbs: &["lab", "plan"], flag: None },
    Part {
        feature: "notify",
        is_built: cfg!(feature = "notify"),
        verbs: &["notify"],
        flag: Some("--notify"),
    },
    Part {
        feature: "page",
        is_built: cfg!(feature = "page"),
        verbs: &["page"],
        flag: Some("--page"),
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
/// Names the section and the feature.
pub(crate) fn check(config: &Config) -> Result<()> {
    let sections = [
        ("[page]", config.page != Default::default(), "page"),
        ("[[notify]]", !config.notify.is_empty(), "notify"),
        ("[heartbeat]", config.heartbeat.is_some(), "notify"),
    ];
    let is_absent = |feature: &str| absent().any(|part| part.feature == feature);
    let mut used = sections.into_iter().filter(|(_, is_used, _)| *is_used);
    match used.find(|(_, _, feature)| is_absent(feature)) {
        Some((section, _, feature)) => Err(refusal(section, feature)),
        None => Ok(()),
    }
}
