//! `parapet cluster key`: the CA of a cluster, and a certificate for each of its hosts.
//!
//! ```text
//!   FOLDER/ca.pem, ca-key.pem      whoever has this key lets others into the cluster
//!   FOLDER/NAME/cert.pem, key.pem, ca.pem                        goes to the host NAME
//! ```

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ::cluster::roles::Role;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::api::Changed;
use crate::cluster::keys;
use crate::failure::{Exit, Failure, Id, Result, of_path};
use crate::flags::name;
use crate::places::quoted;
use crate::terminal::Terminal;
use crate::tls;

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
    let key = KeyPair::generate().map_err(|error| of_maker(&error))?;
    let certificate = params(args, serves)?.signed_by(&key, &issuer);
    let certificate = certificate.map_err(|error| of_maker(&error))?;
    write(&own.join("key.pem"), &key.serialize_pem(), 0o600)?;
    write(&own.join("cert.pem"), &certificate.pem(), 0o644)?;
    write(&own.join("ca.pem"), &authority, 0o644)?;
    let roles: Vec<String> = args.roles.iter().map(ToString::to_string).collect();
    let folder = quoted(&own.display().to_string());
    let message = format!("{folder}: a certificate for {}; copy the folder", roles.join(", "));
    terminal.report(&Changed { message, array: None });
    Ok(Exit::Done)
}

/// What the certificate of a host says.
fn params(args: &Args, serves: bool) -> Result<CertificateParams> {
    let mut params = described(&args.name, args.days);
    let addresses = args.address.iter().map(|address| SanType::IpAddress(*address));
    params.subject_alt_names = addresses.collect();
    for role in &args.roles {
        let uri = keys::uri(*role).try_into().map_err(|error: rcgen::Error| of_maker(&error))?;
        params.subject_alt_names.push(SanType::URI(uri));
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if serves {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    Ok(params)
}

/// A certificate of this name, valid from yesterday: clocks differ.
fn described(name: &str, days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let day = |after: i64| {
        let date = today.saturating_add(jiff::Span::new().days(after));
        let [month, day] = [date.month(), date.day()].map(i8::unsigned_abs);
        rcgen::date_time_ymd(date.year().into(), month, day)
    };
    (params.not_before, params.not_after) = (day(-1), day(days));
    params
}

/// The CA of the folder, as a PEM text and to sign with; a new one if there is none.
fn authority(folder: &Path) -> Result<(String, Issuer<'static, KeyPair>)> {
    let [file, key_file] = ["ca.pem", "ca-key.pem"].map(|name| folder.join(name));
    let mut params = described(CA_NAME, CA_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    match fs::read_to_string(&key_file) {
        Ok(key) => {
            let certificates = tls::certificates(&file);
            let subject = certificates.map(|all| tls::subject(&all[0]).unwrap_or_default());
            if subject != Ok(format!("CN={CA_NAME}")) {
                let message = format!("{}: not a CA of this command", file.display());
                return Err(Failure::new(Id::Tls, message, "choose another folder"));
            }
            let text = fs::read_to_string(&file).map_err(|error| of_path(&file, &error))?;
            let key = KeyPair::from_pem(&key).map_err(|error| {
                let message = format!("{}: no private key: {error}", key_file.display());
                Failure::new(Id::Tls, message, "restore it from a backup")
            })?;
            Ok((text, Issuer::new(params, key)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let key = KeyPair::generate().map_err(|error| of_maker(&error))?;
            let text = params.self_signed(&key).map_err(|error| of_maker(&error))?.pem();
            write(&file, &text, 0o644)?;
            write(&key_file, &key.serialize_pem(), 0o600)?;
            Ok((text, Issuer::new(params, key)))
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

fn of_maker(error: &rcgen::Error) -> Failure {
    Failure::new(Id::Failed, format!("a certificate cannot be made: {error}"), "please report it")
}
