//! A connection that carries bytes in order: TCP, a unix socket, standard input and output, TLS
//! over any of them.

use std::io::{IoSlice, Result};
use std::task::{Context, Poll};

/// Both directions of one connection. Dropping it closes the connection.
pub trait Stream {
    /// Reads available bytes into `into`: 0 at the end of the stream. Pending registers the waker.
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize>>;

    /// Writes as much of `bytes` as the stream takes now, at least one byte unless all are empty.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<Result<usize>>;

    /// Says that nothing more will be written.
    fn poll_close(&self, cx: &mut Context<'_>) -> Poll<Result<()>>;
}
