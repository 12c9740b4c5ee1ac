//! An allocator that counts, so that an input that allocates too much, or leaks, is detected.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Per thread, so that parallel tests do not count each other's memory. Signed, since a thread
    // may free memory that another allocated.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn grow(bytes: usize) {
    let live = live().wrapping_add_unsigned(bytes);
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

fn shrink(bytes: usize) {
    LIVE.set(live().wrapping_sub_unsigned(bytes));
}

// SAFETY: every call goes to the system's allocator with the same arguments, and its result is
// returned unchanged; the counters beside it touch no memory of anyone else.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        grow(bytes);
        shrink(layout.size());
        // SAFETY: the caller keeps `realloc`'s contract.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

/// Bytes that this thread has allocated, minus those that it has freed.
pub(crate) fn live() -> isize {
    LIVE.get()
}

/// The result of `work`, and by how many bytes this thread's allocation grew at its peak.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = live();
    PEAK.set(before);
    let outcome = work();
    (outcome, (PEAK.get() - before).unsigned_abs())
}
