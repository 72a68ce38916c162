//! Matches and targets of another crate.

use std::sync::Arc;

use super::*;
use crate::evaluate::{Context, Extensions, Flow, NatRange, Question, SetEntry, SetLookup};
use crate::expr::{Expr, Match, NatType, Target};

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
    let (name, revision, info) = (name(text), 0, crate::Bytes::new());
    Expr::from(Match {
        name,
        revision,
        info,
    })
}

fn drop_if(text: &str) -> [Object; 1] {
    let verdict = crate::expr::Immediate::from(Verdict::Drop);
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
    let (name, revision, info) = (name("MOVE"), 0, crate::Bytes::new());
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
