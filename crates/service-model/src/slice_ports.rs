//! The ports of an EndpointSlice in compact form.
//!
//! A slice may have 20,000 ports although its Service uses one. A port takes the
//! bytes of its name and 12 bytes more.

use crate::warning::{Field, Problem, Warnings};
use crate::{Transport, api};

/// The ports of a slice.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SlicePorts {
    /// The names of all ports, concatenated.
    names: Box<str>,
    /// Invariant: sorted by name, protocol and number.
    ports: Box<[Packed]>,
    has_udp: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Packed {
    /// Byte range of the name within `names`.
    start: u32,
    end: u32,
    protocol: Transport,
    port: u16,
}

impl SlicePorts {
    /// Parses the ports of a slice. Ports that no Service can use are left out.
    pub(crate) fn read(ports: Vec<api::EndpointPort>, warnings: &mut Warnings<'_>) -> Self {
        let mut read = Vec::with_capacity(ports.len());
        for (index, port) in ports.into_iter().enumerate() {
            let number = number(port.port).ok_or_else(|| problem(port.port));
            let Some(name) = port.name else {
                warnings.push(Field::member("ports[].name", index), Problem::Missing);
                continue;
            };
            let Some(protocol) = port.protocol.transport() else {
                let word = port.protocol.as_str().into();
                warnings.push(
                    Field::member("ports[].protocol", index),
                    Problem::Unknown(word),
                );
                continue;
            };
            match number {
                Ok(number) => read.push((name, protocol, number)),
                Err(problem) => warnings.push(Field::member("ports[].port", index), problem),
            }
        }
        read.sort_unstable();
        Self::pack(&read)
    }

    fn pack(sorted: &[(String, Transport, u16)]) -> Self {
        let mut names = String::with_capacity(sorted.iter().map(|(name, ..)| name.len()).sum());
        let offset = |names: &String| u32::try_from(names.len()).unwrap_or(u32::MAX);
        let mut ports = Vec::with_capacity(sorted.len());
        for (name, protocol, port) in sorted {
            let start = offset(&names);
            names.push_str(name);
            ports.push(Packed {
                start,
                end: offset(&names),
                protocol: *protocol,
                port: *port,
            });
        }
        Self {
            names: names.into(),
            has_udp: ports.iter().any(|port| port.protocol == Transport::Udp),
            ports: ports.into(),
        }
    }

    /// Returns whether the slice has no usable port.
    pub(crate) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Returns whether the slice has a UDP port.
    pub(crate) fn has_udp(&self) -> bool {
        self.has_udp
    }

    /// Returns the numbers of the ports with this name and protocol.
    pub(crate) fn named(&self, name: &str, protocol: Transport) -> impl Iterator<Item = u16> {
        let wanted = (name, protocol);
        let start = self.ports.partition_point(|port| self.key(port) < wanted);
        self.ports
            .iter()
            .skip(start)
            .take_while(move |port| self.key(port) == wanted)
            .map(|port| port.port)
    }

    /// Returns names and protocols of all ports, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, Transport)> {
        self.ports.iter().map(|port| self.key(port))
    }

    fn key(&self, port: &Packed) -> (&str, Transport) {
        let name = self.names.get(port.start as usize..port.end as usize);
        (name.unwrap_or_default(), port.protocol)
    }
}

/// Returns the port number if it is within 1-65535.
fn number(port: Option<i32>) -> Option<u16> {
    let number = u16::try_from(port?).ok()?;
    (number != 0).then_some(number)
}

/// Returns the problem of an invalid port number.
fn problem(port: Option<i32>) -> Problem {
    match port {
        None => Problem::Missing,
        Some(0) => Problem::Zero,
        Some(number) => Problem::BadPort(number),
    }
}
