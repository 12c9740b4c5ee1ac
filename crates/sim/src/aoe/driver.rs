//! Models of other clients: Linux's driver, and clients that repeat with the same tag.
//!
//! | | Linux (aoe v85) | iPXE, WinAoE |
//! |---|---|---|
//! | repeats with | a new tag, through the next port | the same tag, through its only port |
//! | tags | a counter and the clock | a number |
//! | late answers | are dropped | end the request |
//! | gives up | after `aoe_deadsecs` | as long |
//!
//! A client that gave up is quiet for a frame's lifetime: its device is down until it is opened
//! again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::link::HEAD_BYTES;
use io::{Clock, Frame, Link, Mac, Signal};
use net::aoe::wire::ata::{Ata, status};
use net::aoe::wire::{HEADER_BYTES, Header, SECTOR, VERSION, command, sectors_of};

use super::server::LUN;
use crate::link::SimLink;
use crate::world::World;
use random::Rng;

/// The first time after which a request is repeated; it doubles up to the other.
const FIRST_TIMEOUT: Range<u64> = 20_000..300_000;
const MAX_TIMEOUT: Duration = Duration::from_secs(1);
/// `aoe_deadsecs`.
pub(super) const GIVE_UP: Duration = Duration::from_secs(20);

/// Reads of each port by which the target comes to know a client.
const WARM_UP: usize = 12;

/// How the client repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tags {
    /// With a new tag through the next port.
    New,
    /// With the same one.
    Same,
}

pub(super) struct Driver {
    world: World,
    links: Vec<Rc<SimLink>>,
    /// The target's port on the same wire.
    macs: Vec<Mac>,
    tags: Tags,
    rng: RefCell<Rng>,
    count: Cell<u32>,
    turn: Cell<usize>,
    /// Tags in use, and their answers.
    waiting: RefCell<BTreeMap<u32, Option<Frame>>>,
    answered: Signal,
}

impl Driver {
    /// A client with these ports, each beside a port of the target.
    pub(super) fn new(
        world: &World,
        links: Vec<Rc<SimLink>>,
        macs: Vec<Mac>,
        tags: Tags,
        rng: Rng,
    ) -> Rc<Driver> {
        let driver = Rc::new(Driver {
            world: world.clone(),
            links,
            macs,
            tags,
            rng: RefCell::new(rng),
            count: Cell::new(0),
            turn: Cell::new(0),
            waiting: RefCell::default(),
            answered: Signal::new(),
        });
        for number in 0..driver.links.len() {
            let receiving = Rc::clone(&driver);
            world.executor.spawn("client's port", async move { receiving.receive(number).await });
        }
        driver
    }

    /// Reads through every port, so that the target sees that they have one counter. A client's own
    /// reads do that soon; here there are few.
    pub(super) async fn warm_up(&self) {
        for _ in 0..WARM_UP * self.links.len() {
            drop(self.transfer(0..1, None).await);
        }
    }

    /// The client's host restarts: its counter begins anew.
    pub(super) fn reboot(&self) {
        self.count.set(0);
    }

    async fn receive(&self, number: usize) {
        let mut frames = Vec::new();
        loop {
            let received = poll_fn(|cx| self.links[number].poll_receive(cx, &mut frames)).await;
            received.expect("a simulated port stays");
            for frame in frames.drain(..) {
                let Some(header) = Header::parse(frame.head()).filter(|it| it.response) else {
                    continue;
                };
                if let Some(answer) = self.waiting.borrow_mut().get_mut(&header.tag) {
                    *answer = Some(frame);
                }
            }
            self.answered.raise();
        }
    }

    fn next_tag(&self) -> u32 {
        self.count.set(self.count.get() + 1);
        let millis = self.world.clock.now().0 / 1_000_000;
        match self.tags {
            Tags::New => (self.count.get() & 0x7fff) << 16 | millis as u32 & 0xffff,
            Tags::Same => 0x18ae_0000 | self.count.get() & 0xffff,
        }
    }

    /// Reads sectors, or writes `data` to them.
    ///
    /// # Errors
    /// The client gave up, or the target refused.
    pub(super) async fn transfer(
        &self,
        sectors: Range<u64>,
        data: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        let most = self.links.iter().map(|link| sectors_of(link.state().mtu)).min();
        let most = u64::from(most.expect("a client has a port"));
        let starts = sectors.clone().step_by(most as usize);
        let pieces = starts.map(|start| {
            let count = most.min(sectors.end - start);
            let at = (start - sectors.start) as usize * SECTOR;
            let data = data.map(|data| &data[at..at + count as usize * SECTOR]);
            self.exchange(Ata::transfer(data.is_some(), start, count as u8), data)
        });
        let mut all = Vec::new();
        for piece in join(pieces.map(Box::pin).collect()).await {
            all.extend(piece?);
        }
        Ok(all)
    }

    /// One request, repeated until it is answered.
    async fn exchange(&self, ata: Ata, data: Option<&[u8]>) -> Result<Vec<u8>, String> {
        let clock = &self.world.clock;
        let start = clock.now();
        let first = self.rng.borrow_mut().within(FIRST_TIMEOUT.start, FIRST_TIMEOUT.end);
        let mut timeout = Duration::from_micros(first);
        let mut tag = self.next_tag();
        loop {
            self.waiting.borrow_mut().insert(tag, None);
            self.send(ata, data, tag).await;
            let answer = self.answer(tag, timeout).await;
            let is_over = answer.is_some() || clock.now() - start > GIVE_UP;
            if is_over || self.tags == Tags::New {
                self.waiting.borrow_mut().remove(&tag);
            }
            if let Some(frame) = answer {
                return outcome(&frame, ata);
            }
            if is_over {
                return Err("no answer".into());
            }
            timeout = (2 * timeout).min(MAX_TIMEOUT);
            if self.tags == Tags::New {
                tag = self.next_tag();
            }
        }
    }

    async fn send(&self, ata: Ata, data: Option<&[u8]>, tag: u32) {
        let port = self.turn.replace(self.turn.get() + 1) % self.links.len();
        let header = Header {
            destination: self.macs[port],
            source: self.links[port].address(),
            version: VERSION,
            response: false,
            error: None,
            address: LUN,
            command: command::ATA,
            tag,
        };
        let mut head = [0; HEAD_BYTES];
        header.put(&mut head);
        ata.put(&mut head[HEADER_BYTES..]);
        let frame = match data {
            Some(data) => Frame::with_body(head, self.world.pool.copy_of(data).freeze()),
            None => Frame::new(&head),
        };
        let mut frames = VecDeque::from([frame]);
        let sent = poll_fn(|cx| self.links[port].poll_send(cx, &mut frames)).await;
        sent.expect("a simulated port stays");
    }

    /// The answer to this tag, if it comes in time.
    async fn answer(&self, tag: u32, timeout: Duration) -> Option<Frame> {
        let clock = &self.world.clock;
        let mut alarm = clock.sleep_until(clock.now() + timeout);
        loop {
            if let Some(Some(frame)) = self.waiting.borrow().get(&tag) {
                return Some(frame.clone());
            }
            let mut answered = pin!(self.answered.wait());
            let in_time = poll_fn(|cx| match answered.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => Pin::new(&mut alarm).poll(cx).map(|()| false),
            });
            if !in_time.await {
                return None;
            }
        }
    }
}

fn outcome(frame: &Frame, ata: Ata) -> Result<Vec<u8>, String> {
    let header = Header::parse(frame.head()).expect("it was parsed when it came");
    let answer = frame.head().get(HEADER_BYTES..).and_then(Ata::parse).ok_or("a short answer")?;
    if header.error.is_some() || answer.command & status::BAD != 0 {
        return Err(format!("error {:?}, status {:#x}", header.error, answer.command));
    }
    let bytes = if ata.is_read() { usize::from(ata.sectors) * SECTOR } else { 0 };
    frame.body().get(..bytes).map(<[u8]>::to_vec).ok_or_else(|| "short data".into())
}

/// All results, in order.
pub(super) async fn join<T>(mut futures: Vec<Pin<Box<impl Future<Output = T>>>>) -> Vec<T> {
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *result = Some(value);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().map(|result| result.expect("all are there")).collect()
}
