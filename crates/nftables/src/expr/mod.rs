//! The kernel's expressions, one file each: struct, bytes, text and tests.
//!
//! A rule is a list of expressions that load values into registers, change and
//! compare them, and act.
//! Attribute numbers are those of `linux/netfilter/nf_tables.h`.

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

mod notrack;

mod flow_offload;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, nest, put, put_str};

use crate::text::Listing;
use crate::{Bytes, Name};

pub use bitwise::{Bitwise, BitwiseOp};
pub use byteorder::{Byteorder, ByteorderOp};
pub use cmp::{Cmp, CmpOp};
pub use counter::Counter;
pub use ct::{Ct, CtKey, CtState, CtStatus, Direction};
pub use dynset::{Dynset, DynsetOp};
pub use fib::{AddrType, Fib, FibFlags, FibResult};
pub use flow_offload::FlowOffload;
pub use hash::{Hash, HashType};
pub use immediate::Immediate;
pub use limit::{Limit, LimitType};
pub use log::{Log, LogFlags, LogLevel};
pub use lookup::Lookup;
pub use masq::Masq;
pub use meta::{Meta, MetaKey};
pub use nat::{Nat, NatFlags, NatType};
pub use notrack::Notrack;
pub use numgen::{Numgen, NumgenMode};
pub(crate) use objref::kind_text as object_kind;
pub use objref::{Objref, ObjrefSource};
pub use payload::{Payload, PayloadAccess, PayloadBase};
pub use quota::Quota;
pub use range::Range;
pub use redir::Redir;
pub use register::{Access, Register};
pub use reject::{Reject, RejectType};
pub use set_ref::{AnonymousSet, SetRef};
pub use tproxy::Tproxy;

// enum nft_expr_attributes
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;

/// What the file of an expression provides.
pub trait ExprType: Sized {
    /// The kernel's name of the expression.
    const NAME: &'static str;

    /// Appends the attributes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads the attributes.
    ///
    /// None: some are missing or unknown, so the expression has to be kept as
    /// bytes.
    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError>;
}

/// What an expression does to the text of a rule.
pub(crate) trait List {
    fn list(&self, listing: &mut Listing);
}

macro_rules! expressions {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An expression of a rule.
        #[derive(Clone, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum Expr {
            $($(#[$doc])* $name($name),)*
            /// An expression, or a form of one, that we do not know.
            Other {
                /// The kernel's name of the expression.
                name: Name,
                /// Its attributes, as bytes.
                bytes: Bytes,
            },
        }

        impl Expr {
            /// The names of the expressions that are not [`Expr::Other`].
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

            pub(crate) fn list(&self, listing: &mut Listing) {
                match self {
                    $(Self::$name(expr) => expr.list(listing),)*
                    Self::Other { name, bytes } => listing.unknown(name.as_str(), bytes),
                }
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
    /// Loads or sets what the kernel knows about the packet.
    Meta,
    /// Loads or sets what the kernel knows about the connection.
    Ct,
    /// Looks an address up in the routing tables.
    Fib,
    /// Makes a number.
    Numgen,
    /// Makes a number of a value.
    Hash,
    /// Loads a constant or gives a verdict.
    Immediate,
    /// Changes bits.
    Bitwise,
    /// Changes the order of bytes.
    Byteorder,
    /// Goes on if a value compares so.
    Cmp,
    /// Goes on if a value is within or without a range.
    Range,
    /// Looks a value up in a set or map.
    Lookup,
    /// Adds an element to a set or map.
    Dynset,
    /// Uses a named counter, quota or the like.
    Objref,
    /// Counts packets.
    Counter,
    /// Goes on until so many bytes came.
    Quota,
    /// Goes on at most so often.
    Limit,
    /// Writes packets to a log.
    Log,
    /// Changes the source or the destination.
    Nat,
    /// Changes the source to an address of the device the packet leaves by.
    Masq,
    /// Changes the destination to this machine.
    Redir,
    /// Gives packets to a local socket.
    Tproxy,
    /// Answers with an error.
    Reject,
    /// Keeps packets out of connection tracking.
    Notrack,
    /// Moves a connection to a flowtable.
    FlowOffload,
}

impl Expr {
    /// Appends the name and the attributes of the expression.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_str(out, NFTA_EXPR_NAME, self.name());
        if !matches!(self, Self::Notrack(_)) {
            nest(out, NFTA_EXPR_DATA, |out| self.encode_data(out));
        }
    }

    /// Reads what [`Expr::encode`] appends.
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

    /// Returns the expression without counts, which change by themselves.
    pub(crate) fn without_counts(&self) -> Self {
        match self {
            Self::Counter(_) => Counter::default().into(),
            Self::Quota(quota) => Quota {
                consumed: 0,
                ..quota.clone()
            }
            .into(),
            other => other.clone(),
        }
    }
}

/// Appends a text attribute if there is one.
fn put_name(out: &mut Vec<u8>, kind: u16, name: Option<&Name>) {
    if let Some(name) = name {
        put_str(out, kind, name.as_str());
    }
}

/// Reads a name.
fn name(attr: &Attr<'_>) -> Result<Name, DecodeError> {
    Name::new(attr.str()?).map_err(|_| attr.error("name"))
}

/// Appends an attribute with a `u8`, which netlink pads.
fn put_byte(out: &mut Vec<u8>, kind: u16, value: u8) {
    put(out, kind, &[value]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails unless the expression comes back from its bytes.
    #[track_caller]
    pub(super) fn assert_identity(expr: impl Into<Expr>) {
        let expr = expr.into();
        let mut out = Vec::new();
        expr.encode(&mut out);
        assert_eq!(Expr::decode(&out), Ok(expr));
    }

    #[test]
    fn an_unknown_expression_is_kept_as_bytes() {
        let mut bytes = Vec::new();
        put(&mut bytes, 9, &[1, 2, 3]);
        let name = Name::new("synproxy").unwrap();
        assert_identity(Expr::Other {
            name,
            bytes: bytes[..].into(),
        });
    }

    #[test]
    fn a_known_expression_with_an_unknown_attribute_is_kept_as_bytes() {
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
