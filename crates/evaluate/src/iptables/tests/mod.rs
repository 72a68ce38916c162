//! Saved rules and packets.

use std::net::{IpAddr, SocketAddr};

use vipline_iptables::{ChainName, Family, Object, Position, SharedRule, TableName, Tables};
use vipline_nftables::expr::{AddrType, CtState, CtStatus, Direction, RejectType};

use super::Rules;
use crate::{
    Cause, Connection, Disposition, Environment, Error, Host, Interface, Limited, ListUpdate,
    Outcome, Packet, Question, Route, RouteQuery, Tracking,
};

mod actions;

mod conditions;

mod services;

/// A host with answers to all questions.
struct Answers<F: Fn(&Question<'_>) -> Option<bool>>(Host, F);

impl<F: Fn(&Question<'_>) -> Option<bool>> Environment for Answers<F> {
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route> {
        self.0.route(query)
    }

    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType> {
        self.0.addr_type(addr, interface)
    }

    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
        self.0.interface_addr(interface, destination)
    }

    fn is_over(&self, limited: Limited<'_>) -> Option<bool> {
        self.0.is_over(limited)
    }

    fn answer(&self, question: &Question<'_>) -> Option<bool> {
        (self.1)(question)
    }
}

fn host() -> Host {
    let eth0 = Interface::new("eth0").with_index(2);
    Host::new()
        .with_addr(eth0, "10.0.0.1/24".parse().unwrap())
        .with_addr("eth1", "10.1.0.1/24".parse().unwrap())
        .with_addr("eth0", "fd00::1/64".parse().unwrap())
}

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn tcp(destination: &str) -> Packet {
    Packet::tcp(end("10.0.0.9:40000"), end(destination)).with_input("eth0")
}

fn evaluate(
    saved: &str,
    packet: &Packet,
    environment: &dyn Environment,
) -> Result<Vec<Outcome>, Error> {
    let family = match packet.source().is_ipv4() {
        true => Family::V4,
        false => Family::V6,
    };
    let tables = Tables::parse(saved).unwrap();
    let rules = Rules::new().with_save(&tables, family).unwrap();
    rules.evaluator().evaluate(packet, environment)
}

/// Returns the only outcome.
fn outcome(saved: &str, packet: &Packet) -> Outcome {
    let outcomes = evaluate(saved, packet, &host()).unwrap();
    let [outcome] = &*outcomes else {
        panic!("{} outcomes", outcomes.len());
    };
    outcome.clone()
}

/// Returns whether a condition matches a received packet to the host in chain `INPUT`.
fn matches_with(
    condition: &str,
    packet: &Packet,
    environment: &dyn Environment,
) -> Result<bool, Cause> {
    let saved = format!("*filter\n-A INPUT {condition} -j DROP\nCOMMIT\n");
    let outcomes = evaluate(&saved, packet, environment).map_err(|error| {
        assert!(error.rule.is_some(), "{error}");
        error.cause
    })?;
    assert_eq!(outcomes.len(), 1, "{condition}");
    Ok(outcomes[0].disposition == Disposition::Dropped)
}

fn matches(condition: &str, packet: &Packet) -> Result<bool, Cause> {
    matches_with(condition, packet, &host())
}

/// Compares the result of conditions for a packet.
fn assert_matches(packet: &Packet, cases: &[(&str, bool)]) {
    for (condition, expected) in cases {
        assert_eq!(matches(condition, packet), Ok(*expected), "{condition}");
    }
}

#[test]
fn an_unknown_part_of_a_rule_is_an_error_that_names_the_rule() {
    let text = |rule: &str| {
        let saved = format!("*filter\n-A INPUT {rule}\nCOMMIT\n");
        let error = evaluate(&saved, &tcp("10.0.0.1:80"), &host());
        error.unwrap_err().to_string()
    };
    assert_eq!(
        text("-p tcp -m novel --option 5 -j DROP"),
        "input ip filter INPUT rule 1: -A INPUT -p tcp -m novel --option 5 -j DROP: \
         expression match: cannot evaluate -m novel --option 5"
    );
    assert_eq!(
        text("-p tcp -j TPROXY --on-port 5"),
        "input ip filter INPUT rule 1: -A INPUT -p tcp -j TPROXY --on-port 5 --on-ip 0.0.0.0 \
         --tproxy-mark 0x0/0x0: expression target: cannot evaluate -j TPROXY --on-port 5 \
         --on-ip 0.0.0.0 --tproxy-mark 0x0/0x0"
    );
    assert_eq!(
        text("-m socket --transparent -j DROP"),
        "input ip filter INPUT rule 1: -A INPUT -m socket --transparent -j DROP: expression \
         match: unknown: whether the packet matches -m socket --transparent"
    );
    // A condition before the unknown part decides.
    let saved = "*filter\n-A INPUT -p udp -m novel --option 5 -j DROP\nCOMMIT\n";
    let end = outcome(saved, &tcp("10.0.0.1:80"));
    assert_eq!(end.disposition, Disposition::Delivered);
}

#[test]
fn both_families_and_other_tables_are_evaluated_together() {
    let v4 = Tables::parse("*filter\n-A INPUT -j DROP\nCOMMIT\n").unwrap();
    let v6 = Tables::parse("*filter\n:INPUT DROP [0:0]\nCOMMIT\n").unwrap();
    let rules = Rules::new().with_save(&v4, Family::V4).unwrap();
    let rules = rules.with_save(&v6, Family::V6).unwrap();
    for (source, destination) in [("10.0.0.9:1", "10.0.0.1:2"), ("[fd00::9]:1", "[fd00::1]:2")] {
        let packet = Packet::udp(end(source), end(destination)).with_input("eth0");
        let outcomes = rules.evaluator().evaluate(&packet, &host()).unwrap();
        assert_eq!(outcomes[0].disposition, Disposition::Dropped, "{source}");
    }
}

#[test]
fn packets_pass_the_rules_of_both_variants() {
    let tables = |rule: &str| format!("*filter\n-A INPUT {rule}\nCOMMIT\n");
    let evaluate = |nft: &str, legacy: &str| {
        let [nft, legacy] = [nft, legacy].map(tables);
        let [nft, legacy] = [&nft, &legacy].map(|text| Tables::parse(text).unwrap());
        let rules = Rules::new().with_save(&nft, Family::V4).unwrap();
        let rules = rules.with_legacy_save(&legacy, Family::V4).unwrap();
        let outcomes = rules.evaluator().evaluate(&tcp("10.0.0.1:22"), &host());
        outcomes.unwrap().pop().unwrap()
    };
    let accept = "-p tcp -m tcp --dport 22 -j ACCEPT";
    for (nft, legacy, line) in [
        (
            accept,
            "-j DROP",
            "input ip legacy-filter INPUT rule 1: -A INPUT -j DROP",
        ),
        (
            "-j DROP",
            accept,
            "input ip filter INPUT rule 1: -A INPUT -j DROP",
        ),
    ] {
        let end = evaluate(nft, legacy);
        assert_eq!(end.disposition, Disposition::Dropped);
        let last = end.trace.matches().last().map(ToString::to_string);
        assert_eq!(last.as_deref(), Some(line));
    }
}

#[test]
fn planned_objects_are_evaluated_like_the_save_of_their_rules() {
    let saved = "*filter\n:INPUT DROP [0:0]\n:mine - [0:0]\n-A INPUT -j mine\n\
                 -A mine -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n";
    let objects = Tables::parse(saved).unwrap().objects().unwrap();
    let evaluator = Rules::new().with_objects(&objects, Family::V4).evaluator();
    let ends = [22, 23].map(|port| {
        let packet = tcp(&format!("10.0.0.1:{port}"));
        let outcomes = evaluator.evaluate(&packet, &host()).unwrap();
        assert_eq!(outcomes[0].disposition, outcome(saved, &packet).disposition);
        outcomes[0].disposition.clone()
    });
    assert_eq!(ends, [Disposition::Delivered, Disposition::Dropped]);
}

#[test]
fn a_planned_rule_at_the_head_precedes_those_added_before() {
    let objects = ["-j ACCEPT", "-j DROP"].map(|rule| {
        Object::from(SharedRule {
            table: TableName::FILTER,
            chain: ChainName::INPUT,
            position: Position::Head,
            occurrence: 0,
            rule: rule.into(),
        })
    });
    let evaluator = Rules::new().with_objects(&objects, Family::V4).evaluator();
    let outcomes = evaluator.evaluate(&tcp("10.0.0.1:22"), &host()).unwrap();
    assert_eq!(outcomes[0].disposition, Disposition::Dropped);
}
