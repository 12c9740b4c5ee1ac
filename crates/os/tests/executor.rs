//! Tasks, timers, wakes and mailboxes, with io_uring and without.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use io::{Clock, Mailbox, Signal};
use os::{Config, Engine, Executor, mailbox};

const ENGINES: [Engine; 2] = [Engine::Uring, Engine::Epoll];

/// Counts the allocations of a thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn executors() -> impl Iterator<Item = Executor> {
    let spins = [Duration::ZERO, Duration::from_micros(50)];
    ENGINES.into_iter().flat_map(move |engine| {
        spins.map(|spin| Executor::new(Config { engine, spin, ..Config::default() }).unwrap())
    })
}

#[test]
fn the_requested_engine_is_used() {
    let made = |engine| Executor::new(Config { engine, ..Config::default() }).unwrap().has_ring();
    assert!(made(Engine::Uring));
    assert!(!made(Engine::Epoll));
}

/// Forbids io_uring to the calling thread, as a container's sandbox does: seccomp(2), EPERM.
fn forbid_io_uring() {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let rule = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The number of the system call is the first word of seccomp_data.
    let mut rules = [
        rule(load, 0, 0, 0),
        rule(jump, 0, 1, libc::SYS_io_uring_setup as u32),
        rule(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        rule(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: rules.as_mut_ptr() };
    // SAFETY: both calls concern this thread alone; the program lives until they return.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn where_io_uring_is_forbidden_epoll_takes_its_place() {
    let sandboxed = std::thread::spawn(|| {
        forbid_io_uring();
        let config = |engine| Config { engine, ..Config::default() };
        assert!(Executor::new(config(Engine::Uring)).is_err());
        let executor = Executor::new(config(Engine::Auto)).unwrap();
        assert!(!executor.has_ring());
        let clock = executor.clock();
        executor.block_on(clock.sleep_until(clock.now() + Duration::from_millis(1)));
    });
    sandboxed.join().unwrap();
}

#[test]
fn many_tasks_wake_each_other_in_a_ring() {
    for executor in executors() {
        const TASKS: usize = 1000;
        const ROUNDS: usize = 20;
        let turn = Rc::new(Cell::new(0));
        let signals: Rc<Vec<Signal>> = Rc::new((0..TASKS).map(|_| Signal::new()).collect());
        for index in 0..TASKS {
            let (turn, signals) = (Rc::clone(&turn), Rc::clone(&signals));
            executor.spawn_local(async move {
                for round in 0..ROUNDS {
                    while turn.get() != round * TASKS + index {
                        signals[index].wait().await;
                    }
                    turn.set(turn.get() + 1);
                    signals[(index + 1) % TASKS].raise();
                }
            });
        }
        executor.block_on(async {
            while turn.get() < TASKS * ROUNDS {
                signals[0].wait().await;
            }
        });
        assert_eq!(turn.get(), TASKS * ROUNDS);
    }
}

#[test]
fn tasks_spawn_tasks_and_go_on_at_the_next_call() {
    for executor in executors() {
        let spawner = executor.spawner();
        let (log, signal) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Signal::new()));
        let (task_log, task_signal) = (Rc::clone(&log), Rc::clone(&signal));
        executor.spawn_local(async move {
            let (log, signal) = (Rc::clone(&task_log), Rc::clone(&task_signal));
            spawner.spawn_local(async move {
                log.borrow_mut().push("child");
                signal.raise();
            });
            task_signal.wait().await;
            task_log.borrow_mut().push("parent");
        });
        assert_eq!(executor.block_on(async { 7 }), 7);
        let yielded = Cell::new(false);
        let both = poll_fn(|cx| {
            if log.borrow().len() == 2 {
                return Poll::Ready(());
            }
            yielded.set(true);
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        executor.block_on(both);
        assert_eq!(*log.borrow(), ["child", "parent"]);
    }
}

#[test]
fn a_first_task_may_come_from_the_future_itself() {
    for executor in executors() {
        let (spawner, signal) = (executor.spawner(), Rc::new(Signal::new()));
        executor.block_on(async {
            for _ in 0..2 {
                let (answer, raised) = (signal.wait(), Rc::clone(&signal));
                spawner.spawn_local(async move { raised.raise() });
                answer.await;
            }
        });
    }
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    for executor in executors() {
        let (clock, log) = (executor.clock(), Rc::new(RefCell::new(Vec::new())));
        let start = clock.now();
        for millis in [9, 3, 6, 0, 3] {
            let (clock, log) = (Rc::clone(&clock), Rc::clone(&log));
            executor.spawn_local(async move {
                let due = start + Duration::from_millis(millis);
                clock.sleep_until(due).await;
                assert!(clock.now() >= due, "no task wakes too early");
                log.borrow_mut().push(millis);
            });
        }
        // A cancelled sleeper must not delay the clock, nor one without a waiter.
        drop(clock.sleep_until(start + Duration::from_secs(3600)));
        executor.block_on(clock.sleep_until(start + Duration::from_millis(10)));
        assert_eq!(*log.borrow(), [0, 3, 3, 6, 9]);
        assert!(clock.unix_micros() > 1_600_000_000_000_000);
    }
}

#[test]
fn a_wake_from_another_thread_ends_the_sleep() {
    for executor in executors() {
        for _ in 0..200 {
            let slot = Arc::new((AtomicBool::new(false), Mutex::new(None::<Waker>)));
            let (announce, announced) = mpsc::channel();
            let theirs = Arc::clone(&slot);
            let waker = std::thread::spawn(move || {
                announced.recv().unwrap();
                theirs.0.store(true, Ordering::SeqCst);
                theirs.1.lock().unwrap().take().unwrap().wake();
            });
            executor.block_on(poll_fn(|cx| {
                if slot.0.load(Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                *slot.1.lock().unwrap() = Some(cx.waker().clone());
                let _ = announce.send(());
                Poll::Pending
            }));
            waker.join().unwrap();
        }
    }
}

#[test]
fn waking_allocates_nothing_once_warm() {
    for executor in executors() {
        let (there, back) = (Rc::new(Signal::new()), Rc::new(Signal::new()));
        let (ping, pong) = (Rc::clone(&there), Rc::clone(&back));
        executor.spawn_local(async move {
            loop {
                ping.wait().await;
                pong.raise();
            }
        });
        let rounds = |count| {
            executor.block_on(async {
                for _ in 0..count {
                    let answer = back.wait();
                    there.raise();
                    answer.await;
                }
            });
        };
        // The first round may find the task not yet waiting.
        executor.block_on(poll_fn({
            let mut polled = false;
            move |cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
            }
        }));
        rounds(100);
        let before = ALLOCATIONS.get();
        rounds(10_000);
        // The bell of `block_on` is one allocation.
        assert!(ALLOCATIONS.get() - before <= 1, "{} allocations", ALLOCATIONS.get() - before);
    }
}

#[test]
fn a_dropped_executor_drops_its_tasks() {
    for executor in executors() {
        let alive = Rc::new(());
        let (held, spawner) = (Rc::clone(&alive), executor.spawner());
        executor.spawn_local(async move {
            let _spawner = spawner;
            let _held = held;
            std::future::pending::<()>().await;
        });
        executor.block_on(async {});
        assert_eq!(Rc::strong_count(&alive), 2);
        let late = executor.spawner();
        drop(executor);
        assert_eq!(Rc::strong_count(&alive), 1, "also if it holds a spawner");
        late.spawn_local(async move { drop(alive) });
    }
}

#[test]
fn mailboxes_carry_batches_between_threads_in_order() {
    const MESSAGES: u64 = 20_000;
    for engine in ENGINES {
        let mut boxes = mailbox::connected::<u64>(2);
        let (far, near) = (boxes.pop().unwrap(), boxes.pop().unwrap());
        assert_eq!((near.address(), far.address()), (0, 1));
        let config = Config { engine, ..Config::default() };
        let config_there = config.clone();
        let echo = std::thread::spawn(move || {
            let executor = Executor::new(config_there).unwrap();
            executor.block_on(async {
                let mut batch = Vec::new();
                while batch.last() != Some(&(MESSAGES - 1)) {
                    batch.clear();
                    poll_fn(|cx| far.poll_receive(cx, &mut batch)).await;
                    far.send(0, &mut batch.clone());
                }
            });
        });
        let executor = Executor::new(config).unwrap();
        executor.block_on(async {
            let (mut next, mut batch, mut received) = (0, Vec::new(), Vec::new());
            while (received.len() as u64) < MESSAGES {
                batch.extend(next..(next + 100).min(MESSAGES));
                next += batch.len() as u64;
                near.send(1, &mut batch);
                assert!(batch.is_empty());
                poll_fn(|cx| near.poll_receive(cx, &mut received)).await;
            }
            assert!(received.iter().copied().eq(0..MESSAGES), "each once, in order");
        });
        echo.join().unwrap();
    }
}
