//! Passwords and tokens: read when they are needed, so that a changed file counts at once.

use policy::alerts::Secret;

/// Reads a secret: the first line of its file, or its environment variable.
///
/// # Errors
/// Why there is none.
pub(super) fn read(secret: &Secret) -> Result<String, String> {
    let (place, text) = match secret {
        Secret::File(path) => (path, std::fs::read_to_string(path).map_err(|it| it.to_string())),
        Secret::Variable(name) => (name, std::env::var(name).map_err(|it| it.to_string())),
    };
    let text = text.map_err(|error| format!("{place}: {error}"))?;
    match text.lines().next().map(str::trim_end).filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.into()),
        None => Err(format!("{place}: it is empty")),
    }
}
