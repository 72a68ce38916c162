//! Flowtables of a kernel with `CONFIG_NF_FLOW_TABLE`.

use std::os::fd::AsFd;

use testkit::netns::Netns;
use testkit::{link, nft};
use vipline_nftables::expr::Expr;
use vipline_nftables::statement::flow_add;
use vipline_nftables::{
    BaseChain, Chain, ChainType, Client, Family, Flowtable, FlowtableFlags, Hook, Name, Object,
    Rule, Table, TableId, Transaction, diff,
};
use vipline_reconcile::Edit;

use crate::raw::Raw;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn table() -> TableId {
    TableId::new(Family::Inet, name("filter"))
}

fn fast() -> Flowtable {
    Flowtable::new(table(), name("fast"), 10)
        .with_device(name("left"))
        .with_device(name("right"))
        .with_flags(FlowtableFlags::COUNTER)
}

/// Returns a chain that adds forwarded connections to the flowtable.
fn forward() -> Chain {
    let base = BaseChain::new(ChainType::Filter, Hook::Forward, 0);
    let rule = Rule::new(Family::Inet, [flow_add(&name("fast"))]).unwrap();
    Chain::new(table(), name("forward"))
        .with_base(base)
        .with_rules([rule])
}

/// A network namespace with two links, a client and raw dumps.
struct Lab {
    netns: Netns,
    client: Client,
    raw: Raw,
}

impl Lab {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        let (client, raw) = netns.run(|| {
            let itself = Netns::open("/proc/thread-self/ns/net").unwrap();
            link::add_pair("left", "right", itself.as_fd()).unwrap();
            (Client::open().unwrap(), Raw::open())
        });
        Self { netns, client, raw }
    }

    fn nft(&self, arguments: &[&str], script: &str) -> String {
        self.netns.run(|| nft::succeeds(arguments, script))
    }

    fn objects(&mut self) -> Vec<Object> {
        let ruleset = self.client.dump(&[table()]).unwrap();
        ruleset.into_objects().collect()
    }
}

#[test]
fn a_flowtable_is_added_listed_copied_and_deleted() {
    let mut lab = Lab::new();
    let wanted: [Object; 3] = [
        Table::new(table()).into(),
        fast().into(),
        Object::from(forward()),
    ];
    for object in wanted.clone() {
        lab.client.add(object).unwrap();
    }
    let listing = lab.nft(&["list", "ruleset"], "");
    let lines: Vec<&str> = listing.lines().map(str::trim).collect();
    for line in [
        "flowtable fast {",
        "hook ingress priority filter + 10",
        "devices = { left, right }",
        "counter",
        "flow add @fast",
    ] {
        assert!(lines.contains(&line), "{line}\n{listing}");
    }
    let installed = lab.client.dump(&[table()]).unwrap();
    let (_, rule) = installed.rules(&table(), &name("forward")).next().unwrap();
    assert!(matches!(&rule.exprs[..], [Expr::FlowOffload(_)]));
    let text = format!("{installed:#}");
    assert!(diff(installed, &wanted).is_empty());

    // Copies as text and over netlink have the same raw dumps and listings.
    let (by_text, mut by_netlink) = (Lab::new(), Lab::new());
    by_text.nft(&["-f", "-"], &text);
    let edits: Vec<_> = lab.objects().into_iter().map(Edit::Add).collect();
    by_netlink
        .client
        .commit(&Transaction::from_edits(&edits))
        .unwrap();
    let original = lab.raw.lines();
    for mut copy in [by_text, by_netlink] {
        assert_eq!(copy.raw.lines(), original);
        assert_eq!(copy.nft(&["list", "ruleset"], ""), listing);
    }

    // The kernel keeps a flowtable while a rule uses it.
    let busy = lab.client.delete(fast()).unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    lab.client.delete(forward()).unwrap();
    lab.client.delete(fast()).unwrap();
    assert_eq!(lab.objects(), [Table::new(table()).into()]);
    assert!(!lab.nft(&["list", "ruleset"], "").contains("flowtable"));
    let missing = lab.client.delete(fast()).unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
}

#[test]
fn a_changed_flowtable_is_replaced_with_the_rules_that_use_it() {
    let mut lab = Lab::new();
    let add = |flowtable: Flowtable| -> Vec<Object> {
        vec![
            Table::new(table()).into(),
            flowtable.into(),
            forward().into(),
        ]
    };
    let edits: Vec<_> = add(fast()).into_iter().map(Edit::Add).collect();
    lab.client.commit(&Transaction::from_edits(&edits)).unwrap();
    let mut changed = fast();
    (changed.devices, changed.priority) = (vec![name("right")], -5);
    let desired = add(changed.clone());
    let mut edits = diff(lab.objects(), &desired);
    assert_eq!(edits.len(), 1, "{edits:?}");
    edits.push(Edit::Remove(forward().into()));
    edits.push(Edit::Add(forward().into()));
    lab.client.commit(&Transaction::from_edits(&edits)).unwrap();
    assert!(diff(lab.objects(), &desired).is_empty());
    let listing = lab.nft(&["list", "flowtables"], "");
    assert!(listing.contains("priority filter - 5\n"), "{listing}");
    assert!(listing.contains("devices = { right }"), "{listing}");
}
