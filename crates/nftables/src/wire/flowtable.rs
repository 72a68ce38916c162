//! Codec of flowtables.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, nest, put_be32, put_str};

use super::{devices, hook, hook_number, missing, name, put_device_list};
use crate::{Family, Flowtable, FlowtableFlags, Hook, TableId};

// enum nft_flowtable_attributes
const NFTA_FLOWTABLE_TABLE: u16 = 1;
const NFTA_FLOWTABLE_NAME: u16 = 2;
const NFTA_FLOWTABLE_HOOK: u16 = 3;
const NFTA_FLOWTABLE_FLAGS: u16 = 7;
// enum nft_flowtable_hook_attributes
const NFTA_FLOWTABLE_HOOK_NUM: u16 = 1;
const NFTA_FLOWTABLE_HOOK_PRIORITY: u16 = 2;
const NFTA_FLOWTABLE_HOOK_DEVS: u16 = 3;

/// Appends the attributes of a new flowtable.
pub(crate) fn put(out: &mut Vec<u8>, flowtable: &Flowtable) {
    put_id(out, flowtable);
    nest(out, NFTA_FLOWTABLE_HOOK, |out| {
        let hook = hook_number(Family::Netdev, flowtable.hook);
        put_be32(out, NFTA_FLOWTABLE_HOOK_NUM, hook);
        put_be32(out, NFTA_FLOWTABLE_HOOK_PRIORITY, flowtable.priority as u32);
        if !flowtable.devices.is_empty() {
            put_device_list(out, NFTA_FLOWTABLE_HOOK_DEVS, &flowtable.devices);
        }
    });
    put_be32(out, NFTA_FLOWTABLE_FLAGS, flowtable.flags.bits());
}

/// Appends the attributes that name a flowtable.
pub(crate) fn put_id(out: &mut Vec<u8>, flowtable: &Flowtable) {
    put_table(out, &flowtable.table);
    put_str(out, NFTA_FLOWTABLE_NAME, flowtable.name.as_str());
}

/// Appends the attribute that names the table.
pub(crate) fn put_table(out: &mut Vec<u8>, table: &TableId) {
    put_str(out, NFTA_FLOWTABLE_TABLE, table.name.as_str());
}

/// Decodes a flowtable.
pub(crate) fn decode(family: Family, attrs: Attrs<'_>) -> Result<Flowtable, DecodeError> {
    let (mut table, mut found, mut flags) = (None, None, 0);
    let mut place = None;
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_FLOWTABLE_TABLE => table = Some(name(&attr)?),
            NFTA_FLOWTABLE_NAME => found = Some(name(&attr)?),
            NFTA_FLOWTABLE_HOOK => place = Some(attr),
            NFTA_FLOWTABLE_FLAGS => flags = attr.be32()?,
            _ => {}
        }
    }
    let (Some(table), Some(name)) = (table, found) else {
        return Err(missing(NFTA_FLOWTABLE_NAME, "flowtable name"));
    };
    let mut flowtable = Flowtable::new(TableId::new(family, table), name, 0);
    flowtable.flags = FlowtableFlags::from_bits_retain(flags);
    if let Some(place) = place {
        read_hook(&place, &mut flowtable)?;
    }
    Ok(flowtable)
}

fn read_hook(attr: &Attr<'_>, flowtable: &mut Flowtable) -> Result<(), DecodeError> {
    for attr in attr.attrs() {
        let attr = attr?;
        match attr.kind {
            NFTA_FLOWTABLE_HOOK_NUM => {
                let known: Option<Hook> = hook(Family::Netdev, attr.be32()?);
                flowtable.hook = known.ok_or_else(|| attr.error("hook"))?;
            }
            NFTA_FLOWTABLE_HOOK_PRIORITY => flowtable.priority = attr.be32()? as i32,
            NFTA_FLOWTABLE_HOOK_DEVS => flowtable.devices = devices(&attr)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    #[test]
    fn a_flowtable_decodes_to_itself() {
        let name = |text| Name::new(text).unwrap();
        let table = TableId::new(Family::Inet, name("t"));
        let flowtable = Flowtable::new(table, name("f"), -7)
            .with_device(name("eth0"))
            .with_device(name("veth*"))
            .with_flags(FlowtableFlags::COUNTER);
        let mut out = Vec::new();
        put(&mut out, &flowtable);
        assert_eq!(decode(Family::Inet, Attrs::new(&out)), Ok(flowtable));
    }
}
