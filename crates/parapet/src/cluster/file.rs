//! The cluster file: what no member and no store says.
//!
//! ```toml
//! name = "pool"
//! uuid = "0f…"                                    # 32 hexadecimal digits
//! store = "file:/var/lib/parapet/pool.decisions"
//! members = ["tcp:10.0.0.1:7600", …]              # in the order of their slots
//! coordinators = ["tcp:10.0.0.1:7610", …]         # a candidate's number is its place here
//!
//! [timing]                                        # optional; the same on all hosts
//! lease_ms = 9000
//!
//! [tls]                                           # optional; paths from the folder of this file
//! cert = "cert.pem"
//! key = "key.pem"
//! ca = "ca.pem"
//! ```
//!
//! Each host has a copy. A host with another order of members would address the wrong disks; their
//! servers refuse it, because a connection names the slot that it means.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use ::cluster::ids::{ArrayId, MemberId, Ms};
use ::cluster::roles::Role;
use ::cluster::session::{Hello, Speaker};
use ::cluster::timing::Timing;
use os::Address;
use policy::config::line_of;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::keys::Keys;
use super::links::Target;
use super::store::Place;
use crate::atomic_file;
use crate::failure::{Failure, Id, Result, of_path};
use crate::flags::{self, tcp_address};
use crate::places;
use crate::tls::Files;

/// Parses `unix:PATH` or `ADDRESS:PORT`, with or without `tcp:`.
pub(crate) fn address(text: &str) -> std::result::Result<Endpoint, String> {
    if text.starts_with("unix:") {
        let address = flags::address(text)?;
        return Ok(Endpoint(match address {
            Address::Unix(path) => Address::Unix(places::absolute(&path)),
            tcp @ Address::Tcp(_) => tcp,
        }));
    }
    tcp_address(text.strip_prefix("tcp:").unwrap_or(text)).map(|tcp| Endpoint(Address::Tcp(tcp)))
}

/// An address, as the file has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Endpoint(pub(crate) Address);

impl Endpoint {
    /// True if other machines may reach it.
    pub(crate) fn is_open(&self) -> bool {
        matches!(&self.0, Address::Tcp(tcp) if !tcp.ip().is_loopback())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Endpoint, String> {
        address(text)
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> String {
        endpoint.to_string()
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Endpoint, String> {
        address(&text)
    }
}

/// Intervals that differ from the usual ones; see [`Timing`].
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Intervals {
    /// A member that was not heard for this long is MISSING.
    member_ms: Option<Ms>,
    /// A client that was not heard for this long is evicted.
    lease_ms: Option<Ms>,
    /// A candidate that heard no coordinator for this long takes over.
    takeover_ms: Option<Ms>,
}

/// What an interval may be: half a minute of silence is more than file systems endure.
const INTERVALS: std::ops::RangeInclusive<Ms> = 200..=30_000;

impl Intervals {
    fn timing(&self) -> std::result::Result<Timing, String> {
        let usual = Timing::DEFAULT;
        let given = [self.member_ms, self.lease_ms, self.takeover_ms];
        if let Some(wrong) = given.into_iter().flatten().find(|ms| !INTERVALS.contains(ms)) {
            let (least, most) = (INTERVALS.start(), INTERVALS.end());
            return Err(format!("timing: {wrong} ms: from {least} to {most}"));
        }
        let lease_ms = self.lease_ms.unwrap_or(usual.lease_ms);
        let member_ms = self.member_ms.unwrap_or(usual.member_ms);
        let takeover_ms = self.takeover_ms.unwrap_or(usual.takeover_ms);
        // A client's patience with a member must be longer than the coordinator's.
        if lease_ms < 2 * member_ms {
            return Err(format!(
                "timing: lease_ms {lease_ms}: at least twice member_ms {member_ms}"
            ));
        }
        Ok(Timing {
            // Several ticks in the shortest interval.
            tick_ms: usual.tick_ms.min(lease_ms.min(member_ms).min(takeover_ms) / 4),
            member_ms,
            lease_ms,
            margin_ms: lease_ms / 10,
            drain_ms: lease_ms,
            takeover_ms,
            idle_ms: usual.idle_ms.min(lease_ms / 2),
            ..usual
        })
    }
}

/// The certificate of this host's processes, by paths from the folder of the cluster file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
    ca: PathBuf,
}

impl TlsFiles {
    /// The files, of a cluster file in this folder.
    fn of(&self, folder: &Path) -> Files {
        let [certificate, key, authority] =
            [&self.cert, &self.key, &self.ca].map(|path| folder.join(path));
        Files { certificate, key, authority: Some(authority) }
    }

    /// How a cluster file in this folder names these files. All hosts may have the same cluster
    /// file, if each has its certificate beside it.
    fn from(files: &Files, folder: &Path) -> TlsFiles {
        let written = |path: &Path| {
            let path = places::absolute(path);
            path.strip_prefix(folder).map(Path::to_owned).unwrap_or(path)
        };
        let ca = files.authority.as_deref().map(written).unwrap_or_default();
        TlsFiles { cert: written(&files.certificate), key: written(&files.key), ca }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    uuid: String,
    store: String,
    members: Vec<Endpoint>,
    coordinators: Vec<Endpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timing: Option<Intervals>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<TlsFiles>,
}

/// A cluster, as its file describes it.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// The array's name.
    pub(crate) name: String,
    /// The array.
    pub(crate) array: ArrayId,
    /// Where decisions are stored.
    pub(crate) store: Place,
    /// The members' servers, by slot.
    pub(crate) members: Vec<Endpoint>,
    /// The candidates, by number.
    pub(crate) coordinators: Vec<Endpoint>,
    /// Intervals.
    pub(crate) timing: Timing,
    /// The certificate of this process; none for a cluster without TLS.
    pub(crate) keys: Option<Rc<Keys>>,
}

impl Cluster {
    /// Reads a cluster file.
    ///
    /// # Errors
    /// If there is none, or what is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Cluster> {
        let text = fs::read_to_string(path).map_err(|error| of_path(path, &error))?;
        let (cluster, tls) = Cluster::parse(&text).map_err(|why| {
            let message = format!("{}: {why}", path.display());
            Failure::new(Id::Usage, message, "correct the file, or copy it from another host")
        })?;
        let files = tls.map(|tls| tls.of(&folder_of(path)));
        Ok(Cluster { keys: files.map(Keys::load).transpose()?, ..cluster })
    }

    fn parse(text: &str) -> std::result::Result<(Cluster, Option<TlsFiles>), String> {
        let written: Written = toml::from_str(text).map_err(|error| of_toml(text, &error))?;
        let array = u128::from_str_radix(&written.uuid, 16);
        let array = array.ok().filter(|_| written.uuid.len() == 32);
        if written.members.is_empty() || written.coordinators.is_empty() {
            return Err("a cluster has members and at least one coordinator".into());
        }
        let cluster = Cluster {
            name: crate::written::name(&written.name)?,
            array: ArrayId(array.ok_or("uuid: it has 32 hexadecimal digits")?),
            store: Place::parse(&written.store).map_err(|why| format!("store: {why}"))?,
            members: written.members,
            coordinators: written.coordinators,
            timing: written.timing.unwrap_or_default().timing()?,
            keys: None,
        };
        Ok((cluster, written.tls))
    }

    /// Writes the file of a new cluster, durably.
    ///
    /// # Errors
    /// If there is such a file already, or it cannot be written.
    pub(crate) fn write_new(&self, path: &Path) -> Result<()> {
        let written = Written {
            name: self.name.clone(),
            uuid: format!("{:032x}", self.array.0),
            store: self.store.to_string(),
            members: self.members.clone(),
            coordinators: self.coordinators.clone(),
            timing: None,
            tls: self.keys.as_ref().map(|keys| TlsFiles::from(keys.files(), &folder_of(path))),
        };
        let text = toml::to_string(&written).expect("strings and lists are TOML");
        let text = format!("# A Parapet cluster: copy this file to each of its hosts.\n{text}");
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        let written = made.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => exists(path),
            _ => of_path(path, &error),
        })
    }

    /// Each member's server, with its slot.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (MemberId, Target)> {
        (0..).map(MemberId).zip(self.members.iter().map(|at| self.target(at, Role::Member)))
    }

    /// Each coordinator.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Target> {
        self.coordinators.iter().map(|at| self.target(at, Role::Coordinator))
    }

    /// A process of the cluster at this address.
    pub(crate) fn target(&self, at: &Endpoint, role: Role) -> Target {
        Target { at: at.clone(), role, keys: self.keys.clone() }
    }

    /// Refuses a role that the certificate of this process does not have.
    ///
    /// # Errors
    /// As [`Keys::require`].
    pub(crate) fn require(&self, role: Role) -> Result<()> {
        self.keys.as_ref().map_or(Ok(()), |keys| keys.require(role))
    }

    /// The first frame of an operator's connection.
    pub(crate) fn operator(&self, member: MemberId) -> Hello {
        Hello { speaker: Speaker::Operator, array: self.array, member }
    }
}

/// What is wrong in a file, and in which line.
fn of_toml(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| line_of(text, span.start));
    format!("line {line}: {}", error.message().trim().replace('\n', ": "))
}

fn folder_of(path: &Path) -> PathBuf {
    places::absolute(path).parent().map(Path::to_owned).unwrap_or_default()
}

/// The failure for a cluster file that is there already.
pub(crate) fn exists(path: &Path) -> Failure {
    let message = format!("{}: the file exists", path.display());
    Failure::new(Id::Signature, message, "choose another name, or --file another place")
}

/// The argument of the verbs.
#[derive(clap::Args)]
pub(crate) struct ClusterArg {
    /// Cluster file, as `cluster create` has written it
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

impl ClusterArg {
    /// Reads the file.
    ///
    /// # Errors
    /// As [`Cluster::read`].
    pub(crate) fn read(&self) -> Result<Cluster> {
        Cluster::read(&self.file)
    }

    /// Gives a member another address. Everything else in the file stays.
    ///
    /// # Errors
    /// If the file cannot be written; it keeps its content.
    pub(crate) fn move_member(&self, member: MemberId, to: &Endpoint) -> Result<()> {
        let path = places::absolute(&self.file);
        let failed = |error: std::io::Error| of_path(&path, &error);
        let text = fs::read_to_string(&path).map_err(failed)?;
        let text = moved(&text, member, to).expect("the file was read a moment ago");
        atomic_file::replace(&path, text.as_bytes()).map_err(failed)
    }
}

/// The content of a cluster file with another address of a member.
fn moved(text: &str, member: MemberId, to: &Endpoint) -> Option<String> {
    #[derive(Deserialize)]
    struct Members {
        members: Vec<Spanned<String>>,
    }
    let Members { members } = toml::from_str(text).ok()?;
    let mut text = text.to_owned();
    let new = toml::Value::String(to.to_string()).to_string();
    text.replace_range(members.get(usize::from(member.0))?.span(), &new);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = 'pool'\nuuid = '0123456789abcdef0123456789abcdef'\n\
        store = 'file:/x/pool.decisions'\nmembers = ['unix:/a', '10.0.0.1:7600']\n\
        coordinators = ['tcp:127.0.0.1:7610']\n";

    #[test]
    fn a_file_comes_back() {
        let (cluster, _) = Cluster::parse(TEXT).unwrap();
        assert_eq!(cluster.array.0, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(cluster.members[1].to_string(), "tcp:10.0.0.1:7600");
        assert!(cluster.members[1].is_open() && !cluster.coordinators[0].is_open());
        assert_eq!(cluster.timing, Timing::DEFAULT);
        let folder = std::env::temp_dir().join(format!("parapet-cluster-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("pool.toml");
        cluster.write_new(&path).unwrap();
        let again = Cluster::read(&path).unwrap();
        assert_eq!((again.members, again.array), (cluster.members.clone(), cluster.array));
        assert_eq!(cluster.write_new(&path).unwrap_err().id, Id::Signature);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_member_moves_and_everything_else_stays() {
        let file = |second: &str| {
            let comment = "# first\nmembers = [\n  'unix:/a', # 0\n  ";
            TEXT.replace("members = ['unix:/a', ", comment)
                .replace("'10.0.0.1:7600'", &format!("{second} # 1\n"))
        };
        let to = address("unix:/b\"c").unwrap();
        let text = moved(&file("'10.0.0.1:7600'"), MemberId(1), &to).unwrap();
        assert_eq!(text, file("'unix:/b\"c'"));
        assert_eq!(Cluster::parse(&text).unwrap().0.members[1], to);
        assert_eq!(moved(&text, MemberId(2), &to), None);
    }

    #[test]
    fn intervals_can_be_shorter_or_longer() {
        let timing = |text: &str| Cluster::parse(&format!("{TEXT}[timing]\n{text}\n"));
        let short = timing("lease_ms = 1000\nmember_ms = 400").unwrap().0.timing;
        assert_eq!((short.lease_ms, short.margin_ms, short.tick_ms), (1000, 100, 100));
        assert_eq!(short.takeover_ms, Timing::DEFAULT.takeover_ms);
        let (least, less) = ("lease_ms = 6000", "lease_ms = 5999");
        assert_eq!(timing(least).unwrap().0.timing.drain_ms, 6000);
        let why = timing(less).err().unwrap();
        assert!(why.contains("lease_ms 5999: at least twice member_ms 3000"), "{why}");
        for wrong in ["lease_ms = 10", "lease_ms = 60000", "lease = 1000"] {
            assert!(timing(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_fault_is_named() {
        for (from, to, word) in [
            ("pool'", "po ol'", "name"),
            ("0123", "012", "uuid"),
            ("file:/x", "x:/x", "store"),
            ("'unix:/a', '10.0.0.1:7600'", "", "members"),
            ("unix:/a", "unix:", "unix"),
            ("name", "nome", "line 1: unknown field `nome`"),
            ("coordinators = [", "coordinators = [[", "line 5: "),
        ] {
            let Err(why) = Cluster::parse(&TEXT.replacen(from, to, 1)) else { panic!("{from}") };
            assert!(why.contains(word) && !why.contains('\n'), "{why}");
        }
    }
}
