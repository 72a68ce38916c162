//! Generic netlink: families whose IDs the kernel assigns at registration.
//!
//! A message of such a family begins with `struct genlmsghdr` of
//! `linux/genetlink.h`: command, version, and two reserved bytes.
//! The message type is the ID of the family, which the controller resolves.

use netlink_packet_core::{Emitable, NlasIterator, Parseable};
use netlink_packet_generic::GenlHeader;
#[cfg(target_os = "linux")]
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::constants::*;
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
#[cfg(target_os = "linux")]
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};

use crate::DecodeError;
use crate::attr::Attrs;
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

    /// Decodes a message of the controller (`CTRL_CMD_NEWFAMILY`), from `struct genlmsghdr` on.
    ///
    /// # Errors
    ///
    /// An attribute is malformed.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let (_, attrs) = split_bytes(payload)?;
        let mut family = Self::default();
        // Attribute by attribute, because the decoder of a whole message refuses kinds that a
        // later kernel adds, and decodes the policies of all operations.
        for attr in NlasIterator::new(attrs) {
            let attr = attr.map_err(|_| malformed(0, attrs))?;
            if !matches!(
                attr.kind(),
                CTRL_ATTR_FAMILY_ID
                    | CTRL_ATTR_FAMILY_NAME
                    | CTRL_ATTR_VERSION
                    | CTRL_ATTR_HDRSIZE
                    | CTRL_ATTR_MAXATTR
            ) {
                if attr.kind() == CTRL_ATTR_MCAST_GROUPS {
                    family.groups = groups(attr.value())?;
                }
                continue;
            }
            match GenlCtrlAttrs::parse(&attr).map_err(|_| malformed(attr.kind(), attr.value()))? {
                GenlCtrlAttrs::FamilyId(id) => family.id = id,
                GenlCtrlAttrs::FamilyName(name) => family.name = name,
                GenlCtrlAttrs::Version(version) => family.version = version,
                GenlCtrlAttrs::HdrSize(size) => family.header_size = size,
                GenlCtrlAttrs::MaxAttr(max) => family.max_attr = max,
                _ => {}
            }
        }
        Ok(family)
    }
}

/// Decodes the names and numbers of multicast groups, which are nested in a list. Also attribute
/// by attribute: `GenlCtrlAttrs::parse` refuses all groups if one has an unknown attribute.
fn groups(list: &[u8]) -> Result<Vec<(String, u32)>, DecodeError> {
    let mut groups = Vec::new();
    for group in NlasIterator::new(list) {
        let group = group.map_err(|_| malformed(CTRL_ATTR_MCAST_GROUPS, list))?;
        let (mut name, mut number) = (String::new(), 0);
        for attr in NlasIterator::new(group.value()) {
            let attr = attr.map_err(|_| malformed(group.kind(), group.value()))?;
            if !matches!(
                attr.kind(),
                CTRL_ATTR_MCAST_GRP_NAME | CTRL_ATTR_MCAST_GRP_ID
            ) {
                continue;
            }
            match McastGrpAttrs::parse(&attr).map_err(|_| malformed(attr.kind(), attr.value()))? {
                McastGrpAttrs::Name(value) => name = value,
                McastGrpAttrs::Id(value) => number = value,
            }
        }
        groups.push((name, number));
    }
    Ok(groups)
}

fn malformed(kind: u16, bytes: &[u8]) -> DecodeError {
    DecodeError::new("attribute of the controller", kind, bytes.len())
}

/// Appends a `struct genlmsghdr`.
pub fn put_header(out: &mut Vec<u8>, command: u8, version: u8) {
    let start = out.len();
    out.resize(start + GENL_HDRLEN, 0);
    let header = GenlHeader {
        cmd: command,
        version,
    };
    header.emit(&mut out[start..]);
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
    split_bytes(payload).map(|(command, attrs)| (command, Attrs::new(attrs)))
}

fn split_bytes(payload: &[u8]) -> Result<(u8, &[u8]), DecodeError> {
    let malformed = || DecodeError::new("generic header", 0, payload.len());
    let header = GenlHeader::parse(payload).map_err(|_| malformed())?;
    let attrs = payload.get(GENL_HDRLEN..).ok_or_else(malformed)?;
    Ok((header.cmd, attrs))
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
        let request = GenlMessage::from_payload(GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName(name.to_owned())],
        });
        let mut payload = vec![0; request.buffer_len()];
        request.emit(&mut payload);
        let mut family = None;
        let result = self.request(GENL_ID_CTRL, 0, &payload, |message| {
            family = Some(GenericFamily::decode(message.payload)?);
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
    use crate::attr::{nest, put_str, put_u16, put_u32};

    #[test]
    fn a_family_has_multicast_groups() {
        let mut bytes = Vec::new();
        put_header(&mut bytes, CTRL_CMD_NEWFAMILY, 2);
        put_str(&mut bytes, CTRL_ATTR_FAMILY_NAME, "nlctrl");
        put_u16(&mut bytes, CTRL_ATTR_FAMILY_ID, 16);
        put_u32(&mut bytes, CTRL_ATTR_VERSION, 2);
        put_u32(&mut bytes, CTRL_ATTR_HDRSIZE, 0);
        put_u32(&mut bytes, CTRL_ATTR_MAXATTR, 10);
        nest(&mut bytes, CTRL_ATTR_MCAST_GROUPS, |groups| {
            nest(groups, 1, |group| {
                put_u32(group, CTRL_ATTR_MCAST_GRP_ID, 16);
                put_str(group, CTRL_ATTR_MCAST_GRP_NAME, "notify");
                // What a later kernel may add.
                put_u32(group, 77, 1);
            });
        });
        let family = GenericFamily::decode(&bytes).unwrap();
        assert_eq!((family.id, family.version, family.max_attr), (16, 2, 10));
        assert_eq!((&*family.name, family.header_size), ("nlctrl", 0));
        assert_eq!(family.group("notify"), Some(16));
        assert_eq!(family.group("other"), None);
        for length in [bytes.len() - 4, GENL_HDRLEN - 1] {
            GenericFamily::decode(&bytes[..length]).unwrap_err();
        }
        // What a later kernel may add, and an attribute that is not read.
        put_u32(&mut bytes, 77, 1);
        put_u16(&mut bytes, CTRL_ATTR_POLICY, 1);
        assert_eq!(GenericFamily::decode(&bytes), Ok(family));
    }

    #[test]
    fn a_short_value_is_an_error_that_names_the_attribute() {
        let mut bytes = Vec::new();
        put_header(&mut bytes, CTRL_CMD_NEWFAMILY, 2);
        put_u16(&mut bytes, CTRL_ATTR_VERSION, 2);
        let error = GenericFamily::decode(&bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected attribute of the controller, found type 3 with 2 bytes"
        );
    }
}
