//! The nf_tables ruleset of upstream kube-proxy 1.36 for a cluster, as input of `nft`.
//!
//! Has the same sets, maps, chains and rules. Only hashes in names are replaced by
//! numbers of the same length.

use std::fmt::{self, Write};

use super::path::{NODE, POD_NETWORK};
use super::services::{Kind, PORT, SERVICE_CIDR, Service, Services, TARGET_PORT};

/// Rules that do not depend on Services, in the order of the chains.
const BASE: &str = "\
 chain filter-prerouting-pre-dnat { type filter hook prerouting priority -110 ; ct state new jump firewall-check ; }
 chain filter-output-pre-dnat { type filter hook output priority -110 ; ct state new jump firewall-check ; }
 chain filter-input { type filter hook input priority 0 ; ct state new jump nodeport-endpoints-check ; ct state new jump service-endpoints-check ; }
 chain filter-forward { type filter hook forward priority 0 ; ct state new jump service-endpoints-check ; ct state new jump cluster-ips-check ; }
 chain filter-output { type filter hook output priority 0 ; ct state new jump service-endpoints-check ; ct state new jump cluster-ips-check ; }
 chain nat-prerouting { type nat hook prerouting priority -100 ; jump services ; }
 chain nat-output { type nat hook output priority -100 ; jump services ; }
 chain nat-postrouting { type nat hook postrouting priority 100 ; jump masquerading ; }
 set hairpin-connections { type ipv4_addr . ipv4_addr . inet_proto . inet_service ; }
 set cluster-ips { type ipv4_addr ; }
 set nodeport-ips { type ipv4_addr ; }
 map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict ; }
 map no-endpoint-nodeports { type inet_proto . inet_service : verdict ; }
 map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
 map service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
 map service-nodeports { type inet_proto . inet_service : verdict ; }
 chain masquerading {
  mark and 0x4000 != 0 mark set mark xor 0x4000 masquerade fully-random
  ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
 }
 chain reject-chain { reject ; }
 chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services ; }
 chain nodeport-endpoints-check { ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports ; }
 chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips ; }
";

/// Number of Services whose chains are in one document.
///
/// The kernel walks the whole transaction for each map.
const PER_DOCUMENT: usize = 1000;

/// Highest number of Services with chains of their own, by default.
///
/// The kernel walks all sets of a table for each new set, and does nothing else on the
/// processor meanwhile. More Services share the chains of the first, which makes the
/// ruleset faster than that of upstream.
pub const CHAINS: u32 = 10_000;

/// Returns the ruleset with all Services, as several documents.
///
/// Elements exist for all Services. Only the first `chains` Services have chains; the
/// other Services use theirs. Services of the same kind must share chains, so `chains`
/// must be a multiple of 50.
///
/// # Errors
///
/// Never, because writing to a string does not fail.
pub fn ruleset(services: &Services, chains: u32) -> Result<Vec<String>, fmt::Error> {
    let base = format!(
        "table ip kube-proxy {{
{BASE}
 chain cluster-ips-check {{
  ip daddr @cluster-ips reject comment \"Reject traffic to invalid ports of ClusterIPs\"
  ip daddr {{ {SERVICE_CIDR} }} drop comment \"Drop traffic to unallocated ClusterIPs\"
 }}
 chain services {{
  ip daddr @cluster-ips ip saddr != {POD_NETWORK} mark set mark or 0x4000 comment \"masquerade clusterIP traffic from outside cluster\"
  ip daddr . meta l4proto . th dport vmap @service-ips
  ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
 }}
}}
add element ip kube-proxy nodeport-ips {{ {NODE} }}
"
    );
    let mut documents = vec![base];
    let all = services.as_slice();
    let own = &all[..all.len().min(chains as usize)];
    for services in own.chunks(PER_DOCUMENT) {
        let mut text = "table ip kube-proxy {\n".to_owned();
        for service in services {
            service_chains(&mut text, service)?;
        }
        writeln!(text, "}}")?;
        documents.push(text);
    }
    documents.push(elements(services, chains)?);
    Ok(documents)
}

/// Returns the part of the name that the chains of a Service share.
fn name(service: &Service, chains: u32) -> String {
    // The kinds of Services repeat, so both Services have the same kind.
    let number = service.number % chains;
    format!("{number:08}-default/service-{number}/tcp/tcp-{PORT}")
}

/// Writes the chains of a Service.
fn service_chains(text: &mut String, service: &Service) -> fmt::Result {
    let name = name(service, u32::MAX);
    let count = service.endpoints().len();
    let endpoints = || (0..).zip(service.endpoints().map(|endpoint| endpoint.address()));
    let endpoint_name = |address| format!("{name}__{address}/{TARGET_PORT}");
    if service.kind == Kind::Affinity {
        for (_, address) in endpoints() {
            let endpoint = endpoint_name(address);
            writeln!(
                text,
                " set affinity-{endpoint} {{ type ipv4_addr ; flags dynamic,timeout ; timeout 10800s ; }}
 chain endpoint-{endpoint} {{
  update @affinity-{endpoint} {{ ip saddr }}
  meta l4proto tcp dnat to {address}:{TARGET_PORT}
 }}"
            )?;
        }
    }
    writeln!(text, " chain service-{name} {{")?;
    if service.kind == Kind::Affinity {
        for (_, address) in endpoints() {
            let endpoint = endpoint_name(address);
            writeln!(
                text,
                "  ip saddr @affinity-{endpoint} goto endpoint-{endpoint}"
            )?;
        }
        let verdict =
            |(place, address)| format!("{place} : goto endpoint-{}", endpoint_name(address));
        let verdicts: Vec<_> = endpoints().map(verdict).collect();
        writeln!(
            text,
            "  numgen random mod {count} vmap {{ {} }}",
            verdicts.join(" , ")
        )?;
    } else {
        let target = |(place, address): (u32, _)| format!("{place} : {address} . {TARGET_PORT}");
        let targets: Vec<_> = endpoints().map(target).collect();
        writeln!(
            text,
            "  meta l4proto tcp dnat ip addr . port to numgen random mod {count} map {{ {} }}",
            targets.join(" , ")
        )?;
    }
    writeln!(text, " }}")?;
    if service.node_port.is_some() {
        writeln!(
            text,
            " chain external-{name} {{
  mark set mark or 0x4000 comment \"masquerade\"
  goto service-{name}
 }}"
        )?;
    }
    Ok(())
}

/// Returns a document with the elements of all Services.
fn elements(services: &Services, chains: u32) -> Result<String, fmt::Error> {
    let mut text = String::new();
    let mut add = |set: &str, elements: Vec<String>| match elements.is_empty() {
        true => Ok(()),
        false => writeln!(
            text,
            "add element ip kube-proxy {set} {{ {} }}",
            elements.join(" , ")
        ),
    };
    let ips = services
        .iter()
        .map(|service| service.cluster_ip().to_string());
    add("cluster-ips", ips.collect())?;
    let ips = services.iter().map(|service| {
        let ip = service.cluster_ip();
        format!(
            "{ip} . tcp . {PORT} : goto service-{}",
            name(service, chains)
        )
    });
    add("service-ips", ips.collect())?;
    let ports = services.iter().filter_map(|service| {
        let port = service.node_port?;
        Some(format!(
            "tcp . {port} : goto external-{}",
            name(service, chains)
        ))
    });
    add("service-nodeports", ports.collect())?;
    let local = services.iter().flat_map(Service::endpoints);
    let local = local
        .filter(|endpoint| endpoint.is_local())
        .map(|endpoint| {
            let address = endpoint.address();
            format!("{address} . {address} . tcp . {TARGET_PORT}")
        });
    add("hairpin-connections", local.collect())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_that_share_chains_have_the_same_kind() {
        let services = Services::mixed(2 * CHAINS);
        let (own, others) = services.as_slice().split_at(CHAINS as usize);
        for (own, other) in own.iter().zip(others) {
            assert_eq!(own.kind, other.kind);
            assert_eq!(name(own, CHAINS), name(other, CHAINS));
        }
    }

    #[test]
    fn a_ruleset_has_chains_and_elements_of_all_services() {
        let documents = ruleset(&Services::mixed(50), CHAINS).unwrap();
        let [base, chains, elements] = &documents[..] else {
            panic!("{} documents", documents.len());
        };
        assert!(base.contains("chain services {"));
        assert_eq!(chains.matches("chain service-").count(), 50);
        assert_eq!(chains.matches("chain external-").count(), 3);
        assert_eq!(chains.matches("set affinity-").count(), 5);
        assert_eq!(elements.matches(": goto service-").count(), 50);
        assert_eq!(elements.matches(": goto external-").count(), 3);
    }
}
