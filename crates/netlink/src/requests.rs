//! Independent requests, many per datagram.

use crate::message::{NLM_F_ACK, NLM_F_REQUEST, begin, end};
use crate::{Error, KernelError, Rejected, Socket};

impl Socket {
    /// Maximum number of requests in one datagram of
    /// [`request_many`](Self::request_many).
    ///
    /// The errors of all requests fit into the receive buffer.
    pub const MAX_REQUESTS: usize = 128;

    /// Sends independent requests, up to 128 per system call, and returns the number of
    /// accepted ones.
    ///
    /// `encode` appends the payload of a request, and returns the message type and the
    /// flags in addition to `NLM_F_REQUEST`. Only the last request of a datagram has
    /// `NLM_F_ACK`, because the kernel reports errors anyway.
    /// `rejected` is called for each rejected request, in the order of the requests. The
    /// kernel executes the requests after a rejected one.
    ///
    /// ```no_run
    /// use vipline_netlink::{Error, Protocol, Socket};
    ///
    /// const RTM_DELLINK: u16 = 17;
    ///
    /// let mut socket = Socket::open(Protocol::ROUTE)?;
    /// let deleted = socket.request_many(
    ///     [7_i32, 8, 9],
    ///     |index, payload| {
    ///         payload.extend_from_slice(&[0; 4]);
    ///         payload.extend_from_slice(&index.to_ne_bytes());
    ///         payload.extend_from_slice(&[0; 8]);
    ///         (RTM_DELLINK, 0)
    ///     },
    ///     |rejected| {
    ///         println!("link {}: {}", rejected.request, rejected.reason());
    ///         Ok::<(), Error>(())
    ///     },
    /// )?;
    /// println!("{deleted} links deleted");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - The first error of `rejected`. Requests of later datagrams are not sent.
    /// - [`Error::Overrun`], [`Error::Timeout`], [`Error::Truncated`]: acknowledgments
    ///   are missing. Requests may have been executed.
    /// - [`Error::BatchTooLarge`], [`Error::Decode`], [`Error::Io`]: a datagram was not
    ///   sent, or a reply could not be read. Requests may have been executed.
    pub fn request_many<T, E: From<Error>>(
        &mut self,
        requests: impl IntoIterator<Item = T>,
        mut encode: impl FnMut(&T, &mut Vec<u8>) -> (u16, u16),
        mut rejected: impl FnMut(Rejected<T>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let (mut requests, mut accepted) = (requests.into_iter(), 0);
        let mut datagram = Vec::new();
        loop {
            let sent: Vec<T> = requests.by_ref().take(Self::MAX_REQUESTS).collect();
            if sent.is_empty() {
                return Ok(accepted);
            }
            let (first, count) = (self.sequence(), sent.len());
            encode_all(&sent, first, &mut encode, &mut datagram);
            let errors = self.send_independent(&datagram)?;
            accepted += count - errors.len().min(count);
            for one in match_errors(sent, first, errors) {
                rejected(one)?;
            }
        }
    }
}

/// Replaces `out` by requests with consecutive sequence numbers. The last one has
/// `NLM_F_ACK`.
fn encode_all<T>(
    requests: &[T],
    first: u32,
    encode: &mut impl FnMut(&T, &mut Vec<u8>) -> (u16, u16),
    out: &mut Vec<u8>,
) {
    out.clear();
    let (mut payload, mut seq) = (Vec::new(), first);
    for (index, request) in requests.iter().enumerate() {
        payload.clear();
        let (ty, flags) = encode(request, &mut payload);
        let is_last = index + 1 == requests.len();
        let ack = if is_last { NLM_F_ACK } else { 0 };
        let start = begin(out, ty, NLM_F_REQUEST | flags | ack, seq);
        out.extend_from_slice(&payload);
        end(out, start);
        seq = seq.wrapping_add(1);
    }
}

/// Returns the requests that have errors. The sequence number `first` is that of the
/// first request.
fn match_errors<T>(
    requests: Vec<T>,
    first: u32,
    errors: Vec<KernelError>,
) -> impl Iterator<Item = Rejected<T>> {
    let mut requests: Vec<_> = requests.into_iter().map(Some).collect();
    errors.into_iter().filter_map(move |error| {
        let index = usize::try_from(error.seq.wrapping_sub(first)).ok()?;
        let request = requests.get_mut(index)?.take()?;
        Some(Rejected::from_kernel(request, error))
    })
}

#[cfg(test)]
mod tests {
    use testkit::netns::Netns;

    use super::*;
    use crate::message::{Ack, Messages, NLM_F_CREATE};
    use crate::{Errno, Protocol};

    fn errors(seqs: &[u32]) -> Vec<KernelError> {
        let error = |seq: &u32| KernelError::new(*seq, Errno::EXIST, Ack::default());
        seqs.iter().map(error).collect()
    }

    fn rejected(first: u32, seqs: &[u32]) -> Vec<char> {
        let requests = vec!['a', 'b', 'c'];
        match_errors(requests, first, errors(seqs))
            .map(|one| one.request)
            .collect()
    }

    #[test]
    fn only_the_last_request_of_a_datagram_requests_an_acknowledgment() {
        let mut encode = |request: &u16, payload: &mut Vec<u8>| {
            payload.extend_from_slice(&request.to_be_bytes());
            (*request, NLM_F_CREATE)
        };
        let mut datagram = vec![1];
        encode_all(&[5, 6, 7], u32::MAX, &mut encode, &mut datagram);
        let messages: Vec<_> = Messages::new(&datagram).map(Result::unwrap).collect();
        let headers: Vec<_> = messages
            .iter()
            .map(|it| (it.ty, it.flags, it.seq))
            .collect();
        let flags = NLM_F_REQUEST | NLM_F_CREATE;
        let expected = [
            (5, flags, u32::MAX),
            (6, flags, 0),
            (7, flags | NLM_F_ACK, 1),
        ];
        assert_eq!(headers, expected);
        assert_eq!(messages[1].payload, [0, 6]);
    }

    #[test]
    fn errors_are_matched_by_sequence_number() {
        assert_eq!(rejected(10, &[]), []);
        assert_eq!(rejected(10, &[11]), ['b']);
        assert_eq!(rejected(10, &[10, 12]), ['a', 'c']);
        assert_eq!(rejected(u32::MAX, &[u32::MAX, 1]), ['a', 'c']);
    }

    #[test]
    fn errors_of_other_messages_are_dropped() {
        assert_eq!(rejected(10, &[9, 13]), []);
        assert_eq!(rejected(10, &[11, 11]), ['b']);
    }

    /// A socket in a new network namespace.
    fn open() -> Socket {
        let netns = Netns::new().unwrap();
        netns.run(|| Socket::open(Protocol::ROUTE)).unwrap()
    }

    /// Encodes a change of the link with this index: `RTM_NEWLINK`, `struct ifinfomsg`.
    fn change_link(index: &i32, payload: &mut Vec<u8>) -> (u16, u16) {
        payload.extend_from_slice(&[0; 4]);
        payload.extend_from_slice(&index.to_ne_bytes());
        payload.extend_from_slice(&[0; 8]);
        (16, 0)
    }

    #[test]
    fn three_hundred_requests_are_three_sends() {
        let mut socket = open();
        let mut rejected = 0;
        let accepted = socket.request_many([1; 300], change_link, |_| {
            rejected += 1;
            Ok::<(), Error>(())
        });
        assert_eq!((accepted.unwrap(), rejected), (300, 0));
        let counters = socket.counters();
        assert_eq!((counters.sends, counters.messages), (3, 300));
        let none = socket.request_many([], change_link, |_| Ok::<(), Error>(()));
        assert_eq!((none.unwrap(), socket.counters().sends), (0, 3));
    }

    #[test]
    fn an_error_of_the_caller_ends_the_requests_after_one_datagram() {
        let mut socket = open();
        let missing = [999; 300];
        let ended = socket.request_many(missing, change_link, |one| {
            Err(Error::from(KernelError::new(0, one.errno, Ack::default())))
        });
        assert_eq!(ended.unwrap_err().errno(), Some(Errno::NODEV));
        assert_eq!(socket.counters().messages, 128);
        let next = socket.request_many([1], change_link, |_| Ok::<(), Error>(()));
        assert_eq!(next.unwrap(), 1);
    }
}
