//! Codec of sets.

use std::time::Duration;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, nest, put_be32, put_be64, put_str};

use super::{element, missing, name, put_userdata, userdata};
use crate::expr::{Expr, NFTA_LIST_ELEM};
use crate::object::set::{DataKind, Set};
use crate::{Datatype, Family, Name, SetFlags, SetPolicy, SetSpec, TableId};

// enum nft_set_attributes
pub(super) const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DATA_TYPE: u16 = 6;
const NFTA_SET_DATA_LEN: u16 = 7;
const NFTA_SET_POLICY: u16 = 8;
const NFTA_SET_DESC: u16 = 9;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_TIMEOUT: u16 = 11;
const NFTA_SET_GC_INTERVAL: u16 = 12;
const NFTA_SET_USERDATA: u16 = 13;
const NFTA_SET_OBJ_TYPE: u16 = 15;
const NFTA_SET_EXPR: u16 = 17;
const NFTA_SET_EXPRESSIONS: u16 = 18;
// enum nft_set_desc_attributes
const NFTA_SET_DESC_SIZE: u16 = 1;
const NFTA_SET_DESC_CONCAT: u16 = 2;
// enum nft_set_field_attributes
const NFTA_SET_FIELD_LEN: u16 = 1;
// enum nft_set_policies
const NFT_SET_POL_MEMORY: u32 = 1;
// enum nft_set_flags: flags that follow from the fields
pub(crate) const NFT_SET_MAP: u32 = 0x8;
pub(crate) const NFT_SET_OBJECT: u32 = 0x40;
pub(crate) const NFT_SET_CONCAT: u32 = 0x80;
/// The set has more than one stateful expression.
pub(crate) const NFT_SET_EXPR: u32 = 0x100;
/// Data type of verdicts: `NFT_DATA_VERDICT`.
pub(crate) const NFT_DATA_VERDICT: u32 = 0xffff_ff00;
/// Appends the attributes of a new set.
pub(crate) fn put(out: &mut Vec<u8>, table: &TableId, set: &Set, id: u32, size: Option<u32>) {
    put_str(out, NFTA_SET_TABLE, table.name.as_str());
    put_str(out, NFTA_SET_NAME, set.name.as_str());
    let fields_described = set.has_intervals() && set.is_concatenated();
    let mut flags = set.flags.bits();
    match &set.data {
        DataKind::None => {}
        DataKind::Fields(_) | DataKind::Verdict => flags |= NFT_SET_MAP,
        DataKind::Object(_) => flags |= NFT_SET_OBJECT,
    }
    if fields_described {
        flags |= NFT_SET_CONCAT;
    }
    if set.exprs.len() > 1 {
        flags |= NFT_SET_EXPR;
    }
    put_be32(out, NFTA_SET_FLAGS, flags);
    put_be32(
        out,
        NFTA_SET_KEY_TYPE,
        Datatype::concat(set.key.iter().map(|f| f.datatype)),
    );
    put_be32(
        out,
        NFTA_SET_KEY_LEN,
        u32::try_from(set.key_bytes()).unwrap_or(u32::MAX),
    );
    match &set.data {
        DataKind::None => {}
        DataKind::Fields(fields) => {
            put_be32(
                out,
                NFTA_SET_DATA_TYPE,
                Datatype::concat(fields.iter().map(|f| f.datatype)),
            );
            put_be32(
                out,
                NFTA_SET_DATA_LEN,
                u32::try_from(set.data_bytes()).unwrap_or(u32::MAX),
            );
        }
        DataKind::Verdict => {
            put_be32(out, NFTA_SET_DATA_TYPE, NFT_DATA_VERDICT);
            put_be32(out, NFTA_SET_DATA_LEN, 0);
        }
        DataKind::Object(kind) => put_be32(out, NFTA_SET_OBJ_TYPE, *kind),
    }
    put_be32(out, NFTA_SET_ID, id);
    if size.is_some() || fields_described {
        nest(out, NFTA_SET_DESC, |out| {
            if let Some(size) = size {
                put_be32(out, NFTA_SET_DESC_SIZE, size);
            }
            if fields_described {
                nest(out, NFTA_SET_DESC_CONCAT, |out| {
                    for field in &set.key {
                        nest(out, NFTA_LIST_ELEM, |out| {
                            put_be32(out, NFTA_SET_FIELD_LEN, field.bytes.into());
                        });
                    }
                });
            }
        });
    }
    if set.policy == SetPolicy::Memory {
        put_be32(out, NFTA_SET_POLICY, NFT_SET_POL_MEMORY);
    }
    element::put_exprs(out, &set.exprs, NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS);
    if let Some(timeout) = set.timeout {
        put_be64(out, NFTA_SET_TIMEOUT, element::milliseconds(timeout));
    }
    if let Some(interval) = set.gc_interval {
        let interval = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
        put_be32(out, NFTA_SET_GC_INTERVAL, interval);
    }
    put_userdata(out, NFTA_SET_USERDATA, |out| userdata::put_set(out, set));
}

/// Appends the attributes that name a set.
pub(crate) fn put_name(out: &mut Vec<u8>, table: &TableId, set: &Name) {
    put_str(out, NFTA_SET_TABLE, table.name.as_str());
    put_str(out, NFTA_SET_NAME, set.as_str());
}

/// Decoded attributes of a set.
#[derive(Default)]
struct SetAttrs<'a> {
    table: Option<Name>,
    name: Option<Name>,
    flags: u32,
    key_type: u32,
    key_len: u32,
    data_type: Option<u32>,
    data_len: u32,
    object: Option<u32>,
    size: Option<u32>,
    lens: Vec<u32>,
    timeout: Option<u64>,
    gc_interval: Option<u32>,
    policy: SetPolicy,
    exprs: Vec<Expr>,
    userdata: &'a [u8],
}

/// Returns the name of a set in a message.
pub(crate) fn name_in(payload: &[u8]) -> Result<Option<Name>, DecodeError> {
    let (_, attrs) = super::split_header(payload)?;
    for attr in attrs {
        let attr = attr?;
        if attr.kind == NFTA_SET_NAME {
            return name(&attr).map(Some);
        }
    }
    Ok(None)
}

/// Decodes a set.
pub(crate) fn decode(family: Family, attrs: Attrs<'_>) -> Result<Set, DecodeError> {
    let mut found = SetAttrs::default();
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_SET_TABLE => found.table = Some(name(&attr)?),
            NFTA_SET_NAME => found.name = Some(name(&attr)?),
            NFTA_SET_FLAGS => found.flags = attr.be32()?,
            NFTA_SET_KEY_TYPE => found.key_type = attr.be32()?,
            NFTA_SET_KEY_LEN => found.key_len = attr.be32()?,
            NFTA_SET_DATA_TYPE => found.data_type = Some(attr.be32()?),
            NFTA_SET_DATA_LEN => found.data_len = attr.be32()?,
            NFTA_SET_OBJ_TYPE => found.object = Some(attr.be32()?),
            NFTA_SET_DESC => desc(&attr, &mut found)?,
            NFTA_SET_TIMEOUT => found.timeout = Some(attr.be64()?),
            NFTA_SET_GC_INTERVAL => found.gc_interval = Some(attr.be32()?),
            NFTA_SET_POLICY if attr.be32()? == NFT_SET_POL_MEMORY => {
                found.policy = SetPolicy::Memory;
            }
            NFTA_SET_EXPR => found.exprs.push(Expr::decode(attr.value)?),
            NFTA_SET_EXPRESSIONS => {
                for expr in attr.attrs() {
                    found.exprs.push(Expr::decode(expr?.value)?);
                }
            }
            NFTA_SET_USERDATA => found.userdata = attr.value,
            _ => {}
        }
    }
    found.into_set(family)
}

fn desc(attr: &Attr<'_>, found: &mut SetAttrs<'_>) -> Result<(), DecodeError> {
    for attr in attr.attrs() {
        let attr = attr?;
        match attr.kind {
            NFTA_SET_DESC_SIZE => found.size = Some(attr.be32()?),
            NFTA_SET_DESC_CONCAT => {
                for field in attr.attrs() {
                    for attr in field?.attrs() {
                        found.lens.push(attr?.be32()?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

impl SetAttrs<'_> {
    fn into_set(self, family: Family) -> Result<Set, DecodeError> {
        let (Some(table), Some(name)) = (self.table, self.name) else {
            return Err(missing(NFTA_SET_NAME, "set name"));
        };
        let data_intervals = userdata::has_data_intervals(self.userdata);
        let data_len = self.data_len / if data_intervals { 2 } else { 1 };
        let data = match (self.data_type, self.object) {
            (Some(NFT_DATA_VERDICT), _) => DataKind::Verdict,
            (Some(ty), _) => DataKind::Fields(crate::language::field::fields(ty, data_len, &[])),
            (None, Some(kind)) => DataKind::Object(kind),
            (None, None) => DataKind::None,
        };
        let mut derived = NFT_SET_MAP | NFT_SET_OBJECT | NFT_SET_CONCAT;
        if self.exprs.len() > 1 {
            derived |= NFT_SET_EXPR;
        }
        let mut spec = SetSpec {
            table: TableId::new(family, table),
            name,
            key: crate::language::field::fields(self.key_type, self.key_len, &self.lens),
            data,
            flags: SetFlags::from_bits_retain(self.flags & !derived),
            timeout: self
                .timeout
                .filter(|ms| *ms != 0)
                .map(Duration::from_millis),
            gc_interval: self
                .gc_interval
                .filter(|ms| *ms != 0)
                .map(|ms| Duration::from_millis(ms.into())),
            size: self.size.filter(|size| *size != 0),
            policy: self.policy,
            exprs: self.exprs,
            auto_merge: false,
            data_intervals,
            comment: None,
            userdata: None,
        };
        userdata::read_set(self.userdata, &mut spec);
        Ok(Set::from(spec))
    }
}
