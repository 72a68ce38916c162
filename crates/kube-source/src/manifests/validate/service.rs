//! Services.

use std::net::IpAddr;

use vipline_service_model::{Family, api};

use super::Checks;

/// Maximum timeout of session affinity in seconds: a day.
const MAX_AFFINITY: u32 = 86_400;

pub(super) fn check(service: &api::Service, checks: &mut Checks<'_>) {
    let spec = &service.spec;
    let types = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
    checks.one_of("spec.type", spec.kind.as_str(), &types);
    cluster_ips(spec, checks);
    if spec.cluster_ip != "None" && spec.kind != api::ServiceType::ExternalName {
        ports(&spec.ports, checks);
    }
    if spec.kind == api::ServiceType::ExternalName {
        // The dot of the root is allowed.
        let name = &spec.external_name;
        checks.subdomain("spec.externalName", name.strip_suffix('.').unwrap_or(name));
    }
    affinity(spec, checks);
    let policies = ["Cluster", "Local"];
    checks.one_of(
        "spec.externalTrafficPolicy",
        spec.external_traffic_policy.as_str(),
        &policies,
    );
    checks.one_of(
        "spec.internalTrafficPolicy",
        spec.internal_traffic_policy.as_str(),
        &policies,
    );
    for (index, text) in spec.external_ips.iter().enumerate() {
        checks.target_address(format_args!("spec.externalIPs[{index}]"), text);
    }
    for (index, text) in spec.load_balancer_source_ranges.iter().enumerate() {
        checks.network(format_args!("spec.loadBalancerSourceRanges[{index}]"), text);
    }
    for (index, ingress) in service.status.load_balancer.ingress.iter().enumerate() {
        let path = format!("status.loadBalancer.ingress[{index}]");
        checks.one_of(
            format_args!("{path}.ipMode"),
            ingress.ip_mode.as_str(),
            &["VIP", "Proxy"],
        );
        if !ingress.ip.is_empty() {
            checks.target_address(format_args!("{path}.ip"), &ingress.ip);
        }
    }
}

fn cluster_ips(spec: &api::ServiceSpec, checks: &mut Checks<'_>) {
    for (index, family) in spec.ip_families.iter().enumerate() {
        let path = format_args!("spec.ipFamilies[{index}]");
        checks.one_of(path, family.as_str(), &["IPv4", "IPv6"]);
    }
    if matches!(&*spec.cluster_ip, "" | "None") {
        return;
    }
    let first = checks.target_address("spec.clusterIP", &spec.cluster_ip);
    let mut families: Vec<Family> = Vec::new();
    for (index, text) in spec.cluster_ips.iter().enumerate() {
        let path = format!("spec.clusterIPs[{index}]");
        if index == 0 && *text == spec.cluster_ip {
            families.extend(first.map(Family::of));
            continue;
        }
        let Some(address) = checks.target_address(&path, text) else {
            continue;
        };
        let family = Family::of(address);
        if index == 0 && first.is_some_and(|first| first != address) {
            checks.fault(
                &path,
                format_args!("differs from spec.clusterIP, {}", spec.cluster_ip),
            );
        } else if families.contains(&family) {
            checks.fault(&path, format_args!("a second {family} address"));
        }
        families.push(family);
    }
    listed_families(spec, first, checks);
}

/// Checks `ipFamilies` against the families of the addresses.
fn listed_families(spec: &api::ServiceSpec, first: Option<IpAddr>, checks: &mut Checks<'_>) {
    let texts = spec
        .cluster_ips
        .iter()
        .map(|text| vipline_service_model::parse_address(text));
    let addresses: Vec<_> = if spec.cluster_ips.is_empty() {
        vec![first]
    } else {
        texts.collect()
    };
    for (index, (address, listed)) in addresses.into_iter().zip(&spec.ip_families).enumerate() {
        let Some(listed) = listed.family() else {
            continue;
        };
        if let Some(address) = address.filter(|&address| Family::of(address) != listed) {
            let path = format_args!("spec.ipFamilies[{index}]");
            checks.fault(path, format_args!("{address} is not an {listed} address"));
        }
    }
}

fn ports(ports: &[api::ServicePortSpec], checks: &mut Checks<'_>) {
    if ports.is_empty() {
        checks.fault("spec.ports", "missing");
    }
    for (index, port) in ports.iter().enumerate() {
        let path = |field| format!("spec.ports[{index}].{field}");
        checks.one_of(
            path("protocol"),
            port.protocol.as_str(),
            &["TCP", "UDP", "SCTP"],
        );
        checks.port(path("port"), port.port);
        let earlier = ports.iter().take(index);
        if port.name.is_empty() && ports.len() > 1 {
            checks.fault(path("name"), "missing, but required for several ports");
        } else if earlier.clone().any(|other| other.name == port.name) {
            checks.fault(
                path("name"),
                format_args!("{:?} is also the name of another port", port.name),
            );
        }
        let same = |other: &api::ServicePortSpec| {
            other.port == port.port && other.protocol == port.protocol
        };
        if port.port != 0 && earlier.clone().any(same) {
            let taken = format_args!(
                "{} {} is also used by another port",
                port.protocol.as_str(),
                port.port
            );
            checks.fault(path("port"), taken);
        }
    }
}

fn affinity(spec: &api::ServiceSpec, checks: &mut Checks<'_>) {
    checks.one_of(
        "spec.sessionAffinity",
        spec.session_affinity.as_str(),
        &["None", "ClientIP"],
    );
    let client_ip = spec
        .session_affinity_config
        .as_ref()
        .and_then(|config| config.client_ip.as_ref());
    let Some(seconds) = client_ip.and_then(|config| config.timeout_seconds) else {
        return;
    };
    if seconds == 0 || seconds > MAX_AFFINITY {
        checks.fault(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            format_args!("{seconds} is not in the range 1 to {MAX_AFFINITY}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults_of;

    fn faults(spec: &str) -> Vec<String> {
        faults_of(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: a}}, {spec}}}"
        ))
    }

    #[test]
    fn valid_services_have_no_faults() {
        for spec in [
            "spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}",
            "spec: {clusterIP: 010.096.0.01, ports: [{port: 80}]}",
            "spec: {clusterIP: None}",
            "spec: {ports: [{port: 80}]}",
            "spec: {type: ExternalName, externalName: example.com}",
            "spec: {type: ExternalName, externalName: web-1.example.com.}",
            "spec: {clusterIP: None, publishNotReadyAddresses: true}",
            "spec: {clusterIP: 'fd00::1', clusterIPs: ['fd00::1', 10.96.0.1], \
             ipFamilies: [IPv6, IPv4], ports: [{port: 53, name: a}, {port: 53, name: b, \
             protocol: UDP}]}",
            "spec: {clusterIP: 10.96.0.1, sessionAffinity: ClientIP, externalIPs: [192.0.2.1], \
             sessionAffinityConfig: {clientIP: {timeoutSeconds: 86400}}, ports: [{port: 80}]}, \
             status: {loadBalancer: {ingress: [{hostname: x}, {ip: 192.0.2.2, ipMode: Proxy}]}}",
        ] {
            assert_eq!(faults(spec), [""; 0], "{spec}");
        }
    }

    /// Asserts that each spec has exactly the given fault.
    fn assert_faults(cases: &[(&str, &str)]) {
        for (spec, expected) in cases {
            let found = faults(&format!("spec: {{{spec}}}"));
            assert_eq!(found, [*expected], "{spec}");
        }
    }

    #[test]
    fn invalid_cluster_ips_are_faults() {
        assert_faults(&[
            (
                "clusterIP: web.example, ports: [{port: 80}]",
                "spec.clusterIP: not an IP address: \"web.example\"",
            ),
            (
                "clusterIP: 127.0.0.1, ports: [{port: 80}]",
                "spec.clusterIP: 127.0.0.1 is a loopback address",
            ),
            (
                "clusterIP: 10.96.0.1, clusterIPs: [10.96.0.2], ports: [{port: 80}]",
                "spec.clusterIPs[0]: differs from spec.clusterIP, 10.96.0.1",
            ),
            (
                "clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 10.96.0.2], ports: [{port: 80}]",
                "spec.clusterIPs[1]: a second IPv4 address",
            ),
            (
                "clusterIP: 10.96.0.1, ipFamilies: [IPv6], ports: [{port: 80}]",
                "spec.ipFamilies[0]: 10.96.0.1 is not an IPv6 address",
            ),
            (
                "clusterIP: 10.96.0.1, ipFamilies: [IPv5], ports: [{port: 80}]",
                "spec.ipFamilies[0]: \"IPv5\" is not one of IPv4, IPv6",
            ),
        ]);
    }

    #[test]
    fn invalid_external_names_are_faults() {
        assert_faults(&[
            (
                "type: ExternalName",
                "spec.externalName: not a DNS subdomain: \"\"",
            ),
            (
                "type: ExternalName, externalName: Example.com",
                "spec.externalName: not a DNS subdomain: \"Example.com\"",
            ),
            (
                "type: ExternalName, externalName: example.com..",
                "spec.externalName: not a DNS subdomain: \"example.com.\"",
            ),
        ]);
    }

    #[test]
    fn invalid_ports_are_faults() {
        assert_faults(&[
            ("clusterIP: 10.96.0.1", "spec.ports: missing"),
            (
                "clusterIP: 10.96.0.1, ports: [{port: 0}]",
                "spec.ports[0].port: not a port number: 0",
            ),
            (
                "clusterIP: 10.96.0.1, ports: [{port: 80, protocol: ICMP}]",
                "spec.ports[0].protocol: \"ICMP\" is not one of TCP, UDP, SCTP",
            ),
            (
                "clusterIP: 10.96.0.1, ports: [{port: 1, name: a}, {port: 2}]",
                "spec.ports[1].name: missing, but required for several ports",
            ),
            (
                "clusterIP: 10.96.0.1, ports: [{port: 1, name: a}, {port: 2, name: a}]",
                "spec.ports[1].name: \"a\" is also the name of another port",
            ),
            (
                "clusterIP: 10.96.0.1, ports: [{port: 1, name: a}, {port: 1, name: b}]",
                "spec.ports[1].port: TCP 1 is also used by another port",
            ),
        ]);
    }

    #[test]
    fn enumerations_cidrs_and_external_addresses_are_checked() {
        assert_faults(&[
            (
                "type: Magic",
                "spec.type: \"Magic\" is not one of ClusterIP, NodePort, LoadBalancer, ExternalName",
            ),
            (
                "sessionAffinity: Cookie",
                "spec.sessionAffinity: \"Cookie\" is not one of None, ClientIP",
            ),
            (
                "sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}",
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not in the range 1 to 86400",
            ),
            (
                "externalIPs: [224.0.0.1]",
                "spec.externalIPs[0]: 224.0.0.1 is a multicast address",
            ),
            (
                "loadBalancerSourceRanges: [10.0.0.0]",
                "spec.loadBalancerSourceRanges[0]: not a CIDR: \"10.0.0.0\"",
            ),
            (
                "internalTrafficPolicy: local",
                "spec.internalTrafficPolicy: \"local\" is not one of Cluster, Local",
            ),
        ]
        .map(|(spec, expected)| (format!("clusterIP: None, {spec}"), expected))
        .each_ref()
        .map(|(spec, expected)| (&**spec, *expected)));
        let ingress = "ingress: [{ip: 10.0.0}, {ip: 192.0.2.1, ipMode: X}]";
        let status = format!("spec: {{clusterIP: None}}, status: {{loadBalancer: {{{ingress}}}}}");
        let expected = [
            "status.loadBalancer.ingress[0].ip: not an IP address: \"10.0.0\"",
            "status.loadBalancer.ingress[1].ipMode: \"X\" is not one of VIP, Proxy",
        ];
        assert_eq!(faults(&status), expected);
    }
}
