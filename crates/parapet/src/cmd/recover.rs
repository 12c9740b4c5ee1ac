//! `parapet recover`: identifies the array of disks whose superblocks are lost.

use std::path::PathBuf;
use std::rc::Rc;

use layout::{Layout, Level};
use metadata::recover::{Guess, Wish, search};
use os::Spawner;

use crate::api::{GuessVerdict, GuessView, Recovered};
use crate::cmd::create::{closing, level};
use crate::cmd::serve::Outlets;
use crate::daemon::Daemon;
use crate::disks::Opened;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Consent;
use crate::size::Size;
use crate::terminal::Terminal;
use crate::{engine, images, places};

mod members;
mod write;

/// Reconstruct an array whose superblocks are lost, and serve it read-only
///
/// Identifies level, layout, chunk size, member order and data offset from file-system signatures
/// and parity consistency. Lists the candidates with their evidence. --nbd serves one of them
/// read-only and writes nothing to the disks. Check the served data, then write the superblocks
/// with --write. Of a partitioned disk the largest partition is used.
///
/// For example: parapet recover disk[0-3].img --nbd unix:/run/guess.nbd
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Disks or images, in the likeliest order
    #[arg(value_name = "DISK", required = true)]
    disks: Vec<PathBuf>,
    /// Number of members, including missing ones
    #[arg(long, value_name = "COUNT", default_value = "0",
        value_parser = clap::value_parser!(u16).range(0..=layout::MAX_SLOTS as i64))]
    members: u16,
    /// Known RAID level (restricts the search)
    #[arg(short, long, value_name = "LEVEL", value_parser = level)]
    level: Option<Level>,
    /// Known layout (restricts the search)
    #[arg(long, value_name = "LAYOUT", requires = "level")]
    layout: Option<String>,
    /// Known chunk size (restricts the search)
    #[arg(short, long, value_name = "SIZE")]
    chunk: Option<Size>,
    /// Known data offset of the members (restricts the search)
    #[arg(long, value_name = "SIZE")]
    data_offset: Option<Size>,
    /// The disks are named in slot order; the word `missing` stands for an absent one
    #[arg(long)]
    in_order: bool,
    /// Use whole disks, ignore partitions
    #[arg(long)]
    whole: bool,
    /// Candidate to serve or write [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    choose: Option<u16>,
    /// Write the superblocks of the candidate; shows the plan and asks before it writes
    #[arg(long, conflicts_with_all = ["nbd", "stdio"])]
    write: bool,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    outlets: Outlets,
}

/// The name of a recovered array.
const NAME: &str = "recovered";
/// The placeholder of an absent disk, as in mdadm.
const MISSING: &str = "missing";

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let mut wish = args.wish()?;
    if !args.write && (args.consent.yes || args.consent.dry_run) {
        let message = "--yes and --dry-run need --write: without it nothing is written";
        return Err(Failure::new(Id::Usage, message, "say --write, or leave out --yes and -n"));
    }
    if args.write {
        let executor = engine::executor()?;
        let daemon = Daemon::new(&executor.spawner(), None, 1)?;
        let work = async {
            let disks = open(&args, daemon.spawner()).await?;
            let guesses = find(&disks, &mut wish).await?;
            if !args.consent.yes {
                terminal.preview(&args.view(&guesses, &disks, &wish));
            }
            let guess = args.chosen(&guesses)?;
            args.refuse_chance(&guesses, guess)?;
            let members = members::lay(guess, disks, daemon.spawner()).await?;
            write::write(guess, &members, &args.consent, &daemon, terminal).await
        };
        return executor.block_on(closing(&daemon, work)).map(|()| Exit::Done);
    }
    if args.outlets.is_none() {
        let executor = engine::executor()?;
        let disks = executor.block_on(open(&args, &executor.spawner()))?;
        let guesses = executor.block_on(find(&disks, &mut wish))?;
        terminal.report(&args.view(&guesses, &disks, &wish));
        return Ok(Exit::Done);
    }
    args.outlets.serve(1, terminal, async |daemon| {
        let disks = open(&args, daemon.spawner()).await?;
        let guesses = find(&disks, &mut wish).await?;
        terminal.preview(&args.view(&guesses, &disks, &wish));
        let guess = args.chosen(&guesses)?;
        match args.verdict(&guesses, guess) {
            GuessVerdict::Fits => {}
            GuessVerdict::Ambiguous => tracing::warn!("only a guess: another one fits as well"),
            GuessVerdict::Contradicted => {
                tracing::warn!("only a guess: the evidence contradicts it")
            }
        }
        let members = members::lay(guess, disks, daemon.spawner()).await?;
        let served = members::start(&members, daemon).await?;
        daemon.export(&served, None, true, true)
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
            order: self.slots().1,
        })
    }

    fn chosen<'a>(&self, guesses: &'a [Guess]) -> Result<&'a Guess> {
        let number = self.choose.unwrap_or(1);
        guesses.get(usize::from(number) - 1).ok_or_else(|| {
            let message = format!("there is no number {number}");
            Failure::new(Id::Usage, message, format!("choose from 1 to {}", guesses.len()))
        })
    }

    /// Returns the present disks, and the slot of each disk if known.
    fn slots(&self) -> (Vec<PathBuf>, Option<Vec<Option<usize>>>) {
        let mut there = Vec::new();
        let mut order = Vec::new();
        for disk in &self.disks {
            let is_gap = self.in_order && disk.as_os_str() == MISSING;
            order.push((!is_gap).then_some(there.len()));
            if !is_gap {
                there.push(disk.clone());
            }
        }
        (there, self.in_order.then_some(order))
    }

    /// Refuses to write an ambiguous candidate. Mirrors are correct in any order.
    fn refuse_chance(&self, guesses: &[Guess], chosen: &Guess) -> Result<()> {
        let refusal = |message: String, action: &str| {
            Err(Failure::new(Id::WrongState, message, action.to_owned()))
        };
        if !chosen.fits() && !self.in_order {
            let message = "the evidence contradicts this guess".into();
            return refusal(message, "was there another disk? say how many: --members COUNT");
        }
        if self.choose.is_none() && guesses.get(1).is_some_and(|next| next.ties_with(chosen)) {
            let action = "look at what each holds: --nbd unix:PATH --choose NUMBER; then write \
                          that one: --write --choose NUMBER";
            return refusal("the second one fits as well as the first".into(), action);
        }
        let message = match chosen.alike {
            _ if chosen.layout.level() == Level::Raid1 => return Ok(()),
            Some(0) => return Ok(()),
            Some(1) => "one other order of the disks fits as well".into(),
            Some(count) => format!("{count} other orders of the disks fit as well"),
            None => "there are too many orders of the disks to try all".into(),
        };
        let action = "name the disks in an order, `missing` for one that is not there, say \
                      --in-order, and look at what that holds (--nbd unix:PATH); --write writes it";
        refusal(message, action)
    }
}

/// Opens the disks; of a partitioned disk, the largest partition.
async fn open(args: &Args, on: &Spawner) -> Result<Vec<Opened>> {
    let images = images::open(&args.slots().0, !args.write, on).await?;
    let disks = images.into_iter().map(|image| {
        let largest = image.parts.into_iter().max_by_key(Opened::bytes);
        largest.filter(|_| !args.whole).unwrap_or(image.whole)
    });
    Ok(disks.collect())
}

/// Searches for candidates. If none fits, searches again with one more slot than disks.
async fn find(disks: &[Opened], wish: &mut Wish) -> Result<Vec<Guess>> {
    let clock = Rc::clone(&disks[0].clock);
    let found = search(&engine::candidates(disks), wish, &clock).await;
    let fits = |found: &[Guess]| found.first().is_some_and(Guess::fits);
    if wish.members == 0 && wish.order.is_none() && !found.as_ref().is_ok_and(|f| fits(f)) {
        let wider = Wish { members: disks.len() + 1, ..wish.clone() };
        let more = search(&engine::candidates(disks), &wider, &clock).await.unwrap_or_default();
        if fits(&more) {
            let (there, slots) = (disks.len(), wider.members);
            tracing::warn!(
                "an array of {slots} slots fits; of {there} it does not: one is missing"
            );
            *wish = wider;
            return Ok(more);
        }
    }
    found.map_err(|error| {
        let action = "name what is known: --level, --chunk, --data-offset, --members; say --whole \
                      if partitions came later; and leave out disks that were none of it";
        Failure::new(Id::NoArray, error.to_string(), action)
    })
}

impl Args {
    /// Rates the evidence for a candidate, compared with all candidates.
    fn verdict(&self, guesses: &[Guess], guess: &Guess) -> GuessVerdict {
        let is_mirror = guess.layout.level() == Level::Raid1;
        let ties = guesses.iter().filter(|other| other.ties_with(guess)).count();
        match guess.fits() {
            false => GuessVerdict::Contradicted,
            true if ties > 1 || guess.alike != Some(0) && !is_mirror => GuessVerdict::Ambiguous,
            true => GuessVerdict::Fits,
        }
    }

    /// Returns the command that writes a candidate of this search.
    fn command(&self, wish: &Wish) -> String {
        let mut words = vec!["parapet recover".to_owned()];
        words.extend(self.disks.iter().map(|disk| places::quoted(&disk.display().to_string())));
        let flag =
            |name: &str, value: Option<String>| value.map(|value| format!("--{name} {value}"));
        let members = (wish.members > 0).then(|| wish.members.to_string());
        let layout = self.layout.as_deref().map(places::quoted);
        let chunk = self.chunk.map(|size| size.0.to_string());
        let offset = self.data_offset.map(|size| size.0.to_string());
        words.extend(flag("members", members));
        words.extend(flag("level", self.level.map(|l| l.name().replace("raid", ""))));
        words.extend(flag("layout", layout));
        words.extend(flag("chunk", chunk));
        words.extend(flag("data-offset", offset));
        words.extend(self.in_order.then(|| "--in-order".into()));
        words.extend(self.whole.then(|| "--whole".into()));
        words.push("--write".into());
        words.join(" ")
    }

    fn view(&self, guesses: &[Guess], disks: &[Opened], wish: &Wish) -> Recovered {
        let path = |disk: usize| disks[disk].path.display().to_string();
        let content = |(what, at): &(&str, u64)| format!("{what} at byte {at}");
        let view = |guess: &Guess| {
            let names: Vec<Option<String>> =
                guess.order.iter().map(|disk| disk.map(path)).collect();
            let verdict = self.verdict(guesses, guess);
            let fits = verdict == GuessVerdict::Fits;
            let is_first = guesses.first().is_some_and(|first| std::ptr::eq(first, guess));
            GuessView {
                level: guess.layout.level().to_string(),
                layout: guess.layout.to_string(),
                chunk_bytes: guess.chunk_bytes,
                data_offset: guess.data_offset,
                capacity_bytes: guess.capacity,
                verdict,
                write: (fits && is_first).then(|| self.command(wish)),
                mdadm: if fits { mdadm(guess, &names) } else { String::new() },
                disks: names,
                content: guess.content.iter().map(content).collect(),
                signs: guess.signs as u64,
                signs_tried: guess.signs_tried as u64,
                rows: guess.rows as u64,
                rows_tried: guess.rows_tried as u64,
                steps: guess.steps as u64,
                steps_tried: guess.steps_tried as u64,
                alike: guess.alike.map(|count| count as u64),
            }
        };
        let fits = guesses.first().is_some_and(Guess::fits);
        let slots = wish.members.max(disks.len());
        let hint = (!fits)
            .then(|| format!("were there more disks? say how many: --members {}", slots + 1));
        Recovered { guesses: guesses.iter().map(view).collect(), hint }
    }
}

/// Returns the mdadm command that writes the superblocks of this candidate.
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
