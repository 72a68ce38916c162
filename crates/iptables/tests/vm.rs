//! Rules with match `ipvs`, which need a kernel with IPVS.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "kernel/rules/ipvs.rs"]
mod ipvs;

#[allow(dead_code, reason = "tables and chains are unused")]
#[path = "suite/cases.rs"]
mod cases;

use std::io::Write;
use std::process::{Command, Stdio};

use testkit::netns::Netns;
use vipline_iptables::{
    Chain, ChainName, Edit, Family, Rule, TableName, Variant, nft, program_name,
};
use vipline_nftables as nftables;

/// The chain of the rules.
const CHAIN: &str = "RULES";

fn rules(family: Family) -> Vec<&'static str> {
    let own = match family {
        Family::V4 => ipvs::V4,
        Family::V6 => ipvs::V6,
    };
    let cases = cases::cases().into_iter();
    let of_ipvs = cases.filter(|case| case.extension == ipvs::NAME && case.family == family);
    let suite = of_ipvs.filter_map(|case| case.saved);
    let suite: Vec<_> = suite.collect();
    assert!(!suite.is_empty(), "{family}");
    [ipvs::BOTH, own, &suite].concat()
}

fn filter() -> TableName {
    TableName::FILTER
}

/// Restores the rules in the namespace of the calling thread.
fn restore(family: Family, variant: Variant) {
    let mut document = format!("*filter\n:{CHAIN} - [0:0]\n");
    for rule in rules(family) {
        document += &format!("-A {CHAIN} {rule}\n");
    }
    let mut command = Command::new(format!("{}-{variant}-restore", program_name(family)));
    let mut program = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = program.stdin.take().unwrap();
    input.write_all((document + "COMMIT\n").as_bytes()).unwrap();
    drop(input);
    assert!(program.wait().unwrap().success(), "{family} {variant}");
}

/// Returns the saved rules of the namespace of the calling thread.
fn save(family: Family, variant: Variant) -> Vec<String> {
    let mut command = Command::new(format!("{}-{variant}-save", program_name(family)));
    let output = command.args(["-t", "filter"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let start = format!("-A {CHAIN} ");
    let rules = text.lines().filter_map(|line| line.strip_prefix(&start));
    rules.map(str::to_owned).collect()
}

/// Returns the expressions of the chain in the namespace of the calling thread.
fn expressions(family: Family) -> Vec<nftables::Rule> {
    let table = nft::table_id(family, filter());
    let mut client = nftables::Client::open().unwrap();
    let all = client.dump(&[table]).unwrap();
    let found = all.into_objects().find_map(|object| match object {
        nftables::Object::Chain(chain) if chain.name.as_str() == CHAIN => Some(chain.rules),
        _ => None,
    });
    found.unwrap().to_vec()
}

#[test]
fn ipvs_matches_are_saved_as_they_are_printed() {
    for family in Family::ALL {
        for variant in Variant::ALL {
            let saved = Netns::new().unwrap().run(|| {
                restore(family, variant);
                save(family, variant)
            });
            assert_eq!(saved, rules(family), "{family} {variant}");
        }
        for text in rules(family) {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}

#[test]
fn committed_ipvs_matches_equal_those_of_iptables_nft_restore() {
    for family in Family::ALL {
        let restored = Netns::new().unwrap().run(|| {
            restore(family, Variant::Nft);
            expressions(family)
        });
        let (committed, saved, read) = Netns::new().unwrap().run(|| {
            let mut client = nft::Client::open(family).unwrap();
            let name = ChainName::new(CHAIN).unwrap();
            let chain = Chain::new(filter(), name).with_rules(rules(family).into_iter().collect());
            client.commit(&[Edit::Add(chain.into())]).unwrap();
            let (read, _) = client
                .dump(&[filter()], Vec::new, |read, saved| {
                    if let nft::Saved::Rule(rule) = saved {
                        read.extend(rule.rule().map(|rule| rule.to_string()));
                    }
                })
                .unwrap();
            (expressions(family), save(family, Variant::Nft), read)
        });
        assert_eq!(committed, restored, "{family}");
        assert_eq!(saved, rules(family), "{family}");
        assert_eq!(read, rules(family), "{family}");
    }
}
