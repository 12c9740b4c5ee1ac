//! The processor that a thread runs on, and threads for blocking work.

use std::future::{Future, poll_fn};
use std::io::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// `PR_SET_IO_FLUSHER` of prctl(2).
const SET_IO_FLUSHER: libc::c_int = 57;

/// Processors that this thread may run on, in ascending order.
///
/// # Errors
/// The kernel's error; none is expected.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Keeps the calling thread on processor `cpu` from now on.
///
/// # Errors
/// `EINVAL` if there is no such processor or this process may not use it.
pub fn pin(cpu: usize) -> Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Allows this process as many open files as its parent lets it have: a client takes one each.
pub fn raise_open_files() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    // If it cannot be, clients are turned away earlier.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Prepares this process and thread to serve a disk of this machine. The kernel may need the disk
/// to free memory, so neither may wait for memory that only the disk can free: all memory stays
/// resident, and the thread's allocations do not start writeback.
///
/// # Errors
/// Without CAP_IPC_LOCK or CAP_SYS_RESOURCE.
pub fn serve_memory_reclaim() -> Result<()> {
    // SAFETY: the call takes no memory.
    let flusher = unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
    let flusher = if flusher < 0 { Err(Error::last_os_error()) } else { Ok(()) };
    let lock = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: the call changes where memory lies, and nothing about its content.
    let locked = unsafe { libc::mlockall(lock) };
    flusher.and(if locked < 0 { Err(Error::last_os_error()) } else { Ok(()) })
}

/// Runs `work`, which may block, on its own thread. A caller that stops waiting leaves the thread
/// behind.
///
/// # Errors
/// If the machine has no room for a thread.
pub fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<impl Future<Output = T>> {
    let desk = Arc::new(Mutex::new((None::<T>, None::<Waker>)));
    let theirs = Arc::clone(&desk);
    let thread = std::thread::Builder::new().name("parapet-aside".into());
    thread.spawn(move || {
        let outcome = work();
        let mut desk = theirs.lock().unwrap_or_else(PoisonError::into_inner);
        desk.0 = Some(outcome);
        if let Some(waker) = desk.1.take() {
            waker.wake();
        }
    })?;
    Ok(poll_fn(move |cx| {
        let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
        match desk.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                desk.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pinned_thread_stays_where_it_was_put() {
        let pinned = std::thread::spawn(|| {
            let last = *super::allowed().unwrap().last().unwrap();
            super::pin(last).unwrap();
            (super::allowed().unwrap(), vec![last])
        });
        let (allowed, expected) = pinned.join().unwrap();
        assert_eq!(allowed, expected);
        assert!(super::pin(usize::MAX).is_err());
    }
}
