//! Objects of one endpoint of a service port.

use vipline_nftables::{Object, Set, Value};
use vipline_service_model::{Endpoint, ServicePort};

use super::table::{Table, element};

/// ```nft
/// add element ip kube-proxy backends-2 { 10.96.0.10 . tcp . 80 . 0 : 10.1.0.1 . 8080 }
/// ```
///
/// `key` is the lookup key of the address. Slots are the positions of the endpoints in
/// the list of the address. They depend on the current list only. The key of a single endpoint
/// has no slot.
pub(super) fn backends(map: &Set, key: &[Value], endpoints: &[Endpoint], out: &mut Vec<Object>) {
    let keys = map.key_prefix(key);
    let keys = keys.expect(FIT);
    let has_slots = map.key.len() > key.len();
    for (slot, endpoint) in (0_u32..).zip(endpoints) {
        let target: [Value; 2] = [endpoint.addr.into(), endpoint.port.into()];
        let element = match has_slots {
            true => keys.map_element(&[slot.into()], &target),
            false => keys.map_element(&[], &target),
        };
        out.push(element.expect(FIT).into());
    }
}

const FIT: &str = "addresses of a service port are of one family";

/// ```nft
/// add element ip kube-proxy hairpin-endpoints { 10.1.0.1 . 10.1.0.1 . tcp . 8080 }
/// ```
///
/// Only endpoints on this node can connect to themselves through this node.
pub(super) fn hairpin(table: &Table, port: &ServicePort, out: &mut Vec<Object>) {
    let proto = port.protocol.number();
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
    fn elements_match_their_documentation() {
        let cx = cx(Family::V4, DetectLocal::NodeCidr);
        let planned = planned(&cx, &service_port(Route::Local));
        let first = |set: &str| commands(&planned, set).into_iter().take(1).collect();
        assert_documented(
            include_str!("endpoint.rs"),
            &[
                ("backends", first(names::direct(2).as_str())),
                ("hairpin", first(names::HAIRPIN_ENDPOINTS)),
            ],
        );
    }

    #[test]
    fn remote_endpoints_have_no_hairpin_elements() {
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
        assert_eq!(commands(&planned, names::direct(2).as_str()).len(), 2);
    }
}
