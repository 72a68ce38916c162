//! Policies of attributes in extended ACKs (`NLMSGERR_ATTR_POLICY`).

use netlink_packet_generic::constants::*;

use crate::DecodeError;
use crate::attr::Attrs;

/// The policy that an attribute of a request violates (`enum netlink_policy_type_attr`
/// of `linux/netlink.h`).
///
/// The kernel omits limits that the policy does not set.
///
/// ```
/// use vipline_netlink::Policy;
/// use vipline_netlink::attr::{Attrs, put_u32};
///
/// const NL_POLICY_TYPE_ATTR_TYPE: u16 = 1;
/// const NL_POLICY_TYPE_ATTR_MAX_LENGTH: u16 = 7;
///
/// let mut bytes = Vec::new();
/// put_u32(&mut bytes, NL_POLICY_TYPE_ATTR_TYPE, 12);
/// put_u32(&mut bytes, NL_POLICY_TYPE_ATTR_MAX_LENGTH, 15);
/// let policy = Policy::decode(Attrs::new(&bytes))?;
/// assert_eq!(policy.type_name(), Some("NUL-terminated string"));
/// assert_eq!(policy.max_length, Some(15));
/// # Ok::<(), vipline_netlink::DecodeError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// Type of the attribute (`NL_ATTR_TYPE_*`).
    #[doc(alias = "NL_POLICY_TYPE_ATTR_TYPE")]
    pub ty: u32,
    /// Minimum of a signed number.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_MIN_VALUE_S")]
    pub min_signed: Option<i64>,
    /// Maximum of a signed number.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_MAX_VALUE_S")]
    pub max_signed: Option<i64>,
    /// Minimum of an unsigned number.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_MIN_VALUE_U")]
    pub min_unsigned: Option<u64>,
    /// Maximum of an unsigned number.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_MAX_VALUE_U")]
    pub max_unsigned: Option<u64>,
    /// Minimum length of the value, in bytes.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_MIN_LENGTH")]
    pub min_length: Option<u32>,
    /// Maximum length of the value, in bytes.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_MAX_LENGTH")]
    pub max_length: Option<u32>,
    /// Index of the policy of nested attributes in a dump of policies.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_POLICY_IDX")]
    pub nested_policy: Option<u32>,
    /// Maximum type of nested attributes.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_POLICY_MAXTYPE")]
    pub nested_max_type: Option<u32>,
    /// Valid bits of a `struct nla_bitfield32`.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_BITFIELD32_MASK")]
    pub bitfield32_mask: Option<u32>,
    /// Valid bits of an unsigned number.
    #[doc(alias = "NL_POLICY_TYPE_ATTR_MASK")]
    pub mask: Option<u64>,
}

impl Policy {
    /// Decodes the attributes of a policy. Ignores unknown attributes.
    ///
    /// # Errors
    ///
    /// An attribute is malformed.
    pub fn decode(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let mut policy = Self::default();
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NL_POLICY_TYPE_ATTR_TYPE => policy.ty = attr.u32()?,
                NL_POLICY_TYPE_ATTR_MIN_VALUE_S => {
                    policy.min_signed = Some(attr.u64()?.cast_signed())
                }
                NL_POLICY_TYPE_ATTR_MAX_VALUE_S => {
                    policy.max_signed = Some(attr.u64()?.cast_signed())
                }
                NL_POLICY_TYPE_ATTR_MIN_VALUE_U => policy.min_unsigned = Some(attr.u64()?),
                NL_POLICY_TYPE_ATTR_MAX_VALUE_U => policy.max_unsigned = Some(attr.u64()?),
                NL_POLICY_TYPE_ATTR_MIN_LENGTH => policy.min_length = Some(attr.u32()?),
                NL_POLICY_TYPE_ATTR_MAX_LENGTH => policy.max_length = Some(attr.u32()?),
                NL_POLICY_TYPE_ATTR_POLICY_IDX => policy.nested_policy = Some(attr.u32()?),
                NL_POLICY_TYPE_ATTR_POLICY_MAXTYPE => policy.nested_max_type = Some(attr.u32()?),
                NL_POLICY_TYPE_ATTR_BITFIELD32_MASK => policy.bitfield32_mask = Some(attr.u32()?),
                NL_POLICY_TYPE_ATTR_MASK => policy.mask = Some(attr.u64()?),
                _ => {}
            }
        }
        Ok(policy)
    }

    /// Returns a name of the type, or `None` for an unknown type.
    pub fn type_name(&self) -> Option<&'static str> {
        const NAMES: [&str; 18] = [
            "invalid",
            "flag",
            "u8",
            "u16",
            "u32",
            "u64",
            "s8",
            "s16",
            "s32",
            "s64",
            "binary",
            "string",
            "NUL-terminated string",
            "nested",
            "nested array",
            "bitfield32",
            "sint",
            "uint",
        ];
        NAMES.get(usize::try_from(self.ty).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{put_u16, put_u32, put_u64};

    #[test]
    fn all_attributes_are_decoded_and_unknown_ones_ignored() {
        let mut bytes = Vec::new();
        put_u32(&mut bytes, NL_POLICY_TYPE_ATTR_TYPE, 9);
        put_u64(
            &mut bytes,
            NL_POLICY_TYPE_ATTR_MIN_VALUE_S,
            (-7_i64).cast_unsigned(),
        );
        for ty in [
            NL_POLICY_TYPE_ATTR_MAX_VALUE_S,
            NL_POLICY_TYPE_ATTR_MIN_VALUE_U,
            NL_POLICY_TYPE_ATTR_MAX_VALUE_U,
            NL_POLICY_TYPE_ATTR_MASK,
        ] {
            put_u64(&mut bytes, ty, u64::from(ty));
        }
        for ty in [
            NL_POLICY_TYPE_ATTR_MIN_LENGTH,
            NL_POLICY_TYPE_ATTR_MAX_LENGTH,
            NL_POLICY_TYPE_ATTR_POLICY_IDX,
            NL_POLICY_TYPE_ATTR_POLICY_MAXTYPE,
            NL_POLICY_TYPE_ATTR_BITFIELD32_MASK,
            99,
        ] {
            put_u32(&mut bytes, ty, u32::from(ty));
        }
        let expected = Policy {
            ty: 9,
            min_signed: Some(-7),
            max_signed: Some(3),
            min_unsigned: Some(4),
            max_unsigned: Some(5),
            min_length: Some(6),
            max_length: Some(7),
            nested_policy: Some(8),
            nested_max_type: Some(9),
            bitfield32_mask: Some(10),
            mask: Some(12),
        };
        assert_eq!(Policy::decode(Attrs::new(&bytes)), Ok(expected));
        assert_eq!(expected.type_name(), Some("s64"));
        let unknown = Policy { ty: 18, ..expected };
        assert_eq!(unknown.type_name(), None);
    }

    #[test]
    fn an_attribute_of_the_wrong_size_is_an_error() {
        let mut bytes = Vec::new();
        put_u16(&mut bytes, NL_POLICY_TYPE_ATTR_MAX_LENGTH, 15);
        let error = Policy::decode(Attrs::new(&bytes)).unwrap_err();
        assert_eq!(error, DecodeError::new("u32", 7, 2));
    }
}
