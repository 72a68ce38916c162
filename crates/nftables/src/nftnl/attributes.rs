//! The attributes of libnftnl objects and their value types.
//!
//! The library does not check types, so the safety of calls depends on this
//! table. It was derived from libnftnl 1.2.4.
#![forbid(unsafe_code)]

use std::marker::PhantomData;

use nftnl_sys as sys;

use super::{Chain, Element, Rule, Set, Table};
use crate::expr::*;

/// Maximum length of a register value: `NFT_DATA_VALUE_MAXLEN`.
const REGISTERS: usize = 64;
/// Maximum number of field lengths: one less than libnftnl's array, because it
/// needs a terminating zero.
const FIELDS: usize = 15;

/// An attribute of objects of type `K` with values of type `V`.
#[derive(Debug)]
pub(super) struct Attr<K, V: ?Sized> {
    number: u16,
    of: PhantomData<fn(K, &V)>,
}

impl<K, V: ?Sized> Attr<K, V> {
    const fn new(number: u32) -> Self {
        Self {
            number: number as u16,
            of: PhantomData,
        }
    }

    /// Returns the number of the attribute.
    pub(super) fn number(self) -> u16 {
        self.number
    }
}

/// A value of at most `MAX` bytes.
#[derive(Debug)]
pub(super) struct Short<const MAX: usize>;

/// An integer in host byte order.
pub(super) trait Number {
    fn bytes(self) -> impl AsRef<[u8]>;
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Number for $number {
            fn bytes(self) -> impl AsRef<[u8]> {
                self.to_ne_bytes()
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 }

/// A register value.
pub(super) type Value = Short<REGISTERS>;

macro_rules! attributes {
    ($($kind:ident $value:ty { $($attribute:ident)* })*) => {$($(
        pub(super) const $attribute: Attr<$kind, $value> = Attr::new(sys::$attribute);
    )*)*};
}

attributes! {
    Table str { NFTNL_TABLE_NAME }
    Table u32 { NFTNL_TABLE_FLAGS }
    Table [u8] { NFTNL_TABLE_USERDATA }

    Chain str { NFTNL_CHAIN_TABLE NFTNL_CHAIN_NAME NFTNL_CHAIN_TYPE NFTNL_CHAIN_DEV }
    Chain u32 { NFTNL_CHAIN_HOOKNUM NFTNL_CHAIN_PRIO NFTNL_CHAIN_POLICY }
    Chain u64 { NFTNL_CHAIN_PACKETS NFTNL_CHAIN_BYTES }
    Chain [u8] { NFTNL_CHAIN_USERDATA }

    Rule str { NFTNL_RULE_TABLE NFTNL_RULE_CHAIN }
    Rule u32 { NFTNL_RULE_COMPAT_PROTO NFTNL_RULE_COMPAT_FLAGS }
    Rule [u8] { NFTNL_RULE_USERDATA }

    Set str { NFTNL_SET_TABLE NFTNL_SET_NAME }
    Set u32 { NFTNL_SET_FLAGS NFTNL_SET_KEY_TYPE NFTNL_SET_KEY_LEN NFTNL_SET_DATA_TYPE }
    Set u32 { NFTNL_SET_DATA_LEN NFTNL_SET_OBJ_TYPE NFTNL_SET_ID NFTNL_SET_DESC_SIZE }
    Set u32 { NFTNL_SET_GC_INTERVAL }
    Set u64 { NFTNL_SET_TIMEOUT }
    Set Short<FIELDS> { NFTNL_SET_DESC_CONCAT }
    Set [u8] { NFTNL_SET_USERDATA }

    Element u32 { NFTNL_SET_ELEM_FLAGS NFTNL_SET_ELEM_VERDICT }
    Element u64 { NFTNL_SET_ELEM_TIMEOUT NFTNL_SET_ELEM_EXPIRATION }
    Element str { NFTNL_SET_ELEM_CHAIN NFTNL_SET_ELEM_OBJREF }
    Element Value { NFTNL_SET_ELEM_KEY NFTNL_SET_ELEM_KEY_END NFTNL_SET_ELEM_DATA }
    Element [u8] { NFTNL_SET_ELEM_USERDATA }

    Payload u32 { NFTNL_EXPR_PAYLOAD_DREG NFTNL_EXPR_PAYLOAD_SREG NFTNL_EXPR_PAYLOAD_BASE }
    Payload u32 { NFTNL_EXPR_PAYLOAD_OFFSET NFTNL_EXPR_PAYLOAD_LEN NFTNL_EXPR_PAYLOAD_CSUM_TYPE }
    Payload u32 { NFTNL_EXPR_PAYLOAD_CSUM_OFFSET NFTNL_EXPR_PAYLOAD_FLAGS }
    Meta u32 { NFTNL_EXPR_META_KEY NFTNL_EXPR_META_DREG NFTNL_EXPR_META_SREG }
    Ct u32 { NFTNL_EXPR_CT_KEY NFTNL_EXPR_CT_DREG NFTNL_EXPR_CT_SREG }
    Ct u8 { NFTNL_EXPR_CT_DIR }
    Fib u32 { NFTNL_EXPR_FIB_FLAGS NFTNL_EXPR_FIB_RESULT NFTNL_EXPR_FIB_DREG }
    Numgen u32 { NFTNL_EXPR_NG_DREG NFTNL_EXPR_NG_MODULUS NFTNL_EXPR_NG_TYPE NFTNL_EXPR_NG_OFFSET }
    Hash u32 { NFTNL_EXPR_HASH_SREG NFTNL_EXPR_HASH_DREG NFTNL_EXPR_HASH_LEN }
    Hash u32 { NFTNL_EXPR_HASH_MODULUS NFTNL_EXPR_HASH_SEED NFTNL_EXPR_HASH_OFFSET }
    Hash u32 { NFTNL_EXPR_HASH_TYPE }
    Immediate u32 { NFTNL_EXPR_IMM_DREG NFTNL_EXPR_IMM_VERDICT }
    Immediate str { NFTNL_EXPR_IMM_CHAIN }
    Immediate Value { NFTNL_EXPR_IMM_DATA }
    Bitwise u32 { NFTNL_EXPR_BITWISE_SREG NFTNL_EXPR_BITWISE_DREG NFTNL_EXPR_BITWISE_OP }
    Bitwise u32 { NFTNL_EXPR_BITWISE_LEN }
    Bitwise Value { NFTNL_EXPR_BITWISE_MASK NFTNL_EXPR_BITWISE_XOR NFTNL_EXPR_BITWISE_DATA }
    Byteorder u32 { NFTNL_EXPR_BYTEORDER_SREG NFTNL_EXPR_BYTEORDER_DREG NFTNL_EXPR_BYTEORDER_OP }
    Byteorder u32 { NFTNL_EXPR_BYTEORDER_LEN NFTNL_EXPR_BYTEORDER_SIZE }
    Cmp u32 { NFTNL_EXPR_CMP_SREG NFTNL_EXPR_CMP_OP }
    Cmp Value { NFTNL_EXPR_CMP_DATA }
    Range u32 { NFTNL_EXPR_RANGE_SREG NFTNL_EXPR_RANGE_OP }
    Range Value { NFTNL_EXPR_RANGE_FROM_DATA NFTNL_EXPR_RANGE_TO_DATA }
    Lookup u32 { NFTNL_EXPR_LOOKUP_SREG NFTNL_EXPR_LOOKUP_DREG NFTNL_EXPR_LOOKUP_SET_ID }
    Lookup u32 { NFTNL_EXPR_LOOKUP_FLAGS }
    Lookup str { NFTNL_EXPR_LOOKUP_SET }
    Dynset u32 { NFTNL_EXPR_DYNSET_SREG_KEY NFTNL_EXPR_DYNSET_SREG_DATA NFTNL_EXPR_DYNSET_OP }
    Dynset u32 { NFTNL_EXPR_DYNSET_FLAGS }
    Dynset u64 { NFTNL_EXPR_DYNSET_TIMEOUT }
    Dynset str { NFTNL_EXPR_DYNSET_SET_NAME }
    Objref u32 { NFTNL_EXPR_OBJREF_IMM_TYPE NFTNL_EXPR_OBJREF_SET_SREG }
    Objref str { NFTNL_EXPR_OBJREF_IMM_NAME NFTNL_EXPR_OBJREF_SET_NAME }
    Counter u64 { NFTNL_EXPR_CTR_PACKETS NFTNL_EXPR_CTR_BYTES }
    Quota u64 { NFTNL_EXPR_QUOTA_BYTES NFTNL_EXPR_QUOTA_CONSUMED }
    Quota u32 { NFTNL_EXPR_QUOTA_FLAGS }
    Limit u64 { NFTNL_EXPR_LIMIT_RATE NFTNL_EXPR_LIMIT_UNIT }
    Limit u32 { NFTNL_EXPR_LIMIT_BURST NFTNL_EXPR_LIMIT_TYPE NFTNL_EXPR_LIMIT_FLAGS }
    Log str { NFTNL_EXPR_LOG_PREFIX }
    Log u16 { NFTNL_EXPR_LOG_GROUP NFTNL_EXPR_LOG_QTHRESHOLD }
    Log u32 { NFTNL_EXPR_LOG_SNAPLEN NFTNL_EXPR_LOG_LEVEL NFTNL_EXPR_LOG_FLAGS }
    Nat u32 { NFTNL_EXPR_NAT_TYPE NFTNL_EXPR_NAT_FAMILY NFTNL_EXPR_NAT_FLAGS }
    Nat u32 { NFTNL_EXPR_NAT_REG_ADDR_MIN NFTNL_EXPR_NAT_REG_ADDR_MAX }
    Nat u32 { NFTNL_EXPR_NAT_REG_PROTO_MIN NFTNL_EXPR_NAT_REG_PROTO_MAX }
    Masq u32 { NFTNL_EXPR_MASQ_FLAGS NFTNL_EXPR_MASQ_REG_PROTO_MIN NFTNL_EXPR_MASQ_REG_PROTO_MAX }
    Redir u32 { NFTNL_EXPR_REDIR_FLAGS NFTNL_EXPR_REDIR_REG_PROTO_MIN NFTNL_EXPR_REDIR_REG_PROTO_MAX }
    Tproxy u32 { NFTNL_EXPR_TPROXY_FAMILY NFTNL_EXPR_TPROXY_REG_ADDR NFTNL_EXPR_TPROXY_REG_PORT }
    Exthdr u8 { NFTNL_EXPR_EXTHDR_TYPE }
    Exthdr u32 { NFTNL_EXPR_EXTHDR_DREG NFTNL_EXPR_EXTHDR_SREG NFTNL_EXPR_EXTHDR_OFFSET }
    Exthdr u32 { NFTNL_EXPR_EXTHDR_LEN NFTNL_EXPR_EXTHDR_FLAGS NFTNL_EXPR_EXTHDR_OP }
    Rt u32 { NFTNL_EXPR_RT_KEY NFTNL_EXPR_RT_DREG }
    Socket u32 { NFTNL_EXPR_SOCKET_KEY NFTNL_EXPR_SOCKET_DREG NFTNL_EXPR_SOCKET_LEVEL }
    Xfrm u32 { NFTNL_EXPR_XFRM_KEY NFTNL_EXPR_XFRM_DREG NFTNL_EXPR_XFRM_SPNUM }
    Xfrm u8 { NFTNL_EXPR_XFRM_DIR }
    Osf u32 { NFTNL_EXPR_OSF_DREG NFTNL_EXPR_OSF_FLAGS }
    Osf u8 { NFTNL_EXPR_OSF_TTL }
    Synproxy u16 { NFTNL_EXPR_SYNPROXY_MSS }
    Synproxy u8 { NFTNL_EXPR_SYNPROXY_WSCALE }
    Synproxy u32 { NFTNL_EXPR_SYNPROXY_FLAGS }
    Dup u32 { NFTNL_EXPR_DUP_SREG_ADDR NFTNL_EXPR_DUP_SREG_DEV }
    Fwd u32 { NFTNL_EXPR_FWD_SREG_DEV NFTNL_EXPR_FWD_SREG_ADDR NFTNL_EXPR_FWD_NFPROTO }
    Queue u16 { NFTNL_EXPR_QUEUE_NUM NFTNL_EXPR_QUEUE_TOTAL NFTNL_EXPR_QUEUE_FLAGS }
    Queue u32 { NFTNL_EXPR_QUEUE_SREG_QNUM }
    Connlimit u32 { NFTNL_EXPR_CONNLIMIT_COUNT NFTNL_EXPR_CONNLIMIT_FLAGS }
    Last u64 { NFTNL_EXPR_LAST_MSECS }
    Last u32 { NFTNL_EXPR_LAST_SET }
    Reject u32 { NFTNL_EXPR_REJECT_TYPE }
    Reject u8 { NFTNL_EXPR_REJECT_CODE }
    FlowOffload str { NFTNL_EXPR_FLOW_TABLE_NAME }
}
