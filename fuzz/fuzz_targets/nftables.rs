//! Decodes arbitrary messages as a dump of a table, and formats and encodes the objects.
//! Decodes the same messages as notifications, and the rules as those of iptables-nft.

use std::collections::HashSet;

use vipline_iptables::nft;
use vipline_netlink::message::Messages;
use vipline_nftables::{
    Assembler, Family, Name, Notifications, Object, Rule, TableId, Transaction,
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

/// Checks one input.
pub(crate) fn run(dump: &[u8]) {
    let table = |family| TableId::new(family, Name::new("t").expect("a good name"));
    let tables = [table(Family::Ip), table(Family::Ip6)];
    let mut assembler = Assembler::new(&tables);
    let mut notifications = Notifications::new(&tables);
    for message in Messages::new(dump).flatten() {
        let _ = assembler.push(message.ty, message.payload);
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
