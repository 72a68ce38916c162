//! Transactions and dumps with a real kernel, judged by `nft` beside our own dump.
//!
//! Each test has a network namespace of its own; a program that is missing is
//! a failure.
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
use vipline_netlink::Errno;
use vipline_nftables::expr::Expr;
use vipline_nftables::{
    Client, Committed, DataKind, Error, Object, Ruleset, Set, TableId, Transaction,
};
use vipline_reconcile::{Edit, diff};

/// Opens a client; these are also tests of libnftnl, as a part of `nftnl.rs`.
fn open() -> Result<Client, Error> {
    #[cfg(feature = "nftnl")]
    if module_path!().starts_with("nftnl") {
        return Client::open_with(vipline_nftables::Encoder::Nftnl);
    }
    Client::open()
}

/// A namespace, and a client in it.
struct Lab {
    netns: Netns,
    client: Client,
}

impl Lab {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(open).unwrap();
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
        self.client.dump(std::slice::from_ref(table)).unwrap()
    }

    /// Fails unless the kernel has exactly these objects in the table.
    #[track_caller]
    fn assert_installed(&mut self, table: &TableId, wanted: &[Object]) {
        let edits = diff(self.dump(table).into_objects(), wanted);
        assert!(edits.is_empty(), "{}", Transaction::from_edits(&edits));
    }

    /// Runs `nft` in the namespace, which has to succeed.
    #[track_caller]
    fn nft(&self, args: &[&str]) -> String {
        let output = self.netns.run(|| nft::run(args, ""));
        assert!(output.status.success(), "nft {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Loads a script, which has to succeed.
    #[track_caller]
    fn load(&self, script: &str) {
        let output = self.netns.run(|| nft::run(&["-f", "-"], script));
        assert!(output.status.success(), "{script}\n{output:?}");
    }

    /// Fails unless `nft` lists the ruleset as text and as JSON; returns the text.
    #[track_caller]
    fn assert_listable(&self) -> String {
        let json = self.nft(&["-j", "list", "ruleset"]);
        serde_json::from_str::<serde_json::Value>(&json).unwrap();
        self.nft(&["list", "ruleset"])
    }

    /// Counts the elements of a set, as `nft` lists them.
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

/// The lines of a text in an order of their own: `nft` lists chains by age.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn every_kind_of_object_is_written_listed_and_read_back() {
    let mut lab = Lab::new();
    for table in samples::tables() {
        let objects = samples::objects(&table);
        lab.add(&objects);
        lab.assert_installed(&table, &objects);
    }
    lab.assert_listable();
}

#[test]
fn every_expression_is_written_listed_and_read_back() {
    let mut lab = Lab::new();
    let table = samples::table();
    lab.load("table ip samples { counter hits { }; }");
    let objects = samples::expressions(&table);
    lab.add(&objects);
    lab.assert_installed(&table, &objects);
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
        .filter(|name| !used.contains(**name) && **name != samples::NEEDS_FLOWTABLES)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_text_of_a_dump_loads_and_lists_as_what_was_written() {
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
fn an_unknown_table_is_absent_and_no_error() {
    let mut lab = Lab::new();
    assert_eq!(lab.dump(&samples::table()).objects().count(), 0);
}

#[test]
fn only_the_tables_that_are_named_are_read() {
    let mut lab = Lab::new();
    lab.load("table ip other { set s { type ipv4_addr; elements = { 10.0.0.1 } }; chain c { accept; }; }");
    let table = samples::table();
    let objects = samples::objects(&table);
    lab.add(&objects);
    lab.assert_installed(&table, &objects);
}

#[test]
fn a_hundred_thousand_elements_are_one_transaction_and_one_send() {
    const ELEMENTS: usize = 100_000;
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
fn a_refused_object_is_named_and_nothing_is_done() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    lab.add(&objects);
    let listed = lab.assert_listable();

    let elements = samples::dispatch_elements(&set, 5000);
    let mut edits: Vec<_> = elements[..4000].iter().cloned().map(Edit::Add).collect();
    edits.push(Edit::Remove(elements[4321].clone()));
    let refused = lab.commit(&edits).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "delete element ip samples service-ips { 10.0.16.225 . tcp . 80 }: \
         no such file or directory"
    );
    assert!(refused.is_not_found());
    assert_eq!(refused.errno(), Some(Errno::NOENT));
    assert_eq!(refused.committed(), Committed::No);
    assert_eq!(lab.assert_listable(), listed);
}

#[test]
fn the_one_refused_element_among_many_is_named() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    lab.add(&objects);
    let elements = samples::dispatch_elements(&set, 3000);
    // The same key with another verdict.
    lab.add(&[samples::dropped(&elements[2345])]);
    let edits: Vec<_> = elements.iter().cloned().map(Edit::Add).collect();
    let refused = lab.commit(&edits).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "add element ip samples service-ips { 10.0.9.41 . tcp . 80 : accept }: file exists"
    );
    assert!(refused.is_already_exists());
    assert_eq!(lab.count(&set), 1);
}

#[test]
fn every_refused_operation_is_told() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    lab.add(&objects);
    let gone = samples::dispatch_elements(&set, 1).remove(0);
    let chain = samples::empty_chain(&table, "nowhere");
    let error = lab
        .commit(&[Edit::Remove(gone), Edit::Remove(chain)])
        .unwrap_err();
    let Error::Rejected { rejected, more } = error else {
        panic!("{error}");
    };
    assert!(rejected.len() >= 2, "{rejected:?}");
    assert_eq!(more, 0);
}

#[test]
fn what_is_in_use_cannot_be_deleted() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    lab.add(&objects);
    let refused = lab.commit(&[Edit::Remove(set.into())]).unwrap_err();
    assert!(refused.is_busy(), "{refused}");
}

#[test]
fn all_goes_in_whatever_order_it_is_removed() {
    for reverse in [false, true] {
        let mut lab = Lab::new();
        let table = samples::table();
        let mut objects = samples::objects(&table);
        lab.add(&objects);
        // The table is kept, for it would take everything with it.
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
fn a_table_takes_what_is_in_it_along() {
    let mut lab = Lab::new();
    let table = samples::table();
    let objects = samples::objects(&table);
    lab.add(&objects);
    let edits: Vec<_> = objects.into_iter().map(Edit::Remove).collect();
    lab.commit(&edits).unwrap();
    assert_eq!(lab.assert_listable(), "");
}

#[test]
fn an_element_moves_to_a_new_chain_as_the_old_one_goes() {
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

/// Elements move between two sets while they are read: each dump has all of
/// them once, or says that it was interrupted.
#[test]
fn a_dump_under_commits_is_one_state_or_none() {
    let mut lab = Lab::new();
    let table = samples::table();
    let (sets, objects) = samples::two_sets(&table);
    lab.add(&objects);
    let [left, right] = samples::hops(&sets, 400);
    lab.add(&left);
    let mut other = lab.netns.run(open).unwrap();
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
            match lab.client.dump(std::slice::from_ref(&table)) {
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

/// Set for tests that run without some privilege.
const INSIDE: &str = "VIPLINE_TEST_IS_INSIDE_A_USER_NAMESPACE";

/// Tells whether this is a test that [`again`] runs.
fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs one test of this file again, by a program that takes privileges away.
fn again(program: &str, args: &[&str], test: &str) {
    let test = match module_path!().split_once("::") {
        Some((_, module)) => format!("{module}::{test}"),
        None => test.to_owned(),
    };
    let output = Command::new(program)
        .args(args)
        .arg(env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("the program is installed");
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && words.contains("1 passed"),
        "{output:?}"
    );
}

#[test]
fn a_transaction_too_large_for_the_unprivileged_is_not_begun() {
    if !is_inside() {
        let args = ["--user", "--map-root-user", "--net"];
        let test = "a_transaction_too_large_for_the_unprivileged_is_not_begun";
        return again("unshare", &args, test);
    }
    let mut client = open().unwrap();
    let table = samples::table();
    let (set, objects) = samples::dispatch(&table);
    let edits: Vec<_> = objects.iter().cloned().map(Edit::Add).collect();
    client.commit(&Transaction::from_edits(&edits)).unwrap();

    let elements = samples::dispatch_elements(&set, 250_000);
    let edits: Vec<_> = elements.into_iter().map(Edit::Add).collect();
    let refused = client.commit(&Transaction::from_edits(&edits)).unwrap_err();
    let Error::BatchTooLarge { bytes, limit } = refused else {
        panic!("{refused}");
    };
    assert!(bytes > limit && limit > 100_000, "{bytes} {limit}");
    assert_eq!(refused.committed(), Committed::No);

    // Half the limit still goes, by a buffer larger than the default.
    let part = &edits[..edits.len() * (limit / 2) / bytes];
    client.commit(&Transaction::from_edits(part)).unwrap();
    let installed = client.dump(&[table]).unwrap();
    assert_eq!(installed.objects().count(), objects.len() + part.len());
}

#[test]
fn a_missing_capability_is_named() {
    if !is_inside() {
        let args = ["--net", "setpriv", "--bounding-set=-net_admin"];
        return again("unshare", &args, "a_missing_capability_is_named");
    }
    let mut client = open().unwrap();
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
