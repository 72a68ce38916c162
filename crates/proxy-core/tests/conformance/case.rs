//! A case: a packet in a world, and its comparison with the oracle.

use std::fmt::Write;
use std::net::SocketAddr;

use proxy_core::Mode;
use vipline_service_model::arbitrary::Dice;
use vipline_service_model::ipnet::IpNet;
use vipline_service_model::{DetectLocal, ExternalIps, NodePortAddresses};

use crate::exceptions::expected;
use crate::fate::{Fate, Fates};
use crate::flow::Flow;
use crate::modes::{Rules, fates};
use crate::oracle::affinity::Previous;
use crate::oracle::frontend::Frontend;
use crate::oracle::{Oracle, node_ports, owner};
use crate::world::World;

/// Compares what a mode does with a packet, and then with a second connection of the same
/// client. Returns what decided: a rule, differences of the mode, affinity.
pub(crate) fn check<R: Rules>(
    oracle: &Oracle<'_>,
    rules: &R,
    flow: &Flow,
) -> Result<Vec<String>, String> {
    let (wanted, reasons) = expected(R::MODE, oracle, flow, None);
    let seen = rules.evaluate(flow)?;
    compare::<R>(flow, &fates(&seen), &wanted.fates)?;
    let rule = format!("{:?}", wanted.rule);
    let mut decisions: Vec<String> = [rule].into_iter().chain(reasons).collect();
    let Some((_, frontend)) = owner::of(oracle, flow).filter(|(_, it)| it.has_affinity) else {
        return Ok(decisions);
    };
    // The place is arbitrary, and the same in each mode.
    let mut dice = Dice::from_seed(u64::from(flow.destination.port()));
    let first = &seen[usize::from(dice.roll(u8::MAX)) % seen.len()];
    let Fate::Passed { destination, .. } = first.fate else {
        return Ok(decisions);
    };
    let previous = Previous {
        of: frontend.precedence.clone(),
        to: flow.destination,
        endpoint: destination,
    };
    let again = flow.to(dice.pick(&addresses(oracle, frontend)));
    let (wanted_again, reasons) = expected(R::MODE, oracle, &again, Some(&previous));
    let seen = rules.after(flow, first).evaluate(&again)?;
    compare::<R>(&again, &fates(&seen), &wanted_again.fates)
        .map_err(|error| format!("after a connection to {destination}: {error}"))?;
    decisions.push("affinity".into());
    decisions.extend(reasons);
    Ok(decisions)
}

fn compare<R: Rules>(flow: &Flow, seen: &Fates, wanted: &Fates) -> Result<(), String> {
    match seen.is_near(wanted, R::TOLERANCE) {
        true => Ok(()),
        false => Err(format!(
            "{flow} in mode {}:\n  oracle: {wanted}\n  mode:   {seen}",
            R::MODE
        )),
    }
}

/// Returns the addresses and ports of a service port.
fn addresses(oracle: &Oracle<'_>, frontend: &Frontend) -> Vec<SocketAddr> {
    let ips = [frontend.cluster_ip].into_iter();
    let ips = ips.chain(frontend.load_balancer_ips.iter().copied());
    let ips = ips.chain(frontend.external_ips.iter().copied());
    let own = oracle.world.node.addresses().into_iter();
    let own = own.filter(|ip| ip.is_ipv4() == frontend.cluster_ip.is_ipv4());
    let served = own.filter(|ip| frontend.node_port != 0 && node_ports::is_served(oracle, *ip));
    ips.map(|ip| SocketAddr::new(ip, frontend.port))
        .chain(served.map(|ip| SocketAddr::new(ip, frontend.node_port)))
        .collect()
}

/// Returns the objects, the configuration and the packet as text for `kube-proxy explain`.
pub(crate) fn text(mode: Mode, world: &World, flow: &Flow) -> String {
    let mut text = String::new();
    for (_, object) in &world.objects {
        writeln!(text, "---\n{object}").expect("a string");
    }
    let addresses = world.node.addresses();
    let flags = flags(world);
    let input = flow.input.unwrap_or("a process of the node");
    writeln!(
        text,
        "node: {addresses:?}\nkube-proxy explain {flow} --proxy-mode {mode}{flags} # received from {input}"
    )
    .expect("a string");
    text
}

/// Returns the flags of a configuration.
fn flags(world: &World) -> String {
    let config = &world.config;
    let list = |networks: &[IpNet]| {
        let texts: Vec<_> = networks.iter().map(ToString::to_string).collect();
        texts.join(",")
    };
    let mut flags = match &config.engine.detect_local {
        DetectLocal::ClusterCidr(networks) => format!(" --cluster-cidr {}", list(networks)),
        DetectLocal::NodeCidr => " --detect-local-mode NodeCIDR".into(),
        DetectLocal::Interface(name) => {
            format!(" --detect-local-mode BridgeInterface --pod-bridge-interface {name}")
        }
        DetectLocal::InterfacePrefix(name) => {
            format!(" --detect-local-mode InterfaceNamePrefix --pod-interface-name-prefix {name}")
        }
        other => format!(" {other:?}"),
    };
    flags += &match &config.engine.node_port_addresses {
        NodePortAddresses::All => " --nodeport-addresses 0.0.0.0/0,::/0".into(),
        NodePortAddresses::Primary => " --nodeport-addresses primary".into(),
        NodePortAddresses::Within(networks) => format!(" --nodeport-addresses {}", list(networks)),
    };
    if config.engine.masquerade_all {
        flags += " --masquerade-all";
    }
    if config.engine.external_ips == ExternalIps::Ignore {
        flags += " --feature-gates AllowServiceExternalIPs=false";
    }
    if !config.iptables.localhost_node_ports {
        flags += " --iptables-localhost-nodeports=false";
    }
    flags
}
