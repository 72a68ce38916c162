//! What one endpoint of a service port wants.

use vipline_nftables::{Object, Value};
use vipline_service_model::{Endpoint, ServicePort};

use super::port::{Front, element, protocol};
use super::table::{Table, Way};

/// ```nft
/// add element ip kube-proxy backends { 10.96.0.10 . tcp . 80 . 0 : 10.1.0.1 . 8080 }
/// ```
///
/// Each endpoint has a slot among those of the address, in their order: a
/// function of who they are now.
pub(super) fn backends(
    way: &Way,
    front: &Front<'_>,
    endpoints: &[Endpoint],
    out: &mut Vec<Object>,
) {
    let keys = way.backends.key_prefix(&front.key);
    let keys = keys.expect(FIT);
    for (slot, endpoint) in (0_u32..).zip(endpoints) {
        let target: [Value; 2] = [endpoint.addr.into(), endpoint.port.into()];
        let element = keys.element(&[slot.into()]);
        let element = element.and_then(|it| it.with_data(&target));
        out.push(element.expect(FIT).into());
    }
}

const FIT: &str = "addresses of a service port are of one family";

/// ```nft
/// add element ip kube-proxy hairpin-endpoints { 10.1.0.1 . 10.1.0.1 . tcp . 8080 }
/// ```
///
/// Only endpoints on this node can reach themselves by way of it.
pub(super) fn hairpin(table: &Table, port: &ServicePort, out: &mut Vec<Object>) {
    let proto = protocol(port.protocol);
    let here = port.reachable_local().into_iter();
    out.extend(here.map(|Endpoint { addr, port, .. }| {
        let key = [addr.into(), addr.into(), proto.into(), port.into()];
        element(&table.hairpin_endpoints, &key)
    }));
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Family, Route};

    use super::super::names;
    use super::super::tests::{assert_documented, commands, cx, planned, service_port};

    #[test]
    fn elements_read_as_their_functions_say() {
        let cx = cx(Family::V4, DetectLocal::NodeCidr);
        let planned = planned(&cx, &service_port(Route::Local));
        let first = |set| commands(&planned, set).into_iter().take(1).collect();
        assert_documented(
            include_str!("endpoint.rs"),
            &[
                ("backends", first(names::BACKENDS)),
                ("hairpin", first(names::HAIRPIN_ENDPOINTS)),
            ],
        );
    }

    #[test]
    fn endpoints_elsewhere_are_no_hairpins() {
        let mut port = service_port(Route::Cluster);
        port.cluster = port
            .cluster
            .iter()
            .map(|&it| super::Endpoint {
                is_local: false,
                ..it
            })
            .collect();
        let planned = planned(&cx(Family::V4, DetectLocal::NodeCidr), &port);
        assert_eq!(commands(&planned, names::HAIRPIN_ENDPOINTS).len(), 0);
        assert_eq!(commands(&planned, names::BACKENDS).len(), 2);
    }
}
