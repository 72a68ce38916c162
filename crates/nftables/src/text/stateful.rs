//! The text of stateful objects and flowtables.

use super::literal::Span;
use crate::expr::object_kind;
use crate::language::header::protocol_name;
use crate::{CtTimeout, Flowtable, FlowtableFlags, State, StatefulObject, Synproxy};

/// States of TCP connections: `CTA_TIMEOUT_TCP_*` of `nfnetlink_cttimeout.h`.
const TCP_STATES: &[(u16, &str)] = &[
    (1, "syn_sent"),
    (2, "syn_recv"),
    (3, "established"),
    (4, "fin_wait"),
    (5, "close_wait"),
    (6, "last_ack"),
    (7, "time_wait"),
    (8, "close"),
    (9, "syn_sent2"),
    (10, "retrans"),
    (11, "unack"),
];
/// States of UDP connections: `CTA_TIMEOUT_UDP_*`.
const UDP_STATES: &[(u16, &str)] = &[(1, "unreplied"), (2, "replied")];

impl State {
    /// Returns nft's keyword of the type.
    pub(crate) fn keyword(&self) -> &'static str {
        object_kind(self.kind()).unwrap_or("object")
    }

    /// Returns the lines of the state. A state without nft syntax is a comment.
    fn lines(&self) -> Vec<String> {
        match self {
            Self::Counter(counter) => {
                vec![format!(
                    "packets {} bytes {}",
                    counter.packets, counter.bytes
                )]
            }
            Self::Quota(quota) => {
                let over = if quota.over { "over " } else { "" };
                let used = match quota.consumed {
                    0 => String::new(),
                    bytes => format!(" used {bytes} bytes"),
                };
                vec![format!("{over}{} bytes{used}", quota.bytes)]
            }
            Self::Limit(limit) => {
                let text = limit.to_string();
                vec![text.strip_prefix("limit ").unwrap_or(&text).to_owned()]
            }
            Self::CtHelper(helper) => {
                let (name, protocol) = (&helper.helper, protocol(helper.l4proto));
                let mut lines = vec![format!("type \"{name}\" protocol {protocol}")];
                lines.extend(l3proto(helper.l3proto));
                lines
            }
            Self::CtTimeout(timeout) => timeout_lines(timeout),
            Self::CtExpectation(expectation) => {
                let mut lines = vec![
                    format!("protocol {}", protocol(expectation.l4proto)),
                    format!("dport {}", expectation.dport),
                    format!("timeout {}", Span(expectation.timeout)),
                    format!("size {}", expectation.size),
                ];
                lines.extend(l3proto(expectation.l3proto));
                lines
            }
            Self::Synproxy(synproxy) => synproxy_lines(synproxy),
            Self::Secmark(context) => vec![format!("\"{context}\"")],
            Self::Other { kind, bytes } => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                vec![format!("# type {kind}: {hex}")]
            }
        }
    }
}

impl StatefulObject {
    /// Returns the lines of the declaration.
    pub(super) fn lines(&self) -> Vec<String> {
        let comment = self.comment.iter().map(ToString::to_string);
        comment.chain(self.state.lines()).collect()
    }

    /// Returns whether nft has syntax for the object.
    pub(super) fn has_syntax(&self) -> bool {
        !matches!(self.state, State::Other { .. })
    }
}

/// Returns the name of a transport protocol, or its number.
fn protocol(number: u8) -> String {
    protocol_name(number).map_or_else(|| number.to_string(), str::to_owned)
}

fn l3proto(number: u16) -> Option<String> {
    let families = [(1, "inet"), (2, "ip"), (10, "ip6")];
    let (_, name) = families.iter().find(|(known, _)| *known == number)?;
    Some(format!("l3proto {name}"))
}

fn timeout_lines(timeout: &CtTimeout) -> Vec<String> {
    let names = match timeout.l4proto {
        6 => TCP_STATES,
        17 => UDP_STATES,
        _ => &[],
    };
    let text = |(state, seconds): &(u16, u32)| {
        let (_, name) = names.iter().find(|(known, _)| known == state)?;
        Some(format!("{name} : {seconds}"))
    };
    let policy: Vec<_> = timeout.timeouts.iter().filter_map(text).collect();
    let mut lines = vec![format!("protocol {}", protocol(timeout.l4proto))];
    lines.extend(l3proto(timeout.l3proto));
    if !policy.is_empty() {
        lines.push(format!("policy = {{ {} }}", policy.join(", ")));
    }
    lines
}

fn synproxy_lines(synproxy: &Synproxy) -> Vec<String> {
    let mut lines = Vec::new();
    if synproxy.flags & Synproxy::MSS != 0 {
        lines.push(format!("mss {}", synproxy.mss));
    }
    if synproxy.flags & Synproxy::WSCALE != 0 {
        lines.push(format!("wscale {}", synproxy.wscale));
    }
    let words = [
        (Synproxy::TIMESTAMP, "timestamp"),
        (Synproxy::SACK_PERM, "sack-perm"),
    ];
    let words = words.iter().filter(|(flag, _)| synproxy.flags & flag != 0);
    let words: Vec<&str> = words.map(|(_, word)| *word).collect();
    if !words.is_empty() {
        lines.push(words.join(" "));
    }
    lines
}

impl Flowtable {
    /// Returns the lines of the declaration.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("hook {} priority {}", self.hook, self.priority)];
        if !self.devices.is_empty() {
            // nft passes the devices to the kernel in reverse order.
            let devices = self.devices.iter().rev().map(|name| format!("\"{name}\""));
            let devices: Vec<_> = devices.collect();
            lines.push(format!("devices = {{ {} }}", devices.join(", ")));
        }
        if self.flags.contains(FlowtableFlags::OFFLOAD) {
            lines.push("flags offload".to_owned());
        }
        if self.flags.contains(FlowtableFlags::COUNTER) {
            lines.push("counter".to_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{CtHelper, Family, Name, Object, TableId};

    #[test]
    fn objects_display_as_commands_that_add_them() {
        let name = |text| Name::new(text).unwrap();
        let table = || TableId::new(Family::Ip, name("t"));
        let flowtable = Flowtable::new(table(), name("f"), 5).with_device(name("lo"));
        let text = "add flowtable ip t f { hook ingress priority 5; devices = { \"lo\" }; }";
        assert_eq!(Object::from(flowtable).to_string(), text);
        for (state, text) in [
            (
                State::from(CtHelper::new(name("ftp"), 2, 6)),
                "add ct helper ip t o { type \"ftp\" protocol tcp; l3proto ip; }",
            ),
            (
                CtTimeout::new(2, 17).with_timeout(2, 50).into(),
                "add ct timeout ip t o { protocol udp; l3proto ip; policy = { replied : 50 }; }",
            ),
            (
                Synproxy::new(9, 3).with_flags(Synproxy::TIMESTAMP).into(),
                "add synproxy ip t o { mss 9; wscale 3; timestamp; }",
            ),
        ] {
            let object = StatefulObject::new(table(), name("o"), state);
            assert_eq!(Object::from(object).to_string(), text);
        }
        assert_eq!(Span(Duration::from_millis(70)).to_string(), "70ms");
    }
}
