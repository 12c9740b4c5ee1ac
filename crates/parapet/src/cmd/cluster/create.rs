//! `parapet cluster create`: makes empty disks the members of a new cluster.
//!
//! Order: all members answer and are empty, the user agrees, the register and the file exist, then
//! the members are formatted. What fails before the first format leaves nothing behind.

use std::path::PathBuf;

use ::cluster::code;
use ::cluster::config::{Config, Level, Mode, Shape, Slot, State};
use ::cluster::decisions::Value;
use ::cluster::ids::{ArrayId, BootId, CandidateId, Epoch, MemberId, Term};
use ::cluster::roles::Role;
use ::cluster::room;
use ::cluster::session::{Ask, Label, Told};
use ::cluster::timing::Timing;
use clap::ValueEnum;
use os::Spawner;

use super::replace::new_disk;
use super::status::{level_word, mode_word};
use crate::api::Changed;
use crate::cluster::file::{self, Cluster, Endpoint, address};
use crate::cluster::keys::{Keys, TlsFlags};
use crate::cluster::links::{ask, unexpected};
use crate::cluster::store::Place;
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::{Consent, name};
use crate::places;
use crate::size::Size;
use crate::terminal::{Answer, Terminal};

/// Create a cluster of empty disks, each served by `parapet serve-disk`
///
/// Writes NAME.toml, which all other verbs take: copy it to each host. Erases the disks.
///
/// For example: parapet cluster create pool --level 3.5 --coordinator 10.0.0.1:7610
/// 10.0.0.1:7600 10.0.0.2:7600 10.0.0.3:7600
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the array
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Servers of the members: unix:PATH or ADDRESS:PORT; the last one has the parity of 3.5
    #[arg(value_name = "MEMBER", value_parser = address, required = true, num_args = 2..)]
    members: Vec<Endpoint>,
    /// RAID level
    #[arg(long, value_name = "LEVEL")]
    level: LevelArg,
    /// Order K of level 3.5: 2^K data members and one parity member [default: by the members]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=3))]
    order: Option<u32>,
    /// Whether several clients may write one region at a time: only a cluster file system, which
    /// keeps hosts from writing the same block at once, may have `shared`
    #[arg(long, value_name = "MODE", default_value = "exclusive")]
    mode: ModeArg,
    /// Where decisions are stored [default: file:NAME.decisions, for one host]
    #[arg(long, value_name = "STORE", value_parser = Place::parse)]
    store: Option<Place>,
    /// Address of a coordinator: unix:PATH or ADDRESS:PORT; repeat for each that may stand by
    #[arg(long, value_name = "ADDRESS", value_parser = address, required = true)]
    coordinator: Vec<Endpoint>,
    /// Unit of grants and of resync, 4M to 64M
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    region: Size,
    /// Cluster file to write [default: NAME.toml]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Copy, ValueEnum)]
enum LevelArg {
    /// Each block spread over 2^K members, and its parity
    #[value(name = "3.5")]
    Fragments,
    /// A copy on each member
    #[value(name = "1")]
    Mirror,
    /// Blocks in stripes with a parity; for `exclusive` only
    #[value(name = "5")]
    Raid5,
    /// Blocks in stripes with two parities; for `exclusive` only
    #[value(name = "6")]
    Raid6,
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeArg {
    /// Several clients write a region; no two write one block at once
    Shared,
    /// One client at a time writes a region
    Exclusive,
}

/// Bytes of a block that clients see; at levels other than 3.5, if the members' sectors allow it.
const BLOCK_BYTES: u32 = 4096;
/// Most members of a level without an order.
const MOST_MEMBERS: usize = 32;

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let level = args.check()?;
    let path = args.file.clone().unwrap_or_else(|| format!("{}.toml", args.name).into());
    if std::fs::symlink_metadata(&path).is_ok() {
        return Err(file::exists(&path));
    }
    let beside = places::absolute(&path).with_extension("decisions");
    let cluster = Cluster {
        name: args.name.clone(),
        array: new_id()?,
        store: args.store.clone().unwrap_or(Place::File(beside)),
        members: args.members.clone(),
        coordinators: args.coordinator.clone(),
        timing: Timing::DEFAULT,
        keys: args.tls.files()?.map(Keys::load).transpose()?,
    };
    cluster.require(Role::Admin)?;
    let executor = engine::executor()?;
    let on = executor.spawner();
    let config = executor.block_on(plan(args, level, &cluster, &on))?;
    for line in described(&cluster, &config) {
        terminal.say(line);
    }
    if args.consent.dry_run {
        let message = format!("{}: nothing was changed", cluster.name);
        terminal.report(&Changed { message, array: None });
        return Ok(Exit::Done);
    }
    terminal.confirm(args.consent.yes, "Erase these disks?", &Answer::Yes)?;
    let value = Value { term: Term(0), leader: CandidateId(0), config: config.clone() };
    cluster.store.create(cluster.array, &value)?;
    let made = cluster.write_new(&path).and_then(|()| {
        executor.block_on(format(&cluster, &config, &on)).inspect_err(|_| {
            // Written a moment ago.
            let _ = std::fs::remove_file(&path);
        })
    });
    if let Err(failure) = made {
        if let Err(left) = cluster.store.remove(cluster.array) {
            tracing::warn!("{left}");
        }
        return Err(failure);
    }
    let file = places::quoted(&path.display().to_string());
    let message = format!("{}: created; its file is {file}", cluster.name);
    terminal.report(&Changed { message, array: None });
    terminal.say("copy the file to each host; then start, where they belong:");
    for candidate in &cluster.coordinators {
        terminal.say(format!("  parapet cluster coordinator {file} --listen {candidate}"));
    }
    terminal.say(format!("  parapet cluster client {file} --id 1 --attach"));
    Ok(Exit::Done)
}

impl Args {
    /// The level, if the members fit it.
    fn check(&self) -> Result<Level> {
        let all = || self.members.iter().chain(&self.coordinator);
        for (index, one) in all().enumerate() {
            if all().take(index).any(|other| other == one) {
                let message = format!("{one} is named twice");
                return Err(Failure::new(Id::Same, message, "name each process once"));
            }
        }
        if !(4 << 20..=64 << 20).contains(&self.region.0) || !self.region.0.is_power_of_two() {
            let message = format!("a region of {}", self.region);
            return Err(Failure::new(Id::Shape, message, "choose 4M, 8M, 16M, 32M or 64M"));
        }
        let count = self.members.len();
        let level = match self.level {
            LevelArg::Fragments => Level::Fragments,
            LevelArg::Mirror => Level::Mirror,
            LevelArg::Raid5 => Level::Raid5,
            LevelArg::Raid6 => Level::Raid6,
        };
        if level != Level::Fragments {
            self.check_plain(level)?;
            return Ok(level);
        }
        let orders = self.order.map_or(1..=3, |order| order..=order);
        if orders.clone().any(|order| (1 << order) + 1 == count) {
            return Ok(Level::Fragments);
        }
        let counts: Vec<String> = orders.map(|order| ((1 << order) + 1).to_string()).collect();
        let message = format!("level 3.5 of {count} members");
        let action = format!("name {} members", counts.join(" or "));
        Err(Failure::new(Id::Shape, message, action))
    }

    /// Checks a level without an order.
    fn check_plain(&self, level: Level) -> Result<()> {
        let (word, count) = (level_word(level), self.members.len());
        let refused =
            |message: String, action: String| Err(Failure::new(Id::Shape, message, action));
        if self.order.is_some() {
            return refused(format!("{word} has no order"), "leave out --order".into());
        }
        let allowed = level.least().max(2)..=MOST_MEMBERS;
        if !allowed.contains(&count) {
            let action = format!("name {} to {MOST_MEMBERS} members", allowed.start());
            return refused(format!("{word} of {count} members"), action);
        }
        if level.is_striped() && matches!(self.mode, ModeArg::Shared) {
            // Two hosts that write two blocks of one stripe would spoil its parity.
            let message = format!("{word} in mode shared: blocks of a stripe share a parity");
            return refused(message, "leave out --mode, or choose --level 3.5 or 1".into());
        }
        Ok(())
    }
}

/// The UUID of a new array.
fn new_id() -> Result<ArrayId> {
    let mut bytes = [0; 16];
    engine::random()?(&mut bytes);
    Ok(ArrayId(u128::from_le_bytes(bytes)))
}

/// Asks all members what they are, and makes a shape for them.
async fn plan(args: &Args, level: Level, cluster: &Cluster, on: &Spawner) -> Result<Config> {
    let (mut least, mut sector) = (u64::MAX, 512);
    for (member, address) in cluster.slots() {
        let hello = cluster.operator(member);
        match ask(&address, &hello, &Ask::Describe, Some(super::status::PATIENCE), on).await? {
            Told::Described(bytes, bytes_of_sector, None) => {
                least = least.min(bytes);
                sector = sector.max(bytes_of_sector);
            }
            Told::Described(_, _, Some((label, _))) => {
                let message =
                    format!("{address}: the disk is member {} of {}", label.member.0, label.name);
                let action = "if that array is not needed any more, restart its server with \
                    --overwrite-signature=parapet_cluster_member@0x0";
                return Err(Failure::new(Id::Signature, message, action));
            }
            told => return Err(unexpected(&address, told)),
        }
    }
    let members = cluster.members.len();
    let piece_bytes = match level {
        // Members take parts of sectors.
        Level::Fragments => BLOCK_BYTES / u32::try_from(members - 1).expect("at most 8"),
        _ => sector.max(BLOCK_BYTES),
    };
    let mode = match args.mode {
        ModeArg::Shared => Mode::Shared,
        ModeArg::Exclusive => Mode::Exclusive,
    };
    let mut shape = Shape { level, regions: 1, region_blocks: 1, piece_bytes, mode };
    let stripe = code::stripe_bytes(&shape, members) as u64;
    // Whole stripes: a little less than the size if that is no multiple.
    let region_blocks = u32::try_from(args.region.0 / stripe).expect("a region is small");
    let regions = least / (u64::from(piece_bytes) * u64::from(region_blocks));
    let regions = u32::try_from(regions).unwrap_or(u32::MAX);
    if regions == 0 {
        let message = format!("the smallest member has {} for data", Size(least));
        return Err(Failure::new(Id::Shape, message, "choose larger disks or a smaller --region"));
    }
    (shape.regions, shape.region_blocks) = (regions, region_blocks);
    if !room::fits(&shape, members) {
        let message = format!("{regions} regions of {members} members");
        let most = room::MOST_STALE / members;
        let action = format!("choose a larger --region, or smaller disks: at most {most} regions");
        return Err(Failure::new(Id::Shape, message, action));
    }
    let boots = (0..members).map(|_| new_disk().map(BootId::first));
    let slots = boots.map(|boot| Ok(Slot { state: State::InSync, boot: boot? }));
    let slots = slots.collect::<Result<_>>()?;
    Ok(Config { array: cluster.array, epoch: Epoch(1), shape, slots })
}

fn described(cluster: &Cluster, config: &Config) -> Vec<String> {
    let Shape { level, mode, regions, .. } = config.shape;
    let region = super::status::region_bytes(config);
    let size = Size(region * u64::from(regions));
    let block = Size(code::block_bytes(&config.shape, config.slots.len()) as u64);
    let (level, mode, region) = (level_word(level), mode_word(mode), Size(region));
    let mut lines = vec![format!(
        "{}: {level}, {mode}, {size} in blocks of {block}, regions of {region}; decisions in {}",
        cluster.name, cluster.store
    )];
    lines.extend(cluster.slots().map(|(member, to)| format!("  erase member {}: {to}", member.0)));
    lines
}

async fn format(cluster: &Cluster, config: &Config, on: &Spawner) -> Result<()> {
    let members = u16::try_from(config.slots.len()).expect("at most 65535");
    let mut formatted: Vec<String> = Vec::new();
    for (member, address) in cluster.slots() {
        let (name, shape) = (cluster.name.clone(), config.shape);
        let (array, disk) = (cluster.array, config.slot(member).boot.disk());
        let label = Label { name, array, member, disk, members, shape };
        // Zeroing a disk takes as long as it takes.
        let told = ask(&address, &cluster.operator(member), &Ask::Format(label), None, on).await;
        let failure = match told {
            Ok(Told::Formatted(_)) => {
                formatted.push(address.to_string());
                continue;
            }
            Ok(told) => unexpected(&address, told),
            Err(failure) => failure,
        };
        return Err(left_over(failure, member, &formatted));
    }
    Ok(())
}

/// A failure half way, with what is to be done about the disks that are members already.
fn left_over(mut failure: Failure, member: MemberId, formatted: &[String]) -> Failure {
    failure.message = format!("member {} was not formatted: {}", member.0, failure.message);
    if !formatted.is_empty() {
        failure.message += &format!("; {} were, and hold nothing", formatted.join(", "));
        failure.action = "restart their servers with \
            --overwrite-signature=parapet_cluster_member@0x0, then repeat the command"
            .into();
    }
    failure
}
