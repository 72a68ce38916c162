//! Handles of the objects that a commit adds.

use vipline_nftables::{Action, Added, Edit, Handle, Subject};

use super::*;

/// Returns the handles in a listing of the ruleset, by the text before them.
fn listed(lab: &Lab) -> Vec<(String, u64)> {
    let output = lab
        .netns
        .run(|| nft::succeeds(&["-a", "list", "ruleset"], ""));
    let handles = output.lines().filter_map(|line| {
        let (text, handle) = line.split_once(" # handle ")?;
        let text = text.trim().trim_end_matches(" {");
        Some((text.to_owned(), handle.parse().unwrap()))
    });
    handles.collect()
}

fn numbers(added: &[Added]) -> Vec<u64> {
    let number = |added: &Added| match added.handle {
        Handle::Table(handle) | Handle::Chain(handle) => handle,
        Handle::Rule(handle) => handle.0,
        _ => panic!("{added:?}"),
    };
    added.iter().map(number).collect()
}

#[test]
fn a_batch_returns_the_handles_of_what_it_added() {
    let mut lab = Lab::new();
    let ports = tcp_dport().is_in([22, 80]);
    let mut batch = lab.client.batch(None);
    batch.add_table(&table());
    batch.add_regular_chain(&table(), &name("input"));
    let rules = [
        Rule::new(Family::Inet, [ports, accept()]).unwrap(),
        rule(25),
        Rule::new(Family::Inet, [counter(), drop()]).unwrap(),
    ];
    for rule in &rules {
        batch.add_rule(&table(), &name("input"), RulePosition::Tail, rule);
    }
    let added = lab.client.commit_batch_with_handles(batch).unwrap();
    let expected = [
        "table inet filter",
        "chain input",
        "tcp dport { 22, 80 } accept",
        "tcp dport 25 accept",
        "counter packets 0 bytes 0 drop",
    ];
    let expected = expected.map(str::to_owned);
    let listed = listed(&lab);
    let texts = listed.iter().map(|(text, _)| text.clone());
    assert_eq!(texts.collect::<Vec<_>>(), expected);
    let handles: Vec<_> = listed.iter().map(|(_, handle)| *handle).collect();
    assert_eq!(numbers(&added), handles);
    let indexes: Vec<_> = added
        .iter()
        .map(|added| added.operation.subject.clone())
        .collect();
    assert_eq!(indexes, [0, 1, 2, 3, 4].map(Subject::Index));
    let rules: Vec<_> = added.iter().filter_map(Added::rule_handle).collect();
    assert_eq!(rules.len(), 3);

    // The table and the chain exist; the kernel reports the chain nevertheless. The first
    // rule is replaced, the last deleted.
    let mut batch = lab.client.batch(None);
    batch.add_table(&table());
    batch.add_regular_chain(&table(), &name("input"));
    batch.replace_rule(&table(), &name("input"), rules[0], &rule(443));
    batch.delete_rule(&table(), &name("input"), rules[2]);
    let added = lab.client.commit_batch_with_handles(batch).unwrap();
    let [chain, replaced] = &*added else {
        panic!("{added:?}")
    };
    assert_eq!(
        (numbers(&added)[0], chain.rule_handle()),
        (handles[1], None)
    );
    assert_eq!(replaced.operation.action, Action::Replace);
    let handle = replaced.rule_handle().unwrap();
    lab.client
        .delete_rule(&table(), &name("input"), handle)
        .unwrap();
    let left = vec![("tcp dport 25 accept".to_owned(), rules[1].0)];
    assert_eq!(self::listed(&lab)[2..], left);
    let empty = lab.client.batch(None);
    assert_eq!(lab.client.commit_batch_with_handles(empty).unwrap(), []);
}

#[test]
fn a_transaction_returns_the_handles_of_what_it_added() {
    let mut lab = Lab::new();
    let rules = (1..=5_000).map(rule);
    let chain = Chain::new(table(), name("input")).with_rules(rules);
    let port = ports().element(&[22_u16.into()]).unwrap();
    let objects: [Object; 4] = [
        Table::new(table()).into(),
        ports().into(),
        port.into(),
        chain.into(),
    ];
    let edits = objects.map(Edit::Add);
    let transaction = Transaction::from_edits(&edits);
    let generation = lab.client.generation().unwrap();
    let added = lab
        .client
        .commit_with_handles(&transaction, Some(generation))
        .unwrap();
    let texts: Vec<_> = added
        .iter()
        .map(|added| added.operation.to_string())
        .collect();
    assert_eq!(
        texts[..3],
        [
            "add table inet filter",
            "add chain inet filter input",
            "add rule inet filter input tcp dport 1 accept",
        ]
    );
    let handles: Vec<_> = added.iter().filter_map(Added::rule_handle).collect();
    let installed = lab.client.dump(&[table()]).unwrap();
    let rules: Vec<_> = installed.rules(&table(), &name("input")).collect();
    assert_eq!(rules.len(), 5_000);
    assert_eq!(handles, rules.iter().map(|it| it.0).collect::<Vec<_>>());

    let outdated = lab
        .client
        .commit_with_handles(&transaction, Some(generation))
        .unwrap_err();
    assert!(outdated.is_outdated(), "{outdated}");
    let none = Chain::new(table(), name("none"));
    let removal = Transaction::from_edits(&[Edit::Remove(none.into())]);
    let missing = lab.client.commit_with_handles(&removal, None).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "delete chain inet filter none: no such file or directory"
    );
}

#[test]
fn a_rule_with_an_anonymous_chain_has_one_handle() {
    let (mut lab, mut copy) = (Lab::new(), Lab::new());
    lab.nft(
        "table inet filter {\nchain input {\n\
         tcp dport 22 jump { ip saddr 192.0.2.1 accept; drop; }\n}\n}",
    );
    let objects = lab.client.dump(&[table()]).unwrap().into_objects();
    let edits: Vec<_> = objects.map(Edit::Add).collect();
    let transaction = Transaction::from_edits(&edits);
    let added = copy.client.commit_with_handles(&transaction, None).unwrap();
    let installed = copy.client.dump(&[table()]).unwrap();
    let rules: Vec<_> = installed.rules(&table(), &name("input")).collect();
    let handles: Vec<_> = added.iter().filter_map(Added::rule_handle).collect();
    assert_eq!((added.len(), handles), (3, vec![rules[0].0]));
}
