//! The verbs: one file each, or one for a pair of similar verbs, with its flags and code.
//!
//! Verbs for a running array send requests to its server. `create`, `examine`, `assemble` and
//! `destroy` work on members; `serve`, `daemon` and `quickstart` are servers; `page` serves
//! a web page.

use std::path::Path;

use clap::Subcommand;

use crate::api::Array;
use crate::failure::{Exit, Result};
use crate::modelled::{self, is_modelled};
use crate::remote::{self, is_remote};
use crate::terminal::Terminal;

mod add;
mod aoe;
mod assemble;
mod attach;
mod clear;
#[cfg(feature = "cluster")]
mod cluster;
mod completions;
mod config;
pub(crate) mod create;
mod daemon;
mod destroy;
mod disk;
mod events;
mod examine;
mod export;
mod health;
mod import;
mod iostat;
mod jobs;
#[cfg(feature = "lab")]
mod lab;
mod list;
mod man;
mod member;
#[cfg(feature = "notify")]
mod notify;
#[cfg(feature = "page")]
mod page;
#[cfg(feature = "lab")]
mod plan;
pub(crate) mod quickstart;
mod readd;
mod recover;
mod replace;
mod schema;
mod scrub;
pub(crate) mod serve;
#[cfg(feature = "cluster")]
mod serve_disk;
mod speed;
mod start;
mod status;
mod stop;
mod undestroy;
mod wait;
mod when;

pub(crate) use wait::Progress;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Verb {
    Quickstart(quickstart::Args),
    Create(create::Args),
    Examine(examine::Args),
    Assemble(assemble::Args),
    Serve(serve::Args),
    Daemon(daemon::Args),
    #[cfg(feature = "cluster")]
    ServeDisk(serve_disk::Args),
    #[cfg(feature = "cluster")]
    Cluster(cluster::Args),
    Config(config::Args),
    Import(import::Args),
    Recover(recover::Args),
    List(list::Args),
    Status(status::Args),
    Jobs(jobs::Args),
    When(when::Args),
    #[command(alias = "history")]
    Events(events::Args),
    #[cfg(feature = "notify")]
    Notify(notify::Args),
    Iostat(iostat::Args),
    Fail(member::Fail),
    Remove(member::Remove),
    Add(add::Args),
    #[command(alias = "readd")]
    ReAdd(readd::Args),
    Replace(replace::Args),
    Scrub(scrub::Args),
    Clear(clear::Args),
    Speed(speed::Args),
    Wait(wait::Args),
    Health(health::Args),
    Disk(disk::Args),
    Attach(attach::Attach),
    Detach(attach::Detach),
    #[cfg(feature = "page")]
    Page(page::Args),
    Online(export::Online),
    Offline(export::Offline),
    Shelf(export::Shelf),
    Mask(export::Mask),
    Reservations(export::Reservations),
    Aoe(aoe::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    #[cfg(feature = "lab")]
    Plan(plan::Args),
    Start(start::Args),
    Stop(stop::Args),
    Destroy(destroy::Args),
    Undestroy(undestroy::Args),
    Completions(completions::Args),
    Man(man::Args),
    Schema(schema::Args),
}

impl Verb {
    /// Returns true for a verb that runs as a server: its log has the changes of state.
    pub(crate) fn is_server(&self) -> bool {
        match self {
            Verb::Serve(_) | Verb::Daemon(_) => true,
            #[cfg(feature = "page")]
            Verb::Page(_) => true,
            #[cfg(feature = "cluster")]
            Verb::ServeDisk(_) => true,
            #[cfg(feature = "cluster")]
            Verb::Cluster(args) => args.is_server(),
            _ => false,
        }
    }

    /// Executes the verb.
    ///
    /// # Errors
    /// The cause, and a remedy.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<Exit> {
        match self {
            Verb::Quickstart(args) => quickstart::run(args, terminal),
            Verb::Create(args) => create::run(args, terminal),
            Verb::Examine(args) => examine::run(args, terminal),
            Verb::Assemble(args) => assemble::run(args, terminal),
            Verb::Serve(args) => serve::run(args, terminal),
            Verb::Daemon(args) => daemon::run(args, terminal),
            #[cfg(feature = "cluster")]
            Verb::ServeDisk(args) => serve_disk::run(&args, terminal),
            #[cfg(feature = "cluster")]
            Verb::Cluster(args) => cluster::run(args, terminal),
            Verb::Config(args) => config::run(&args, terminal),
            Verb::Import(args) => import::run(args, terminal),
            Verb::Recover(args) => recover::run(args, terminal),
            Verb::List(args) => list::run(&args, terminal),
            Verb::Status(args) => status::run(&args, terminal),
            Verb::Events(args) => events::run(&args, terminal),
            #[cfg(feature = "notify")]
            Verb::Notify(args) => notify::run(args, terminal),
            Verb::Iostat(args) => iostat::run(&args, terminal),
            Verb::Jobs(args) => jobs::run(&args, terminal),
            Verb::When(args) => when::run(&args, terminal),
            Verb::Fail(args) => member::fail(&args, terminal),
            Verb::Remove(args) => member::remove(&args, terminal),
            Verb::Add(args) => add::run(args, terminal),
            Verb::ReAdd(args) => readd::run(args, terminal),
            Verb::Replace(args) => replace::run(args, terminal),
            Verb::Scrub(args) => scrub::run(&args, terminal),
            Verb::Clear(args) => clear::run(&args, terminal),
            Verb::Speed(args) => speed::run(&args, terminal),
            Verb::Wait(args) => wait::run(&args, terminal),
            Verb::Health(args) => health::run(&args, terminal),
            Verb::Disk(args) => disk::run(&args, terminal),
            Verb::Attach(args) => attach::attach(&args, terminal),
            Verb::Detach(args) => attach::detach(&args, terminal),
            #[cfg(feature = "page")]
            Verb::Page(args) => page::run(&args, terminal),
            Verb::Online(args) => export::online(&args, terminal),
            Verb::Offline(args) => export::offline(&args, terminal),
            Verb::Shelf(args) => export::shelf(&args, terminal),
            Verb::Mask(args) => export::mask(&args, terminal),
            Verb::Reservations(args) => export::reservations(&args, terminal),
            Verb::Aoe(args) => aoe::run(&args, terminal),
            #[cfg(feature = "lab")]
            Verb::Lab(args) => lab::run(&args, terminal),
            #[cfg(feature = "lab")]
            Verb::Plan(args) => plan::run(&args, terminal),
            Verb::Start(args) => start::run(&args, terminal),
            Verb::Stop(args) => stop::run(&args, terminal),
            Verb::Destroy(args) => destroy::run(args, terminal),
            Verb::Undestroy(args) => undestroy::run(args, terminal),
            Verb::Completions(args) => completions::run(&args, terminal),
            Verb::Man(args) => man::run(&args, terminal),
            Verb::Schema(args) => schema::run(&args, terminal),
        }
    }
}

/// Resolves a member to its name in the array's server, or else to a path.
pub(crate) fn member_of(text: &str, array: &Array) -> String {
    if is_remote(Path::new(text)) || is_modelled(Path::new(text)) {
        return whole(text);
    }
    let whole = std::path::absolute(text).map(|path| path.display().to_string());
    let known = |name: &str| array.members().any(|member| member.name == name);
    match whole {
        _ if known(text) => text.into(),
        Ok(whole) if known(&whole) => whole,
        // Resolve paths last: the file system may hang.
        _ => absolute(text),
    }
}

/// Makes an existing path absolute, for a server in another folder; returns any other text as is.
pub(crate) fn absolute(text: &str) -> String {
    let is_path = is_modelled(Path::new(text)) || Path::new(text).exists();
    if is_remote(Path::new(text)) || is_path { whole(text) } else { text.into() }
}

/// Makes a path absolute, whether it exists or not. The same name in the server's folder could be
/// another file. The address of a disk on another machine gets its full form.
pub(crate) fn whole(text: &str) -> String {
    if is_remote(Path::new(text)) {
        return remote::normal(text);
    }
    if let Some(whole) = modelled::whole(Path::new(text)) {
        return whole.display().to_string();
    }
    std::path::absolute(text).map_or_else(|_| text.into(), |path| path.display().to_string())
}
