//! Evaluates packets against arbitrary rules: a dump of messages, or a save of iptables as
//! text. The input starts with the length of the packet.

use std::net::IpAddr;

use vipline_evaluate::iptables::Rules;
use vipline_evaluate::ipvs::{self, Balancer, Unknown};
use vipline_evaluate::{Environment, Evaluator, Host, Limited, Packet, Question};
use vipline_evaluate::{Interface, Probability, Route, RouteQuery};
use vipline_iptables::nft::SetNames;
use vipline_iptables::{Family, Tables};
use vipline_ipvs::{Table, Transport};
use vipline_netlink::message::Messages;
use vipline_nftables::expr::AddrType;
use vipline_nftables::{Assembler, Name, TableId};

/// A host that answers every question.
struct Answers(Host);

impl Environment for Answers {
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
        Some(matches!(question, Question::Set(_)))
    }
}

fn host() -> Answers {
    let net = |text: &str| text.parse().expect("a network");
    let host = Host::new()
        .with_addr(Interface::new("eth0").with_index(2), net("10.0.0.1/24"))
        .with_addr("eth0", net("fd00::1/64"))
        .with_route(net("0.0.0.0/0"), "eth1")
        .with_route(net("::/0"), "eth1");
    Answers(host.with_limits_exceeded(false))
}

/// Checks that the outcomes of a packet are complete.
fn check(evaluator: &Evaluator, packet: &Packet) {
    let Ok(outcomes) = evaluator.evaluate(packet, &host()) else {
        return;
    };
    let mut sum = Probability::new(0, 1).expect("zero");
    for outcome in &outcomes {
        // A sum can be too long, but it never exceeds 1.
        match sum.either(&outcome.probability) {
            Some(more) => sum = more,
            None => return,
        }
    }
    assert_eq!(sum, Probability::ONE);
    if let Some(first) = outcomes.first() {
        assert!(!first.to_string().is_empty());
    }
}

/// Returns the tables of a dump, or the rules of a save.
fn evaluators(input: &[u8]) -> Vec<Evaluator> {
    let table = |family, name: &str| TableId::new(family, Name::new(name).expect("a good name"));
    let families = [vipline_nftables::Family::Ip, vipline_nftables::Family::Ip6];
    let tables = families.map(|family| table(family, "t"));
    let mut assembler = Assembler::new(&tables);
    for message in Messages::new(input).flatten() {
        let _ = assembler.push(message.ty, message.payload);
    }
    let dump = assembler.finish();
    let names: SetNames = [(0, "pods".to_owned())].into_iter().collect();
    let mut all = Vec::new();
    if !dump.is_empty() {
        all.push(Evaluator::new(&dump));
        all.push(Rules::from_dump(dump, names).evaluator());
    }
    let text = crate::text(input);
    if let Ok(tables) = Tables::parse(text) {
        for family in Family::ALL {
            if let Ok(rules) = Rules::new().with_save(&tables, family) {
                all.push(rules.evaluator());
            }
        }
    }
    all
}

/// Decides about a packet with an IPVS table.
fn balance(text: &str, packet: &Packet) {
    let Ok(table) = text.parse::<Table>() else {
        return;
    };
    let balancer = Balancer::from(&table);
    let (Some(source), Some(destination)) = (packet.source_port(), packet.destination_port())
    else {
        return;
    };
    for protocol in Transport::ALL {
        let ends = [
            (packet.source(), source).into(),
            (packet.destination(), destination).into(),
        ];
        let packet = ipvs::Packet::new(protocol, ends[0], ends[1]);
        let _ = balancer.decide(&packet, &Unknown);
    }
}

/// Checks one input.
pub(crate) fn run(input: &[u8]) {
    let Some((len, rest)) = input.split_first() else {
        return;
    };
    let Some((packet, rules)) = rest.split_at_checked(usize::from(*len)) else {
        return;
    };
    let Ok(packet) = Packet::from_bytes(packet) else {
        return;
    };
    balance(crate::text(rules), &packet);
    let received = packet
        .clone()
        .with_input(Interface::new("eth0").with_index(2));
    for evaluator in evaluators(rules) {
        check(&evaluator, &received);
        check(&evaluator, &packet);
    }
}
