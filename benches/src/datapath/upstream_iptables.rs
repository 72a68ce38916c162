//! The rules of upstream kube-proxy 1.36 in mode iptables for a cluster, as input of
//! `iptables-restore`.
//!
//! Has the same chains and rules as in a large cluster. Only hashes in names are replaced
//! by numbers of the same length.

use std::fmt::{self, Write};

use super::path::POD_NETWORK;
use super::services::{Kind, PORT, Service, Services, TARGET_PORT};

/// The table `filter`, which has no rules of Services with endpoints.
const FILTER: &str = "\
*filter
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-FIREWALL -m comment --comment \"block incoming localnet connections\" -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
";

/// Rules of the table `nat` that do not depend on Services.
const NAT: &str = "\
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
";

/// Last rules of the table `nat`.
const END: &str = "\
-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
COMMIT
";

/// Returns the rules of all Services.
///
/// # Errors
///
/// Never, because writing to a string does not fail.
pub fn rules(services: &Services) -> Result<String, fmt::Error> {
    let (mut chains, mut rules) = (FILTER.to_owned(), NAT.to_owned());
    for service in services.iter() {
        of_service(service, &mut chains, &mut rules)?;
    }
    Ok(chains + &rules + END)
}

/// Writes the chains and rules of a Service.
fn of_service(service: &Service, chains: &mut String, rules: &mut String) -> fmt::Result {
    let number = service.number;
    let name = format!("default/service-{number}:tcp-{PORT}");
    let ip = service.cluster_ip();
    let chain = format!("KUBE-SVC-{number:016}");
    writeln!(chains, ":{chain} - [0:0]")?;
    let cluster_ip =
        format!("-m comment --comment \"{name} cluster IP\" -m tcp -p tcp -d {ip} --dport {PORT}");
    writeln!(rules, "-A KUBE-SERVICES {cluster_ip} -j {chain}")?;
    writeln!(
        rules,
        "-A {chain} {cluster_ip} ! -s {POD_NETWORK} -j KUBE-MARK-MASQ"
    )?;
    if let Some(port) = service.node_port {
        let external = format!("KUBE-EXT-{number:016}");
        writeln!(chains, ":{external} - [0:0]")?;
        writeln!(
            rules,
            "-A KUBE-NODEPORTS -m comment --comment {name} -m tcp -p tcp --dport {port} -j {external}"
        )?;
        writeln!(
            rules,
            "-A {external} -m comment --comment \"masquerade traffic for {name} external destinations\" -j KUBE-MARK-MASQ"
        )?;
        writeln!(rules, "-A {external} -j {chain}")?;
    }
    let endpoint_chain = |place| format!("KUBE-SEP-{number:014}{place:02}");
    let has_affinity = service.kind == Kind::Affinity;
    let count = service.endpoints().len();
    if has_affinity {
        for endpoint in (0..count).map(endpoint_chain) {
            writeln!(
                rules,
                "-A {chain} -m recent --name {endpoint} --rcheck --seconds 10800 --reap -j {endpoint}"
            )?;
        }
    }
    for (place, endpoint) in service.endpoints().enumerate() {
        let (target, address) = (endpoint_chain(place), endpoint.address());
        let probability = match count - place {
            1 => String::new(),
            left => format!(
                "-m statistic --mode random --probability {:.10} ",
                1.0 / left as f64
            ),
        };
        let recent = match has_affinity {
            true => format!("-m recent --name {target} --set "),
            false => String::new(),
        };
        writeln!(chains, ":{target} - [0:0]")?;
        writeln!(rules, "-A {chain} {probability}-j {target}")?;
        writeln!(rules, "-A {target} -s {address} -j KUBE-MARK-MASQ")?;
        writeln!(
            rules,
            "-A {target} {recent}-m tcp -p tcp -j DNAT --to-destination {address}:{TARGET_PORT}"
        )?;
    }
    Ok(())
}
