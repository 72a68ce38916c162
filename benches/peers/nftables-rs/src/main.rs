//! The jobs by nftables, which writes and reads the JSON of the program `nft`.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::process::ExitCode;

use jobs::{Outcome, expect};
use nftables::batch::Batch;
use nftables::expr::{Expression, NamedExpression, Payload, PayloadField};
use nftables::helper::{DEFAULT_NFT, apply_ruleset, get_current_ruleset_with_args};
use nftables::schema::{Chain, Element, NfListObject, NfObject, Rule, Set, SetType, SetTypeValue};
use nftables::stmt::{Accept, Counter, Match, Operator, Statement};
use nftables::types::{NfChainType, NfFamily, NfHook};

fn main() -> ExitCode {
    jobs::main(|job, _| {
        Some(match job {
            jobs::ADD_ELEMENTS => add_elements(),
            jobs::ADD_RULES => add_rules(),
            jobs::READ_RULES => read_rules(),
            _ => return None,
        })
    })
}

fn add_elements() -> Outcome<()> {
    let mut batch = Batch::new();
    batch.add(NfListObject::Set(Box::new(Set {
        family: NfFamily::IP,
        table: jobs::TABLE.into(),
        name: jobs::SET.into(),
        set_type: SetTypeValue::Single(SetType::Ipv4Addr),
        ..Set::default()
    })));
    let elements = jobs::addresses().map(|address| Expression::String(address.to_string().into()));
    batch.add(NfListObject::Element(Element {
        family: NfFamily::IP,
        table: jobs::TABLE.into(),
        name: jobs::SET.into(),
        elem: elements.collect::<Vec<_>>().into(),
    }));
    Ok(apply_ruleset(&batch.to_nftables())?)
}

fn is(
    protocol: &'static str,
    field: &'static str,
    right: Expression<'static>,
) -> Statement<'static> {
    let field = PayloadField {
        protocol: protocol.into(),
        field: field.into(),
    };
    let payload = Payload::PayloadField(field);
    Statement::Match(Match {
        left: Expression::Named(NamedExpression::Payload(payload)),
        right,
        op: Operator::EQ,
    })
}

fn add_rules() -> Outcome<()> {
    let mut batch = Batch::new();
    batch.add(NfListObject::Chain(Chain {
        family: NfFamily::IP,
        table: jobs::TABLE.into(),
        name: jobs::CHAIN.into(),
        _type: Some(NfChainType::Filter),
        hook: Some(NfHook::Input),
        prio: Some(0),
        ..Chain::default()
    }));
    for (source, port) in jobs::rules() {
        let exprs = vec![
            is("ip", "saddr", Expression::String(source.to_string().into())),
            is("tcp", "dport", Expression::Number(port.into())),
            Statement::Counter(Counter::Anonymous(None)),
            Statement::Accept(Some(Accept {})),
        ];
        batch.add(NfListObject::Rule(Rule {
            family: NfFamily::IP,
            table: jobs::TABLE.into(),
            chain: jobs::CHAIN.into(),
            expr: Cow::Owned(exprs),
            ..Rule::default()
        }));
    }
    Ok(apply_ruleset(&batch.to_nftables())?)
}

fn read_rules() -> Outcome<()> {
    let arguments = ["list", "table", "ip", jobs::TABLE];
    let ruleset = get_current_ruleset_with_args(DEFAULT_NFT, arguments)?;
    let is_rule =
        |object: &&NfObject<'_>| matches!(object, NfObject::ListObject(NfListObject::Rule(_)));
    expect(ruleset.objects.iter().filter(is_rule).count(), jobs::RULES)
}
