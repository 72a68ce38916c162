//! Tests of node port allocation for Services.

use std::collections::BTreeMap;

use crate::{Allocator, PortRange, Snapshot, Version};

use super::*;

const TCP: Transport = Transport::Tcp;
const UDP: Transport = Transport::Udp;

/// Ports 30000-30099. The dynamic band starts at 30016.
struct Ports(Snapshot<Allocator<PortRange>>);

impl Ports {
    fn new() -> Self {
        let range = PortRange::new(30_000, 30_099).expect("they are ports");
        Self(Snapshot {
            pool: Allocator::new(range),
            owners: BTreeMap::new(),
            version: Version(1),
            repair_reason: None,
        })
    }

    /// Applies a change, and reverts it if it fails.
    fn change<T>(
        &mut self,
        plan: impl FnOnce(&mut Draft<'_, Allocator<PortRange>>) -> Result<T, AllocationError>,
    ) -> Result<T, AllocationError> {
        let none = crate::Reservations::new();
        let mut draft = Draft::new(&mut self.0, &none);
        let planned = plan(&mut draft);
        if planned.is_err() {
            draft.undo();
        }
        planned
    }

    /// Assigns node ports, dynamic ones from 30016 on.
    fn assign(
        &mut self,
        name: &str,
        former: Option<&NodePorts>,
        wanted: &NodePorts,
    ) -> Result<NodePorts, AllocationError> {
        let owner = OwnerRef::service("default", name);
        self.change(|draft| {
            let assigned = wanted.assign(former, &owner, draft, &mut || 0)?;
            free(&assigned.released, &owner, draft);
            Ok(assigned.ports)
        })
    }

    fn taken(&self) -> Vec<u16> {
        self.0.pool.items().collect()
    }
}

fn service(kind: ServiceType, ports: &[(Transport, u16, u16)]) -> NodePorts {
    let port = |(protocol, port, node_port): &(Transport, u16, u16)| ServicePort {
        name: format!("{protocol}-{port}-{node_port}").into(),
        protocol: *protocol,
        port: *port,
        node_port: Some(*node_port).filter(|number| *number > 0),
    };
    NodePorts {
        kind,
        allocate_load_balancer_node_ports: true,
        external_policy_local: false,
        ports: ports.iter().map(port).collect(),
        health_check_node_port: None,
    }
}

fn numbers(assigned: &NodePorts) -> Vec<u16> {
    let ports = assigned.ports.iter();
    ports.map(|port| port.node_port.unwrap_or(0)).collect()
}

#[test]
fn ports_get_requested_node_ports_and_share_them_by_number() {
    use Transport::Sctp;
    for (ports, expected, taken) in [
        (&[(TCP, 80, 0)][..], &[30_016][..], &[30_016][..]),
        (&[(TCP, 80, 30_005)], &[30_005], &[30_005]),
        // One node port for both protocols, assigned or requested.
        (&[(TCP, 53, 0), (UDP, 53, 0)], &[30_016; 2], &[30_016]),
        (&[(TCP, 53, 0), (UDP, 53, 30_005)], &[30_005; 2], &[30_005]),
        (
            &[(TCP, 53, 0), (UDP, 54, 0)],
            &[30_016, 30_017],
            &[30_016, 30_017],
        ),
        // A node port is used once per protocol.
        (
            &[(TCP, 80, 0), (TCP, 80, 0)],
            &[30_016, 30_017],
            &[30_016, 30_017],
        ),
        // One node port per protocol, and a port without a request.
        (
            &[(TCP, 53, 30_001), (UDP, 53, 30_002), (Sctp, 53, 0)],
            &[30_001, 30_002, 30_001],
            &[30_001, 30_002],
        ),
        // A node port requested by a later port is not assigned to an earlier one.
        (
            &[(TCP, 80, 0), (TCP, 81, 30_016)],
            &[30_017, 30_016],
            &[30_016, 30_017],
        ),
    ] {
        for kind in [ServiceType::NodePort, ServiceType::LoadBalancer] {
            let mut pool = Ports::new();
            let wanted = service(kind, ports);
            let assigned = pool.assign("a", None, &wanted).unwrap();
            assert_eq!(numbers(&assigned), expected, "{ports:?}");
            assert_eq!(pool.taken(), taken, "{ports:?}");
            // A repeated update changes nothing.
            let again = pool.assign("a", Some(&assigned), &assigned);
            assert_eq!(again, Ok(assigned));
            assert_eq!(pool.taken(), taken, "{ports:?}");
        }
    }
}

#[test]
fn rejected_requests_change_nothing() {
    let mut pool = Ports::new();
    let other = service(ServiceType::NodePort, &[(TCP, 80, 30_001)]);
    pool.assign("other", None, &other).unwrap();
    for (ports, expected) in [
        (
            &[(TCP, 80, 30_000), (TCP, 81, 30_001)][..],
            "30001 is already allocated",
        ),
        (
            &[(TCP, 80, 30_000), (TCP, 81, 40_000)],
            "40000 is not in the valid range 30000-30099",
        ),
        (
            &[(TCP, 80, 30_002), (TCP, 81, 30_002)],
            "default/a requests 30002/TCP twice",
        ),
        // In a new Service, only ports with the same number share a node port.
        (
            &[(TCP, 80, 30_002), (UDP, 81, 30_002)],
            "default/a requests 30002 twice",
        ),
        // Ports with the same number share only the first node port.
        (
            &[
                (TCP, 80, 30_002),
                (UDP, 80, 30_003),
                (Transport::Sctp, 80, 30_003),
            ],
            "default/a requests 30003 twice",
        ),
    ] {
        let wanted = service(ServiceType::NodePort, ports);
        let error = pool.assign("a", None, &wanted).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(pool.taken(), [30_001]);
    }
    let many: Vec<_> = (1..=100).map(|port| (TCP, port, 0)).collect();
    let wanted = service(ServiceType::NodePort, &many);
    assert!(pool.assign("a", None, &wanted).unwrap_err().is_full());
    assert_eq!(pool.taken(), [30_001]);
    assert!(
        pool.assign("a", None, &service(ServiceType::NodePort, &many[1..]))
            .is_ok()
    );
    assert_eq!(pool.taken().len(), 100);
}

#[test]
fn an_update_keeps_requested_node_ports_and_releases_the_others() {
    let mut pool = Ports::new();
    let wanted = service(ServiceType::NodePort, &[(TCP, 80, 30_001), (TCP, 81, 0)]);
    let first = pool.assign("a", None, &wanted).unwrap();
    assert_eq!(numbers(&first), [30_001, 30_016]);
    // The node ports are swapped, and UDP requests one as well.
    let ports = [(TCP, 80, 30_016), (TCP, 81, 30_001), (UDP, 82, 30_001)];
    let wanted = service(ServiceType::LoadBalancer, &ports);
    let second = pool.assign("a", Some(&first), &wanted).unwrap();
    assert_eq!(second, wanted);
    assert_eq!(pool.taken(), [30_001, 30_016]);
    // Former node ports stay allocated until the commit.
    let wanted = service(ServiceType::NodePort, &[(TCP, 80, 0), (TCP, 81, 30_002)]);
    let third = pool.assign("a", Some(&second), &wanted).unwrap();
    assert_eq!(numbers(&third), [30_017, 30_002]);
    assert_eq!(pool.taken(), [30_002, 30_017]);
    // A rejected update leaves the stored node ports allocated.
    let wanted = service(ServiceType::NodePort, &[(TCP, 80, 40_000)]);
    assert!(pool.assign("a", Some(&third), &wanted).is_err());
    assert_eq!(pool.taken(), [30_002, 30_017]);
    for kind in [ServiceType::ClusterIp, ServiceType::ExternalName] {
        let mut pool = Ports(pool.0.clone());
        let none = pool.assign(
            "a",
            Some(&third),
            &NodePorts {
                kind,
                ..third.clone()
            },
        );
        assert_eq!(numbers(&none.unwrap()), [0, 0]);
        assert!(pool.taken().is_empty());
    }
}

#[test]
fn an_update_without_node_ports_keeps_the_node_ports_of_ports_with_the_same_name() {
    let named = |kind, ports: &[(&str, Transport, u16, u16)]| {
        let rest: Vec<_> = ports.iter().map(|port| (port.1, port.2, port.3)).collect();
        let mut service = service(kind, &rest);
        for (port, (name, ..)) in service.ports.iter_mut().zip(ports) {
            port.name = (*name).into();
        }
        service
    };
    let mut pool = Ports::new();
    let dns = [
        ("dns", UDP, 53, 0),
        ("dns-tcp", TCP, 53, 0),
        ("web", TCP, 80, 0),
    ];
    let former = named(ServiceType::NodePort, &dns);
    let former = pool.assign("a", None, &former).unwrap();
    assert_eq!(numbers(&former), [30_016, 30_016, 30_017]);
    for (ports, expected) in [
        (&dns[..], &[30_016, 30_016, 30_017][..]),
        // The name matters, not the number or the index.
        (
            &[("web", TCP, 8080, 0), ("dns", UDP, 54, 0)],
            &[30_017, 30_016],
        ),
        (&[("dns-tcp", TCP, 53, 0)], &[30_016]),
        // A port that requests the node port gets it.
        (
            &[("dns", UDP, 53, 0), ("other", TCP, 81, 30_016)],
            &[30_018, 30_016],
        ),
        (&[("new", TCP, 80, 0)], &[30_018]),
    ] {
        let mut pool = Ports(pool.0.clone());
        let wanted = named(ServiceType::LoadBalancer, ports);
        let assigned = pool.assign("a", Some(&former), &wanted).unwrap();
        assert_eq!(numbers(&assigned), expected, "{ports:?}");
    }
    // TCP would use the shared node port twice.
    let clash = [("dns", TCP, 53, 0), ("dns-tcp", TCP, 54, 0)];
    let error = pool.assign("a", Some(&former), &named(ServiceType::NodePort, &clash));
    let expected = error.unwrap_err().to_string();
    assert_eq!(expected, "default/a requests 30016/TCP twice");
    let without = NodePorts {
        allocate_load_balancer_node_ports: false,
        ..named(ServiceType::LoadBalancer, &dns)
    };
    let assigned = pool.assign("a", Some(&former), &without).unwrap();
    assert_eq!(numbers(&assigned), [0, 0, 0]);
}

#[test]
fn a_load_balancer_may_have_no_node_ports() {
    let mut pool = Ports::new();
    let mut wanted = service(
        ServiceType::LoadBalancer,
        &[(TCP, 80, 0), (UDP, 80, 30_001)],
    );
    wanted.allocate_load_balancer_node_ports = false;
    let assigned = pool.assign("a", None, &wanted).unwrap();
    assert_eq!(
        (numbers(&assigned), pool.taken()),
        (vec![0, 30_001], vec![30_001])
    );
    // The field applies to load balancers only.
    wanted.kind = ServiceType::NodePort;
    let assigned = pool.assign("a", Some(&assigned), &wanted).unwrap();
    assert_eq!(numbers(&assigned), [30_001, 30_001]);
}

#[test]
fn the_health_check_node_port_is_exclusive_and_immutable() {
    let mut pool = Ports::new();
    let mut wanted = service(ServiceType::LoadBalancer, &[(TCP, 80, 0)]);
    wanted.external_policy_local = true;
    let given = pool.assign("a", None, &wanted).unwrap();
    assert_eq!(given.health_check_node_port, Some(30_017));
    assert_eq!(pool.taken(), [30_016, 30_017]);
    // An update without the field keeps the port.
    let kept = NodePorts {
        health_check_node_port: None,
        ..given.clone()
    };
    assert_eq!(pool.assign("a", Some(&given), &kept), Ok(given.clone()));
    assert_eq!(pool.taken(), [30_016, 30_017]);
    // The port is immutable.
    let other = NodePorts {
        health_check_node_port: Some(30_020),
        ..given.clone()
    };
    let error = pool.assign("a", Some(&given), &other).unwrap_err();
    let expected = "default/a: healthCheckNodePort may not change once set";
    assert_eq!(error.to_string(), expected);
    assert_eq!(pool.taken(), [30_016, 30_017]);
    // The port is released when health checks are no longer required.
    for (kind, is_local) in [
        (ServiceType::LoadBalancer, false),
        (ServiceType::NodePort, true),
    ] {
        let mut pool = Ports(pool.0.clone());
        let less = NodePorts {
            kind,
            external_policy_local: is_local,
            ..given.clone()
        };
        let assigned = pool.assign("a", Some(&given), &less).unwrap();
        assert_eq!(assigned.health_check_node_port, None);
        assert_eq!(pool.taken(), [30_016]);
    }
    wanted.health_check_node_port = Some(30_005);
    assert_eq!(
        pool.assign("b", None, &wanted)
            .unwrap()
            .health_check_node_port,
        Some(30_005)
    );
    assert!(pool.assign("c", None, &wanted).unwrap_err().is_allocated());
    // No port of any protocol shares the port.
    wanted.health_check_node_port = Some(30_006);
    wanted.ports[0].node_port = Some(30_006);
    for protocol in [TCP, UDP] {
        wanted.ports[0].protocol = protocol;
        let error = pool.assign("c", None, &wanted).unwrap_err();
        assert_eq!(error.to_string(), "default/c requests 30006 twice");
    }
    let stolen = NodePorts {
        ports: service(ServiceType::LoadBalancer, &[(UDP, 80, 30_017)]).ports,
        ..given.clone()
    };
    let error = pool.assign("a", Some(&given), &stolen).unwrap_err();
    assert_eq!(error.to_string(), "default/a requests 30017 twice");
}

#[test]
fn fields_that_the_type_does_not_use_are_rejected() {
    let mut pool = Ports::new();
    let asks = |kind| service(kind, &[(TCP, 80, 30_005)]);
    let before = pool
        .assign("a", None, &asks(ServiceType::NodePort))
        .unwrap();
    let silent = service(ServiceType::ClusterIp, &[(TCP, 80, 0)]);
    for kind in [ServiceType::ClusterIp, ServiceType::ExternalName] {
        let other = service(kind, &[(TCP, 80, 30_005), (UDP, 80, 30_006)]);
        for (former, wanted, number) in [
            (None, asks(kind), 30_005),
            (Some(&silent), asks(kind), 30_005),
            (Some(&before), other, 30_006),
        ] {
            let error = pool.assign("a", former, &wanted).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("default/a: nodePort {number} requires type NodePort or LoadBalancer")
            );
            assert_eq!(pool.taken(), [30_005]);
        }
        // A stored node port is dropped, even on another port.
        let mut pool = Ports(pool.0.clone());
        let moved = service(kind, &[(UDP, 81, 30_005)]);
        let assigned = pool.assign("a", Some(&before), &moved).unwrap();
        assert_eq!((numbers(&assigned), pool.taken()), (vec![0], vec![]));
    }
    let checked = NodePorts {
        health_check_node_port: Some(30_006),
        ..asks(ServiceType::LoadBalancer)
    };
    let error = pool.assign("b", None, &checked).unwrap_err();
    assert_eq!(
        error.to_string(),
        "default/b: healthCheckNodePort 30006 requires type LoadBalancer \
         with externalTrafficPolicy Local"
    );
}

#[test]
fn an_unallocated_node_port_of_an_external_name_is_not_released() {
    let mut pool = Ports::new();
    let other = service(ServiceType::NodePort, &[(TCP, 80, 30_005)]);
    pool.assign("other", None, &other).unwrap();
    pool.0.owners.clear();
    // kube-apiserver stores the port without allocation.
    let stored = service(ServiceType::ExternalName, &[(TCP, 80, 30_005)]);
    let owner = OwnerRef::service("default", "a");
    let released = pool.change(|draft| {
        free(&stored.held(), &owner, draft);
        Ok(())
    });
    assert_eq!((released, pool.taken()), (Ok(()), vec![30_005]));
    let unnamed = service(ServiceType::ExternalName, &[(TCP, 80, 0)]);
    let assigned = pool.assign("a", Some(&stored), &unnamed).unwrap();
    assert_eq!((numbers(&assigned), pool.taken()), (vec![0], vec![30_005]));
    let wanted = service(ServiceType::NodePort, &[(TCP, 80, 30_005)]);
    let error = pool.assign("a", Some(&stored), &wanted).unwrap_err();
    assert!(error.is_allocated(), "{error}");
}

#[test]
fn former_node_ports_stay_allocated_until_the_commit() {
    let mut pool = Ports::new();
    let owner = OwnerRef::service("default", "a");
    let before = [(TCP, 80, 30_001), (TCP, 81, 30_002)];
    let before = service(ServiceType::NodePort, &before);
    let before = pool.assign("a", None, &before).unwrap();
    let wanted = service(ServiceType::NodePort, &[(TCP, 80, 30_002), (TCP, 81, 0)]);
    let assigned = pool.change(|draft| wanted.assign(Some(&before), &owner, draft, &mut || 0));
    let assigned = assigned.unwrap();
    assert_eq!(pool.taken(), [30_001, 30_002, 30_016]);
    for (is_stored, taken) in [(true, [30_002, 30_016]), (false, [30_001, 30_002])] {
        let mut pool = Ports(pool.0.clone());
        let none = crate::Reservations::new();
        let mut draft = Draft::new(&mut pool.0, &none);
        match is_stored {
            true => free(&assigned.released, &owner, &mut draft),
            false => free(&assigned.taken, &owner, &mut draft),
        }
        assert_eq!(pool.taken(), taken);
    }
}

#[test]
fn node_ports_recorded_for_another_service_are_not_released() {
    let mut pool = Ports::new();
    let wanted = service(
        ServiceType::NodePort,
        &[(TCP, 80, 30_001), (TCP, 81, 30_002)],
    );
    let assigned = pool.assign("a", None, &wanted).unwrap();
    pool.0
        .owners
        .insert(30_002, OwnerRef::service("default", "b"));
    let owner = OwnerRef::service("default", "a");
    let released = pool.change(|draft| {
        free(&assigned.held(), &owner, draft);
        Ok(())
    });
    assert_eq!((released, pool.taken()), (Ok(()), vec![30_002]));
}

#[test]
fn repair_gets_a_node_port_shared_by_protocols_once() {
    for (ports, health_check, expected) in [
        (&[(TCP, 80, 0)][..], None, &[][..]),
        (&[(TCP, 53, 30_001), (UDP, 53, 30_001)], None, &[30_001]),
        (&[(TCP, 53, 30_001), (TCP, 54, 30_001)], None, &[30_001; 2]),
        (&[(TCP, 80, 30_001)], Some(30_002), &[30_001, 30_002]),
        (&[(UDP, 80, 30_001)], Some(30_001), &[30_001]),
        (&[(TCP, 80, 30_001)], Some(30_001), &[30_001; 2]),
    ] {
        let ports = NodePorts {
            health_check_node_port: health_check,
            ..service(ServiceType::LoadBalancer, ports)
        };
        let claims = ports.service_items(OwnerRef::service("default", "a"));
        assert_eq!(claims.items, expected, "{ports:?}");
    }
}
