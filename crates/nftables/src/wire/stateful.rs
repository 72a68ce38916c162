//! Codec of stateful objects.

use std::time::Duration;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, nest, put, put_be16, put_be32, put_str, put_u8};

use super::{element, missing, name, put_userdata, userdata};
use crate::expr::{
    Counter, ExprType, Limit, NFT_OBJECT_COUNTER, NFT_OBJECT_CT_EXPECT, NFT_OBJECT_CT_HELPER,
    NFT_OBJECT_CT_TIMEOUT, NFT_OBJECT_LIMIT, NFT_OBJECT_QUOTA, NFT_OBJECT_SECMARK,
    NFT_OBJECT_SYNPROXY, NFTA_SYNPROXY_FLAGS, NFTA_SYNPROXY_MSS, NFTA_SYNPROXY_WSCALE, Quota,
};
use crate::object::stateful::{
    CtExpectation, CtHelper, CtTimeout, State, StatefulObject, Synproxy,
};
use crate::{Family, Name, TableId};

// enum nft_object_attributes
const NFTA_OBJ_TABLE: u16 = 1;
const NFTA_OBJ_NAME: u16 = 2;
const NFTA_OBJ_TYPE: u16 = 3;
const NFTA_OBJ_DATA: u16 = 4;
const NFTA_OBJ_USERDATA: u16 = 8;
// enum nft_ct_helper_attributes
const NFTA_CT_HELPER_NAME: u16 = 1;
const NFTA_CT_HELPER_L3PROTO: u16 = 2;
const NFTA_CT_HELPER_L4PROTO: u16 = 3;
// enum nft_ct_timeout_timeout_attributes
const NFTA_CT_TIMEOUT_L3PROTO: u16 = 1;
const NFTA_CT_TIMEOUT_L4PROTO: u16 = 2;
const NFTA_CT_TIMEOUT_DATA: u16 = 3;
// enum nft_ct_expectation_attributes
const NFTA_CT_EXPECT_L3PROTO: u16 = 1;
const NFTA_CT_EXPECT_L4PROTO: u16 = 2;
const NFTA_CT_EXPECT_DPORT: u16 = 3;
const NFTA_CT_EXPECT_TIMEOUT: u16 = 4;
const NFTA_CT_EXPECT_SIZE: u16 = 5;
// enum nft_secmark_attributes
const NFTA_SECMARK_CTX: u16 = 1;

/// Appends the attributes of a new object.
pub(crate) fn put_object(out: &mut Vec<u8>, object: &StatefulObject) {
    put_id(out, object);
    nest(out, NFTA_OBJ_DATA, |out| put_state(out, &object.state));
    put_userdata(out, NFTA_OBJ_USERDATA, |out| {
        userdata::put_plain(out, object.userdata.as_ref(), object.comment.as_ref());
    });
}

/// Appends the attributes that name an object.
pub(crate) fn put_id(out: &mut Vec<u8>, object: &StatefulObject) {
    put_table(out, &object.table);
    put_str(out, NFTA_OBJ_NAME, object.name.as_str());
    put_be32(out, NFTA_OBJ_TYPE, object.state.kind());
}

/// Appends the attribute that names the table.
pub(crate) fn put_table(out: &mut Vec<u8>, table: &TableId) {
    put_str(out, NFTA_OBJ_TABLE, table.name.as_str());
}

fn put_state(out: &mut Vec<u8>, state: &State) {
    match state {
        State::Counter(counter) => counter.encode(out),
        State::Quota(quota) => quota.encode(out),
        State::Limit(limit) => limit.encode(out),
        State::CtHelper(helper) => {
            put_str(out, NFTA_CT_HELPER_NAME, helper.helper.as_str());
            if helper.l3proto != 0 {
                put_be16(out, NFTA_CT_HELPER_L3PROTO, helper.l3proto);
            }
            put_u8(out, NFTA_CT_HELPER_L4PROTO, helper.l4proto);
        }
        State::CtTimeout(timeout) => {
            put_be16(out, NFTA_CT_TIMEOUT_L3PROTO, timeout.l3proto);
            put_u8(out, NFTA_CT_TIMEOUT_L4PROTO, timeout.l4proto);
            nest(out, NFTA_CT_TIMEOUT_DATA, |out| {
                for (state, seconds) in &timeout.timeouts {
                    put_be32(out, *state, *seconds);
                }
            });
        }
        State::CtExpectation(expectation) => {
            let timeout = element::milliseconds(expectation.timeout);
            let timeout = u32::try_from(timeout).unwrap_or(u32::MAX);
            put_be16(out, NFTA_CT_EXPECT_L3PROTO, expectation.l3proto);
            put_u8(out, NFTA_CT_EXPECT_L4PROTO, expectation.l4proto);
            put_be16(out, NFTA_CT_EXPECT_DPORT, expectation.dport);
            // The kernel exchanges the timeout in host byte order.
            put(out, NFTA_CT_EXPECT_TIMEOUT, &timeout.to_ne_bytes());
            put_u8(out, NFTA_CT_EXPECT_SIZE, expectation.size);
        }
        State::Synproxy(synproxy) => {
            put_be16(out, NFTA_SYNPROXY_MSS, synproxy.mss);
            put_u8(out, NFTA_SYNPROXY_WSCALE, synproxy.wscale);
            put_be32(out, NFTA_SYNPROXY_FLAGS, synproxy.flags);
        }
        State::Secmark(context) => put_str(out, NFTA_SECMARK_CTX, context.as_str()),
        State::Other { bytes, .. } => out.extend_from_slice(bytes),
    }
}

/// Decodes an object.
pub(crate) fn decode(family: Family, attrs: Attrs<'_>) -> Result<StatefulObject, DecodeError> {
    let (mut table, mut found, mut kind, mut data) = (None, None, 0, &[][..]);
    let (mut comment, mut raw) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_OBJ_TABLE => table = Some(name(&attr)?),
            NFTA_OBJ_NAME => found = Some(name(&attr)?),
            NFTA_OBJ_TYPE => kind = attr.be32()?,
            NFTA_OBJ_DATA => data = attr.value,
            NFTA_OBJ_USERDATA => (comment, raw) = userdata::plain(attr.value),
            _ => {}
        }
    }
    let (Some(table), Some(name)) = (table, found) else {
        return Err(missing(NFTA_OBJ_NAME, "object name"));
    };
    let state = state(kind, data)?.unwrap_or_else(|| State::Other {
        kind,
        bytes: data.into(),
    });
    let mut object = StatefulObject::new(TableId::new(family, table), name, state);
    (object.comment, object.userdata) = (comment, raw);
    Ok(object)
}

/// Decodes the state. Returns `None` if an attribute is missing or unknown.
fn state(kind: u32, data: &[u8]) -> Result<Option<State>, DecodeError> {
    let attrs = Attrs::new(data);
    Ok(match kind {
        NFT_OBJECT_COUNTER => Counter::decode(attrs)?.map(State::from),
        NFT_OBJECT_QUOTA => Quota::decode(attrs)?.map(State::from),
        NFT_OBJECT_CT_HELPER => ct_helper(attrs)?.map(State::from),
        NFT_OBJECT_LIMIT => Limit::decode(attrs)?.map(State::from),
        NFT_OBJECT_CT_TIMEOUT => ct_timeout(attrs)?.map(State::from),
        NFT_OBJECT_SECMARK => secmark(attrs)?.map(State::Secmark),
        NFT_OBJECT_CT_EXPECT => ct_expectation(attrs)?.map(State::from),
        NFT_OBJECT_SYNPROXY => synproxy(attrs)?.map(State::from),
        _ => None,
    })
}

fn ct_helper(attrs: Attrs<'_>) -> Result<Option<CtHelper>, DecodeError> {
    let (mut helper, mut l3proto, mut l4proto) = (None, 0, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_CT_HELPER_NAME => helper = Some(name(&attr)?),
            NFTA_CT_HELPER_L3PROTO => l3proto = attr.be16()?,
            NFTA_CT_HELPER_L4PROTO => l4proto = Some(attr.u8()?),
            _ => return Ok(None),
        }
    }
    let found = helper.zip(l4proto);
    Ok(found.map(|(helper, l4proto)| CtHelper::new(helper, l3proto, l4proto)))
}

fn ct_timeout(attrs: Attrs<'_>) -> Result<Option<CtTimeout>, DecodeError> {
    let mut timeout = CtTimeout::new(0, 0);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_CT_TIMEOUT_L3PROTO => timeout.l3proto = attr.be16()?,
            NFTA_CT_TIMEOUT_L4PROTO => timeout.l4proto = attr.u8()?,
            NFTA_CT_TIMEOUT_DATA => {
                for attr in attr.attrs() {
                    let attr = attr?;
                    timeout.timeouts.push((attr.kind, attr.be32()?));
                }
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(timeout))
}

fn ct_expectation(attrs: Attrs<'_>) -> Result<Option<CtExpectation>, DecodeError> {
    let mut expectation = CtExpectation::new(0, 0, 0, Duration::ZERO, 0);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_CT_EXPECT_L3PROTO => expectation.l3proto = attr.be16()?,
            NFTA_CT_EXPECT_L4PROTO => expectation.l4proto = attr.u8()?,
            NFTA_CT_EXPECT_DPORT => expectation.dport = attr.be16()?,
            NFTA_CT_EXPECT_TIMEOUT => {
                expectation.timeout = Duration::from_millis(attr.u32()?.into());
            }
            NFTA_CT_EXPECT_SIZE => expectation.size = attr.u8()?,
            _ => return Ok(None),
        }
    }
    Ok(Some(expectation))
}

fn synproxy(attrs: Attrs<'_>) -> Result<Option<Synproxy>, DecodeError> {
    let mut synproxy = Synproxy::default();
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_SYNPROXY_MSS => synproxy.mss = attr.be16()?,
            NFTA_SYNPROXY_WSCALE => synproxy.wscale = attr.u8()?,
            NFTA_SYNPROXY_FLAGS => synproxy.flags = attr.be32()?,
            _ => return Ok(None),
        }
    }
    Ok(Some(synproxy))
}

fn secmark(attrs: Attrs<'_>) -> Result<Option<Name>, DecodeError> {
    let mut context = None;
    for attr in attrs {
        let attr: Attr<'_> = attr?;
        match attr.kind {
            NFTA_SECMARK_CTX => context = Some(name(&attr)?),
            _ => return Ok(None),
        }
    }
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Comment};

    #[test]
    fn every_state_decodes_to_itself() {
        let text = |text| Name::new(text).unwrap();
        let quota = Quota {
            bytes: 9,
            consumed: 2,
            over: true,
        };
        let states = [
            Counter::default().into(),
            quota.into(),
            Limit::per_second(5).into(),
            CtHelper::new(text("ftp"), 2, 6).into(),
            CtTimeout::new(2, 6).with_timeout(3, 120).into(),
            CtExpectation::new(2, 6, 80, Duration::from_millis(70), 5).into(),
            Synproxy::new(1460, 7).into(),
            State::Secmark(text("system_u:object_r:a:s0")),
            State::Other {
                kind: 6,
                bytes: Bytes::from([4, 0, 1, 0]),
            },
        ];
        for state in states {
            let table = TableId::new(Family::Inet, text("t"));
            let comment = Comment::new("a comment").unwrap();
            let object = StatefulObject::new(table, text("o"), state).with_comment(comment);
            let mut out = Vec::new();
            put_object(&mut out, &object);
            assert_eq!(decode(Family::Inet, Attrs::new(&out)), Ok(object));
        }
    }
}
