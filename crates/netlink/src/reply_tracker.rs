//! Replies to one request.

use crate::message::{Content, Message, Messages};
use crate::{Error, KernelError};

/// Tracks the reply to one request or dump, without IO.
///
/// [`Socket`](crate::Socket) uses the tracker. A program with a socket of its own, such as
/// an async program, sends the request, and passes every datagram that it receives to
/// [`receive`](Self::receive) until the tracker is complete.
///
/// ```
/// use vipline_netlink::message::{NLM_F_DUMP, NLM_F_REQUEST, begin, end};
/// use vipline_netlink::{Error, ReplyTracker};
///
/// /// Counts the links in the datagrams that `receive` returns.
/// fn count(seq: u32, port_id: u32, mut receive: impl FnMut() -> Vec<u8>) -> Result<usize, Error> {
///     let (mut reply, mut count) = (ReplyTracker::new(seq, port_id), 0);
///     while !reply.is_complete() {
///         reply.receive(&receive(), |_link| count += 1)?;
///     }
///     assert!(!reply.is_interrupted(), "repeat the dump");
///     Ok(count)
/// }
/// # let mut datagram = Vec::new();
/// # for ty in [16, 16, 3] {
/// #     let start = begin(&mut datagram, ty, 0, 7);
/// #     end(&mut datagram, start);
/// # }
/// # assert_eq!(count(7, 0, || datagram.clone())?, 2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReplyTracker {
    seq: u32,
    port_id: u32,
    is_interrupted: bool,
    is_complete: bool,
}

impl ReplyTracker {
    /// Tracks the reply to the request with this sequence number.
    ///
    /// `port_id` is that of the socket that sends the request. The request must have
    /// `NLM_F_ACK` or `NLM_F_DUMP`, so that the reply has an end.
    pub fn new(seq: u32, port_id: u32) -> Self {
        Self {
            seq,
            port_id,
            is_interrupted: false,
            is_complete: false,
        }
    }

    /// Reads a received datagram, and calls `each` for every message of the reply.
    ///
    /// Ignores messages of other requests.
    ///
    /// # Errors
    ///
    /// - [`Error::Kernel`]: the kernel rejected the request, or the dump failed. The reply
    ///   is complete.
    /// - [`Error::Decode`]: the datagram is malformed.
    /// - [`Error::Overrun`]: the kernel reports lost data (`NLMSG_OVERRUN`).
    pub fn receive(
        &mut self,
        datagram: &[u8],
        mut each: impl FnMut(Message<'_>),
    ) -> Result<(), Error> {
        for message in Messages::new(datagram) {
            let message = message?;
            if message.seq != self.seq || !self.is_for_socket(&message)? {
                continue;
            }
            self.is_interrupted |= message.is_interrupted();
            match message.content()? {
                Content::Data => each(message),
                Content::Noop => {}
                Content::Overrun => return Err(Error::Overrun),
                Content::Done(ack) | Content::Ack(ack) => {
                    self.is_complete = true;
                    return match ack.errno {
                        None => Ok(()),
                        Some(errno) => Err(KernelError::new(self.seq, errno, ack).into()),
                    };
                }
            }
        }
        Ok(())
    }

    /// Returns whether a message is for the socket.
    ///
    /// Objects of `nfnetlink_hook` have port ID 0: it reads the ID of the reply that it writes
    /// (`nfnl_hook_dump_one` of `net/netfilter/nfnetlink_hook.c`, as of Linux 6.12).
    fn is_for_socket(&self, message: &Message<'_>) -> Result<bool, Error> {
        let is_object = || Ok::<_, Error>(matches!(message.content()?, Content::Data));
        Ok(message.port_id == self.port_id || message.port_id == 0 && is_object()?)
    }

    /// Returns whether the end of the reply was received.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns whether a change interrupted the dump (`NLM_F_DUMP_INTR`). Its objects may
    /// be inconsistent.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use crate::message::{begin, end};

    /// Encodes a message of port ID 0.
    fn message(out: &mut Vec<u8>, ty: u16, flags: u16, seq: u32, payload: &[u8]) {
        let start = begin(out, ty, flags, seq);
        out.extend_from_slice(payload);
        end(out, start);
    }

    #[test]
    fn a_reply_ends_with_its_own_acknowledgment() {
        let mut datagram = Vec::new();
        message(&mut datagram, 16, 0x10, 7, &[1; 4]);
        message(&mut datagram, 16, 0, 6, &[2; 4]);
        message(&mut datagram, 3, 0, 6, &[]);
        let (mut reply, mut read) = (ReplyTracker::new(7, 0), Vec::new());
        reply
            .receive(&datagram, |message| read.push(message.payload.to_vec()))
            .unwrap();
        assert_eq!(read, [vec![1; 4]]);
        assert!(reply.is_interrupted() && !reply.is_complete());
        let mut rest = Vec::new();
        message(&mut rest, 3, 0, 7, &[]);
        reply.receive(&rest, |_| panic!("no object")).unwrap();
        assert!(reply.is_complete());
    }

    #[test]
    fn objects_of_port_0_belong_to_the_reply() {
        let mut datagram = Vec::new();
        message(&mut datagram, 3072, 0, 7, &[1; 4]);
        message(&mut datagram, 3072, 0, 6, &[2; 4]);
        message(&mut datagram, 3, 0, 7, &[]);
        let (mut reply, mut read) = (ReplyTracker::new(7, 1), Vec::new());
        reply
            .receive(&datagram, |message| read.push(message.payload.to_vec()))
            .unwrap();
        assert_eq!(read, [vec![1; 4]]);
        assert!(!reply.is_complete(), "the end has the port of the socket");
    }

    #[test]
    fn an_error_completes_the_reply() {
        let mut datagram = Vec::new();
        message(&mut datagram, 2, 0, 7, &(-2_i32).to_ne_bytes());
        let mut reply = ReplyTracker::new(7, 0);
        let error = reply.receive(&datagram, |_| ()).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::NOENT));
        assert!(reply.is_complete());
        let mut other = ReplyTracker::new(7, 1);
        other.receive(&datagram, |_| ()).unwrap();
        assert!(!other.is_complete());
    }

    #[test]
    fn lost_data_and_malformed_datagrams_are_errors() {
        let mut datagram = Vec::new();
        message(&mut datagram, 4, 0, 7, &[]);
        let mut reply = ReplyTracker::new(7, 0);
        let lost = reply.receive(&datagram, |_| ());
        assert!(matches!(lost, Err(Error::Overrun)), "{lost:?}");
        let short = reply.receive(&[1, 2, 3], |_| ());
        assert!(matches!(short, Err(Error::Decode(_))), "{short:?}");
    }
}
