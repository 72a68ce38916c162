//! Property tests: values decode to themselves, and no input causes a panic.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "laws/arbitrary.rs"]
mod arbitrary;

use arbitrary::{all_objects, expr, table};
use proptest::collection::vec;
use proptest::prelude::*;
use vipline_netlink::message::Messages;
use vipline_nftables::expr::Expr;
use vipline_nftables::{
    Assembler, Datatype, Name, Object, Rule, Ruleset, Set, Transaction, Value, wire,
};
use vipline_reconcile::{Edit, diff};

/// Decodes the messages of a transaction that adds objects, like a dump.
fn echoed(objects: &[Object]) -> Ruleset {
    let edits: Vec<_> = objects.iter().cloned().map(Edit::Add).collect();
    let transaction = Transaction::from_edits(&edits);
    let batch = transaction.encode(7, Some(3));
    let mut assembler = Assembler::new(&[table()]);
    for message in Messages::new(batch.bytes()) {
        let message = message.unwrap();
        // The begin and end messages of the batch are not nf_tables messages.
        if message.ty > 0xff {
            assembler.push(message.ty, message.payload).unwrap();
        }
    }
    assembler.finish()
}

proptest! {
    #[test]
    fn an_expression_decodes_to_itself(expr in expr()) {
        let mut out = Vec::new();
        expr.encode(&mut out);
        let decoded = Expr::decode(&out).unwrap();
        let mut again = Vec::new();
        decoded.encode(&mut again);
        prop_assert_eq!(again, out);
    }

    #[test]
    fn objects_decode_to_themselves(objects in all_objects()) {
        let edits = diff(echoed(&objects), &objects);
        prop_assert!(edits.is_empty(), "{edits:?}");
    }

    #[test]
    fn decoding_arbitrary_bytes_as_an_expression_does_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Expr::decode(&bytes);
    }

    #[test]
    fn decoding_a_truncated_or_corrupted_expression_does_not_panic(expr in expr(), cut in any::<prop::sample::Index>(), with in any::<u8>()) {
        let mut out = Vec::new();
        expr.encode(&mut out);
        let at = cut.index(out.len());
        let _ = Expr::decode(&out[..at]);
        out[at] = with;
        if let Ok(expr) = Expr::decode(&out) {
            let _ = Rule::from_exprs([expr]).to_string();
        }
    }

    #[test]
    fn every_rule_has_text(exprs in vec(expr(), 0..8)) {
        let _ = Rule::from_exprs(exprs).to_string();
    }

    #[test]
    fn the_assembler_does_not_panic_on_arbitrary_bytes(messages in vec((0..20_u16, vec(any::<u8>(), 0..200)), 0..6)) {
        let mut assembler = Assembler::new(&[table()]);
        for (kind, mut payload) in messages {
            payload.splice(0..0, [1, 0, 0, 0]);
            let _ = assembler.push(u16::from(wire::NFNL_SUBSYS_NFTABLES) << 8 | kind, &payload);
            let _ = wire::generation(&payload);
        }
        let _ = assembler.finish().to_string();
    }

    #[test]
    fn a_value_fits_or_is_an_error(number in any::<u64>()) {
        let set = Set::new(table(), Name::new("s").unwrap(), [Datatype::InetService]);
        let fits = set.element(&[Value::from(number)]).is_ok();
        prop_assert_eq!(fits, number <= u64::from(u16::MAX));
    }
}
