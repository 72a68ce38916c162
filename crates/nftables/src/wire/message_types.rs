//! Types of messages: `enum nf_tables_msg_types` of `linux/netfilter/nf_tables.h`.

use super::NFNL_SUBSYS_NFTABLES;

pub(crate) const NFT_MSG_NEWTABLE: u8 = 0;
pub(crate) const NFT_MSG_GETTABLE: u8 = 1;
pub(crate) const NFT_MSG_DELTABLE: u8 = 2;
pub(crate) const NFT_MSG_NEWCHAIN: u8 = 3;
pub(crate) const NFT_MSG_GETCHAIN: u8 = 4;
pub(crate) const NFT_MSG_DELCHAIN: u8 = 5;
pub(crate) const NFT_MSG_NEWRULE: u8 = 6;
pub(crate) const NFT_MSG_GETRULE: u8 = 7;
pub(crate) const NFT_MSG_DELRULE: u8 = 8;
pub(crate) const NFT_MSG_NEWSET: u8 = 9;
pub(crate) const NFT_MSG_GETSET: u8 = 10;
pub(crate) const NFT_MSG_DELSET: u8 = 11;
pub(crate) const NFT_MSG_NEWSETELEM: u8 = 12;
pub(crate) const NFT_MSG_GETSETELEM: u8 = 13;
pub(crate) const NFT_MSG_DELSETELEM: u8 = 14;
pub(crate) const NFT_MSG_NEWGEN: u8 = 15;
pub(crate) const NFT_MSG_GETGEN: u8 = 16;
pub(crate) const NFT_MSG_NEWOBJ: u8 = 18;
pub(crate) const NFT_MSG_GETOBJ: u8 = 19;
pub(crate) const NFT_MSG_DELOBJ: u8 = 20;
pub(crate) const NFT_MSG_GETOBJ_RESET: u8 = 21;
pub(crate) const NFT_MSG_NEWFLOWTABLE: u8 = 22;
pub(crate) const NFT_MSG_GETFLOWTABLE: u8 = 23;
pub(crate) const NFT_MSG_DELFLOWTABLE: u8 = 24;
pub(crate) const NFT_MSG_GETRULE_RESET: u8 = 25;
pub(crate) const NFT_MSG_DESTROYTABLE: u8 = 26;
pub(crate) const NFT_MSG_DESTROYCHAIN: u8 = 27;
pub(crate) const NFT_MSG_DESTROYRULE: u8 = 28;
pub(crate) const NFT_MSG_DESTROYSET: u8 = 29;
pub(crate) const NFT_MSG_DESTROYSETELEM: u8 = 30;
pub(crate) const NFT_MSG_DESTROYOBJ: u8 = 31;
pub(crate) const NFT_MSG_DESTROYFLOWTABLE: u8 = 32;
pub(crate) const NFT_MSG_GETSETELEM_RESET: u8 = 33;

/// Returns the type of a netlink message: the subsystem, and the type within nf_tables.
pub(crate) const fn message_type(kind: u8) -> u16 {
    u16::from_be_bytes([NFNL_SUBSYS_NFTABLES, kind])
}

/// Returns the type that deletes the object only if it exists (Linux 6.3).
pub(crate) fn destroy(kind: u8) -> u8 {
    match kind {
        NFT_MSG_DELTABLE => NFT_MSG_DESTROYTABLE,
        NFT_MSG_DELCHAIN => NFT_MSG_DESTROYCHAIN,
        NFT_MSG_DELRULE => NFT_MSG_DESTROYRULE,
        NFT_MSG_DELSET => NFT_MSG_DESTROYSET,
        NFT_MSG_DELSETELEM => NFT_MSG_DESTROYSETELEM,
        NFT_MSG_DELOBJ => NFT_MSG_DESTROYOBJ,
        NFT_MSG_DELFLOWTABLE => NFT_MSG_DESTROYFLOWTABLE,
        other => other,
    }
}

/// Returns the message type of a new object of this kind, and whether the object was
/// deleted.
pub(crate) fn object_kind(kind: u8) -> (u8, bool) {
    let new = match kind {
        // Messages that destroy are deletions that may fail silently.
        NFT_MSG_DELTABLE | NFT_MSG_DESTROYTABLE => NFT_MSG_NEWTABLE,
        NFT_MSG_DELCHAIN | NFT_MSG_DESTROYCHAIN => NFT_MSG_NEWCHAIN,
        NFT_MSG_DELRULE | NFT_MSG_DESTROYRULE => NFT_MSG_NEWRULE,
        NFT_MSG_DELSET | NFT_MSG_DESTROYSET => NFT_MSG_NEWSET,
        NFT_MSG_DELSETELEM | NFT_MSG_DESTROYSETELEM => NFT_MSG_NEWSETELEM,
        NFT_MSG_DELOBJ | NFT_MSG_DESTROYOBJ => NFT_MSG_NEWOBJ,
        NFT_MSG_DELFLOWTABLE | NFT_MSG_DESTROYFLOWTABLE => NFT_MSG_NEWFLOWTABLE,
        _ => return (kind, false),
    };
    (new, true)
}
