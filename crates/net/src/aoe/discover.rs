//! Asking the wire who is there.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::Result;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use io::{Boxed, Clock, Frame, Link, Mac, Time};

use super::wire::ata::{Ata, opcode, status};
use super::wire::identify::Identity;
use super::wire::query::{Directive, Query};
use super::wire::{ATA_HEADER_BYTES, Address, HEADER_BYTES, Header, VERSION, command};

/// The tag of our questions: bit 31 marks tags that are not counted.
const TAG: u32 = 1 << 31 | 0x5041_5241;
/// How long an answer may take, and when the question is repeated: ample on one segment.
const PATIENCE: Duration = Duration::from_millis(60);
const AGAIN: Duration = Duration::from_millis(20);
/// How often a target is asked who it is, and how long each answer may take.
const IDENTIFY_TURNS: u32 = 20;
const IDENTIFY_AGAIN: Duration = Duration::from_millis(100);

/// The most answers that are kept: more are a flood.
const MAX_FOUND: usize = 4096;

/// A target that answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its address.
    pub address: Address,
    /// The port that answered.
    pub mac: Mac,
    /// How it describes itself.
    pub query: Query,
}

/// Asks for targets of this address, and returns those that answered, each port once. The port must
/// be open for answers.
///
/// # Errors
/// The port is gone.
pub fn discover<'a>(
    link: &'a dyn Link,
    clock: &'a dyn Clock,
    address: Address,
) -> Boxed<'a, Result<Vec<Found>>> {
    Box::pin(async move {
        let mut found: Vec<Found> = Vec::new();
        let start = clock.now();
        for turn in 0..PATIENCE.as_millis() / AGAIN.as_millis() {
            let mut frames = VecDeque::from([question(link.address(), address)]);
            poll_fn(|cx| link.poll_send(cx, &mut frames)).await?;
            let until = start + AGAIN * (turn as u32 + 1);
            loop {
                let frames = receive_until(link, clock, until).await?;
                if frames.is_empty() || clock.now() >= until {
                    break;
                }
                for answer in frames.iter().filter_map(answer) {
                    if found.len() < MAX_FOUND
                        && !found
                            .iter()
                            .any(|it| (it.address, it.mac) == (answer.address, answer.mac))
                    {
                        found.push(answer);
                    }
                }
            }
        }
        Ok(found)
    })
}

/// Asks the target at this port who it is; nothing if it does not answer, or refuses.
///
/// # Errors
/// Our port is gone.
pub fn identify<'a>(
    link: &'a dyn Link,
    clock: &'a dyn Clock,
    mac: Mac,
    address: Address,
) -> Boxed<'a, Result<Option<Identity>>> {
    Box::pin(async move {
        let question = identify_question(link.address(), mac, address, TAG);
        let start = clock.now();
        for turn in 0..IDENTIFY_TURNS {
            let mut frames = VecDeque::from([question.clone()]);
            poll_fn(|cx| link.poll_send(cx, &mut frames)).await?;
            let until = start + IDENTIFY_AGAIN * (turn + 1);
            for frame in receive_until(link, clock, until).await? {
                let answer = Header::parse(frame.head()).filter(|it| it.response);
                let is_ours = answer.is_some_and(|it| {
                    (it.source, it.address, it.tag, it.error) == (mac, address, TAG, None)
                });
                let ata = frame.head().get(HEADER_BYTES..).and_then(Ata::parse);
                if is_ours && ata.is_some_and(|ata| ata.command & status::BAD == 0) {
                    return Ok(Identity::parse(frame.body()));
                }
            }
        }
        Ok(None)
    })
}

/// The frames that come until then; at once, if a frame has come.
async fn receive_until(link: &dyn Link, clock: &dyn Clock, until: Time) -> Result<Vec<Frame>> {
    let mut alarm = clock.sleep_until(until);
    let mut frames = Vec::new();
    let received = poll_fn(|cx| match link.poll_receive(cx, &mut frames) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => Pin::new(&mut alarm).poll(cx).map(|()| None),
    });
    received.await.transpose()?;
    Ok(frames)
}

/// The header of a question to all.
fn header(source: Mac, address: Address) -> Header {
    Header {
        destination: Mac::BROADCAST,
        source,
        version: VERSION,
        response: false,
        error: None,
        address,
        command: command::QUERY,
        tag: TAG,
    }
}

/// The question to all who serves this address.
pub(super) fn question(source: Mac, address: Address) -> Frame {
    let mut bytes = vec![0; HEADER_BYTES];
    header(source, address).put(&mut bytes);
    Query::request(Directive::Read, &[]).put(false, &mut bytes);
    Frame::new(&bytes)
}

/// The question to one port which device it serves.
pub(super) fn identify_question(source: Mac, mac: Mac, address: Address, tag: u32) -> Frame {
    let mut bytes = [0; ATA_HEADER_BYTES];
    let header = Header { destination: mac, command: command::ATA, tag, ..header(source, address) };
    header.put(&mut bytes);
    Ata::plain(opcode::IDENTIFY).put(&mut bytes[HEADER_BYTES..]);
    Frame::new(&bytes)
}

/// The port that answers [`question`], or announces a target.
pub(super) fn answer(frame: &Frame) -> Option<Found> {
    let header = Header::parse(frame.head())?;
    if !header.response || header.error.is_some() || header.command != command::QUERY {
        return None;
    }
    let argument = frame.to_vec();
    let query = Query::parse(argument.get(HEADER_BYTES..)?)?;
    Some(Found { address: header.address, mac: header.source, query })
}
