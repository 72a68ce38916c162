//! Requests for the revisions of matches and targets: `NFNL_SUBSYS_NFT_COMPAT`.

use vipline_netlink::attr::{put_be32, put_str};

use vipline_nftables::expr::Expr;

use crate::Family;
use crate::extensions::structure::Structure;
use crate::matches::{Comment, Conntrack, Statistic};
use crate::targets::{Dnat, Mark, Masquerade};

// linux/netfilter/nfnetlink.h
const NFNL_SUBSYS_NFT_COMPAT: u8 = 11;
// linux/netfilter/nf_tables_compat.h
const NFNL_MSG_COMPAT_GET: u8 = 0;
const NFTA_COMPAT_NAME: u16 = 1;
const NFTA_COMPAT_REV: u16 = 2;
const NFTA_COMPAT_TYPE: u16 = 3;

/// Type of the request.
pub(super) const GET: u16 = u16::from_be_bytes([NFNL_SUBSYS_NFT_COMPAT, NFNL_MSG_COMPAT_GET]);

// Values of NFTA_COMPAT_TYPE, which have no names in the kernel.
const MATCH: u32 = 0;
const TARGET: u32 = 1;

/// A match or target of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extension {
    Match(&'static str, u32),
    Target(&'static str, u32),
}

/// What the kernel lacks to evaluate a rule of the nft variant.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Lack {
    /// `CONFIG_NFT_COMPAT`, which evaluates structures of xtables.
    Compat,
    /// A match or target, by its name, or the revision of its structure.
    Extension(Box<str>),
}

/// Matches and targets that almost all rules of iptables use, with the revisions of this
/// crate.
pub(super) const REQUIRED: [Extension; 6] = [
    of_match::<Comment<'_>>(),
    of_match::<Conntrack>(),
    of_match::<Statistic>(),
    of_target::<Dnat>(),
    of_target::<Mark>(),
    of_target::<Masquerade>(),
];

const fn of_match<T: Structure>() -> Extension {
    Extension::Match(T::NAME, T::REVISION)
}

const fn of_target<T: Structure>() -> Extension {
    Extension::Target(T::NAME, T::REVISION)
}

/// Returns the payload of a request for an extension.
pub(super) fn request(family: Family, extension: Extension) -> Vec<u8> {
    match extension {
        Extension::Match(name, revision) => payload(family, name, revision, MATCH),
        Extension::Target(name, revision) => payload(family, name, revision, TARGET),
    }
}

/// Returns the name of the structure of xtables in an expression, and the payload of the
/// request for it. `None` for an expression of nf_tables itself.
pub(super) fn request_of(family: Family, expr: &Expr) -> Option<(&str, Vec<u8>)> {
    let (name, revision, kind) = match expr {
        Expr::Match(it) => (it.name.as_str(), it.revision, MATCH),
        Expr::Target(it) => (it.name.as_str(), it.revision, TARGET),
        _ => return None,
    };
    Some((name, payload(family, name, revision, kind)))
}

fn payload(family: Family, name: &str, revision: u32, kind: u32) -> Vec<u8> {
    let mut payload = vec![family.number(), 0, 0, 0];
    put_str(&mut payload, NFTA_COMPAT_NAME, name);
    put_be32(&mut payload, NFTA_COMPAT_REV, revision);
    put_be32(&mut payload, NFTA_COMPAT_TYPE, kind);
    payload
}
