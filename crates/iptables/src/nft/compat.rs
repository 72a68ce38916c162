//! Requests for the revisions of matches and targets: `NFNL_SUBSYS_NFT_COMPAT`.

use vipline_netlink::attr::{put_be32, put_str};

use crate::Family;

/// Type of the request: subsystem and `NFNL_MSG_COMPAT_GET`.
pub(super) const GET: u16 = 11 << 8;

// Attributes of linux/netfilter/nf_tables_compat.h.
const NAME: u16 = 1;
const REVISION: u16 = 2;
const KIND: u16 = 3;

/// A match or target of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extension {
    Match(&'static str, u32),
    Target(&'static str, u32),
}

/// Matches and targets that almost all rules of iptables use, with the revisions of this
/// crate.
pub(super) const REQUIRED: [Extension; 6] = [
    Extension::Match("comment", 0),
    Extension::Match("conntrack", 3),
    Extension::Match("statistic", 0),
    Extension::Target("DNAT", 2),
    Extension::Target("MARK", 2),
    Extension::Target("MASQUERADE", 0),
];

/// Returns the payload of a request for an extension.
pub(super) fn request(family: Family, extension: Extension) -> Vec<u8> {
    let family = match family {
        Family::V4 => vipline_nftables::Family::Ip,
        Family::V6 => vipline_nftables::Family::Ip6,
    };
    let (name, revision, kind) = match extension {
        Extension::Match(name, revision) => (name, revision, 0),
        Extension::Target(name, revision) => (name, revision, 1),
    };
    let mut payload = vec![family.number(), 0, 0, 0];
    put_str(&mut payload, NAME, name);
    put_be32(&mut payload, REVISION, revision);
    put_be32(&mut payload, KIND, kind);
    payload
}
