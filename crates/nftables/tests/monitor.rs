//! The monitor with a real kernel. Each test runs in its own network namespace.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "nft is the other one"
)]

use std::time::Duration;

use testkit::netns::Netns;
use testkit::nft;
use tokio::runtime::Builder;
use tokio::time::timeout;
use vipline_nftables::netlink::tokio::EventStream;
use vipline_nftables::{
    ChangeCounts, Client, Commit, Datatype, Error, Family, Monitor, Name, Object, Set, SetFlags,
    Table, TableId, Transaction, Value,
};
use vipline_reconcile::Edit;

/// Number of elements whose notifications overrun the receive buffer.
const MANY: u32 = 20_000;

/// Time after which a test fails that waits.
const PATIENCE: Duration = Duration::from_secs(20);

/// A namespace with a monitored table and set, a client, and a monitor.
struct Lab {
    netns: Netns,
    client: Client,
    monitor: Monitor,
    set: Set,
}

impl Lab {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        let mut client = netns.run(Client::open).unwrap();
        let table = TableId::new(Family::Ip, Name::new("ours").unwrap());
        let set = Set::new(
            table.clone(),
            Name::new("numbers").unwrap(),
            [Datatype::Mark],
        );
        let add = [Table::new(table.clone()).into(), Object::Set(set.clone())].map(Edit::Add);
        client.commit(&Transaction::from_edits(&add)).unwrap();
        let other = TableId::new(Family::Ip6, Name::new("ours").unwrap());
        let monitor = netns.run(|| Monitor::open(&[table, other], &[client.port_id()]));
        Self {
            netns,
            client,
            monitor: monitor.unwrap(),
            set,
        }
    }

    /// Changes the ruleset as another process.
    #[track_caller]
    fn nft(&self, script: &str) {
        let output = self.netns.run(|| nft::run(&["-f", "-"], script));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
    }

    fn commits(&mut self) -> Vec<Commit> {
        let notification = self.monitor.read().unwrap();
        assert!(!notification.is_incomplete);
        notification.commits
    }

    /// Runs a script as another process. Returns the changes of the only table.
    #[track_caller]
    fn changes(&mut self, script: &str) -> ChangeCounts {
        self.nft(script);
        let commits = self.commits();
        let [commit] = &*commits else {
            panic!("{commits:?}")
        };
        let [(table, changes)] = &*commit.changes else {
            panic!("{commit:?}")
        };
        assert_eq!(table, &self.set.table);
        *changes
    }

    /// Adds elements with the client, which the monitor ignores.
    fn add(&mut self, numbers: std::ops::Range<u32>) {
        let element = |number| self.set.element(&[Value::from(number)]).unwrap();
        let edits: Vec<_> = numbers
            .map(|number| Edit::Add(Object::Element(element(number))))
            .collect();
        self.client
            .commit(&Transaction::from_edits(&edits))
            .unwrap();
    }
}

/// Returns a script that adds elements.
fn elements(numbers: impl IntoIterator<Item = u32>) -> String {
    let numbers: Vec<_> = numbers.into_iter().map(|n| n.to_string()).collect();
    format!("add element ip ours numbers {{ {} }}\n", numbers.join(", "))
}

#[test]
fn changes_by_another_process_are_counted_by_kind() {
    let mut lab = Lab::new();
    let changes = lab.changes(
        "add chain ip ours c\nadd rule ip ours c accept\nadd rule ip ours c drop\n\
         add counter ip ours n",
    );
    let kinds = (changes.chains, changes.rules, changes.others);
    assert_eq!((kinds, changes.total()), ((1, 2, 1), 4));
    assert_eq!(lab.changes(&elements(1..4)).elements, 3);
    let changes = lab.changes("delete element ip ours numbers { 2 }\nflush chain ip ours c");
    assert_eq!(
        (changes.elements, changes.rules, changes.total()),
        (1, 2, 3)
    );
    let changes = lab.changes("delete table ip ours");
    let kinds = (changes.tables, changes.sets, changes.chains);
    assert_eq!(kinds, (1, 1, 1), "{changes:?}");
}

#[test]
fn a_commit_reports_its_process_and_generation() {
    let mut lab = Lab::new();
    lab.nft(&elements([1]));
    let commits = lab.commits();
    assert_eq!(&*commits[0].process.name, "nft");
    assert!(commits[0].process.id > 1);
    assert!(commits[0].port_id > 1);
    assert_eq!(commits[0].generation, lab.client.generation().unwrap());
}

#[test]
fn a_ruleset_flush_is_reported_for_every_table() {
    let mut lab = Lab::new();
    lab.nft("add table ip6 ours\nadd table ip other");
    assert_eq!(lab.commits().len(), 1);
    lab.nft("flush ruleset");
    let commits = lab.commits();
    let families: Vec<_> = commits[0].changes.iter().map(|(id, _)| id.family).collect();
    assert_eq!(
        (commits.len(), families),
        (1, vec![Family::Ip, Family::Ip6])
    );
}

#[test]
fn own_commits_and_changes_of_other_tables_are_not_reported() {
    let mut lab = Lab::new();
    lab.add(0..10);
    lab.nft("add table ip other\nadd table inet ours\nadd set inet ours numbers { type mark; }");
    assert_eq!(lab.commits(), []);
}

#[test]
fn large_own_commits_do_not_overrun_the_monitor() {
    let mut lab = Lab::new();
    lab.monitor.set_recv_buffer_size(4096).unwrap();
    for part in 0..5 {
        lab.add(part * MANY..(part + 1) * MANY);
    }
    assert_eq!(lab.commits(), []);
    lab.nft(&elements([1_000_000]));
    assert_eq!(lab.commits().len(), 1);
}

#[test]
fn an_overrun_is_reported_as_incomplete() {
    let mut lab = Lab::new();
    lab.monitor.set_recv_buffer_size(4096).unwrap();
    lab.nft(&elements(0..MANY));
    assert!(lab.monitor.read().unwrap().is_incomplete);
    lab.nft(&elements([1_000_000]));
    assert_eq!(lab.commits().len(), 1);
}

#[test]
fn a_task_receives_commits_and_lost_ones_as_an_error() {
    let lab = Lab::new();
    let script = |script: &str| {
        let output = lab.netns.run(|| nft::run(&["-f", "-"], script));
        assert!(output.status.success(), "{output:?}");
    };
    lab.monitor.set_recv_buffer_size(4096).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut commits = EventStream::new(lab.monitor).unwrap();
        script(&elements([1]));
        script(&elements([2, 3]));
        for count in [1, 2] {
            let commit = timeout(PATIENCE, commits.next()).await.unwrap().unwrap();
            assert_eq!(commit.changes[0].1.elements, count);
        }
        script(&elements(10..MANY));
        let error = timeout(PATIENCE, commits.next())
            .await
            .unwrap()
            .unwrap_err();
        assert!(matches!(error, Error::NotificationsLost), "{error}");
        script(&elements([1_000_000]));
        let commit = timeout(PATIENCE, commits.next()).await.unwrap().unwrap();
        assert_eq!(commit.changes[0].1.elements, 1);
    });
}

#[test]
fn elements_of_a_set_are_dumped_separately() {
    let mut lab = Lab::new();
    lab.add(0..1000);
    let set = lab.set.clone();
    let elements = lab.client.elements(&set).unwrap();
    assert_eq!(elements.len(), 1000);
    assert!(
        elements
            .iter()
            .all(|element| element.set().name == set.name)
    );
    lab.nft("delete table ip ours");
    assert!(lab.client.elements(&set).unwrap_err().is_not_found());
}

#[test]
fn elements_of_a_dynamic_set_are_only_dumped_separately() {
    let mut lab = Lab::new();
    let learned = Set::map(
        lab.set.table.clone(),
        Name::new("learned").unwrap(),
        [Datatype::Mark],
        [Datatype::Mark],
    )
    .with_flags(SetFlags::DYNAMIC | SetFlags::TIMEOUT)
    .with_size(10);
    let add = [Edit::Add(Object::Set(learned.clone()))];
    lab.client.commit(&Transaction::from_edits(&add)).unwrap();
    lab.nft("add element ip ours learned { 7 timeout 1m : 8 }");
    let elements = lab.client.elements(&learned).unwrap();
    assert_eq!(elements[0].timeout(), Some(Duration::from_secs(60)));
    assert!(elements[0].expires_in() <= elements[0].timeout());
    let dump = lab.client.dump(&[lab.set.table.clone()]).unwrap();
    assert_eq!(dump.set(&lab.set.table, "learned").unwrap().1, []);
    let remove = [Edit::Remove(Object::Element(elements[0].clone()))];
    let remove = Transaction::from_edits(&remove);
    lab.client.commit(&remove).unwrap();
    assert_eq!(lab.client.elements(&learned).unwrap(), []);
    assert!(lab.client.commit(&remove).unwrap_err().is_not_found());
}
