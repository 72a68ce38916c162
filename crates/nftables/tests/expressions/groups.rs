//! Groups of rules, and a check of what remains of each rule in a copy.

use testkit::netns::Netns;
use testkit::nft;
use vipline_nftables::expr::Expr;
use vipline_nftables::{Chain, Client, Family, Name, Object, Ruleset, TableId, Transaction};
use vipline_reconcile::Edit;

const RULES: &str = include_str!("rules.txt");

/// Rules of one family that can be in base chains of the same type.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    family: &'static str,
    chain: &'static str,
    rules: Vec<&'static str>,
}

impl Group {
    /// Returns all groups of the file.
    pub(crate) fn all() -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for line in RULES.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, rest)) = line.strip_prefix('[').and_then(|l| l.split_once("] ")) {
                let (family, chain) = rest.split_once(' ').unwrap();
                groups.push(Self {
                    name,
                    family,
                    chain,
                    rules: Vec::new(),
                });
            } else if !line.is_empty() {
                groups.last_mut().unwrap().rules.push(line);
            }
        }
        groups
    }

    fn table(&self) -> TableId {
        let family = match self.family {
            "ip" => Family::Ip,
            "ip6" => Family::Ip6,
            "inet" => Family::Inet,
            "bridge" => Family::Bridge,
            _ => Family::Netdev,
        };
        TableId::new(family, Name::new("t").unwrap())
    }

    fn script<'a>(&self, rules: impl Iterator<Item = &'a str>) -> String {
        let mut script = format!("table {} t {{\n", self.family);
        for (at, rule) in rules.enumerate() {
            script += &format!("chain c{at} {{\n{};\n{rule}\n}}\n", self.chain);
        }
        script + "}\n"
    }
}

/// A ruleset in a network namespace of its own.
struct Installed {
    ruleset: Ruleset,
    listing: String,
}

impl Installed {
    /// Installs a ruleset. Returns stderr of `nft` on failure.
    fn new(
        group: &Group,
        install: impl FnOnce(&mut Client) -> Result<(), String> + Send,
    ) -> Result<Self, String> {
        let netns = Netns::new().unwrap();
        netns.run(|| {
            let mut client = Client::open().unwrap();
            install(&mut client)?;
            let ruleset = client.dump(&[group.table()]).unwrap();
            let listing = nft::succeeds(&["list", "ruleset"], "");
            Ok(Self { ruleset, listing })
        })
    }

    fn by_nft(group: &Group, script: &str) -> Result<Self, String> {
        Self::new(group, |_| {
            let output = nft::run(&["-f", "-"], script);
            let message = String::from_utf8_lossy(&output.stderr);
            if output.status.success() {
                Ok(())
            } else {
                Err(message.into_owned())
            }
        })
    }

    fn copy_of(group: &Group, original: &Self) -> Result<Self, String> {
        let edits: Vec<_> = original.ruleset.objects().map(Edit::Add).collect();
        let transaction = Transaction::from_edits(&edits);
        Self::new(group, |client| {
            client
                .commit(&transaction)
                .map_err(|error| format!("{error:?}"))
        })
    }

    fn chains(&self) -> Vec<Chain> {
        let chain = |object| match object {
            Object::Chain(chain) => Some(*chain),
            _ => None,
        };
        let mut chains: Vec<Chain> = self.ruleset.objects().filter_map(chain).collect();
        chains.sort_by_key(|chain| chain.name.as_str()[1..].parse::<usize>().unwrap());
        chains
    }
}

/// Returns a description of each rule that the second ruleset does not have.
fn differences(group: &Group, one: &Installed, other: &Installed) -> Vec<String> {
    let pairs = one.chains().into_iter().zip(other.chains());
    let rules = group.rules.iter().zip(pairs);
    rules
        .filter(|(_, (one, other))| one.rules != other.rules)
        .map(|(rule, (one, other))| format!("{rule}: {} / {}", one.rules[0], other.rules[0]))
        .collect()
}

/// Returns the text of each rule, without the other lines of the chain.
fn texts(installed: &Installed) -> Vec<String> {
    let text = installed.ruleset.to_string();
    let mut rules = Vec::new();
    for block in text.split("chain c").skip(1) {
        let mut lines = block.lines().skip(1).map(str::trim);
        let rule = lines.find(|line| !line.starts_with("type "));
        let number: usize = block.split(' ').next().unwrap().parse().unwrap();
        rules.push((number, rule.unwrap_or_default().to_string()));
    }
    rules.sort();
    rules.into_iter().map(|(_, rule)| rule).collect()
}

/// Returns the rules that are not typed, not copied, or not written as text.
pub(crate) fn problems(group: &Group) -> Vec<String> {
    let script = group.script(group.rules.iter().copied());
    let original = match Installed::by_nft(group, &script) {
        Ok(original) => original,
        Err(message) => return vec![format!("nft: {message}")],
    };
    let is_other = |expr: &Expr| matches!(expr, Expr::Other { .. });
    let mut problems = Vec::new();
    for (rule, chain) in group.rules.iter().zip(original.chains()) {
        if chain
            .rules
            .iter()
            .any(|rule| rule.exprs.iter().any(is_other))
        {
            problems.push(format!("not typed: {rule}"));
        }
    }
    let copy = match Installed::copy_of(group, &original) {
        Ok(copy) => copy,
        Err(message) => return vec![format!("copy: {message}")],
    };
    let copied = differences(group, &original, &copy);
    problems.extend(copied.iter().map(|rule| format!("not copied: {rule}")));
    if nft::blocks(&original.listing) != nft::blocks(&copy.listing) {
        problems.push("nft lists the copy in another way".to_string());
    }
    let texts = texts(&original);
    match Installed::by_nft(group, &group.script(texts.iter().map(String::as_str))) {
        Ok(again) => {
            let others = differences(group, &original, &again);
            problems.extend(others.iter().map(|rule| format!("other text: {rule}")));
        }
        Err(message) => problems.push(format!("text: {message}")),
    }
    problems
}
