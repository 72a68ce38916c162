//! Agreement of encoder, text and nft: each installs the same rule.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "agreement/rules.rs"]
mod rules;

#[path = "agreement/actions.rs"]
mod actions;

use rules::{Case, Samples};
use testkit::netns::Netns;
use testkit::nft;
use vipline_nftables::{Client, Family, Object, Ruleset, Transaction};
use vipline_reconcile::{Edit, diff};

const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// Runs `nft` in a namespace. Returns stdout, or stderr on failure.
fn nft(netns: &Netns, args: &[&str], script: &str) -> Result<String, String> {
    let output = netns.run(|| nft::run(args, script));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(format!("{:?}: {}", output.status, text(output.stderr)))
    }
}

fn additions(objects: &[Object]) -> Transaction {
    let edits: Vec<_> = objects.iter().cloned().map(Edit::Add).collect();
    Transaction::from_edits(&edits)
}

/// Returns dump and listing after the client added the objects.
fn written_by_us(samples: &Samples, objects: &[Object]) -> (Ruleset, String) {
    let netns = Netns::new().unwrap();
    let mut client = netns.run(Client::open).unwrap();
    client.commit(&additions(objects)).unwrap();
    let ruleset = client.dump(&samples.table).unwrap();
    (ruleset, nft(&netns, &["list", "ruleset"], "").unwrap())
}

/// Returns dump and listing after nft loaded a script.
fn written_by_nft(samples: &Samples, script: &str) -> (Ruleset, String) {
    let netns = Netns::new().unwrap();
    if let Err(words) = nft(&netns, &["-f", "-"], script) {
        panic!("{words}\n{script}");
    }
    let mut client = netns.run(Client::open).unwrap();
    let ruleset = client.dump(&samples.table).unwrap();
    (ruleset, nft(&netns, &["list", "ruleset"], "").unwrap())
}

#[track_caller]
fn assert_same(one: &Ruleset, other: &Ruleset) {
    let other: Vec<Object> = other.objects().collect();
    let edits = diff(one.objects(), &other);
    assert!(
        edits.is_empty(),
        "{}\n{edits:?}",
        Transaction::from_edits(&edits)
    );
}

/// Returns the cases that nft can load, with their chains and sets.
fn loadable(samples: &Samples) -> Vec<Object> {
    let cases: Vec<Case> = samples
        .cases()
        .into_iter()
        .filter(|case| case.loads)
        .collect();
    samples.objects(&cases)
}

#[test]
fn every_rule_displays_in_nft_syntax() {
    for family in FAMILIES {
        for case in Samples::new(family).cases() {
            assert_eq!(case.rule.to_string(), case.text);
        }
    }
}

#[test]
fn a_dump_equals_the_added_objects() {
    for family in FAMILIES {
        let samples = Samples::new(family);
        let objects = samples.objects(&samples.cases());
        let (ruleset, _) = written_by_us(&samples, &objects);
        assert_same(&ruleset, &objects.into_iter().collect());
    }
}

#[test]
fn nft_loads_the_script_of_a_transaction_to_the_same_ruleset() {
    for family in FAMILIES {
        let samples = Samples::new(family);
        let objects = loadable(&samples);
        let (ours, _) = written_by_us(&samples, &objects);
        let (theirs, _) = written_by_nft(&samples, &additions(&objects).to_string());
        assert_same(&ours, &theirs);
    }
}

#[test]
fn nft_loads_the_text_of_a_dump_to_the_same_ruleset() {
    for family in FAMILIES {
        let samples = Samples::new(family);
        let objects = loadable(&samples);
        let (ours, _) = written_by_us(&samples, &objects);
        let script = objects.iter().cloned().collect::<Ruleset>().to_string();
        let (theirs, _) = written_by_nft(&samples, &script);
        assert_same(&ours, &theirs);
        let (again, _) = written_by_nft(&samples, &ours.to_string());
        assert_same(&ours, &again);
    }
}

#[test]
fn nft_loads_its_own_listing_to_the_same_ruleset() {
    for family in FAMILIES {
        let samples = Samples::new(family);
        let objects = loadable(&samples);
        let (ours, listing) = written_by_us(&samples, &objects);
        let (again, relisted) = written_by_nft(&samples, &listing);
        assert_same(&ours, &again);
        assert_eq!(listing, relisted);
    }
}
