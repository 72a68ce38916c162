//! Decodes arbitrary bytes as a datagram: messages, replies and nested attributes.

use vipline_netlink::attr::{Attr, Attrs};
use vipline_netlink::generic::GenericFamily;
use vipline_netlink::message::Messages;

/// Largest depth; no family nests attributes deeper.
const DEPTH: usize = 8;

fn visit(attr: Attr<'_>, depth: usize) {
    let _ = (attr.u8(), attr.u16(), attr.u32(), attr.u64());
    let _ = (attr.be16(), attr.be32(), attr.be64(), attr.str());
    if depth > 0 {
        attr.attrs()
            .flatten()
            .for_each(|inner| visit(inner, depth - 1));
    }
}

/// Checks one input.
pub(crate) fn run(datagram: &[u8]) {
    for message in Messages::new(datagram).flatten() {
        let _ = (message.is_interrupted(), message.content());
        let _ = GenericFamily::decode(message.payload);
        Attrs::new(message.payload)
            .flatten()
            .for_each(|attr| visit(attr, DEPTH));
    }
}
