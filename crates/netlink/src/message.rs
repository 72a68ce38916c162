//! Encoding and decoding of messages, including extended ACKs.
//!
//! A datagram contains one or more messages. A message is a `struct nlmsghdr` of
//! `linux/netlink.h` and a payload, padded to four bytes.

use netlink_packet_core::{NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP_INTR};

use crate::attr::Attrs;
use crate::uapi::*;
use crate::{DecodeError, Errno, Policy};

/// `NLM_F_REQUEST`: the message is a request.
pub const NLM_F_REQUEST: u16 = netlink_packet_core::NLM_F_REQUEST;
/// `NLM_F_ACK`: requests an acknowledgment also of success.
pub const NLM_F_ACK: u16 = netlink_packet_core::NLM_F_ACK;
/// `NLM_F_ECHO`: requests the notification of the change as a reply.
pub const NLM_F_ECHO: u16 = netlink_packet_core::NLM_F_ECHO;
/// `NLM_F_DUMP`: requests all objects.
pub const NLM_F_DUMP: u16 = netlink_packet_core::NLM_F_DUMP;
/// `NLM_F_REPLACE`: replaces an existing object.
pub const NLM_F_REPLACE: u16 = netlink_packet_core::NLM_F_REPLACE;
/// `NLM_F_NONREC`: deletes an object only if no others belong to it.
pub const NLM_F_NONREC: u16 = netlink_packet_core::NLM_F_NONREC;

/// `NLM_F_EXCL`: rejects the request if the object exists.
pub const NLM_F_EXCL: u16 = netlink_packet_core::NLM_F_EXCL;
/// `NLM_F_CREATE`: creates the object if it does not exist.
pub const NLM_F_CREATE: u16 = netlink_packet_core::NLM_F_CREATE;
/// `NLM_F_APPEND`: appends the object to the end of the list.
pub const NLM_F_APPEND: u16 = netlink_packet_core::NLM_F_APPEND;

/// Length of `struct nlmsghdr`, in bytes.
const HEADER: usize = 16;

/// Appends the header of a message.
///
/// The caller appends the payload, then calls [`end`].
///
/// ```
/// use vipline_netlink::message::{Messages, NLM_F_REQUEST, begin, end};
///
/// let mut out = Vec::new();
/// let start = begin(&mut out, 18, NLM_F_REQUEST, 7);
/// out.extend_from_slice(&[1, 2, 3, 4]);
/// end(&mut out, start);
/// let message = Messages::new(&out).next().expect("one message")?;
/// assert_eq!((message.ty, message.seq, message.payload), (18, 7, &[1, 2, 3, 4][..]));
/// # Ok::<(), vipline_netlink::DecodeError>(())
/// ```
pub fn begin(out: &mut Vec<u8>, ty: u16, flags: u16, seq: u32) -> Start {
    let start = Start(out.len());
    // `end` writes the length. The kernel fills in the port ID.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&ty.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&seq.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    start
}

/// Completes a message: writes the length into the header, and appends padding.
pub fn end(out: &mut Vec<u8>, start: Start) {
    let Start(start) = start;
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    if let Some(field) = out.get_mut(start..start + 4) {
        field.copy_from_slice(&length.to_ne_bytes());
    }
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Position of an incomplete message.
#[derive(Debug)]
#[must_use = "a message without `end` has no length"]
pub struct Start(usize);

/// An iterator of the messages in a datagram.
///
/// After a malformed message the iterator returns an error, then ends.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Creates an iterator of all messages in a datagram.
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

/// A message.
///
/// Exhaustive: these are the fields of `struct nlmsghdr` and the payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Message<'a> {
    /// Message type, defined by the family.
    pub ty: u16,
    /// Flags (`NLM_F_*`).
    pub flags: u16,
    /// Sequence number of the request.
    pub seq: u32,
    /// Port ID of the socket that sent the request or caused the notification.
    pub port_id: u32,
    /// Payload without padding.
    pub payload: &'a [u8],
}

/// A message that does not borrow the datagram, such as a notification that waits in a queue.
///
/// Exhaustive for the reason of [`Message`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnedMessage {
    /// Message type, defined by the family.
    pub ty: u16,
    /// Flags (`NLM_F_*`).
    pub flags: u16,
    /// Sequence number of the request.
    pub seq: u32,
    /// Port ID of the socket that sent the request or caused the notification.
    pub port_id: u32,
    /// Payload without padding.
    pub payload: Box<[u8]>,
}

impl OwnedMessage {
    /// Returns the message, to decode its payload.
    pub fn as_message(&self) -> Message<'_> {
        Message {
            ty: self.ty,
            flags: self.flags,
            seq: self.seq,
            port_id: self.port_id,
            payload: &self.payload,
        }
    }
}

impl From<Message<'_>> for OwnedMessage {
    fn from(message: Message<'_>) -> Self {
        Self {
            ty: message.ty,
            flags: message.flags,
            seq: message.seq,
            port_id: message.port_id,
            payload: message.payload.into(),
        }
    }
}

/// Decoded content of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Content<'a> {
    /// Acknowledgment or error of a request (`NLMSG_ERROR`).
    Ack(Ack<'a>),
    /// Message of the family, such as an object.
    Data,
    /// End of a dump and its result (`NLMSG_DONE`).
    Done(Ack<'a>),
    /// No content (`NLMSG_NOOP`).
    Noop,
    /// Lost data (`NLMSG_OVERRUN`).
    Overrun,
}

/// The acknowledgment or error of a request, with the attributes of the extended ACK.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Ack<'a> {
    /// Error number; `None` for success.
    pub errno: Option<Errno>,
    /// Error message of the extended ACK (`NLMSGERR_ATTR_MSG`).
    pub message: Option<&'a str>,
    /// Offset of the invalid attribute from the header of the request, in bytes
    /// (`NLMSGERR_ATTR_OFFS`).
    pub offset: Option<u32>,
    /// Type of a missing attribute (`NLMSGERR_ATTR_MISS_TYPE`).
    pub missing_type: Option<u32>,
    /// Offset of the nest that lacks an attribute from the header of the request, in bytes
    /// (`NLMSGERR_ATTR_MISS_NEST`); `None` if the request itself lacks the attribute.
    pub missing_nest: Option<u32>,
    /// Policy that the invalid attribute violates (`NLMSGERR_ATTR_POLICY`).
    pub policy: Option<Policy>,
    /// Cookie that identifies the object (`NLMSGERR_ATTR_COOKIE`); its content depends on
    /// the family. The kernel also returns cookies in acknowledgments of success.
    pub cookie: Option<&'a [u8]>,
    /// Payload of the request, if the kernel returned it.
    pub request: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns the first message and its length.
    fn first(datagram: &'a [u8]) -> Option<(Self, usize)> {
        let (length, rest) = datagram.split_first_chunk()?;
        let (ty, rest) = rest.split_first_chunk()?;
        let (flags, rest) = rest.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (port_id, _) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
        let message = Self {
            ty: u16::from_ne_bytes(*ty),
            flags: u16::from_ne_bytes(*flags),
            seq: u32::from_ne_bytes(*seq),
            port_id: u32::from_ne_bytes(*port_id),
            payload: datagram.get(HEADER..length)?,
        };
        Some((message, length))
    }

    /// Returns whether a change interrupted the dump (`NLM_F_DUMP_INTR`).
    pub fn is_interrupted(&self) -> bool {
        self.flags & NLM_F_DUMP_INTR != 0
    }

    /// Decodes the content according to the message type.
    ///
    /// # Errors
    ///
    /// `NLMSG_ERROR` or `NLMSG_DONE` is too short for its error number.
    pub fn content(&self) -> Result<Content<'a>, DecodeError> {
        match self.ty {
            netlink_packet_core::NLMSG_NOOP => Ok(Content::Noop),
            netlink_packet_core::NLMSG_ERROR => self.ack().map(Content::Ack),
            netlink_packet_core::NLMSG_DONE if self.payload.is_empty() => {
                Ok(Content::Done(Ack::default()))
            }
            netlink_packet_core::NLMSG_DONE => self.done().map(Content::Done),
            netlink_packet_core::NLMSG_OVERRUN => Ok(Content::Overrun),
            _ => Ok(Content::Data),
        }
    }

    /// Decodes `NLMSG_ERROR`: error number, request or its header, attributes.
    fn ack(&self) -> Result<Ack<'a>, DecodeError> {
        let (errno, rest) = self.errno()?;
        let request = match self.flags & NLM_F_CAPPED {
            0 => Self::first(rest),
            _ => None,
        };
        let (request, length) = request.map_or((&[][..], HEADER), |(request, length)| {
            (request.payload, length)
        });
        let attrs = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let mut ack = self.with_attrs(errno, attrs);
        ack.request = request;
        Ok(ack)
    }

    /// Decodes `NLMSG_DONE`: error number, attributes.
    fn done(&self) -> Result<Ack<'a>, DecodeError> {
        let (errno, attrs) = self.errno()?;
        Ok(self.with_attrs(errno, attrs))
    }

    /// Splits off the error number: 0 for success, negative for an error.
    fn errno(&self) -> Result<(Option<Errno>, &'a [u8]), DecodeError> {
        let (code, rest) = self
            .payload
            .split_first_chunk()
            .ok_or_else(|| DecodeError::new("error number", self.ty, self.payload.len()))?;
        let errno = match i32::from_ne_bytes(*code) {
            0 => None,
            // Old kernels end a dump with the length of its last part.
            code if code > 0 => None,
            code => Some(Errno(code.wrapping_neg())),
        };
        Ok((errno, rest))
    }

    /// Decodes the attributes of an extended ACK (`NLMSGERR_ATTR_*`).
    fn with_attrs(&self, errno: Option<Errno>, attrs: &'a [u8]) -> Ack<'a> {
        let mut ack = Ack {
            errno,
            ..Ack::default()
        };
        if self.flags & NLM_F_ACK_TLVS != 0 {
            for attr in Attrs::new(attrs).flatten() {
                match attr.kind {
                    NLMSGERR_ATTR_MSG => ack.message = attr.str().ok(),
                    NLMSGERR_ATTR_OFFS => ack.offset = attr.u32().ok(),
                    NLMSGERR_ATTR_COOKIE => ack.cookie = Some(attr.value),
                    NLMSGERR_ATTR_POLICY => ack.policy = Policy::decode(attr.attrs()).ok(),
                    NLMSGERR_ATTR_MISS_TYPE => ack.missing_type = attr.u32().ok(),
                    NLMSGERR_ATTR_MISS_NEST => ack.missing_nest = attr.u32().ok(),
                    _ => {}
                }
            }
        }
        ack
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR};
    use netlink_packet_generic::constants::{
        NL_POLICY_TYPE_ATTR_MAX_VALUE_U, NL_POLICY_TYPE_ATTR_TYPE,
    };

    use super::*;
    use crate::attr::{put, put_str, put_u32, put_u64};

    /// Encodes a message of the kernel.
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

    /// Encodes the attributes of `extended`.
    fn attrs() -> Vec<u8> {
        let mut attrs = Vec::new();
        put_str(&mut attrs, NLMSGERR_ATTR_MSG, "Chain type mismatch");
        put_u32(&mut attrs, NLMSGERR_ATTR_OFFS, 20);
        put(&mut attrs, NLMSGERR_ATTR_COOKIE, &[7, 8]);
        put(&mut attrs, NLMSGERR_ATTR_POLICY, &policy());
        put_u32(&mut attrs, NLMSGERR_ATTR_MISS_TYPE, 3);
        put_u32(&mut attrs, NLMSGERR_ATTR_MISS_NEST, 24);
        attrs
    }

    fn extended() -> Ack<'static> {
        Ack {
            errno: Some(Errno(2)),
            message: Some("Chain type mismatch"),
            offset: Some(20),
            missing_type: Some(3),
            missing_nest: Some(24),
            policy: Policy::decode(Attrs::new(&policy())).ok(),
            cookie: Some(&[7, 8]),
            request: &[],
        }
    }

    /// Encodes the policy of a `u32` of at most 100.
    fn policy() -> Vec<u8> {
        let mut out = Vec::new();
        put_u32(&mut out, NL_POLICY_TYPE_ATTR_TYPE, 4);
        put_u64(&mut out, NL_POLICY_TYPE_ATTR_MAX_VALUE_U, 100);
        out
    }

    #[test]
    fn a_datagram_contains_several_padded_messages() {
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
    fn a_truncated_message_is_an_error_and_ends_the_iteration() {
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
    fn extended_ack_attributes_follow_the_header_of_a_capped_request() {
        let mut payload = (-2_i32).to_ne_bytes().to_vec();
        payload.extend(&message(0xa00, NLM_F_REQUEST, &[0; 40])[..16]);
        payload.extend(attrs());
        let datagram = message(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, &payload);
        assert_eq!(content(&datagram), Ok(Content::Ack(extended())));
    }

    #[test]
    fn extended_ack_attributes_follow_a_returned_request() {
        let mut payload = (-2_i32).to_ne_bytes().to_vec();
        payload.extend(message(0xa00, NLM_F_REQUEST, &[0; 41]));
        payload.extend(attrs());
        let datagram = message(NLMSG_ERROR, NLM_F_ACK_TLVS, &payload);
        let echoed = Ack {
            request: &[0; 41],
            ..extended()
        };
        assert_eq!(content(&datagram), Ok(Content::Ack(echoed)));
    }

    #[test]
    fn an_acknowledgment_of_success_has_no_error_number() {
        let datagram = message(NLMSG_ERROR, NLM_F_CAPPED, &[0; 20]);
        assert_eq!(content(&datagram), Ok(Content::Ack(Ack::default())));
    }

    #[test]
    fn the_end_of_a_dump_may_be_empty_or_contain_a_length_or_an_error() {
        assert_eq!(
            content(&message(NLMSG_DONE, 0, &[])),
            Ok(Content::Done(Ack::default()))
        );
        assert_eq!(
            content(&message(NLMSG_DONE, 0, &20_i32.to_ne_bytes())),
            Ok(Content::Done(Ack::default()))
        );
        let mut payload = (-2_i32).to_ne_bytes().to_vec();
        payload.extend(attrs());
        assert_eq!(
            content(&message(NLMSG_DONE, NLM_F_ACK_TLVS, &payload)),
            Ok(Content::Done(extended()))
        );
    }

    #[test]
    fn an_acknowledgment_without_an_error_number_is_an_error() {
        assert_eq!(
            content(&message(NLMSG_ERROR, 0, &[1, 2])),
            Err(DecodeError::new("error number", NLMSG_ERROR, 2))
        );
    }
}
