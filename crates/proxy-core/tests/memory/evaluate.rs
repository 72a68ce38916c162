//! Evaluation of packets against plans.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use proxy_core::evaluate::{Outcome, Verdict, node_source, packet};
use proxy_core::evaluator::Probability;
use proxy_core::{Config, Engine, Event, Family};
use vipline_service_model::{DetectLocal, Transport, api};

use crate::fixtures::{self, NODE, config, node, web, web_with};

/// A host outside of the cluster, and a pod of this node.
const OUTSIDE: &str = "198.51.100.9";
const POD: &str = "10.1.0.77";

fn engine(config: Config, events: impl IntoIterator<Item = Event>) -> Engine {
    let mut engine = config.plan_only().expect("the mode is built in");
    engine.apply(node());
    fixtures::apply(&mut engine, events);
    engine.set_addresses(vec!["192.168.0.5".parse().expect("an address")]);
    engine.apply(Event::Synced);
    engine
}

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Evaluates the whole plan. The plan for the destination alone has the same results.
fn outcomes(engine: &mut Engine, source: IpAddr, destination: &str) -> Vec<Outcome> {
    let destination: SocketAddr = destination.parse().expect("an address with a port");
    let family = Family::of(destination.ip());
    let rules = engine.desired_rules(family).expect("a family of the plan");
    let host = engine.assumed_host();
    let packet = packet(&host, Transport::Tcp, source, destination);
    let outcomes = rules
        .evaluate(&packet, &host)
        .expect("the plan is evaluated");
    let alone = engine
        .desired_rules_of(destination)
        .expect("a family of the plan")
        .evaluate(&packet, &host)
        .expect("the plan for the destination is evaluated");
    assert_eq!(summary(&alone), summary(&outcomes), "{destination}");
    outcomes
}

/// Returns probabilities by verdict, and whether any outcome is masqueraded.
fn summary(outcomes: &[Outcome]) -> (BTreeMap<String, String>, bool) {
    let mut sums: BTreeMap<String, Probability> = BTreeMap::new();
    for outcome in outcomes {
        let verdict = outcome.verdict.to_string();
        let sum = match sums.get(&verdict) {
            Some(sum) => sum.either(&outcome.probability),
            None => Some(outcome.probability.clone()),
        };
        sums.insert(verdict, sum.expect("probabilities sum to 1"));
    }
    let text = sums
        .into_iter()
        .map(|(verdict, sum)| (verdict, sum.to_string()));
    let is_masqueraded = outcomes.iter().any(|outcome| outcome.is_masqueraded);
    (text.collect(), is_masqueraded)
}

fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|&(verdict, sum)| (verdict.to_owned(), sum.to_owned()))
        .collect()
}

#[test]
fn endpoints_of_a_cluster_ip_are_equally_probable() {
    for count in [1_u8, 3, 9] {
        let mut engine = engine(config(), web_with("10.96.0.10", count).events());
        let outcomes = outcomes(&mut engine, addr(POD), "10.96.0.10:80");
        let (sums, is_masqueraded) = summary(&outcomes);
        assert_eq!(sums.len(), usize::from(count), "{sums:?}");
        let each = Probability::new(1, count.into())
            .expect("at most 1")
            .to_string();
        assert!(sums.values().all(|sum| *sum == each), "{sums:?}");
        assert!(sums.contains_key("to endpoint 10.1.0.1:8080"), "{sums:?}");
        assert!(!is_masqueraded);
    }
}

#[test]
fn clients_outside_of_the_pod_network_are_masqueraded() {
    let network = "10.1.0.0/16".parse().expect("a network");
    let config = config().with_detect_local(DetectLocal::ClusterCidr(vec![network]));
    let mut engine = engine(config, web_with("10.96.0.10", 1).events());
    let own = node_source(&engine.assumed_host(), addr("10.96.0.10"));
    assert_eq!(own, Some(addr("192.168.0.5")));
    for (source, expected) in [(POD, false), (OUTSIDE, true), ("192.168.0.5", true)] {
        let outcomes = outcomes(&mut engine, addr(source), "10.96.0.10:80");
        let (sums, is_masqueraded) = summary(&outcomes);
        assert_eq!(sums, of(&[("to endpoint 10.1.0.1:8080", "1")]));
        assert_eq!(is_masqueraded, expected, "{source}");
    }
}

#[test]
fn a_connection_of_an_endpoint_to_itself_is_masqueraded() {
    let here = addr("10.1.0.1");
    let mut engine = engine(config(), web("10.96.0.10").endpoint(here, NODE).events());
    let outcomes = outcomes(&mut engine, here, "10.96.0.10:80");
    assert!(outcomes[0].is_masqueraded, "{}", outcomes[0]);
}

#[test]
fn the_element_that_rejects_is_in_the_trace() {
    let mut engine = engine(config(), web("10.96.0.10").events());
    let outcomes = outcomes(&mut engine, addr(POD), "10.96.0.10:80");
    assert_eq!(summary(&outcomes).0, of(&[("refused", "1")]));
    let trace = outcomes[0].trace.to_string();
    assert!(
        trace.contains("element @no-endpoints { 10.96.0.10 . tcp . 80"),
        "{trace}"
    );
}

#[test]
fn sources_outside_of_the_ranges_are_dropped_before_translation() {
    let builder = web_with("10.96.0.10", 1);
    let mut service = builder.service();
    service.spec.kind = api::ServiceType::LoadBalancer;
    service.spec.load_balancer_source_ranges = vec!["192.0.2.0/24".into()];
    service.status.load_balancer.ingress = vec![api::Ingress {
        ip: "203.0.113.9".into(),
        ..api::Ingress::default()
    }];
    let slices = builder.slices().into_iter().map(Event::from);
    let mut engine = engine(config(), [Event::from(service)].into_iter().chain(slices));
    let vip = "203.0.113.9:80";
    let refused = outcomes(&mut engine, addr(OUTSIDE), vip);
    assert_eq!(summary(&refused).0, of(&[("dropped", "1")]));
    let allowed = outcomes(&mut engine, addr("192.0.2.9"), vip);
    assert_eq!(
        summary(&allowed).0,
        of(&[("to endpoint 10.1.0.1:8080", "1")])
    );
}

#[test]
fn an_update_records_the_endpoint_of_a_client_with_affinity() {
    let builder = web_with("10.96.0.10", 2);
    let mut service = builder.service();
    service.spec.session_affinity = api::Affinity::ClientIp;
    let slices = builder.slices().into_iter().map(Event::from);
    let mut engine = engine(config(), [Event::from(service)].into_iter().chain(slices));
    let outcomes = outcomes(&mut engine, addr(POD), "10.96.0.10:80");
    assert_eq!(outcomes.len(), 2);
    for outcome in outcomes {
        let [update] = &*outcome.updates else {
            panic!("{outcome}");
        };
        assert!(
            update.set.as_str().starts_with("clients-"),
            "{}",
            update.set
        );
        assert_eq!(update.timeout.map(|it| it.as_secs()), Some(10_800));
    }
}

#[test]
fn other_destinations_are_not_translated() {
    let mut engine = engine(config(), web_with("10.96.0.10", 1).events());
    for (destination, expected) in [
        ("192.0.2.1:80", Verdict::Forwarded),
        ("192.168.0.5:80", Verdict::Delivered),
        ("10.96.0.10:81", Verdict::Refused),
    ] {
        let outcomes = outcomes(&mut engine, addr(OUTSIDE), destination);
        assert_eq!(outcomes[0].verdict, expected, "{}", outcomes[0]);
    }
}
