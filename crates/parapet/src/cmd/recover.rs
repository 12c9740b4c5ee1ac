//! `parapet recover`: finds out what array disks were whose superblocks are lost.

use std::path::PathBuf;
use std::rc::Rc;

use array::recover::{Guess, Stamp, Wish, search, stamps};
use jiff::Timestamp;
use layout::md::{Name, Uuid};
use layout::{Layout, Level};
use os::Spawner;

use crate::api::{GuessView, Recovered};
use crate::cmd::create::level;
use crate::cmd::serve::{Outlets, Sources};
use crate::daemon::Daemon;
use crate::disks::Opened;
use crate::engine::{self, AssemblyFlags, RunFlags};
use crate::failure::{Exit, Failure, Id, Result};
use crate::images;
use crate::overlay::Overlay;
use crate::size::Size;
use crate::terminal::Terminal;

/// Find out what array disks were whose superblocks are lost or overwritten, and serve it read-only
///
/// Searches for level, layout, chunk, order of the disks and where their data begins, by what file
/// systems leave in places that they tell themselves, and by whether redundancy agrees. Shows the
/// likeliest, with what speaks for each. With --nbd one of them is served read-only, put together
/// in memory: nothing is written to the disks. Of an image with partitions the largest is taken.
///
/// For example: parapet recover disk[0-3].img --nbd unix:/run/guess.nbd
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Disks or images, in the likeliest order, each once
    #[arg(value_name = "DISK", required = true)]
    disks: Vec<PathBuf>,
    /// So many slots the array had, if disks are missing
    #[arg(long, value_name = "COUNT", default_value = "0",
        value_parser = clap::value_parser!(u16).range(0..=64))]
    members: u16,
    /// It was this level, for sure
    #[arg(short, long, value_name = "LEVEL", value_parser = level)]
    level: Option<Level>,
    /// It was this layout, for sure
    #[arg(long, value_name = "LAYOUT", requires = "level")]
    layout: Option<String>,
    /// It was this chunk, for sure
    #[arg(short, long, value_name = "SIZE")]
    chunk: Option<Size>,
    /// Data began here on each disk, for sure
    #[arg(long, value_name = "SIZE")]
    data_offset: Option<Size>,
    /// Serve this one of those that were found
    #[arg(long, value_name = "NUMBER", default_value = "1",
        value_parser = clap::value_parser!(u16).range(1..))]
    choose: u16,
    #[command(flatten)]
    outlets: Outlets,
}

/// What the array is called that was found.
const NAME: &str = "recovered";

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let wish = args.wish()?;
    if args.outlets.is_none() {
        let executor = engine::executor()?;
        let disks = open(&args.disks, &executor.spawner())?;
        let guesses = executor.block_on(find(&disks, &wish))?;
        terminal.report(&view(&guesses, &disks));
        return Ok(Exit::Done);
    }
    args.outlets.serve(1, terminal, async |daemon| {
        let disks = open(&args.disks, daemon.spawner())?;
        let guesses = find(&disks, &wish).await?;
        terminal.preview(&view(&guesses, &disks));
        let count = guesses.len();
        let guess = guesses.get(usize::from(args.choose) - 1).ok_or_else(|| {
            let message = format!("there is no number {}", args.choose);
            Failure::new(Id::Usage, message, format!("choose from 1 to {count}"))
        })?;
        take_in(guess, disks, daemon).await
    })
}

impl Args {
    fn wish(&self) -> Result<Wish> {
        let layout = match (self.level, &self.layout) {
            (Some(level), Some(name)) => Some(Layout::parse(level, name)),
            _ => None,
        };
        Ok(Wish {
            members: self.members.into(),
            level: self.level,
            layout: layout.transpose().map_err(|error| {
                let action = "parapet create --help names the layouts";
                Failure::new(Id::Shape, error.to_string(), action)
            })?,
            chunk_bytes: self.chunk.map(|size| size.0),
            data_offset: self.data_offset.map(|size| size.0),
        })
    }
}

/// The disks; of those with partitions the largest one.
fn open(paths: &[PathBuf], on: &Spawner) -> Result<Vec<Opened>> {
    let images = images::open(paths, on)?;
    let disks = images.into_iter().map(|image| {
        let largest = image.parts.into_iter().max_by_key(Opened::bytes);
        largest.unwrap_or(image.whole)
    });
    Ok(disks.collect())
}

async fn find(disks: &[Opened], wish: &Wish) -> Result<Vec<Guess>> {
    let clock = Rc::clone(&disks[0].clock);
    search(&engine::candidates(disks), wish, &clock).await.map_err(|error| {
        let action = "name what is known: --level, --chunk, --data-offset, --members; and leave \
                      out disks that were none of it";
        Failure::new(Id::NoArray, error.to_string(), action)
    })
}

/// Puts a guess together, over the disks, and exports it.
async fn take_in(guess: &Guess, disks: Vec<Opened>, daemon: &Rc<Daemon>) -> Result<()> {
    let on = daemon.spawner();
    let random = engine::random()?;
    let uuid = || {
        let mut bytes = [0; 16];
        random(&mut bytes);
        Uuid(bytes)
    };
    let (set_uuid, device_uuids) = (uuid(), disks.iter().map(|_| uuid()).collect::<Vec<_>>());
    let bytes: Vec<u64> = disks.iter().map(Opened::bytes).collect();
    let name = Name::new(NAME).expect("it is short");
    let seconds = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
    let stamps = stamps(guess, &bytes, (name, set_uuid, &device_uuids), seconds);
    let stamps = stamps.ok_or_else(|| {
        let message = "there is no room for superblocks beside the data";
        Failure::new(Id::WrongState, message, "choose another one: --choose NUMBER")
    })?;
    let mut members = Vec::new();
    for (index, disk) in disks.into_iter().enumerate() {
        if let Some(stamp) = stamps.iter().find(|stamp| stamp.disk == index) {
            members.push(stamped(disk, stamp, on).await);
        }
    }
    let members: Vec<&Opened> = members.iter().collect();
    let assembly = AssemblyFlags { read_only: true, degraded: true, ..AssemblyFlags::default() };
    let sources = Sources { name: Some(NAME), members: &[], scan: None };
    let arrays = sources.gather_from(&members, &assembly, &RunFlags::default(), daemon).await?;
    arrays.iter().try_for_each(|served| daemon.export(served, None, true, true))
}

/// The disk with this superblock over it, and over what others there were, zeros.
async fn stamped(disk: Opened, stamp: &Stamp, on: &Spawner) -> Opened {
    let overlay = Overlay::new(Rc::clone(&disk.disk), on);
    // What cannot be looked at cannot be taken for a superblock either.
    let found = array::examine::examine(&*disk.disk, &disk.clock).await;
    for other in found.iter().flat_map(|found| &found.superblocks) {
        overlay.put(other.offset, &[0; 512]);
    }
    overlay.put(stamp.offset, &stamp.bytes);
    Opened { disk: Rc::new(overlay), file: None, ..disk }
}

fn view(guesses: &[Guess], disks: &[Opened]) -> Recovered {
    let path = |disk: usize| disks[disk].path.display().to_string();
    let content = |(what, at): &(&str, u64)| format!("{what} at byte {at}");
    let view = |guess: &Guess| {
        let names: Vec<Option<String>> = guess.order.iter().map(|disk| disk.map(path)).collect();
        GuessView {
            level: guess.layout.level().to_string(),
            layout: guess.layout.to_string(),
            chunk_bytes: guess.chunk_bytes,
            data_offset: guess.data_offset,
            capacity_bytes: guess.capacity,
            mdadm: mdadm(guess, &names),
            disks: names,
            content: guess.content.iter().map(content).collect(),
            signs: guess.signs as u64,
            signs_tried: guess.signs_tried as u64,
            rows: guess.rows as u64,
            rows_tried: guess.rows_tried as u64,
            steps: guess.steps as u64,
            steps_tried: guess.steps_tried as u64,
            alike: guess.alike as u64,
        }
    };
    Recovered { guesses: guesses.iter().map(view).collect() }
}

/// How mdadm is told to write the superblocks of this guess.
fn mdadm(guess: &Guess, names: &[Option<String>]) -> String {
    let mut words = vec!["mdadm --create /dev/md0 --assume-clean".to_owned()];
    words.push(format!("--level={}", guess.layout.level().name().replace("raid", "")));
    let layout = guess.layout.to_string();
    if layout != "none" {
        words.push(format!("--layout={layout}"));
    }
    if guess.chunk_bytes > 0 {
        words.push(format!("--chunk={}K", guess.chunk_bytes >> 10));
    }
    words.push(match guess.data_offset {
        8192.. => format!("--metadata=1.2 --data-offset={}K", guess.data_offset >> 10),
        4096.. => format!("--metadata=1.1 --data-offset={}K", guess.data_offset >> 10),
        _ => "--metadata=1.0".into(),
    });
    words.push(format!("--raid-devices={}", names.len()));
    words.extend(names.iter().map(|name| name.clone().unwrap_or_else(|| "missing".into())));
    words.join(" ")
}
