//! Acknowledgments of several messages.

use crate::message::Content;
use crate::{DecodeError, Error, KernelError, Outcome, message};

/// The sequence numbers of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct SeqRange {
    first: u32,
    /// Sequence number of the last message with `NLM_F_ACK`, which is acknowledged last.
    last_ack: u32,
    last: u32,
}

impl SeqRange {
    /// Returns the sequence numbers of a batch.
    ///
    /// # Errors
    ///
    /// A message is malformed, or none has `NLM_F_ACK`.
    fn of(batch: &[u8]) -> Result<Self, DecodeError> {
        let no_batch =
            || DecodeError::new("batch with a message that has NLM_F_ACK", 0, batch.len());
        let (mut first, mut last, mut last_ack) = (None, 0, None);
        for message in message::Messages::new(batch) {
            let message = message?;
            first = first.or(Some(message.seq));
            last = message.seq;
            if message.flags & message::NLM_F_ACK != 0 {
                last_ack = Some(message.seq);
            }
        }
        let first = first.ok_or_else(no_batch)?;
        Ok(Self {
            first,
            last_ack: last_ack.ok_or_else(no_batch)?,
            last,
        })
    }

    /// Returns the sequence number after the last one of the batch.
    fn next(self) -> u32 {
        self.last.wrapping_add(1)
    }

    fn contains(self, seq: u32) -> bool {
        seq.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }
}

/// Tracks the acknowledgments of messages that were sent, without IO.
///
/// [`Socket`](crate::Socket) uses the tracker. A program with a socket of its own, such as
/// an async program, sends the messages by one system call, and passes every
/// datagram that it receives to [`receive`](Self::receive) until the tracker is complete.
///
/// ```
/// use vipline_netlink::message::{NLM_F_ACK, NLM_F_REQUEST, begin, end};
/// use vipline_netlink::{AckTracker, Errno};
///
/// /// Returns the requests that the kernel rejected. `exchange` sends and receives.
/// fn rejected(
///     requests: &[u8],
///     port_id: u32,
///     mut exchange: impl FnMut(&[u8]) -> Vec<u8>,
/// ) -> Result<Vec<(u32, Errno)>, vipline_netlink::Error> {
///     let mut acks = AckTracker::of_requests(requests, port_id)?;
///     let mut to_send = requests;
///     while !acks.is_complete() {
///         acks.receive(&exchange(std::mem::take(&mut to_send)))?;
///     }
///     let errors = acks.into_errors(None)?;
///     Ok(errors.iter().map(|error| (error.seq, error.errno)).collect())
/// }
/// # let mut request = Vec::new();
/// # let start = begin(&mut request, 16, NLM_F_REQUEST | NLM_F_ACK, 7);
/// # end(&mut request, start);
/// # // NLMSG_ERROR: the error number and the header of the request.
/// # let mut reply = Vec::new();
/// # let start = begin(&mut reply, 2, 0, 7);
/// # reply.extend((-19_i32).to_ne_bytes());
/// # reply.extend_from_slice(&request);
/// # end(&mut reply, start);
/// # let errors = rejected(&request, 0, |_| reply.clone())?;
/// # assert_eq!(errors, [(7, Errno::NODEV)]);
/// # Ok::<(), vipline_netlink::Error>(())
/// ```
#[derive(Debug)]
pub struct AckTracker {
    port_id: u32,
    range: SeqRange,
    errors: Vec<KernelError>,
    omitted: usize,
    /// Whether an error of the first message rejects all messages.
    is_batch: bool,
    /// Whether the last acknowledgment was received.
    complete: bool,
}

impl AckTracker {
    /// Maximum number of errors to keep; further errors are only counted.
    const MAX_ERRORS: usize = 1024;

    /// Tracks the acknowledgments of an atomic batch, such as an nfnetlink batch.
    ///
    /// `port_id` is that of the socket that sends the batch.
    /// The sequence numbers must be consecutive. Only the last message before the end of
    /// the batch should have `NLM_F_ACK`: the kernel reports errors anyway.
    ///
    /// # Errors
    ///
    /// A message is malformed, or none has `NLM_F_ACK`.
    pub fn of_batch(batch: &[u8], port_id: u32) -> Result<Self, DecodeError> {
        Ok(Self::new(SeqRange::of(batch)?, true, port_id))
    }

    /// Tracks the acknowledgments of independent requests.
    ///
    /// `port_id` is that of the socket that sends the requests.
    /// The sequence numbers must be consecutive. Only the last request should have
    /// `NLM_F_ACK`, or all of them.
    ///
    /// # Errors
    ///
    /// A message is malformed, or none has `NLM_F_ACK`.
    pub fn of_requests(requests: &[u8], port_id: u32) -> Result<Self, DecodeError> {
        Ok(Self::new(SeqRange::of(requests)?, false, port_id))
    }

    fn new(range: SeqRange, is_batch: bool, port_id: u32) -> Self {
        Self {
            port_id,
            range,
            errors: Vec::new(),
            omitted: 0,
            is_batch,
            complete: false,
        }
    }

    /// Returns the number of messages.
    pub(crate) fn count(&self) -> usize {
        self.range.last.wrapping_sub(self.range.first) as usize + 1
    }

    /// Returns the sequence number after the last one of the messages.
    pub fn next_sequence(&self) -> u32 {
        self.range.next()
    }

    /// Returns whether the last acknowledgment was received.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Adds the acknowledgments of a received datagram. Ignores other messages.
    ///
    /// # Errors
    ///
    /// The datagram is malformed. The effect of the messages is unknown: pass the error
    /// to [`into_outcome`](Self::into_outcome) or [`into_errors`](Self::into_errors).
    pub fn receive(&mut self, datagram: &[u8]) -> Result<(), DecodeError> {
        for message in message::Messages::new(datagram) {
            let message = message?;
            if message.port_id != self.port_id {
                continue;
            }
            if let Content::Ack(ack) = message.content()? {
                self.add(message.seq, ack);
            }
        }
        Ok(())
    }

    /// Adds the acknowledgment of message `seq`; ignores those of other batches.
    fn add(&mut self, seq: u32, ack: message::Ack<'_>) {
        if !self.range.contains(seq) {
            return;
        }
        // The kernel reports the rejection of a whole batch for its first message.
        let rejects_all = self.is_batch && ack.errno.is_some() && seq == self.range.first;
        self.complete |= rejects_all || seq == self.range.last_ack;
        let Some(errno) = ack.errno else {
            return;
        };
        if self.errors.len() < Self::MAX_ERRORS {
            self.errors.push(KernelError::new(seq, errno, ack));
        } else {
            self.omitted += 1;
        }
    }

    /// Returns the errors of independent messages.
    ///
    /// `failure` is the error that ended the reception early, if any.
    ///
    /// # Errors
    ///
    /// `failure`, or [`Error::Timeout`] if acknowledgments or errors are missing.
    pub fn into_errors(self, failure: Option<Error>) -> Result<Vec<KernelError>, Error> {
        match failure {
            Some(error) => Err(error),
            None if self.complete && self.omitted == 0 => Ok(self.errors),
            None => Err(Error::Timeout),
        }
    }

    /// Returns the outcome of an atomic batch.
    ///
    /// `failure` is the error that ended the reception early, if any.
    /// One rejected message proves that nothing was applied. The acknowledgment of a
    /// message other than the last proves nothing.
    pub fn into_outcome(self, failure: Option<Error>) -> Outcome {
        match failure {
            _ if !self.errors.is_empty() => Outcome::Rejected {
                errors: self.errors,
                omitted: failure.is_none().then_some(self.omitted),
            },
            Some(error) => Outcome::Unknown(error),
            None if self.complete => Outcome::Committed,
            None => Outcome::Unknown(Error::Timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use crate::message::{Ack, NLM_F_ACK, NLM_F_REQUEST, begin, end};

    /// Returns the sequence numbers of three messages between batch begin and end.
    fn range(first: u32) -> SeqRange {
        let mut batch = Vec::new();
        for (place, flags) in [0, 0, 0, NLM_F_ACK, 0].into_iter().enumerate() {
            let seq = first.wrapping_add(u32::try_from(place).unwrap());
            let start = begin(&mut batch, 0xa00, NLM_F_REQUEST | flags, seq);
            end(&mut batch, start);
        }
        SeqRange::of(&batch).unwrap()
    }

    fn rejection(errno: Errno) -> Ack<'static> {
        Ack {
            errno: Some(errno),
            ..Ack::default()
        }
    }

    /// Returns the outcome of a batch with these acknowledgments.
    fn outcome(first: u32, acks: &[(u32, Ack<'_>)], failure: Option<Error>) -> String {
        let mut tracker = AckTracker::new(range(first), true, 0);
        for (seq, ack) in acks {
            tracker.add(*seq, *ack);
        }
        match tracker.into_outcome(failure) {
            Outcome::Committed => "committed".to_owned(),
            Outcome::Rejected { errors, omitted } => {
                let seqs: Vec<u32> = errors.iter().map(|error| error.seq).collect();
                format!("rejected {seqs:?} and {omitted:?}")
            }
            Outcome::Unknown(error) => format!("unknown: {error}"),
        }
    }

    #[test]
    fn a_batch_is_committed_if_its_last_message_is_acknowledged_and_none_is_rejected() {
        assert_eq!(outcome(5, &[(8, Ack::default())], None), "committed");
        let rejected = [(6, rejection(Errno::NOENT)), (8, Ack::default())];
        assert_eq!(outcome(5, &rejected, None), "rejected [6] and Some(0)");
    }

    #[test]
    fn every_rejected_message_is_reported() {
        let rejected = [(6, rejection(Errno::NOENT)), (8, rejection(Errno::EXIST))];
        assert_eq!(outcome(5, &rejected, None), "rejected [6, 8] and Some(0)");
    }

    #[test]
    fn the_acknowledgment_of_another_message_proves_nothing() {
        let unknown = "unknown: the kernel did not reply in time";
        assert_eq!(outcome(5, &[(6, Ack::default())], None), unknown);
        assert_eq!(outcome(5, &[(4, Ack::default())], None), unknown);
        assert_eq!(outcome(5, &[(4, rejection(Errno::PERM))], None), unknown);
    }

    #[test]
    fn an_error_of_the_first_message_rejects_the_whole_batch() {
        let mut acks = AckTracker::new(range(5), true, 0);
        acks.add(5, rejection(Errno::PERM));
        assert!(acks.is_complete());
    }

    #[test]
    fn an_error_of_the_first_independent_message_concerns_only_that_message() {
        let mut acks = AckTracker::new(range(5), false, 0);
        acks.add(5, rejection(Errno::EXIST));
        assert!(!acks.is_complete());
        acks.add(7, rejection(Errno::NOENT));
        acks.add(8, Ack::default());
        assert!(acks.is_complete());
        let errors = acks.into_errors(None).unwrap();
        let seqs: Vec<u32> = errors.iter().map(|error| error.seq).collect();
        assert_eq!(seqs, [5, 7]);
    }

    #[test]
    fn a_single_independent_message_is_accepted() {
        let mut messages = Vec::new();
        let start = begin(&mut messages, 0xa00, NLM_F_REQUEST | NLM_F_ACK, 5);
        end(&mut messages, start);
        let mut acks = AckTracker::of_requests(&messages, 0).unwrap();
        acks.add(5, rejection(Errno::EXIST));
        assert_eq!(acks.into_errors(None).unwrap().len(), 1);
    }

    #[test]
    fn a_missing_acknowledgment_of_independent_messages_is_an_error() {
        let mut acks = AckTracker::new(range(5), false, 0);
        acks.add(5, rejection(Errno::EXIST));
        assert!(matches!(acks.into_errors(None), Err(Error::Timeout)));
        let acks = AckTracker::new(range(5), false, 0);
        let lost = acks.into_errors(Some(Error::Overrun));
        assert!(matches!(lost, Err(Error::Overrun)));
    }

    #[test]
    fn lost_acknowledgments_make_the_outcome_unknown_unless_one_is_an_error() {
        let lost = "unknown: receive buffer overrun: replies were lost";
        let acknowledged = [(8, Ack::default())];
        assert_eq!(outcome(5, &acknowledged, Some(Error::Overrun)), lost);
        let rejected = [(6, rejection(Errno::NOENT))];
        assert_eq!(
            outcome(5, &rejected, Some(Error::Overrun)),
            "rejected [6] and None"
        );
    }

    #[test]
    fn sequence_numbers_may_wrap_inside_a_batch() {
        assert_eq!(range(u32::MAX - 1).next(), 3);
        let acknowledged = [(1, Ack::default())];
        assert_eq!(outcome(u32::MAX - 1, &acknowledged, None), "committed");
    }

    #[test]
    fn a_batch_must_be_well_formed_and_request_an_acknowledgment() {
        assert!(SeqRange::of(&[]).is_err());
        let mut batch = Vec::new();
        for seq in 1..=2 {
            let start = begin(&mut batch, 0xa00, NLM_F_REQUEST, seq);
            end(&mut batch, start);
        }
        assert!(SeqRange::of(&batch).is_err());
        batch.pop();
        assert!(SeqRange::of(&batch).is_err());
    }

    #[test]
    fn excess_errors_are_counted() {
        let range = SeqRange {
            first: 0,
            last_ack: 2000,
            last: 2001,
        };
        let mut acks = AckTracker::new(range, true, 0);
        for seq in 1..=2000 {
            acks.add(seq, rejection(Errno::NOENT));
        }
        let Outcome::Rejected { errors, omitted } = acks.into_outcome(None) else {
            panic!("messages were refused");
        };
        assert_eq!((errors.len(), omitted), (1024, Some(976)));
    }
}
