//! The socket: one conversation at a time, and no waiting forever.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_sys::SocketAddr;
use rustix::buffer::spare_capacity;
use rustix::io::Errno as SystemErrno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg, sockopt};

use crate::message::{ACK, Content, DUMP, Message, Messages, REQUEST, begin, end};
use crate::outcome::{Answers, Range};
use crate::{Counters, Dump, Error, Outcome, Protocol, Refusal};

/// How long an answer is waited for unless told otherwise.
///
/// The kernel does the work while the request is being sent, so the answer is
/// there already.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The kernel fills datagrams of a dump up to 32 KiB.
pub(crate) const BUFFER: usize = 64 << 10;

/// What the kernel keeps for itself of a send buffer (`netlink_sendmsg`).
const RESERVED: usize = 32;

/// More datagrams than any dump has.
const DATAGRAMS: usize = 1 << 20;

/// How many signals may disturb one system call.
const SIGNALS: usize = 64;

/// A netlink socket that talks to the kernel.
///
/// It stays in the network namespace in which it was opened.
/// Keep it: a change made on a new socket takes milliseconds, on one that was
/// used before it takes microseconds.
#[derive(Debug)]
pub struct Socket {
    inner: netlink_sys::Socket,
    port: u32,
    /// The sequence number of the next message.
    sequence: u32,
    /// How many bytes can be sent at once.
    limit: usize,
    request: Vec<u8>,
    datagram: Vec<u8>,
    counters: Counters,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the kernel lacks the protocol, or has no room.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let mut inner = netlink_sys::Socket::new(protocol.number())
            .map_err(io_error("open a netlink socket"))?;
        let address = inner
            .bind_auto()
            .map_err(io_error("bind a netlink socket"))?;
        // Connected, nobody but the kernel can send to it.
        inner
            .connect(&SocketAddr::new(0, 0))
            .map_err(io_error("connect a netlink socket"))?;
        // Kernels without these answer in fewer words, or longer ones.
        let _ = inner.set_ext_ack(true);
        let _ = inner.set_cap_ack(true);
        let limit = send_limit(inner.as_fd())?;
        let socket = Self {
            inner,
            port: address.port_number(),
            sequence: 1,
            limit,
            request: Vec::new(),
            datagram: Vec::with_capacity(BUFFER),
            counters: Counters::default(),
        };
        socket.set_timeout(TIMEOUT)?;
        Ok(socket)
    }

    /// Sets how long an answer is waited for: ten seconds, unless told here.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when `timeout` is zero.
    pub fn set_timeout(&self, timeout: Duration) -> Result<(), Error> {
        sockopt::set_socket_timeout(self.as_fd(), sockopt::Timeout::Recv, Some(timeout))
            .map_err(failed("set the timeout of a netlink socket"))
    }

    /// Has the kernel heed filters of dumps of rtnetlink, which it ignores else.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the kernel is older than Linux 4.20.
    pub fn filter_dumps(&mut self) -> Result<(), Error> {
        self.inner
            .set_netlink_get_strict_chk(true)
            .map_err(io_error("have dumps of a netlink socket filtered"))
    }

    /// Returns the sequence number that the next batch has to begin with.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Returns the port by which the kernel tells this socket from others.
    ///
    /// Messages about what was done by way of it carry the port.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Returns what the socket has done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sends one request, and gives each message of the answer to `each`.
    ///
    /// `flags` are added to `NLM_F_REQUEST | NLM_F_ACK`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] when the kernel refuses, the first error of `each`
    /// once the answer is read to its end, and all that reading can meet.
    pub fn request<E: From<Error>>(
        &mut self,
        ty: u16,
        flags: u16,
        payload: &[u8],
        each: impl FnMut(Message<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.converse(ty, flags | ACK, payload, each)?;
        Ok(())
    }

    /// Asks for all objects, and folds the messages of the answer into a value.
    ///
    /// An attempt begins with the value of `start`; when the kernel says that
    /// its state changed meanwhile, it is given up for another, at most
    /// `attempts` in all, at least one.
    /// The answer is read in pieces: no more than a datagram of it is held.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] when the kernel refuses, the first error of `each`
    /// once the answer is read to its end, and all that reading can meet.
    pub fn dump<T, E: From<Error>>(
        &mut self,
        ty: u16,
        payload: &[u8],
        attempts: usize,
        mut start: impl FnMut() -> T,
        mut each: impl FnMut(&mut T, Message<'_>) -> Result<(), E>,
    ) -> Result<Dump<T>, E> {
        let mut attempt = 1;
        loop {
            let mut value = start();
            let state = self.converse(ty, DUMP, payload, |message| each(&mut value, message))?;
            match state {
                State::Same => return Ok(Dump::Complete(value)),
                State::Changed if attempt >= attempts => return Ok(Dump::Interrupted(value)),
                State::Changed => attempt += 1,
            }
        }
    }

    /// Sends a whole batch at once, however long it is, and reads the answers.
    ///
    /// A batch of nfnetlink begins with `NFNL_MSG_BATCH_BEGIN` and ends with
    /// `NFNL_MSG_BATCH_END`, its messages are numbered from
    /// [`sequence`](Self::sequence) on, and the last one before the end alone
    /// should have `NLM_F_ACK`: refusals come back anyway, and some 250
    /// acknowledgements fill the socket's buffer.
    ///
    /// # Errors
    ///
    /// Nothing was sent: the batch is no batch, is too large, or the system
    /// would not send it.
    pub fn batch(&mut self, batch: &[u8]) -> Result<Outcome, Error> {
        self.batch_by(batch, send_once)
    }

    /// Does what [`batch`](Self::batch) does, but has the bytes sent by `send`.
    ///
    /// It sends them as one datagram and tells how many they were, and is called
    /// again after a signal.
    ///
    /// # Errors
    ///
    /// Those of [`batch`](Self::batch).
    pub fn batch_by(
        &mut self,
        batch: &[u8],
        send: impl FnMut(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
    ) -> Result<Outcome, Error> {
        let mut answers = Answers::new(Range::of(batch)?);
        let failure = self.gather(batch, send, &mut answers)?;
        Ok(answers.conclude(failure))
    }

    /// Sends messages that the kernel takes one by one, and returns the refusals.
    ///
    /// What it does not refuse is done, whatever becomes of the rest.
    /// The messages are numbered from [`sequence`](Self::sequence) on, and the
    /// last one alone should have `NLM_F_ACK`.
    /// Refusals of some 250 messages fill the socket's buffer, so no more
    /// should be sent at once.
    ///
    /// # Errors
    ///
    /// Nothing was sent, as with [`batch`](Self::batch); or answers were lost or
    /// did not come in time, and what is done is not known.
    pub fn series(&mut self, series: &[u8]) -> Result<Vec<Refusal>, Error> {
        let mut answers = Answers::to_series(Range::of(series)?);
        let failure = self.gather(series, send_once, &mut answers)?;
        answers.into_refusals(failure)
    }

    /// Sends messages and gathers the answers; tells why that ended early.
    fn gather(
        &mut self,
        messages: &[u8],
        send: impl FnMut(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
        answers: &mut Answers,
    ) -> Result<Option<Error>, Error> {
        self.make_room(messages.len())?;
        self.send(messages, send)?;
        self.sequence = answers.range().next();
        let mut failure = None;
        for _ in 0..DATAGRAMS {
            if answers.is_complete() {
                break;
            }
            // Once an answer is lost, those that are there already may still tell more.
            let wait = match failure {
                None => RecvFlags::empty(),
                Some(_) => RecvFlags::DONTWAIT,
            };
            match self.answers(wait, answers) {
                Ok(()) => {}
                Err(Error::Overrun) => failure = Some(Error::Overrun),
                Err(error) => {
                    failure = failure.or(Some(error));
                    break;
                }
            }
        }
        Ok(failure)
    }

    /// Reads one datagram of answers to a batch.
    fn answers(&mut self, wait: RecvFlags, answers: &mut Answers) -> Result<(), Error> {
        self.receive(wait)?;
        for message in Messages::new(&self.datagram) {
            let message = message?;
            if message.port != self.port {
                continue;
            }
            if let Content::Answer(answer) = message.content()? {
                answers.take(message.seq, answer);
            }
        }
        Ok(())
    }

    /// Sends a request, reads its answer to the end and hands its data over.
    fn converse<E: From<Error>>(
        &mut self,
        ty: u16,
        flags: u16,
        payload: &[u8],
        mut each: impl FnMut(Message<'_>) -> Result<(), E>,
    ) -> Result<State, E> {
        let seq = self.sequence;
        self.sequence = seq.wrapping_add(1);
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        let start = begin(&mut request, ty, REQUEST | flags, seq);
        request.extend_from_slice(payload);
        end(&mut request, start);
        let sent = self
            .make_room(request.len())
            .and_then(|()| self.send(&request, send_once));
        self.request = request;
        sent?;

        let (mut state, mut first_error) = (State::Same, None);
        for _ in 0..DATAGRAMS {
            let flow = self.listen(seq, &mut state, |message| {
                if first_error.is_none() {
                    first_error = each(message).err();
                }
            });
            match flow {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return first_error.map_or(Ok(state), Err),
                Err(error) => {
                    self.drain();
                    return Err(error.into());
                }
            }
        }
        Err(Error::Timeout.into())
    }

    /// Reads one datagram, and tells whether it ends the answer to `seq`.
    fn listen(
        &mut self,
        seq: u32,
        state: &mut State,
        mut each: impl FnMut(Message<'_>),
    ) -> Result<ControlFlow<()>, Error> {
        self.receive(RecvFlags::empty())?;
        for message in Messages::new(&self.datagram) {
            let message = message?;
            if message.port != self.port || message.seq != seq {
                continue;
            }
            if message.is_interrupted() {
                *state = State::Changed;
            }
            match message.content()? {
                Content::Data => each(message),
                Content::Noop => {}
                Content::Overrun => return Err(Error::Overrun),
                Content::Done(answer) | Content::Answer(answer) => {
                    return match answer.errno {
                        None => Ok(ControlFlow::Break(())),
                        Some(errno) => Err(Refusal::new(seq, errno, answer).into()),
                    };
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads what is left of a conversation that failed.
    ///
    /// A dump that was given up in the middle would make the kernel refuse the
    /// next one.
    fn drain(&mut self) {
        for _ in 0..DATAGRAMS {
            match self.receive(RecvFlags::DONTWAIT) {
                Ok(()) | Err(Error::Overrun | Error::Truncated { .. }) => {}
                Err(_) => return,
            }
        }
    }

    /// Grows the send buffer when `bytes` do not fit into it.
    ///
    /// Only the administrator of the initial user namespace may have more than
    /// `net.core.wmem_max`.
    fn make_room(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.limit {
            return Ok(());
        }
        // The kernel doubles what it is asked for, in a signed number.
        let half = bytes
            .saturating_add(RESERVED)
            .div_ceil(2)
            .min(i32::MAX as usize / 2);
        if sockopt::set_socket_send_buffer_size_force(self.as_fd(), half).is_err() {
            sockopt::set_socket_send_buffer_size(self.as_fd(), half)
                .map_err(failed("grow the buffer of a netlink socket"))?;
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

    /// Sends one datagram by this function, despite signals.
    fn send(
        &mut self,
        datagram: &[u8],
        mut send: impl FnMut(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
    ) -> Result<(), Error> {
        let is_signal = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
        let mut result = send(self.as_fd(), datagram);
        for _ in 1..SIGNALS {
            if !result.as_ref().is_err_and(is_signal) {
                break;
            }
            result = send(self.as_fd(), datagram);
        }
        result.map_err(io_error("send to the kernel"))?;
        self.counters.sent(datagram);
        Ok(())
    }

    /// Receives one datagram into the buffer.
    fn receive(&mut self, wait: RecvFlags) -> Result<(), Error> {
        let received = receive(self.inner.as_fd(), &mut self.datagram, wait);
        if matches!(received, Ok(()) | Err(Error::Truncated { .. })) {
            self.counters.receives += 1;
        }
        received
    }
}

/// Receives one datagram into a buffer, which does not grow.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    datagram: &mut Vec<u8>,
    wait: RecvFlags,
) -> Result<(), Error> {
    let limit = datagram.capacity();
    let mut result = Err(SystemErrno::INTR);
    for _ in 0..SIGNALS {
        datagram.clear();
        let room = spare_capacity(datagram);
        result = recv(socket, room, wait | RecvFlags::TRUNC).map(|(_, bytes)| bytes);
        if result != Err(SystemErrno::INTR) {
            break;
        }
    }
    match result {
        Ok(bytes) if bytes > limit => Err(Error::Truncated { bytes, limit }),
        Ok(_) => Ok(()),
        Err(SystemErrno::AGAIN) => Err(Error::Timeout),
        Err(SystemErrno::NOBUFS) => Err(Error::Overrun),
        Err(errno) => Err(failed("receive from the kernel")(errno)),
    }
}

/// What happened to the kernel's state while an answer was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Changed,
    Same,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// Sends one datagram by one system call.
fn send_once(socket: BorrowedFd<'_>, datagram: &[u8]) -> io::Result<usize> {
    let datagram = [IoSlice::new(datagram)];
    let mut ancillary = SendAncillaryBuffer::default();
    let sent = sendmsg(socket, &datagram, &mut ancillary, SendFlags::empty());
    sent.map_err(io::Error::from)
}

/// Returns how many bytes the socket can send at once.
fn send_limit(socket: BorrowedFd<'_>) -> Result<usize, Error> {
    sockopt::socket_send_buffer_size(socket)
        .map(|size| size.saturating_sub(RESERVED))
        .map_err(failed("read the buffer size of a netlink socket"))
}

/// Names what failed.
fn io_error(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { operation, source }
}

/// Names what the system failed at.
pub(crate) fn failed(operation: &'static str) -> impl Fn(SystemErrno) -> Error {
    move |errno| Error::Io {
        operation,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests;
