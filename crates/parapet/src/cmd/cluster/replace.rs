//! `parapet cluster replace`: makes an empty disk the member whose disk is dead.
//!
//! Order: the coordinator has the member as missing, the new disk is empty and large enough, the
//! user agrees, the disk is formatted, then the cluster file names its address. The coordinator
//! finds the blank disk by itself. A repeated command goes on where an earlier one ended.

use ::cluster::config::{Config, Level, State};
use ::cluster::ids::{DiskId, Epoch, MemberId};
use ::cluster::roles::Role;
use ::cluster::session::{Ask, Label, Report, Told};
use os::Spawner;

use super::status::{PATIENCE, leader, state_word};
use crate::api::Changed;
use crate::cluster::file::{Cluster, ClusterArg, Endpoint, address};
use crate::cluster::links::{Target, ask, unexpected};
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Consent;
use crate::places;
use crate::size::Size;
use crate::terminal::{Answer, Terminal};

/// Replace the dead disk of a member by an empty one, which `parapet serve-disk` serves
///
/// Erases the new disk. The coordinator then rebuilds it whole. The old disk never returns.
///
/// For example: parapet cluster replace pool.toml 1
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArg,
    /// Number of the member, as `parapet cluster status` shows it
    #[arg(value_name = "MEMBER")]
    member: u16,
    /// Server of the new disk, if it has another address; changes the cluster file
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    at: Option<Endpoint>,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let cluster = args.cluster.read()?;
    cluster.require(Role::Admin)?;
    let (executor, member) = (engine::executor()?, MemberId(args.member));
    let on = executor.spawner();
    let (to, moves) = args.place(&cluster)?;
    let found = executor.block_on(find(&cluster, member, &to, &on))?;
    if found.label.is_some() {
        let size = Size(needed_bytes(&found.config));
        terminal.say(format!("{}: member {}: a new disk, rebuilt whole", cluster.name, member.0));
        terminal.say(format!("  erase {to}, {size} of data"));
    }
    if args.consent.dry_run {
        let message = format!("{}: nothing was changed", cluster.name);
        terminal.report(&Changed { message, array: None });
        return Ok(Exit::Done);
    }
    if let Some(label) = &found.label {
        terminal.confirm(args.consent.yes, "Erase this disk?", &Answer::Yes)?;
        // Zeroing a disk takes as long as it takes.
        let (hello, format) = (cluster.operator(member), Ask::Format(label.clone()));
        match executor.block_on(ask(&to, &hello, &format, None, &on))? {
            Told::Formatted(_) => {}
            told => return Err(unexpected(&to, told)),
        }
    }
    if moves {
        args.cluster.move_member(member, &to.at)?;
    }
    let message = format!("{}: member {}: {to} takes the slot", cluster.name, member.0);
    terminal.report(&Changed { message, array: None });
    let file = places::quoted(&args.cluster.file.display().to_string());
    if moves {
        // A client that cannot reach a member is evicted.
        terminal.say(format!(
            "copy {file} to each host; restart the clients there, and then the coordinators"
        ));
    }
    terminal.say(format!("watch the rebuild: parapet cluster status {file}"));
    Ok(Exit::Done)
}

impl Args {
    /// The server of the new disk, and whether the cluster file must change for it.
    fn place(&self, cluster: &Cluster) -> Result<(Target, bool)> {
        let member = usize::from(self.member);
        let Some(old) = cluster.members.get(member) else {
            let most = cluster.members.len() - 1;
            let message = format!("member {member}: {} has members 0 to {most}", cluster.name);
            return Err(Failure::new(Id::NoMember, message, "parapet cluster status shows them"));
        };
        let at = self.at.as_ref().unwrap_or(old);
        let mut others = cluster.members.iter().chain(&cluster.coordinators);
        if at != old && others.any(|other| other == at) {
            let message = format!("{at} is another process of {}", cluster.name);
            return Err(Failure::new(
                Id::Same,
                message,
                "serve the new disk at an address of its own",
            ));
        }
        Ok((cluster.target(at, Role::Member), at != old))
    }
}

/// A number for a disk that is about to be formatted.
pub(super) fn new_disk() -> Result<DiskId> {
    let mut bytes = [0; 4];
    engine::random()?(&mut bytes);
    Ok(DiskId(u32::from_le_bytes(bytes).max(1)))
}

/// Bytes of a member's data.
fn needed_bytes(config: &Config) -> u64 {
    let shape = &config.shape;
    u64::from(shape.regions) * u64::from(shape.region_blocks) * u64::from(shape.piece_bytes)
}

/// What is to be done.
struct Found {
    config: Config,
    /// To format the disk with; none if that is done.
    label: Option<Label>,
}

/// Asks the coordinator and the new disk's server.
///
/// # Errors
/// If the member is not missing, or the disk is not empty, or too small.
async fn find(cluster: &Cluster, member: MemberId, to: &Target, on: &Spawner) -> Result<Found> {
    let config = current(cluster, on).await?;
    let slot = config.slots.get(usize::from(member.0)).copied();
    let slot = slot.ok_or_else(|| {
        let message = format!("member {}: the coordinator has no such member", member.0);
        Failure::new(Id::NoMember, message, "compare the cluster file with that of other hosts")
    })?;
    let told = ask(to, &cluster.operator(member), &Ask::Describe, Some(PATIENCE), on).await;
    if slot.state != State::Missing {
        return Err(present(&config, member));
    }
    let blank = told.as_ref().is_ok_and(|told| is_blank(told, &config, member));
    let label = match told? {
        Told::Described(bytes, sector, None) => {
            check_room(to, &config, (bytes, sector))?;
            let (name, shape) = (cluster.name.clone(), config.shape);
            let members = u16::try_from(config.slots.len()).expect("at most 65535");
            let (array, disk) = (config.array, new_disk()?);
            Some(Label { name, array, member, disk, members, shape })
        }
        Told::Described(_, _, Some(_)) if blank => None,
        Told::Described(_, _, Some((label, _))) => {
            return Err(occupied(to, &label, &config, member));
        }
        told => return Err(unexpected(to, told)),
    };
    Ok(Found { config, label })
}

/// The failure for a member that is not missing.
fn present(config: &Config, member: MemberId) -> Failure {
    let state = config.slot(member).state;
    let message = format!("member {} is {}", member.0, state_word(state).replace('_', " "));
    let action = match state {
        State::Rebuilding => "wait until parapet cluster status shows it as in sync",
        State::InSync if config.in_sync().count() <= config.needed() => {
            "the array needs this disk: serve it again, and wait until the others are in sync"
        }
        _ => {
            "only a missing member can be replaced: stop its server, and wait until \
             parapet cluster status shows it as missing"
        }
    };
    Failure::new(Id::WrongState, message, action)
}

/// True for an empty disk, and for one that was formatted for the slot and has not taken it yet.
fn is_blank(told: &Told, config: &Config, member: MemberId) -> bool {
    let Told::Described(_, _, label) = told else { return false };
    let disk = config.slot(member).boot.disk();
    label.as_ref().is_none_or(|(label, epoch)| {
        is_slot(label, config, member) && *epoch == Epoch(0) && label.disk != disk
    })
}

fn is_slot(label: &Label, config: &Config, member: MemberId) -> bool {
    (label.array, label.member) == (config.array, member)
}

/// The configuration of the coordinator that leads.
async fn current(cluster: &Cluster, on: &Spawner) -> Result<Config> {
    let leader = leader(cluster, on).await?;
    let told = ask(&leader, &cluster.operator(MemberId(0)), &Ask::Report, Some(PATIENCE), on).await;
    match told? {
        Told::Report(Report { later: Some(epoch), .. }) => {
            let message = format!("{}: a member knows the later epoch {}", cluster.name, epoch.0);
            let action = "restore the store's latest content, then restart the coordinators";
            Err(Failure::new(Id::WrongState, message, action))
        }
        Told::Report(Report { config: Some(config), .. }) => Ok(config),
        Told::Report(_) => {
            let message = format!("{leader}: it leads no more");
            Err(Failure::new(Id::WrongState, message, "repeat the command"))
        }
        told => Err(unexpected(&leader, told)),
    }
}

/// Refuses a disk that is too small.
fn check_room(to: &Target, config: &Config, (bytes, sector): (u64, u32)) -> Result<()> {
    let (needed, piece) = (needed_bytes(config), config.shape.piece_bytes);
    let refused = |message: String, action: &str| Err(Failure::new(Id::Shape, message, action));
    if bytes < needed {
        let message =
            format!("{to}: the disk has {} for data, a member {}", Size(bytes), Size(needed));
        return refused(message, "serve a disk of at least the size of the others");
    }
    // Members of level 3.5 take parts of sectors.
    if config.shape.level != Level::Fragments && !piece.is_multiple_of(sector) {
        let message = format!("{to}: the disk has sectors of {sector} bytes, a piece {piece}");
        return refused(message, "serve a disk with smaller sectors");
    }
    Ok(())
}

/// The failure for a disk that is a member.
fn occupied(to: &Target, label: &Label, config: &Config, slot: MemberId) -> Failure {
    let (member, name, array) = (label.member.0, &label.name, config.array);
    let (message, action) = match is_slot(label, config, slot) {
        true if label.disk == config.slot(slot).boot.disk() => (
            format!("{to}: this is the disk of member {member} itself"),
            "wait: it is rebuilt by itself",
        ),
        true => (
            format!("{to}: the disk was member {member} of {name}, and was replaced"),
            "serve an empty disk, or restart its server with \
             --overwrite-signature=parapet_cluster_member@0x0",
        ),
        false if label.array == array => (
            format!("{to}: the disk is member {member} of this cluster"),
            "serve it at the address of that member; serve an empty disk here",
        ),
        false => (
            format!("{to}: the disk is member {member} of {name}"),
            "if that array is not needed any more, restart its server with \
             --overwrite-signature=parapet_cluster_member@0x0",
        ),
    };
    Failure::new(Id::Signature, message, action)
}
