//! Which processor a thread runs on.

use std::io::{Error, Result};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors that this thread may run on, in ascending order.
///
/// # Errors
/// What the kernel says; it has no reason to.
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
