//! The configuration files, and what their texts mean to the server.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use policy::config::{Document, Loaded};

use crate::absent;
use crate::api::Order;
use crate::daemon::AoePlace;
use crate::engine::Cache;
use crate::failure::{Failure, Id, Result, of_path};
use crate::flags;
use crate::remote::{self, RemoteAddress};
use crate::size::Size;
use crate::tls::Files;

#[cfg(feature = "page")]
mod page;

/// Where the configuration is, unless the user names another file.
pub(crate) const USUAL: &str = "/etc/parapet/parapet.toml";

/// Reads the configuration: the named file, or the usual one if it exists; then the files in
/// `conf.d` beside it, by name.
///
/// # Errors
/// A file that cannot be read, or a mistake in it, with its line.
pub(crate) fn read(named: Option<&Path>) -> Result<Loaded> {
    let main = named.unwrap_or(Path::new(USUAL));
    let mut documents = Vec::new();
    if named.is_some() || main.exists() {
        documents.push(document(main)?);
    }
    let folder = main.parent().unwrap_or(Path::new("/")).join("conf.d");
    let mut more: Vec<PathBuf> = match std::fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(of_path(&folder, &error)),
    };
    more.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    more.sort();
    for path in &more {
        documents.push(document(path)?);
    }
    let loaded = policy::config::load(&documents).map_err(|problem| {
        let action = "correct it; parapet config check tests it";
        Failure::new(Id::Usage, problem.to_string(), action)
    })?;
    check(&loaded)?;
    Ok(loaded)
}

fn document(path: &Path) -> Result<Document> {
    let text = std::fs::read_to_string(path).map_err(|error| of_path(path, &error))?;
    Ok(Document { name: path.display().to_string(), text })
}

/// Tests the texts that only the server understands.
fn check(loaded: &Loaded) -> Result<()> {
    absent::check(loaded)?;
    let config = &loaded.config;
    for address in &config.nbd.listen {
        parsed(loaded, "nbd.listen", address, flags::address)?;
    }
    check_tls(loaded)?;
    #[cfg(feature = "page")]
    page::check(loaded)?;
    if let Some(folder) = config.arrays.scan.iter().find(|folder| !folder.starts_with('/')) {
        return Err(mistake(loaded, "arrays.scan", folder, "name a folder by its whole path"));
    }
    let mut remote = Vec::new();
    for name in config.array.keys() {
        remote.extend(ArraySettings::of(loaded, name, "")?.network_members);
    }
    if !remote.is_empty() && config.arrays.threads > 1 {
        let threads = config.arrays.threads.to_string();
        let wrong = |_: &str| Err::<(), _>("network_members work with one thread only".to_owned());
        parsed(loaded, "arrays.threads", &threads, wrong)?;
    }
    remote::refuse_same(&remote)
}

/// Tests that certificates have their keys.
fn check_tls(loaded: &Loaded) -> Result<()> {
    let (nbd, page) = (&loaded.config.nbd, &loaded.config.page);
    for (section, files) in [
        ("nbd", [&nbd.tls_cert, &nbd.tls_key, &nbd.tls_ca]),
        ("page", [&page.tls_cert, &page.tls_key, &page.tls_ca]),
    ] {
        let [certificate, key, authority] = files.map(|path| path.as_ref().map(Path::new));
        if let Err(failure) = Files::of(certificate, key, authority) {
            let names = ["tls_cert", "tls_key", "tls_ca"].map(|name| format!("{section}.{name}"));
            let mut given =
                names.iter().zip(files).filter_map(|(name, path)| Some((name, path.as_ref()?)));
            let Some((name, path)) = given.next() else { continue };
            return Err(mistake(loaded, name, path, &failure.message));
        }
    }
    Ok(())
}

/// Parses one text, and names its place in the files if it is wrong.
pub(crate) fn parsed<T>(
    loaded: &Loaded,
    key: &str,
    text: &str,
    parse: impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<T> {
    parse(text).map_err(|why| mistake(loaded, key, text, &why))
}

fn mistake(loaded: &Loaded, key: &str, text: &str, why: &str) -> Failure {
    let place = loaded.origin(key).map_or(String::new(), |origin| format!("{origin}: "));
    let message = format!("{place}{key}: {text:?}: {why}");
    Failure::new(Id::Usage, message, "correct it; parapet config check tests it")
}

/// The settings of an array.
#[derive(Clone)]
pub(crate) struct ArraySettings {
    pub(crate) export: bool,
    pub(crate) read_only: bool,
    aoe: Vec<AoePlace>,
    /// Addresses of members on other machines, in their full form.
    pub(crate) network_members: Vec<PathBuf>,
    attach: bool,
    pub(crate) cache: Cache,
    pub(crate) speed_min: Option<Size>,
    pub(crate) speed_max: Option<Size>,
}

impl ArraySettings {
    /// Returns the settings of the array of this name and UUID.
    ///
    /// # Errors
    /// A text that means nothing, with its place.
    pub(crate) fn of(loaded: &Loaded, name: &str, uuid: &str) -> Result<ArraySettings> {
        let own = loaded.config.of(name, uuid);
        let section = if loaded.config.array.contains_key(uuid) { uuid } else { name };
        let key = |key: &str| format!("array.{section}.{key}");
        let place = |text: &String| parsed(loaded, &key("aoe"), text, AoePlace::from_str);
        let address = |text: &String| {
            let parse = |text: &str| RemoteAddress::parse(text).map(|it| it.to_string().into());
            parsed(loaded, &key("network_members"), text, parse)
        };
        let speed = |name: &str, text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| parsed(loaded, &key(name), text, flags::rate)).transpose()
        };
        let cache = |text: &String| {
            parsed(loaded, &key("cache"), text, |text| Cache::from_str(text, false))
        };
        Ok(ArraySettings {
            export: own.export,
            read_only: own.read_only,
            aoe: own.aoe.iter().map(place).collect::<Result<_>>()?,
            network_members: own.network_members.iter().map(address).collect::<Result<_>>()?,
            attach: own.attach,
            cache: own.cache.as_ref().map(cache).transpose()?.unwrap_or_default(),
            speed_min: speed("speed_min", &own.speed_min)?,
            speed_max: speed("speed_max", &own.speed_max)?,
        })
    }

    /// Returns the orders that offer the array to clients: verbs of the control API.
    pub(crate) fn orders(&self) -> Vec<(&'static str, Order)> {
        let online = |place: &AoePlace| Order { aoe: Some(place.to_string()), ..Order::default() };
        let mut orders: Vec<_> = self.aoe.iter().map(|place| ("online", online(place))).collect();
        orders.extend(self.attach.then(|| ("attach", Order::default())));
        orders
    }
}
