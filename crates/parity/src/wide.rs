//! Every algorithm once, over any vector of bytes.
//!
//! Owns: the order in which bytes are read, multiplied and written. Never names an instruction:
//! those are in `x86` and `neon`, behind [`Vector`].
//! Invariants: each source byte is read once; P and Q stay in registers over all sources of a
//! block and are written once, by ordinary stores (non-temporal ones make the read-modify-write
//! that often follows five times slower); columns that do not fill a block go to the scalar
//! kernel.
//!
//! ```text
//!             block of UNROLL vectors
//!            ┌──────────┐
//!   term n−1 │ d₀ d₁ …  │→→→→→→→→→→→→→→→→   one block of columns goes down
//!     ⋮      │    ↓     │                   through all terms, highest exponent
//!   term 0   │ d₀ d₁ …  │                   first:  p ← p + d
//!            └────┬─────┘                           q ← q·g + d     (Horner)
//!              p  q  stored, next block
//! ```
//!
//! Horner's rule needs a multiplication by g alone, cheap on every CPU. Where exponents have a
//! gap (DDF layouts, lost blocks), q is multiplied by g^gap instead.
//!
//! All functions are `unsafe` for two reasons: the CPU must have the vector's instructions, and
//! all slices of one call must have one length ([`Kernel`](crate::Kernel) asserts it).

use crate::recover::{OneQ, Two};
use crate::{Term, gf, scalar};

/// Some bytes that one instruction treats alike.
///
/// # Safety
/// `load` and `store` must touch exactly `BYTES` bytes. Every method needs a CPU with the
/// instructions that the implementor names.
pub(crate) unsafe trait Vector: Copy {
    /// A constant prepared for [`times`](Vector::times).
    type Factor: Copy;
    const BYTES: usize;
    unsafe fn zero() -> Self;
    /// Any alignment.
    unsafe fn load(from: *const u8) -> Self;
    /// Any alignment.
    unsafe fn store(self, to: *mut u8);
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    unsafe fn is_zero(self) -> bool;
    /// Each byte times g.
    unsafe fn double(self) -> Self;
    unsafe fn factor(value: u8) -> Self::Factor;
    /// Each byte times the factor.
    unsafe fn times(self, factor: Self::Factor) -> Self;
}

/// Where a slice list has its bytes: plain sources and terms are summed alike.
pub(crate) trait Source: Copy {
    fn bytes(&self) -> *const u8;
}

impl Source for &[u8] {
    #[inline(always)]
    fn bytes(&self) -> *const u8 {
        self.as_ptr()
    }
}

impl Source for Term<'_> {
    #[inline(always)]
    fn bytes(&self) -> *const u8 {
        self.1.as_ptr()
    }
}

/// `U` vectors side by side, so that the latencies of one hide behind the others.
#[derive(Clone, Copy)]
struct Block<V, const U: usize>([V; U]);

// SAFETY (all of this impl): callers hold `Vector`'s promise, and `from`/`to` have
// `Self::BYTES` bytes.
impl<V: Vector, const U: usize> Block<V, U> {
    const BYTES: usize = U * V::BYTES;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: as above.
        Self([unsafe { V::zero() }; U])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as above.
        let mut block = unsafe { Self::zero() };
        for i in 0..U {
            // SAFETY: as above.
            block.0[i] = unsafe { V::load(from.add(i * V::BYTES)) };
        }
        block
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        for i in 0..U {
            // SAFETY: as above.
            unsafe { self.0[i].store(to.add(i * V::BYTES)) }
        }
    }

    #[inline(always)]
    unsafe fn xor(mut self, other: Self) -> Self {
        for i in 0..U {
            // SAFETY: as above.
            self.0[i] = unsafe { self.0[i].xor(other.0[i]) };
        }
        self
    }

    #[inline(always)]
    unsafe fn double(mut self) -> Self {
        for i in 0..U {
            // SAFETY: as above.
            self.0[i] = unsafe { self.0[i].double() };
        }
        self
    }

    #[inline(always)]
    unsafe fn times(mut self, factor: V::Factor) -> Self {
        for i in 0..U {
            // SAFETY: as above.
            self.0[i] = unsafe { self.0[i].times(factor) };
        }
        self
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        let mut all = self.0[0];
        for i in 1..U {
            // SAFETY: as above.
            all = unsafe { all.or(self.0[i]) };
        }
        // SAFETY: as above.
        unsafe { all.is_zero() }
    }
}

/// Sum of the sources' blocks at byte `at`, added to `start`.
///
/// From the last source to the first, as Horner's rule goes: where blocks lie one after another
/// in memory, Zen 5 reads them 1.4 times as fast from L2 in descending order as in ascending.
#[inline(always)]
unsafe fn sum<V: Vector, const U: usize>(
    start: Block<V, U>,
    sources: &[impl Source],
    at: usize,
) -> Block<V, U> {
    let mut sum = start;
    for source in sources.iter().rev() {
        // SAFETY: the block at `at` lies in every source; the CPU has the instructions.
        sum = unsafe { sum.xor(Block::load(source.bytes().add(at))) };
    }
    sum
}

/// True if the exponents are 0, 1, 2 … in this order: no gap anywhere.
fn is_dense(terms: &[Term<'_>]) -> bool {
    terms.iter().enumerate().all(|(index, term)| term.0 as usize == index)
}

/// (P, Q) of the block at byte `at`. Terms are in ascending order of exponents.
#[inline(always)]
unsafe fn syndromes<V: Vector, const U: usize, const DENSE: bool>(
    terms: &[Term<'_>],
    at: usize,
) -> (Block<V, U>, Block<V, U>) {
    // SAFETY: the block at `at` lies in every term; the CPU has the instructions.
    unsafe {
        let Some((&(highest, bytes), rest)) = terms.split_last() else {
            return (Block::zero(), Block::zero());
        };
        let mut p = Block::<V, U>::load(bytes.as_ptr().add(at));
        let mut q = p;
        let mut above = highest;
        for &(exponent, bytes) in rest.iter().rev() {
            let data = Block::load(bytes.as_ptr().add(at));
            q = if DENSE { q.double() } else { descend(q, above, exponent) };
            p = p.xor(data);
            q = q.xor(data);
            above = exponent;
        }
        if !DENSE {
            q = descend(q, above, 0);
        }
        (p, q)
    }
}

/// q·g^(above − exponent): Horner's step over a gap of any width.
#[inline(always)]
unsafe fn descend<V: Vector, const U: usize>(
    q: Block<V, U>,
    above: u8,
    exponent: u8,
) -> Block<V, U> {
    // SAFETY: the CPU has the instructions.
    unsafe {
        match above.wrapping_sub(exponent) {
            0 => q,
            1 => q.double(),
            gap => q.times(V::factor(gf::exp(gap))),
        }
    }
}

/// Runs `$body` for every whole block of `$length` bytes; `$at` is its first byte. Evaluates to
/// the number of bytes done. A macro: a closure would not inherit the CPU features.
macro_rules! each_block {
    ($V:ident, $U:ident, $length:expr, |$at:ident| $body:block) => {{
        let done = $length - $length % Block::<$V, $U>::BYTES;
        let mut $at = 0;
        while $at < done {
            $body
            $at += Block::<$V, $U>::BYTES;
        }
        done
    }};
}

/// Runs `$body` with `$syndromes` as the dense or the gapped way to compute syndromes.
macro_rules! by_density {
    ($V:ident, $U:ident, $terms:expr, |$syndromes:ident| $body:block) => {
        if is_dense($terms) {
            let $syndromes = syndromes::<$V, $U, true>;
            $body
        } else {
            let $syndromes = syndromes::<$V, $U, false>;
            $body
        }
    };
}

#[inline(always)]
pub(crate) unsafe fn xor<V: Vector, const U: usize>(sources: &[&[u8]], target: &mut [u8]) {
    let done = each_block!(V, U, target.len(), |at| {
        // SAFETY: the caller's promise; `at` is the first byte of a whole block.
        unsafe {
            let block = match sources.split_last() {
                Some((last, rest)) => sum(Block::<V, U>::load(last.as_ptr().add(at)), rest, at),
                None => Block::zero(),
            };
            block.store(target.as_mut_ptr().add(at));
        }
    });
    scalar::xor(done, sources, target);
}

#[inline(always)]
pub(crate) unsafe fn xor_into<V: Vector, const U: usize>(sources: &[&[u8]], target: &mut [u8]) {
    let done = each_block!(V, U, target.len(), |at| {
        // SAFETY: the caller's promise; `at` is the first byte of a whole block.
        unsafe {
            let to = target.as_mut_ptr().add(at);
            sum(Block::<V, U>::load(to), sources, at).store(to);
        }
    });
    scalar::xor_into(done, sources, target);
}

#[inline(always)]
pub(crate) unsafe fn pq<V: Vector, const U: usize>(terms: &[Term<'_>], p: &mut [u8], q: &mut [u8]) {
    let done = by_density!(V, U, terms, |syndromes| {
        each_block!(V, U, p.len(), |at| {
            // SAFETY: the caller's promise; `at` is the first byte of a whole block.
            unsafe {
                let (p_sum, q_sum) = syndromes(terms, at);
                p_sum.store(p.as_mut_ptr().add(at));
                q_sum.store(q.as_mut_ptr().add(at));
            }
        })
    });
    scalar::pq(done, terms, p, q);
}

#[inline(always)]
pub(crate) unsafe fn q<V: Vector, const U: usize>(terms: &[Term<'_>], q: &mut [u8]) {
    let done = by_density!(V, U, terms, |syndromes| {
        each_block!(V, U, q.len(), |at| {
            // SAFETY: the caller's promise; `at` is the first byte of a whole block.
            unsafe { syndromes(terms, at).1.store(q.as_mut_ptr().add(at)) }
        })
    });
    scalar::q(done, terms, q);
}

#[inline(always)]
pub(crate) unsafe fn update_pq<V: Vector, const U: usize>(
    factor: u8,
    old: &[u8],
    new: &[u8],
    p: &mut [u8],
    q: &mut [u8],
) {
    // SAFETY: the CPU has the instructions.
    let wide_factor = unsafe { V::factor(factor) };
    let done = each_block!(V, U, p.len(), |at| {
        // SAFETY: the caller's promise; `at` is the first byte of a whole block.
        unsafe {
            let (p_at, q_at) = (p.as_mut_ptr().add(at), q.as_mut_ptr().add(at));
            let delta =
                Block::<V, U>::load(old.as_ptr().add(at)).xor(Block::load(new.as_ptr().add(at)));
            Block::load(p_at).xor(delta).store(p_at);
            Block::load(q_at).xor(delta.times(wide_factor)).store(q_at);
        }
    });
    scalar::update_pq(done, factor, old, new, p, q);
}

#[inline(always)]
pub(crate) unsafe fn update_q<V: Vector, const U: usize>(
    factor: u8,
    old: &[u8],
    new: &[u8],
    q: &mut [u8],
) {
    // SAFETY: the CPU has the instructions.
    let wide_factor = unsafe { V::factor(factor) };
    let done = each_block!(V, U, q.len(), |at| {
        // SAFETY: the caller's promise; `at` is the first byte of a whole block.
        unsafe {
            let q_at = q.as_mut_ptr().add(at);
            let delta =
                Block::<V, U>::load(old.as_ptr().add(at)).xor(Block::load(new.as_ptr().add(at)));
            Block::load(q_at).xor(delta.times(wide_factor)).store(q_at);
        }
    });
    scalar::update_q(done, factor, old, new, q);
}

#[inline(always)]
pub(crate) unsafe fn recover_one_p<V: Vector, const U: usize>(
    terms: &[Term<'_>],
    p: &[u8],
    lost: &mut [u8],
) {
    let done = each_block!(V, U, lost.len(), |at| {
        // SAFETY: the caller's promise; `at` is the first byte of a whole block.
        unsafe {
            sum(Block::<V, U>::load(p.as_ptr().add(at)), terms, at)
                .store(lost.as_mut_ptr().add(at));
        }
    });
    scalar::recover_one_p(done, terms, p, lost);
}

#[inline(always)]
pub(crate) unsafe fn recover_one_q<V: Vector, const U: usize>(
    terms: &[Term<'_>],
    q: &[u8],
    one: OneQ,
    lost: &mut [u8],
) {
    // SAFETY: the CPU has the instructions.
    let scale = unsafe { V::factor(one.scale) };
    let done = by_density!(V, U, terms, |syndromes| {
        each_block!(V, U, lost.len(), |at| {
            // SAFETY: the caller's promise; `at` is the first byte of a whole block.
            unsafe {
                let q_lost = syndromes(terms, at).1.xor(Block::load(q.as_ptr().add(at)));
                q_lost.times(scale).store(lost.as_mut_ptr().add(at));
            }
        })
    });
    scalar::recover_one_q(done, terms, q, one, lost);
}

#[inline(always)]
pub(crate) unsafe fn recover_two<V: Vector, const U: usize>(
    terms: &[Term<'_>],
    p: &[u8],
    q: &[u8],
    two: Two,
    x: &mut [u8],
    y: &mut [u8],
) {
    // SAFETY: the CPU has the instructions.
    let (of_p, of_q) = unsafe { (V::factor(two.of_p), V::factor(two.of_q)) };
    let done = by_density!(V, U, terms, |syndromes| {
        each_block!(V, U, x.len(), |at| {
            // SAFETY: the caller's promise; `at` is the first byte of a whole block.
            unsafe {
                let (p_known, q_known) = syndromes(terms, at);
                let p_lost = p_known.xor(Block::load(p.as_ptr().add(at)));
                let q_lost = q_known.xor(Block::load(q.as_ptr().add(at)));
                let x_data = p_lost.times(of_p).xor(q_lost.times(of_q));
                x_data.store(x.as_mut_ptr().add(at));
                p_lost.xor(x_data).store(y.as_mut_ptr().add(at));
            }
        })
    });
    scalar::recover_two(done, terms, p, q, two, x, y);
}

#[inline(always)]
pub(crate) unsafe fn check_p<V: Vector, const U: usize>(sources: &[&[u8]], p: &[u8]) -> bool {
    let done = each_block!(V, U, p.len(), |at| {
        // SAFETY: the caller's promise; `at` is the first byte of a whole block.
        if unsafe { !sum(Block::<V, U>::load(p.as_ptr().add(at)), sources, at).is_zero() } {
            return false;
        }
    });
    scalar::check_p(done, sources, p)
}

#[inline(always)]
pub(crate) unsafe fn check_pq<V: Vector, const U: usize>(
    terms: &[Term<'_>],
    p: &[u8],
    q: &[u8],
) -> bool {
    let done = by_density!(V, U, terms, |syndromes| {
        each_block!(V, U, p.len(), |at| {
            // SAFETY: the caller's promise; `at` is the first byte of a whole block.
            let agree = unsafe {
                let (p_sum, q_sum) = syndromes(terms, at);
                p_sum.xor(Block::load(p.as_ptr().add(at))).is_zero()
                    && q_sum.xor(Block::load(q.as_ptr().add(at))).is_zero()
            };
            if !agree {
                return false;
            }
        })
    });
    scalar::check_pq(done, terms, p, q)
}

#[inline(always)]
pub(crate) unsafe fn is_zero<V: Vector, const U: usize>(bytes: &[u8]) -> bool {
    let done = each_block!(V, U, bytes.len(), |at| {
        // SAFETY: the caller's promise; `at` is the first byte of a whole block.
        if unsafe { !Block::<V, U>::load(bytes.as_ptr().add(at)).is_zero() } {
            return false;
        }
    });
    scalar::is_zero(done, bytes)
}

/// Makes `OPERATIONS`, a kernel of the algorithms above for one vector type. `sums` and
/// `syndromes` are how many vectors a block has where XOR alone is computed, and where Q is.
///
/// Each entry is a safe function pointer around a `#[target_feature]` function: only the file
/// that expands this hands the table out, and only after it has asked the CPU.
macro_rules! kernel {
    ($name:literal, $vector:ty, sums: $sums:literal, syndromes: $syndromes:literal,
        $features:literal) => {
        /// This vector's kernel. To be handed out only where the CPU has its instructions.
        static OPERATIONS: crate::select::Operations = crate::select::Operations {
            name: $name,
            xor: kernel!(@entry $vector, $sums, $features,
                xor(sources: &[&[u8]], target: &mut [u8])),
            xor_into: kernel!(@entry $vector, $sums, $features,
                xor_into(sources: &[&[u8]], target: &mut [u8])),
            pq: kernel!(@entry $vector, $syndromes, $features,
                pq(terms: &[crate::Term<'_>], p: &mut [u8], q: &mut [u8])),
            q: kernel!(@entry $vector, $syndromes, $features,
                q(terms: &[crate::Term<'_>], q: &mut [u8])),
            update_pq: kernel!(@entry $vector, $syndromes, $features,
                update_pq(factor: u8, old: &[u8], new: &[u8], p: &mut [u8], q: &mut [u8])),
            update_q: kernel!(@entry $vector, $syndromes, $features,
                update_q(factor: u8, old: &[u8], new: &[u8], q: &mut [u8])),
            recover_one_p: kernel!(@entry $vector, $sums, $features,
                recover_one_p(terms: &[crate::Term<'_>], p: &[u8], lost: &mut [u8])),
            recover_one_q: kernel!(@entry $vector, $syndromes, $features,
                recover_one_q(terms: &[crate::Term<'_>], q: &[u8], one: crate::recover::OneQ,
                    lost: &mut [u8])),
            recover_two: kernel!(@entry $vector, $syndromes, $features,
                recover_two(terms: &[crate::Term<'_>], p: &[u8], q: &[u8],
                    two: crate::recover::Two, x: &mut [u8], y: &mut [u8])),
            check_p: kernel!(@entry $vector, $sums, $features,
                check_p(sources: &[&[u8]], p: &[u8]) -> bool),
            check_pq: kernel!(@entry $vector, $syndromes, $features,
                check_pq(terms: &[crate::Term<'_>], p: &[u8], q: &[u8]) -> bool),
            is_zero: kernel!(@entry $vector, $sums, $features, is_zero(bytes: &[u8]) -> bool),
        };
    };
    (@entry $vector:ty, $unroll:literal, $features:literal,
        $verb:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?) => {{
        mod wide {
            use super::*;

            #[target_feature(enable = $features)]
            pub(super) fn $verb($($argument: $type),*) $(-> $result)? {
                // SAFETY: the features are the vector's; `Kernel` asserts the lengths.
                unsafe { crate::wide::$verb::<$vector, $unroll>($($argument),*) }
            }
        }
        // SAFETY: `OPERATIONS` is handed out only where the CPU has these features.
        |$($argument),*| unsafe { wide::$verb($($argument),*) }
    }};
}
pub(crate) use kernel;
