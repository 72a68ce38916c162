//! What the kernel runs at its hooks, in order: `nft list hooks`.
//!
//! The subsystem `nfnetlink_hook` exists since Linux 5.14, with
//! `CONFIG_NETFILTER_NETLINK_HOOK`. The numbers are those of `linux/netfilter/nfnetlink_hook.h`.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, put_be32};

use crate::wire::{hook_number, put_header, split_header};
use crate::{Family, Hook, Name, TableId};

// linux/netfilter/nfnetlink.h
const NFNL_SUBSYS_HOOK: u8 = 12;
// enum nfnl_hook_msg_types
const NFNL_MSG_HOOK_GET: u8 = 0;
/// Type of a request for the functions at a hook.
pub(crate) const GET_HOOK: u16 = u16::from_be_bytes([NFNL_SUBSYS_HOOK, NFNL_MSG_HOOK_GET]);

/// First version of Linux with the subsystem, and its option, which Debian's 6.1 lacks.
pub(crate) const SINCE: &str = "5.14, or lacks CONFIG_NETFILTER_NETLINK_HOOK";

// enum nfnl_hook_attributes
const NFNLA_HOOK_HOOKNUM: u16 = 1;
const NFNLA_HOOK_PRIORITY: u16 = 2;
const NFNLA_HOOK_FUNCTION_NAME: u16 = 4;
const NFNLA_HOOK_MODULE_NAME: u16 = 5;
const NFNLA_HOOK_CHAIN_INFO: u16 = 6;
// enum nfnl_hook_chain_info_attributes
const NFNLA_HOOK_INFO_DESC: u16 = 1;
const NFNLA_HOOK_INFO_TYPE: u16 = 2;
// enum nfnl_hook_chain_desc_attributes
const NFNLA_CHAIN_TABLE: u16 = 1;
const NFNLA_CHAIN_FAMILY: u16 = 2;
const NFNLA_CHAIN_NAME: u16 = 3;
// enum nfnl_hook_chaintype
const NFNL_HOOK_TYPE_NFTABLES: u32 = 1;

/// A function at a hook.
///
/// Exhaustive: these values identify a function.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookEntry {
    /// Family of the packets: [`Family::Ip`] or [`Family::Ip6`].
    pub family: Family,
    /// Hook.
    pub hook: Hook,
    /// Priority. Functions of lower priority run first.
    pub priority: i32,
    /// Table and name of the base chain that the function runs. `None`: the function runs no
    /// chain of nf_tables. Chains of type `nat` are not listed: one function runs all.
    pub chain: Option<(TableId, Name)>,
    /// Name of the function, such as `ipv4_conntrack_in`, if the kernel has symbols.
    pub function: Option<Box<str>>,
    /// Name of the function's module. `None`: it is part of the kernel.
    pub module: Option<Box<str>>,
}

impl HookEntry {
    /// Decodes the payload of a message about a function at a hook.
    pub(crate) fn decode(payload: &[u8], family: Family, hook: Hook) -> Result<Self, DecodeError> {
        let (_, attrs) = split_header(payload)?;
        let mut entry = Self {
            family,
            hook,
            priority: 0,
            chain: None,
            function: None,
            module: None,
        };
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFNLA_HOOK_PRIORITY => entry.priority = attr.be32()?.cast_signed(),
                NFNLA_HOOK_FUNCTION_NAME => entry.function = Some(attr.str()?.into()),
                NFNLA_HOOK_MODULE_NAME => entry.module = Some(attr.str()?.into()),
                NFNLA_HOOK_CHAIN_INFO => entry.chain = chain(&attr)?,
                _ => {}
            }
        }
        Ok(entry)
    }
}

/// Decodes the chain that a function runs. Returns `None` for a program of another kind.
fn chain(info: &Attr<'_>) -> Result<Option<(TableId, Name)>, DecodeError> {
    let (mut is_nftables, mut found) = (false, None);
    for attr in info.attrs() {
        let attr = attr?;
        match attr.kind {
            NFNLA_HOOK_INFO_TYPE => is_nftables = attr.be32()? == NFNL_HOOK_TYPE_NFTABLES,
            NFNLA_HOOK_INFO_DESC => {
                let (mut table, mut family, mut name) = (None, None, None);
                for attr in attr.attrs() {
                    let attr = attr?;
                    let named = || Name::new(attr.str()?).map_err(|_| attr.error("name"));
                    match attr.kind {
                        NFNLA_CHAIN_TABLE => table = Some(named()?),
                        NFNLA_CHAIN_FAMILY => family = Family::from_number(attr.u8()?),
                        NFNLA_CHAIN_NAME => name = Some(named()?),
                        _ => {}
                    }
                }
                found = match (table, family, name) {
                    (Some(table), Some(family), Some(name)) => {
                        Some((TableId::new(family, table), name))
                    }
                    _ => None,
                };
            }
            _ => {}
        }
    }
    Ok(found.filter(|_| is_nftables))
}

/// Appends the payload of a request for the functions at a hook. `None`: the hook belongs to
/// devices.
pub(crate) fn encode_request(family: Family, hook: Hook, out: &mut Vec<u8>) -> Option<()> {
    if matches!(hook, Hook::Ingress | Hook::Egress) {
        return None;
    }
    put_header(out, family.number(), 0);
    put_be32(out, NFNLA_HOOK_HOOKNUM, hook_number(family, hook));
    Some(())
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::{nest, put_str, put_u8};

    use super::*;

    #[test]
    fn a_base_chain_at_a_hook_is_decoded() {
        let message = |kind: u32| {
            let mut payload = vec![2, 0, 0, 0];
            put_be32(&mut payload, NFNLA_HOOK_HOOKNUM, 2);
            put_be32(
                &mut payload,
                NFNLA_HOOK_PRIORITY,
                (-150_i32).cast_unsigned(),
            );
            put_str(&mut payload, NFNLA_HOOK_FUNCTION_NAME, "nft_do_chain_inet");
            put_str(&mut payload, NFNLA_HOOK_MODULE_NAME, "nf_tables");
            nest(&mut payload, NFNLA_HOOK_CHAIN_INFO, |out| {
                nest(out, NFNLA_HOOK_INFO_DESC, |out| {
                    put_str(out, NFNLA_CHAIN_TABLE, "firewall");
                    put_u8(out, NFNLA_CHAIN_FAMILY, 1);
                    put_str(out, NFNLA_CHAIN_NAME, "forward");
                });
                put_be32(out, NFNLA_HOOK_INFO_TYPE, kind);
            });
            payload
        };
        let decode = |kind| HookEntry::decode(&message(kind), Family::Ip, Hook::Forward);
        let entry = decode(NFNL_HOOK_TYPE_NFTABLES).unwrap();
        let (table, name) = entry.chain.unwrap();
        assert_eq!(format!("{table} {name}"), "inet firewall forward");
        assert_eq!(entry.priority, -150);
        assert_eq!(entry.module.as_deref(), Some("nf_tables"));
        // A BPF program.
        assert_eq!(decode(2).unwrap().chain, None);
        assert!(HookEntry::decode(&[2], Family::Ip, Hook::Forward).is_err());
    }

    #[test]
    fn a_request_names_family_and_hook() {
        let mut payload = Vec::new();
        let request = encode_request(Family::Ip6, Hook::Output, &mut payload);
        assert_eq!(request, Some(()));
        assert_eq!(payload, [10, 0, 0, 0, 8, 0, 1, 0, 0, 0, 0, 3]);
        assert_eq!(
            encode_request(Family::Ip, Hook::Ingress, &mut payload),
            None
        );
    }
}
