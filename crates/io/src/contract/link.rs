//! The contract of a [`Link`], checked on two ports of one wire.

use std::collections::VecDeque;
use std::future::poll_fn;

use crate::link::{ETHERNET_BYTES, Frame, HEAD_BYTES, Link, MIN_FRAME_BYTES, Mac};
use crate::{BUF_ALIGN, Pool};

/// Frames that any wire has room for: a unix datagram socket queues ten.
const BURST: usize = 8;
/// Version and flags of a request: ports may be open for requests only.
const REQUEST: u8 = 0x10;
/// Where a frame has its number.
const NUMBER_AT: usize = 20;
/// ATA over Ethernet: the only frames that ports receive.
const ETHERTYPE: [u8; 2] = [0x88, 0xa2];

/// Checks that frames from `a` reach `b` as the contract says. Nothing else may use the wire, and
/// it must lose nothing of a short burst.
///
/// # Panics
/// At the first breach of the contract.
pub async fn link(a: &dyn Link, b: &dyn Link) {
    let mtu = a.state().mtu.min(b.state().mtu) as usize;
    assert!(a.state().up && b.state().up, "the ports are up");
    assert!(mtu >= 576, "an MTU of {mtu} carries no sector");
    frames_come_whole_and_in_order(a, b, mtu).await;
    short_frames_are_padded(a, b).await;
    everyone_gets_a_broadcast_but_the_sender(a, b).await;
    others_frames_and_long_ones_do_not_arrive(a, b, mtu).await;
    bursts_arrive_in_order(a, b, mtu).await;
}

/// A frame of `bytes` bytes with this number in it.
fn frame(from: Mac, to: Mac, number: u8, bytes: usize) -> Frame {
    let mut all = vec![number; bytes];
    all[..6].copy_from_slice(&to.0);
    all[6..12].copy_from_slice(&from.0);
    all[12..14].copy_from_slice(&ETHERTYPE);
    if let Some(flags) = all.get_mut(14) {
        *flags = REQUEST;
    }
    match all.split_first_chunk::<HEAD_BYTES>() {
        Some((head, body)) => Frame::with_body(*head, Pool::new(0).copy_of(body).freeze()),
        None => Frame::new(&all),
    }
}

async fn send(link: &dyn Link, frames: impl IntoIterator<Item = Frame>) {
    let mut frames: VecDeque<Frame> = frames.into_iter().collect();
    while !frames.is_empty() {
        let before = frames.len();
        let sent = poll_fn(|cx| link.poll_send(cx, &mut frames)).await;
        sent.expect("the port is there");
        assert!(frames.len() < before, "ready, and no frame was taken");
    }
}

async fn receive(link: &dyn Link, count: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    while frames.len() < count {
        let before = frames.len();
        let received = poll_fn(|cx| link.poll_receive(cx, &mut frames)).await;
        received.expect("the port is there");
        assert!(frames.len() > before, "ready, and no frame has come");
    }
    assert_eq!(frames.len(), count, "more frames than were sent: {frames:?}");
    frames
}

async fn frames_come_whole_and_in_order(a: &dyn Link, b: &dyn Link, mtu: usize) {
    for bytes in [MIN_FRAME_BYTES, 61, 576, mtu, mtu + ETHERNET_BYTES] {
        let sent = frame(a.address(), b.address(), bytes as u8, bytes);
        send(a, [sent.clone()]).await;
        let received = receive(b, 1).await.remove(0);
        assert_eq!(received.to_vec(), sent.to_vec(), "a frame of {bytes} bytes");
        assert_eq!(received.head().len(), HEAD_BYTES, "cut where the data begins");
        let aligned =
            bytes <= MIN_FRAME_BYTES || received.body().as_ptr().addr().is_multiple_of(BUF_ALIGN);
        assert!(aligned, "the data of a frame of {bytes} bytes starts an aligned buffer");
    }
}

async fn short_frames_are_padded(a: &dyn Link, b: &dyn Link) {
    for bytes in [ETHERNET_BYTES, 24, HEAD_BYTES, MIN_FRAME_BYTES - 1] {
        let sent = frame(a.address(), b.address(), 7, bytes);
        send(a, [sent.clone()]).await;
        let mut padded = sent.to_vec();
        padded.resize(MIN_FRAME_BYTES, 0);
        assert_eq!(receive(b, 1).await[0].to_vec(), padded, "a frame of {bytes} bytes");
    }
}

async fn everyone_gets_a_broadcast_but_the_sender(a: &dyn Link, b: &dyn Link) {
    send(a, [frame(a.address(), Mac::BROADCAST, 1, 64)]).await;
    receive(b, 1).await;
    send(b, [frame(b.address(), a.address(), 2, 64)]).await;
    let answer = receive(a, 1).await;
    assert_eq!(answer[0].head()[NUMBER_AT], 2, "the port got its own broadcast");
}

async fn others_frames_and_long_ones_do_not_arrive(a: &dyn Link, b: &dyn Link, mtu: usize) {
    let stranger = Mac([2, 0xee, 0xee, 0xee, 0xee, 0xee]);
    let frames = [
        frame(a.address(), stranger, 1, 64),
        frame(a.address(), b.address(), 2, mtu + ETHERNET_BYTES + 1),
        frame(a.address(), b.address(), 3, 64),
    ];
    send(a, frames).await;
    let received = receive(b, 1).await;
    assert_eq!(
        received[0].head()[NUMBER_AT],
        3,
        "a frame for another port, or a frame above the MTU, arrived"
    );
}

async fn bursts_arrive_in_order(a: &dyn Link, b: &dyn Link, mtu: usize) {
    let burst = (0..BURST).map(|it| frame(a.address(), b.address(), it as u8, 64 + it * 40 % mtu));
    send(a, burst).await;
    let received = receive(b, BURST).await;
    let numbers: Vec<u8> = received.iter().map(|frame| frame.head()[NUMBER_AT]).collect();
    assert_eq!(numbers, (0..BURST as u8).collect::<Vec<_>>());
}
