//! Copies of rulesets that `nft` loaded, compared with the raw dumps of the kernel.
//!
//! Each file in `rulesets` has many rulesets. A ruleset begins with its name: `= name`.
//! A line `! load: reason`, `! text: reason` or `! netlink: reason` names an exception.
//! A ruleset is copied as text that `nft` loads, and as a transaction over netlink.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "rulesets/raw.rs"]
mod raw;

use std::collections::BTreeMap;

use raw::Raw;
use testkit::netns::Netns;
use testkit::{link, nft};
use vipline_nftables::{Client, DumpOptions, Object, Ruleset, Transaction};
use vipline_reconcile::{Edit, diff};

/// Rulesets by subject.
const FILES: &[(&str, &str)] = &[
    ("cache", include_str!("rulesets/cache.nft")),
    ("chains", include_str!("rulesets/chains.nft")),
    ("comments", include_str!("rulesets/comments.nft")),
    ("flowtable", include_str!("rulesets/flowtable.nft")),
    ("include", include_str!("rulesets/include.nft")),
    ("json", include_str!("rulesets/json.nft")),
    ("listing", include_str!("rulesets/listing.nft")),
    ("maps", include_str!("rulesets/maps.nft")),
    ("nft-f", include_str!("rulesets/nft-f.nft")),
    ("optimizations", include_str!("rulesets/optimizations.nft")),
    ("optionals", include_str!("rulesets/optionals.nft")),
    (
        "rule_management",
        include_str!("rulesets/rule_management.nft"),
    ),
    ("sets", include_str!("rulesets/sets.nft")),
    ("transactions", include_str!("rulesets/transactions.nft")),
];

/// A ruleset of a file.
struct Sample {
    name: String,
    script: String,
    /// Reasons of exceptions by the way that fails: `load`, `text` or `netlink`.
    exceptions: BTreeMap<&'static str, &'static str>,
}

fn samples() -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for (subject, text) in FILES {
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("= ") {
                samples.push(Sample {
                    name: format!("{subject} {name}"),
                    script: String::new(),
                    exceptions: BTreeMap::new(),
                });
                continue;
            }
            let sample = samples.last_mut().expect("a file begins with a name");
            match line
                .strip_prefix("! ")
                .and_then(|line| line.split_once(": "))
            {
                Some((way, reason)) => {
                    sample.exceptions.insert(way, reason);
                }
                None => {
                    sample.script += line;
                    sample.script.push('\n');
                }
            }
        }
    }
    samples
}

/// A network namespace with the links that rulesets use.
struct Host {
    netns: Netns,
    client: Client,
    raw: Raw,
}

impl Host {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        let (client, raw) = netns.run(|| {
            let itself = Netns::open("/proc/thread-self/ns/net").unwrap();
            use std::os::fd::AsFd;
            link::add_pair("dummy0", "dummy1", itself.as_fd()).unwrap();
            (Client::open().unwrap(), Raw::open())
        });
        Self { netns, client, raw }
    }

    /// Replaces the ruleset with a script, by `nft`.
    fn load(&self, script: &str) -> Result<(), String> {
        let script = format!("flush ruleset\n{script}");
        let output = self.netns.run(|| nft::run(&["-f", "-"], &script));
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("nft: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// Returns all objects, including the elements of dynamic sets.
    fn objects(&mut self) -> Vec<Object> {
        let tables = self.client.tables().unwrap();
        let tables: Vec<_> = tables.into_iter().map(|table| table.id).collect();
        let options = DumpOptions::new().with_dynamic_elements();
        let ruleset = self.client.dump_with(&tables, options).unwrap();
        ruleset.into_objects().collect()
    }

    /// Replaces the ruleset with objects, over netlink.
    fn commit(&mut self, objects: &[Object]) -> Result<(), String> {
        let old = self.client.tables().unwrap().into_iter();
        let mut edits: Vec<_> = old.map(|table| Edit::Remove(table.into())).collect();
        edits.extend(objects.iter().cloned().map(Edit::Add));
        let transaction = Transaction::from_edits(&edits);
        self.client
            .commit(&transaction)
            .map_err(|error| error.to_string())
    }
}

/// Returns the lines that differ.
fn differences(original: &[String], copy: &[String]) -> Result<(), String> {
    let only = |sign: char, here: &[String], there: &[String]| {
        let lines = here.iter().filter(|line| !there.contains(line));
        lines
            .map(|line| format!("  {sign} {line}\n"))
            .collect::<String>()
    };
    match original == copy {
        true => Ok(()),
        false => Err(only('-', original, copy) + &only('+', copy, original)),
    }
}

#[test]
fn rulesets_of_nft_are_equal_after_a_copy() {
    let [mut source, mut text, mut netlink] = [(); 3].map(|()| Host::new());
    let (mut loaded, mut both) = (0, 0);
    let mut equal = BTreeMap::from([("text", 0), ("netlink", 0)]);
    let (mut unexpected, samples) = (Vec::new(), samples());
    for sample in &samples {
        if let Err(error) = source.load(&sample.script) {
            if !sample.exceptions.contains_key("load") {
                unexpected.push(format!("{}: load: {error}", sample.name));
            }
            continue;
        }
        loaded += 1;
        let original = source.raw.lines();
        let objects = source.objects();
        let ruleset: Ruleset = objects.iter().cloned().collect();
        let by_text = text
            .load(&format!("{ruleset:#}"))
            .map_err(|error| format!("{error}\n{ruleset}"))
            .and_then(|()| differences(&original, &text.raw.lines()));
        let by_netlink = netlink.commit(&objects).and_then(|()| {
            differences(&original, &netlink.raw.lines())?;
            let edits = diff(netlink.objects(), &objects);
            match edits.is_empty() {
                true => Ok(()),
                false => Err(format!("diff: {}", Transaction::from_edits(&edits))),
            }
        });
        both += usize::from(by_text.is_ok() && by_netlink.is_ok());
        for (way, result) in [("text", by_text), ("netlink", by_netlink)] {
            *equal.entry(way).or_default() += usize::from(result.is_ok());
            match (result, sample.exceptions.contains_key(way)) {
                (Err(error), false) => unexpected.push(format!("{}: {way}: {error}", sample.name)),
                (Ok(()), true) => unexpected.push(format!("{}: {way} is equal", sample.name)),
                _ => {}
            }
        }
    }
    testkit::figures!(
        "{} rulesets, {loaded} loaded, {} equal as text, {} equal by netlink, {both} both",
        samples.len(),
        equal["text"],
        equal["netlink"],
    );
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    assert!(both * 100 >= loaded * 98, "{both} of {loaded}");
}
