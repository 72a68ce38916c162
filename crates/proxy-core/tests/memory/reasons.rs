//! Reasons from the objects alone.

use proxy_core::reason::{Origin, Question, Reason, Scene};
use proxy_core::{Config, Event, Family};
use testkit::generate::ServiceBuilder;
use vipline_service_model::{Transport, api};

use crate::fixtures::{self, NODE};

#[test]
fn a_direct_connection_belongs_to_the_service_port_of_its_protocol() {
    let dns = ServiceBuilder::new("dns")
        .cluster_ip("10.96.0.10".parse().expect("an address"))
        .port(api::TransportProtocol::Udp, 53, 53)
        .port(api::TransportProtocol::Tcp, 53, 53)
        .endpoint("10.1.0.53".parse().expect("an address"), NODE);
    let config = Config::new(NODE);
    let mut engine = config.plan_only().expect("the mode is built in");
    fixtures::apply(&mut engine, dns.events());
    engine.apply(Event::Synced);
    engine.plan_changes();
    let scene = Scene::new(&engine, &config, Family::V4);
    for (protocol, port) in [(Transport::Tcp, "tcp-53"), (Transport::Udp, "udp-53")] {
        let question = Question {
            protocol,
            destination: "10.1.0.53:53".parse().expect("an address"),
            source: "10.1.0.7".parse().expect("an address"),
            origin: Origin::Pod,
        };
        let finding = scene.find(&question);
        let Reason::Direct { owner } = finding.reason else {
            panic!("{finding:?}");
        };
        assert_eq!(&*owner.port, port);
    }
    let sctp = Question {
        protocol: Transport::Sctp,
        destination: "10.1.0.53:53".parse().expect("an address"),
        source: "10.1.0.7".parse().expect("an address"),
        origin: Origin::Pod,
    };
    let finding = scene.find(&sctp);
    assert!(
        matches!(finding.reason, Reason::UnknownAddress),
        "{finding:?}"
    );
}
