//! The configuration of a machine: policy only. Geometry is on the members.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::period::Period;
use crate::schedule::Scrub;
use crate::{alerts, health};

mod load;

pub use load::{Document, Loaded, Problem, Setting, line_of, load};

/// The configuration of a machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which arrays to serve.
    pub arrays: Arrays,
    /// The NBD server.
    pub nbd: Nbd,
    /// The AoE target.
    pub aoe: Aoe,
    /// The web page.
    pub page: Page,
    /// When arrays are scrubbed.
    pub scrub: Scrub,
    /// Disk health.
    pub health: health::Settings,
    /// Whom to tell of events.
    pub notify: Vec<alerts::Channel>,
    /// The web server that is called while all is well.
    pub heartbeat: Option<alerts::Heartbeat>,
    /// What is special about one array, by name or UUID.
    pub array: BTreeMap<String, Array>,
}

/// The section `[arrays]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Arrays {
    /// Folders to search for members.
    pub scan: Vec<String>,
    /// Names or UUIDs of the arrays to serve, with those inside them; empty for all that are found.
    pub start: Vec<String>,
    /// How long to wait for the missing members of an array before it is started without them.
    pub degraded_after: Period,
    /// Number of threads; each serves a part of the regions and of the clients.
    pub threads: u16,
}

impl Default for Arrays {
    fn default() -> Arrays {
        let (scan, start) = (vec!["/dev".into()], Vec::new());
        Arrays { scan, start, degraded_after: Period::seconds(30), threads: 1 }
    }
}

/// The section `[nbd]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nbd {
    /// Addresses: `unix:PATH`, `tcp:ADDRESS:PORT`, `tcp:PORT`.
    pub listen: Vec<String>,
    /// Server certificate (PEM), for TLS.
    pub tls_cert: Option<String>,
    /// Private key of the certificate (PEM).
    pub tls_key: Option<String>,
    /// CA certificate (PEM); clients must present a certificate that it signed.
    pub tls_ca: Option<String>,
}

/// The section `[aoe]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Aoe {
    /// Answer writes before they are durable.
    pub volatile: bool,
    /// Clients may change config strings, masks and reservations.
    pub remote_control: bool,
}

/// The section `[page]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Page {
    /// Address and port, or `unix:PATH`; no page without it. An address that other machines reach
    /// needs TLS, and a login or client certificates.
    pub listen: Option<String>,
    /// Commands by forms; over TCP they need a login or client certificates.
    pub actions: bool,
    /// File with the hash of the page's password, which `parapet page password` makes.
    pub login: Option<String>,
    /// Certificate of the page (PEM), for TLS.
    pub tls_cert: Option<String>,
    /// Private key of the certificate (PEM).
    pub tls_key: Option<String>,
    /// CA certificate (PEM); browsers must present a certificate that it signed.
    pub tls_ca: Option<String>,
}

/// A section `[array.NAME]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Array {
    /// False to offer it to no NBD client.
    pub export: bool,
    /// Refuse writes, and write nothing to the members.
    pub read_only: bool,
    /// AoE exports: `SHELF.SLOT@INTERFACE[,INTERFACE]`.
    pub aoe: Vec<String>,
    /// Addresses of members on other machines, which no folder has: `nbd://HOST/EXPORT`,
    /// `aoe:SHELF.SLOT@INTERFACE`.
    pub network_members: Vec<String>,
    /// Make it a local disk, `/dev/parapet/NAME`.
    pub attach: bool,
    /// When writes are acknowledged: `none`, `sync` or `writeback`, as in `serve --cache`.
    pub cache: Option<String>,
    /// Least speed of background work: bytes of each member a second, such as `64M`.
    pub speed_min: Option<String>,
    /// Highest speed of background work.
    pub speed_max: Option<String>,
    /// Arrays of one group share their spares.
    pub spare_group: String,
    /// Its own schedule, in place of `[scrub]`.
    pub scrub: Option<Scrub>,
}

impl Default for Array {
    fn default() -> Array {
        Array {
            export: true,
            read_only: false,
            aoe: Vec::new(),
            network_members: Vec::new(),
            attach: false,
            cache: None,
            speed_min: None,
            speed_max: None,
            spare_group: String::new(),
            scrub: None,
        }
    }
}

impl Array {
    /// The keys whose change waits for the next start of the array: to carry it out earlier would
    /// drop clients, or change what they were promised.
    pub fn later(&self, new: &Array) -> Vec<&'static str> {
        let gone = |place: &String| !new.aoe.contains(place);
        let changes = [
            ("export", self.export && !new.export),
            ("read_only", self.read_only != new.read_only),
            ("aoe", self.aoe.iter().any(gone)),
            ("attach", self.attach && !new.attach),
            ("cache", self.cache != new.cache),
        ];
        changes.into_iter().filter(|(_, waits)| *waits).map(|(key, _)| key).collect()
    }
}

impl Config {
    /// What is special about the array of this name and UUID. A section named by the UUID wins:
    /// several arrays may have one name.
    pub fn of(&self, name: &str, uuid: &str) -> Array {
        let own = self.array.get(uuid).or_else(|| self.array.get(name));
        own.cloned().unwrap_or_default()
    }

    /// The schedule of this array.
    pub fn scrub_of(&self, name: &str, uuid: &str) -> Scrub {
        self.of(name, uuid).scrub.unwrap_or_else(|| self.scrub.clone())
    }

    /// Whether to serve the array of this name and UUID.
    pub fn starts(&self, name: &str, uuid: &str) -> bool {
        let start = &self.arrays.start;
        start.is_empty() || start.iter().any(|wanted| wanted == name || wanted == uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_drop_clients_waits_for_the_next_start() {
        let usual = Array::default;
        let offered = || Array { attach: true, aoe: vec!["1.0@eth1".into()], ..usual() };
        for (old, new, later) in [
            (usual(), usual(), &[][..]),
            (usual(), offered(), &[]),
            (offered(), usual(), &["aoe", "attach"]),
            (
                offered(),
                Array { aoe: vec!["1.0@eth1".into(), "1.0@eth2".into()], ..offered() },
                &[],
            ),
            (offered(), Array { aoe: vec!["1.1@eth1".into()], ..offered() }, &["aoe"]),
            (usual(), Array { export: false, ..usual() }, &["export"]),
            (Array { export: false, ..usual() }, usual(), &[]),
            (usual(), Array { read_only: true, ..usual() }, &["read_only"]),
            (usual(), Array { cache: Some("sync".into()), ..usual() }, &["cache"]),
            (usual(), Array { speed_max: Some("1M".into()), ..usual() }, &[]),
        ] {
            assert_eq!(old.later(&new), later, "{old:?} {new:?}");
        }
    }
}
