//! Conversion of tables, chains, sets and elements to libnftnl objects.
#![forbid(unsafe_code)]

use super::attributes::*;
use super::{Element, Object, unsupported};
use crate::set::DataKind;
use crate::wire::element::{self, CATCH_ALL, INTERVAL_END, successor};
use crate::wire::set::{NFT_DATA_VERDICT, NFT_SET_CONCAT, NFT_SET_MAP, NFT_SET_OBJECT};
use crate::wire::{hook_number, userdata};
use crate::{
    Chain, Datatype, ElementData, Error, Field, Name, Policy, Set, SetPolicy, Table, TableId,
};

/// Returns a table with all attributes.
pub(super) fn table(table: &Table) -> Object<super::Table> {
    let mut object = table_name(&table.id);
    object.number(NFTNL_TABLE_FLAGS, table.flags.bits());
    if let Some(comment) = &table.comment {
        let records = records(|out| userdata::put_comment(out, comment));
        object.opaque(NFTNL_TABLE_USERDATA, &records);
    }
    object
}

/// Returns an object that names a table.
pub(super) fn table_name(table: &TableId) -> Object<super::Table> {
    let mut object = Object::<super::Table>::new();
    object.text(NFTNL_TABLE_NAME, table.name.as_str());
    object
}

/// Returns a chain with all attributes.
pub(super) fn chain(chain: &Chain) -> Result<Object<super::Chain>, Error> {
    let devices = chain.base.as_ref().map_or(0, |base| base.devices.len());
    if devices > 1 || !chain.flags.is_empty() {
        return Err(unsupported("a chain with flags or several devices"));
    }
    let mut object = chain_name(chain);
    if let Some(base) = &chain.base {
        let policy = u32::from(base.policy == Policy::Accept);
        object.number(NFTNL_CHAIN_POLICY, policy);
        object.text(NFTNL_CHAIN_TYPE, base.kind.as_str());
        let hook = hook_number(chain.table.family, base.hook);
        object.number(NFTNL_CHAIN_HOOKNUM, hook);
        object.number(NFTNL_CHAIN_PRIO, base.priority as u32);
        if let [device] = &*base.devices {
            object.text(NFTNL_CHAIN_DEV, device.as_str());
        }
        if let Some(counter) = base.counter {
            object.number(NFTNL_CHAIN_PACKETS, counter.packets);
            object.number(NFTNL_CHAIN_BYTES, counter.bytes);
        }
    }
    if let Some(comment) = &chain.comment {
        let records = records(|out| userdata::put_comment(out, comment));
        object.opaque(NFTNL_CHAIN_USERDATA, &records);
    }
    Ok(object)
}

/// Returns an object that names a chain.
pub(super) fn chain_name(chain: &Chain) -> Object<super::Chain> {
    let mut object = Object::<super::Chain>::new();
    object.text(NFTNL_CHAIN_TABLE, chain.table.name.as_str());
    object.text(NFTNL_CHAIN_NAME, chain.name.as_str());
    object
}

/// Returns a set with all attributes, an ID and a size.
pub(super) fn set(
    table: &TableId,
    set: &Set,
    id: u32,
    size: Option<u32>,
) -> Result<Object<super::Set>, Error> {
    if !set.exprs.is_empty() || set.policy != SetPolicy::Performance {
        return Err(unsupported("a set with a policy or stateful expressions"));
    }
    let mut object = set_name(table, &set.name);
    let kinds = |fields: &[Field]| Datatype::concat(fields.iter().map(|field| field.datatype));
    let number = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let lengths = (set.has_intervals() && set.is_concatenated()).then(|| lengths(&set.key));
    let concat = if lengths.is_some() { NFT_SET_CONCAT } else { 0 };
    let map = match &set.data {
        DataKind::None => 0,
        DataKind::Fields(_) | DataKind::Verdict => NFT_SET_MAP,
        DataKind::Object(_) => NFT_SET_OBJECT,
    };
    object.number(NFTNL_SET_FLAGS, set.flags.bits() | map | concat);
    object.number(NFTNL_SET_KEY_TYPE, kinds(&set.key));
    object.number(NFTNL_SET_KEY_LEN, number(set.key_bytes()));
    match &set.data {
        DataKind::None => {}
        DataKind::Fields(fields) => {
            object.number(NFTNL_SET_DATA_TYPE, kinds(fields));
            object.number(NFTNL_SET_DATA_LEN, number(set.data_bytes()));
        }
        DataKind::Verdict => {
            object.number(NFTNL_SET_DATA_TYPE, NFT_DATA_VERDICT);
            object.number(NFTNL_SET_DATA_LEN, 0);
        }
        DataKind::Object(kind) => object.number(NFTNL_SET_OBJ_TYPE, *kind),
    }
    object.number(NFTNL_SET_ID, id);
    if let Some(size) = size {
        object.number(NFTNL_SET_DESC_SIZE, size);
    }
    if let Some(lengths) = lengths {
        object.short(NFTNL_SET_DESC_CONCAT, &lengths?)?;
    }
    if let Some(timeout) = set.timeout {
        object.number(NFTNL_SET_TIMEOUT, element::milliseconds(timeout));
    }
    if let Some(interval) = set.gc_interval {
        let interval = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
        object.number(NFTNL_SET_GC_INTERVAL, interval);
    }
    let records = records(|out| userdata::put_set(out, set));
    object.opaque(NFTNL_SET_USERDATA, &records);
    Ok(object)
}

/// Returns the lengths of the fields, which must not be zero.
fn lengths(fields: &[Field]) -> Result<Vec<u8>, Error> {
    let length = |field: &Field| u8::try_from(field.bytes).ok().filter(|bytes| *bytes != 0);
    let lengths: Option<Vec<u8>> = fields.iter().map(length).collect();
    lengths.ok_or_else(|| unsupported("a field of 0 or of more than 255 bytes"))
}

/// Returns an object that names a set.
pub(super) fn set_name(table: &TableId, set: &Name) -> Object<super::Set> {
    let mut object = Object::<super::Set>::new();
    object.text(NFTNL_SET_TABLE, table.name.as_str());
    object.text(NFTNL_SET_NAME, set.as_str());
    object
}

/// Returns an element; of an interval, start and end.
pub(super) fn element(
    element: &crate::Element,
) -> Result<(Object<Element>, Option<Object<Element>>), Error> {
    let is_interval = element.set().has_intervals() && !element.is_catch_all();
    let is_concatenated = element.set().is_concatenated();
    let last = element.key_end().unwrap_or_else(|| element.key_bytes());
    let mut object = Object::<Element>::new();
    if element.is_catch_all() {
        object.number(NFTNL_SET_ELEM_FLAGS, CATCH_ALL);
    } else {
        object.short(NFTNL_SET_ELEM_KEY, element.key_bytes())?;
    }
    if let Some(timeout) = element.timeout() {
        object.number(NFTNL_SET_ELEM_TIMEOUT, element::milliseconds(timeout));
    }
    if let Some(expires_in) = element.expires_in() {
        object.number(NFTNL_SET_ELEM_EXPIRATION, element::milliseconds(expires_in));
    }
    if is_interval && is_concatenated {
        object.short(NFTNL_SET_ELEM_KEY_END, last)?;
    }
    match element.data() {
        None => {}
        Some(ElementData::Value(value)) => object.short(NFTNL_SET_ELEM_DATA, value)?,
        Some(ElementData::Verdict(verdict)) => {
            object.number(NFTNL_SET_ELEM_VERDICT, verdict.code() as u32);
            if let Some(chain) = verdict.chain() {
                object.text(NFTNL_SET_ELEM_CHAIN, chain.as_str());
            }
        }
    }
    let has_second = is_interval && !is_concatenated;
    let end = has_second.then(|| successor(last)).flatten();
    let records = records(|out| {
        if let Some(comment) = element.comment() {
            userdata::put_comment(out, comment);
        }
        if has_second && end.is_none() {
            userdata::put_open(out);
        }
    });
    if !records.is_empty() {
        object.opaque(NFTNL_SET_ELEM_USERDATA, &records);
    }
    if let Some(extras) = element.extras() {
        if let Some(name) = &extras.object {
            object.text(NFTNL_SET_ELEM_OBJREF, name.as_str());
        }
        for expr in &extras.exprs {
            object.push(super::exprs::expr(expr)?);
        }
    }
    let end = match end {
        Some(end) => {
            let mut object = Object::<Element>::new();
            object.number(NFTNL_SET_ELEM_FLAGS, INTERVAL_END);
            object.short(NFTNL_SET_ELEM_KEY, &end)?;
            Some(object)
        }
        None => None,
    };
    Ok((object, end))
}

/// Returns the user data that `write` appends.
pub(super) fn records(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut records = Vec::new();
    write(&mut records);
    records
}
