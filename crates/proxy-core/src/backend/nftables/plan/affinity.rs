//! Pools of clients with session affinity.

use std::collections::HashSet;

use vipline_nftables::{Datatype, Element, ElementData, Name, Object, Set, SetFlags, TableId};
use vipline_reconcile::Edit;

use super::names::{self, comment};
use super::table::{Table, fields};

/// The clients of a service port that share a list of endpoints, in the kernel.
///
/// All addresses and the node port of a service port share the pool; no other service
/// port uses it. The kernel allows 65,535 clients in a pool.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Pool {
    /// Map of client address to recorded endpoint.
    pub(in crate::backend) clients: Set,
    /// Set of endpoints that may be recorded.
    pub(in crate::backend) endpoints: Set,
}

impl Pool {
    pub(in crate::backend) fn new(table: &Table, pool: names::Pool<'_>) -> Self {
        let addr = table.addr();
        let endpoint = fields(&[addr, Datatype::InetService]);
        let clients = Set::map(
            table.id.clone(),
            pool.clients(),
            fields(&[addr]),
            endpoint.clone(),
        );
        Self {
            clients: clients
                .with_flags(SetFlags::DYNAMIC | SetFlags::TIMEOUT)
                .with_comment(comment("endpoints that clients stay with")),
            endpoints: Set::set(table.id.clone(), pool.endpoints(), endpoint)
                .with_comment(comment("endpoints that may be recorded")),
        }
    }
}

/// Returns the on-demand set with this name.
pub(super) fn set_on_demand(id: &TableId, name: &Name) -> Option<Set> {
    let table = Table::of_id(id)?;
    match names::Pool::of_clients(name) {
        Some(pool) => Some(Pool::new(table, pool).clients),
        None => Some(Pool::new(table, names::Pool::of_endpoints(name)?).endpoints),
    }
}

/// Returns the pool from which an edit removes an endpoint.
pub(in crate::backend) fn shrunk(edit: &Edit<Object>) -> Option<names::Pool<'_>> {
    match edit {
        Edit::Remove(Object::Element(element)) => names::Pool::of_endpoints(&element.set().name),
        _ => None,
    }
}

/// Returns the clients whose recorded endpoint is not among `endpoints`.
pub(in crate::backend) fn stale(
    clients: Vec<Element>,
    endpoints: &[Element],
) -> impl Iterator<Item = Element> {
    let current: HashSet<&[u8]> = endpoints.iter().map(Element::key_bytes).collect();
    clients
        .into_iter()
        .filter(move |client| match client.data() {
            Some(ElementData::Value(endpoint)) => !current.contains(endpoint),
            _ => true,
        })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use vipline_nftables::Value;
    use vipline_service_model::Family;

    use super::*;

    fn value(address: &str) -> Value {
        match address.parse().expect("an address") {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }

    #[test]
    fn clients_of_removed_endpoints_are_stale() {
        let v4 = ["192.0.2.1", "192.0.2.2", "10.1.0.1", "10.1.0.2"];
        let v6 = ["2001:db8::1", "2001:db8::2", "fd00:1::1", "fd00:1::2"];
        for (family, [one, other, stays, left]) in [(Family::V4, v4), (Family::V6, v6)] {
            let pool = names::Pool {
                id: "ID",
                is_local: false,
            };
            let pool = Pool::new(Table::of(family), pool);
            let client = |client: &str, endpoint: &str| {
                let element = pool.clients.element(&[value(client)]).unwrap();
                let endpoint = [value(endpoint), 8080_u16.into()];
                element.with_data(&endpoint).unwrap()
            };
            let endpoint = |addr: &str, port: u16| {
                pool.endpoints.element(&[value(addr), port.into()]).unwrap()
            };
            let clients = vec![client(one, stays), client(other, left)];
            let endpoints = [endpoint(stays, 8080), endpoint(left, 8081)];
            let found: Vec<_> = stale(clients.clone(), &endpoints).collect();
            assert_eq!(found, clients[1..]);
            assert_eq!(stale(clients, &[]).count(), 2);
        }
    }

    #[test]
    fn a_pool_shrinks_when_an_endpoint_is_removed() {
        let name = names::Pool {
            id: "ID",
            is_local: true,
        };
        let pool = Pool::new(Table::of(Family::V4), name);
        let endpoint = [value("10.1.0.1"), 8080_u16.into()];
        let endpoint = Object::from(pool.endpoints.element(&endpoint).unwrap());
        assert_eq!(shrunk(&Edit::Remove(endpoint.clone())), Some(name));
        assert_eq!(shrunk(&Edit::Add(endpoint)), None);
        assert_eq!(shrunk(&Edit::Remove(pool.endpoints.into())), None);
    }
}
