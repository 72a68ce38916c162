//! Matches and targets of another crate.

use std::sync::Arc;

use vipline_nftables::expr::{Expr, Match, NatType, Target};

use super::*;
use crate::{
    Context, Extensions, Flow, HookFunction, HookVerdict, IpvsConnection, NatRange, Question,
    SetEntry, SetLookup,
};

/// Match `even` compares the destination port, `half` chooses, and `asked` asks. Target
/// `MOVE` changes mark and destination.
#[derive(Debug)]
struct Numbers;

impl Extensions for Numbers {
    fn evaluate_match(&self, one: &Match, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
        let port = context.packet().destination_port().unwrap();
        let is_match = match one.name.as_str() {
            "even" => port.is_multiple_of(2),
            "half" => context.choose(&[0, 3, 3])? == 1,
            "asked" => {
                let (fields, protocol, mark) = (Vec::new(), 17, 0);
                let entry = SetEntry {
                    fields,
                    protocol,
                    mark,
                };
                context.ask(&Question::Set(SetLookup::new("ports", &entry)))?
            }
            name => return Err(Cause::unsupported(format_args!("match {name}"))),
        };
        Ok(Flow::next_if(is_match))
    }

    fn evaluate_target(&self, _: &Target, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
        context.set_mark(5);
        context.set_connection_mark(7);
        let range = NatRange {
            addrs: Some((ip("10.0.0.9"), ip("10.0.0.9"))),
            ports: None,
            flags: NatFlags::empty(),
        };
        context.translate(NatType::Dnat, range)
    }

    fn rule_text(&self, _: &Chain, rule: &Rule) -> Option<String> {
        let is_own = rule.exprs.iter().any(|it| matches!(it, Expr::Match(_)));
        is_own.then(|| "-m even".to_owned())
    }
}

fn match_(text: &str) -> Expr {
    let (name, revision, info) = (name(text), 0, vipline_nftables::Bytes::new());
    Expr::from(Match {
        name,
        revision,
        info,
    })
}

fn drop_if(text: &str) -> [Object; 1] {
    let verdict = vipline_nftables::expr::Immediate::from(Verdict::Drop);
    let rule = Rule::from_exprs([match_(text), verdict.into()]);
    [filter(Hook::Input, vec![rule])]
}

fn extended(objects: impl IntoIterator<Item = Object>, to: &Packet) -> Result<Vec<Outcome>, Error> {
    let ruleset: Ruleset = objects.into_iter().collect();
    let evaluator = Evaluator::new(&ruleset).with_extensions(Arc::new(Numbers));
    evaluator.evaluate(to, &host())
}

#[test]
fn a_match_of_an_extension_decides_and_has_its_own_text() {
    for (port, expected) in [(2, Disposition::Dropped), (3, Disposition::Delivered)] {
        let packet = to(&format!("192.0.2.1:{port}"));
        let outcomes = extended(drop_if("even"), &packet).unwrap();
        assert_eq!(outcomes[0].disposition, expected);
        let step = outcomes[0].trace.rules().next().unwrap();
        assert_eq!(step.text(), "-m even");
    }
    let error = evaluate(drop_if("even"), &to("192.0.2.1:2")).unwrap_err();
    assert_eq!(error.cause, Cause::unsupported("match even"));
    let error = extended(drop_if("odd"), &to("192.0.2.1:2")).unwrap_err();
    assert_eq!(error.cause, Cause::unsupported("match odd"));
    assert_eq!(error.expression.as_deref(), Some("match"));
}

/// Sends packets of a virtual server to a real server, as IPVS does.
#[derive(Debug)]
struct Balancer;

impl HookFunction for Balancer {
    fn places(&self) -> &[(Hook, i32)] {
        &[(Hook::Input, 99), (Hook::Output, -98)]
    }

    fn call(&self, _: i32, context: &mut Context<'_, '_>) -> Result<HookVerdict, Cause> {
        let virtual_server = end("192.0.2.1:80");
        let is_own = context.packet().destination_port() == Some(80);
        if context.ipvs().is_some() || !is_own {
            return Ok(HookVerdict::Accept);
        }
        let real = end("10.0.0.9:8080");
        context.record("balanced");
        context.set_ipvs(IpvsConnection {
            protocol: 17,
            address: virtual_server.ip(),
            port: virtual_server.port(),
            method: 0,
            control_port: None,
        });
        context.set_destination(real);
        context.set_reply_source(real);
        Ok(HookVerdict::Send(real.ip()))
    }
}

#[test]
fn a_hook_function_sends_a_packet_through_output_and_postrouting() {
    let count = |hook, priority| hooked(ChainType::Filter, hook, priority, vec![rule([])]);
    let objects = [
        count(Hook::Input, 0),
        count(Hook::Input, 99 + 1),
        count(Hook::Output, 0),
        hooked(
            ChainType::Nat,
            Hook::Postrouting,
            100,
            vec![rule([masquerade(NatFlags::empty())])],
        ),
    ];
    let ruleset: Ruleset = objects.into_iter().collect();
    let evaluator = Evaluator::new(&ruleset).with_function(Arc::new(Balancer));
    let outcomes = evaluator.evaluate(&to("192.0.2.1:80"), &host()).unwrap();
    let end = &outcomes[0];
    assert_eq!(end.disposition, Disposition::Sent("eth1".into()));
    assert_eq!(end.packet.to_string(), "udp 10.0.0.1:4000 -> 10.0.0.9:8080");
    let connection = end.connection.as_ref().unwrap();
    assert_eq!(
        connection.reply.to_string(),
        "10.0.0.9:8080 -> 10.0.0.1:4000"
    );
    let hooks: Vec<_> = end.trace.rules().map(|step| step.hook).collect();
    // The chain of hook `input` after the function sees no packet.
    assert_eq!(hooks, [Hook::Input, Hook::Output, Hook::Postrouting]);
    assert!(end.trace.to_string().contains("input: balanced\n"));
    let other = evaluator.evaluate(&to("192.0.2.1:81"), &host()).unwrap();
    assert_eq!(other[0].disposition, Disposition::Delivered);
    assert_eq!(other[0].trace.rules().count(), 2);
}

#[test]
fn an_extension_chooses_and_asks() {
    let outcomes = extended(drop_if("half"), &to("192.0.2.1:2")).unwrap();
    let shares = outcomes.iter().map(|it| it.probability.to_string());
    assert!(shares.eq(["1/2", "1/2"]));
    let error = extended(drop_if("asked"), &to("192.0.2.1:2")).unwrap_err();
    let unknown = Cause::unknown("whether IP set ports contains the packet");
    assert_eq!(error.cause, unknown);
}

#[test]
fn a_target_of_an_extension_changes_marks_and_translates() {
    let (name, revision, info) = (name("MOVE"), 0, vipline_nftables::Bytes::new());
    let target = Target {
        name,
        revision,
        info,
    };
    let rule = Rule::from_exprs([target.into()]);
    let nat = hooked(ChainType::Nat, Hook::Prerouting, -100, vec![rule]);
    let outcomes = extended([nat], &to("192.0.2.1:53")).unwrap();
    let end = &outcomes[0];
    assert_eq!(end.packet.destination(), ip("10.0.0.9"));
    assert_eq!(
        (end.packet.mark(), end.connection.as_ref().unwrap().mark),
        (5, 7)
    );
    assert_eq!(end.disposition, Disposition::Sent("eth1".into()));
}
