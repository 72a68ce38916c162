//! Two network namespaces: rules of the program in one, and of the client in the other.

use std::process::Command;

use testkit::nft as nft_program;
use vipline_iptables::{
    Chain, ChainName, Contents, Family, Object, Position, Restore, Rules, SharedRule, TableName,
    Variant, nft, program_name,
};
use vipline_nftables as nftables;
use vipline_reconcile::Edit;

use crate::lab::Lab;
use crate::rules::prepare;

const TABLES: [&str; 3] = ["filter", "mangle", "nat"];

/// Rules of other programs: with counters, comments and unknown matches, in built-in chains
/// and chains of their own.
const OTHERS: &str = "\
*filter
:THEIRS - [0:0]
[7:420] -A INPUT -m comment --comment \"their rule\" -j THEIRS
[1:60] -A THEIRS -m cpu --cpu 7 -j ACCEPT
-A THEIRS -p tcp -m tcp --dport 22 -j ACCEPT
-A OUTPUT -m owner --uid-owner 7 -j DROP
COMMIT
*nat
-A OUTPUT -j RETURN
COMMIT
";

/// Tables of other programs.
const FOREIGN: &str = "\
table ip foreign {
set s { type ipv4_addr; elements = { 10.0.0.1 }; }
chain c { type filter hook input priority 7; policy accept; ip saddr @s counter drop; }
}
table inet foreign {
chain c { socket transparent 1 accept; }
}
";

/// Makes the rules and tables of other programs.
fn others(lab: &mut Lab) {
    lab.restore(OTHERS).unwrap();
    let output = lab.netns.run(|| nft_program::run(&["-f", "-"], FOREIGN));
    assert!(output.status.success(), "{output:?}");
}

pub(crate) fn table(name: &str) -> TableName {
    TableName::new(name).unwrap()
}

pub(crate) fn name(name: &str) -> ChainName {
    ChainName::new(name).unwrap()
}

pub(crate) fn chain(of: &str, chain: &str, rules: &[&str]) -> Object {
    let rules: Rules = rules.iter().collect();
    Chain::new(table(of), name(chain)).with_rules(rules).into()
}

pub(crate) fn shared(of: &str, chain: &str) -> Object {
    Chain::new(table(of), name(chain))
        .with_contents(Contents::SharedRules)
        .into()
}

pub(crate) fn rule(of: &str, chain: &str, position: Position, rule: &str) -> Object {
    Object::from(SharedRule {
        table: table(of),
        chain: name(chain),
        position,
        occurrence: 0,
        rule: rule.into(),
    })
}

/// Two network namespaces with the same rules: of the program, and of the client.
pub(crate) struct Twins {
    pub(crate) theirs: Lab,
    pub(crate) ours: Lab,
    pub(crate) client: nft::Client,
}

impl Twins {
    pub(crate) fn new(family: Family) -> Self {
        let [mut theirs, mut ours] = [(); 2].map(|()| Lab::new(family, Variant::Nft));
        for lab in [&mut theirs, &mut ours] {
            lab.netns.run(prepare);
            others(lab);
        }
        let client = ours.netns.run(|| nft::Client::open(family)).unwrap();
        Self {
            theirs,
            ours,
            client,
        }
    }

    /// Applies edits in both namespaces, which must be equal afterwards.
    #[track_caller]
    pub(crate) fn commit(&mut self, edits: &[Edit<Object>]) {
        let document = Restore::from_edits(edits);
        self.theirs
            .restore(&document)
            .unwrap_or_else(|error| panic!("{error}\n{document}"));
        let before = self.client.generation().unwrap();
        let after = self
            .client
            .commit(edits)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(after, before.next());
        assert_eq!(self.client.generation().unwrap(), after);
        self.assert_equal();
    }

    #[track_caller]
    pub(crate) fn assert_equal(&self) {
        assert_eq!(saved(&self.ours), saved(&self.theirs));
        let [ours, theirs] = [&self.ours, &self.theirs].map(dump);
        assert!(ours == theirs, "{ours}\n{theirs}");
        let [ours, theirs] = [&self.ours, &self.theirs].map(listed);
        assert_eq!(ours, theirs);
    }

    /// Asserts that a commit is rejected and changes nothing.
    #[track_caller]
    pub(crate) fn rejected(&mut self, edits: &[Edit<Object>]) -> nft::Error {
        let before = (saved(&self.ours), self.client.generation().unwrap());
        let error = self.client.commit(edits).unwrap_err();
        assert!(!error.may_be_applied(), "{error}");
        assert_eq!(
            (saved(&self.ours), self.client.generation().unwrap()),
            before
        );
        error
    }

    /// Reads the tables, as sorted lines of `iptables-nft-save -c`.
    pub(crate) fn read(&mut self) -> Vec<String> {
        let family = self.client.family();
        let each =
            |lines: &mut Vec<String>, saved: nft::Saved<'_>| lines.push(line(&saved, family));
        let (mut lines, _) = self
            .client
            .dump(&TABLES.map(table), Vec::new, each)
            .unwrap();
        lines.sort_unstable();
        lines
    }
}

fn line(saved: &nft::Saved<'_>, family: Family) -> String {
    match saved {
        nft::Saved::Chain(chain) => {
            let policy = chain
                .policy
                .map_or_else(|| "-".to_owned(), |policy| policy.to_string());
            format!(":{} {policy} {}", chain.name, chain.counters)
        }
        nft::Saved::Rule(rule) => {
            let text = match rule.rule() {
                Some(decoded) => decoded.for_family(family).to_string(),
                None => "unknown".to_owned(),
            };
            format!("{} -A {} {text}", rule.counters().unwrap(), rule.chain)
        }
    }
}

/// Returns the lines of `iptables-nft-save -c` without comments.
pub(crate) fn saved(lab: &Lab) -> Vec<String> {
    let program = lab
        .programs
        .path(&format!("{}-nft-save", program_name(lab.family)));
    let output = lab
        .netns
        .run(|| Command::new(program).arg("-c").output())
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Returns all objects of the tables, also of other programs.
fn dump(lab: &Lab) -> nftables::Ruleset {
    let of_iptables = TABLES.map(|it| nft::table_id(lab.family, table(it)));
    let foreign = [nftables::Family::Ip, nftables::Family::Inet];
    let foreign = foreign
        .map(|family| nftables::TableId::new(family, nftables::Name::new("foreign").unwrap()));
    let tables = [&of_iptables[..], &foreign].concat();
    let mut client = lab.netns.run(nftables::Client::open).unwrap();
    client.dump(&tables).unwrap()
}

/// Returns the entries of `nft -j list ruleset` without handles, sorted: `nft` lists chains
/// by age.
fn listed(lab: &Lab) -> Vec<String> {
    let output = lab
        .netns
        .run(|| nft_program::run(&["-j", "list", "ruleset"], ""));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let entries = text.split("}, {\"").map(|entry| {
        let mut parts = entry.splitn(2, "\"handle\": ");
        let (before, after) = (parts.next().unwrap_or_default(), parts.next());
        let digits = |digit: char| digit.is_ascii_digit();
        before.to_owned() + after.map_or("", |after| after.trim_start_matches(digits))
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort_unstable();
    entries
}

pub(crate) fn add(objects: impl IntoIterator<Item = Object>) -> Vec<Edit<Object>> {
    objects.into_iter().map(Edit::Add).collect()
}

pub(crate) fn remove(objects: impl IntoIterator<Item = Object>) -> Vec<Edit<Object>> {
    objects.into_iter().map(Edit::Remove).collect()
}
