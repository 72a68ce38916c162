//! What became of a dump or a batch.

use crate::{DecodeError, Errno, Error, Refusal, message};

/// A dump, and whether it is one state of the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "an interrupted dump may lack objects or hold some twice"]
pub enum Dump<T> {
    /// The state did not change meanwhile.
    Complete(T),
    /// The state changed under every attempt; this is what the last one read.
    Interrupted(T),
}

/// What became of a batch, which the kernel applies as a whole or not at all.
#[derive(Debug)]
#[must_use = "a batch that was sent need not be committed"]
pub enum Outcome {
    /// All of it is done.
    Committed,
    /// None of it is done.
    Refused {
        /// The messages the kernel refused, in their order.
        refusals: Vec<Refusal>,
        /// How many more it refused, at least.
        more: usize,
    },
    /// The answers were lost or made no sense: all of it is done, or nothing.
    Unknown(Error),
}

/// The sequence numbers of a batch, by which its answers are known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Range {
    first: u32,
    /// The last message that asks for an acknowledgement; its answer is the last one.
    last_answer: u32,
    last: u32,
}

impl Range {
    /// Finds the sequence numbers of a batch, and that its messages are whole.
    pub(crate) fn of(batch: &[u8]) -> Result<Self, DecodeError> {
        let no_batch =
            || DecodeError::new("batch that asks for an acknowledgement", 0, batch.len());
        let (mut first, mut last, mut last_answer) = (None, 0, None);
        for message in message::Messages::new(batch) {
            let message = message?;
            first = first.or(Some(message.seq));
            last = message.seq;
            if message.flags & message::ACK != 0 {
                last_answer = Some(message.seq);
            }
        }
        let first = first.ok_or_else(no_batch)?;
        Ok(Self {
            first,
            last_answer: last_answer.ok_or_else(no_batch)?,
            last,
        })
    }

    /// Returns the sequence number that follows the batch.
    pub(crate) fn next(self) -> u32 {
        self.last.wrapping_add(1)
    }

    fn contains(self, seq: u32) -> bool {
        seq.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }
}

/// The answers to a batch, gathered as they come.
#[derive(Debug)]
pub(crate) struct Answers {
    range: Range,
    refusals: Vec<Refusal>,
    more: usize,
    /// Whether the refusal of the first message is that of all.
    whole: bool,
    /// Whether the last message, or the batch as a whole, was answered.
    complete: bool,
}

impl Answers {
    /// How many refusals are kept; beyond, they are counted.
    const KEPT: usize = 1024;

    pub(crate) fn new(range: Range) -> Self {
        Self {
            range,
            refusals: Vec::new(),
            more: 0,
            whole: true,
            complete: false,
        }
    }

    /// Gathers the answers to messages that the kernel takes one by one.
    pub(crate) fn to_series(range: Range) -> Self {
        Self {
            whole: false,
            ..Self::new(range)
        }
    }

    /// Returns the sequence numbers that are answered.
    pub(crate) fn range(&self) -> Range {
        self.range
    }

    /// Tells whether no more answers will come.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes the answer to the message `seq`; that of another batch is ignored.
    pub(crate) fn take(&mut self, seq: u32, answer: message::Answer<'_>) {
        if !self.range.contains(seq) {
            return;
        }
        let refused = answer.errno.is_some();
        // The kernel refuses a batch as a whole in the name of its first message.
        let of_all = self.whole && refused && seq == self.range.first;
        self.complete |= of_all || seq == self.range.last_answer;
        let Some(errno) = answer.errno else {
            return;
        };
        if self.refusals.len() < Self::KEPT {
            self.refusals.push(Refusal::new(seq, errno, answer));
        } else {
            self.more += 1;
        }
    }

    /// Returns the refusals, if every answer there can be was read.
    pub(crate) fn into_refusals(self, failure: Option<Error>) -> Result<Vec<Refusal>, Error> {
        match failure {
            Some(error) => Err(error),
            None if self.complete && self.more == 0 => Ok(self.refusals),
            None => Err(Error::Timeout),
        }
    }

    /// Draws the conclusion, given why reading ended early if it did.
    ///
    /// A message that is refused is enough to know that nothing is done, an
    /// acknowledgement of some message proves nothing.
    pub(crate) fn conclude(self, failure: Option<Error>) -> Outcome {
        match failure {
            _ if !self.refusals.is_empty() => Outcome::Refused {
                refusals: self.refusals,
                more: self.more,
            },
            Some(error) => Outcome::Unknown(error),
            None if self.complete => Outcome::Committed,
            None => Outcome::Unknown(Error::Timeout),
        }
    }
}

impl Refusal {
    /// Returns the refusal of the message `seq`, with the words of its answer.
    pub fn new(seq: u32, errno: Errno, answer: message::Answer<'_>) -> Self {
        Self {
            seq,
            errno,
            text: answer.text.map(Box::from),
            offset: answer.offset,
            missing: answer.missing,
            echo: answer.echo.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ACK, Answer, REQUEST, begin, end};

    /// A batch of three messages between its two brackets.
    fn range(first: u32) -> Range {
        let mut batch = Vec::new();
        for (place, flags) in [0, 0, 0, ACK, 0].into_iter().enumerate() {
            let seq = first.wrapping_add(u32::try_from(place).unwrap());
            let start = begin(&mut batch, 0xa00, REQUEST | flags, seq);
            end(&mut batch, start);
        }
        Range::of(&batch).unwrap()
    }

    fn no(errno: Errno) -> Answer<'static> {
        Answer {
            errno: Some(errno),
            ..Answer::default()
        }
    }

    /// Gives the answers in order and draws the conclusion.
    fn outcome(first: u32, answers: &[(u32, Answer<'_>)], failure: Option<Error>) -> String {
        let mut gathered = Answers::new(range(first));
        for (seq, answer) in answers {
            gathered.take(*seq, *answer);
        }
        match gathered.conclude(failure) {
            Outcome::Committed => "committed".to_owned(),
            Outcome::Refused { refusals, more } => {
                let seqs: Vec<u32> = refusals.iter().map(|refusal| refusal.seq).collect();
                format!("refused {seqs:?} and {more}")
            }
            Outcome::Unknown(error) => format!("unknown: {error}"),
        }
    }

    #[test]
    fn a_batch_is_committed_when_its_last_answer_came_and_none_is_a_refusal() {
        assert_eq!(outcome(5, &[(8, Answer::default())], None), "committed");
        let refused = [(6, no(Errno::NOENT)), (8, Answer::default())];
        assert_eq!(outcome(5, &refused, None), "refused [6] and 0");
    }

    #[test]
    fn every_message_refused_is_told() {
        let refused = [(6, no(Errno::NOENT)), (8, no(Errno::EXIST))];
        assert_eq!(outcome(5, &refused, None), "refused [6, 8] and 0");
    }

    #[test]
    fn the_acknowledgement_of_another_message_proves_nothing() {
        let unknown = "unknown: the kernel did not answer in time";
        assert_eq!(outcome(5, &[(6, Answer::default())], None), unknown);
        assert_eq!(outcome(5, &[(4, Answer::default())], None), unknown);
        assert_eq!(outcome(5, &[(4, no(Errno::PERM))], None), unknown);
    }

    #[test]
    fn a_refusal_of_the_first_message_is_that_of_the_batch() {
        let mut answers = Answers::new(range(5));
        answers.take(5, no(Errno::PERM));
        assert!(answers.is_complete());
    }

    #[test]
    fn the_refusal_of_the_first_message_of_a_series_is_its_own() {
        let mut answers = Answers::to_series(range(5));
        answers.take(5, no(Errno::EXIST));
        assert!(!answers.is_complete());
        answers.take(7, no(Errno::NOENT));
        answers.take(8, Answer::default());
        assert!(answers.is_complete());
        let refusals = answers.into_refusals(None).unwrap();
        let seqs: Vec<u32> = refusals.iter().map(|refusal| refusal.seq).collect();
        assert_eq!(seqs, [5, 7]);
    }

    #[test]
    fn a_series_may_be_a_single_message() {
        let mut series = Vec::new();
        let start = begin(&mut series, 0xa00, REQUEST | ACK, 5);
        end(&mut series, start);
        let mut answers = Answers::to_series(Range::of(&series).unwrap());
        answers.take(5, no(Errno::EXIST));
        assert_eq!(answers.into_refusals(None).unwrap().len(), 1);
    }

    #[test]
    fn a_series_whose_last_answer_is_missing_is_an_error() {
        let mut answers = Answers::to_series(range(5));
        answers.take(5, no(Errno::EXIST));
        assert!(matches!(answers.into_refusals(None), Err(Error::Timeout)));
        let answers = Answers::to_series(range(5));
        let lost = answers.into_refusals(Some(Error::Overrun));
        assert!(matches!(lost, Err(Error::Overrun)));
    }

    #[test]
    fn lost_answers_leave_the_outcome_unknown_unless_one_was_a_refusal() {
        let lost = "unknown: answers of the kernel were lost, so its state is unknown";
        let acknowledged = [(8, Answer::default())];
        assert_eq!(outcome(5, &acknowledged, Some(Error::Overrun)), lost);
        let refused = [(6, no(Errno::NOENT))];
        assert_eq!(
            outcome(5, &refused, Some(Error::Overrun)),
            "refused [6] and 0"
        );
    }

    #[test]
    fn sequence_numbers_may_wrap_inside_a_batch() {
        assert_eq!(range(u32::MAX - 1).next(), 3);
        let acknowledged = [(1, Answer::default())];
        assert_eq!(outcome(u32::MAX - 1, &acknowledged, None), "committed");
    }

    #[test]
    fn a_batch_must_be_whole_and_ask_for_an_acknowledgement() {
        assert!(Range::of(&[]).is_err());
        let mut batch = Vec::new();
        for seq in 1..=2 {
            let start = begin(&mut batch, 0xa00, REQUEST, seq);
            end(&mut batch, start);
        }
        assert!(Range::of(&batch).is_err());
        batch.pop();
        assert!(Range::of(&batch).is_err());
    }

    #[test]
    fn refusals_are_bounded_and_counted() {
        let mut answers = Answers::new(Range {
            first: 0,
            last_answer: 2000,
            last: 2001,
        });
        for seq in 1..=2000 {
            answers.take(seq, no(Errno::NOENT));
        }
        let Outcome::Refused { refusals, more } = answers.conclude(None) else {
            panic!("messages were refused");
        };
        assert_eq!((refusals.len(), more), (1024, 976));
    }
}
