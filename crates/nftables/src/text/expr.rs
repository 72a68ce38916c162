//! The text of kernel expressions.

use super::listing::Listing;
use super::literal::Span;
use crate::expr::{
    Access, Bitwise, BitwiseOp, Byteorder, Cmp, CmpOp, Counter, Ct, Dynset, DynsetOp, Expr, Fib,
    FlowOffload, Hash, HashType, Immediate, Limit, Log, LogFlags, Lookup, Masq, Match, Meta, Nat,
    NatFlags, NatType, Notrack, Numgen, Objref, ObjrefSource, Quota, Range, Redir, Register,
    Reject, RejectType, SetRef, Target, Tproxy, object_kind,
};
use crate::expression::Expression;
use crate::{Data, Family};

/// Effect of a kernel expression on the text of a rule.
pub(super) trait List {
    fn list(&self, listing: &mut Listing);
}

impl Listing {
    /// Appends the effect of a kernel expression.
    pub(super) fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Payload(expr) => expr.list(self),
            Expr::Meta(expr) => expr.list(self),
            Expr::Ct(expr) => expr.list(self),
            Expr::Exthdr(expr) => expr.list(self),
            Expr::Rt(expr) => expr.list(self),
            Expr::Socket(expr) => expr.list(self),
            Expr::Xfrm(expr) => expr.list(self),
            Expr::Osf(expr) => expr.list(self),
            Expr::Fib(expr) => expr.list(self),
            Expr::Numgen(expr) => expr.list(self),
            Expr::Hash(expr) => expr.list(self),
            Expr::Immediate(expr) => expr.list(self),
            Expr::Bitwise(expr) => expr.list(self),
            Expr::Byteorder(expr) => expr.list(self),
            Expr::Cmp(expr) => expr.list(self),
            Expr::Range(expr) => expr.list(self),
            Expr::Lookup(expr) => expr.list(self),
            Expr::Dynset(expr) => expr.list(self),
            Expr::Objref(expr) => expr.list(self),
            Expr::Counter(expr) => expr.list(self),
            Expr::Quota(expr) => expr.list(self),
            Expr::Limit(expr) => expr.list(self),
            Expr::Connlimit(expr) => expr.list(self),
            Expr::Last(expr) => expr.list(self),
            Expr::Log(expr) => expr.list(self),
            Expr::Nat(expr) => expr.list(self),
            Expr::Masq(expr) => expr.list(self),
            Expr::Redir(expr) => expr.list(self),
            Expr::Tproxy(expr) => expr.list(self),
            Expr::Reject(expr) => expr.list(self),
            Expr::Synproxy(expr) => expr.list(self),
            Expr::Dup(expr) => expr.list(self),
            Expr::Fwd(expr) => expr.list(self),
            Expr::Queue(expr) => expr.list(self),
            Expr::Notrack(expr) => expr.list(self),
            Expr::FlowOffload(expr) => expr.list(self),
            Expr::Match(expr) => expr.list(self),
            Expr::Target(expr) => expr.list(self),
            Expr::Other { name, bytes } => self.unknown(name.as_str(), bytes),
        }
    }
}

impl List for Match {
    fn list(&self, listing: &mut Listing) {
        let (name, revision) = (&self.name, self.revision);
        listing.unknown(&format!("match {name} {revision}"), &self.info);
    }
}

impl List for Target {
    fn list(&self, listing: &mut Listing) {
        let (name, revision) = (&self.name, self.revision);
        listing.unknown(&format!("target {name} {revision}"), &self.info);
    }
}

impl List for Meta {
    fn list(&self, listing: &mut Listing) {
        let expression = Expression::from(self.key);
        match self.access {
            Access::Load(register) => listing.load(register, expression),
            Access::Store(register) => listing.set(expression, register),
        }
    }
}

impl List for Ct {
    fn list(&self, listing: &mut Listing) {
        let expression = Expression::ct(self.key, self.direction);
        match self.access {
            Access::Load(register) => listing.load(register, expression),
            Access::Store(register) => listing.set(expression, register),
        }
    }
}

impl List for Fib {
    fn list(&self, listing: &mut Listing) {
        listing.load(self.destination, Expression::fib(self.flags, self.result));
    }
}

impl List for Numgen {
    fn list(&self, listing: &mut Listing) {
        let expression = Expression::numgen(self.mode, self.modulus, self.offset);
        listing.load(self.destination, expression);
    }
}

impl List for Hash {
    fn list(&self, listing: &mut Listing) {
        let expression = match self.kind {
            HashType::Jenkins { source, len, seed } => {
                let of = listing.read(source, len as usize);
                Expression::jenkins(of, self.modulus, seed, self.offset)
            }
            HashType::Symmetric => Expression::symmetric(self.modulus, self.offset),
        };
        listing.load(self.destination, expression);
    }
}

impl List for Immediate {
    fn list(&self, listing: &mut Listing) {
        match &self.data {
            Data::Verdict(verdict) => listing.verdict(verdict),
            Data::Value(bytes) => {
                listing.load(self.destination, Expression::constant(bytes.clone()))
            }
        }
    }
}

impl List for Bitwise {
    fn list(&self, listing: &mut Listing) {
        let of = listing.read(self.source, self.len as usize);
        let bits = |by: &[u8]| by.try_into().map_or(0, u32::from_ne_bytes);
        let changed = match &self.op {
            BitwiseOp::MaskXor { mask, xor } => of.with_bits(mask.clone(), xor.clone()),
            BitwiseOp::ShiftLeft(by) => of.shift(true, bits(by)),
            BitwiseOp::ShiftRight(by) => {
                let field = listing.context.shifted_field(&of, bits(by));
                field.unwrap_or_else(|| of.shift(false, bits(by)))
            }
        };
        listing.load(self.destination, changed);
    }
}

impl List for Byteorder {
    /// Has no text: nft derives conversions from the comparison.
    fn list(&self, listing: &mut Listing) {
        listing.swap(self.destination);
    }
}

impl List for Cmp {
    fn list(&self, listing: &mut Listing) {
        let left = listing.read(self.source, self.data.len());
        let swapped = listing.is_swapped(self.source);
        listing.compare(left, self.op, self.data.clone(), swapped);
    }
}

impl List for Range {
    fn list(&self, listing: &mut Listing) {
        let left = listing.read(self.source, self.from.len());
        let op = if self.invert { CmpOp::Ne } else { CmpOp::Eq };
        let swapped = listing.is_swapped(self.source);
        listing.compare_range(left, op, &self.from, &self.to, swapped);
    }
}

impl List for Lookup {
    fn list(&self, listing: &mut Listing) {
        let key = listing.read_set_key(self.source, &self.set);
        match self.destination {
            Some(Register::VERDICT) => listing.vmap(key, &self.set),
            Some(register) => {
                listing.consume(self.source);
                let key = listing.name_key(key, &self.set);
                listing.load(register, key.map_by(self.set.clone()));
            }
            None => listing.is_member(key, self.invert, &self.set),
        }
    }
}

impl List for Dynset {
    fn list(&self, listing: &mut Listing) {
        let op = match self.op {
            DynsetOp::Add => "add",
            DynsetOp::Update => "update",
            DynsetOp::Delete => "delete",
        };
        let key = listing.read_key(self.key, self.data);
        let key = listing.context.name_last_bits(key);
        let key = listing.element_part(&key, &self.set, true);
        let mut text = match &self.set {
            SetRef::Anonymous(meter) => {
                let size = meter.set.size.map(|size| format!(" size {size}"));
                let name = &meter.set.name;
                format!("meter {name}{} {{ {key}", size.unwrap_or_default())
            }
            SetRef::Named(_) => format!("{op} {} {{ {key}", self.set),
        };
        if let Some(timeout) = self.timeout {
            text += &format!(" timeout {}", Span(timeout));
        }
        text += &listing.inner(&self.exprs);
        if let Some(data) = self.data {
            let data = listing.read_key(data, None);
            let data = listing.context.name_last_bits(data);
            text += &format!(" : {}", listing.element_part(&data, &self.set, false));
        }
        listing.push(text + " }");
    }
}

/// Returns the words before the name of a stateful object.
fn objref_verb(kind: u32) -> Option<String> {
    Some(match object_kind(kind)? {
        kind @ ("counter" | "quota" | "limit" | "synproxy") => format!("{kind} name"),
        "secmark" => "meta secmark set".to_owned(),
        kind => format!("{kind} set"),
    })
}

impl List for Objref {
    fn list(&self, listing: &mut Listing) {
        match &self.source {
            ObjrefSource::Named { kind, name } => match objref_verb(*kind) {
                Some(verb) => listing.push(format_args!("{verb} \"{name}\"")),
                None => listing.unknown("objref", &kind.to_be_bytes()),
            },
            ObjrefSource::Map { set, key } => {
                let (kind, key) = (listing.object_kind(set), listing.read_key(*key, None));
                let key = listing.context.name_last_bits(key);
                match objref_verb(kind) {
                    Some(verb) => listing.push(format_args!("{verb} {key} map {set}")),
                    None => listing.unknown("objref", &kind.to_be_bytes()),
                }
            }
        }
    }
}

impl List for Counter {
    fn list(&self, listing: &mut Listing) {
        let Self { packets, bytes } = self;
        if *self == Self::default() {
            listing.push("counter");
        } else {
            listing.push(format_args!("counter packets {packets} bytes {bytes}"));
        }
    }
}

impl List for Quota {
    fn list(&self, listing: &mut Listing) {
        let over = if self.over { "over " } else { "" };
        let mut text = format!("quota {over}{} bytes", self.bytes);
        if self.consumed != 0 {
            text += &format!(" used {} bytes", self.consumed);
        }
        listing.push(text);
    }
}

impl List for Limit {
    fn list(&self, listing: &mut Listing) {
        listing.push(self);
    }
}

impl List for Log {
    fn list(&self, listing: &mut Listing) {
        let mut text = String::from("log");
        if let Some(prefix) = &self.prefix {
            text += &format!(" prefix \"{prefix}\"");
        }
        if let Some(group) = self.group {
            text += &format!(" group {group}");
        }
        if let Some(snaplen) = self.snaplen {
            text += &format!(" snaplen {snaplen}");
        }
        if let Some(threshold) = self.queue_threshold {
            text += &format!(" queue-threshold {threshold}");
        }
        if let Some(level) = self.level {
            text += &format!(" level {}", level.as_str());
        }
        let words = [
            (LogFlags::TCP_SEQUENCE, " flags tcp sequence"),
            (LogFlags::TCP_OPTIONS, " flags tcp options"),
            (LogFlags::IP_OPTIONS, " flags ip options"),
            (LogFlags::UID, " flags skuid"),
            (LogFlags::LINK, " flags ether"),
        ];
        let all = words
            .iter()
            .fold(LogFlags::empty(), |all, (flag, _)| all | *flag);
        if self.flags == all {
            text += " flags all";
        } else {
            for (_, word) in words.iter().filter(|(flag, _)| self.flags.contains(*flag)) {
                text += word;
            }
        }
        listing.push(text);
    }
}

impl List for Nat {
    fn list(&self, listing: &mut Listing) {
        let kind = match self.kind {
            NatType::Snat => "snat",
            NatType::Dnat => "dnat",
        };
        let bytes = if self.family == Family::Ip { 4 } else { 16 };
        let from_map = self
            .addr_min
            .is_some_and(|register| listing.holds_map(register));
        let in_inet = listing.family() == Some(Family::Inet) && self.addr_min.is_some();
        let family = if in_inet || from_map {
            format!(" {}", self.family)
        } else {
            String::new()
        };
        let ports = listing.port_range(self.proto_min, self.proto_max);
        let target = if from_map {
            let ports = ports.map(|ports| format!(":{ports}"));
            listing.target_of_map(self.addr_min) + &ports.unwrap_or_default()
        } else {
            let addrs = listing.addr_range(self.addr_min, self.addr_max, bytes);
            match (addrs, ports) {
                (Some(addrs), Some(ports)) if bytes == 16 => {
                    format!(" to [{}]:{ports}", addrs.replace('-', "]-["))
                }
                (Some(addrs), Some(ports)) => format!(" to {addrs}:{ports}"),
                (Some(addrs), None) => format!(" to {addrs}"),
                (None, Some(ports)) => format!(" to :{ports}"),
                (None, None) => String::new(),
            }
        };
        let prefix = match self.flags.contains(NatFlags::NETMAP) {
            true => " prefix",
            false => "",
        };
        let flags = self.flags.text();
        listing.push(format_args!("{kind}{family}{prefix}{target}{flags}"));
    }
}

impl List for Masq {
    fn list(&self, listing: &mut Listing) {
        let ports = listing.port_range(self.proto_min, self.proto_max);
        let ports = ports
            .map(|ports| format!(" to :{ports}"))
            .unwrap_or_default();
        listing.push(format_args!("masquerade{ports}{}", self.flags.text()));
    }
}

impl List for Redir {
    fn list(&self, listing: &mut Listing) {
        let ports = listing.port_range(self.proto_min, self.proto_max);
        let ports = ports
            .map(|ports| format!(" to :{ports}"))
            .unwrap_or_default();
        listing.push(format_args!("redirect{ports}{}", self.flags.text()));
    }
}

impl List for Tproxy {
    fn list(&self, listing: &mut Listing) {
        let bytes = if self.family == Some(Family::Ip6) {
            16
        } else {
            4
        };
        let addr = listing.addr_range(self.addr, None, bytes);
        let port = listing.port_range(self.port, None);
        let family = match (listing.family(), self.family) {
            (Some(Family::Inet), Some(family)) => format!(" {family}"),
            _ => String::new(),
        };
        let addr = match addr {
            Some(addr) if bytes == 16 => format!("[{addr}]"),
            addr => addr.unwrap_or_default(),
        };
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        listing.push(format_args!("tproxy{family} to {addr}{port}"));
    }
}

impl List for Reject {
    /// Writes the numbers of codes: nft reads them in all families.
    fn list(&self, listing: &mut Listing) {
        let network = listing.context.network();
        match (self.kind, network) {
            (RejectType::TcpReset, _) => listing.push("reject with tcp reset"),
            (RejectType::Icmp(3), Some(Family::Ip)) | (RejectType::Icmp(4), Some(Family::Ip6))
                if listing.family() == network =>
            {
                listing.push("reject");
            }
            (RejectType::Icmpx(1), None)
                if matches!(listing.family(), None | Some(Family::Inet)) =>
            {
                listing.push("reject");
            }
            (RejectType::Icmpx(code), _) => listing.push(format_args!("reject with icmpx {code}")),
            (RejectType::Icmp(code), Some(Family::Ip6)) => {
                listing.push(format_args!("reject with icmpv6 {code}"));
            }
            (RejectType::Icmp(3 | 4), None) if listing.family().is_none() => listing.push("reject"),
            (RejectType::Icmp(code), _) => listing.push(format_args!("reject with icmp {code}")),
        }
    }
}

impl List for Notrack {
    fn list(&self, listing: &mut Listing) {
        listing.push("notrack");
    }
}

impl List for FlowOffload {
    fn list(&self, listing: &mut Listing) {
        listing.push(format_args!("flow add @{}", self.flowtable));
    }
}
