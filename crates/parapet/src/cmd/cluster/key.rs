//! `parapet cluster key`: the CA of a cluster, and a certificate for each of its hosts.
//!
//! ```text
//!   FOLDER/ca.pem, ca-key.pem      whoever has this key lets others into the cluster
//!   FOLDER/NAME/cert.pem, key.pem, ca.pem                        goes to the host NAME
//! ```

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::cluster::roles::Role;

use crate::api::Changed;
use crate::cluster::keys;
use crate::failure::{Exit, Failure, Id, Result, of_path};
use crate::flags::name;
use crate::places::quoted;
use crate::terminal::Terminal;
use crate::tls;

mod certificate;

use certificate::{Contents, Key, Purpose, certificate};

/// Make a certificate for a host of a cluster
///
/// The first call makes a CA in FOLDER too. Keep FOLDER where no host of the cluster can read it:
/// the key of the CA lets others into the cluster. FOLDER/NAME is for one host: copy it there.
///
/// For example: parapet cluster key keys host-a member coordinator client-1 --address 10.0.0.1
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the CA
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Name of the host, or of the person
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// What it may be: member, coordinator, client-ID; admin may erase empty members, evict
    /// and accept losses
    #[arg(value_name = "ROLE", required = true)]
    roles: Vec<Role>,
    /// IP address of its members and coordinators; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<IpAddr>,
    /// Lifetime of the certificate
    #[arg(long, value_name = "DAYS", default_value_t = 3650,
        value_parser = clap::value_parser!(i64).range(1..=36500))]
    days: i64,
}

/// Subject of the CA. Its key says which one it is.
const CA_NAME: &str = "Parapet cluster CA";
/// Lifetime of a CA: a new one means new certificates everywhere.
const CA_DAYS: i64 = 36_500;
/// Of a day in UTC.
const DAY_SECONDS: i64 = 86_400;

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let serves = args.roles.iter().any(|role| matches!(role, Role::Member | Role::Coordinator));
    if serves && args.address.is_empty() {
        let message = "others connect to a member or coordinator: its certificate has its address";
        return Err(Failure::new(Id::Usage, message, "say --address"));
    }
    make_folder(&args.folder, true)?;
    let (authority, issuer) = authority(&args.folder)?;
    let own = args.folder.join(&args.name);
    make_folder(&own, false)?;
    let key = Key::generate().map_err(of_maker)?;
    let purpose = Purpose::Host {
        addresses: args.address.clone(),
        uris: args.roles.iter().copied().map(keys::uri).collect(),
        serves,
    };
    let contents = Contents { name: &args.name, lifetime: lifetime(args.days), purpose };
    let certificate = certificate(&contents, &key, (CA_NAME, &issuer)).map_err(of_maker)?;
    write(&own.join("key.pem"), &key.pem(), 0o600)?;
    write(&own.join("cert.pem"), &certificate, 0o644)?;
    write(&own.join("ca.pem"), &authority, 0o644)?;
    let roles: Vec<String> = args.roles.iter().map(ToString::to_string).collect();
    let folder = quoted(&own.display().to_string());
    let message = format!("{folder}: a certificate for {}; copy the folder", roles.join(", "));
    terminal.report(&Changed { message, array: None });
    Ok(Exit::Done)
}

/// A lifetime that begins yesterday, because clocks differ, and ends after this number of days.
fn lifetime(days: i64) -> Range<Duration> {
    let day = |after: i64| {
        let now = jiff::Timestamp::now().as_second();
        let seconds = (now.div_euclid(DAY_SECONDS) + after) * DAY_SECONDS;
        Duration::from_secs(seconds.max(0).unsigned_abs())
    };
    day(-1)..day(days)
}

/// The CA of the folder, as a PEM text and to sign with; a new one if there is none.
fn authority(folder: &Path) -> Result<(String, Key)> {
    let [file, key_file] = ["ca.pem", "ca-key.pem"].map(|name| folder.join(name));
    match fs::read_to_string(&key_file) {
        Ok(key) => {
            let certificates = tls::certificates(&file);
            let subject = certificates.map(|all| tls::subject(&all[0]).unwrap_or_default());
            if subject != Ok(format!("CN={CA_NAME}")) {
                let message = format!("{}: not a CA of this command", file.display());
                return Err(Failure::new(Id::Tls, message, "choose another folder"));
            }
            let text = fs::read_to_string(&file).map_err(|error| of_path(&file, &error))?;
            let key = Key::from_pem(&key).map_err(|error| {
                let message = format!("{}: no private key: {error}", key_file.display());
                Failure::new(Id::Tls, message, "restore it from a backup")
            })?;
            Ok((text, key))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let key = Key::generate().map_err(of_maker)?;
            let lifetime = lifetime(CA_DAYS);
            let contents = Contents { name: CA_NAME, lifetime, purpose: Purpose::Authority };
            let text = certificate(&contents, &key, (CA_NAME, &key)).map_err(of_maker)?;
            write(&file, &text, 0o644)?;
            write(&key_file, &key.pem(), 0o600)?;
            Ok((text, key))
        }
        Err(error) => Err(of_path(&key_file, &error)),
    }
}

/// Makes a folder that nobody else can read; `may_exist`: or finds one.
fn make_folder(folder: &Path, may_exist: bool) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && may_exist => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let message = format!("{}: it exists", folder.display());
            Err(Failure::new(Id::Signature, message, "choose another name, or remove the folder"))
        }
        made => made.map_err(|error| of_path(folder, &error)),
    }
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let written = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = written.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| of_path(path, &error))
}

fn of_maker(why: String) -> Failure {
    Failure::new(Id::Failed, format!("a certificate cannot be made: {why}"), "please report it")
}
