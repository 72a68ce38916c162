//! Time of the kernel alone for a load in mode ipvs: replay of its netlink messages.

use std::error::Error;
use std::time::Duration;

use proxy_core::backend::ipvs::Object;
use rustix::net::netlink;
use vipline_netlink::message::{NLM_F_ACK, NLM_F_REQUEST, begin, end};
use vipline_netlink::{Protocol, Socket};
use vipline_reconcile::Edit;
use {vipline_ipset as ipset, vipline_ipvs as ipvs, vipline_rtnl as rtnl};

use crate::floor::replay_over;
use crate::time::Time;

/// The commands of a load, without those of iptables.
#[derive(Debug, Default)]
pub struct Load {
    sets: Vec<ipset::Commands>,
    servers: Vec<ipvs::Commands>,
    addresses: Vec<rtnl::Commands>,
}

/// Time of the messages to each kernel subsystem.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Sets and entries.
    pub sets: Duration,
    /// Virtual and real servers.
    pub servers: Duration,
    /// The link and its addresses.
    pub addresses: Duration,
}

impl Replayed {
    /// Returns the time of all messages.
    pub fn total(&self) -> Duration {
        self.sets + self.servers + self.addresses
    }
}

/// A message: its type, its flags in addition to `NLM_F_REQUEST`, and its payload.
type Request = (u16, u16, Vec<u8>);

impl Load {
    /// Adds the edits of one commit.
    pub fn add(&mut self, edits: &[Edit<Object>]) {
        let (mut sets, mut servers, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for edit in edits {
            let Edit::Add(object) = edit else {
                continue;
            };
            match object.clone() {
                Object::Set(object) => sets.push(Edit::Add(object)),
                Object::Server(object) => servers.push(Edit::Add(object)),
                Object::Address(object) => addresses.push(Edit::Add(object)),
                Object::Rule(_) => {}
            }
        }
        self.sets.push(ipset::Commands::from_edits(&sets));
        self.servers.push(ipvs::Commands::from_edits(&servers));
        self.addresses.push(rtnl::Commands::from_edits(&addresses));
    }

    /// Replays the load in the network namespace of the calling thread.
    ///
    /// The datagrams have as many messages as those of the clients. Messages are encoded
    /// before the measurement begins.
    ///
    /// # Errors
    ///
    /// If the kernel rejects a message.
    pub fn replay(&self) -> Result<Replayed, Box<dyn Error + Send + Sync>> {
        let protocol = ipset::Client::open()?.protocol();
        let mut sets = Vec::new();
        for commands in &self.sets {
            sets.extend(commands.requests(protocol)?);
        }
        let sets = sets
            .into_iter()
            .map(|request| (request.ty, request.flags, request.payload));
        // The kernel acknowledges each message with entries.
        let sets = replay_over(Some(netlink::NETFILTER), &datagrams(sets, 1))?;

        let family = Socket::open(Protocol::GENERIC)?.resolve_family(ipvs::wire::IPVS_GENL_NAME)?;
        let family = family.ok_or("the kernel has no IPVS")?;
        let servers = self.servers.iter().flat_map(|commands| commands.as_slice());
        let servers = servers.map(|command| {
            let mut payload = Vec::new();
            command.encode(&mut payload);
            (family, 0, payload)
        });
        let servers = datagrams(servers, Socket::MAX_REQUESTS);
        let servers = replay_over(Some(netlink::GENERIC), &servers)?;

        let mut addresses = Vec::new();
        for with_index in [false, true] {
            let messages = datagrams(self.links(with_index)?, Socket::MAX_REQUESTS);
            addresses.extend(replay_over(None, &messages)?);
        }
        let wall = |times: Vec<Time>| times.into_iter().sum::<Time>().wall;
        Ok(Replayed {
            sets: wall(sets),
            servers: wall(servers),
            addresses: wall(addresses),
        })
    }

    /// Encodes the commands of addresses, which have the index of a link, or all others.
    fn links(&self, with_index: bool) -> Result<Vec<Request>, rtnl::Error> {
        let mut client = rtnl::Client::open()?;
        let (mut messages, mut link) = (Vec::new(), None);
        for command in self.addresses.iter().flat_map(|all| all.as_slice()) {
            if command.needs_index() != with_index {
                continue;
            }
            if with_index && link.is_none() {
                link = client.link(&command.interface())?;
            }
            let index = link.as_ref().map_or(0, |link| link.index);
            let mut payload = Vec::new();
            command.encode(index, &mut payload);
            messages.push((command.ty(), command.flags(), payload));
        }
        Ok(messages)
    }
}

/// Joins messages to datagrams. The last message of each requests an acknowledgment.
fn datagrams(messages: impl IntoIterator<Item = Request>, count: usize) -> Vec<Vec<u8>> {
    let messages: Vec<_> = messages.into_iter().collect();
    let datagrams = messages.chunks(count).map(|chunk| {
        let mut out = Vec::new();
        for (index, (ty, flags, payload)) in chunk.iter().enumerate() {
            let is_last = index + 1 == chunk.len();
            let ack = if is_last { NLM_F_ACK } else { 0 };
            let start = begin(&mut out, *ty, NLM_F_REQUEST | flags | ack, 1);
            out.extend_from_slice(payload);
            end(&mut out, start);
        }
        out
    });
    datagrams.collect()
}
