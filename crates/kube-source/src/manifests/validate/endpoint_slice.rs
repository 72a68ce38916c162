//! EndpointSlices.

use vipline_service_model::{Family, api};

use super::Checks;

pub(super) fn check(slice: &api::EndpointSlice, checks: &mut Checks<'_>) {
    let types = ["IPv4", "IPv6", "FQDN"];
    checks.one_of("addressType", slice.address_type.as_str(), &types);
    for (index, port) in slice.ports.iter().enumerate() {
        let path = |field| format!("ports[{index}].{field}");
        checks.one_of(
            path("protocol"),
            port.protocol.as_str(),
            &["TCP", "UDP", "SCTP"],
        );
        if let Some(port) = port.port {
            checks.port(path("port"), port);
        }
    }
    let Some(family) = slice.address_type.family() else {
        return;
    };
    for (index, endpoint) in slice.endpoints.iter().enumerate() {
        if let Some(hostname) = &endpoint.hostname {
            checks.label(format_args!("endpoints[{index}].hostname"), hostname);
        }
        if endpoint.addresses.is_empty() {
            checks.fault(format_args!("endpoints[{index}].addresses"), "missing");
        }
        for (place, text) in endpoint.addresses.iter().enumerate() {
            let path = format_args!("endpoints[{index}].addresses[{place}]");
            let Some(address) = checks.target_address(path, text) else {
                continue;
            };
            if Family::of(address) != family {
                checks.fault(path, format_args!("{text} is not an {family} address"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults_of;

    fn faults(rest: &str) -> Vec<String> {
        faults_of(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: a}}, {rest}}}"
        ))
    }

    #[test]
    fn valid_slices_have_no_faults() {
        for rest in [
            "addressType: IPv4",
            "addressType: FQDN, endpoints: [{addresses: [web.example]}]",
            "addressType: IPv6, ports: [{name: '', port: 80, protocol: SCTP}, {port: null}], \
             endpoints: [{addresses: ['fd00::1', 'fd00::2'], hostname: web-0, conditions: {ready: false}}]",
        ] {
            assert_eq!(faults(rest), [""; 0], "{rest}");
        }
    }

    #[test]
    fn each_invalid_field_is_a_fault() {
        for (rest, expected) in [
            ("ports: []", "addressType: missing"),
            (
                "addressType: IPX",
                "addressType: \"IPX\" is not one of IPv4, IPv6, FQDN",
            ),
            (
                "addressType: IPv4, ports: [{port: 0}]",
                "ports[0].port: not a port number: 0",
            ),
            (
                "addressType: IPv4, ports: [{port: 1, protocol: tcp}]",
                "ports[0].protocol: \"tcp\" is not one of TCP, UDP, SCTP",
            ),
            (
                "addressType: IPv4, endpoints: [{addresses: [10.0.0.1], hostname: web.0}]",
                "endpoints[0].hostname: not a DNS label: \"web.0\"",
            ),
            (
                "addressType: IPv4, endpoints: [{addresses: []}]",
                "endpoints[0].addresses: missing",
            ),
            (
                "addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}, {addresses: [x]}]",
                "endpoints[1].addresses[0]: not an IP address: \"x\"",
            ),
            (
                "addressType: IPv6, endpoints: [{addresses: [10.0.0.1]}]",
                "endpoints[0].addresses[0]: 10.0.0.1 is not an IPv6 address",
            ),
            (
                "addressType: IPv4, endpoints: [{addresses: [169.254.169.254]}]",
                "endpoints[0].addresses[0]: 169.254.169.254 is a link-local address",
            ),
        ] {
            assert_eq!(faults(rest), [expected], "{rest}");
        }
    }
}
