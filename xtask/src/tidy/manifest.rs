//! The dependencies of the workspace's packages, from `cargo metadata`.

use crate::failure::Failure;
use crate::shell;
use serde_json::Value;
use std::path::Path;

/// A package of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// The crate's name without the project's prefix: `io`, not `parapet-io`.
    pub(crate) name: String,
    /// Its manifest's path in the checkout.
    pub(crate) manifest: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a manifest's dependency tables.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// The package's name; of our own ones without the project's prefix.
    pub(crate) name: String,
    /// True if it lies in this workspace.
    pub(crate) ours: bool,
    /// True if only tests, benches and examples use it.
    pub(crate) for_tests: bool,
}

/// Where workspaces are, from the checkout's root: the fuzz targets have one of their own.
const WORKSPACES: &[&str] = &["", "fuzz/"];

/// The packages of all workspaces of the checkout at `root`.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>, Failure> {
    let words = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--quiet"];
    let mut all = Vec::new();
    for place in WORKSPACES {
        let text = shell::output(&root.join(place), &words)?;
        let found = parse(&text).ok_or_else(|| {
            let remedy = "read it in tidy/manifest.rs";
            Failure::new("`cargo metadata` answered in an unknown form", remedy)
        })?;
        let placed =
            |found: Package| Package { manifest: format!("{place}{}", found.manifest), ..found };
        all.extend(found.into_iter().map(placed));
    }
    Ok(all)
}

fn parse(text: &str) -> Option<Vec<Package>> {
    let whole: Value = serde_json::from_str(text).ok()?;
    let root = format!("{}/", whole["workspace_root"].as_str()?);
    whole["packages"].as_array()?.iter().map(|package| read(package, &root)).collect()
}

fn read(package: &Value, root: &str) -> Option<Package> {
    let dependencies = package["dependencies"].as_array()?.iter().map(|dependency| {
        let ours = dependency["path"].is_string();
        let name = dependency["name"].as_str()?;
        Some(Dependency {
            name: String::from(if ours { short(name) } else { name }),
            ours,
            for_tests: dependency["kind"].as_str() == Some("dev"),
        })
    });
    let manifest = package["manifest_path"].as_str()?;
    Some(Package {
        name: String::from(short(package["name"].as_str()?)),
        manifest: String::from(manifest.strip_prefix(root).unwrap_or(manifest)),
        dependencies: dependencies.collect::<Option<_>>()?,
    })
}

/// A package's name without the project's prefix.
fn short(name: &str) -> &str {
    name.strip_prefix("parapet-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_the_prefix_and_kinds_are_distinguished() {
        let text = r#"{"workspace_root":"/p","packages":[{"name":"parapet-io",
            "manifest_path":"/p/crates/io/Cargo.toml","dependencies":[
            {"name":"libc","kind":null},{"name":"parapet-layout","path":"/p/x","kind":"dev"}]}]}"#;
        let packages = parse(text).expect("the form that cargo prints");
        assert_eq!(packages[0].name, "io");
        assert_eq!(packages[0].manifest, "crates/io/Cargo.toml");
        let [libc, layout] = packages[0].dependencies.as_slice() else { panic!("two") };
        assert_eq!((libc.name.as_str(), libc.ours, libc.for_tests), ("libc", false, false));
        assert_eq!((layout.name.as_str(), layout.ours, layout.for_tests), ("layout", true, true));
    }

    #[test]
    fn an_unknown_form_is_refused() {
        assert!(parse("{}").is_none());
        assert!(parse("not json").is_none());
    }
}
