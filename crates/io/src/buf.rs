//! Aligned, pooled memory that moves into an operation and comes back with its completion.
//!
//! ```text
//!    Pool ──take──▶ Buf ──split──▶ Buf Buf          exclusive, disjoint views of one block
//!                    │
//!                  freeze ──▶ SharedBuf ──clone/slice──▶ SharedBuf …     read-only, may overlap
//! ```
//!
//! A block goes back to its pool when its last view is dropped. Blocks start at a multiple of
//! [`BUF_ALIGN`], so a view that starts on a sector boundary may go to a disk without a copy.
//!
//! **Stable memory.** Bytes that another party may still change (a guest's pages, a client's shared
//! memory) are *unstable*: parity and data could be computed from different states.
//! [`SharedBuf::stable`] copies them once; memory from a [`Pool`] is stable.
//!
//! Invariant: two `Buf`s, or a `Buf` and a `SharedBuf`, never cover the same byte.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

/// Blocks start at a multiple of this many bytes: O_DIRECT needs no more on any disk in use.
pub const BUF_ALIGN: usize = 4096;

/// The number of sizes of blocks: see [`class_of`].
const CLASSES: usize = 52;

/// The most bytes one [`Buf`] can have: 64 MiB.
pub const MAX_BUF_BYTES: usize = bytes_of(CLASSES as u8 - 1);

/// Where blocks come from and go back to. Clones share one pool; a pool may be used by any thread.
#[derive(Clone)]
pub struct Pool(Arc<Shelves>);

struct Shelves {
    free: Mutex<Free>,
    keep_bytes: usize,
}

struct Free {
    by_class: [Vec<NonNull<Block>>; CLASSES],
    bytes: usize,
}

// SAFETY: a block on a shelf has no view; the pointer is just its owner.
unsafe impl Send for Free {}

struct Block {
    /// Views of this block.
    views: AtomicU32,
    class: u8,
    unstable: bool,
    bytes: NonNull<u8>,
    /// Where the block goes when its last view is dropped; none while it lies there.
    home: Option<Arc<Shelves>>,
}

/// Exclusive, mutable memory.
pub struct Buf {
    block: NonNull<Block>,
    start: u32,
    len: u32,
}

/// Read-only shared memory, the payload of writes. Cloning copies no bytes.
pub struct SharedBuf {
    block: NonNull<Block>,
    start: u32,
    len: u32,
}

// SAFETY: views of one block cover disjoint bytes (`Buf`) or are read-only (`SharedBuf`), the count
// of views is atomic, and the pool's shelves are behind a mutex.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}
// SAFETY: as above.
unsafe impl Send for SharedBuf {}
// SAFETY: as above.
unsafe impl Sync for SharedBuf {}

/// The smallest class of blocks with so many bytes. There are four sizes in each doubling, in units
/// of `BUF_ALIGN` 1 to 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 …: at most a fifth of a large block is
/// unused, where powers of two would waste half of it.
const fn class_of(bytes: usize) -> u8 {
    let units = bytes.div_ceil(BUF_ALIGN);
    if units <= 4 {
        return units.saturating_sub(1) as u8;
    }
    let doublings = (units - 1).ilog2() - 2;
    (4 * doublings + ((units - 1) >> doublings) as u32) as u8
}

const fn bytes_of(class: u8) -> usize {
    if class < 4 {
        return BUF_ALIGN * (class as usize + 1);
    }
    (BUF_ALIGN * (class as usize % 4 + 5)) << (class / 4 - 1)
}

fn layout_of(class: u8) -> Layout {
    Layout::from_size_align(bytes_of(class), BUF_ALIGN).expect("far below isize::MAX")
}

impl Pool {
    /// A pool that keeps at most `keep_bytes` of unused memory and frees the rest.
    pub fn new(keep_bytes: usize) -> Pool {
        let free = Free { by_class: [const { Vec::new() }; CLASSES], bytes: 0 };
        Pool(Arc::new(Shelves { free: Mutex::new(free), keep_bytes }))
    }

    /// Memory of `len` bytes. Its content is arbitrary: zeros when new, old bytes when used before.
    ///
    /// # Panics
    /// If `len` is over [`MAX_BUF_BYTES`]: the limits of requests are fixed far below.
    pub fn take(&self, len: usize) -> Buf {
        assert!(len <= MAX_BUF_BYTES, "a buffer of {len} bytes is over the limit");
        let class = class_of(len);
        let shelved = {
            let mut free = self.0.lock();
            let found = free.by_class[class as usize].pop();
            if found.is_some() {
                free.bytes -= bytes_of(class);
            }
            found
        };
        let block = shelved.unwrap_or_else(|| Block::new(class));
        // SAFETY: a new block, or one off the shelf: it has no view, so this is its only reference.
        let header = unsafe { &mut *block.as_ptr() };
        header.home = Some(Arc::clone(&self.0));
        header.unstable = false;
        *header.views.get_mut() = 1;
        Buf { block, start: 0, len: len as u32 }
    }

    /// Memory that a buffer of `len` bytes takes: the size of its block.
    pub fn block_bytes(len: usize) -> usize {
        bytes_of(class_of(len))
    }

    /// Memory of `len` zero bytes.
    pub fn take_zeroed(&self, len: usize) -> Buf {
        let mut buf = self.take(len);
        buf.fill(0);
        buf
    }

    /// Memory with these bytes in it.
    pub fn copy_of(&self, bytes: &[u8]) -> Buf {
        let mut buf = self.take(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Bytes of unused memory that the pool keeps now.
    pub fn kept_bytes(&self) -> usize {
        self.0.lock().bytes
    }
}

impl Shelves {
    fn lock(&self) -> MutexGuard<'_, Free> {
        // A panic while the lock was held cannot leave the lists half changed.
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        let free = self.free.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for block in free.by_class.iter_mut().flat_map(std::mem::take) {
            // SAFETY: blocks on a shelf have no view, and each is on one shelf once.
            unsafe { Block::free(block) };
        }
    }
}

impl Block {
    fn new(class: u8) -> NonNull<Block> {
        let layout = layout_of(class);
        // SAFETY: the layout's size is not zero.
        let Some(bytes) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        let views = AtomicU32::new(0);
        let block = Block { views, class, unstable: false, bytes, home: None };
        NonNull::from(Box::leak(Box::new(block)))
    }

    /// # Safety
    /// The block came from [`Block::new`], has no view, and is not used again.
    unsafe fn free(block: NonNull<Block>) {
        // SAFETY: by the caller; `new` leaked a box.
        let block = unsafe { Box::from_raw(block.as_ptr()) };
        // SAFETY: allocated in `new` with this very layout.
        unsafe { dealloc(block.bytes.as_ptr(), layout_of(block.class)) };
    }

    fn add_view(block: NonNull<Block>) {
        // SAFETY: the caller holds a view, so the block is alive.
        let before = unsafe { block.as_ref() }.views.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "views of one buffer are counted in 32 bits");
    }

    /// Drops one view; the last one sends the block home.
    fn drop_view(block: NonNull<Block>) {
        // SAFETY: the caller holds a view, so the block is alive.
        if unsafe { block.as_ref() }.views.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: that was the last view, so this is the only reference.
        let header = unsafe { &mut *block.as_ptr() };
        let home = header.home.take().expect("a block with views has a home");
        let bytes = bytes_of(header.class);
        let mut free = home.lock();
        if free.bytes + bytes <= home.keep_bytes {
            free.bytes += bytes;
            free.by_class[header.class as usize].push(block);
            return;
        }
        drop(free);
        // SAFETY: no view is left and the block is on no shelf.
        unsafe { Block::free(block) };
    }
}

impl Buf {
    /// Cuts the buffer in two: `self` keeps `..at`, the rest is returned.
    ///
    /// # Panics
    /// If `at` is over the length.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Buf {
        assert!(at <= self.len as usize);
        let at = at as u32;
        Block::add_view(self.block);
        let rest = Buf { block: self.block, start: self.start + at, len: self.len - at };
        self.len = at;
        rest
    }

    /// Cuts the buffer in two: `..at` is returned, `self` keeps the rest.
    ///
    /// # Panics
    /// If `at` is over the length.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Buf {
        let rest = self.split_off(at);
        std::mem::replace(self, rest)
    }

    /// Puts two halves of one split together again.
    ///
    /// # Errors
    /// Both, unchanged, if `next` does not begin where `self` ends.
    pub fn join(mut self, next: Buf) -> Result<Buf, (Buf, Buf)> {
        if self.block != next.block || self.start + self.len != next.start {
            return Err((self, next));
        }
        self.len += next.len;
        Ok(self)
    }

    /// Forgets all but the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// From here on the bytes can be shared, and not changed.
    pub fn freeze(self) -> SharedBuf {
        let shared = SharedBuf { block: self.block, start: self.start, len: self.len };
        std::mem::forget(self);
        shared
    }

    /// Says that someone else may still change these bytes. Only for a buffer that was not split.
    #[must_use]
    pub fn into_unstable(self) -> Buf {
        // SAFETY: alive through `self`.
        let views = unsafe { self.block.as_ref() }.views.load(Ordering::Acquire);
        assert_eq!(views, 1, "only a whole buffer can be declared unstable");
        // SAFETY: the only view, so the only reference.
        unsafe { (*self.block.as_ptr()).unstable = true };
        self
    }
}

impl SharedBuf {
    /// A part of these bytes.
    ///
    /// # Panics
    /// If the range is not within the buffer.
    pub fn slice(&self, range: Range<usize>) -> SharedBuf {
        assert!(range.start <= range.end && range.end <= self.len as usize);
        Block::add_view(self.block);
        SharedBuf {
            block: self.block,
            start: self.start + range.start as u32,
            len: (range.end - range.start) as u32,
        }
    }

    /// False if someone else may still change the bytes: see [`SharedBuf::stable`].
    pub fn is_stable(&self) -> bool {
        // SAFETY: alive through `self`; the flag is only written while there is one view.
        !unsafe { self.block.as_ref() }.unstable
    }

    /// These bytes, copied if they are not stable.
    pub fn stable(self, pool: &Pool) -> SharedBuf {
        if self.is_stable() { self } else { pool.copy_of(&self).freeze() }
    }

    /// Joins two slices that lie side by side in one block.
    ///
    /// # Errors
    /// Both, unchanged, if `next` does not begin where `self` ends.
    pub fn join(mut self, next: SharedBuf) -> Result<SharedBuf, (SharedBuf, SharedBuf)> {
        if self.block != next.block || self.start + self.len != next.start {
            return Err((self, next));
        }
        self.len += next.len;
        Ok(self)
    }

    /// The memory for writing again, if this is its only reference.
    ///
    /// # Errors
    /// `self`, unchanged, if it is still shared.
    pub fn try_unique(self) -> Result<Buf, SharedBuf> {
        // SAFETY: alive through `self`.
        if unsafe { self.block.as_ref() }.views.load(Ordering::Acquire) != 1 {
            return Err(self);
        }
        let buf = Buf { block: self.block, start: self.start, len: self.len };
        std::mem::forget(self);
        Ok(buf)
    }
}

impl Clone for SharedBuf {
    fn clone(&self) -> SharedBuf {
        Block::add_view(self.block);
        SharedBuf { block: self.block, start: self.start, len: self.len }
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the view lies within its block, which lives as long as the view; all of it was
        // initialized when it was allocated; no one else can write to these bytes.
        unsafe { view(self.block, self.start, self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; and no other view covers these bytes, so the reference is unique.
        unsafe {
            let start = self.block.as_ref().bytes.add(self.start as usize);
            std::slice::from_raw_parts_mut(start.as_ptr(), self.len as usize)
        }
    }
}

impl Deref for SharedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as for `Buf`; a shared view is never written through.
        unsafe { view(self.block, self.start, self.len) }
    }
}

/// # Safety
/// The caller holds a view of `len` bytes from `start`, and keeps it for `'a`.
unsafe fn view<'a>(block: NonNull<Block>, start: u32, len: u32) -> &'a [u8] {
    // SAFETY: by the caller, the range lies within the block and the block is alive.
    unsafe {
        let start = block.as_ref().bytes.add(start as usize);
        std::slice::from_raw_parts(start.as_ptr(), len as usize)
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        Block::drop_view(self.block);
    }
}

impl Drop for SharedBuf {
    fn drop(&mut self) {
        Block::drop_view(self.block);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_come_back() {
        let pool = Pool::new(1 << 20);
        let buf = pool.take(5000);
        assert_eq!(buf.as_ptr() as usize % BUF_ALIGN, 0);
        assert_eq!(buf.len(), 5000);
        let address = buf.as_ptr();
        drop(buf);
        assert_eq!(pool.kept_bytes(), 8192);
        assert_eq!(pool.take(8192).as_ptr(), address, "the same block is used again");
        assert_eq!(pool.take(0).len(), 0);
    }

    #[test]
    fn each_class_holds_its_sizes_and_wastes_a_fifth_at_most() {
        for class in 0..CLASSES as u8 {
            let bytes = bytes_of(class);
            let smallest = if class == 0 { 1 } else { bytes_of(class - 1) + 1 };
            assert_eq!((class_of(smallest), class_of(bytes)), (class, class), "{bytes} bytes");
            let units = [smallest, bytes].map(|bytes| bytes.div_ceil(BUF_ALIGN));
            assert!(units[1] - units[0] <= units[1] / 5, "{bytes} bytes");
        }
        assert_eq!(MAX_BUF_BYTES, 64 << 20);
    }

    #[test]
    fn a_pool_keeps_no_more_than_it_may() {
        let pool = Pool::new(4096);
        let (a, b) = (pool.take(4096), pool.take(4096));
        drop((a, b));
        assert_eq!(pool.kept_bytes(), 4096);
    }

    #[test]
    fn halves_are_disjoint_and_join_again() {
        let pool = Pool::new(1 << 20);
        let mut left = pool.take(100);
        let mut right = left.split_off(40);
        left.fill(1);
        right.fill(2);
        let whole = left.join(right).expect("the ranges are adjacent");
        assert_eq!((whole[39], whole[40], whole.len()), (1, 2, 100));
        let other = pool.take(10);
        assert!(whole.join(other).is_err());
        assert_eq!(pool.kept_bytes(), 8192);
    }

    #[test]
    fn shared_bytes_are_unique_again_when_alone() {
        let pool = Pool::new(1 << 20);
        let shared = pool.copy_of(b"parapet").freeze();
        let part = shared.slice(0..4);
        assert_eq!(&part[..], b"para");
        let shared = shared.try_unique().expect_err("there is a slice of it");
        drop(part);
        assert_eq!(shared.try_unique().expect("alone now").len(), 7);
    }

    #[test]
    fn unstable_bytes_are_copied_once() {
        let pool = Pool::new(1 << 20);
        let shared = pool.copy_of(b"guest").into_unstable().freeze();
        assert!(!shared.is_stable());
        let address = shared.as_ptr();
        let stable = shared.stable(&pool);
        assert!(stable.is_stable());
        assert_ne!(stable.as_ptr(), address);
        let address = stable.as_ptr();
        assert_eq!(stable.stable(&pool).as_ptr(), address, "stable bytes are not copied");
        drop(pool.take(5));
        assert!(pool.take(5).freeze().is_stable(), "a block off the shelf is stable again");
    }

    #[test]
    fn buffers_outlive_their_pool_and_cross_threads() {
        let buf = Pool::new(1 << 20).copy_of(b"abc").freeze();
        let copy = buf.clone();
        let joined = std::thread::scope(|scope| scope.spawn(move || copy.len()).join());
        assert_eq!(joined.expect("no panic"), 3);
        assert_eq!(&buf[..], b"abc");
    }
}
