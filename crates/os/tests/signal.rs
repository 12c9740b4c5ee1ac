//! Signals as a future. One test: signals belong to the whole process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use io::tasks::poll_once;
use os::{Config, Engine, Executor, Signal, Signals};
use rustix::process::{Signal as Number, getpid, kill_process};

/// As a process is started by a terminal: these tests may be run under `nohup`.
fn catchable() {
    // SAFETY: no handler is set, and no other thread of this test sets one.
    let before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    assert_ne!(before, libc::SIG_ERR);
}

#[test]
fn signals_are_caught_one_by_one_and_by_one_catcher() {
    catchable();
    for engine in [Engine::Uring, Engine::Epoll] {
        let on = Executor::new(Config { engine, ..Config::default() }).unwrap();
        let signals = Signals::catch(&on.spawner()).unwrap();
        assert!(Signals::catch(&on.spawner()).is_err(), "only one may catch");
        assert!(poll_once(Box::pin(signals.next())).is_none());
        for (number, signal) in [
            (Number::HUP, Signal::Hangup),
            (Number::INT, Signal::Interrupt),
            (Number::TERM, Signal::Terminate),
        ] {
            kill_process(getpid(), number).unwrap();
            assert_eq!(on.block_on(signals.next()), signal);
        }
        // Would end the process.
        kill_process(getpid(), Number::PIPE).unwrap();
    }
}
