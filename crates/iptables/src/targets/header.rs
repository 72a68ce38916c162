//! Targets that change headers: `-j DSCP`, `-j TOS`, `-j ECN`, `-j TTL`, `-j HL` and
//! `-j CHECKSUM`.

use crate::field::extension;
use crate::matches::{DscpValue, TosValue};

extension! {
    /// Sets the differentiated services code point: `-j DSCP --set-dscp 0x2e`.
    pub struct Dscp = "-j DSCP" {
        /// Code point; iptables requires one.
        dscp: Option<DscpValue> = "--set-dscp" | "--set-dscp-class",
    }
}

extension! {
    /// Changes the type of service: `-j TOS --set-tos 0x10/0x3f`.
    ///
    /// Clears the bits of the mask, then flips the bits of the value.
    pub struct Tos = "-j TOS" {
        /// Value and mask; iptables requires them.
        tos: Option<TosValue> = "--set-tos" | "--and-tos" | "--or-tos" | "--xor-tos",
    }
}

extension! {
    /// Removes explicit congestion notification: `-p tcp -j ECN --ecn-tcp-remove`.
    pub struct Ecn = "-j ECN" {
        /// Whether the flags ECE and CWR of TCP are cleared; iptables requires it.
        tcp_remove: bool = "--ecn-tcp-remove",
    }
}

extension! {
    /// Changes the time to live of IPv4 packets: `-j TTL --ttl-set 64`.
    ///
    /// iptables requires exactly one option.
    pub struct Ttl = "-j TTL" {
        /// New value.
        set: Option<u8> = "--ttl-set",
        /// Number to subtract, not 0.
        dec: Option<u8> = "--ttl-dec",
        /// Number to add, not 0.
        inc: Option<u8> = "--ttl-inc",
    }
    complete |it| is_one_change(it.set, it.dec, it.inc);
}

extension! {
    /// Changes the hop limit of IPv6 packets: `-j HL --hl-set 64`.
    ///
    /// iptables requires exactly one option.
    pub struct Hl = "-j HL" {
        /// New value.
        set: Option<u8> = "--hl-set",
        /// Number to subtract, not 0.
        dec: Option<u8> = "--hl-dec",
        /// Number to add, not 0.
        inc: Option<u8> = "--hl-inc",
    }
    complete |it| is_one_change(it.set, it.dec, it.inc);
}

fn is_one_change(set: Option<u8>, dec: Option<u8>, inc: Option<u8>) -> bool {
    let count = [set, dec, inc].iter().flatten().count();
    count == 1 && dec != Some(0) && inc != Some(0)
}

extension! {
    /// Computes missing checksums: `-j CHECKSUM --checksum-fill`.
    pub struct Checksum = "-j CHECKSUM" {
        /// Whether the checksum is computed; iptables requires it.
        fill: bool = "--checksum-fill",
    }
}
