//! Results of batches.

use crate::{DecodeError, Errno, Error, KernelError, message};

/// Result of sending an atomic batch.
///
/// Exhaustive: a batch is committed, rejected or of unknown effect.
#[derive(Debug)]
#[must_use = "a batch that was sent is not necessarily committed"]
pub enum Outcome {
    /// The whole batch was applied.
    Committed,
    /// The kernel rejected at least one message and applied nothing.
    Rejected {
        /// Errors of the rejected messages, in the order of the messages.
        errors: Vec<KernelError>,
        /// Minimum number of further errors, which are not in `errors`.
        omitted: usize,
    },
    /// Acknowledgments were lost or malformed. The batch was applied as a whole or not at
    /// all.
    Unknown(Error),
}

/// The sequence numbers of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SeqRange {
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
    pub(crate) fn of(batch: &[u8]) -> Result<Self, DecodeError> {
        let no_batch =
            || DecodeError::new("batch with a message that has NLM_F_ACK", 0, batch.len());
        let (mut first, mut last, mut last_ack) = (None, 0, None);
        for message in message::Messages::new(batch) {
            let message = message?;
            first = first.or(Some(message.seq));
            last = message.seq;
            if message.flags & message::ACK != 0 {
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
    pub(crate) fn next(self) -> u32 {
        self.last.wrapping_add(1)
    }

    fn contains(self, seq: u32) -> bool {
        seq.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }
}

/// Collects the acknowledgments of several messages.
#[derive(Debug)]
pub(crate) struct AckCollector {
    range: SeqRange,
    errors: Vec<KernelError>,
    omitted: usize,
    /// Whether an error of the first message rejects all messages.
    is_batch: bool,
    /// Whether the last acknowledgment was received.
    complete: bool,
}

impl AckCollector {
    /// Maximum number of errors to keep; further errors are only counted.
    const MAX_ERRORS: usize = 1024;

    /// Collects the acknowledgments of an atomic batch.
    pub(crate) fn of_batch(range: SeqRange) -> Self {
        Self {
            range,
            errors: Vec::new(),
            omitted: 0,
            is_batch: true,
            complete: false,
        }
    }

    /// Collects the acknowledgments of independent messages.
    pub(crate) fn of_messages(range: SeqRange) -> Self {
        Self {
            is_batch: false,
            ..Self::of_batch(range)
        }
    }

    /// Returns the sequence numbers of the messages.
    pub(crate) fn range(&self) -> SeqRange {
        self.range
    }

    /// Returns whether the last acknowledgment was received.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Adds the acknowledgment of message `seq`; ignores those of other batches.
    pub(crate) fn add(&mut self, seq: u32, ack: message::Ack<'_>) {
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
    pub(crate) fn into_errors(self, failure: Option<Error>) -> Result<Vec<KernelError>, Error> {
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
    pub(crate) fn into_outcome(self, failure: Option<Error>) -> Outcome {
        match failure {
            _ if !self.errors.is_empty() => Outcome::Rejected {
                errors: self.errors,
                omitted: self.omitted,
            },
            Some(error) => Outcome::Unknown(error),
            None if self.complete => Outcome::Committed,
            None => Outcome::Unknown(Error::Timeout),
        }
    }
}

impl KernelError {
    /// Creates an error from the acknowledgment of message `seq`.
    pub fn new(seq: u32, errno: Errno, ack: message::Ack<'_>) -> Self {
        Self {
            seq,
            errno,
            message: ack.message.map(Box::from),
            offset: ack.offset,
            missing_type: ack.missing_type,
            request: ack.request.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ACK, Ack, REQUEST, begin, end};

    /// Returns the sequence numbers of three messages between batch begin and end.
    fn range(first: u32) -> SeqRange {
        let mut batch = Vec::new();
        for (place, flags) in [0, 0, 0, ACK, 0].into_iter().enumerate() {
            let seq = first.wrapping_add(u32::try_from(place).unwrap());
            let start = begin(&mut batch, 0xa00, REQUEST | flags, seq);
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
        let mut collector = AckCollector::of_batch(range(first));
        for (seq, ack) in acks {
            collector.add(*seq, *ack);
        }
        match collector.into_outcome(failure) {
            Outcome::Committed => "committed".to_owned(),
            Outcome::Rejected { errors, omitted } => {
                let seqs: Vec<u32> = errors.iter().map(|error| error.seq).collect();
                format!("rejected {seqs:?} and {omitted}")
            }
            Outcome::Unknown(error) => format!("unknown: {error}"),
        }
    }

    #[test]
    fn a_batch_is_committed_if_its_last_message_is_acknowledged_and_none_is_rejected() {
        assert_eq!(outcome(5, &[(8, Ack::default())], None), "committed");
        let rejected = [(6, rejection(Errno::NOENT)), (8, Ack::default())];
        assert_eq!(outcome(5, &rejected, None), "rejected [6] and 0");
    }

    #[test]
    fn every_rejected_message_is_reported() {
        let rejected = [(6, rejection(Errno::NOENT)), (8, rejection(Errno::EXIST))];
        assert_eq!(outcome(5, &rejected, None), "rejected [6, 8] and 0");
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
        let mut acks = AckCollector::of_batch(range(5));
        acks.add(5, rejection(Errno::PERM));
        assert!(acks.is_complete());
    }

    #[test]
    fn an_error_of_the_first_independent_message_concerns_only_that_message() {
        let mut acks = AckCollector::of_messages(range(5));
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
        let start = begin(&mut messages, 0xa00, REQUEST | ACK, 5);
        end(&mut messages, start);
        let mut acks = AckCollector::of_messages(SeqRange::of(&messages).unwrap());
        acks.add(5, rejection(Errno::EXIST));
        assert_eq!(acks.into_errors(None).unwrap().len(), 1);
    }

    #[test]
    fn a_missing_acknowledgment_of_independent_messages_is_an_error() {
        let mut acks = AckCollector::of_messages(range(5));
        acks.add(5, rejection(Errno::EXIST));
        assert!(matches!(acks.into_errors(None), Err(Error::Timeout)));
        let acks = AckCollector::of_messages(range(5));
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
            "rejected [6] and 0"
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
            let start = begin(&mut batch, 0xa00, REQUEST, seq);
            end(&mut batch, start);
        }
        assert!(SeqRange::of(&batch).is_err());
        batch.pop();
        assert!(SeqRange::of(&batch).is_err());
    }

    #[test]
    fn excess_errors_are_counted() {
        let mut acks = AckCollector::of_batch(SeqRange {
            first: 0,
            last_ack: 2000,
            last: 2001,
        });
        for seq in 1..=2000 {
            acks.add(seq, rejection(Errno::NOENT));
        }
        let Outcome::Rejected { errors, omitted } = acks.into_outcome(None) else {
            panic!("messages were refused");
        };
        assert_eq!((errors.len(), omitted), (1024, 976));
    }
}
