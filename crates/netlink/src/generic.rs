//! Generic netlink: families whose IDs the kernel assigns at registration.
//!
//! A message of such a family begins with `struct genlmsghdr` of
//! `linux/genetlink.h`: command, version, and two reserved bytes.
//! The message type is the ID of the family, which the controller resolves.

use crate::DecodeError;
use crate::attr::{Attrs, put_str};
use crate::uapi::*;
#[cfg(target_os = "linux")]
use crate::{Errno, Error, Socket};

/// A generic netlink family with its multicast groups.
///
/// ```no_run
/// use vipline_netlink::{Listener, Protocol, Socket};
///
/// let mut socket = Socket::open(Protocol::GENERIC)?;
/// let controller = socket.generic_family("nlctrl")?.expect("part of the kernel");
/// let notify = controller.group("notify").expect("part of the controller");
/// let mut listener = Listener::open(Protocol::GENERIC)?;
/// listener.join(notify)?;
/// # Ok::<(), vipline_netlink::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct GenericFamily {
    /// ID of the family, the type of its messages.
    pub id: u16,
    /// Name of the family.
    pub name: String,
    /// Version of the family.
    pub version: u32,
    /// Length of the header after `struct genlmsghdr`, in bytes.
    pub header_size: u32,
    /// Maximum type of an attribute.
    pub max_attr: u32,
    /// Names and numbers of the multicast groups.
    pub groups: Vec<(String, u32)>,
}

impl GenericFamily {
    /// Returns the number of a multicast group, or `None` if the family has no group of
    /// this name.
    pub fn group(&self, name: &str) -> Option<u32> {
        let mut groups = self.groups.iter();
        groups.find(|(group, _)| group == name).map(|(_, id)| *id)
    }

    /// Decodes the attributes of a family (`CTRL_CMD_NEWFAMILY`).
    ///
    /// # Errors
    ///
    /// An attribute is malformed.
    pub fn decode(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let mut family = Self::default();
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                CTRL_ATTR_FAMILY_ID => family.id = attr.u16()?,
                CTRL_ATTR_FAMILY_NAME => attr.str()?.clone_into(&mut family.name),
                CTRL_ATTR_VERSION => family.version = attr.u32()?,
                CTRL_ATTR_HDRSIZE => family.header_size = attr.u32()?,
                CTRL_ATTR_MAXATTR => family.max_attr = attr.u32()?,
                CTRL_ATTR_MCAST_GROUPS => {
                    for group in attr.attrs() {
                        family.groups.push(decode_group(group?.attrs())?);
                    }
                }
                _ => {}
            }
        }
        Ok(family)
    }
}

/// Decodes the name and the number of a multicast group.
fn decode_group(attrs: Attrs<'_>) -> Result<(String, u32), DecodeError> {
    let (mut name, mut id) = (String::new(), 0);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            CTRL_ATTR_MCAST_GRP_NAME => attr.str()?.clone_into(&mut name),
            CTRL_ATTR_MCAST_GRP_ID => id = attr.u32()?,
            _ => {}
        }
    }
    Ok((name, id))
}

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

#[cfg(target_os = "linux")]
impl Socket {
    /// Returns a generic netlink family, or `None` if the kernel lacks it.
    ///
    /// The kernel loads the module of the family if the module declares the family as an
    /// alias.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request), except [`Error::Kernel`] with `ENOENT`.
    pub fn generic_family(&mut self, name: &str) -> Result<Option<GenericFamily>, Error> {
        let mut payload = Vec::new();
        put_header(&mut payload, CTRL_CMD_GETFAMILY, 1);
        put_str(&mut payload, CTRL_ATTR_FAMILY_NAME, name);
        let mut family = None;
        let result = self.request(GENL_ID_CTRL, 0, &payload, |message| {
            let (_, attrs) = split(message.payload)?;
            family = Some(GenericFamily::decode(attrs)?);
            Ok::<(), Error>(())
        });
        match result {
            Err(Error::Kernel(error)) if error.errno == Errno::NOENT => Ok(None),
            result => result.map(|()| family),
        }
    }

    /// Returns the ID of a generic netlink family, or `None` if the kernel lacks it.
    ///
    /// # Errors
    ///
    /// The errors of [`generic_family`](Self::generic_family).
    pub fn resolve_family(&mut self, name: &str) -> Result<Option<u16>, Error> {
        let family = self.generic_family(name)?;
        Ok(family.map(|family| family.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{nest, put_u16, put_u32};

    #[test]
    fn a_family_has_multicast_groups() {
        let mut bytes = Vec::new();
        put_str(&mut bytes, CTRL_ATTR_FAMILY_NAME, "nlctrl");
        put_u16(&mut bytes, CTRL_ATTR_FAMILY_ID, 16);
        put_u32(&mut bytes, CTRL_ATTR_VERSION, 2);
        put_u32(&mut bytes, CTRL_ATTR_HDRSIZE, 0);
        put_u32(&mut bytes, CTRL_ATTR_MAXATTR, 10);
        nest(&mut bytes, CTRL_ATTR_MCAST_GROUPS, |groups| {
            nest(groups, 1, |group| {
                put_u32(group, CTRL_ATTR_MCAST_GRP_ID, 16);
                put_str(group, CTRL_ATTR_MCAST_GRP_NAME, "notify");
            });
        });
        let family = GenericFamily::decode(Attrs::new(&bytes)).unwrap();
        assert_eq!((family.id, family.version, family.max_attr), (16, 2, 10));
        assert_eq!(family.group("notify"), Some(16));
        assert_eq!(family.group("other"), None);
        let short = GenericFamily::decode(Attrs::new(&bytes[..bytes.len() - 4]));
        assert!(short.is_err());
    }
}
