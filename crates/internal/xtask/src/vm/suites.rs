//! Which tests run in the guest.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::guest::{self, Run};
use crate::cargo::{cargo, root};
use crate::process::display;

/// The folder of a package, the name of one of its test binaries, and what the
/// names of the tests chosen begin with.
///
/// What is about programs, or about large numbers, runs on this machine alone:
/// a guest takes ten times as long.
const SUITES: &[(&str, &str, &[&str])] = &[
    ("crates/netlink", "kernel", &[""]),
    ("crates/netlink", "listener", &[""]),
    ("crates/nftables", "kernel", &[""]),
    ("crates/nftables", "monitor", &[""]),
    (
        "crates/iptables",
        "kernel",
        &["nfacct::", "rules::canonical"],
    ),
    (
        "crates/ipset",
        "kernel",
        &[
            "a_",
            "edits_",
            "forceadd_",
            "marks_",
            "packets_",
            "program::the_program_makes",
            "program::what_a_set_is",
            "questions_",
            "ranges_",
            "sets_",
            "the_one_refused",
            "time_",
            "what_",
        ],
    ),
    ("crates/conntrack", "kernel", &[""]),
    ("crates/ipvs", "vm", &[""]),
    ("crates/rtnl", "vm", &[""]),
    ("crates/proxy-core", "vm", &[""]),
    ("examples/kube-proxy", "vm", &[""]),
    (
        "crates/proxy-core",
        "kernel",
        &["a_difference", "a_set_with", "both_families", "chains_that"],
    ),
    ("crates/proxy-core", "affinity", &["unused_chains"]),
    ("crates/proxy-core", "unused", &["few_unused"]),
    (
        "crates/proxy-core",
        "traffic",
        &[
            "nftables::",
            "iptables_legacy::connections",
            "iptables_nft::connections",
        ],
    ),
    (
        "crates/proxy-core",
        "matrix",
        &[
            "nftables::only_sources_in",
            "iptables_legacy::only_sources_in",
            "iptables_nft::only_sources_in",
        ],
    ),
    (
        "crates/proxy-core",
        "stale_flows",
        &[
            "nftables::a_client",
            "nftables::attempts",
            "iptables_nft::a_client",
        ],
    ),
];

/// A test that a guest cannot pass, or not in time.
struct Exception {
    /// The series of kernels.
    series: &'static [&'static str],
    /// The folder of the package and the name of the test binary.
    suite: (&'static str, &'static str),
    /// The name of the test.
    name: &'static str,
    /// Why.
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        series: &["6.1", "6.12"],
        suite: ("crates/nftables", "kernel"),
        name: "a_hundred_thousand_elements_are_one_transaction_and_one_send",
        reason: "takes a minute and does not depend on the kernel's age",
    },
    Exception {
        series: &["6.1", "6.12"],
        suite: ("crates/nftables", "kernel"),
        name: "a_transaction_too_large_for_the_unprivileged_is_not_begun",
        reason: "takes half a minute and does not depend on the kernel's age",
    },
    Exception {
        series: &["6.1", "6.12"],
        suite: ("crates/conntrack", "kernel"),
        name: "a_large_table_is_filtered_as_by_hand_and_a_hundred_thousand_refusals_are_one_error",
        reason: "takes a minute and does not depend on the kernel's age",
    },
    Exception {
        series: &["6.12"],
        suite: ("crates/proxy-core", "kernel"),
        name: "a_difference_is_a_script_that_nft_applies",
        reason: NFT_TURNS,
    },
    Exception {
        series: &["6.12"],
        suite: ("crates/proxy-core", "kernel"),
        name: "a_set_with_other_properties_is_exchanged_though_rules_use_it",
        reason: NFT_TURNS,
    },
];

const NFT_TURNS: &str = "nft 1.0.6 turns the bytes of numbers that have one, which 6.12 refuses";

/// A test binary, with the names of its tests that are chosen.
#[derive(Debug)]
pub(super) struct Suite {
    /// The folder of its package.
    folder: &'static str,
    /// The name of the test binary.
    target: &'static str,
    /// Where it was built.
    pub(super) binary: PathBuf,
    /// Where the programs of its package were: tests run them there.
    pub(super) programs: Vec<PathBuf>,
    /// The tests chosen.
    pub(super) names: Vec<String>,
}

/// A line of what cargo says of a build, as far as it matters.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

impl Suite {
    /// Returns the folder in which its tests run.
    pub(super) fn folder(&self) -> PathBuf {
        root().join(self.folder)
    }

    /// Returns what a person calls it.
    pub(super) fn title(&self) -> String {
        title(self.folder, self.target)
    }

    /// Returns what the guest does to run tests of it by name, as its binary of
    /// this number.
    pub(super) fn run(&self, number: usize, names: &[String]) -> Run {
        Run {
            folder: self.folder(),
            command: format!("{} --exact {}", guest::binary(number), names.join(" ")),
        }
    }

    /// Returns it without the tests that kernels of a series cannot pass.
    pub(super) fn names_for(&self, series: &str) -> Vec<String> {
        let mut names = self.names.clone();
        for exception in self
            .exceptions()
            .filter(|each| each.series.contains(&series))
        {
            eprintln!(
                "{}: {} is left out on {series}: {}",
                self.title(),
                exception.name,
                exception.reason
            );
            names.retain(|name| name != exception.name);
        }
        names
    }

    fn exceptions(&self) -> impl Iterator<Item = &'static Exception> {
        let suite = (self.folder, self.target);
        EXCEPTIONS.iter().filter(move |each| each.suite == suite)
    }
}

/// Builds the suites whose titles contain `filter`.
pub(super) fn build(filter: &str) -> Result<Vec<Suite>> {
    let chosen: Vec<_> = SUITES
        .iter()
        .copied()
        .filter(|(folder, target, _)| title(folder, target).contains(filter))
        .collect();
    ensure!(!chosen.is_empty(), "no suite has {filter:?} in its title");
    // The features are those of all members, as in `cargo test --workspace`:
    // what that built is not built again.
    let mut command = cargo(["test", "--workspace", "--no-run", "--message-format=json"]);
    let targets: BTreeSet<&str> = chosen.iter().map(|(_, target, _)| *target).collect();
    for target in targets {
        command.args(["--test", target]);
    }
    eprintln!("$ {}", display(&command));
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{}: {}", display(&command), output.status);
    }
    let messages = String::from_utf8(output.stdout)?;
    chosen
        .into_iter()
        .map(|(folder, target, beginnings)| {
            let package = root().join(folder);
            let binary = find(&messages, &package, "test", target)
                .with_context(|| format!("cargo built no {}", title(folder, target)))?;
            let names = list(&binary)?
                .into_iter()
                .filter(|name| beginnings.iter().any(|begin| name.starts_with(begin)))
                .collect();
            let suite = Suite {
                folder,
                target,
                binary,
                programs: programs(&messages, &package),
                names,
            };
            for Exception { name, .. } in suite.exceptions() {
                let is_test = suite.names.iter().any(|each| each == name);
                ensure!(
                    is_test,
                    "{}: {name} is an exception, and no test",
                    suite.title()
                );
            }
            Ok(suite)
        })
        .collect()
}

fn title(folder: &str, target: &str) -> String {
    format!("{folder} {target}")
}

/// Looks for a binary of a kind, such as `test`, in what cargo says.
pub(super) fn find(messages: &str, folder: &Path, kind: &str, target: &str) -> Option<PathBuf> {
    artifacts(messages, folder, kind)
        .find(|artifact| artifact.target.name == target)?
        .executable
}

/// Looks for the programs of a package in what cargo says.
fn programs(messages: &str, folder: &Path) -> Vec<PathBuf> {
    artifacts(messages, folder, "bin")
        .filter_map(|artifact| artifact.executable)
        .collect()
}

/// Returns what cargo says that it built of a kind in a package.
fn artifacts(messages: &str, folder: &Path, kind: &str) -> impl Iterator<Item = Artifact> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(move |artifact| {
            artifact.manifest_path.parent() == Some(folder) && artifact.target.kind == [kind]
        })
}

/// Asks a test binary for the names of its tests.
fn list(binary: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(binary);
    let output = command.args(["--list", "--format", "terse"]).output()?;
    if !output.status.success() {
        bail!("{}: {}", display(&command), output.status);
    }
    Ok(names(&String::from_utf8(output.stdout)?))
}

/// Reads `NAME: test` of each line.
fn names(list: &str) -> Vec<String> {
    list.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_and_programs_are_found_by_their_package() {
        let artifact = |package: &str, kind: &str, name: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/{package}/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}"}},"executable":{executable}}}"#
            )
        };
        let messages = [
            artifact("crates/a", "lib", "kernel", "null"),
            artifact("crates/b", "test", "kernel", r#""/t/b""#),
            artifact("crates/a", "test", "laws", r#""/t/laws""#),
            artifact("crates/a", "test", "kernel", r#""/t/a""#),
            artifact("crates/a", "bin", "kernel", r#""/t/program""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ]
        .join("\n");
        let found = |folder: &str, target| find(&messages, Path::new(folder), "test", target);
        assert_eq!(found("/w/crates/a", "kernel"), Some("/t/a".into()));
        assert_eq!(found("/w/crates/b", "kernel"), Some("/t/b".into()));
        assert_eq!(found("/w/crates/b", "laws"), None);
        let programs = |folder: &str| programs(&messages, Path::new(folder));
        assert_eq!(programs("/w/crates/a"), [PathBuf::from("/t/program")]);
        assert!(programs("/w/crates/b").is_empty());
    }

    #[test]
    fn names_of_tests_are_listed_and_those_of_benches_are_not() {
        assert_eq!(names("a::b: test\nc: benchmark\nd: test\n"), ["a::b", "d"]);
    }

    #[test]
    fn every_exception_is_of_a_suite_that_runs() {
        for exception in EXCEPTIONS {
            let mut suites = SUITES.iter().map(|(folder, target, _)| (*folder, *target));
            assert!(
                suites.any(|suite| suite == exception.suite),
                "{}",
                exception.name
            );
        }
    }
}
