//! A library to preload into user-mode Linux 6.1, which lacks room for the registers of processors
//! with AMX. Never shipped.
//!
//! ```text
//!   UML   ptrace(SETREGSET, NT_X86_XSTATE, 2,696 bytes)    what it has room for
//!   here  those, and the rest as the process has it
//!   host  accepts the whole area only: 11,008 bytes with AMX, else EFAULT
//! ```
//!
//! UML asks for the registers with the same 2,696 bytes. The host truncates its answer without an
//! error, so that direction works unaided. What is cut off belongs to AMX, which a process has to
//! ask its kernel for: it is never in use here.
//!
//! Source: `xstateregs_set` in arch/x86/kernel/fpu/regset.c of Linux 5.16 and later.

use std::cell::UnsafeCell;
use std::ffi::{c_long, c_void};

use libc::{c_uint, iovec, pid_t};

/// `NT_X86_XSTATE` of linux/elf.h.
const XSTATE: usize = 0x202;
/// More than any processor's register state.
const ROOM: usize = 64 << 10;

/// Not on the stack: a task of UML has 16 KiB of it. Not locked: UML's kernel is one thread, and
/// its signal handlers do not resume processes.
struct Area(UnsafeCell<[u8; ROOM]>);

// SAFETY: One thread uses it, see above.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([0; ROOM]));

/// `ptrace(2)`, as declared by the C library except that its arguments have types.
///
/// # Safety
/// That of `ptrace(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ptrace(
    request: c_uint,
    process: pid_t,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    // SAFETY: The caller's arguments, and what they mean is the caller's promise.
    let result = unsafe { next(request, process, address, data) };
    if result != -1 || request != libc::PTRACE_SETREGSET || address.addr() != XSTATE {
        return result;
    }
    let area = AREA.0.get().cast::<u8>();
    let mut whole = iovec { iov_base: area.cast(), iov_len: ROOM };
    let answer = (&raw mut whole).cast();
    // SAFETY: `whole` describes `AREA`, and the kernel writes no more than that.
    if unsafe { next(libc::PTRACE_GETREGSET, process, address, answer) } == -1 {
        return -1;
    }
    // SAFETY: The data of this request is such a vector, and the caller promises its memory. What
    // is copied is no longer than either part. `whole` describes what the kernel filled.
    unsafe {
        let given = data.cast::<iovec>().read();
        area.copy_from(given.iov_base.cast(), given.iov_len.min(whole.iov_len));
        next(request, process, address, answer)
    }
}

/// The C library's function: the system call, except that a request to peek returns the word.
unsafe fn next(request: c_uint, process: pid_t, address: *mut c_void, data: *mut c_void) -> c_long {
    let mut word: c_long = 0;
    let peeks = (libc::PTRACE_PEEKTEXT..=libc::PTRACE_PEEKUSER).contains(&request);
    let data = if peeks { (&raw mut word).cast() } else { data };
    // SAFETY: The caller's promise; a request to peek writes one word.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request, process, address, data) };
    if peeks && result == 0 {
        // SAFETY: The location of errno is valid. Zero tells a word of -1 from an error.
        unsafe { *libc::__errno_location() = 0 };
        return word;
    }
    result
}
