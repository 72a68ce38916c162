//! Property tests of node ports of Services that are created, updated and deleted.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_service_ip::{
    Allocator, Error, NodePorts, OwnerRef, Pool, PortRange, Registry, Repair, ServiceNodePorts,
    ServicePort, ServiceType, Transport,
};

use crate::faulty::{Fault, Faulty};

type Ports = Allocator<PortRange>;

/// A Service is created, updated or deleted.
#[derive(Clone, Debug)]
struct Step {
    name: u8,
    /// `None` deletes the Service.
    wanted: Option<NodePorts>,
    is_stored: bool,
    faults: Vec<Fault>,
    seed: u64,
}

fn port() -> impl Strategy<Value = ServicePort> {
    let protocols = vec![Transport::Sctp, Transport::Tcp, Transport::Udp];
    let node_port = prop::option::weighted(0.3, 29_999_u16..30_041);
    let names = vec!["a", "b", "c", "d", "e"];
    let (names, protocols) = (prop::sample::select(names), prop::sample::select(protocols));
    (names, protocols, 1_u16..4, node_port).prop_map(|(name, protocol, port, node_port)| {
        ServicePort {
            name: name.into(),
            protocol,
            port,
            node_port,
        }
    })
}

fn wanted() -> impl Strategy<Value = NodePorts> {
    let kind = prop_oneof![
        1 => Just(ServiceType::ClusterIp),
        1 => Just(ServiceType::ExternalName),
        3 => Just(ServiceType::NodePort),
        4 => Just(ServiceType::LoadBalancer),
    ];
    let health_check = prop::option::weighted(0.2, 29_999_u16..30_041);
    let allocate = prop::bool::weighted(0.8);
    (
        kind,
        allocate,
        any::<bool>(),
        vec(port(), 0..7),
        health_check,
    )
        .prop_map(
            |(kind, allocate, external_policy_local, ports, health_check_node_port)| NodePorts {
                kind,
                allocate_load_balancer_node_ports: allocate,
                external_policy_local,
                ports,
                health_check_node_port,
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    let conflict = any::<bool>().prop_map(|is_told| Fault::Conflict { is_told });
    let wanted = prop::option::weighted(0.8, wanted());
    let is_stored = prop::bool::weighted(0.8);
    (
        0_u8..8,
        wanted,
        is_stored,
        vec(conflict, 0..3),
        any::<u64>(),
    )
        .prop_map(|(name, wanted, is_stored, faults, seed)| Step {
            name,
            wanted,
            is_stored,
            faults,
            seed,
        })
}

/// Stored Services with their registry.
struct Cluster {
    store: Faulty<Ports>,
    ports: ServiceNodePorts<Ports, Faulty<Ports>>,
    services: BTreeMap<OwnerRef, NodePorts>,
}

impl Cluster {
    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let owner = OwnerRef::service("default", &step.name.to_string());
        self.store.fail(step.faults);
        let Some(wanted) = step.wanted else {
            if let Some(former) = self.services.remove(&owner) {
                self.ports.release(&former, &owner).unwrap();
            }
            return Ok(());
        };
        let former = self.services.get(&owner);
        let mut random = || step.seed;
        let commits = self.store.commits();
        let dry = self
            .ports
            .registry()
            .dry_run(|draft| wanted.assign(former, &owner, draft, &mut random));
        prop_assert_eq!(self.store.commits(), commits);
        let assigned = self.ports.assign(&wanted, former, &owner, &mut random);
        let assigned = match (assigned, dry) {
            (Ok(assigned), Ok(dry)) => {
                prop_assert_eq!(&assigned, &dry);
                assigned
            }
            (Err(Error::Allocation(error)), Err(Error::Allocation(dry))) => {
                prop_assert_eq!(error, dry);
                return Ok(());
            }
            (assigned, dry) => {
                prop_assert!(false, "{:?} after {:?}", assigned, dry);
                return Ok(());
            }
        };
        check_assigned(&wanted, &assigned.ports)?;
        let ports = assigned.ports.clone();
        match step.is_stored {
            true => self.ports.commit(assigned, &owner).unwrap(),
            false => self.ports.revert(assigned, &owner).unwrap(),
        }
        if step.is_stored {
            self.services.insert(owner, ports);
        }
        Ok(())
    }

    /// Checks that every node port belongs to one Service, and that repair finds nothing.
    fn check_state(&mut self) -> Result<(), TestCaseError> {
        let mut owners = BTreeMap::new();
        for (owner, service) in &self.services {
            let numbers: BTreeSet<u16> = service
                .service_items(owner.clone())
                .items
                .into_iter()
                .collect();
            for number in numbers {
                let other = owners.insert(number, owner.clone());
                prop_assert_eq!(other, None, "{} twice", number);
            }
        }
        prop_assert_eq!(&self.store.look().owners, &owners);
        prop_assert!(self.store.look().pool.items().eq(owners.keys().copied()));
        let list = || {
            let services = self.services.iter();
            let claims = services.map(|(owner, service)| service.service_items(owner.clone()));
            claims.collect()
        };
        let findings = Repair::new().pass(self.ports.registry(), list).unwrap();
        prop_assert!(findings.is_empty(), "{:?}", findings);
        Ok(())
    }
}

/// Checks that a Service got the requested node ports, and those that its type requires.
fn check_assigned(wanted: &NodePorts, given: &NodePorts) -> Result<(), TestCaseError> {
    let has_node_ports = matches!(
        wanted.kind,
        ServiceType::NodePort | ServiceType::LoadBalancer
    );
    let is_given = has_node_ports
        && (wanted.allocate_load_balancer_node_ports || wanted.kind == ServiceType::NodePort);
    let mut uses = BTreeSet::new();
    for (asked, port) in wanted.ports.iter().zip(&given.ports) {
        prop_assert_eq!((asked.protocol, asked.port), (port.protocol, port.port));
        if has_node_ports && asked.node_port.is_some() {
            prop_assert_eq!(asked.node_port, port.node_port);
        } else {
            prop_assert_eq!(port.node_port.is_some(), is_given);
        }
        if let Some(number) = port.node_port {
            prop_assert!(uses.insert((port.protocol, number)), "{:?}", given);
        }
    }
    let is_checked = wanted.kind == ServiceType::LoadBalancer && wanted.external_policy_local;
    prop_assert_eq!(given.health_check_node_port.is_some(), is_checked);
    if is_checked && wanted.health_check_node_port.is_some() {
        prop_assert_eq!(given.health_check_node_port, wanted.health_check_node_port);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_node_port_belongs_to_one_service(steps in vec(step(), 0..24)) {
        let range = PortRange::new(30_000, 30_039).unwrap();
        let store = Faulty::new(Allocator::new(range));
        let mut cluster = Cluster {
            ports: ServiceNodePorts::new(Registry::new(store.clone())),
            store,
            services: BTreeMap::new(),
        };
        for step in steps {
            cluster.step(step)?;
            cluster.check_state()?;
        }
    }
}
