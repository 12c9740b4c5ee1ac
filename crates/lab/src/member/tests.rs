//! Modelled disks as `io::Disk`: bytes, time, cores, failure.

use std::time::Duration;

use super::*;
use crate::disk::Nanos;
use crate::world::{Core, CpuCosts, Stall};

/// Answers one request after the other, each after the same time.
pub(crate) struct Constant {
    each: Nanos,
    free_at: Nanos,
    queue: VecDeque<Answer>,
}

impl Constant {
    pub(crate) fn boxed(each: Nanos) -> Box<Constant> {
        Box::new(Constant { each, free_at: 0, queue: VecDeque::new() })
    }
}

impl Model for Constant {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.free_at = self.free_at.max(now) + self.each;
        self.queue.push_back(Answer { tag: request.tag, at: self.free_at });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.queue.front().map(|answer| answer.at)
    }

    fn advance(&mut self, now: Nanos, answers: &mut Vec<Answer>) {
        while self.queue.front().is_some_and(|answer| answer.at <= now) {
            answers.extend(self.queue.pop_front());
        }
    }

    fn sectors(&self) -> u64 {
        1 << 20
    }
}

#[test]
fn what_was_written_is_read_and_zeros_need_no_memory() {
    let world = World::new();
    let member = Member::new(&world, Constant::boxed(1000));
    let disk = Rc::clone(&member);
    let pool = world.pool().clone();
    world
        .run(async move {
            let write = |at: u64, byte: u8, len: usize| {
                let mut buf = pool.take(len);
                buf.fill(byte);
                disk.submit(Op::write(at, buf.freeze()))
            };
            write(512, 7, 8192).await.result.unwrap();
            write(1 << 20, 0, 1 << 20).await.result.unwrap();
            assert_eq!(disk.kept_bytes(), 3 * 4096);
            let mut buf = pool.take(16384);
            buf.fill(9);
            let done = disk.submit(Op::read(0, buf)).await.into_buf();
            assert!(done[..512].iter().all(|&byte| byte == 0));
            assert!(done[512..8704].iter().all(|&byte| byte == 7));
            assert!(done[8704..].iter().all(|&byte| byte == 0));
            write(0, 0, 16384).await.result.unwrap();
            assert_eq!(disk.kept_bytes(), 0);
        })
        .unwrap();
    let counts = member.counts();
    assert_eq!((counts.reads, counts.writes, counts.read_bytes), (1, 3, 16384));
}

#[test]
fn time_is_the_models() {
    let world = World::new();
    let member = Member::new(&world, Constant::boxed(1000));
    let (clock, pool) = (world.dyn_clock(), world.pool().clone());
    let end = world.run(async move {
        let reads: Vec<_> =
            (0..5).map(|n| member.submit(Op::read(n << 12, pool.take(4096)))).collect();
        for read in reads {
            read.await.result.unwrap();
        }
        clock.now()
    });
    assert_eq!(end, Ok(Time(5000)));
}

#[test]
fn work_keeps_a_core_busy_and_other_cores_go_on() {
    let world = World::new();
    world.set_costs(Core::FIRST, CpuCosts { request_ns: 300, ..CpuCosts::default() });
    let other = world.core(CpuCosts { request_ns: 50, ..CpuCosts::default() });
    let ended = Rc::new(RefCell::new(Vec::new()));
    let task = |name: &'static str| {
        let (clock, ended) = (world.dyn_clock(), Rc::clone(&ended));
        async move {
            clock.charge(io::Cost::Request, 0);
            ended.borrow_mut().push((name, clock.now().0));
        }
    };
    world.spawn(Core::FIRST, task("first"));
    world.spawn(Core::FIRST, task("second"));
    world.spawn(other, task("beside"));
    let clock = world.dyn_clock();
    world.run(async move { clock.sleep_until(Time(0) + Duration::from_micros(1)).await }).unwrap();
    assert_eq!(*ended.borrow(), [("first", 300), ("beside", 50), ("second", 600)]);
    assert_eq!((world.busy_ns(Core::FIRST), world.busy_ns(other)), (600, 50));
}

#[test]
fn a_request_arrives_when_its_core_has_got_so_far() {
    let world = World::new();
    world.set_costs(Core::FIRST, CpuCosts { member_op_ns: 400, ..CpuCosts::default() });
    let member = Member::new(&world, Constant::boxed(1000));
    let (clock, pool) = (world.dyn_clock(), world.pool().clone());
    let end = world.run(async move {
        member.submit(Op::read(0, pool.take(4096))).await.result.unwrap();
        clock.now()
    });
    assert_eq!(end, Ok(Time(1400)));
}

#[test]
fn a_hang_and_a_busy_loop_are_errors() {
    let hang = World::new().run(std::future::pending::<()>());
    assert_eq!(hang, Err(Stall::Hang));
    let busy = World::new().run(std::future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        std::task::Poll::<()>::Pending
    }));
    assert_eq!(busy, Err(Stall::Busy));
}

#[test]
fn a_removed_disk_fails() {
    let world = World::new();
    let member = Member::new(&world, Constant::boxed(1000));
    let pool = world.pool().clone();
    let error = world.run(async move {
        member.remove();
        member.submit(Op::read(0, pool.take(4096))).await.result.unwrap_err().kind()
    });
    assert_eq!(error, Ok(ErrorKind::Gone));
}
