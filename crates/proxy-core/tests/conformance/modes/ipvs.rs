//! Mode ipvs.
//!
//! The plan answers for the first connection of a client, and a saved kernel with the
//! client's persistence template for the second.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use proxy_core::backend::ipvs::{Object, Planner};
use proxy_core::evaluate::{KernelState, Outcome, Rules as Prepared, Verdict};
use proxy_core::{Family, Mode, Planner as _};
use vipline_evaluate::{Host, ListUpdate};
use vipline_rtnl::Object::Address;

use super::{Rules, Seen, installed};
use crate::fate::Fate;
use crate::flow::Flow;
use crate::world::World;

/// The interface with the addresses of Services.
const SERVICES: &str = "kube-ipvs0";

/// Sources of a saved kernel, and the programs that read their text in a plan.
const SOURCES: [(&str, &str); 4] = [
    ("ipset restore", "ipset-save"),
    ("iptables-restore --noflush", "iptables-save"),
    ("ip6tables-restore --noflush", "ip6tables-save"),
    ("ipvsadm -R", "ipvsadm-save"),
];

/// The state of both families.
pub(crate) struct Ipvs {
    rules: [Arc<Prepared>; 2],
    host: Host,
    kernels: Arc<[Kernel; 2]>,
}

/// The state of one family.
struct Kernel {
    /// Sets, rules and servers as lines of a [`KernelState`].
    text: String,
    addresses: Vec<IpNet>,
}

impl Kernel {
    fn new(family: Family, objects: &[Object]) -> Self {
        let addresses = objects.iter().filter_map(|object| match object {
            Object::Address(Address(address)) => Some(IpNet::from(address.ip())),
            _ => None,
        });
        Self {
            addresses: addresses.collect(),
            text: saved(&Planner::listing(family, objects.iter())),
        }
    }

    /// Returns the rules with a persistence template.
    fn rules(&self, template: &str) -> Prepared {
        let text = format!(
            "# kube-proxy kernel state 1\n{}{template}# end\n",
            self.text
        );
        let state: KernelState = text.parse().expect("a kernel state");
        let rules = Mode::Ipvs.saved_rules(&state).expect("valid state");
        rules.expect("a mode that can be evaluated")
    }
}

/// Returns a plan as lines of a [`KernelState`].
fn saved(plan: &str) -> String {
    let mut source = None;
    let mut text = String::new();
    for line in plan.lines() {
        if let Some(program) = line.strip_prefix("# ") {
            source = SOURCES.iter().find(|(reader, _)| *reader == program);
        } else if let Some((_, source)) = source {
            writeln!(text, "{source} {line}").expect("a string");
        }
    }
    text
}

impl Rules for Ipvs {
    const MODE: Mode = Mode::Ipvs;

    const TOLERANCE: f64 = 0.0;

    type Update = ListUpdate;

    fn install(world: &World) -> Self {
        let kernels = installed::<Planner>(world);
        let objects = Family::ALL.map(|family| {
            let kernel = kernels.of(family).get();
            let objects: Vec<Object> = kernel.memory.objects().cloned().collect();
            (family, objects)
        });
        let rules = objects.each_ref().map(|(family, objects)| {
            let rules = Planner::rules(*family, objects.iter());
            Arc::new(rules.expect("a mode that can be evaluated"))
        });
        let kernels = objects.map(|(family, objects)| Kernel::new(family, &objects));
        Self {
            rules,
            host: world.node.host(),
            kernels: Arc::new(kernels),
        }
    }

    fn evaluate(&self, flow: &Flow) -> Result<Vec<Seen<ListUpdate>>, String> {
        let rules = &self.rules[usize::from(flow.destination.is_ipv6())];
        let outcomes = rules.evaluate(&flow.packet(), &self.host);
        let outcomes = outcomes.map_err(|error| error.to_string())?.into_iter();
        let seen = |outcome: Outcome| {
            Ok(Seen {
                fate: fate(&outcome)?,
                probability: outcome.probability,
                updates: outcome.lists,
            })
        };
        outcomes.map(seen).collect()
    }

    fn after(&self, flow: &Flow, seen: &Seen<ListUpdate>) -> Self {
        let kernel = &self.kernels[usize::from(flow.destination.is_ipv6())];
        let templates: String = seen.updates.iter().map(template).collect();
        let rules = Arc::new(kernel.rules(&templates));
        let host = self.host.clone();
        Self {
            rules: [Arc::clone(&rules), rules],
            host: (kernel.addresses.iter())
                .fold(host, |host, address| host.with_addr(SERVICES, *address)),
            kernels: Arc::clone(&self.kernels),
        }
    }
}

/// Returns the end of an outcome.
fn fate(outcome: &Outcome) -> Result<Fate, String> {
    let packet = &outcome.packet;
    Ok(match outcome.verdict {
        Verdict::Endpoint(_) | Verdict::Forwarded | Verdict::Delivered => {
            let port = packet.destination_port().ok_or("an unknown port")?;
            Fate::Passed {
                destination: SocketAddr::new(packet.destination(), port),
                is_masqueraded: outcome.is_masqueraded,
            }
        }
        Verdict::Refused => Fate::Rejected,
        Verdict::Dropped => Fate::Dropped,
        ref other => return Err(format!("{packet} {other}")),
    })
}

/// Returns a new persistence template as a line of the connection table.
fn template(update: &ListUpdate) -> String {
    let ListUpdate::IpvsTemplate {
        client,
        protocol,
        address: Some(address),
        port,
        server,
        ..
    } = update
    else {
        panic!("no rule updates a list: {update:?}");
    };
    let protocol = match protocol {
        6 => "TCP",
        17 => "UDP",
        _ => "SCTP",
    };
    let column = |ip: &IpAddr, port: u16| match ip {
        IpAddr::V4(ip) => format!("{:08X} {port:04X}", ip.to_bits()),
        IpAddr::V6(ip) => format!("{ip} {port:04X}"),
    };
    let (client, service) = (column(client, 0), column(address, *port));
    let server = column(&server.ip(), server.port());
    format!("ip_vs_conn {protocol} {client} {service} {server} NONE 360\n")
}
