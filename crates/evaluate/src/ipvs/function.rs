//! IPVS at the hooks of a packet.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use vipline_inet::{Protocol, Transport};
use vipline_ipvs::{self as ipvs, Forwarding};
use vipline_nftables::Hook;
use vipline_nftables::expr::{AddrType, Direction, RejectType};

use super::balancer::{self, Balancer, Decision, Servers, Target};
use super::event::{IpvsEvent, Template};
use super::history::TemplateKey;
use crate::{
    Cause, Context, Disposition, HookFunction, HookVerdict, IpvsConnection, ListUpdate, Packet,
};

/// `ICMP_PORT_UNREACH` of `linux/icmp.h` and `ICMPV6_PORT_UNREACH` of `linux/icmpv6.h`.
const PORT_UNREACHABLE: [u8; 2] = [3, 4];

/// Hooks at which IPVS schedules connections, `ip_vs_remote_request4` and
/// `ip_vs_local_request4`, and those at which it translates replies, `ip_vs_reply4` and
/// `ip_vs_local_reply4`, of `net/netfilter/ipvs/ip_vs_core.c`.
const PLACES: [(Hook, i32); 5] = [
    (Hook::Input, 99),
    (Hook::Output, -98),
    (Hook::Input, 98),
    (Hook::Output, -99),
    (Hook::Forward, 100),
];

/// Priorities of the functions that translate replies.
const REPLIES: [i32; 3] = [98, -99, 100];

/// IPVS in the path of a packet: schedules the first packet of a connection, and translates
/// replies.
///
/// Assumes the sysctl `net.ipv4.vs.conntrack`: connection tracking then knows the real server.
/// Packets that belong to a connection of IPVS are scheduled like new ones.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
///
/// use vipline_evaluate::ipvs::{Balancer, Ipvs};
/// use vipline_evaluate::{Evaluator, Host, Packet};
/// use vipline_ipvs::Table;
/// use vipline_nftables::Ruleset;
///
/// let table: Table = "-A -t 10.96.0.1:443 -s rr\n\
///                     -a -t 10.96.0.1:443 -r 10.0.0.8:6443 -m\n".parse()?;
/// let ipvs = Ipvs::new(Balancer::from(&table), BTreeMap::new());
/// let evaluator = Evaluator::new(&Ruleset::new()).with_function(Arc::new(ipvs));
///
/// let host = Host::new()
///     .with_addr("eth0", "192.0.2.1/24".parse()?)
///     .with_addr("eth1", "10.0.0.1/24".parse()?)
///     .with_addr("kube-ipvs0", "10.96.0.1/32".parse()?);
/// let packet = Packet::tcp("192.0.2.7:40000".parse()?, "10.96.0.1:443".parse()?);
/// let outcomes = evaluator.evaluate(&packet.with_input("eth0"), &host)?;
/// assert_eq!(outcomes[0].packet.to_string(), "tcp 192.0.2.7:40000 -> 10.0.0.8:6443");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ipvs {
    balancer: Balancer,
    templates: BTreeMap<TemplateKey, SocketAddr>,
}

impl HookFunction for Ipvs {
    fn places(&self) -> &[(Hook, i32)] {
        &PLACES
    }

    /// Schedules the first packet of a connection, and translates replies.
    fn call(&self, priority: i32, context: &mut Context<'_, '_>) -> Result<HookVerdict, Cause> {
        if REPLIES.contains(&priority) {
            self.answer(context);
            return Ok(HookVerdict::Accept);
        }
        // A packet that IPVS has forwarded is not scheduled again.
        let packet = scheduled(context.packet()).filter(|_| context.ipvs().is_none());
        let Some(packet) = packet else {
            return Ok(HookVerdict::Accept);
        };
        let decision = self.balancer.decide(&packet, &self.templates);
        let decision = decision.map_err(|error| Cause::Unknown(error.to_string()))?;
        match decision {
            Decision::Forwarded {
                service,
                servers,
                template,
            } => {
                let (targets, weights) = options(servers);
                let chosen = context.choose(&weights)?;
                let target = targets.get(chosen).ok_or(Cause::Operand)?;
                if let Some(key) = template {
                    self.keep(&key, target, context);
                }
                forward(context, service, target)
            }
            Decision::Rejected(server) => {
                context.record_ipvs(IpvsEvent::NoRealServer { service: *server });
                let [v4, v6] = PORT_UNREACHABLE;
                let code = if packet.destination.is_ipv4() { v4 } else { v6 };
                let reject = Disposition::Rejected(RejectType::Icmp(code));
                Ok(HookVerdict::End(reject))
            }
            Decision::Dropped => Ok(HookVerdict::End(Disposition::Dropped)),
            _ => Ok(HookVerdict::Accept),
        }
    }
}

impl Ipvs {
    /// Creates the function of a table, with all persistence templates that exist.
    pub fn new(balancer: Balancer, templates: BTreeMap<TemplateKey, SocketAddr>) -> Self {
        Self {
            balancer,
            templates,
        }
    }

    /// Sets the address of the virtual server as the source of a reply.
    ///
    /// The entry of connection tracking has the address as the destination of the connection:
    /// with the sysctl `net.ipv4.vs.conntrack`, IPVS changes only the source of its replies.
    fn answer(&self, context: &mut Context<'_, '_>) {
        let is_reply = context.direction() == Some(Direction::Reply);
        let Some(original) = context
            .connection()
            .map(|it| it.original)
            .filter(|_| is_reply)
        else {
            return;
        };
        let packet = context.packet();
        let (source, destination) = (packet.source(), packet.destination());
        let port = original.destination_port.unwrap_or_default();
        let server = SocketAddr::new(original.destination, port);
        let client = SocketAddr::new(original.source, original.source_port.unwrap_or_default());
        let request = Packet::with_protocol(packet.protocol(), client, server);
        let is_of_server =
            scheduled(&request).is_some_and(|it| self.balancer.server(&it).is_some());
        if is_of_server && source != server.ip() && destination == original.source {
            context.record_ipvs(IpvsEvent::ReplyTranslated { source: server });
            context.set_source(server);
        }
    }

    /// Records the template that a packet found or creates.
    fn keep(&self, key: &TemplateKey, target: &Target<'_>, context: &mut Context<'_, '_>) {
        let (client, server) = (key.client, target.server.endpoint());
        let template = Template { client, server };
        if self.templates.get(key) == Some(&server) {
            context.record_ipvs(IpvsEvent::TemplateFound(template));
            return;
        }
        context.record_ipvs(IpvsEvent::TemplateCreated(template));
        context.update_list(ListUpdate::IpvsTemplate {
            client,
            protocol: key.protocol,
            address: key.address,
            mark: key.mark,
            port: key.port,
            server,
        });
    }
}

/// Returns the packet as IPVS sees it, or `None` for a protocol that IPVS ignores.
fn scheduled(packet: &Packet) -> Option<balancer::Packet> {
    let protocol = Transport::of(Protocol(packet.protocol()))?;
    let source = SocketAddr::new(packet.source(), packet.source_port()?);
    let destination = SocketAddr::new(packet.destination(), packet.destination_port()?);
    let scheduled = balancer::Packet::new(protocol, source, destination);
    Some(scheduled.with_mark(packet.mark()))
}

/// Returns the real servers with their weights. Without known shares they are equal.
fn options(servers: Servers<'_>) -> (Vec<Target<'_>>, Vec<u128>) {
    match servers {
        Servers::Shares(shares) => {
            let shares = shares.into_iter();
            shares
                .map(|(target, weight)| (target, u128::from(weight)))
                .unzip()
        }
        Servers::Possible(targets) => {
            let weights = vec![1; targets.len()];
            (targets, weights)
        }
    }
}

/// Forwards the packet to a real server.
fn forward(
    context: &mut Context<'_, '_>,
    server: &ipvs::VirtualServer,
    target: &Target<'_>,
) -> Result<HookVerdict, Cause> {
    let packet = context.packet();
    let connection = IpvsConnection {
        protocol: packet.protocol(),
        address: packet.destination(),
        port: packet.destination_port().unwrap_or_default(),
        method: 0,
        control_port: None,
    };
    context.record_ipvs(IpvsEvent::Forwarded {
        service: *server,
        to: target.address,
    });
    context.set_ipvs(connection);
    if target.server.forwarding == Forwarding::Masquerade {
        context.set_destination(target.address);
        context.set_reply_source(target.address);
    }
    // A route to a broadcast address is local (`RTCF_LOCAL`): the packet stays on its path, as
    // in `ip_vs_nat_send_or_cont` of `net/netfilter/ipvs/ip_vs_xmit.c`.
    let to = target.address.ip();
    Ok(match context.addr_type(to, None)? {
        AddrType::Broadcast => HookVerdict::Accept,
        _ => HookVerdict::Send(to),
    })
}
