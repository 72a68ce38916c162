//! Classification of set elements.

use vipline_nftables::{Datatype, Element, Field};

use super::names;

/// The subject of an element, derived from the fields of its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Subject<'a> {
    /// The node or the cluster: `{ address }`.
    Node,
    /// An endpoint: `{ address . address … }`.
    Endpoint,
    /// A network, a protocol or a verdict of session affinity, which several Services share.
    Shared,
    /// An address or node port of a Service: `{ address . protocol … }` or
    /// `{ protocol . port … }`, and a cluster IP.
    Frontend(&'a [u8]),
}

impl<'a> Subject<'a> {
    /// Returns the subject of an element.
    ///
    /// The data types of the key decide, so new sets need no change here.
    pub(super) fn of(element: &'a Element) -> Self {
        let (set, key) = (element.set(), element.key_bytes());
        let is_addr = |field: &Field| {
            let datatype = field.datatype;
            matches!(datatype, Datatype::Ipv4Addr | Datatype::Ipv6Addr)
        };
        if names::is_set_on_demand(&set.name) {
            return Self::Endpoint;
        }
        let bytes = match &*set.key {
            [_] if set.name.as_str() == names::ACTIVE_CLUSTER_IPS => return Self::Frontend(key),
            [_] if names::is_shared(&set.name) => return Self::Shared,
            [addr, other, ..] if is_addr(addr) && is_addr(other) => return Self::Endpoint,
            [addr, _, ..] if is_addr(addr) => padded_size(addr),
            [protocol, port, ..] => padded_size(protocol) + padded_size(port),
            _ => return Self::Node,
        };
        Self::Frontend(key.get(..bytes).unwrap_or(key))
    }
}

/// Returns the padded size in bytes of a field in a concatenated key.
fn padded_size(field: &Field) -> usize {
    usize::from(field.bytes).next_multiple_of(4)
}
