//! The text of statements that forward, copy, queue, limit or proxy packets.

use super::display::operand;
use super::expr::List;
use super::listing::Listing;
use super::literal::Span;
use crate::expr::{
    Connlimit, Dup, Fwd, Last, Queue, QueueFlags, QueueTarget, Register, Synproxy, SynproxyFlags,
};
use crate::{Datatype, Family};

impl Listing {
    /// Returns the text of a value in a register.
    fn operand(&self, register: Register, datatype: Datatype) -> String {
        let bytes = usize::from(datatype.bytes());
        operand(&self.read(register, bytes), datatype, false)
    }
}

impl List for Connlimit {
    fn list(&self, listing: &mut Listing) {
        let over = if self.over { "over " } else { "" };
        listing.push(format_args!("ct count {over}{}", self.count));
    }
}

impl List for Last {
    fn list(&self, listing: &mut Listing) {
        match self.used {
            Some(used) => listing.push(format_args!("last used {}", Span(used))),
            None => listing.push("last"),
        }
    }
}

impl List for Synproxy {
    fn list(&self, listing: &mut Listing) {
        let known = SynproxyFlags::MSS
            | SynproxyFlags::WSCALE
            | SynproxyFlags::TIMESTAMP
            | SynproxyFlags::SACK_PERM;
        if !known.contains(self.flags) {
            return listing.unknown("synproxy flags", &self.flags.bits().to_be_bytes());
        }
        let mut text = String::from("synproxy");
        let has = |flag| self.flags.contains(flag);
        if has(SynproxyFlags::MSS) {
            text += &format!(" mss {}", self.mss);
        }
        if has(SynproxyFlags::WSCALE) {
            text += &format!(" wscale {}", self.wscale);
        }
        if has(SynproxyFlags::TIMESTAMP) {
            text += " timestamp";
        }
        if has(SynproxyFlags::SACK_PERM) {
            text += " sack-perm";
        }
        listing.push(text);
    }
}

impl List for Dup {
    fn list(&self, listing: &mut Listing) {
        let datatype = match listing.family() {
            Some(Family::Ip6) => Datatype::Ipv6Addr,
            _ => Datatype::Ipv4Addr,
        };
        let addr = self.addr.map(|addr| listing.operand(addr, datatype));
        let device = self.device;
        let device = device.map(|device| listing.operand(device, Datatype::IfaceIndex));
        match (addr, device) {
            (Some(addr), Some(device)) => {
                listing.push(format_args!("dup to {addr} device {device}"));
            }
            (Some(target), None) | (None, Some(target)) => {
                listing.push(format_args!("dup to {target}"));
            }
            (None, None) => listing.push("dup"),
        }
    }
}

impl List for Fwd {
    fn list(&self, listing: &mut Listing) {
        let device = listing.operand(self.device, Datatype::IfaceIndex);
        match self.addr {
            Some((family, addr)) => {
                let datatype = match family {
                    Family::Ip6 => Datatype::Ipv6Addr,
                    _ => Datatype::Ipv4Addr,
                };
                let addr = listing.operand(addr, datatype);
                listing.push(format_args!("fwd {family} to {addr} device {device}"));
            }
            None => listing.push(format_args!("fwd to {device}")),
        }
    }
}

impl List for Queue {
    fn list(&self, listing: &mut Listing) {
        if !(QueueFlags::BYPASS | QueueFlags::FANOUT).contains(self.flags) {
            return listing.unknown("queue flags", &self.flags.bits().to_be_bytes());
        }
        let words = [
            (QueueFlags::BYPASS, "bypass"),
            (QueueFlags::FANOUT, "fanout"),
        ];
        let flags: Vec<&str> = words
            .iter()
            .filter(|(flag, _)| self.flags.contains(*flag))
            .map(|(_, word)| *word)
            .collect();
        let flags = match &*flags {
            [] => String::new(),
            flags => format!(" flags {}", flags.join(",")),
        };
        let target = match self.target {
            QueueTarget::Numbers {
                first,
                total: 0 | 1,
            } => first.to_string(),
            QueueTarget::Numbers { first, total } => {
                format!("{first}-{}", u32::from(first) + u32::from(total) - 1)
            }
            QueueTarget::Register(register) => listing.operand(register, Datatype::Integer),
        };
        listing.push(format_args!("queue{flags} to {target}"));
    }
}

#[cfg(test)]
mod tests {
    use crate::Rule;
    use crate::expr::{Queue, QueueFlags, QueueTarget, Synproxy, SynproxyFlags};

    #[test]
    fn unknown_flags_are_not_left_out() {
        let flags = QueueFlags::from_bits_retain(0x11);
        let target = QueueTarget::Numbers { first: 1, total: 1 };
        let queue = Rule::from_exprs([Queue { target, flags }.into()]);
        assert_eq!(queue.to_string(), "/* queue flags 0011 */");
        let synproxy = Synproxy {
            flags: SynproxyFlags::ECN,
            ..Synproxy::default()
        };
        let synproxy = Rule::from_exprs([synproxy.into()]);
        assert_eq!(synproxy.to_string(), "/* synproxy flags 00000010 */");
    }
}
