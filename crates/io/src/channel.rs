//! Requests and answers as whole messages, as `/dev/fuse` carries them.

use std::io::Result;
use std::task::{Context, Poll};

use crate::buf::Buf;

/// Bytes of a request before its data: FUSE's header, and the arguments of a write.
pub const REQUEST_HEAD_BYTES: usize = 80;

/// A request. Its data is aligned memory of its own, so that a write passes it on.
#[derive(Debug)]
pub struct Request {
    /// The first bytes; those past the request's end are arbitrary.
    pub head: [u8; REQUEST_HEAD_BYTES],
    /// How many of them the request has.
    pub head_bytes: usize,
    /// The bytes after a full head.
    pub body: Buf,
}

/// Where requests come from and answers go to.
pub trait Channel {
    /// Adds requests to `into`: at least one when ready.
    ///
    /// # Errors
    /// The channel has ended: nothing more will come.
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Request>) -> Poll<Result<()>>;

    /// Sends an answer of these parts. It never waits. An answer that nobody wants any more is
    /// dropped.
    fn answer(&self, parts: &[&[u8]]);
}
