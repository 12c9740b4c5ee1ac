//! Members as files of our own file system, which holds back unflushed data.
//!
//! ```text
//!   parapet ──▶ kernel ──FUSE──▶ listen ──▶ state (one Medium a member)
//!                  ▲                          │ answers, each after a moment of its own
//!                  └────────── answer ◀───────┘
//! ```
//!
//! A plain file keeps a killed process's writes; a disk that loses power does not. Neither do these
//! files: [`Members::freeze`] stops the world, and [`Members::cut`] removes from each member data
//! that its [`Medium`] may lose. A member can also return errors, hang, be full, be truncated, or
//! be deleted. Needs the right to mount.
//!
//! Invariant: a handle from before a cut never reads or writes after it.

use crate::fuse::{self, Call, Request, errno};
use crate::medium::{Loss, Medium, Write};
use parapet_torture::process_group::ProcessGroup;
use parapet_torture::random::Random;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The fault of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Healthy,
    /// Every access is answered with EIO.
    Errors,
    /// Nothing is answered.
    Hangs,
    /// Writes find no space.
    Full,
    /// The file ends here.
    Short(u64),
    /// The file has no name any more.
    Deleted,
}

/// See the module.
pub(crate) struct Members(Arc<Shared>);

struct Shared {
    device: File,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    members: Vec<(Medium, Fault)>,
    random: Random,
    /// Answers are held back for at most so long.
    delay: Duration,
    due: Vec<Due>,
    /// Requests of members that hang, by member.
    hung: Vec<(usize, u64)>,
    /// The members that were asked for something since they have been as they are.
    touched: BTreeSet<usize>,
    frozen: bool,
    /// When the last request came.
    asked: Instant,
    /// Files opened in an earlier life are dead.
    life: u64,
}

/// An answer that waits for its moment.
struct Due {
    at: Instant,
    unique: u64,
    effect: Effect,
}

enum Effect {
    Bytes(Vec<u8>),
    Error(i32),
    Written { member: usize, write: Arc<Write>, fua: bool, answer: Vec<u8> },
    Flushed { member: usize, moment: u64 },
}

impl Members {
    /// Shows `count` members of this size, `m0` and so on, in this folder.
    pub(crate) fn mount(
        place: &Path,
        count: usize,
        bytes: u64,
        delay: Duration,
        random: Random,
        group: &ProcessGroup,
    ) -> Result<Members, String> {
        let broken = |what: String| format!("{what}; mounting the members needs FUSE and root");
        let options = File::options().read(true).write(true).open("/dev/fuse");
        let device = options.map_err(|error| broken(format!("/dev/fuse: {error}")))?;
        let stdin = device.try_clone().map_err(|error| broken(error.to_string()))?;
        let state = State {
            members: (0..count).map(|_| (Medium::new(bytes), Fault::Healthy)).collect(),
            random,
            delay,
            due: Vec::new(),
            hung: Vec::new(),
            touched: BTreeSet::new(),
            frozen: false,
            asked: Instant::now(),
            life: 1,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { device, state, changed });
        // The kernel takes the descriptor that `mount` has; it must be answered meanwhile.
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0"]);
        mount.arg("parapet-torture").arg(place);
        group.adopt(&mut mount);
        let mounted = mount.stdin(Stdio::from(stdin)).stderr(Stdio::piped()).output();
        let output = mounted.map_err(|error| broken(format!("mount: {error}")))?;
        if !output.status.success() {
            return Err(broken(String::from_utf8_lossy(&output.stderr).trim().into()));
        }
        let (listening, answering) = (Arc::clone(&shared), Arc::clone(&shared));
        std::thread::spawn(move || listening.listen());
        std::thread::spawn(move || answering.answer());
        Ok(Members(shared))
    }

    /// From now on nothing is carried out and nothing answered.
    pub(crate) fn freeze(&self) {
        self.0.state().frozen = true;
    }

    /// Ends the freeze for new requests; waiting ones get an error.
    pub(crate) fn unfreeze(&self) {
        let mut state = self.0.state();
        let due = std::mem::take(&mut state.due);
        let uniques: Vec<u64> = due.iter().map(|due| due.unique).collect();
        for due in due {
            // It is in the cache, where the next reader sees it: so the next flush must cover it.
            if let Effect::Written { member, write, .. } = due.effect {
                state.members[member].0.complete(&write, false);
            }
        }
        state.life += 1;
        state.frozen = false;
        drop(state);
        uniques.iter().for_each(|unique| self.0.send(*unique, Err(errno::EIO)));
        self.let_go();
    }

    /// A hung member returns errors from now on, also to waiting requests: a process with
    /// unanswered requests cannot end.
    pub(crate) fn let_go(&self) {
        let mut state = self.0.state();
        let hangs = |member: &&mut (Medium, Fault)| member.1 == Fault::Hangs;
        state.members.iter_mut().filter(hangs).for_each(|member| member.1 = Fault::Errors);
        let hung = std::mem::take(&mut state.hung);
        drop(state);
        hung.iter().for_each(|(_, unique)| self.0.send(*unique, Err(errno::EIO)));
    }

    /// Waits until no request has arrived for a while. The kernel sends writes to one file one
    /// after the other: many may be queued behind a hung one.
    pub(crate) fn drain(&self) {
        const WHILE: Duration = Duration::from_millis(100);
        while self.0.state().asked.elapsed() < WHILE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Cuts the power of this member.
    pub(crate) fn cut(&self, member: usize) -> Loss {
        let mut state = self.0.state();
        let State { members, random, .. } = &mut *state;
        members[member].0.cut(random)
    }

    /// From now on this is wrong with it.
    pub(crate) fn set(&self, member: usize, fault: Fault) {
        let mut state = self.0.state();
        state.members[member].1 = fault;
        state.touched.remove(&member);
        let hung = std::mem::take(&mut state.hung);
        let (over, still) =
            hung.into_iter().partition(|(of, _)| *of == member && fault != Fault::Hangs);
        state.hung = still;
        drop(state);
        let over: Vec<(usize, u64)> = over;
        over.iter().for_each(|(_, unique)| self.0.send(*unique, Err(errno::EIO)));
    }

    /// True if it was asked for something since it has been as it is.
    pub(crate) fn is_touched(&self, member: usize) -> bool {
        self.0.state().touched.contains(&member)
    }

    /// In its place there is a new one: healthy, and all zeros.
    pub(crate) fn renew(&self, member: usize) {
        let mut state = self.0.state();
        let bytes = state.members[member].0.bytes();
        state.members[member].0 = Medium::new(bytes);
        drop(state);
        self.set(member, Fault::Healthy);
    }

    /// Writes each member's content to a folder, for the analysis of a failure.
    pub(crate) fn save(&self, folder: &Path) -> std::io::Result<()> {
        let state = self.0.state();
        for (index, (medium, _)) in state.members.iter().enumerate() {
            let bytes = medium.read(0, medium.bytes());
            let mut file = File::create(folder.join(format!("m{index}")))?;
            let page = 4096;
            for (at, bytes) in bytes.chunks(page).enumerate() {
                if bytes.iter().any(|byte| *byte != 0) {
                    std::os::unix::fs::FileExt::write_all_at(&file, bytes, (at * page) as u64)?;
                }
            }
            file.flush()?;
            file.set_len(medium.bytes())?;
        }
        Ok(())
    }
}

impl Drop for Members {
    /// Releases waiting requests.
    fn drop(&mut self) {
        self.unfreeze();
        let count = self.0.state().members.len();
        (0..count).for_each(|member| self.set(member, Fault::Errors));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers; the kernel may have lost interest.
    fn send(&self, unique: u64, answer: Result<&[u8], i32>) {
        let _ = (&self.device).write(&fuse::reply(unique, answer));
    }

    /// Takes requests until the file system is gone.
    fn listen(&self) {
        let mut bytes = vec![0; fuse::REQUEST_BYTES];
        loop {
            match (&self.device).read(&mut bytes) {
                Ok(len) => {
                    if let Some(request) = Request::parse(&bytes[..len]) {
                        self.take(&request);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn take(&self, request: &Request<'_>) {
        let mut state = self.state();
        state.asked = Instant::now();
        match request.call {
            Call::Notice => return,
            Call::Init => return self.send(request.unique, Ok(&fuse::init())),
            _ => {}
        }
        let Some(effect) = state.effect(request) else { return };
        let delay = state.delay.as_micros() as u64;
        let wait = match effect {
            Effect::Error(_) => 0,
            _ => state.random.within(0..delay + 1),
        };
        let at = Instant::now() + Duration::from_micros(wait);
        state.due.push(Due { at, unique: request.unique, effect });
        self.changed.notify_one();
    }

    /// Sends each answer when its moment has come.
    fn answer(self: &Arc<Self>) {
        let mut state = self.state();
        loop {
            // Without other threads there is no request to answer.
            if Arc::strong_count(self) == 1 {
                return;
            }
            let now = Instant::now();
            let ready = (!state.frozen).then(|| state.due.iter().position(|due| due.at <= now));
            if let Some(index) = ready.flatten() {
                let due = state.due.swap_remove(index);
                let answer = state.carry_out(due.effect);
                self.send(due.unique, answer.as_deref().map_err(|errno| *errno));
                continue;
            }
            let next = state.due.iter().map(|due| due.at).min();
            let wait =
                next.map_or(Duration::from_millis(50), |at| at.saturating_duration_since(now));
            let wait = wait.max(Duration::from_micros(20));
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// The immediate effect of a request; its answer comes later. `None` if it gets none.
    fn effect(&mut self, request: &Request<'_>) -> Option<Effect> {
        if request.node == fuse::ROOT {
            return Some(self.in_folder(&request.call));
        }
        let member = (request.node - fuse::ROOT - 1) as usize;
        let Some(&(ref medium, fault)) = self.members.get(member) else {
            return Some(Effect::Error(errno::ENOENT));
        };
        let fh = match request.call {
            Call::Read { fh, .. } | Call::Write { fh, .. } => Some(fh),
            Call::Sync { fh } | Call::Allocate { fh, .. } => Some(fh),
            _ => None,
        };
        match request.call {
            Call::Close => return Some(Effect::Bytes(Vec::new())),
            Call::FileSystem => return Some(Effect::Bytes(fuse::file_system())),
            _ => {}
        }
        // Readers do not notice a full disk.
        let writes = matches!(request.call, Call::Write { .. } | Call::Allocate { .. });
        if fh.is_some() && (writes || fault != Fault::Full) {
            self.touched.insert(member);
        }
        if fault == Fault::Hangs || self.frozen {
            self.hung.push((member, request.unique));
            return None;
        }
        if fault == Fault::Errors || fh.is_some_and(|fh| fh != self.life) {
            return Some(Effect::Error(errno::EIO));
        }
        if let Call::Open = request.call {
            return Some(Effect::Bytes(fuse::opened(self.life)));
        }
        if let Call::GetAttributes = request.call {
            let links = u32::from(fault != Fault::Deleted);
            return Some(Effect::Bytes(fuse::attributes_now(
                request.node,
                length(medium, fault),
                links,
            )));
        }
        Some(self.on_member(member, &request.call))
    }

    fn in_folder(&self, call: &Call<'_>) -> Effect {
        match *call {
            Call::Lookup(name) => {
                let index = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix('m'));
                let index = index.and_then(|index| index.parse::<usize>().ok());
                let found = index.and_then(|index| Some((index, self.members.get(index)?)));
                let Some((index, (medium, fault))) = found.filter(|it| it.1.1 != Fault::Deleted)
                else {
                    return Effect::Error(errno::ENOENT);
                };
                let node = fuse::ROOT + 1 + index as u64;
                Effect::Bytes(fuse::entry(node, length(medium, *fault), 1))
            }
            Call::GetAttributes => Effect::Bytes(fuse::attributes_now(fuse::ROOT, 0, 2)),
            Call::Close => Effect::Bytes(Vec::new()),
            Call::FileSystem => Effect::Bytes(fuse::file_system()),
            _ => Effect::Error(errno::ENOSYS),
        }
    }

    /// A read, a write or a flush.
    fn on_member(&mut self, member: usize, call: &Call<'_>) -> Effect {
        let (medium, fault) = &mut self.members[member];
        let end = length(medium, *fault);
        let full = *fault == Fault::Full;
        match *call {
            Call::Read { offset, len, .. } => {
                let len = len.min(end.saturating_sub(offset));
                if !medium.has(offset, len) {
                    return Effect::Error(errno::EINVAL);
                }
                Effect::Bytes(medium.read(offset, len))
            }
            Call::Write { .. } | Call::Allocate { .. } if full => Effect::Error(errno::ENOSPC),
            Call::Write { offset, bytes, fua, .. } => {
                let len = bytes.len() as u64;
                if !medium.has(offset, len) {
                    return Effect::Error(errno::EINVAL);
                }
                let write = medium.write(offset, len, bytes.to_vec());
                Effect::Written { member, write, fua, answer: fuse::written(bytes.len()) }
            }
            Call::Allocate { offset, len, .. } => {
                if !medium.has(offset, len) {
                    // Asked behind the end, to see whether it can be done.
                    return Effect::Bytes(Vec::new());
                }
                let write = medium.write(offset, len, Vec::new());
                Effect::Written { member, write, fua: false, answer: Vec::new() }
            }
            Call::Sync { .. } => Effect::Flushed { member, moment: medium.moment() },
            _ => Effect::Error(errno::ENOSYS),
        }
    }

    /// The answer, at the moment it is given.
    fn carry_out(&mut self, effect: Effect) -> Result<Vec<u8>, i32> {
        match effect {
            Effect::Bytes(bytes) => Ok(bytes),
            Effect::Error(errno) => Err(errno),
            Effect::Written { member, write, fua, answer } => {
                self.members[member].0.complete(&write, fua);
                Ok(answer)
            }
            Effect::Flushed { member, moment } => {
                self.members[member].0.flush(moment);
                Ok(Vec::new())
            }
        }
    }
}

fn length(medium: &Medium, fault: Fault) -> u64 {
    match fault {
        Fault::Short(bytes) => bytes,
        _ => medium.bytes(),
    }
}
