//! Decodes arbitrary messages as a dump of a table, and formats and encodes the objects.
//! Decodes the same messages as notifications and as single rules, and the rules as those
//! of iptables-nft.

use std::collections::HashSet;

use vipline_iptables::nft;
use vipline_netlink::message::Messages;
use vipline_nftables::{
    Assembler, BatchBuilder, Event, Family, InstalledRule, Name, Notifications, Object, Rule,
    RulePosition, TableId, Transaction,
};
use vipline_reconcile::{Edit, Keyed, diff};

/// Checks that a rule of iptables-nft has an encoding.
fn check_xtables(rule: &Rule) {
    for family in vipline_iptables::Family::ALL {
        if let Some(decoded) = nft::decode(rule, family) {
            let encoded = nft::encode(&decoded, family).expect("a decoded rule has an encoding");
            assert_eq!(nft::decode(&encoded, family), Some(decoded));
        }
    }
}

/// Checks that an event has a text.
fn check_event(event: &Event) {
    assert!(!event.to_string().is_empty());
}

/// Checks that a single rule is encoded as valid messages.
fn check_single(table: &TableId, rule: &Rule) {
    let mut batch = BatchBuilder::new(1, None);
    batch.add_rule(table, &table.name, RulePosition::Head, rule);
    let (bytes, _) = batch.finish();
    assert_eq!(Messages::new(&bytes).filter(Result::is_err).count(), 0);
}

/// Checks one input.
pub(crate) fn run(dump: &[u8]) {
    let table = |family| TableId::new(family, Name::new("t").expect("a good name"));
    let tables = [table(Family::Ip), table(Family::Ip6)];
    let mut assembler = Assembler::new(&tables);
    let mut notifications = Notifications::new(&tables);
    let mut events = Notifications::all().with_events();
    for message in Messages::new(dump).flatten() {
        let _ = assembler.push(message.ty, message.payload);
        if let Ok(Some(commit)) = events.push(message) {
            commit.events.iter().for_each(check_event);
        }
        if let Ok(rule) = InstalledRule::read(message.payload)
            && let Ok(rule) = rule.decode()
        {
            check_single(&tables[0], &rule);
        }
        if let Ok(Some(commit)) = notifications.push(message) {
            assert!(
                commit
                    .changes
                    .iter()
                    .all(|(table, _)| tables.contains(table))
            );
        }
    }
    let ruleset = assembler.finish();
    let text = ruleset.to_string();
    let objects: Vec<_> = ruleset.into_objects().collect();
    assert_eq!(text.is_empty(), objects.is_empty());
    for object in &objects {
        if let Object::Chain(chain) = object {
            chain.rules.iter().for_each(check_xtables);
        }
    }
    let keys: HashSet<_> = objects.iter().map(Keyed::key).collect();
    // A dump may contain an element twice if the kernel resizes the set during the dump.
    if keys.len() == objects.len() {
        assert!(diff(objects.clone(), &objects).is_empty());
    }
    let edits: Vec<_> = objects.into_iter().map(Edit::Add).collect();
    let transaction = Transaction::from_edits(&edits);
    let _ = transaction.to_string();
    let batch = transaction.encode(1, None);
    assert_eq!(
        Messages::new(batch.bytes()).filter(Result::is_err).count(),
        0
    );
}
