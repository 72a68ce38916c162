//! A blocking socket for requests, dumps and batches.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sendmsg, sockopt};

use crate::descriptor::{BUFFER, Descriptor, MAX_INTERRUPTED_CALLS, failed, io_error, receive};
use crate::message::{
    Content, Message, Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, begin, end,
};
use crate::{
    AckTracker, Counters, Dump, Error, KernelError, Outcome, Protocol, ReplyTracker, SocketOption,
};

/// Default timeout of a reply.
///
/// The kernel executes a request during `sendmsg`, so the reply is usually available
/// immediately.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of the send buffer that the kernel reserves (`netlink_sendmsg`).
const RESERVED: usize = 32;

/// Memory that the kernel counts for the acknowledgment of one message: 850 bytes on Linux
/// 6.1, for one with attributes.
const ACKNOWLEDGMENT: usize = 1024;

/// Maximum size to which a batch grows the receive buffer. It has the acknowledgments of
/// 16,384 rejected messages.
const MAX_RECV_BUFFER: usize = 16 << 20;

/// Maximum number of datagrams of a reply, more than any dump has.
const MAX_DATAGRAMS: usize = 1 << 20;

/// A netlink socket for requests, dumps and batches.
///
/// The socket stays in the network namespace in which it was opened.
/// Reuse sockets: the first change on a socket takes milliseconds, later changes take
/// microseconds.
#[derive(Debug)]
pub struct Socket {
    descriptor: Descriptor,
    /// Sequence number of the next message.
    sequence: u32,
    /// Maximum length of a datagram to send, in bytes.
    limit: usize,
    /// Size of the receive buffer that is known to suffice, in bytes.
    recv_buffer: usize,
    request: Vec<u8>,
    datagram: Vec<u8>,
    counters: Counters,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the kernel lacks the protocol or memory.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let descriptor = Descriptor::open(protocol)?;
        // Without these options, errors have no attributes or include the request.
        let _ = descriptor.set_option(SocketOption::ExtAck, true);
        let _ = descriptor.set_option(SocketOption::CapAck, true);
        Self::new(descriptor)
    }

    /// Uses an existing descriptor of a netlink socket, which a privileged process may
    /// have opened.
    ///
    /// The socket keeps its options and memberships, except the reply timeout.
    /// The owner of the descriptor should enable `NETLINK_EXT_ACK` and `NETLINK_CAP_ACK`:
    /// [`set_option`](Self::set_option) cannot change options of an existing descriptor.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the descriptor is not a netlink socket, or a system call fails.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Error> {
        Self::new(Descriptor::from_fd(fd)?)
    }

    fn new(descriptor: Descriptor) -> Result<Self, Error> {
        let limit = send_limit(descriptor.as_fd())?;
        let recv_buffer = recv_buffer_size(descriptor.as_fd())?;
        let socket = Self {
            descriptor,
            sequence: 1,
            limit,
            recv_buffer,
            request: Vec::new(),
            datagram: Vec::with_capacity(BUFFER),
            counters: Counters::default(),
        };
        socket.set_timeout(TIMEOUT)?;
        Ok(socket)
    }

    /// Sets the reply timeout. Default: 10 s.
    ///
    /// The timeout applies to each datagram of a reply.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the timeout is zero.
    pub fn set_timeout(&self, timeout: Duration) -> Result<(), Error> {
        sockopt::set_socket_timeout(self.as_fd(), sockopt::Timeout::Recv, Some(timeout))
            .map_err(failed("set the timeout of a netlink socket"))
    }

    /// Enables or disables an option. Default: [`SocketOption::ExtAck`] and
    /// [`SocketOption::CapAck`] are enabled.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the kernel rejects the option, or if the socket is an
    /// [existing descriptor](Self::from_fd) (`ErrorKind::Unsupported`).
    pub fn set_option(&self, option: SocketOption, value: bool) -> Result<(), Error> {
        self.descriptor.set_option(option, value)
    }

    /// Sets the size of the receive buffer, in bytes.
    ///
    /// Without `CAP_NET_ADMIN` in the initial user namespace, the size is silently
    /// limited to twice `net.core.rmem_max`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the system call fails.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> Result<(), Error> {
        self.descriptor.set_recv_buffer_size(bytes)
    }

    /// Returns the sequence number that the first message of the next batch must have.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Returns the port ID that the kernel assigned to the socket.
    ///
    /// Notifications of changes by this socket carry the port ID.
    pub fn port_id(&self) -> u32 {
        self.descriptor.port_id()
    }

    /// Returns the counters of the socket.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sends one request, and calls `each` for every message of the reply.
    ///
    /// Blocks until the reply is complete or the timeout expires.
    /// `flags` are added to `NLM_F_REQUEST | NLM_F_ACK`.
    ///
    /// # Errors
    ///
    /// - [`Error::Kernel`]: the kernel rejected the request.
    /// - The first error of `each`; the reply is read to its end nevertheless.
    /// - Any other [`Error`]: the reply was not received or is malformed; the request may
    ///   have been executed.
    pub fn request<E: From<Error>>(
        &mut self,
        ty: u16,
        flags: u16,
        payload: &[u8],
        each: impl FnMut(Message<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.exchange(ty, flags | NLM_F_ACK, payload, each)?;
        Ok(())
    }

    /// Dumps objects, and folds the messages of the reply into a value.
    ///
    /// Each attempt starts with a new value of `start`.
    /// A dump that a change interrupts (`NLM_F_DUMP_INTR`) is repeated, up to `attempts`
    /// attempts in total, at least one.
    /// The socket buffers only one datagram.
    ///
    /// # Errors
    ///
    /// - [`Error::Kernel`]: the kernel rejected the request, or the dump failed.
    /// - The first error of `each`; the reply is read to its end nevertheless.
    /// - Any other [`Error`]: the reply was not received or is malformed.
    pub fn dump<T, E: From<Error>>(
        &mut self,
        ty: u16,
        payload: &[u8],
        attempts: usize,
        mut start: impl FnMut() -> T,
        mut each: impl FnMut(&mut T, Message<'_>) -> Result<(), E>,
    ) -> Result<Dump<T>, E> {
        Dump::repeat(attempts, || {
            let mut value = start();
            let is_interrupted =
                self.exchange(ty, NLM_F_DUMP, payload, |message| each(&mut value, message))?;
            Ok(match is_interrupted {
                false => Dump::Complete(value),
                true => Dump::Interrupted(value),
            })
        })
    }

    /// Sends an atomic batch in one datagram of any length, and reads the
    /// acknowledgments.
    ///
    /// Without `CAP_NET_ADMIN` in the initial user namespace, the length is limited to
    /// about twice `net.core.wmem_max`.
    /// An nfnetlink batch starts with `NFNL_MSG_BATCH_BEGIN` and ends with
    /// `NFNL_MSG_BATCH_END`. Sequence numbers must start at [`sequence`](Self::sequence).
    /// Only the last message before the end should have `NLM_F_ACK`: the kernel reports
    /// errors anyway, and about 250 acknowledgments fill the receive buffer.
    ///
    /// # Errors
    ///
    /// After an error nothing was sent. Errors after sending are part of the
    /// [`Outcome`].
    ///
    /// - [`Error::Decode`]: the batch is malformed, or no message has `NLM_F_ACK`.
    /// - [`Error::BatchTooLarge`]: the send buffer cannot grow to the length of the batch.
    /// - [`Error::Io`]: a system call failed.
    pub fn batch(&mut self, batch: &[u8]) -> Result<Outcome, Error> {
        self.batch_with(batch, send_once)
    }

    /// Sends an atomic batch like [`batch`](Self::batch), but by calling `send`.
    ///
    /// `send` must send the bytes as one datagram and return their number.
    /// `send` is called again after it returns [`io::ErrorKind::Interrupted`].
    ///
    /// # Errors
    ///
    /// The errors of [`batch`](Self::batch).
    pub fn batch_with(
        &mut self,
        batch: &[u8],
        send: impl FnMut(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
    ) -> Result<Outcome, Error> {
        let mut acks = AckTracker::of_batch(batch, self.port_id())?;
        let failure = self.send_and_collect(batch, send, &mut acks, |_| {})?;
        Ok(acks.into_outcome(failure))
    }

    /// Sends an atomic batch like [`batch`](Self::batch), and calls `each` for every
    /// notification that a message with `NLM_F_ECHO` requested.
    ///
    /// Notifications arrive before the acknowledgments and share the receive buffer with
    /// them. Request only as many as fit.
    ///
    /// # Errors
    ///
    /// The errors of [`batch`](Self::batch).
    pub fn batch_with_echo(
        &mut self,
        batch: &[u8],
        mut each: impl FnMut(Message<'_>),
    ) -> Result<Outcome, Error> {
        let mut acks = AckTracker::of_batch(batch, self.port_id())?;
        let port_id = self.port_id();
        let failure = self.send_and_collect(batch, send_once, &mut acks, |datagram| {
            for message in Messages::new(datagram).map_while(Result::ok) {
                if message.port_id == port_id && matches!(message.content(), Ok(Content::Data)) {
                    each(message);
                }
            }
        })?;
        Ok(acks.into_outcome(failure))
    }

    /// Sends independent messages in one datagram, and returns the errors of the
    /// rejected ones.
    ///
    /// Sequence numbers must start at [`sequence`](Self::sequence), and only the last
    /// message should have `NLM_F_ACK`.
    pub(crate) fn send_independent(&mut self, messages: &[u8]) -> Result<Vec<KernelError>, Error> {
        let mut acks = AckTracker::of_requests(messages, self.port_id())?;
        let failure = self.send_and_collect(messages, send_once, &mut acks, |_| {})?;
        acks.into_errors(failure)
    }

    /// Sends messages and collects their acknowledgments. Calls `each` for every received
    /// datagram.
    ///
    /// Returns the error that ended the reception early, if any.
    fn send_and_collect(
        &mut self,
        messages: &[u8],
        send: impl FnMut(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
        acks: &mut AckTracker,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Option<Error>, Error> {
        self.reserve_send_buffer(messages.len())?;
        self.reserve_recv_buffer(acks.count())?;
        self.send(messages, send)?;
        self.sequence = acks.next_sequence();
        let mut failure = None;
        for _ in 0..MAX_DATAGRAMS {
            if acks.is_complete() {
                break;
            }
            // After an overrun, received acknowledgments may still contain errors.
            let wait = match failure {
                None => RecvFlags::empty(),
                Some(_) => RecvFlags::DONTWAIT,
            };
            match self.receive_acks(wait, acks) {
                Ok(()) => each(&self.datagram),
                Err(Error::Overrun) => failure = Some(Error::Overrun),
                Err(error) => {
                    failure = failure.or(Some(error));
                    break;
                }
            }
        }
        Ok(failure)
    }

    /// Receives one datagram of acknowledgments.
    fn receive_acks(&mut self, wait: RecvFlags, acks: &mut AckTracker) -> Result<(), Error> {
        self.receive(wait)?;
        Ok(acks.receive(&self.datagram)?)
    }

    /// Sends a request, and calls `each` for every message of the reply.
    ///
    /// Returns whether a change interrupted the dump.
    fn exchange<E: From<Error>>(
        &mut self,
        ty: u16,
        flags: u16,
        payload: &[u8],
        mut each: impl FnMut(Message<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let seq = self.sequence;
        self.sequence = seq.wrapping_add(1);
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        let start = begin(&mut request, ty, NLM_F_REQUEST | flags, seq);
        request.extend_from_slice(payload);
        end(&mut request, start);
        let sent = self
            .reserve_send_buffer(request.len())
            .and_then(|()| self.send(&request, send_once));
        self.request = request;
        sent?;

        let (mut reply, mut first_error) = (ReplyTracker::new(seq, self.port_id()), None);
        for _ in 0..MAX_DATAGRAMS {
            let received = self.receive(RecvFlags::empty()).and_then(|()| {
                reply.receive(&self.datagram, |message| {
                    if first_error.is_none() {
                        first_error = each(message).err();
                    }
                })
            });
            if let Err(error) = received {
                self.drain();
                return Err(error.into());
            }
            if reply.is_complete() {
                return first_error.map_or(Ok(reply.is_interrupted()), Err);
            }
        }
        Err(Error::Timeout.into())
    }

    /// Reads and drops the rest of a reply after an error.
    ///
    /// The kernel rejects a dump while another one of the same socket is unfinished.
    fn drain(&mut self) {
        for _ in 0..MAX_DATAGRAMS {
            match self.receive(RecvFlags::DONTWAIT) {
                Ok(()) | Err(Error::Overrun | Error::Truncated { .. }) => {}
                Err(_) => return,
            }
        }
    }

    /// Grows the send buffer if it is too small for `bytes`.
    ///
    /// More than twice `net.core.wmem_max` requires `CAP_NET_ADMIN` in the initial user
    /// namespace.
    fn reserve_send_buffer(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.limit {
            return Ok(());
        }
        // The kernel doubles the requested size, in a signed integer.
        let half = bytes
            .saturating_add(RESERVED)
            .div_ceil(2)
            .min(i32::MAX as usize / 2);
        if sockopt::set_socket_send_buffer_size_force(self.as_fd(), half).is_err() {
            sockopt::set_socket_send_buffer_size(self.as_fd(), half)
                .map_err(failed("grow the send buffer of a netlink socket"))?;
        }
        self.limit = send_limit(self.as_fd())?;
        if bytes <= self.limit {
            Ok(())
        } else {
            Err(Error::BatchTooLarge {
                bytes,
                limit: self.limit,
            })
        }
    }

    /// Grows the receive buffer if the errors of all messages do not fit.
    ///
    /// The kernel drops acknowledgments that do not fit, and the rejected messages have no
    /// names then. A buffer that cannot grow is no reason not to send.
    fn reserve_recv_buffer(&mut self, messages: usize) -> Result<(), Error> {
        let bytes = messages.saturating_mul(ACKNOWLEDGMENT).min(MAX_RECV_BUFFER);
        if bytes > self.recv_buffer {
            if recv_buffer_size(self.as_fd())? < bytes {
                let _ = self.set_recv_buffer_size(bytes);
            }
            self.recv_buffer = bytes;
        }
        Ok(())
    }

    /// Sends one datagram by calling `send` until no signal interrupts the call.
    fn send(
        &mut self,
        datagram: &[u8],
        mut send: impl FnMut(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
    ) -> Result<(), Error> {
        let is_signal = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
        let mut result = send(self.as_fd(), datagram);
        for _ in 1..MAX_INTERRUPTED_CALLS {
            if !result.as_ref().is_err_and(is_signal) {
                break;
            }
            result = send(self.as_fd(), datagram);
        }
        result.map_err(io_error("send to the kernel"))?;
        self.counters.add_sent(datagram);
        Ok(())
    }

    /// Receives one datagram into `self.datagram`.
    fn receive(&mut self, wait: RecvFlags) -> Result<(), Error> {
        let received = receive(self.descriptor.as_fd(), &mut self.datagram, wait);
        if matches!(received, Ok(()) | Err(Error::Truncated { .. })) {
            self.counters.receives += 1;
        }
        received
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Sends one datagram.
fn send_once(socket: BorrowedFd<'_>, datagram: &[u8]) -> io::Result<usize> {
    let datagram = [IoSlice::new(datagram)];
    let mut ancillary = SendAncillaryBuffer::default();
    let sent = sendmsg(socket, &datagram, &mut ancillary, SendFlags::empty());
    sent.map_err(io::Error::from)
}

/// Returns the size of the receive buffer, in bytes.
fn recv_buffer_size(socket: BorrowedFd<'_>) -> Result<usize, Error> {
    sockopt::socket_recv_buffer_size(socket)
        .map_err(failed("read the receive buffer size of a netlink socket"))
}

/// Returns the maximum length of a datagram to send, in bytes.
fn send_limit(socket: BorrowedFd<'_>) -> Result<usize, Error> {
    sockopt::socket_send_buffer_size(socket)
        .map(|size| size.saturating_sub(RESERVED))
        .map_err(failed("read the send buffer size of a netlink socket"))
}

#[cfg(test)]
mod tests;
