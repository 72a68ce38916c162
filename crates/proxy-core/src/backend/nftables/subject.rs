//! What an element is about.

use vipline_nftables::{Datatype, Element, Field};

use super::names;

/// What an element is about, by the fields of its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Subject<'a> {
    /// The node or the cluster: `{ address }`.
    Node,
    /// An endpoint by itself: `{ address . address … }`.
    Endpoint,
    /// An address or node port of a Service: `{ address . protocol … }` or
    /// `{ protocol . port … }`, and a cluster IP.
    Frontend(&'a [u8]),
}

impl<'a> Subject<'a> {
    /// Returns what an element is about.
    ///
    /// The fields of a key tell, so a set more needs no word here.
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
            [addr, other, ..] if is_addr(addr) && is_addr(other) => return Self::Endpoint,
            [addr, _, ..] if is_addr(addr) => room(addr),
            [protocol, port, ..] => room(protocol) + room(port),
            _ => return Self::Node,
        };
        Self::Frontend(key.get(..bytes).unwrap_or(key))
    }
}

/// Returns how many bytes a field takes in a key of several.
fn room(field: &Field) -> usize {
    usize::from(field.bytes).next_multiple_of(4)
}
