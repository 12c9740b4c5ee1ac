//! Executes the commands of the control API on one array.
//!
//! Each command returns a sentence about its effect. The engine decides whether it is possible.
//! This module opens the disks, and checks the content of a disk before the array gets it.

use std::path::Path;
use std::rc::Rc;

use array::status::{MemberStatus, SlotState};
use io::Clock;
use layout::{MemberId, Mode, Slot};
use metadata::{Bounds, Error, ErrorKind};
use os::{FileDisk, Options, SharedFile};

use super::log::tolerated;
use super::{Daemon, Known, Served, first};
use crate::api::{Order, Severity, SignatureView, State};
use crate::disks::{self, Opened};
use crate::failure::{Failure, Id, Result, of_path};
use crate::modelled::file_of;
use crate::remote::is_remote;
use crate::size::Size;
use crate::{engine, probe, undo};

impl Daemon {
    /// Executes the command.
    ///
    /// # Errors
    /// The reason for the refusal or failure.
    pub(crate) async fn carry_out(
        self: &Rc<Self>,
        served: &Rc<Served>,
        verb: &str,
        order: &Order,
    ) -> Result<String> {
        let name = served.name();
        if writes(verb, order) {
            served.refuse_read_only()?;
        }
        match verb {
            "fail" => {
                let who = member_of(order)?;
                let id = served.resolve(who)?;
                let failed = served.array.fail(id).await;
                failed.map_err(|error| self.instead_of_fail(served, id, error))?;
                Ok(format!("{name}: {} marked faulty{}", served.title(id), self.outlook(served)))
            }
            "remove" => {
                let id = served.resolve(member_of(order)?)?;
                let title = served.title(id);
                self.refuse_in_use(served, id)?;
                served.array.remove(id).await.map_err(of_engine)?;
                served.forget(id);
                Ok(format!("{name}: {title} has been removed"))
            }
            "add" => {
                let id = self.admit(served, member_of(order)?, &order.overwrite).await?;
                Ok(format!("{name}: {} has been added{}", served.title(id), self.outlook(served)))
            }
            "re-add" => {
                let id = self.readmit(served, member_of(order)?).await?;
                Ok(format!("{name}: {} is back{}", served.title(id), self.outlook(served)))
            }
            "replace" => self.replace(served, order).await,
            "scrub" => self.scrub(served, order).await,
            "clear" => {
                let only = order.member.as_deref().map(|who| served.resolve(who)).transpose()?;
                served.clear_errors(only);
                let whose = only.map_or("all members".into(), |id| served.title(id));
                Ok(format!("{name}: the error counts of {whose} are cleared"))
            }
            "speed" => {
                let speed = order.speed.ok_or_else(|| usage("the order has no speed"))?;
                if speed.max.is_some_and(|max| max < speed.min) {
                    let [min, max] = [speed.min, speed.max.unwrap_or_default()].map(Size);
                    let message =
                        format!("{name}: the minimum speed {min}/s is above the maximum {max}/s");
                    let action = "set both: --speed-min SIZE --speed-max SIZE";
                    return Err(Failure::new(Id::Usage, message, action));
                }
                served.array.set_speed(speed.min, speed.max.unwrap_or(crate::flags::UNLIMITED));
                served.job_rate.limits_changed();
                Ok(format!("{name}: background work goes {}", speed.sentence()))
            }
            "online" => self.order_online(served, order).await,
            "offline" => self.order_offline(served).await,
            "shelf" => self.order_shelf(served, order).await,
            "mask" => self.order_mask(served, order).await,
            "reservations" => self.order_reservations(served, order).await,
            "attach" => self.order_attach(served, order).await,
            "detach" => self.order_detach(served).await,
            "health" => served.note_health(order),
            "locate" => served.locate(order).await,
            "notify-test" => self.test_alerts(served),
            "stop" => self.stop(served).await,
            _ => Err(usage(&format!("{verb} is no order"))),
        }
    }

    /// Stops an array and the arrays inside it. After the last array, the server stops.
    async fn stop(&self, served: &Rc<Served>) -> Result<String> {
        let name = served.name();
        if let Some(outer) = served.inside().and_then(|uuid| self.find(&uuid)) {
            let outer = outer.name();
            let message = format!("{name} is a member of {outer}");
            return Err(Failure::new(Id::WrongState, message, format!("parapet stop {outer}")));
        }
        self.local_disks.refuse_in_use(served.uuid()).await?;
        self.local_disks.end(served.uuid()).await;
        self.retire(served).await;
        let result = self.give_up(served).await;
        served.log_final_state();
        if self.arrays.borrow().is_empty() && !self.is_managed() {
            self.end();
        }
        result.map(|()| format!("{name}: stopped; {}", served.rest()))
    }

    /// Stops an array and the arrays inside it.
    ///
    /// # Errors
    /// If members could not be marked clean; the array stops nevertheless.
    pub(crate) async fn give_up(&self, served: &Rc<Served>) -> Result<()> {
        let mut result = served.stop().await;
        let mut gone = vec![served.uuid().to_owned()];
        for inner in self.arrays().iter().rev() {
            if inner.inside().is_some_and(|outer| gone.contains(&outer)) {
                result = result.and(inner.stop().await);
                gone.push(inner.uuid().to_owned());
            }
        }
        self.arrays.borrow_mut().retain(|other| !gone.iter().any(|uuid| uuid == other.uuid()));
        self.note_stopped(served, &gone);
        result
    }

    /// Refuses to remove a member that holds a slot, and says how to release it.
    fn refuse_in_use(&self, served: &Served, id: MemberId) -> Result<()> {
        let status = served.array.status();
        let is_it = |member: &MemberStatus| member.id == id;
        let Some(slot) =
            status.slots.iter().find(|slot| slot.member.iter().chain(&slot.replacement).any(is_it))
        else {
            return Ok(());
        };
        let (name, flag, title) = (served.name(), self.control_flag(), served.title(id));
        let message = format!("{title} is in use: slot {} of {name}", slot.slot);
        let quoted = crate::places::quoted(&title);
        let remove = format!("parapet remove {name} {quoted}{flag}");
        let is_replaced = slot.replacement.as_ref().is_some_and(|member| !is_it(member));
        let action = if is_replaced {
            format!("parapet wait {name} --for rebuild{flag}, then {remove}")
        } else if self.view(served).redundancy_left == 0 && slot.member.iter().any(is_it) {
            format!("parapet replace {name} {quoted} DISK{flag}: the array tolerates no failure")
        } else {
            format!("parapet fail {name} {quoted}{flag}, then {remove}")
        };
        Err(Failure::new(Id::WrongState, message, action))
    }

    /// Explains what to do where a member cannot be marked faulty.
    fn instead_of_fail(&self, served: &Served, id: MemberId, error: Error) -> Failure {
        let mut failure = of_engine(error);
        if failure.id != Id::WrongState {
            return failure;
        }
        let (name, flag) = (served.name(), self.control_flag());
        let title = crate::places::quoted(&served.title(id));
        let array = self.view(served);
        failure.action = if served.faulty().contains(&id) {
            format!("parapet remove {name} {title}{flag}")
        } else if array.is_syncing() {
            format!("parapet wait {name} --for resync{flag}, then repeat it")
        } else if array.redundancy > 0 {
            format!("parapet replace {name} {title} DISK{flag} copies it to another disk first")
        } else {
            failure.action
        };
        failure
    }

    /// Describes what the array does next, after a change of its members.
    fn outlook(&self, served: &Served) -> String {
        let array = self.view(served);
        let left = tolerated(array.redundancy_left);
        format!("; the array {}, {left}", array.state.is_word())
    }

    /// Opens a new disk, checks that nothing on it is in the way, and adds it to the array. This
    /// also treats a former member of this array as a new disk.
    async fn admit(&self, served: &Served, path: &str, overwrite: &[String]) -> Result<MemberId> {
        let allowed: std::result::Result<Vec<SignatureView>, String> =
            overwrite.iter().map(|text| text.parse()).collect();
        let mut allowed = allowed.map_err(|error| usage(&error))?;
        let path = named(path)?;
        self.refuse_failed(served)?;
        self.let_go_of_failed(served, path).await?;
        let opened = self.open(served, path).await?;
        let contents = probe::contents(&opened).await?;
        let signatures = &contents.signatures;
        let is_former = |superblock| served.array.is_former_member(superblock);
        if contents.superblocks.iter().all(is_former) {
            let members = signatures.iter().filter(|signature| signature.is_member());
            allowed.extend(members.cloned());
        }
        let allowed: Vec<probe::Allowed> = allowed.into_iter().map(Into::into).collect();
        probe::refuse_unnamed([(path, &contents)], &allowed)?;
        let target = undo::OverwriteTarget::new(&opened, signatures);
        undo::keep("add", served.name(), &[target]).await?;
        let title = path.display().to_string();
        let disk = Rc::clone(&opened.disk);
        let newcomer = served.array.admit(disk, &title).await.map_err(of_engine)?;
        self.introduce(served, &newcomer, (&opened.path, opened.file.as_ref())).await;
        let id = served.array.add_prepared(newcomer).await.map_err(of_engine)?;
        served.remember(id, engine::know(&opened).await);
        Ok(id)
    }

    /// Opens a disk, with a timeout in case its file system hangs.
    async fn open(&self, served: &Served, path: &Path) -> Result<Opened> {
        if is_remote(path) {
            self.refuse_held(path, |array| array.member_at(path))?;
            let opened = disks::open_one(path, &Options::default(), &self.spawner).await?;
            self.check_single_threaded([&opened])?;
            return Ok(opened);
        }
        let theirs = path.to_owned();
        if let Some(identity) = self.aside(path, move || disks::identity(&theirs)).await? {
            self.refuse_held(path, |array| array.member_on(identity))?;
            self.refuse_same_bytes(path, identity).await?;
            if let Some(opened) = served.still_open(path, identity, &self.spawner) {
                return Ok(opened);
            }
        }
        let theirs = file_of(path).to_owned();
        let opening = move || SharedFile::open(&theirs, &Options::default());
        let file = FileDisk::of(self.aside(path, opening).await??, &self.spawner);
        let opened = Opened::file(path, file, &self.spawner)?;
        self.check_single_threaded([&opened])?;
        Ok(opened)
    }

    /// Refuses if the array has failed. Only a start takes lost members again, and their bytes may
    /// be needed.
    fn refuse_failed(&self, served: &Served) -> Result<()> {
        let array = self.view(served);
        if array.state != State::Failed {
            return Ok(());
        }
        let message = format!("{} has failed: no new member can be filled", array.name);
        let action = self.how_to_revive(&array, &self.control_flag());
        Err(Failure::new(Id::WrongState, message, action))
    }

    /// Removes a failed member that uses this disk: the disk becomes a new member.
    async fn let_go_of_failed(&self, served: &Served, path: &Path) -> Result<()> {
        let theirs = path.to_owned();
        let identity = self.aside(path, move || disks::identity(&theirs)).await?;
        // A disk plugged in again appears as another device at the same path.
        let is_it = |known: &Known| {
            identity.is_some() && known.identity == identity
                || disks::member_path(&known.path) == path
        };
        let own =
            served.faulty().into_iter().find(|&id| served.known(id).is_some_and(|k| is_it(&k)));
        if let Some(id) = own {
            served.array.remove(id).await.map_err(of_engine)?;
            served.forget(id);
        }
        Ok(())
    }

    /// Refuses a disk that an array of this server already uses.
    fn refuse_held(
        &self,
        path: &Path,
        member_of: impl Fn(&Served) -> Option<MemberId>,
    ) -> Result<()> {
        for holder in self.arrays() {
            let Some(id) = member_of(&holder) else { continue };
            let (name, title) = (holder.name(), holder.title(id));
            let status = holder.array.status();
            let is_it = |member: &MemberStatus| member.id == id;
            let slot = status.slots.iter().find(|slot| slot.member.iter().any(is_it));
            let replacement = status.slots.iter().find(|slot| slot.replacement.iter().any(is_it));
            let (what, action) = if let Some(slot) = slot {
                let slot = slot.slot.index();
                let action =
                    format!("parapet replace {name} {slot} DISK, to have another one there");
                (format!("a member of {name}, in slot {slot}"), action)
            } else if let Some(slot) = replacement {
                let slot = slot.slot.index();
                let what = format!("a member of {name}, about to take slot {slot}");
                (what, format!("parapet wait {name} --for rebuild"))
            } else if status.spares.iter().any(is_it) {
                let action = format!("parapet fail {name} SLOT: it takes the place");
                (format!("a spare of {name}"), action)
            } else {
                let action = format!("parapet remove {name} {title}, to use it elsewhere");
                (format!("a member of {name} that has failed"), action)
            };
            let message = format!("{} is {what}", path.display());
            return Err(Failure::new(Id::Busy, message, action));
        }
        Ok(())
    }

    /// Refuses a disk that shares its bytes with a member: a loop device on its file, or a
    /// partition.
    async fn refuse_same_bytes(&self, path: &Path, identity: (u64, u64)) -> Result<()> {
        let arrays = self.arrays();
        let known = arrays.iter().flat_map(|array| array.all_known());
        let held: Vec<_> =
            known.filter_map(|(_, known)| Some((known.path.clone(), known.identity?))).collect();
        let theirs = path.to_owned();
        let look = move || disks::of_same_bytes((&theirs, identity), &held);
        let Some(other) = self.aside(path, look).await? else { return Ok(()) };
        let message =
            format!("{} and {} are made of the same bytes", other.display(), path.display());
        Err(Failure::new(Id::Same, message, "name a disk of its own"))
    }

    /// Runs blocking work on `path`, with a timeout in case its file system hangs.
    async fn aside<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let clock = self.spawner.clock();
        let deadline = Bounds::default().deadline;
        let work = os::threads::aside(work).map_err(|error| of_path(path, &error))?;
        first(work, clock.sleep_until(clock.now() + deadline)).await.ok_or_else(|| {
            let (path, seconds) = (path.display(), deadline.as_secs());
            let message = format!("{path}: its file system has not answered for {seconds} s");
            Failure::new(Id::Input, message, "see what has become of the file system's server")
        })
    }

    /// Re-adds a failed member that is still open, or a disk.
    pub(super) async fn readmit(&self, served: &Served, who: &str) -> Result<MemberId> {
        let own = served.resolve(who).ok();
        let failed = own.filter(|id| served.faulty().contains(id));
        let known = match failed.and_then(|id| served.known(id)) {
            Some(known) if known.is_gone() => self.open_again(served, known).await?,
            Some(known) => known,
            None => {
                let path = if own.is_some() { Path::new(who) } else { named(who)? };
                let opened = self.open(served, path).await?;
                engine::know(&opened).await
            }
        };
        let title = known.path.display().to_string();
        let disk = Rc::clone(&known.disk);
        let newcomer = served.array.readmit(disk, &title).await.map_err(|error| {
            let mut refusal = of_engine(error);
            if refusal.id == Id::WrongState {
                let disk = crate::places::quoted(&title);
                refusal.action =
                    format!("parapet add {} {disk} makes it a new member", served.name());
            }
            refusal
        })?;
        self.introduce(served, &newcomer, (&known.path, known.file.as_ref())).await;
        let id = served.array.add_prepared(newcomer).await.map_err(of_engine)?;
        failed.into_iter().for_each(|id| served.forget(id));
        served.remember(id, known);
        if served.faulty().contains(&id) {
            let message = format!("{title} was lost again at once");
            return Err(Failure::new(Id::Failed, message, "parapet status shows why"));
        }
        Ok(id)
    }

    /// Reopens the disk of a member that disappeared. The kernel gives a disk plugged in again a
    /// new device, and the old handle stays dead. A truncated file has lost its bytes.
    async fn open_again(&self, served: &Served, known: Known) -> Result<Known> {
        let (name, path) = (served.name(), known.path.display().to_string());
        if known.is_file() {
            let message = format!("{path} was cut while in use: bytes that it held are lost");
            let action = format!("parapet add {name} {path} rebuilds it in full");
            return Err(Failure::new(Id::WrongState, message, action));
        }
        let theirs = file_of(&known.path).to_owned();
        let opening = move || SharedFile::open(&theirs, &Options::default());
        let file = FileDisk::of(self.aside(&known.path, opening).await??, &self.spawner);
        Ok(engine::know(&Opened::file(&known.path, file, &self.spawner)?).await)
    }

    /// Re-adds a failed member. Returns its name, or none if it has no slot any more.
    pub(crate) async fn bring_back(&self, served: &Served, id: MemberId) -> Option<String> {
        let title = served.title(id);
        let back = self.readmit(served, &title).await;
        if let Err(refusal) = &back {
            tracing::debug!(%refusal, "not brought back");
        }
        back.ok().map(|_| title)
    }

    async fn replace(&self, served: &Served, order: &Order) -> Result<String> {
        let who = member_of(order)?;
        let old = served.resolve(who)?;
        let status = served.array.status();
        let slot =
            status.slots.iter().find(|slot| slot.member.as_ref().is_some_and(|m| m.id == old));
        let holds = |what: &str| {
            let message = format!("{} {what}", served.title(old));
            Failure::new(Id::WrongState, message, "only a member that is whole can be replaced")
        };
        // Check this before admitting a new disk: a refusal must not change anything.
        let slot: Slot = match slot.map(|slot| (slot.slot, slot.state)) {
            None => return Err(holds("holds no slot")),
            Some((slot, SlotState::InSync)) => slot,
            Some((_, SlotState::Replacing { .. })) => {
                return Err(holds("is being replaced already"));
            }
            Some(_) => return Err(holds("is being filled")),
        };
        let is_spare = |id: &MemberId| status.spares.iter().any(|spare| spare.id == *id);
        let (with, is_new) = match &order.with {
            Some(with) => match served.resolve(with).ok().filter(is_spare) {
                Some(spare) => (spare, false),
                None => (self.admit(served, with, &order.overwrite).await?, true),
            },
            None => match status.spares.first() {
                Some(spare) => (spare.id, false),
                None => {
                    let (name, flag) = (served.name(), self.control_flag());
                    let message = format!("{name} has no spare");
                    let title = crate::places::quoted(&served.title(old));
                    let action = format!("name a disk: parapet replace {name} {title} DISK{flag}");
                    return Err(Failure::new(Id::WrongState, message, action));
                }
            },
        };
        if let Err(refusal) = served.array.replace(slot, with).await {
            if is_new && served.array.remove(with).await.is_ok() {
                served.forget(with);
            }
            return Err(of_engine(refusal));
        }
        let (name, from, to) = (served.name(), served.title(old), served.title(with));
        Ok(format!("{name}: slot {slot} is being copied from {from} to {to}"))
    }
}

/// Returns the path of a disk that a client names. It must be absolute: a relative path could name
/// another file in the server's working directory.
fn named(path: &str) -> Result<&Path> {
    let path = Path::new(path);
    if file_of(path).is_absolute() || is_remote(path) {
        return Ok(path);
    }
    let message = format!("{}: there is no such disk", path.display());
    Err(Failure::new(Id::Missing, message, "name the disk by its whole path"))
}

impl Served {
    /// Logs the final state of a stopped array.
    pub(super) fn log_final_state(&self) {
        self.log_findings(&self.array.status());
        let message = format!("stopped; {}", self.rest());
        tracing::info!("{}: {message}", self.name());
        self.history.note(("Stopped", Severity::Info), None, &message);
        self.history.close();
        self.scrubs.close();
    }

    /// Describes the final state of a stopped array.
    fn rest(&self) -> String {
        let status = self.array.status();
        let unsynced = crate::size::Size(status.unsynced_bytes);
        match status.mode {
            Mode::ReadOnly => "it was read-only: its members are unchanged".into(),
            Mode::Full => "its members had no space left: they are not marked clean".into(),
            Mode::Broken => "it had failed: its members are not marked clean".into(),
            Mode::ReadWrite if !status.parity && self.has_parity() => {
                "parity was off: the next start computes the missing parity".into()
            }
            Mode::ReadWrite if status.unsynced_bytes > 0 => {
                format!("{unsynced} are not in sync, the next start goes on with that")
            }
            Mode::ReadWrite if !status.clean => "its members are not marked clean".into(),
            Mode::ReadWrite => "all its members are marked clean".into(),
        }
    }

    /// Returns true if the redundancy is parity, not copies.
    fn has_parity(&self) -> bool {
        self.array.geometry().family() == layout::Family::Parity
    }

    /// Refuses if the members must not be written.
    fn refuse_read_only(&self) -> Result<()> {
        if self.array.status().mode != Mode::ReadOnly {
            return Ok(());
        }
        let (why, action) = match &self.story.read_only {
            Some(why) => (why.as_str(), "nothing on its members may change"),
            None => ("it was started so", "serve it without --read-only first"),
        };
        let message = format!("{} is read-only: {why}", self.name());
        Err(Failure::new(Id::WrongState, message, action))
    }

    /// Returns a member's display name.
    pub(crate) fn title(&self, id: MemberId) -> String {
        self.known(id).map_or_else(|| format!("member {}", id.0), |k| k.path.display().to_string())
    }
}

/// Returns true if the command needs a writable array. A check counts too: a read-only array does
/// not run it.
fn writes(verb: &str, order: &Order) -> bool {
    match verb {
        "fail" | "remove" | "add" | "re-add" | "replace" => true,
        "scrub" => order.scrub.as_deref() != Some("stop"),
        _ => false,
    }
}

pub(super) fn member_of(order: &Order) -> Result<&str> {
    order.member.as_deref().ok_or_else(|| usage("the order names no member"))
}

pub(super) fn usage(message: &str) -> Failure {
    Failure::new(Id::Usage, message, "see docs/decisions/0003-control-api.md")
}

/// Converts an error of the engine into a failure, by the possible remedy.
pub(crate) fn of_engine(error: Error) -> Failure {
    let (id, action) = match error.kind() {
        ErrorKind::Refused => (Id::WrongState, "parapet status shows the state of the array"),
        ErrorKind::DataLost => (Id::Redundancy, "bring the missing members back first"),
        ErrorKind::NoSpace => (Id::WrongState, "free space, stop the array, and serve it again"),
        ErrorKind::ReadOnly => (Id::WrongState, "the array takes no writes; see parapet status"),
        ErrorKind::Retry => (Id::Failed, "try again"),
        ErrorKind::MemberLost => (Id::Failed, "parapet status shows which member"),
        ErrorKind::Bug => (Id::Internal, "please report it, with the server's log"),
    };
    Failure::new(id, error.to_string(), action)
}
