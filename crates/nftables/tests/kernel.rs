//! Transactions and dumps with a real kernel, checked with dumps and `nft`.
//!
//! Each test runs in its own network namespace. A missing program is a failure.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "kernel/samples.rs"]
pub(crate) mod samples;

use std::collections::BTreeSet;
use std::env;
use std::process::Command;

use testkit::netns::Netns;
use testkit::nft;
use vipline_netlink::{Errno, Error as NetlinkError};
use vipline_nftables::expr::{Counter, Expr};
use vipline_nftables::{
    Client, DataKind, Error, Name, Object, Ruleset, Set, StatefulObject, TableId, Transaction,
};
use vipline_reconcile::{Edit, diff};

/// A network namespace with a client.
struct Lab {
    netns: Netns,
    client: Client,
}

impl Lab {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(Client::open).unwrap();
        Self { netns, client }
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<(), Error> {
        self.client.commit(&Transaction::from_edits(edits))
    }

    fn add(&mut self, objects: &[Object]) {
        let edits: Vec<_> = objects.iter().cloned().map(Edit::Add).collect();
        self.commit(&edits).unwrap();
    }

    fn dump(&mut self, table: &TableId) -> Ruleset {
        self.client.dump(table).unwrap()
    }

    /// Asserts that the table contains exactly these objects.
    #[track_caller]
    fn assert_installed(&mut self, table: &TableId, wanted: &[Object]) {
        let edits = diff(self.dump(table).into_objects(), wanted);
        assert!(edits.is_empty(), "{}", Transaction::from_edits(&edits));
    }

    /// Runs `nft` in the namespace. Panics if it fails.
    #[track_caller]
    fn nft(&self, args: &[&str]) -> String {
        let output = self.netns.run(|| nft::run(args, ""));
        assert!(output.status.success(), "nft {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Loads a script with `nft`. Panics if it fails.
    #[track_caller]
    fn load(&self, script: &str) {
        let output = self.netns.run(|| nft::run(&["-f", "-"], script));
        assert!(output.status.success(), "{script}\n{output:?}");
    }

    /// Asserts that `nft` lists the ruleset as text and JSON. Returns the text.
    #[track_caller]
    fn assert_listable(&self) -> String {
        let json = self.nft(&["-j", "list", "ruleset"]);
        serde_json::from_str::<serde_json::Value>(&json).unwrap();
        self.nft(&["list", "ruleset"])
    }

    /// Returns the number of elements of a set that `nft` lists.
    fn count(&self, set: &Set) -> usize {
        let (family, table) = (set.table.family.as_str(), set.table.name.as_str());
        let kind = if set.data == DataKind::None {
            "set"
        } else {
            "map"
        };
        let json = self.nft(&["-j", "list", kind, family, table, set.name.as_str()]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["nftables"][1][kind]["elem"]
            .as_array()
            .map_or(0, Vec::len)
    }
}

/// Returns the lines of a text, sorted: `nft` lists chains by age.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn every_kind_of_object_is_added_listed_and_dumped() {
    let mut lab = Lab::new();
    for table in samples::tables() {
        let objects = samples::objects(&table);
        lab.add(&objects);
        lab.assert_installed(&table, &objects);
    }
    lab.assert_listable();
}

#[test]
fn every_expression_is_added_listed_and_dumped() {
    let mut lab = Lab::new();
    let table = samples::table();
    lab.load("table ip samples { counter hits { }; }");
    let objects = samples::expressions(&table);
    lab.add(&objects);
    let hits = StatefulObject::new(
        table.clone(),
        Name::new("hits").unwrap(),
        Counter::default(),
    );
    let installed = [&objects[..], &[hits.into()]].concat();
    lab.assert_installed(&table, &installed);
    lab.assert_listable();

    let used: BTreeSet<&str> = objects
        .iter()
        .filter_map(|object| match object {
            Object::Chain(chain) => Some(chain),
            _ => None,
        })
        .flat_map(|chain| chain.rules.iter().flat_map(|rule| &rule.exprs))
        .map(Expr::name)
        .collect();
    let missing: Vec<_> = Expr::NAMES
        .iter()
        .filter(|name| !used.contains(**name) && !samples::EXCLUDED.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_text_of_a_dump_loads_and_lists_like_the_original() {
    let mut written = Lab::new();
    let table = samples::table();
    let counter = "table ip samples { counter hits { }; }";
    written.load(counter);
    written.add(&samples::expressions(&table));
    let text = written.dump(&table).to_string();

    let loaded = Lab::new();
    loaded.load(counter);
    loaded.load(&text);
    let [loaded, written] = [loaded, written].map(|lab| sorted(&lab.assert_listable()));
    assert_eq!(loaded, written);
}

#[test]
fn a_dump_of_a_missing_table_is_empty() {
    let mut lab = Lab::new();
    assert_eq!(lab.dump(&samples::table()).objects().count(), 0);
}

#[test]
fn a_dump_contains_only_the_requested_tables() {
    let mut lab = Lab::new();
    lab.load("table ip other { set s { type ipv4_addr; elements = { 10.0.0.1 } }; chain c { accept; }; }");
    let table = samples::table();
    let objects = samples::objects(&table);
    lab.add(&objects);
    lab.assert_installed(&table, &objects);
}

#[test]
fn thirty_thousand_elements_are_one_transaction_and_one_send() {
    const ELEMENTS: usize = 30_000;
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, mut objects) = samples::dispatch(&table);
    lab.add(&objects);
    let before = lab.client.counters();
    let elements = samples::dispatch_elements(&set, ELEMENTS);
    lab.add(&elements);
    let after = lab.client.counters();
    assert_eq!(after.sends - before.sends, 1);
    assert!(after.bytes_sent - before.bytes_sent > 20 * ELEMENTS as u64);
    assert_eq!(lab.count(&set), ELEMENTS);
    objects.extend(elements);
    lab.assert_installed(&table, &objects);
}

#[test]
fn a_rejected_object_is_named_and_nothing_is_applied() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    lab.add(&objects);
    let listed = lab.assert_listable();

    let elements = samples::dispatch_elements(&set, 5000);
    let mut edits: Vec<_> = elements[..4000].iter().cloned().map(Edit::Add).collect();
    edits.push(Edit::Remove(elements[4321].clone()));
    let error = lab.commit(&edits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "delete element ip samples service-ips { 10.0.16.225 . tcp . 80 }: \
         no such file or directory"
    );
    assert!(error.is_not_found());
    assert_eq!(error.errno(), Some(Errno::NOENT));
    assert!(!error.may_be_applied());
    assert_eq!(lab.assert_listable(), listed);
}

#[test]
fn the_rejected_element_of_a_list_is_named() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    lab.add(&objects);
    let elements = samples::dispatch_elements(&set, 3000);
    // Returns the same key with another verdict.
    lab.add(&[samples::dropped(&elements[2345])]);
    let edits: Vec<_> = elements.iter().cloned().map(Edit::Add).collect();
    let error = lab.commit(&edits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "add element ip samples service-ips { 10.0.9.41 . tcp . 80 : accept }: file exists"
    );
    assert!(error.is_already_exists());
    assert_eq!(lab.count(&set), 1);
}

#[test]
fn every_rejected_operation_is_reported() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    lab.add(&objects);
    let gone = samples::dispatch_elements(&set, 1).remove(0);
    let chain = samples::empty_chain(&table, "nowhere");
    let error = lab
        .commit(&[Edit::Remove(gone), Edit::Remove(chain)])
        .unwrap_err();
    let Error::Rejected { rejected, more, .. } = error else {
        panic!("{error}");
    };
    assert!(rejected.len() >= 2, "{rejected:?}");
    assert_eq!(more, Some(0));
}

#[test]
fn every_rejected_operation_of_a_large_transaction_is_counted() {
    const COUNT: usize = 1500;
    let mut lab = Lab::new();
    let table = samples::table();
    lab.add(&samples::dispatch(&table).1);
    let name = |number: usize| format!("missing-{number}");
    let edits = (0..COUNT).map(|number| Edit::Remove(samples::empty_chain(&table, &name(number))));
    let error = lab.commit(&edits.collect::<Vec<_>>()).unwrap_err();
    let Error::Rejected { rejected, more, .. } = &error else {
        panic!("{error}");
    };
    let named: BTreeSet<_> = rejected.iter().map(|one| one.request.to_string()).collect();
    assert_eq!(named.len(), rejected.len());
    assert_eq!(rejected.len() + more.unwrap(), COUNT, "{error}");
}

#[test]
fn an_object_in_use_cannot_be_deleted() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    lab.add(&objects);
    let error = lab.commit(&[Edit::Remove(set.into())]).unwrap_err();
    assert!(error.is_busy(), "{error}");
}

#[test]
fn objects_are_deleted_in_any_order_of_edits() {
    for reverse in [false, true] {
        let mut lab = Lab::new();
        let table = samples::table();
        let mut objects = samples::objects(&table);
        lab.add(&objects);
        // Keep the table: its deletion would delete everything else.
        objects.retain(|object| !matches!(object, Object::Table(_)));
        if reverse {
            objects.reverse();
        }
        let edits: Vec<_> = objects.into_iter().map(Edit::Remove).collect();
        lab.commit(&edits).unwrap();
        let mut empty = Lab::new();
        empty.add(&samples::objects(&table)[..1]);
        assert_eq!(lab.assert_listable(), empty.assert_listable());
    }
}

#[test]
fn a_deleted_table_deletes_its_objects() {
    let mut lab = Lab::new();
    let table = samples::table();
    let objects = samples::objects(&table);
    lab.add(&objects);
    let edits: Vec<_> = objects.into_iter().map(Edit::Remove).collect();
    lab.commit(&edits).unwrap();
    assert_eq!(lab.assert_listable(), "");
}

#[test]
fn an_element_moves_to_a_new_chain_while_the_old_one_is_deleted() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, mut objects) = samples::dispatch(&table);
    let old = samples::empty_chain(&table, "old");
    let new = samples::empty_chain(&table, "new");
    let to_old = samples::goto(&set, "old");
    let to_new = samples::goto(&set, "new");
    objects.extend([old.clone(), to_old.clone()]);
    lab.add(&objects);
    lab.commit(&[
        Edit::Remove(old),
        Edit::Change {
            old: to_old,
            new: to_new.clone(),
        },
        Edit::Add(new.clone()),
    ])
    .unwrap();
    objects.truncate(objects.len() - 2);
    objects.extend([new, to_new]);
    lab.assert_installed(&table, &objects);
}

#[test]
fn a_transaction_without_edits_is_not_sent() {
    let mut lab = Lab::new();
    lab.commit(&[]).unwrap();
    assert_eq!(lab.client.counters().sends, 0);
}

#[test]
fn the_generation_counts_commits() {
    let mut lab = Lab::new();
    let before = lab.client.generation().unwrap();
    lab.add(&samples::objects(&samples::table()));
    assert_eq!(lab.client.generation().unwrap(), before.next());
}

/// Elements move between two sets during dumps. Each dump must contain every
/// element once or return `Interrupted`.
#[test]
fn a_dump_during_commits_is_consistent_or_interrupted() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (sets, objects) = samples::two_sets(&table);
    lab.add(&objects);
    let [left, right] = samples::hops(&sets, 400);
    lab.add(&left);
    let mut other = lab.netns.run(Client::open).unwrap();
    let hops = |from: &[Object], to: &[Object]| {
        let gone = from.iter().cloned().map(Edit::Remove);
        let edits: Vec<_> = gone.chain(to.iter().cloned().map(Edit::Add)).collect();
        Transaction::from_edits(&edits)
    };
    let both = [hops(&left, &right), hops(&right, &left)];
    let (mut whole, mut interrupted) = (0, 0);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for _ in 0..150 {
                for hop in &both {
                    other.commit(hop).unwrap();
                }
            }
        });
        while !mover.is_finished() && whole + interrupted < 10_000 {
            match lab.client.dump(&table) {
                Ok(ruleset) => {
                    let elements = |object: &Object| matches!(object, Object::Element(_));
                    assert_eq!(ruleset.objects().filter(elements).count(), left.len());
                    whole += 1;
                }
                Err(Error::Interrupted { .. }) => interrupted += 1,
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert!(whole + interrupted > 0);
    assert_eq!(
        lab.dump(&table).objects().count(),
        objects.len() + left.len()
    );
}

/// Environment variable that marks the unprivileged child process of a test.
const CHILD: &str = "VIPLINE_TEST_IS_INSIDE_A_USER_NAMESPACE";

/// Returns whether this process was started by [`rerun`].
fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs one test of this file again, under a program that drops privileges.
fn rerun(program: &str, args: &[&str], test: &str) {
    let test = match module_path!().split_once("::") {
        Some((_, module)) => format!("{module}::{test}"),
        None => test.to_owned(),
    };
    let output = Command::new(program)
        .args(args)
        .arg(env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("the program is installed");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{output:?}"
    );
}

#[test]
fn a_transaction_too_large_for_the_unprivileged_is_not_begun() {
    if !is_child() {
        let args = ["--user", "--map-root-user", "--net"];
        let test = "a_transaction_too_large_for_the_unprivileged_is_not_begun";
        return rerun("unshare", &args, test);
    }
    let mut client = Client::open().unwrap();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    let edits: Vec<_> = objects.iter().cloned().map(Edit::Add).collect();
    client.commit(&Transaction::from_edits(&edits)).unwrap();

    let elements = samples::dispatch_elements(&set, 250_000);
    let edits: Vec<_> = elements.into_iter().map(Edit::Add).collect();
    let error = client.commit(&Transaction::from_edits(&edits)).unwrap_err();
    assert!(!error.may_be_applied());
    let Error::Netlink(NetlinkError::BatchTooLarge { bytes, limit }) = error else {
        panic!("{error}");
    };
    assert!(bytes > limit && limit > 100_000, "{bytes} {limit}");

    // Half the limit still fits, with a send buffer above the default.
    let part = &edits[..edits.len() * (limit / 2) / bytes];
    client.commit(&Transaction::from_edits(part)).unwrap();
    let installed = client.dump(&[table]).unwrap();
    assert_eq!(installed.objects().count(), objects.len() + part.len());
}

#[test]
fn a_missing_capability_is_named() {
    if !is_child() {
        let args = ["--net", "setpriv", "--bounding-set=-net_admin"];
        return rerun("unshare", &args, "a_missing_capability_is_named");
    }
    let mut client = Client::open().unwrap();
    let table = samples::table();
    let (_, objects) = samples::dispatch(&table);
    let edits: Vec<_> = objects.into_iter().map(Edit::Add).collect();
    let dumped = client.dump(&[table]).unwrap_err();
    let committed = client.commit(&Transaction::from_edits(&edits)).unwrap_err();
    for error in [dumped, committed] {
        assert!(matches!(error, Error::Denied), "{error:?}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    }
}
