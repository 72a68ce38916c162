//! `-m srh`: segment routing header of IPv6.

use std::net::Ipv6Addr;

use ipnet::IpNet;

use crate::Family;
use crate::extensions::structure::{Conditions, Reader, Structure, Writer};
use crate::options::field::extension;
use crate::options::negatable::Negatable;

extension! {
    /// Matches the segment routing header: `-m srh --srh-segs-left-eq 1`.
    ///
    /// Host bits of networks are preserved, as in the kernel.
    pub struct Srh = "-m srh" {
        /// Next header.
        next_header: Option<Negatable<u8>> = "--srh-next-hdr",
        /// Length equal to the value.
        length: Option<Negatable<u8>> = "--srh-hdr-len-eq",
        /// Length greater than the value.
        length_gt: Option<Negatable<u8>> = "--srh-hdr-len-gt",
        /// Length less than the value.
        length_lt: Option<Negatable<u8>> = "--srh-hdr-len-lt",
        /// Segments left equal to the value.
        segments_left: Option<Negatable<u8>> = "--srh-segs-left-eq",
        /// Segments left greater than the value.
        segments_left_gt: Option<Negatable<u8>> = "--srh-segs-left-gt",
        /// Segments left less than the value.
        segments_left_lt: Option<Negatable<u8>> = "--srh-segs-left-lt",
        /// Last entry equal to the value.
        last_entry: Option<Negatable<u8>> = "--srh-last-entry-eq",
        /// Last entry greater than the value.
        last_entry_gt: Option<Negatable<u8>> = "--srh-last-entry-gt",
        /// Last entry less than the value.
        last_entry_lt: Option<Negatable<u8>> = "--srh-last-entry-lt",
        /// Tag.
        tag: Option<Negatable<u16>> = "--srh-tag",
        /// Previous segment.
        previous: Option<Negatable<IpNet>> = "--srh-psid",
        /// Next segment.
        next: Option<Negatable<IpNet>> = "--srh-nsid",
        /// Last segment.
        last: Option<Negatable<IpNet>> = "--srh-lsid",
    }
    complete |_| true;
}

// Flags `mt_flags` and `mt_invflags` of `struct ip6t_srh1`.
const IP6T_SRH_NEXTHDR: u16 = 1 << 0;
const IP6T_SRH_LEN_EQ: u16 = 1 << 1;
const IP6T_SRH_LEN_GT: u16 = 1 << 2;
const IP6T_SRH_LEN_LT: u16 = 1 << 3;
const IP6T_SRH_SEGS_EQ: u16 = 1 << 4;
const IP6T_SRH_SEGS_GT: u16 = 1 << 5;
const IP6T_SRH_SEGS_LT: u16 = 1 << 6;
const IP6T_SRH_LAST_EQ: u16 = 1 << 7;
const IP6T_SRH_LAST_GT: u16 = 1 << 8;
const IP6T_SRH_LAST_LT: u16 = 1 << 9;
const IP6T_SRH_TAG: u16 = 1 << 10;
const IP6T_SRH_PSID: u16 = 1 << 11;
const IP6T_SRH_NSID: u16 = 1 << 12;
const IP6T_SRH_LSID: u16 = 1 << 13;

/// Conditions that share a field: equal, greater and less, with their flags.
type Comparisons<'c> = [(u16, &'c Option<Negatable<u8>>); 3];

/// Returns the value of the only condition. Returns `None` for conditions with several
/// values, of which the structure has only one.
fn shared(conditions: &mut Conditions<u16>, comparisons: Comparisons<'_>) -> Option<u8> {
    let values = comparisons.map(|(flag, one)| conditions.put(flag, one));
    let mut values = values.into_iter().flatten();
    let first = values.next().unwrap_or(0);
    values.all(|value| value == first).then_some(first)
}

/// `struct ip6t_srh1`.
impl Structure for Srh {
    const NAME: &'static str = "srh";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        if out.family() == Family::V4 {
            return None;
        }
        let mut conditions = Conditions::default();
        let next_header = conditions.put(IP6T_SRH_NEXTHDR, &self.next_header);
        out.u8(next_header.unwrap_or(0));
        for comparisons in [
            [
                (IP6T_SRH_LEN_EQ, &self.length),
                (IP6T_SRH_LEN_GT, &self.length_gt),
                (IP6T_SRH_LEN_LT, &self.length_lt),
            ],
            [
                (IP6T_SRH_SEGS_EQ, &self.segments_left),
                (IP6T_SRH_SEGS_GT, &self.segments_left_gt),
                (IP6T_SRH_SEGS_LT, &self.segments_left_lt),
            ],
            [
                (IP6T_SRH_LAST_EQ, &self.last_entry),
                (IP6T_SRH_LAST_GT, &self.last_entry_gt),
                (IP6T_SRH_LAST_LT, &self.last_entry_lt),
            ],
        ] {
            out.u8(shared(&mut conditions, comparisons)?);
        }
        out.u16(conditions.put(IP6T_SRH_TAG, &self.tag).unwrap_or(0));
        out.zeros(2);
        let mut parts = [[Ipv6Addr::UNSPECIFIED; 2]; 3];
        let networks = [
            (IP6T_SRH_PSID, &self.previous),
            (IP6T_SRH_NSID, &self.next),
            (IP6T_SRH_LSID, &self.last),
        ];
        for (parts, (flag, network)) in parts.iter_mut().zip(networks) {
            match conditions.put(flag, network) {
                Some(IpNet::V6(network)) => *parts = [network.addr(), network.netmask()],
                Some(IpNet::V4(_)) => return None,
                None => {}
            }
        }
        // All addresses stand before all masks.
        for [address, _] in parts {
            out.bytes(&address.octets());
        }
        for [_, mask] in parts {
            out.bytes(&mask.octets());
        }
        out.u16(conditions.used).u16(conditions.negated);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let [next_header, length, segments_left, last_entry] = reader.array()?;
        let tag = reader.u16()?;
        reader.bytes(2)?;
        let mut addresses = [Ipv6Addr::UNSPECIFIED; 6];
        for address in &mut addresses {
            *address = reader.array::<16>()?.into();
        }
        let [previous, next, last, masks @ ..] = addresses;
        let (used, negated) = (reader.u16()?, reader.u16()?);
        let conditions = Conditions { used, negated };
        let network = |flag, address: Ipv6Addr, mask: Ipv6Addr| {
            if !conditions.has(flag) {
                return Some(None);
            }
            let network = IpNet::with_netmask(address.into(), mask.into()).ok()?;
            Some(conditions.get(flag, network))
        };
        Some(Self {
            next_header: conditions.get(IP6T_SRH_NEXTHDR, next_header),
            length: conditions.get(IP6T_SRH_LEN_EQ, length),
            length_gt: conditions.get(IP6T_SRH_LEN_GT, length),
            length_lt: conditions.get(IP6T_SRH_LEN_LT, length),
            segments_left: conditions.get(IP6T_SRH_SEGS_EQ, segments_left),
            segments_left_gt: conditions.get(IP6T_SRH_SEGS_GT, segments_left),
            segments_left_lt: conditions.get(IP6T_SRH_SEGS_LT, segments_left),
            last_entry: conditions.get(IP6T_SRH_LAST_EQ, last_entry),
            last_entry_gt: conditions.get(IP6T_SRH_LAST_GT, last_entry),
            last_entry_lt: conditions.get(IP6T_SRH_LAST_LT, last_entry),
            tag: conditions.get(IP6T_SRH_TAG, tag),
            previous: network(IP6T_SRH_PSID, previous, masks[0])?,
            next: network(IP6T_SRH_NSID, next, masks[1])?,
            last: network(IP6T_SRH_LSID, last, masks[2])?,
        })
    }
}
