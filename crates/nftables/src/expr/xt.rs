//! `match` and `target`: matches and targets of xtables.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put, put_be32, put_str};

use super::{ExprType, name};
use crate::{Bytes, Name};

// enum nft_match_attributes and enum nft_target_attributes of
// linux/netfilter/nf_tables_compat.h; their numbers are equal.
const NAME: u16 = 1;
const REV: u16 = 2;
const INFO: u16 = 3;

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

fn encode(out: &mut Vec<u8>, name: &Name, revision: u32, info: &Bytes) {
    put_str(out, NAME, name.as_str());
    put_be32(out, REV, revision);
    put(out, INFO, info);
}

/// Name, revision and structure of an extension.
type Parts = (Name, u32, Bytes);

fn decode(attrs: Attrs<'_>) -> Result<Option<Parts>, DecodeError> {
    let (mut found, mut revision, mut info) = (None, None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NAME => found = Some(name(&attr)?),
            REV => revision = Some(attr.be32()?),
            INFO => info = Some(attr.value.into()),
            _ => return Ok(None),
        }
    }
    Ok(match (found, revision, info) {
        (Some(name), Some(revision), Some(info)) => Some((name, revision, info)),
        _ => None,
    })
}

macro_rules! codec {
    ($($expr:ident $name:literal)*) => {$(
        impl ExprType for $expr {
            const NAME: &'static str = $name;

            fn encode(&self, out: &mut Vec<u8>) {
                encode(out, &self.name, self.revision, &self.info);
            }

            fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
                Ok(decode(attrs)?.map(|(name, revision, info)| Self { name, revision, info }))
            }
        }
    )*};
}

codec! { Match "match" Target "target" }

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::nest;

    use super::*;
    use crate::expr::Expr;
    use crate::expr::tests::assert_identity;

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
        put_str(&mut bytes, 1, "match");
        nest(&mut bytes, 2, |out| put_str(out, NAME, "comment"));
        let expr = Expr::decode(&bytes).unwrap();
        assert!(matches!(expr, Expr::Other { .. }), "{expr:?}");
        let mut again = Vec::new();
        expr.encode(&mut again);
        assert_eq!(again, bytes);
    }
}
