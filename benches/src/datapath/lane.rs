//! A path with a ruleset, and flows through it.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use vipline_conntrack::{Client, Family, Filter, Layer4, Status};

use super::generator::Generator;
use super::packet::{Segment, tcp};
use super::path::{NODE, Path, SINK_GATEWAY};
use super::ruleset::Ruleset;
use super::services::Services;
use crate::time::Time;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Addresses of a flow: of the client, and the destination of the client.
pub type Flow = (SocketAddrV4, SocketAddrV4);

/// A path with a ruleset.
#[derive(Debug)]
pub struct Lane {
    /// The ruleset of the router.
    pub ruleset: Ruleset,
    path: Path,
    client: Generator,
    sink: Generator,
    conntrack: Client,
}

impl Lane {
    /// Creates a path and [loads](Ruleset::load) a ruleset into its router.
    ///
    /// # Errors
    ///
    /// If a namespace cannot be created, or if the kernel rejects the ruleset.
    pub fn new(ruleset: Ruleset, services: &Services, chains: u32) -> Outcome<Self> {
        let path = Path::new()?;
        ruleset.load(&path.router, services, chains)?;
        Ok(Self {
            ruleset,
            client: Generator::open(&path.client, NODE)?,
            sink: Generator::open(&path.sink, SINK_GATEWAY)?,
            conntrack: path.router.run(Client::open)?,
            path,
        })
    }

    /// Sends packets from the client, and returns the time of the kernel.
    ///
    /// # Errors
    ///
    /// If one of 1,000 packets does not arrive.
    pub fn send(&mut self, packets: &[Vec<u8>]) -> Outcome<Time> {
        let before = self.path.received()?;
        let time = self.client.send(packets)?;
        let (sent, received) = (packets.len() as u64, self.path.received()? - before);
        match received >= sent - sent / 1000 {
            true => Ok(time),
            false => Err(format!("{}: {received} of {sent} packets arrived", self.ruleset).into()),
        }
    }

    /// Deletes all conntrack entries.
    ///
    /// # Errors
    ///
    /// The error of the netlink socket.
    pub fn flush(&mut self) -> Outcome<()> {
        self.conntrack.flush(&Filter::new())?;
        Ok(())
    }

    /// Returns the number of flows whose destination is translated.
    ///
    /// # Errors
    ///
    /// The error of the netlink socket.
    pub fn translated(&mut self) -> Outcome<usize> {
        let filter = Filter::new()
            .with_family(Family::V4)
            .with_status(Status::DST_NAT, Status::DST_NAT);
        let mut count = 0;
        let _ = self.conntrack.dump(&filter, |_| count += 1)?;
        Ok(count)
    }

    /// Establishes TCP connections: packets from the client, the sink, and the client.
    ///
    /// # Errors
    ///
    /// If conntrack does not confirm a connection.
    pub fn establish(&mut self, flows: &[Flow]) -> Outcome<()> {
        self.flush()?;
        self.send(&packets(flows, Segment::Syn))?;
        if self.ruleset == Ruleset::Plain {
            return Ok(());
        }
        let mut replies = Vec::new();
        let _ = self
            .conntrack
            .dump(&Filter::new().with_family(Family::V4), |flow| {
                let reply = flow.reply;
                if let (
                    IpAddr::V4(source),
                    IpAddr::V4(target),
                    Layer4::Ports {
                        source: from,
                        destination: to,
                    },
                ) = (reply.source, reply.destination, reply.layer4)
                {
                    replies.push((
                        SocketAddrV4::new(source, from),
                        SocketAddrV4::new(target, to),
                    ));
                }
            })?;
        self.sink.send(&packets(&replies, Segment::SynAck))?;
        self.send(&packets(flows, Segment::Data(0)))?;
        let assured = Filter::new()
            .with_family(Family::V4)
            .with_status(Status::ASSURED, Status::ASSURED);
        let mut count = 0;
        let _ = self.conntrack.dump(&assured, |_| count += 1)?;
        match count == flows.len() {
            true => Ok(()),
            false => Err(format!(
                "{}: {count} of {} flows are established",
                self.ruleset,
                flows.len()
            )
            .into()),
        }
    }
}

/// Returns one packet per flow.
pub fn packets(flows: &[Flow], segment: Segment) -> Vec<Vec<u8>> {
    let packets = flows
        .iter()
        .map(|(source, target)| tcp(*source, *target, segment));
    packets.collect()
}

/// Returns flows to destinations in turn, each from another address and port.
pub fn flows(targets: &[SocketAddrV4], count: u32) -> Vec<Flow> {
    let flows = (0..count).zip(targets.iter().cycle());
    flows
        .map(|(number, target)| (source(number), *target))
        .collect()
}

/// Returns a source of the network [`CLIENTS`](super::path::CLIENTS).
fn source(number: u32) -> SocketAddrV4 {
    const FIRST_PORT: u32 = 1024;
    const ADDRESSES: u32 = 60_000;
    let address = Ipv4Addr::new(10, 200, 0, 0).to_bits() + 1 + number % ADDRESSES;
    let port = FIRST_PORT + (number * 7) % ADDRESSES;
    SocketAddrV4::new(Ipv4Addr::from_bits(address), port as u16)
}
