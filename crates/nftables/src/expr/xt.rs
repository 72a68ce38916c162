//! `match` and `target`: matches and targets of xtables.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put, put_be32, put_str};

use super::{ExprType, name};
use crate::{Bytes, Name};

// enum nft_match_attributes of linux/netfilter/nf_tables_compat.h
const NFTA_MATCH_NAME: u16 = 1;
const NFTA_MATCH_REV: u16 = 2;
const NFTA_MATCH_INFO: u16 = 3;
// enum nft_target_attributes
const NFTA_TARGET_NAME: u16 = 1;
const NFTA_TARGET_REV: u16 = 2;
const NFTA_TARGET_INFO: u16 = 3;

/// The `match` expression: runs a match of xtables. Breaks the rule on mismatch.
///
/// Available with `CONFIG_NFT_COMPAT`, in families `ip`, `ip6`, `bridge` and `arp`.
/// The kernel accepts only matches that allow the table's name and the hooks of all
/// chains that lead to the rule.
///
/// In dumps, fields of the structure that only the kernel uses are zero.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Match {
    /// Name of the match, such as `conntrack`; at most 28 bytes.
    pub name: Name,
    /// Revision of the structure, at most 255.
    pub revision: u32,
    /// Structure of the match in host byte order, padded to a multiple of eight bytes
    /// (`XT_ALIGN`).
    pub info: Bytes,
}

/// The `target` expression: runs a target of xtables.
///
/// Available with `CONFIG_NFT_COMPAT`, in families `ip`, `ip6`, `bridge` and `arp`.
/// The kernel accepts only targets that allow the table's name and the hooks of all
/// chains that lead to the rule.
///
/// In dumps, fields of the structure that only the kernel uses are zero.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Target {
    /// Name of the target, such as `DNAT`; at most 28 bytes.
    pub name: Name,
    /// Revision of the structure, at most 255.
    pub revision: u32,
    /// Structure of the target in host byte order, padded to a multiple of eight bytes
    /// (`XT_ALIGN`).
    pub info: Bytes,
}

macro_rules! codec {
    ($($expr:ident $text:literal: $name:ident, $rev:ident, $info:ident;)*) => {$(
        impl ExprType for $expr {
            const NAME: &'static str = $text;

            fn encode(&self, out: &mut Vec<u8>) {
                put_str(out, $name, self.name.as_str());
                put_be32(out, $rev, self.revision);
                put(out, $info, &self.info);
            }

            fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
                let (mut found, mut revision, mut info) = (None, None, None);
                for attr in attrs {
                    let attr = attr?;
                    match attr.kind {
                        $name => found = Some(name(&attr)?),
                        $rev => revision = Some(attr.be32()?),
                        $info => info = Some(attr.value.into()),
                        _ => return Ok(None),
                    }
                }
                let (Some(name), Some(revision), Some(info)) = (found, revision, info) else {
                    return Ok(None);
                };
                Ok(Some(Self { name, revision, info }))
            }
        }
    )*};
}

codec! {
    Match "match": NFTA_MATCH_NAME, NFTA_MATCH_REV, NFTA_MATCH_INFO;
    Target "target": NFTA_TARGET_NAME, NFTA_TARGET_REV, NFTA_TARGET_INFO;
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::nest;

    use super::*;
    use crate::expr::tests::assert_identity;
    use crate::expr::{Expr, NFTA_EXPR_DATA, NFTA_EXPR_NAME};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn matches_and_targets_round_trip() {
        let mut comment = [0; 256];
        comment[..5].copy_from_slice(b"hello");
        assert_identity(Match {
            name: name("comment"),
            revision: 0,
            info: comment.into(),
        });
        assert_identity(Target {
            name: name("MARK"),
            revision: 2,
            info: Bytes::from([0, 0x40, 0, 0, 0, 0x40, 0, 0]),
        });
    }

    #[test]
    fn a_match_without_a_structure_keeps_its_raw_attributes() {
        let mut bytes = Vec::new();
        put_str(&mut bytes, NFTA_EXPR_NAME, "match");
        nest(&mut bytes, NFTA_EXPR_DATA, |out| {
            put_str(out, NFTA_MATCH_NAME, "comment");
        });
        let expr = Expr::decode(&bytes).unwrap();
        assert!(matches!(expr, Expr::Other { .. }), "{expr:?}");
        let mut again = Vec::new();
        expr.encode(&mut again);
        assert_eq!(again, bytes);
    }
}
