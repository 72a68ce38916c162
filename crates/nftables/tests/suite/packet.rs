//! Rules that `nft` does not write: matches and stores of packet bytes at any place, with
//! and without a match of the protocol.

use vipline_nftables::expr::{
    Access, Bitwise, BitwiseOp, Cmp, CmpOp, Expr, Immediate, Meta, MetaKey, Payload, PayloadAccess,
    PayloadBase, Register,
};
use vipline_nftables::{Bytes, Chain, Data, Family, Name, Rule};

use crate::data::Table;

const REGISTER: Register = Register::word(0);

/// Tables with hook and the matches before each rule.
fn families() -> [(Family, &'static str, Vec<Vec<Expr>>); 6] {
    let tcp = || equal(MetaKey::L4Proto, &[6]);
    let protocol = |bytes: [u8; 2]| equal(MetaKey::Protocol, &bytes);
    // Matches of Ethernet and of the types in the Ethernet header and in VLAN headers.
    let types = |types: &[[u8; 2]]| {
        let mut head = equal(MetaKey::Iiftype, &1_u16.to_ne_bytes());
        for (bytes, offset) in types.iter().zip((12..).step_by(4)) {
            let load = payload(PayloadBase::Link, offset, 2);
            head.extend([load, compare(CmpOp::Eq, bytes)]);
        }
        head
    };
    let frames = || {
        vec![
            Vec::new(),
            types(&[[0x81, 0x00]]),
            types(&[[0x81, 0x00], [0x08, 0x00]]),
            types(&[[0x88, 0xa8], [0x81, 0x00]]),
            types(&[[0x88, 0xa8], [0x81, 0x00], [0x86, 0xdd]]),
            tcp(),
            protocol([0x08, 0x00]),
            protocol([0x86, 0xdd]),
            protocol([0x08, 0x06]),
            equal(MetaKey::Iiftype, &1_u16.to_ne_bytes()),
        ]
    };
    let icmp = || equal(MetaKey::L4Proto, &[1]);
    let nfproto = |number| equal(MetaKey::NfProto, &[number]);
    let inet = vec![Vec::new(), tcp(), nfproto(2), nfproto(10)];
    [
        (
            Family::Ip,
            "input priority 0",
            vec![Vec::new(), tcp(), icmp()],
        ),
        (Family::Ip6, "input priority 0", vec![Vec::new(), tcp()]),
        (Family::Inet, "input priority 0", inet),
        (Family::Arp, "input priority 0", vec![Vec::new()]),
        (Family::Bridge, "input priority 0", frames()),
        (Family::Netdev, "ingress device lo priority 0", frames()),
    ]
}

/// Returns the tables with the chains to commit.
pub(crate) fn tables() -> Vec<(Table, Chain)> {
    families()
        .into_iter()
        .map(|(family, hook, heads)| {
            let rules: Vec<Rule> = heads.iter().flat_map(|head| rules(head)).collect();
            let names = rules
                .iter()
                .map(|rule| format!("{:?}", rule.exprs))
                .collect();
            let table = Table::of_family(family, hook, names);
            let chain = Chain::new(table.id.clone(), Name::new("c").unwrap());
            (table, chain.with_rules(rules))
        })
        .collect()
}

fn rules(head: &[Expr]) -> Vec<Rule> {
    let bases = [
        PayloadBase::Link,
        PayloadBase::Network,
        PayloadBase::Transport,
        PayloadBase::Other(3),
    ];
    let mut rules = Vec::new();
    let mut add = |tail: Vec<Expr>| rules.push(Rule::from_exprs([head.to_vec(), tail].concat()));
    for base in bases {
        for offset in [0, 2, 6, 8, 9, 12, 13, 16, 24] {
            for len in [1, 2, 4, 6, 16] {
                // nft joins matches of adjacent bytes to one.
                let is_joined = base == PayloadBase::Link && loads(head, offset + len);
                let is_equal = offset % 4 == 0 && !is_joined;
                let op = [CmpOp::Lt, CmpOp::Eq][usize::from(is_equal)];
                add(vec![payload(base, offset, len), compare(op, &value(len))]);
            }
        }
        for (offset, len) in [(0, 1), (0, 2), (1, 1), (8, 1), (12, 1), (12, 2)] {
            for mask in [0x0f, 0xf0, 0xfc, 0x03] {
                let mask = Bytes::repeat(mask, len as usize);
                add(masked(payload(base, offset, len), mask));
            }
        }
        for offset in [14, 18] {
            for mask in [&[0xe0][..], &[0x10], &[0x0f, 0xff], &[0xff, 0xff]] {
                let len = u32::try_from(mask.len()).unwrap();
                add(masked(payload(base, offset, len), mask.into()));
            }
        }
        for (offset, len) in [(0, 1), (0, 2), (2, 2), (8, 1), (12, 4), (16, 2)] {
            for checksum in CHECKSUMS {
                add(store(base, offset, len, checksum));
            }
        }
    }
    rules
}

/// Returns whether expressions load bytes of the packet that begin at an offset.
fn loads(exprs: &[Expr], offset: u32) -> bool {
    let mut exprs = exprs.iter();
    exprs.any(|expr| matches!(expr, Expr::Payload(payload) if payload.offset == offset))
}

/// Type, offset and flags of a checksum.
type Checksum = (u32, u32, u32);

/// None; that of IPv4, without and with the pseudo-header; of ICMP; of TCP; and a
/// pseudo-header alone.
const CHECKSUMS: [Checksum; 6] = [
    (0, 0, 0),
    (1, 10, 0),
    (1, 10, 1),
    (1, 2, 0),
    (1, 16, 0),
    (0, 0, 1),
];

/// Returns a value of different bytes.
fn value(len: u32) -> Vec<u8> {
    (0x11..).take(len as usize).collect()
}

fn payload(base: PayloadBase, offset: u32, len: u32) -> Expr {
    let access = PayloadAccess::Load(REGISTER);
    Payload {
        base,
        offset,
        len,
        access,
    }
    .into()
}

fn compare(op: CmpOp, value: &[u8]) -> Expr {
    let data = value.into();
    Cmp {
        source: REGISTER,
        op,
        data,
    }
    .into()
}

fn equal(key: MetaKey, value: &[u8]) -> Vec<Expr> {
    let access = Access::Load(REGISTER);
    vec![Meta { key, access }.into(), compare(CmpOp::Eq, value)]
}

fn masked(load: Expr, mask: Bytes) -> Vec<Expr> {
    let len = u32::try_from(mask.len()).unwrap();
    let data = mask.iter().map(|byte| byte & 0x32).collect::<Vec<u8>>();
    let xor = Bytes::repeat(0, mask.len());
    let bits = Bitwise {
        source: REGISTER,
        destination: REGISTER,
        len,
        op: BitwiseOp::MaskXor { mask, xor },
    };
    vec![load, bits.into(), compare(CmpOp::Eq, &data)]
}

fn store(base: PayloadBase, offset: u32, len: u32, checksum: Checksum) -> Vec<Expr> {
    let (checksum, checksum_offset, checksum_flags) = checksum;
    let access = PayloadAccess::Store {
        source: REGISTER,
        checksum,
        checksum_offset,
        checksum_flags,
    };
    let data = Data::Value(value(len).as_slice().into());
    let immediate = Immediate {
        destination: REGISTER,
        data,
    };
    let store = Payload {
        base,
        offset,
        len,
        access,
    };
    vec![immediate.into(), store.into()]
}
