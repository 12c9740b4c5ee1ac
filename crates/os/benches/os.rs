//! Cost of the seam on this machine: one JSON object per line and measurement.
//!
//! `cargo bench -p parapet-os [-- NAME]`; medians of five rounds. Every operation goes the whole
//! way: submit, completion, the task's wake.

use std::future::poll_fn;
use std::io::IoSlice;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use io::{Buf, Completion, Disk, Done, Op, Pool, Stream, Work};
use os::{Config, Direct, Engine, Executor, FileDisk, Options, Socket, threads};

const BLOCK: usize = 4096;
const FILE_BYTES: u64 = 64 << 20;
const ROUNDS: usize = 5;

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|want| name.contains(want));
    if let Some(&cpu) = threads::allowed().expect("a thread runs on a core").last() {
        threads::pin(cpu).expect("the process may run on its allowed cores");
    }
    let tmpfs = PathBuf::from("/dev/shm");
    let disk = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (name, folder, direct, engine, depth, spin) in [
        ("read4k.tmpfs.inline", &tmpfs, Direct::Auto, Engine::Auto, 1, 20),
        ("read4k.buffered.cached", &disk, Direct::Never, Engine::Auto, 1, 20),
        ("read4k.direct.qd1.spin0", &disk, Direct::Always, Engine::Auto, 1, 0),
        ("read4k.direct.qd1.spin50", &disk, Direct::Always, Engine::Auto, 1, 50),
        ("read4k.direct.qd32", &disk, Direct::Always, Engine::Auto, 32, 20),
        ("read4k.direct.qd32.epoll", &disk, Direct::Always, Engine::Epoll, 32, 20),
    ] {
        if chosen(name) {
            let config = Config { engine, spin: Duration::from_micros(spin), ..Config::default() };
            reads(name, &folder.join("parapet-bench"), direct, config, depth);
        }
    }
    for (name, engine) in [("pingpong.uring", Engine::Uring), ("pingpong.epoll", Engine::Epoll)] {
        if chosen(name) {
            ping_pong(name, Config { engine, ..Config::default() });
        }
    }
    for (name, spin) in [("pingpong.cores.spin0", 0), ("pingpong.cores.spin20", 20)] {
        if chosen(name) {
            let spin = Duration::from_micros(spin);
            ping_pong_between_cores(name, Config { spin, ..Config::default() });
        }
    }
    if chosen("wake") {
        wakes();
    }
}

/// Prints the median rate of `round`, which says how many operations it did.
fn report(name: &str, mut round: impl FnMut() -> u64) {
    round();
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let count = round();
            count as f64 / start.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[ROUNDS / 2];
    let (micros, min, max) = (1e6 / median, rates[0], rates[ROUNDS - 1]);
    print!("{{\"bench\":\"{name}\",\"per_second\":{median:.0},\"micros\":{micros:.3},");
    println!("\"min\":{min:.0},\"max\":{max:.0}}}");
}

fn reads(name: &str, path: &std::path::Path, direct: Direct, config: Config, depth: usize) {
    let executor = Executor::new(config).expect("an executor");
    let _ = std::fs::remove_file(path);
    let options = Options { direct, create_bytes: Some(FILE_BYTES), ..Options::default() };
    let disk = FileDisk::open(path, &options, &executor.spawner()).expect("a new file");
    let pool = Pool::new(64 << 20);
    for at in (0..FILE_BYTES).step_by(1 << 20) {
        let done = executor.block_on(disk.submit(Op::write(at, pool.take(1 << 20).freeze())));
        done.result.expect("there is space");
    }
    executor.block_on(disk.submit(Op::flush())).result.expect("a flush");
    let count = if depth == 1 && !name.contains("direct") {
        500_000
    } else {
        20_000 * depth as u64 / 4 + 5_000
    };
    let mut numbers = 88_172_645_463_325_252_u64;
    let mut offset = move || {
        numbers ^= numbers << 13;
        numbers ^= numbers >> 7;
        numbers ^= numbers << 17;
        numbers % (FILE_BYTES / BLOCK as u64) * BLOCK as u64
    };
    let mut lists: Vec<Vec<Buf>> = (0..depth).map(|_| vec![pool.take(BLOCK)]).collect();
    report(name, || {
        executor.block_on(async {
            // A ring of `depth` operations: await the oldest, start another.
            let mut flying: Vec<Completion<Done>> = lists
                .drain(..)
                .map(|list| disk.submit(Op::new(offset(), Work::Read(list))))
                .collect();
            for index in 0..count as usize {
                let slot = index % depth;
                let next = std::mem::replace(&mut flying[slot], Completion::never());
                let done = next.await;
                done.result.expect("a read");
                let Work::Read(list) = done.work else { unreachable!("a read was submitted") };
                flying[slot] = disk.submit(Op::new(offset(), Work::Read(list)));
            }
            for completion in flying {
                let Work::Read(list) = completion.await.work else {
                    unreachable!("a read was submitted")
                };
                lists.push(list);
            }
        });
        count
    });
    drop(disk);
    std::fs::remove_file(path).expect("created above");
}

/// 4 KiB there, 16 bytes back, between two tasks of one thread.
fn ping_pong(name: &str, config: Config) {
    let executor = Executor::new(config).expect("an executor");
    let (near, far) = Socket::pair(&executor.spawner()).expect("a pair");
    executor.spawn_local(async move {
        let mut buf = vec![0; BLOCK];
        while receive(&far, &mut buf).await {
            send(&far, &[0; 16]).await;
        }
    });
    let near = Rc::new(near);
    report(name, || {
        const COUNT: u64 = 50_000;
        executor.block_on(async {
            let mut answer = [0; 16];
            for _ in 0..COUNT {
                send(&*near, &[0; BLOCK]).await;
                receive(&*near, &mut answer).await;
            }
        });
        COUNT
    });
}

/// The same with each end on a thread and a core of its own.
fn ping_pong_between_cores(name: &str, config: Config) {
    let (theirs, ours) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let config_there = config.clone();
    let echo = std::thread::spawn(move || {
        threads::pin(0).expect("the process may run on its allowed cores");
        let executor = Executor::new(config_there).expect("an executor");
        let socket = Socket::from_fd(theirs.into(), &executor.spawner()).expect("a socket");
        executor.block_on(async {
            let mut buf = vec![0; BLOCK];
            while receive(&socket, &mut buf).await {
                send(&socket, &[0; 16]).await;
            }
        });
    });
    let executor = Executor::new(config).expect("an executor");
    let socket = Socket::from_fd(ours.into(), &executor.spawner()).expect("a socket");
    report(name, || {
        const COUNT: u64 = 20_000;
        executor.block_on(async {
            let mut answer = [0; 16];
            for _ in 0..COUNT {
                send(&socket, &[0; BLOCK]).await;
                receive(&socket, &mut answer).await;
            }
        });
        COUNT
    });
    drop((socket, executor));
    echo.join().expect("no panic");
}

async fn receive(stream: &impl Stream, into: &mut [u8]) -> bool {
    let mut done = 0;
    while done < into.len() {
        match poll_fn(|cx| stream.poll_read(cx, &mut into[done..])).await {
            Ok(0) | Err(_) => return false,
            Ok(count) => done += count,
        }
    }
    true
}

async fn send(stream: &impl Stream, bytes: &[u8]) {
    let count = poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(bytes)])).await;
    assert_eq!(count.expect("the other end is connected"), bytes.len());
}

/// Two tasks of one thread that wake each other.
fn wakes() {
    let executor = Executor::new(Config::default()).expect("an executor");
    let (there, back) = (Rc::new(io::Signal::new()), Rc::new(io::Signal::new()));
    let (ping, pong) = (Rc::clone(&there), Rc::clone(&back));
    executor.spawn_local(async move {
        loop {
            ping.wait().await;
            pong.raise();
        }
    });
    // Lets the task come to its first wait.
    let clock = executor.clock();
    let soon = io::Clock::now(&*clock) + Duration::from_millis(1);
    executor.block_on(io::Clock::sleep_until(&*clock, soon));
    report("wake.there_and_back", || {
        const COUNT: u64 = 500_000;
        executor.block_on(async {
            for _ in 0..COUNT {
                let answer = back.wait();
                there.raise();
                answer.await;
            }
        });
        COUNT
    });
}
