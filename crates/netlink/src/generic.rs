//! Generic netlink: families whose IDs the kernel assigns at registration.
//!
//! A message of such a family begins with `struct genlmsghdr` of
//! `linux/genetlink.h`: command, version, and two reserved bytes.
//! The message type is the ID of the family, which the controller resolves.

use crate::attr::{Attrs, put_str};
use crate::{DecodeError, Errno, Error, Socket};

/// `GENL_ID_CTRL`: family ID of the controller.
const CONTROLLER: u16 = 16;
/// `CTRL_CMD_GETFAMILY`: request for a family.
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`: ID of a family.
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`: name of a family.
const FAMILY_NAME: u16 = 2;

/// Appends a `struct genlmsghdr`.
pub fn put_header(out: &mut Vec<u8>, command: u8, version: u8) {
    out.extend_from_slice(&[command, version, 0, 0]);
}

/// Splits the payload of a message into command and attributes.
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
/// The payload is shorter than the header.
pub fn split(payload: &[u8]) -> Result<(u8, Attrs<'_>), DecodeError> {
    match payload {
        [command, _, _, _, attrs @ ..] => Ok((*command, Attrs::new(attrs))),
        _ => Err(DecodeError::new("generic header", 0, payload.len())),
    }
}

impl Socket {
    /// Returns the ID of a generic netlink family, or `None` if the kernel lacks it.
    ///
    /// The kernel loads the module of the family if the module declares the family as an
    /// alias.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request), except [`Error::Kernel`] with `ENOENT`.
    pub fn resolve_family(&mut self, name: &str) -> Result<Option<u16>, Error> {
        let mut payload = Vec::new();
        put_header(&mut payload, GET_FAMILY, 1);
        put_str(&mut payload, FAMILY_NAME, name);
        let mut id = None;
        let result = self.request(CONTROLLER, 0, &payload, |message| {
            let (_, attrs) = split(message.payload)?;
            for attr in attrs {
                let attr = attr?;
                if attr.kind == FAMILY_ID {
                    id = Some(attr.u16()?);
                }
            }
            Ok::<(), Error>(())
        });
        match result {
            Err(Error::Kernel(error)) if error.errno == Errno::NOENT => Ok(None),
            result => result.map(|()| id),
        }
    }
}
