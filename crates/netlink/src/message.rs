//! Messages: a header, a payload, and what the kernel says in answer.
//!
//! A datagram holds one or more messages, each `struct nlmsghdr` of
//! `linux/netlink.h` and a payload, padded to four bytes.

use netlink_packet_core::{
    Emitable, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP_INTR, NetlinkBuffer, NetlinkHeader,
};

use crate::attr::Attrs;
use crate::{DecodeError, Errno};

/// `NLM_F_REQUEST`: the message is for the kernel to act on.
pub const REQUEST: u16 = netlink_packet_core::NLM_F_REQUEST;
/// `NLM_F_ACK`: success is answered too, not only failure.
pub const ACK: u16 = netlink_packet_core::NLM_F_ACK;
/// `NLM_F_ECHO`: the change is answered with the notification of it.
pub const ECHO: u16 = netlink_packet_core::NLM_F_ECHO;
/// `NLM_F_DUMP`: all objects are asked for.
pub const DUMP: u16 = netlink_packet_core::NLM_F_DUMP;
/// `NLM_F_REPLACE`: what exists is replaced.
pub const REPLACE: u16 = netlink_packet_core::NLM_F_REPLACE;
/// `NLM_F_EXCL`: what exists is an error.
pub const EXCL: u16 = netlink_packet_core::NLM_F_EXCL;
/// `NLM_F_CREATE`: what does not exist is made.
pub const CREATE: u16 = netlink_packet_core::NLM_F_CREATE;
/// `NLM_F_APPEND`: what is made goes to the end of the list.
pub const APPEND: u16 = netlink_packet_core::NLM_F_APPEND;

/// The length of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Begins a message; its payload is appended, then [`end`] completes it.
///
/// ```
/// use vipline_netlink::message::{Messages, REQUEST, begin, end};
///
/// let mut out = Vec::new();
/// let start = begin(&mut out, 18, REQUEST, 7);
/// out.extend_from_slice(&[1, 2, 3, 4]);
/// end(&mut out, start);
/// let message = Messages::new(&out).next().expect("one message")?;
/// assert_eq!((message.ty, message.seq, message.payload), (18, 7, &[1, 2, 3, 4][..]));
/// # Ok::<(), vipline_netlink::DecodeError>(())
/// ```
pub fn begin(out: &mut Vec<u8>, ty: u16, flags: u16, seq: u32) -> Start {
    let start = Start(out.len());
    let mut header = NetlinkHeader::default();
    header.message_type = ty;
    header.flags = flags;
    header.sequence_number = seq;
    let mut bytes = [0; HEADER];
    header.emit(&mut bytes);
    out.extend_from_slice(&bytes);
    start
}

/// Completes a message: writes its length, and pads.
pub fn end(out: &mut Vec<u8>, start: Start) {
    let Start(start) = start;
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    if let Some(field) = out.get_mut(start..start + 4) {
        field.copy_from_slice(&length.to_ne_bytes());
    }
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Where a message that is being written starts.
#[derive(Debug)]
#[must_use = "a message without its end has no length"]
pub struct Start(usize);

/// The messages in a datagram, one after the other.
///
/// After a message that does not fit the iterator gives its error, then ends.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Reads messages from the start of a datagram to its end.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((message, length)) = Message::first(self.rest) else {
            let error = DecodeError::new("message header", 0, self.rest.len());
            self.rest = &[];
            return Some(Err(error));
        };
        self.rest = self
            .rest
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some(Ok(message))
    }
}

/// One message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Message<'a> {
    /// What the message is, as its protocol numbers it.
    pub ty: u16,
    /// The flags, `NLM_F_*`.
    pub flags: u16,
    /// The sequence number of the request that this belongs to.
    pub seq: u32,
    /// The port of the socket that this belongs to.
    pub port: u32,
    /// What follows the header, without padding.
    pub payload: &'a [u8],
}

/// What a message is to the protocol below all families.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Content<'a> {
    /// The answer to one request: success or refusal.
    Answer(Answer<'a>),
    /// A message of the family, such as an object.
    Data,
    /// The end of a dump, and whether it went well.
    Done(Answer<'a>),
    /// Nothing.
    Noop,
    /// Data was lost.
    Overrun,
}

/// The verdict on a request, with the words of an extended acknowledgement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Answer<'a> {
    /// Why the request was refused; `None` is success.
    pub errno: Option<Errno>,
    /// What the kernel has to say about it.
    pub text: Option<&'a str>,
    /// The byte of the request that it is about, counted from its header.
    pub offset: Option<u32>,
    /// The type of the attribute that is missing.
    pub missing: Option<u32>,
    /// The payload of the request, if the kernel sent it back.
    pub echo: &'a [u8],
}

impl<'a> Message<'a> {
    /// Splits the first message off, and tells its length.
    fn first(datagram: &'a [u8]) -> Option<(Self, usize)> {
        let checked = NetlinkBuffer::new_checked(datagram).ok()?;
        let length = usize::try_from(checked.length()).ok()?;
        let message = Self {
            ty: checked.message_type(),
            flags: checked.flags(),
            seq: checked.sequence_number(),
            port: checked.port_number(),
            payload: datagram.get(HEADER..length)?,
        };
        Some((message, length))
    }

    /// Tells whether the state changed under the dump that this belongs to.
    pub fn is_interrupted(&self) -> bool {
        self.flags & NLM_F_DUMP_INTR != 0
    }

    /// Tells what the message is.
    ///
    /// # Errors
    ///
    /// An answer without its error number.
    pub fn content(&self) -> Result<Content<'a>, DecodeError> {
        match self.ty {
            netlink_packet_core::NLMSG_NOOP => Ok(Content::Noop),
            netlink_packet_core::NLMSG_ERROR => self.answer().map(Content::Answer),
            netlink_packet_core::NLMSG_DONE if self.payload.is_empty() => {
                Ok(Content::Done(Answer::default()))
            }
            netlink_packet_core::NLMSG_DONE => self.done().map(Content::Done),
            netlink_packet_core::NLMSG_OVERRUN => Ok(Content::Overrun),
            _ => Ok(Content::Data),
        }
    }

    /// Reads `struct nlmsgerr`: error number, request or its header, words.
    fn answer(&self) -> Result<Answer<'a>, DecodeError> {
        let (errno, echo) = self.errno()?;
        let whole = match self.flags & NLM_F_CAPPED {
            0 => Self::first(echo),
            _ => None,
        };
        let (request, echoed) = whole.map_or((&[][..], HEADER), |(request, length)| {
            (request.payload, length)
        });
        let words = echo.get(echoed.next_multiple_of(4)..).unwrap_or_default();
        let mut answer = self.spoken(errno, words);
        answer.echo = request;
        Ok(answer)
    }

    /// Reads the payload of `NLMSG_DONE`: error number, words.
    fn done(&self) -> Result<Answer<'a>, DecodeError> {
        let (errno, words) = self.errno()?;
        Ok(self.spoken(errno, words))
    }

    /// Splits the error number off; 0 is success, refusals are negative.
    fn errno(&self) -> Result<(Option<Errno>, &'a [u8]), DecodeError> {
        let (code, rest) = self
            .payload
            .split_first_chunk()
            .ok_or_else(|| DecodeError::new("answer", self.ty, self.payload.len()))?;
        let errno = match i32::from_ne_bytes(*code) {
            0 => None,
            // A dump ends with the length of its last part on old kernels.
            code if code > 0 => None,
            code => Some(Errno(code.wrapping_neg())),
        };
        Ok((errno, rest))
    }

    /// Adds the words of an extended acknowledgement (`NLMSGERR_ATTR_*`).
    fn spoken(&self, errno: Option<Errno>, words: &'a [u8]) -> Answer<'a> {
        let mut answer = Answer {
            errno,
            ..Answer::default()
        };
        if self.flags & NLM_F_ACK_TLVS != 0 {
            for attr in Attrs::new(words).flatten() {
                match attr.kind {
                    1 => answer.text = attr.str().ok(),
                    2 => answer.offset = attr.u32().ok(),
                    5 => answer.missing = attr.u32().ok(),
                    _ => {}
                }
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR};

    use super::*;
    use crate::attr::{put_str, put_u32};

    /// A message as the kernel writes it.
    fn message(ty: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let start = begin(&mut out, ty, flags, 7);
        out.extend_from_slice(payload);
        end(&mut out, start);
        out
    }

    fn content(datagram: &[u8]) -> Result<Content<'_>, DecodeError> {
        Messages::new(datagram).next().unwrap().unwrap().content()
    }

    fn words() -> Vec<u8> {
        let mut words = Vec::new();
        put_str(&mut words, 1, "Chain type mismatch");
        put_u32(&mut words, 2, 20);
        put_u32(&mut words, 5, 3);
        words
    }

    const SPOKEN: Answer<'_> = Answer {
        errno: Some(Errno(2)),
        text: Some("Chain type mismatch"),
        offset: Some(20),
        missing: Some(3),
        echo: &[],
    };

    #[test]
    fn a_datagram_holds_many_messages_and_each_is_padded() {
        let mut datagram = message(16, 0, &[1]);
        datagram.extend(message(17, 2, &[1, 2, 3, 4, 5]));
        let messages: Vec<_> = Messages::new(&datagram).map(Result::unwrap).collect();
        assert_eq!(messages[0].payload, [1]);
        assert_eq!(messages[1].ty, 17);
        assert_eq!(messages[1].flags, 2);
        assert_eq!(messages[1].payload, [1, 2, 3, 4, 5]);
        assert_eq!(messages.len(), 2);
    }

    #[test]
    fn a_message_cut_off_is_an_error_and_the_last_one() {
        let mut datagram = message(16, 0, &[1, 2, 3, 4]);
        datagram.extend(message(17, 0, &[1, 2, 3, 4]));
        datagram.pop();
        let mut messages = Messages::new(&datagram);
        assert!(messages.next().unwrap().is_ok());
        assert!(messages.next().unwrap().is_err());
        assert!(messages.next().is_none());
    }

    #[test]
    fn a_length_shorter_than_the_header_is_an_error() {
        let mut datagram = message(16, 0, &[]);
        datagram[0] = 15;
        assert!(Messages::new(&datagram).next().unwrap().is_err());
    }

    #[test]
    fn words_follow_the_header_of_the_request_when_it_is_capped() {
        let mut payload = (-2_i32).to_ne_bytes().to_vec();
        payload.extend(&message(0xa00, REQUEST, &[0; 40])[..16]);
        payload.extend(words());
        let datagram = message(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, &payload);
        assert_eq!(content(&datagram), Ok(Content::Answer(SPOKEN)));
    }

    #[test]
    fn words_follow_the_whole_request_when_it_is_echoed() {
        let mut payload = (-2_i32).to_ne_bytes().to_vec();
        payload.extend(message(0xa00, REQUEST, &[0; 41]));
        payload.extend(words());
        let datagram = message(NLMSG_ERROR, NLM_F_ACK_TLVS, &payload);
        let echoed = Answer {
            echo: &[0; 41],
            ..SPOKEN
        };
        assert_eq!(content(&datagram), Ok(Content::Answer(echoed)));
    }

    #[test]
    fn success_is_an_answer_without_an_error_number() {
        let datagram = message(NLMSG_ERROR, NLM_F_CAPPED, &[0; 20]);
        assert_eq!(content(&datagram), Ok(Content::Answer(Answer::default())));
    }

    #[test]
    fn the_end_of_a_dump_may_carry_nothing_a_length_or_an_error() {
        assert_eq!(
            content(&message(NLMSG_DONE, 0, &[])),
            Ok(Content::Done(Answer::default()))
        );
        assert_eq!(
            content(&message(NLMSG_DONE, 0, &20_i32.to_ne_bytes())),
            Ok(Content::Done(Answer::default()))
        );
        let mut payload = (-2_i32).to_ne_bytes().to_vec();
        payload.extend(words());
        assert_eq!(
            content(&message(NLMSG_DONE, NLM_F_ACK_TLVS, &payload)),
            Ok(Content::Done(SPOKEN))
        );
    }

    #[test]
    fn an_answer_without_a_number_is_an_error() {
        assert_eq!(
            content(&message(NLMSG_ERROR, 0, &[1, 2])),
            Err(DecodeError::new("answer", NLMSG_ERROR, 2))
        );
    }
}
