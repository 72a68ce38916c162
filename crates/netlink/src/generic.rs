//! Generic netlink: families that the kernel numbers when they come.
//!
//! A message of such a family begins with `struct genlmsghdr` of
//! `linux/genetlink.h`: the command, the version, and two bytes of nothing.
//! Its type is the number of the family, which the controller tells.

use crate::attr::{Attrs, put_str};
use crate::{DecodeError, Errno, Error, Socket};

/// `GENL_ID_CTRL`: the number of the controller.
const CONTROLLER: u16 = 16;
/// `CTRL_CMD_GETFAMILY`: asks for a family.
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`: the number of a family.
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`: the name of a family.
const FAMILY_NAME: u16 = 2;

/// Appends the header with which a message of a generic family begins.
pub fn put_header(out: &mut Vec<u8>, command: u8, version: u8) {
    out.extend_from_slice(&[command, version, 0, 0]);
}

/// Splits the payload of a message into its command and its attributes.
///
/// ```
/// use vipline_netlink::attr::put_u32;
/// use vipline_netlink::generic::{put_header, split};
///
/// let mut payload = Vec::new();
/// put_header(&mut payload, 4, 1);
/// put_u32(&mut payload, 7, 80);
/// let (command, mut attrs) = split(&payload)?;
/// let attr = attrs.next().expect("one attribute")?;
/// assert_eq!((command, attr.kind, attr.u32()?), (4, 7, 80));
/// # Ok::<(), vipline_netlink::DecodeError>(())
/// ```
///
/// # Errors
///
/// A payload that is shorter than the header.
pub fn split(payload: &[u8]) -> Result<(u8, Attrs<'_>), DecodeError> {
    match payload {
        [command, _, _, _, attrs @ ..] => Ok((*command, Attrs::new(attrs))),
        _ => Err(DecodeError::new("generic header", 0, payload.len())),
    }
}

impl Socket {
    /// Returns the number of the generic family of this name, if there is one.
    ///
    /// The kernel may load a module that has the family, if it knows of one.
    ///
    /// # Errors
    ///
    /// All that a request can meet.
    pub fn family(&mut self, name: &str) -> Result<Option<u16>, Error> {
        let mut question = Vec::new();
        put_header(&mut question, GET_FAMILY, 1);
        put_str(&mut question, FAMILY_NAME, name);
        let mut id = None;
        let answer = self.request(CONTROLLER, 0, &question, |message| {
            let (_, attrs) = split(message.payload)?;
            for attr in attrs {
                let attr = attr?;
                if attr.kind == FAMILY_ID {
                    id = Some(attr.u16()?);
                }
            }
            Ok::<(), Error>(())
        });
        match answer {
            Err(Error::Kernel(refusal)) if refusal.errno == Errno::NOENT => Ok(None),
            answer => answer.map(|()| id),
        }
    }
}
