//! Objects of external addresses and node ports.

use std::net::IpAddr;

use vipline_iptables::matches::{AddrType, AddressTypes, Match, Nfacct};
use vipline_iptables::targets::Target;
use vipline_iptables::{ChainName, Object, Rule};
use vipline_service_model::{Family, Transport};

use super::Objects;
use super::verdict;
use crate::backend::iptables::plan::names::{self, FILTER, NAT};
use crate::backend::iptables::plan::rules::from_pods;
use crate::backend::iptables::plan::service_port::Port;
use crate::{Address, AddressKind};

/// Adds the objects for external addresses, node port and health check node port.
pub(super) fn add(port: &Port<'_>, out: &mut Objects) {
    let of = port.of;
    if port.of.has_usable_endpoints() && of.is_exposed {
        out.0.own.push(external(port));
        if of.restricts_sources() {
            out.0.own.push(source_ranges(port));
        }
    }
    for &addr in &*of.external_ips {
        external_ip(port, addr, out);
    }
    for &addr in &*of.load_balancer_ips {
        load_balancer_ip(port, addr, out);
    }
    if let Some(number) = of.node_port {
        node_port(port, number, out);
    }
    if let Some(number) = of.health_check_node_port {
        out.0.own.push(health_check(port, number));
    }
}

/// ```iptables
/// -t nat -A KUBE-SERVICES -d 192.0.2.7/32 -p tcp -m comment --comment "shop/web:http external IP" -m tcp --dport 80 -j KUBE-EXT-67NZLRHBNDSAWJRO
/// ```
///
/// Routes an external IP by the external traffic policy.
fn external_ip(port: &Port<'_>, addr: IpAddr, out: &mut Objects) {
    let kind = AddressKind::ExternalIp;
    let address = Address::ip(port.of, addr);
    if port.of.has_usable_endpoints() {
        let rule = port.at(addr, port.comment("external IP"));
        let rule = rule.with_jump(port.names.external());
        out.claim(kind, address, port.entry(NAT, names::SERVICES, rule));
    }
    out.refuse(port, kind, address, |comment| port.at(addr, comment));
}

/// ```iptables
/// -t nat -A KUBE-SERVICES -d 203.0.113.9/32 -p tcp -m comment --comment "shop/web:http loadbalancer IP" -m tcp --dport 80 -j KUBE-FW-67NZLRHBNDSAWJRO
/// -t filter -A KUBE-PROXY-FIREWALL -d 203.0.113.9/32 -p tcp -m comment --comment "shop/web:http traffic not accepted by KUBE-FW-67NZLRHBNDSAWJRO" -m tcp --dport 80 -j DROP
/// ```
///
/// Routes a load balancer IP by the external traffic policy, for clients in the source
/// ranges. Packets of other clients keep their destination, and the second rule drops
/// them.
fn load_balancer_ip(port: &Port<'_>, addr: IpAddr, out: &mut Objects) {
    let kind = AddressKind::LoadBalancerIp;
    let address = Address::ip(port.of, addr);
    if port.of.has_usable_endpoints() {
        let to = match port.of.restricts_sources() {
            true => port.names.firewall(),
            false => port.names.external(),
        };
        let rule = port.at(addr, port.comment("loadbalancer IP")).with_jump(to);
        out.claim(kind, address, port.entry(NAT, names::SERVICES, rule));
        if port.of.restricts_sources() {
            let comment = port.comment(&format!("traffic not accepted by {to}"));
            let rule = port.at(addr, comment).with_target(Target::Drop);
            out.claim(
                kind,
                address,
                port.entry(FILTER, names::PROXY_FIREWALL, rule),
            );
        }
    }
    out.refuse(port, kind, address, |comment| port.at(addr, comment));
}

/// ```iptables
/// -t nat -A KUBE-NODEPORTS -d 127.0.0.0/8 -p tcp -m comment --comment "shop/web:http" -m tcp --dport 30080 -m nfacct --nfacct-name  localhost_nps_accepted_pkts -j KUBE-EXT-67NZLRHBNDSAWJRO
/// -t nat -A KUBE-NODEPORTS -p tcp -m comment --comment "shop/web:http" -m tcp --dport 30080 -j KUBE-EXT-67NZLRHBNDSAWJRO
/// ```
///
/// Routes a node port by the external traffic policy. Connections to loopback addresses
/// are counted, because upstream plans to remove this feature.
fn node_port(port: &Port<'_>, number: u16, out: &mut Objects) {
    let kind = AddressKind::NodePort;
    let address = Address::NodePort(port.of.protocol, number);
    if port.of.has_usable_endpoints() {
        let rule = || {
            Rule::new()
                .with_protocol(port.of.protocol)
                .with_comment(port.names.port.clone())
                .with_match(port.dport(number))
        };
        let to = port.names.external();
        if port.settings.serves_localhost(port.cx) && port.settings.nfacct {
            let counted = rule()
                .with_destination(Family::V4.loopback())
                .with_match(Nfacct::new(names::LOCALHOST_ACCEPTED));
            out.claim(
                kind,
                address,
                port.entry(NAT, names::NODEPORTS, counted.with_jump(to)),
            );
        }
        out.claim(
            kind,
            address,
            port.last_entry(NAT, names::NODEPORTS, rule().with_jump(to)),
        );
    }
    out.refuse(port, kind, address, |comment| {
        Rule::new()
            .with_protocol(port.of.protocol)
            .with_comment(comment)
            .with_match(AddrType::destination(AddressTypes::LOCAL))
            .with_match(port.dport(number))
    });
}

impl Objects {
    /// ```iptables
    /// -t filter -A KUBE-EXTERNAL-SERVICES -d 192.0.2.7/32 -p tcp -m comment --comment "shop/web:http has no local endpoints" -m tcp --dport 80 -j DROP
    /// -t filter -A KUBE-EXTERNAL-SERVICES -d 203.0.113.9/32 -p tcp -m comment --comment "shop/web:http has no local endpoints" -m tcp --dport 80 -j DROP
    /// -t filter -A KUBE-EXTERNAL-SERVICES -p tcp -m comment --comment "shop/web:http has no local endpoints" -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j DROP
    /// ```
    ///
    /// Rejects or drops connections without usable endpoints.
    fn refuse(
        &mut self,
        port: &Port<'_>,
        kind: AddressKind,
        address: Address,
        rule: impl FnOnce(String) -> Rule<'static>,
    ) {
        if let Some((words, target)) = verdict(port.of.external) {
            let rule = rule(port.comment(words)).with_target(target);
            self.claim(
                kind,
                address,
                port.entry(FILTER, names::EXTERNAL_SERVICES, rule),
            );
        }
    }
}

/// ```iptables
/// -t filter -A KUBE-NODEPORTS -p tcp -m comment --comment "shop/web:http health check node port" -m tcp --dport 30999 -j ACCEPT
/// ```
///
/// Accepts health checks of load balancers, even without local endpoints.
fn health_check(port: &Port<'_>, number: u16) -> Object {
    let rule = Rule::new()
        .with_protocol(Transport::Tcp)
        .with_comment(port.comment("health check node port"))
        .with_match(Match::dport(Transport::Tcp, number))
        .with_target(Target::Accept);
    port.entry(FILTER, names::NODEPORTS, rule)
}

/// Returns the chain for traffic to external addresses and node ports.
fn external(port: &Port<'_>) -> Object {
    let mut rules = match port.of.masquerades_external() {
        true => vec![masquerade(port)],
        false => short_circuit(port),
    };
    let to = port.chain_of(port.of.external);
    rules.extend(to.map(|to| Rule::new().with_jump(to)));
    port.chain(port.names.external(), rules)
}

/// ```iptables
/// -t nat -A KUBE-EXT-67NZLRHBNDSAWJRO -m comment --comment "masquerade traffic for shop/web:http external destinations" -j KUBE-MARK-MASQ
/// ```
///
/// Masquerades external traffic, because an endpoint on another node must reply by way of
/// this node.
fn masquerade<'a>(port: &Port<'_>) -> Rule<'a> {
    remark(port, "masquerade traffic").with_jump(names::chain(names::MARK_MASQ))
}

/// ```iptables
/// -t nat -A KUBE-EXT-67NZLRHBNDSAWJRO -s 10.0.0.0/14 -m comment --comment "pod traffic for shop/web:http external destinations" -j KUBE-SVC-67NZLRHBNDSAWJRO
/// -t nat -A KUBE-EXT-67NZLRHBNDSAWJRO -m comment --comment "masquerade LOCAL traffic for shop/web:http external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
/// -t nat -A KUBE-EXT-67NZLRHBNDSAWJRO -m comment --comment "route LOCAL traffic for shop/web:http external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC-67NZLRHBNDSAWJRO
/// ```
///
/// Sends pods and local processes to all endpoints. Policy Local applies to clients
/// outside the cluster only.
fn short_circuit<'a>(port: &Port<'_>) -> Vec<Rule<'a>> {
    let cluster = port.names.cluster();
    let local = |words| remark(port, words).with_match(AddrType::source(AddressTypes::LOCAL));
    let mut rules = Vec::with_capacity(4);
    if let Some(pods) = &port.cx.local {
        rules.push(from_pods(remark(port, "pod traffic"), pods).with_jump(cluster));
    }
    rules.push(local("masquerade LOCAL traffic").with_jump(names::chain(names::MARK_MASQ)));
    rules.push(local("route LOCAL traffic").with_jump(cluster));
    rules
}

/// Returns the start of a rule with a comment on its traffic.
fn remark<'a>(port: &Port<'_>, what: &str) -> Rule<'a> {
    let comment = format!("{what} for {} external destinations", port.names.port);
    Rule::new().with_comment(comment)
}

/// ```iptables
/// -t nat -A KUBE-FW-67NZLRHBNDSAWJRO -s 198.51.100.0/24 -m comment --comment "shop/web:http loadbalancer IP" -j KUBE-EXT-67NZLRHBNDSAWJRO
/// -t nat -A KUBE-FW-67NZLRHBNDSAWJRO -s 192.168.0.0/16 -m comment --comment "shop/web:http loadbalancer IP" -j KUBE-EXT-67NZLRHBNDSAWJRO
/// -t nat -A KUBE-FW-67NZLRHBNDSAWJRO -s 203.0.113.9/32 -m comment --comment "shop/web:http loadbalancer IP" -j KUBE-EXT-67NZLRHBNDSAWJRO
/// -t nat -A KUBE-FW-67NZLRHBNDSAWJRO -m comment --comment "other traffic to shop/web:http will be dropped by KUBE-PROXY-FIREWALL"
/// ```
///
/// Accepts only clients in the source ranges. If a range contains the node's address, the
/// address itself is also allowed: local processes may use it as their source.
fn source_ranges(port: &Port<'_>) -> Object {
    let of = port.of;
    let to: ChainName = port.names.external();
    let base = || Rule::new().with_comment(port.comment("loadbalancer IP"));
    let mut rules: Vec<_> = of
        .source_ranges
        .iter()
        .map(|&range| base().with_source(range).with_jump(to))
        .collect();
    if of.allows_node(port.cx.node_address) {
        let addresses = of.load_balancer_ips.iter();
        rules.extend(addresses.map(|&addr| base().with_source(addr).with_jump(to)));
    }
    let others = format!(
        "other traffic to {} will be dropped by {}",
        port.names.port,
        names::PROXY_FIREWALL
    );
    rules.push(Rule::new().with_comment(others));
    port.chain(port.names.firewall(), rules)
}
