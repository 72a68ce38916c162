//! The cost of one Service is proportional to its addresses, ports and endpoints.
//!
//! The API limits these numbers only by the size of the object: 1.5 MB hold about
//! 120,000 external IPs or 60,000 ports.

use std::net::IpAddr;
use std::time::Duration;

use proxy_core::Event;
use proxy_core::backend::{iptables, ipvs, nftables};
use testkit::cpu::growth_per_item;
use vipline_service_model::{Store, api};

use crate::fixtures::{self, MemoryKernels, ModePlanner, NODE, apply, web};

/// Maximum ratio of the cost per item among many items to the cost among few.
///
/// Quadratic work among 64 times as many items costs up to 64 times as much per item.
const MAX_GROWTH: f64 = 3.0;

/// Returns the address 11.0.0.0 + `number`.
fn address(number: u32) -> IpAddr {
    IpAddr::V4((0x0b00_0000 + number).into())
}

/// Returns a Service with `endpoints` endpoints, and its slices.
fn service(endpoints: u32) -> (api::Service, Vec<api::EndpointSlice>) {
    let builder = (0..endpoints).fold(web("10.96.0.10"), |builder, number| {
        builder.endpoint(address(number), NODE)
    });
    (builder.service(), builder.slices())
}

/// Returns the events of a Service with `count` external IPs and `count` load balancer
/// IPs. Half of the load balancer IPs are external IPs, too.
fn with_addresses(count: u32) -> Vec<Event> {
    let (mut service, slices) = service(2);
    service.spec.kind = api::ServiceType::LoadBalancer;
    let texts = |first| (first..first + count).map(|number| address(number).to_string());
    service.spec.external_ips = texts(0).collect();
    let ingress = texts(count / 2).map(|ip| api::Ingress {
        ip,
        ..api::Ingress::default()
    });
    service.status.load_balancer.ingress = ingress.collect();
    events(service, slices)
}

/// Returns the events of a NodePort Service with `count` endpoints.
fn with_endpoints(count: u32) -> Vec<Event> {
    let (mut service, slices) = service(count);
    service.spec.kind = api::ServiceType::NodePort;
    service.spec.ports[0].node_port = 30_080;
    events(service, slices)
}

/// Returns the events of a Service with `count` ports, named in descending order.
fn with_ports(count: u32) -> Vec<Event> {
    let (mut service, slices) = service(0);
    let ports = (1..=count).rev().map(|number| api::ServicePortSpec {
        name: format!("p{number:05}"),
        port: u16::try_from(number).expect("a port"),
        ..service.spec.ports[0].clone()
    });
    service.spec.ports = ports.collect();
    events(service, slices)
}

fn events(service: api::Service, slices: Vec<api::EndpointSlice>) -> Vec<Event> {
    let slices = slices.into_iter().map(Event::from);
    [Event::from(service)].into_iter().chain(slices).collect()
}

/// Asserts that the cost per item, from the event to the commit, is about the same for
/// a Service with many items as for one with few.
fn assert_linear<P: ModePlanner>(few: u32, many: u32, events: fn(u32) -> Vec<Event>)
where
    P::Object: Send + Sync + 'static,
{
    let growth = growth_per_item(few, many, |count| {
        let mut engine = MemoryKernels::<P::Object>::default().engine_of::<P>(fixtures::config());
        apply(&mut engine, events(count));
        engine.apply(Event::Synced);
        engine.poll(Duration::ZERO).expect("a sync is due");
    });
    assert!(growth < MAX_GROWTH, "{growth:.2} times as much per item");
}

#[test]
fn the_cost_per_address_does_not_grow_with_their_number_in_mode_nftables() {
    assert_linear::<nftables::Planner>(250, 16_000, with_addresses);
}

#[test]
fn the_cost_per_address_does_not_grow_with_their_number_in_mode_iptables() {
    assert_linear::<iptables::Planner>(250, 16_000, with_addresses);
}

#[test]
fn the_cost_per_address_does_not_grow_with_their_number_in_mode_ipvs() {
    assert_linear::<ipvs::Planner>(250, 16_000, with_addresses);
}

#[test]
fn the_cost_per_endpoint_does_not_grow_with_their_number_in_mode_nftables() {
    assert_linear::<nftables::Planner>(125, 8_000, with_endpoints);
}

#[test]
fn the_cost_per_endpoint_does_not_grow_with_their_number_in_mode_iptables() {
    assert_linear::<iptables::Planner>(125, 8_000, with_endpoints);
}

#[test]
fn the_cost_per_endpoint_does_not_grow_with_their_number_in_mode_ipvs() {
    assert_linear::<ipvs::Planner>(125, 8_000, with_endpoints);
}

#[test]
fn the_cost_of_reading_a_port_does_not_grow_with_their_number() {
    let growth = growth_per_item(750, 48_000, |count| {
        let mut store = Store::default();
        for event in with_ports(count) {
            store.apply(event);
        }
    });
    assert!(growth < MAX_GROWTH, "{growth:.2} times as much per item");
}
