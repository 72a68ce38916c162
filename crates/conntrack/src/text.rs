//! Formatting like `conntrack -L -o extended`.
//!
//! Addresses, ports and marks are formatted as numbers, without name resolution.

use std::fmt;

use crate::{Counters, Family, Flow, Layer4, Protocol, State, Status, Tuple, protocol};

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src={} dst={}", self.source, self.destination)?;
        match self.layer4 {
            // A kernel without the protocol tracks no ports; `conntrack` prints 0.
            Layer4::None if self.protocol.has_ports() => f.write_str(" sport=0 dport=0"),
            Layer4::None => Ok(()),
            Layer4::Ports {
                source,
                destination,
            } if self.protocol == Protocol::GRE => {
                write!(f, " srckey={source:#x} dstkey={destination:#x}")
            }
            Layer4::Ports {
                source,
                destination,
            } => write!(f, " sport={source} dport={destination}"),
            Layer4::Icmp { kind, code, id } => write!(f, " type={kind} code={code} id={id}"),
        }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packets={} bytes={}", self.packets, self.bytes)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number) = match self {
            Self::Tcp(tcp) => match tcp.state {
                None => return Ok(()),
                Some(state) => (state.name(), state.0),
            },
            Self::Sctp(sctp) => match sctp.state {
                None => return Ok(()),
                Some(state) => (state.name(), state.0),
            },
            Self::Dccp(dccp) => match dccp.state {
                None => return Ok(()),
                Some(state) => (state.name(), state.0),
            },
            Self::Other { .. } => return Ok(()),
        };
        match name {
            Some(name) => write!(f, "{name} "),
            None => write!(f, "{number} "),
        }
    }
}

/// Writes one direction of a flow, with a space after each part.
fn direction(
    f: &mut fmt::Formatter<'_>,
    tuple: &Tuple,
    zone: &str,
    counters: Option<Counters>,
) -> fmt::Result {
    write!(f, "{tuple} ")?;
    if let Some(id) = tuple.zone {
        write!(f, "{zone}={id} ")?;
    }
    match counters {
        Some(counters) => write!(f, "{counters} "),
        None => Ok(()),
    }
}

/// Formats a flow like `conntrack -L -o extended`.
///
/// The age (`delta-time`) is omitted because it depends on the current time.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = self.family();
        let protocol = self.original.protocol;
        let name = protocol::name(protocol).unwrap_or("unknown");
        write!(
            f,
            "{:<8} {} {name:<8} {} ",
            match family {
                Family::V4 => "ipv4",
                Family::V6 => "ipv6",
            },
            family.number(),
            protocol.0
        )?;
        if let Some(timeout) = self.timeout {
            write!(f, "{timeout} ")?;
        }
        if let Some(state) = &self.state {
            write!(f, "{state}")?;
        }
        let counters = self.counters.as_deref();
        let original = counters.map(|both| both.original);
        direction(f, &self.original, "zone-orig", original)?;
        if !self.status.contains(Status::SEEN_REPLY) {
            f.write_str("[UNREPLIED] ")?;
        }
        let reply = counters.map(|both| both.reply);
        direction(f, &self.reply, "zone-reply", reply)?;
        let marks = [
            (Status::HW_OFFLOAD, "[HW_OFFLOAD] "),
            (Status::OFFLOAD, "[OFFLOAD] "),
            (Status::ASSURED, "[ASSURED] "),
        ];
        let mark = marks
            .iter()
            .find(|(status, _)| self.status.contains(*status));
        f.write_str(mark.map_or("", |(_, text)| text))?;
        self.attributes().fmt(f)
    }
}

impl Flow {
    /// Returns the text after both directions.
    fn attributes(&self) -> SpaceSeparated {
        let mut items = Vec::new();
        let mut push = |name: &str, value: Option<String>| {
            items.extend(value.map(|value| format!("{name}={value}")));
        };
        push("mark", self.mark.map(|mark| mark.to_string()));
        let extension = self.extension.as_deref();
        let text = |text: Option<&Box<str>>| text.map(ToString::to_string);
        push(
            "secctx",
            text(extension.and_then(|extension| extension.security.as_ref())),
        );
        push("zone", self.zone.map(|zone| zone.to_string()));
        push(
            "helper",
            text(extension.and_then(|extension| extension.helper.as_ref())),
        );
        push("use", self.use_count.map(|count| count.to_string()));
        SpaceSeparated(items)
    }
}

/// Displays strings separated by spaces.
struct SpaceSeparated(Vec<String>);

impl fmt::Display for SpaceSeparated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}
