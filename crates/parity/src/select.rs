//! Which kernels this CPU can run, and which to take.
//!
//! Owns: the table of operations that a kernel is, detection, selection by name. Never reads the
//! environment: the caller says.
//! Invariant: a [`Kernel`] in anyone's hands can run on this CPU.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::recover::{OneQ, Two};
use crate::{Term, scalar};

/// The functions of a kernel. Callers ([`Kernel`]'s verbs) have asserted equal lengths and sorted
/// the terms by exponent.
#[expect(clippy::type_complexity)]
pub(crate) struct Operations {
    pub(crate) name: &'static str,
    pub(crate) xor: fn(&[&[u8]], &mut [u8]),
    pub(crate) xor_into: fn(&[&[u8]], &mut [u8]),
    pub(crate) pq: fn(&[Term<'_>], &mut [u8], &mut [u8]),
    pub(crate) q: fn(&[Term<'_>], &mut [u8]),
    pub(crate) update_pq: fn(u8, &[u8], &[u8], &mut [u8], &mut [u8]),
    pub(crate) update_q: fn(u8, &[u8], &[u8], &mut [u8]),
    pub(crate) recover_one_p: fn(&[Term<'_>], &[u8], &mut [u8]),
    pub(crate) recover_one_q: fn(&[Term<'_>], &[u8], OneQ, &mut [u8]),
    pub(crate) recover_two: fn(&[Term<'_>], &[u8], &[u8], Two, &mut [u8], &mut [u8]),
    pub(crate) check_p: fn(&[&[u8]], &[u8]) -> bool,
    pub(crate) check_pq: fn(&[Term<'_>], &[u8], &[u8]) -> bool,
    pub(crate) is_zero: fn(&[u8]) -> bool,
}

/// A chosen set of kernels. One word: pass it by value, choose it once.
#[derive(Clone, Copy)]
pub struct Kernel(Choice);

#[derive(Clone, Copy)]
enum Choice {
    Fixed(&'static Operations),
    Cycle,
}

impl Kernel {
    /// The name that [`by_name`] knows this kernel by.
    pub fn name(self) -> &'static str {
        match self.0 {
            Choice::Fixed(operations) => operations.name,
            Choice::Cycle => CYCLE,
        }
    }

    /// The functions that the next call runs.
    pub(crate) fn operations(self) -> &'static Operations {
        match self.0 {
            Choice::Fixed(operations) => operations,
            Choice::Cycle => next(),
        }
    }
}

impl core::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Kernel({})", self.name())
    }
}

const CYCLE: &str = "cycle";

/// Everything that this build knows and this CPU can run, slowest first.
///
/// AVX-512 may be selected automatically: its tests passed on a CPU that has it (AMD Zen 5). NEON's
/// tests passed under qemu-user; NEON is part of the 64-bit ARM baseline. A kernel whose tests
/// never ran does not belong in this list.
fn available() -> impl Iterator<Item = &'static Operations> {
    #[cfg(target_arch = "x86_64")]
    let vectors = [crate::x86::avx2(), crate::x86::avx512()];
    #[cfg(target_arch = "aarch64")]
    let vectors = [crate::neon::detect()];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let vectors: [Option<&'static Operations>; 0] = [];
    core::iter::once(&scalar::OPERATIONS).chain(vectors.into_iter().flatten())
}

/// The kernel after the one that ran last, for [`Choice::Cycle`].
fn next() -> &'static Operations {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed) % available().count();
    available().nth(turn).expect("turn is below the count")
}

/// All kernels that this CPU can run, `scalar` first, the fastest last.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    available().map(|operations| Kernel(Choice::Fixed(operations)))
}

/// The fastest kernel of this CPU. The standard library caches the CPU's features, so this is
/// cheap.
pub fn best() -> Kernel {
    kernels().last().expect("scalar always runs")
}

/// The kernel of this name (`scalar`, `avx2`, `avx512`, `neon`), if this CPU can run it; or
/// `cycle`, which takes the next available kernel at every call, so that a test of something
/// larger exercises all of them.
pub fn by_name(name: &str) -> Option<Kernel> {
    if name == CYCLE {
        return Some(Kernel(Choice::Cycle));
    }
    kernels().find(|kernel| kernel.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_kernels() {
        for kernel in kernels() {
            assert_eq!(by_name(kernel.name()).map(Kernel::name), Some(kernel.name()));
        }
        assert_eq!(kernels().next().map(Kernel::name), Some("scalar"));
        assert_eq!(by_name("cycle").map(Kernel::name), Some("cycle"));
        assert!(by_name("mmx").is_none());
    }

    #[test]
    fn cycle_takes_each_in_turn() {
        let cycle = by_name("cycle").unwrap();
        let count = kernels().count();
        // Other tests may take turns in between, so count over many calls.
        let mut seen: [usize; 8] = [0; 8];
        for _ in 0..100 * count {
            let name = cycle.operations().name;
            seen[kernels().position(|kernel| kernel.name() == name).unwrap()] += 1;
        }
        assert!(seen[..count].iter().all(|&turns| turns > 0), "{seen:?}");
    }
}
