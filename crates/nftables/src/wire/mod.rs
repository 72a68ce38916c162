//! Codec of nf_tables messages.
//!
//! Sans-IO: [`Transaction::encode`](crate::Transaction::encode) returns a whole
//! batch, [`Query`] encodes the payload of a request, and
//! [`Assembler`] decodes the replies.
//! Numbers are those of `linux/netfilter/nf_tables.h` and `nfnetlink.h`.

pub(crate) mod message_types;

pub(crate) mod assembler;

pub(crate) mod batch;

mod query;

pub(crate) mod encoder;

pub(crate) mod rule;

pub(crate) mod element;

pub(crate) mod set;

mod typeof_record;

pub(crate) mod userdata;

pub(crate) mod stateful;

pub(crate) mod flowtable;

pub(crate) mod builder;

pub(crate) mod added;

pub(crate) mod dump;

pub(crate) mod hooks;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, nest, put, put_be32, put_be64, put_str};

use crate::expr::{Counter, ExprType, NFTA_COUNTER_BYTES, NFTA_COUNTER_PACKETS};
use crate::{
    BaseChain, Chain, ChainFlags, ChainType, Family, Hook, Name, Policy, Table, TableFlags, TableId,
};

pub use assembler::{Assembler, RecordedMessage};
pub use batch::Batch;
pub use query::Query;

/// The nfnetlink subsystem of nf_tables, the upper byte of message types.
pub const NFNL_SUBSYS_NFTABLES: u8 = 10;
/// Length of `struct nfgenmsg`.
const HEADER: usize = 4;

// enum nft_table_attributes
pub(crate) const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
pub(crate) const NFTA_TABLE_HANDLE: u16 = 4;
const NFTA_TABLE_USERDATA: u16 = 6;
// enum nft_chain_attributes
const NFTA_CHAIN_TABLE: u16 = 1;
pub(crate) const NFTA_CHAIN_HANDLE: u16 = 2;
pub(crate) const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_CHAIN_COUNTERS: u16 = 8;
const NFTA_CHAIN_FLAGS: u16 = 10;
pub(crate) const NFTA_CHAIN_ID: u16 = 11;
const NFTA_CHAIN_USERDATA: u16 = 12;
// enum nft_chain_flags: the flag that follows from the hook
const NFT_CHAIN_BASE: u32 = 1;
// enum nft_hook_attributes
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;
// enum nft_devices_attributes
const NFTA_DEVICE_NAME: u16 = 1;
const NFTA_DEVICE_PREFIX: u16 = 2;
// linux/netfilter.h: enum nf_inet_hooks, also the numbers of bridges
const NF_INET_PRE_ROUTING: u32 = 0;
const NF_INET_LOCAL_IN: u32 = 1;
const NF_INET_FORWARD: u32 = 2;
const NF_INET_LOCAL_OUT: u32 = 3;
const NF_INET_POST_ROUTING: u32 = 4;
const NF_INET_INGRESS: u32 = 5;
// linux/netfilter.h: enum nf_dev_hooks
const NF_NETDEV_INGRESS: u32 = 0;
const NF_NETDEV_EGRESS: u32 = 1;
// linux/netfilter_arp.h
const NF_ARP_IN: u32 = 0;
const NF_ARP_OUT: u32 = 1;

/// Appends `struct nfgenmsg`.
pub(crate) fn put_header(out: &mut Vec<u8>, family: u8, resource: u16) {
    out.extend_from_slice(&[family, 0]);
    out.extend_from_slice(&resource.to_be_bytes());
}

/// Splits a payload into the family and the attributes.
pub(crate) fn split_header(payload: &[u8]) -> Result<(Option<Family>, Attrs<'_>), DecodeError> {
    match payload.split_at_checked(HEADER) {
        Some(([family, ..], attrs)) => Ok((Family::from_number(*family), Attrs::new(attrs))),
        _ => Err(DecodeError::new("nfgenmsg", 0, payload.len())),
    }
}

fn put_userdata(out: &mut Vec<u8>, kind: u16, write: impl FnOnce(&mut Vec<u8>)) {
    let mut records = Vec::new();
    write(&mut records);
    if !records.is_empty() {
        put(out, kind, &records);
    }
}

/// Appends the attributes of a new table.
pub(crate) fn put_table(out: &mut Vec<u8>, table: &Table) {
    put_str(out, NFTA_TABLE_NAME, table.id.name.as_str());
    put_be32(out, NFTA_TABLE_FLAGS, table.flags.bits());
    put_userdata(out, NFTA_TABLE_USERDATA, |out| {
        userdata::put_plain(out, table.userdata.as_ref(), table.comment.as_ref());
    });
}

/// Appends the attributes that name a table.
pub(crate) fn put_table_name(out: &mut Vec<u8>, table: &TableId) {
    put_str(out, NFTA_TABLE_NAME, table.name.as_str());
}

/// Decodes a table.
pub(crate) fn table(family: Family, attrs: Attrs<'_>) -> Result<Table, DecodeError> {
    let (mut found, mut flags) = (None, TableFlags::empty());
    let (mut comment, mut raw) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_TABLE_NAME => found = Some(name(&attr)?),
            NFTA_TABLE_FLAGS => flags = TableFlags::from_bits_retain(attr.be32()?),
            NFTA_TABLE_USERDATA => (comment, raw) = userdata::plain(attr.value),
            _ => {}
        }
    }
    let name = found.ok_or_else(|| missing(NFTA_TABLE_NAME, "table name"))?;
    let mut table = Table::new(TableId::new(family, name)).with_flags(flags);
    (table.comment, table.userdata) = (comment, raw);
    Ok(table)
}

/// Appends the attributes of a new chain.
pub(crate) fn put_chain(out: &mut Vec<u8>, chain: &Chain) {
    put_chain_id(out, &chain.table, &chain.name);
    if let Some(base) = &chain.base {
        put_be32(
            out,
            NFTA_CHAIN_POLICY,
            u32::from(base.policy == Policy::Accept),
        );
        put_str(out, NFTA_CHAIN_TYPE, base.kind.as_str());
        nest(out, NFTA_CHAIN_HOOK, |out| {
            let hook = hook_number(chain.table.family, base.hook);
            put_be32(out, NFTA_HOOK_HOOKNUM, hook);
            put_be32(out, NFTA_HOOK_PRIORITY, base.priority as u32);
            put_devices(out, &base.devices);
        });
        if let Some(counter) = base.counter {
            // Unlike in expressions, the kernel requires both, even if they are zero.
            nest(out, NFTA_CHAIN_COUNTERS, |out| {
                put_be64(out, NFTA_COUNTER_BYTES, counter.bytes);
                put_be64(out, NFTA_COUNTER_PACKETS, counter.packets);
            });
        }
    }
    let flags = chain.flags - ChainFlags::BINDING;
    if !flags.is_empty() {
        put_be32(out, NFTA_CHAIN_FLAGS, flags.bits());
    }
    put_chain_userdata(out, chain);
}

fn put_chain_userdata(out: &mut Vec<u8>, chain: &Chain) {
    put_userdata(out, NFTA_CHAIN_USERDATA, |out| {
        userdata::put_plain(out, chain.userdata.as_ref(), chain.comment.as_ref());
    });
}

/// Appends the attributes of a new anonymous chain with an ID. The kernel names it.
pub(crate) fn put_anonymous_chain(out: &mut Vec<u8>, table: &TableId, chain: &Chain, id: u32) {
    put_str(out, NFTA_CHAIN_TABLE, table.name.as_str());
    put_be32(out, NFTA_CHAIN_ID, id);
    let flags = chain.flags | ChainFlags::BINDING;
    put_be32(out, NFTA_CHAIN_FLAGS, flags.bits());
    put_chain_userdata(out, chain);
}

/// Appends the devices of a hook: one as an attribute, more as a list.
fn put_devices(out: &mut Vec<u8>, devices: &[Name]) {
    let has_prefix = devices.iter().any(|device| device.as_str().ends_with('*'));
    match devices {
        [] => {}
        [device] if !has_prefix => put_str(out, NFTA_HOOK_DEV, device.as_str()),
        devices => put_device_list(out, NFTA_HOOK_DEVS, devices),
    }
}

/// Appends a list of devices as an attribute of type `kind`.
fn put_device_list(out: &mut Vec<u8>, kind: u16, devices: &[Name]) {
    nest(out, kind, |out| {
        for device in devices {
            match device.as_str().strip_suffix('*') {
                Some(prefix) => put_str(out, NFTA_DEVICE_PREFIX, prefix),
                None => put_str(out, NFTA_DEVICE_NAME, device.as_str()),
            }
        }
    });
}

/// Decodes a list of devices.
fn devices(list: &Attr<'_>) -> Result<Vec<Name>, DecodeError> {
    let mut devices = Vec::new();
    for attr in list.attrs() {
        let attr = attr?;
        match attr.kind {
            NFTA_DEVICE_NAME => devices.push(name(&attr)?),
            NFTA_DEVICE_PREFIX => {
                let device = Name::new(&format!("{}*", attr.str()?));
                devices.push(device.map_err(|_| attr.error("name"))?);
            }
            _ => {}
        }
    }
    Ok(devices)
}

/// Appends the attributes that name a chain.
pub(crate) fn put_chain_id(out: &mut Vec<u8>, table: &TableId, chain: &Name) {
    put_str(out, NFTA_CHAIN_TABLE, table.name.as_str());
    put_str(out, NFTA_CHAIN_NAME, chain.as_str());
}

/// Returns the number of a hook: `enum nf_inet_hooks`, `enum nf_dev_hooks` or `NF_ARP_*`.
pub(crate) fn hook_number(family: Family, hook: Hook) -> u32 {
    match (family, hook) {
        (Family::Arp, Hook::Input) => NF_ARP_IN,
        (Family::Arp, Hook::Output) => NF_ARP_OUT,
        (Family::Netdev, Hook::Ingress) => NF_NETDEV_INGRESS,
        (Family::Netdev, Hook::Egress) => NF_NETDEV_EGRESS,
        (_, Hook::Prerouting) => NF_INET_PRE_ROUTING,
        (_, Hook::Input) => NF_INET_LOCAL_IN,
        (_, Hook::Forward) => NF_INET_FORWARD,
        (_, Hook::Output) => NF_INET_LOCAL_OUT,
        (_, Hook::Postrouting) => NF_INET_POST_ROUTING,
        (_, Hook::Ingress | Hook::Egress) => NF_INET_INGRESS,
    }
}

fn hook(family: Family, number: u32) -> Option<Hook> {
    Some(match (family, number) {
        (Family::Netdev, NF_NETDEV_INGRESS) => Hook::Ingress,
        (Family::Netdev, NF_NETDEV_EGRESS) => Hook::Egress,
        (Family::Arp, NF_ARP_IN) => Hook::Input,
        (Family::Arp, NF_ARP_OUT) => Hook::Output,
        (_, NF_INET_PRE_ROUTING) => Hook::Prerouting,
        (_, NF_INET_LOCAL_IN) => Hook::Input,
        (_, NF_INET_FORWARD) => Hook::Forward,
        (_, NF_INET_LOCAL_OUT) => Hook::Output,
        (_, NF_INET_POST_ROUTING) => Hook::Postrouting,
        (Family::Inet, NF_INET_INGRESS) => Hook::Ingress,
        _ => return None,
    })
}

/// Decodes a chain, without its rules.
pub(crate) fn chain(family: Family, attrs: Attrs<'_>) -> Result<Chain, DecodeError> {
    let (mut table, mut found, mut kind, mut place) = (None, None, None, None);
    let (mut policy, mut counter, mut flags) = (Policy::Accept, None, 0);
    let (mut comment, mut raw) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_CHAIN_TABLE => table = Some(name(&attr)?),
            NFTA_CHAIN_NAME => found = Some(name(&attr)?),
            NFTA_CHAIN_TYPE => {
                kind = Some(match attr.str()? {
                    "filter" => ChainType::Filter,
                    "nat" => ChainType::Nat,
                    "route" => ChainType::Route,
                    _ => ChainType::Other(name(&attr)?),
                });
            }
            NFTA_CHAIN_POLICY if attr.be32()? == 0 => policy = Policy::Drop,
            NFTA_CHAIN_COUNTERS => counter = Counter::decode(attr.attrs())?,
            NFTA_CHAIN_HOOK => place = Some(hook_attrs(family, &attr)?),
            NFTA_CHAIN_FLAGS => flags = attr.be32()?,
            NFTA_CHAIN_USERDATA => (comment, raw) = userdata::plain(attr.value),
            _ => {}
        }
    }
    let (Some(table), Some(name)) = (table, found) else {
        return Err(missing(NFTA_CHAIN_NAME, "chain name"));
    };
    let base = match (kind, place) {
        (Some(kind), Some((hook, priority, devices))) => Some(BaseChain {
            kind,
            hook,
            priority,
            policy,
            devices,
            counter,
        }),
        _ => None,
    };
    let mut chain = Chain::new(TableId::new(family, table), name);
    chain.flags = ChainFlags::from_bits_retain(flags & !NFT_CHAIN_BASE);
    (chain.base, chain.comment, chain.userdata) = (base, comment, raw);
    Ok(chain)
}

fn hook_attrs(family: Family, attr: &Attr<'_>) -> Result<(Hook, i32, Vec<Name>), DecodeError> {
    let (mut place, mut priority, mut devices) = (None, 0, Vec::new());
    for attr in attr.attrs() {
        let attr = attr?;
        match attr.kind {
            NFTA_HOOK_HOOKNUM => {
                let known = hook(family, attr.be32()?);
                place = Some(known.ok_or_else(|| attr.error("hook"))?);
            }
            NFTA_HOOK_PRIORITY => priority = attr.be32()? as i32,
            // The kernel also reports a single device of the list.
            NFTA_HOOK_DEV if devices.is_empty() => devices = vec![name(&attr)?],
            NFTA_HOOK_DEVS => devices = self::devices(&attr)?,
            _ => {}
        }
    }
    let hook = place.ok_or_else(|| attr.error("hook"))?;
    Ok((hook, priority, devices))
}

// enum nft_gen_attributes
pub(crate) const NFTA_GEN_ID: u16 = 1;
pub(crate) const NFTA_GEN_PROC_PID: u16 = 2;
pub(crate) const NFTA_GEN_PROC_NAME: u16 = 3;

/// Decodes the generation in a reply to [`Query::Generation`].
///
/// # Errors
///
/// [`DecodeError`] if the payload is malformed or contains no generation.
pub fn generation(payload: &[u8]) -> Result<u32, DecodeError> {
    let (_, attrs) = split_header(payload)?;
    for attr in attrs {
        let attr = attr?;
        if attr.kind == NFTA_GEN_ID {
            return attr.be32();
        }
    }
    Err(missing(NFTA_GEN_ID, "generation"))
}

/// Decodes PID and name of the process that created the generation.
///
/// Returns 0 and an empty name if the kernel does not report them.
pub(crate) fn process(payload: &[u8]) -> Result<(u32, &str), DecodeError> {
    let (_, attrs) = split_header(payload)?;
    let (mut id, mut name) = (0, "");
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_GEN_PROC_PID => id = attr.be32()?,
            NFTA_GEN_PROC_NAME => name = attr.str()?,
            _ => {}
        }
    }
    Ok((id, name))
}

fn name(attr: &Attr<'_>) -> Result<Name, DecodeError> {
    Name::new(attr.str()?).map_err(|_| attr.error("name"))
}

pub(crate) fn missing(kind: u16, what: &'static str) -> DecodeError {
    DecodeError::new(what, kind, 0)
}
