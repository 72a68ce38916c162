//! Kernel expressions (`struct nft_expr`), each with its codec.
//!
//! A rule is a list of expressions that load values into registers, change and
//! compare them, and act. An expression that *breaks* the rule ends its evaluation;
//! the packet continues with the next rule (`NFT_BREAK`).
//! Attribute numbers are those of `linux/netfilter/nf_tables.h`.
//!
//! The types are exhaustive, except [`Expr`] and the key types: an expression with an
//! attribute or a value without a field or variant here is decoded as [`Expr::Other`].

mod codec;

mod register;

mod set_ref;

mod payload;

mod meta;

mod ct;

mod fib;

mod numgen;

mod hash;

mod immediate;

mod bitwise;

mod byteorder;

mod cmp;

mod range;

mod lookup;

mod dynset;

mod objref;

mod counter;

mod quota;

mod limit;

mod log;

mod nat;

mod masq;

mod redir;

mod tproxy;

mod reject;

mod flow_offload;

mod exthdr;

mod rt;

mod socket;

mod xfrm;

mod osf;

mod synproxy;

mod dup;

mod queue;

mod connlimit;

mod last;

mod xt;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, nest, put_str};

use crate::{Bytes, Name};

pub use bitwise::{Bitwise, BitwiseOp};
pub use byteorder::{Byteorder, ByteorderOp};
pub use cmp::{Cmp, CmpOp};
pub use codec::ExprType;
use codec::{name, put_byte, put_name};
pub use connlimit::Connlimit;
pub use counter::Counter;
pub(crate) use counter::{NFTA_COUNTER_BYTES, NFTA_COUNTER_PACKETS};
pub use ct::{Ct, CtKey, CtState, CtStatus, Direction, Notrack};
pub use dup::{Dup, Fwd};
pub(crate) use dynset::NFTA_DYNSET_SET_ID;
pub use dynset::{Dynset, DynsetOp};
pub use exthdr::{Exthdr, ExthdrAccess, ExthdrOp};
pub use fib::{AddrType, Fib, FibFlags, FibResult};
pub use flow_offload::FlowOffload;
pub(crate) use hash::NFT_HASH_SYM;
pub use hash::{Hash, HashType, jenkins_number};
pub use immediate::Immediate;
pub(crate) use immediate::{NFTA_IMMEDIATE_DATA, NFTA_IMMEDIATE_DREG};
pub use last::Last;
pub use limit::{Limit, LimitType};
pub use log::{Log, LogFlags, LogLevel};
pub use lookup::Lookup;
pub use masq::Masq;
pub use meta::{Meta, MetaKey};
pub use nat::{Nat, NatFlags, NatType};
pub use numgen::{Numgen, NumgenMode};
pub(crate) use objref::{
    NFT_OBJECT_COUNTER, NFT_OBJECT_CT_EXPECT, NFT_OBJECT_CT_HELPER, NFT_OBJECT_CT_TIMEOUT,
    NFT_OBJECT_LIMIT, NFT_OBJECT_QUOTA, NFT_OBJECT_SECMARK, NFT_OBJECT_SYNPROXY,
    NFTA_OBJREF_SET_ID, kind_text as object_kind,
};
pub use objref::{Objref, ObjrefSource};
pub use osf::{Osf, OsfTtl};
pub use payload::{Payload, PayloadAccess, PayloadBase};
pub use queue::{Queue, QueueFlags, QueueTarget};
pub use quota::Quota;
pub use range::Range;
pub use redir::Redir;
pub use register::{Access, Register};
pub use reject::{Reject, RejectType};
pub use rt::{Rt, RtKey};
pub use set_ref::{AnonymousSet, SetRef};
pub(crate) use socket::{NFT_SOCKET_MARK, NFT_SOCKET_TRANSPARENT, NFT_SOCKET_WILDCARD};
pub use socket::{Socket, SocketKey};
pub(crate) use synproxy::{
    NF_SYNPROXY_OPT_MSS, NF_SYNPROXY_OPT_SACK_PERM, NF_SYNPROXY_OPT_TIMESTAMP,
    NF_SYNPROXY_OPT_WSCALE, NFTA_SYNPROXY_FLAGS, NFTA_SYNPROXY_MSS, NFTA_SYNPROXY_WSCALE,
};
pub use synproxy::{Synproxy, SynproxyFlags};
pub use tproxy::Tproxy;
pub use xfrm::{Xfrm, XfrmDirection, XfrmKey};
pub use xt::{Match, Target};

// enum nft_expr_attributes
pub(crate) const NFTA_EXPR_NAME: u16 = 1;
pub(crate) const NFTA_EXPR_DATA: u16 = 2;
// enum nft_list_attributes
pub(crate) const NFTA_LIST_ELEM: u16 = 1;

macro_rules! expressions {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A kernel expression of a rule.
        #[derive(Clone, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum Expr {
            $($(#[$doc])* $name($name),)*
            /// An unknown expression, or one with unknown attributes.
            Other {
                /// The kernel's name of the expression.
                name: Name,
                /// Raw attributes.
                bytes: Bytes,
            },
        }

        impl Expr {
            /// The names of all expressions except [`Expr::Other`].
            pub const NAMES: &[&str] = &[$($name::NAME),*];

            /// Returns the kernel's name of the expression.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$name(_) => $name::NAME,)*
                    Self::Other { name, .. } => name.as_str(),
                }
            }

            fn encode_data(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name(expr) => expr.encode(out),)*
                    Self::Other { bytes, .. } => out.extend_from_slice(bytes),
                }
            }

            fn decode_data(name: &str, attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
                Ok(match name {
                    $($name::NAME => $name::decode(attrs)?.map(Self::$name),)*
                    _ => None,
                })
            }
        }

        $(impl From<$name> for Expr {
            fn from(expr: $name) -> Self {
                Self::$name(expr)
            }
        })*
    };
}

expressions! {
    /// Loads or writes bytes of the packet.
    Payload,
    /// Loads or sets packet metadata.
    Meta,
    /// Loads or sets a conntrack property.
    Ct,
    /// Loads, writes or removes an optional header: an extension header or option.
    Exthdr,
    /// Loads a property of the packet's route.
    Rt,
    /// Loads a property of the local socket.
    Socket,
    /// Loads a property of an IPsec transformation.
    Xfrm,
    /// Loads the operating system of the sender.
    Osf,
    /// Looks up the route of an address.
    Fib,
    /// Generates a number.
    Numgen,
    /// Computes a hash.
    Hash,
    /// Loads a constant or returns a verdict.
    Immediate,
    /// Performs a bitwise operation.
    Bitwise,
    /// Converts between byte orders.
    Byteorder,
    /// Compares a value with a constant.
    Cmp,
    /// Compares a value with a range.
    Range,
    /// Looks up a value in a set or map.
    Lookup,
    /// Adds, updates or deletes a set element.
    Dynset,
    /// Uses a stateful object, such as a named counter.
    Objref,
    /// Counts packets and bytes.
    Counter,
    /// Matches up to a number of bytes.
    Quota,
    /// Limits a rate.
    Limit,
    /// Limits a number of connections.
    Connlimit,
    /// Records the time of the last match.
    Last,
    /// Logs packets.
    Log,
    /// Translates the source or destination.
    Nat,
    /// Changes the source to an address of the output interface.
    Masq,
    /// Redirects packets to the local host.
    Redir,
    /// Assigns packets to a local socket.
    Tproxy,
    /// Drops packets and replies with an error.
    Reject,
    /// Completes TCP handshakes for a server.
    Synproxy,
    /// Sends a copy of the packet.
    Dup,
    /// Sends the packet through another interface.
    Fwd,
    /// Passes the packet to a program.
    Queue,
    /// Disables connection tracking for the packet.
    Notrack,
    /// Adds the connection to a flowtable.
    FlowOffload,
    /// Runs a match of xtables.
    Match,
    /// Runs a target of xtables.
    Target,
}

impl Expr {
    /// Appends name and attributes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_str(out, NFTA_EXPR_NAME, self.name());
        if !matches!(self, Self::Notrack(_)) {
            nest(out, NFTA_EXPR_DATA, |out| self.encode_data(out));
        }
    }

    /// Decodes name and attributes. Unknown ones become [`Expr::Other`].
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if an attribute is malformed or the name is missing.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (mut name, mut data) = (None, &[][..]);
        for attr in Attrs::new(bytes) {
            let attr = attr?;
            match attr.kind {
                NFTA_EXPR_NAME => name = Some(attr),
                NFTA_EXPR_DATA => data = attr.value,
                _ => {}
            }
        }
        let missing = Attr {
            kind: NFTA_EXPR_NAME,
            value: &[],
        };
        let name = name.ok_or_else(|| missing.error("expression name"))?;
        if let Some(expr) = Self::decode_data(name.str()?, Attrs::new(data))? {
            return Ok(expr);
        }
        Ok(Self::Other {
            name: Name::new(name.str()?).map_err(|_| name.error("expression name"))?,
            bytes: data.into(),
        })
    }

    /// Returns the expression without counts, which change with each packet.
    pub(crate) fn without_counts(&self) -> Self {
        match self {
            Self::Counter(_) => Counter::default().into(),
            Self::Last(_) => Last::default().into(),
            Self::Quota(quota) => Quota {
                consumed: 0,
                ..quota.clone()
            }
            .into(),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::put;

    use super::*;

    /// Asserts that an expression decodes to itself.
    #[track_caller]
    pub(super) fn assert_identity(expr: impl Into<Expr>) {
        let expr = expr.into();
        let mut out = Vec::new();
        expr.encode(&mut out);
        assert_eq!(Expr::decode(&out), Ok(expr));
    }

    #[test]
    fn an_unknown_expression_keeps_its_raw_attributes() {
        let mut bytes = Vec::new();
        put(&mut bytes, 9, &[1, 2, 3]);
        let name = Name::new("unknown").unwrap();
        assert_identity(Expr::Other {
            name,
            bytes: bytes[..].into(),
        });
    }

    #[test]
    fn a_known_expression_with_an_unknown_attribute_keeps_its_raw_attributes() {
        let mut data = Vec::new();
        Notrack.encode(&mut data);
        put(&mut data, 77, &[1, 2, 3, 4]);
        let mut out = Vec::new();
        put_str(&mut out, NFTA_EXPR_NAME, "notrack");
        put(&mut out, NFTA_EXPR_DATA, &data);
        let name = Name::new("notrack").unwrap();
        assert_eq!(
            Expr::decode(&out),
            Ok(Expr::Other {
                name,
                bytes: data[..].into()
            })
        );
    }

    #[test]
    fn an_expression_without_a_name_is_an_error() {
        assert!(Expr::decode(&[]).is_err());
    }
}
