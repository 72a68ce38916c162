//! Nodes and ServiceCIDRs.

use vipline_service_model::api;

use super::Checks;

pub(super) fn check_node(node: &api::Node, checks: &mut Checks<'_>) {
    if !node.spec.pod_cidr.is_empty() {
        checks.network("spec.podCIDR", &node.spec.pod_cidr);
    }
    for (index, text) in node.spec.pod_cidrs.iter().enumerate() {
        checks.network(format_args!("spec.podCIDRs[{index}]"), text);
    }
    for (index, entry) in node.status.addresses.iter().enumerate() {
        if matches!(&*entry.kind, "InternalIP" | "ExternalIP") {
            checks.address(
                format_args!("status.addresses[{index}].address"),
                &entry.address,
            );
        }
    }
}

pub(super) fn check_service_cidr(cidr: &api::ServiceCidr, checks: &mut Checks<'_>) {
    if cidr.spec.cidrs.is_empty() {
        checks.fault("spec.cidrs", "missing");
    }
    for (index, text) in cidr.spec.cidrs.iter().enumerate() {
        checks.network(format_args!("spec.cidrs[{index}]"), text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults_of;

    #[test]
    fn networks_and_addresses_are_checked() {
        for (text, expected) in [
            (
                "{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDR: x}}",
                vec!["spec.podCIDR: not a CIDR: \"x\""],
            ),
            (
                "{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDRs: [10.0.0.0/8, \
                 10.0.0.0/33]}, status: {addresses: [{type: Hostname, address: n1}, \
                 {type: InternalIP, address: n1}]}}",
                vec![
                    "spec.podCIDRs[1]: not a CIDR: \"10.0.0.0/33\"",
                    "status.addresses[1].address: not an IP address: \"n1\"",
                ],
            ),
            (
                "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: ''}}",
                vec!["spec.cidrs: missing", "metadata.name: missing"],
            ),
            (
                "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: c}, \
                 spec: {cidrs: [10.96.0.0/16, 'fd00:96::/112', x/1]}}",
                vec!["spec.cidrs[2]: not a CIDR: \"x/1\""],
            ),
        ] {
            assert_eq!(faults_of(text), expected, "{text}");
        }
    }
}
