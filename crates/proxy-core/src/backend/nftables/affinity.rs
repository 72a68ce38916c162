//! Which clients are remembered for an endpoint that is not there any more.

use std::collections::HashSet;

use vipline_nftables::{Element, Mapped, Object, Set};
use vipline_reconcile::Edit;

/// Registers hold each field of a concatenation in so many bytes, or a multiple.
const REGISTER: usize = 4;

/// Tells whether an edit takes an endpoint out of those that are remembered.
pub(super) fn is_removal(edit: &Edit<Object>, endpoints: &Set) -> bool {
    match edit {
        Edit::Remove(Object::Element(element)) => element.set().name == endpoints.name,
        _ => false,
    }
}

/// Returns the clients that are remembered for none of the `endpoints`.
///
/// Clients are elements whose key is the address of the client and what it
/// asked for, mapped to an endpoint; the key of `endpoints` is what was asked
/// for and the endpoint.
pub(super) fn stale(clients: Vec<Element>, endpoints: &[Element]) -> impl Iterator<Item = Element> {
    let current: HashSet<&[u8]> = endpoints.iter().map(Element::key_bytes).collect();
    let mut key = Vec::new();
    clients.into_iter().filter(move |client| {
        let address = client.set().key.first();
        let address = address.map_or(0, |field| usize::from(field.bytes));
        let asked = client.key_bytes().get(address.next_multiple_of(REGISTER)..);
        key.clear();
        key.extend_from_slice(asked.unwrap_or_default());
        if let Some(Mapped::Value(endpoint)) = client.data() {
            key.extend_from_slice(endpoint);
        }
        !current.contains(&*key)
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use vipline_nftables::Value;
    use vipline_service_model::Family;

    use super::super::table::{Affinity, Table};
    use super::*;

    const TCP: u8 = 6;

    fn value(address: &str) -> Value {
        match address.parse().expect("an address") {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }

    /// What clients asked for: an address and a port, or a node port.
    fn asked(vip: Option<&str>, port: u16) -> Vec<Value> {
        let vip = vip.map(value).into_iter();
        vip.chain([TCP.into(), port.into()]).collect()
    }

    fn client(of: &Affinity, client: &str, asked: &[Value], endpoint: &str) -> Element {
        let key = [&[value(client)], asked].concat();
        let element = of.clients.element(&key).unwrap();
        element
            .with_data(&[value(endpoint), 8080_u16.into()])
            .unwrap()
    }

    fn endpoint(of: &Affinity, asked: &[Value], endpoint: &str) -> Element {
        let endpoint = [value(endpoint), 8080_u16.into()];
        of.endpoints.element(&[asked, &endpoint].concat()).unwrap()
    }

    #[test]
    fn clients_of_endpoints_that_left_are_found() {
        let v4 = [
            "192.0.2.1",
            "10.96.0.10",
            "10.96.0.11",
            "10.1.0.1",
            "10.1.0.2",
        ];
        let v6 = [
            "2001:db8::1",
            "fd00:96::10",
            "fd00:96::11",
            "fd00:1::1",
            "fd00:1::2",
        ];
        for (family, [who, vip, other, stays, left]) in [(Family::V4, v4), (Family::V6, v6)] {
            let of = &Table::of(family).ips.affinity;
            let [vip, other] = [vip, other].map(|vip| asked(Some(vip), 80));
            let good = client(of, who, &vip, stays);
            let bad = [client(of, who, &vip, left), client(of, who, &other, stays)];
            let clients = [&[good], &bad[..]].concat();
            let endpoints = [endpoint(of, &vip, stays), endpoint(of, &other, left)];
            let found: Vec<_> = stale(clients.clone(), &endpoints).collect();
            assert_eq!(found, bad);
            assert_eq!(stale(clients, &[]).count(), 3);
        }
    }

    #[test]
    fn clients_of_node_ports_are_found_without_an_address() {
        let of = &Table::of(Family::V4).nodeports.affinity;
        let [port, other] = [30_080, 30_081].map(|port| asked(None, port));
        let good = client(of, "192.0.2.1", &port, "10.1.0.1");
        let bad = client(of, "192.0.2.1", &other, "10.1.0.1");
        let endpoints = [endpoint(of, &port, "10.1.0.1")];
        let found: Vec<_> = stale(vec![good, bad.clone()], &endpoints).collect();
        assert_eq!(found, [bad]);
    }
}
