//! Whole rulesets.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use vipline_nftables::expr::{CtState, CtStatus, Direction, NatFlags};
use vipline_nftables::expression::{
    concat, ct_mark, ct_state, ip_daddr, ip_saddr, l4proto, mark, numgen_random, oifname, symhash,
    th_dport, udp_dport,
};
use vipline_nftables::statement::{
    NatTarget, Statement, accept, dnat, drop, goto, jump, masquerade, redirect, reject, return_,
    snat, update,
};
use vipline_nftables::{
    BaseChain, Chain, ChainType, Datatype, Family, Generation, Hook, Name, Object, Policy, Rule,
    Ruleset, Set, SetFlags, Table, TableFlags, TableId, Value, Verdict,
};

use super::{
    Cause, Connection, Disposition, Error, Evaluator, Host, Outcome, Packet, Probability, Tracking,
};

mod extensions;

mod translation;

const FAMILY: Family = Family::Ip;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn table() -> TableId {
    TableId::new(FAMILY, name("t"))
}

fn rule(statements: impl IntoIterator<Item = Statement>) -> Rule {
    Rule::new(FAMILY, statements).unwrap()
}

fn chain(text: &str, rules: impl IntoIterator<Item = Rule>) -> Chain {
    Chain::new(table(), name(text)).with_rules(rules)
}

fn hooked(kind: ChainType, hook: Hook, priority: i32, rules: Vec<Rule>) -> Object {
    let chain = chain(&format!("{kind}-{hook}-{priority}"), rules);
    chain.with_base(BaseChain::new(kind, hook, priority)).into()
}

fn filter(hook: Hook, rules: Vec<Rule>) -> Object {
    hooked(ChainType::Filter, hook, 0, rules)
}

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn host() -> Host {
    Host::new()
        .with_addr("eth0", "192.0.2.1/24".parse().unwrap())
        .with_addr("eth1", "10.0.0.1/16".parse().unwrap())
        .with_limits_exceeded(false)
}

/// A datagram from outside to a destination.
fn to(destination: &str) -> Packet {
    Packet::udp(end("192.0.2.9:4000"), end(destination)).with_input("eth0")
}

fn evaluate(
    objects: impl IntoIterator<Item = Object>,
    packet: &Packet,
) -> Result<Vec<Outcome>, Error> {
    let ruleset: Ruleset = objects.into_iter().collect();
    Evaluator::new(&ruleset).evaluate(packet, &host())
}

/// Returns the only outcome.
fn outcome(objects: impl IntoIterator<Item = Object>, packet: &Packet) -> Outcome {
    let mut outcomes = evaluate(objects, packet).unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.pop().unwrap()
}

fn sum(outcomes: &[Outcome]) -> Probability {
    let zero = Probability::new(0, 1).unwrap();
    let probabilities = outcomes.iter().map(|it| &it.probability);
    probabilities.fold(zero, |sum, it| sum.either(it).unwrap())
}

#[test]
fn accept_ends_the_base_chain_and_drop_ends_all() {
    let chains = |second: Statement| {
        [
            hooked(ChainType::Filter, Hook::Input, -1, vec![rule([accept()])]),
            hooked(ChainType::Filter, Hook::Input, 1, vec![rule([second])]),
        ]
    };
    let packet = to("192.0.2.1:53");
    let kept = outcome(chains(accept()), &packet);
    assert_eq!(kept.disposition, Disposition::Delivered);
    let dropped = outcome(chains(drop()), &packet);
    assert_eq!(dropped.disposition, Disposition::Dropped);
    assert_eq!(dropped.trace.matches().count(), 2);
    assert_eq!(dropped.connection, None, "the new entry is discarded");
    let rejected = outcome(chains(reject()), &packet);
    assert!(matches!(rejected.disposition, Disposition::Rejected(_)));
}

#[test]
fn jumps_return_and_gotos_do_not() {
    let base = |verdict| {
        let rules = vec![rule([verdict]), rule([drop()])];
        filter(Hook::Input, rules)
    };
    let inner = || Object::from(chain("inner", [rule([return_()]), rule([reject()])]));
    let packet = to("192.0.2.1:53");
    let jumped = outcome([base(jump(&name("inner"))), inner()], &packet);
    assert_eq!(jumped.disposition, Disposition::Dropped);
    let gone = outcome([base(goto(&name("inner"))), inner()], &packet);
    assert_eq!(
        gone.disposition,
        Disposition::Delivered,
        "the policy applies"
    );
    let missing = evaluate([base(jump(&name("inner")))], &packet).unwrap_err();
    assert_eq!(missing.cause, Cause::MissingChain(table(), name("inner")));
    let policy = BaseChain::new(ChainType::Filter, Hook::Input, 0).with_policy(Policy::Drop);
    let empty = chain("empty", []).with_base(policy);
    assert_eq!(
        outcome([empty.into()], &packet).disposition,
        Disposition::Dropped
    );
}

#[test]
fn the_depth_and_the_number_of_rules_are_bounded() {
    let nested = |depth: usize| {
        let link = |at: usize| {
            let target = name(&format!("c{}", at + 1));
            let rules = if at < depth {
                vec![rule([jump(&target)])]
            } else {
                Vec::new()
            };
            let chain = chain(&format!("c{at}"), rules);
            match at {
                0 => chain.with_base(BaseChain::new(ChainType::Filter, Hook::Input, 0)),
                _ => chain,
            }
        };
        (0..=depth)
            .map(|at| link(at).into())
            .collect::<Vec<Object>>()
    };
    let packet = to("192.0.2.1:53");
    assert!(evaluate(nested(16), &packet).is_ok());
    assert_eq!(
        evaluate(nested(17), &packet).unwrap_err().cause,
        Cause::Jumps
    );
    let endless = [
        filter(Hook::Input, vec![rule([goto(&name("a"))])]),
        chain("a", [rule([goto(&name("a"))])]).into(),
    ];
    assert_eq!(evaluate(endless, &packet).unwrap_err().cause, Cause::Rules);
}

#[test]
fn chains_of_other_families_and_dormant_tables_are_not_evaluated() {
    let drops = || filter(Hook::Input, vec![rule([drop()])]);
    let packet = to("192.0.2.1:53");
    let dormant = Table::new(table()).with_flags(TableFlags::DORMANT);
    let kept = outcome([drops(), dormant.into()], &packet);
    assert_eq!(kept.disposition, Disposition::Delivered);
    let v6 = Packet::udp(end("[::1]:1"), end("[::1]:2"));
    assert_eq!(outcome([drops()], &v6).disposition, Disposition::Delivered);
}

#[test]
fn a_local_packet_passes_all_four_hooks_with_one_connection() {
    let hooks = [
        Hook::Output,
        Hook::Postrouting,
        Hook::Prerouting,
        Hook::Input,
    ];
    let objects =
        hooks.map(|hook| filter(hook, vec![rule([ct_state().is(CtState::NEW), accept()])]));
    let end = outcome(objects, &Packet::udp(end("192.0.2.1:1"), end("10.0.0.1:2")));
    let seen: Vec<Hook> = end.trace.matches().map(|step| step.hook).collect();
    assert_eq!(seen, hooks);
}

#[test]
fn verdict_maps_intervals_and_concatenations_are_looked_up() {
    let flags = SetFlags::INTERVAL;
    let key = [Datatype::InetProto, Datatype::Ipv4Addr];
    let allowed = Set::new(table(), name("allowed"), key).with_flags(flags);
    let ports = Set::verdict_map(table(), name("ports"), [Datatype::InetService]);
    let net: ipnet::IpNet = "192.0.2.8/30".parse().unwrap();
    let element = allowed.element(&[Value::from(17_u8), net.into()]).unwrap();
    let port = |port: u16, verdict| {
        let element = ports.element(&[port.into()]).unwrap();
        Object::from(element.with_verdict(verdict).unwrap())
    };
    let key = concat((l4proto(), ip_saddr()));
    let rules = vec![rule([key.in_set(&allowed), udp_dport().vmap(&ports)])];
    let objects = [
        allowed.clone().into(),
        element.into(),
        ports.clone().into(),
        port(53, Verdict::Drop),
        port(54, Verdict::Continue),
        filter(Hook::Input, rules),
    ];
    let elements = |destination: &str| {
        let end = outcome(objects.clone(), &to(destination));
        let steps = end.trace.rules().flat_map(|step| step.elements.clone());
        let elements: Vec<_> = steps.map(|it| it.to_string()).collect();
        (end.disposition, elements)
    };
    let net = "udp . 192.0.2.8/30".to_owned();
    let dropped = (
        Disposition::Dropped,
        vec![net.clone(), "53 : drop".to_owned()],
    );
    assert_eq!(elements("192.0.2.1:53"), dropped);
    assert_eq!(
        elements("192.0.2.1:55"),
        (Disposition::Delivered, vec![net])
    );
    assert_eq!(elements("192.0.2.1:54").1.len(), 2);
    let other = Packet::udp(end("192.0.2.12:1"), end("192.0.2.1:53")).with_input("eth0");
    assert_eq!(
        outcome(objects.clone(), &other).disposition,
        Disposition::Delivered
    );
}

#[test]
fn an_update_is_learned_and_seen_by_later_rules() {
    let seen = Set::new(table(), name("seen"), [Datatype::Ipv4Addr]);
    let seen = seen
        .with_timeout(Duration::from_secs(9))
        .with_flags(SetFlags::DYNAMIC);
    let learn = rule([update(&seen, &ip_saddr(), None)]);
    let check = rule([ip_saddr().in_set(&seen), drop()]);
    let objects = |rules| [Object::from(seen.clone()), filter(Hook::Input, rules)];
    let packet = to("192.0.2.1:53");
    let dropped = outcome(objects(vec![learn.clone(), check.clone()]), &packet);
    assert_eq!(dropped.disposition, Disposition::Dropped);
    assert_eq!(
        dropped.updates[0].element.to_string(),
        "192.0.2.9 timeout 9s"
    );
    let kept = outcome(objects(vec![check.clone(), learn]), &packet);
    assert_eq!(kept.disposition, Disposition::Delivered);
    // A dump without options does not contain the elements of dynamic sets.
    let dump: Ruleset = objects(vec![check]).into_iter().collect();
    let dump = dump.with_generation(Generation(1));
    let error = Evaluator::new(&dump)
        .evaluate(&packet, &host())
        .unwrap_err();
    assert_eq!(error.cause, Cause::DynamicSet(name("seen")));
    let element = seen.element(&[ip("192.0.2.9").into()]).unwrap();
    let known = Evaluator::new(&dump).with_elements(&seen, vec![element]);
    let outcomes = known.evaluate(&packet, &host()).unwrap();
    assert_eq!(outcomes[0].disposition, Disposition::Dropped);
}

#[test]
fn a_full_set_refuses_new_elements() {
    let seen = Set::new(table(), name("seen"), [Datatype::InetService]);
    let seen = seen.with_size(1).with_flags(SetFlags::DYNAMIC);
    let rules = vec![rule([update(&seen, &th_dport(), None), drop()])];
    let element = |port: u16| Object::from(seen.element(&[port.into()]).unwrap());
    let objects = |port| {
        [
            Object::from(seen.clone()),
            element(port),
            filter(Hook::Input, rules.clone()),
        ]
    };
    let packet = to("192.0.2.1:53");
    assert_eq!(
        outcome(objects(53), &packet).disposition,
        Disposition::Dropped
    );
    assert_eq!(
        outcome(objects(54), &packet).disposition,
        Disposition::Delivered
    );
}

#[test]
fn the_probabilities_of_independent_choices_are_multiplied() {
    let port = Set::map(table(), name("m"), [Datatype::Mark], [Datatype::Mark]);
    let elements = (0_u32..3).map(|slot| {
        let element = port.element(&[slot.into()]).unwrap();
        Object::from(element.with_data(&[(slot / 2).into()]).unwrap())
    });
    let chosen = numgen_random(3).map(&port);
    let rules = vec![
        rule([mark().set(&chosen)]),
        rule([symhash(2).is(0_u32), reject()]),
        rule([mark().is(1_u32), drop()]),
    ];
    let objects = [port.clone().into(), filter(Hook::Input, rules)];
    let outcomes = evaluate(objects.into_iter().chain(elements), &to("192.0.2.1:53")).unwrap();
    assert_eq!(sum(&outcomes), Probability::ONE);
    let share = |is: fn(&Disposition) -> bool| {
        let chosen: Vec<_> = outcomes
            .iter()
            .filter(|it| is(&it.disposition))
            .cloned()
            .collect();
        sum(&chosen).to_string()
    };
    assert_eq!(share(|it| matches!(it, Disposition::Rejected(_))), "1/2");
    assert_eq!(share(|it| *it == Disposition::Dropped), "1/6");
    assert_eq!(share(|it| *it == Disposition::Delivered), "1/3");
}

#[test]
fn a_packet_of_a_known_connection_is_not_tracked_again() {
    let first = to("192.0.2.1:53");
    let mut connection = Connection::new(&first);
    connection.mark = 3;
    let known = Tracking::Known {
        connection: Box::new(connection),
        state: CtState::ESTABLISHED,
        direction: Direction::Original,
    };
    let rules = vec![rule([
        ct_state().is(CtState::ESTABLISHED),
        ct_mark().is(3_u32),
        drop(),
    ])];
    let end = outcome([filter(Hook::Input, rules)], &first.with_tracking(known));
    assert_eq!(end.disposition, Disposition::Dropped);
}

#[test]
fn the_order_of_equal_priorities_is_that_of_the_hooks() {
    let named = |table: &str, rules: Vec<Rule>| -> [Object; 2] {
        let id = TableId::new(FAMILY, name(table));
        let base = BaseChain::new(ChainType::Filter, Hook::Prerouting, 0);
        let chain = Chain::new(id.clone(), name("base")).with_base(base);
        [Table::new(id).into(), chain.with_rules(rules).into()]
    };
    let first = named("a", vec![rule([mark().set_to(7_u32)])]);
    let second = named("b", vec![rule([mark().is(7_u32), drop()])]);
    let ruleset: Ruleset = first.into_iter().chain(second).collect();
    let entry = |table: &str| vipline_nftables::HookEntry {
        family: FAMILY,
        hook: Hook::Prerouting,
        priority: 0,
        chain: Some((TableId::new(FAMILY, name(table)), name("base"))),
        function: None,
        module: None,
    };
    let evaluate = |evaluator: Evaluator| {
        let outcomes = evaluator.evaluate(&to("192.0.2.1:53"), &host());
        outcomes.map(|outcomes| outcomes[0].disposition.clone())
    };
    let unknown = evaluate(Evaluator::new(&ruleset));
    assert!(
        matches!(
            unknown,
            Err(Error {
                cause: Cause::Unknown(_),
                ..
            })
        ),
        "{unknown:?}"
    );
    let in_order = |tables: [&str; 2]| {
        let evaluator = Evaluator::new(&ruleset).with_hooks(&tables.map(entry));
        evaluate(evaluator).unwrap()
    };
    assert_eq!(in_order(["a", "b"]), Disposition::Dropped);
    assert_eq!(in_order(["b", "a"]), Disposition::Delivered);
    // The place of one chain alone decides nothing.
    let partly = evaluate(Evaluator::new(&ruleset).with_hooks(&[entry("a")]));
    assert!(partly.is_err(), "{partly:?}");
}

#[test]
fn the_reply_of_a_translated_connection_passes_the_hooks() {
    let established = rule([ct_state().is(CtState::ESTABLISHED), accept()]);
    let objects = |reply: Vec<Rule>| {
        [
            hooked(
                ChainType::Nat,
                Hook::Prerouting,
                -100,
                vec![rule([dnat(NatTarget::from(end("10.0.0.9:53")))])],
            ),
            hooked(
                ChainType::Nat,
                Hook::Postrouting,
                100,
                vec![rule([masquerade(NatFlags::empty())])],
            ),
            filter(Hook::Forward, reply),
        ]
    };
    let reply = |rules: Vec<Rule>| {
        let ruleset: Ruleset = objects(rules).into_iter().collect();
        let evaluator = Evaluator::new(&ruleset);
        let first = evaluator
            .evaluate(&to("192.0.2.100:5353"), &host())
            .unwrap();
        let connection = first[0].connection.clone().unwrap();
        let packet = Packet::reply(&connection).with_input("eth1");
        evaluator.evaluate(&packet, &host()).unwrap().remove(0)
    };
    let passed = reply(vec![established]);
    assert_eq!(passed.disposition, Disposition::Sent("eth0".into()));
    assert_eq!(
        passed.packet.to_string(),
        "udp 192.0.2.100:5353 -> 192.0.2.9:4000"
    );
    let dropped = reply(vec![rule([ip_saddr().is(ip("10.0.0.9")), drop()])]);
    assert_eq!(dropped.disposition, Disposition::Dropped);
}

#[test]
fn the_reason_of_a_loss_ends_the_trace() {
    let host = host().with_link_down("eth1");
    let ruleset: Ruleset = [filter(Hook::Forward, Vec::new())].into_iter().collect();
    let evaluator = Evaluator::new(&ruleset);
    let outcome = |host: &Host| {
        let packet = to("10.0.0.9:53");
        evaluator.evaluate(&packet, host).unwrap().remove(0)
    };
    let lost = outcome(&host);
    assert_eq!(lost.disposition, Disposition::Dropped);
    let last = lost.trace.events().last().unwrap().to_string();
    assert_eq!(last, "lost: link eth1 is down");
    let stopped = outcome(&host.clone().without_forwarding("eth0", Family::Ip));
    let last = stopped.trace.events().last().unwrap().to_string();
    assert!(
        last.starts_with("lost: this node does not forward packets from eth0"),
        "{last}"
    );
}
