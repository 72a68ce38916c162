//! Builds test binaries and selects the tests that run in guests.
//!
//! A guest takes ten times as long as the host, so it runs the tests whose result may depend
//! on the kernel, and of a binary with others only those that a prefix selects. For example, of
//! `crates/nftables single` the six tests in the modules `declared`, `dumps` and `handles`.
//!
//! The binaries are those of `cargo test --workspace`: built once, and run on the host and in
//! each guest. A guest gets the names that are left after the [exceptions](EXCEPTIONS) of its
//! kernel, and `results.rs` wants exactly these names to pass.
//!
//! What must stay true: no test leaves a guest unnoticed. A selection by prefixes makes that easy,
//! because a renamed test is just not selected any more. So each suite states its number of
//! tests, and each prefix and each exception must match one. Whoever adds or renames a test
//! updates the table; `cargo xtask vm --list` says what does not match, without a guest.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::guest::{self, Run};
use crate::binaries::Artifacts;
use crate::cargo::{cargo, root};
use crate::process::display;

/// Test binaries and the tests of each that run in the guest.
///
/// Fields: folder of the package, name of the test binary, number of tests that
/// must be selected, prefixes of the names of the tests to select (`""` selects all).
/// A prefix that matches no test and a different number of tests are errors, so
/// that a renamed test is not dropped.
/// `cargo xtask vm --list` checks the table without a guest.
///
/// Tests of programs and with large numbers of objects run only on the host:
/// a guest takes ten times as long.
const SUITES: &[(&str, &str, usize, &[&str])] = &[
    ("crates/netlink", "kernel", 12, &[""]),
    ("crates/netlink", "listener", 6, &[""]),
    ("crates/nftables", "events", 6, &[""]),
    ("crates/nftables", "kernel", 19, &[""]),
    ("crates/nftables", "monitor", 9, &[""]),
    (
        "crates/nftables",
        "single",
        6,
        &["declared::", "dumps::", "handles::"],
    ),
    ("crates/nftables", "vm", 6, &[""]),
    (
        "crates/iptables",
        "kernel",
        4,
        &["nfacct::", "rules::canonical"],
    ),
    ("crates/iptables", "vm", 2, &[""]),
    (
        "crates/ipset",
        "kernel",
        24,
        &[
            "a_",
            "documents_",
            "edits_",
            "forceadd_",
            "marks_",
            "packets_",
            "program::headers_and_usage",
            "program::ipset_creates",
            "queries_",
            "ranges_",
            "rejections::",
            "sets_",
            "suite::types_",
            "time_",
        ],
    ),
    ("crates/conntrack", "kernel", 28, &[""]),
    ("crates/ipvs", "vm", 33, &[""]),
    ("crates/evaluate", "vm", 3, &[""]),
    ("crates/rtnl", "vm", 5, &[""]),
    ("crates/proxy-core", "vm", 24, &[""]),
    ("examples/kube-proxy", "vm", 14, &[""]),
    ("examples/kube-proxy", "modules", 2, &[""]),
    (
        "crates/proxy-core",
        "kernel",
        19,
        &[
            "affinity::unused_chains",
            "matrix::iptables_legacy::only_sources_in",
            "matrix::iptables_nft::only_sources_in",
            "matrix::nftables::only_sources_in",
            "nftables_sync::a_difference",
            "nftables_sync::a_set_with",
            "nftables_sync::both_families",
            "nftables_sync::unused_chains",
            "stale_flows::iptables_nft::a_client",
            "stale_flows::nftables::a_client",
            "stale_flows::nftables::attempts",
            "traffic::iptables_legacy::connections",
            "traffic::iptables_nft::connections",
            "traffic::nftables::",
            "unused::unused_chains_and_sets",
        ],
    ),
];

/// A test that does not run on some kernels.
///
/// For a test that the kernel cannot pass, or that takes long and is known from the host. The
/// console has the reason at every run, so that nobody takes it for a test that passed.
struct Exception {
    /// Series of the kernels, such as `6.12`. With a new series in Debian the test runs again,
    /// which shows whether the reason still holds.
    series: &'static [&'static str],
    /// Folder of the package and name of the test binary.
    suite: (&'static str, &'static str),
    /// Name of the test.
    name: &'static str,
    /// Reason, as printed to the console.
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        series: &["6.1", "6.12"],
        suite: ("crates/nftables", "kernel"),
        name: "thirty_thousand_elements_are_one_transaction_and_one_send",
        reason: "takes long and does not depend on the kernel's age",
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
        name: "filters_select_the_right_flows_of_a_large_table_and_many_rejections_are_one_error",
        reason: "takes long and does not depend on the kernel's age",
    },
    Exception {
        series: &["6.12"],
        suite: ("crates/proxy-core", "kernel"),
        name: "nftables_sync::a_difference_is_a_script_that_nft_applies",
        reason: NFT_BYTE_ORDER,
    },
    Exception {
        series: &["6.12"],
        suite: ("crates/proxy-core", "kernel"),
        name: "nftables_sync::a_set_with_different_properties_is_replaced_while_rules_use_it",
        reason: NFT_BYTE_ORDER,
    },
];

const NFT_BYTE_ORDER: &str =
    "nft 1.0.6 converts the byte order of one-byte numbers, which 6.12 rejects";

/// A test binary and its selected tests.
#[derive(Debug)]
pub(super) struct Suite {
    /// Folder of the package.
    folder: &'static str,
    /// Name of the test binary.
    target: &'static str,
    /// Path of the test binary on the host.
    pub(super) binary: PathBuf,
    /// Paths of the package's programs, which tests run at the same paths in the guest.
    pub(super) programs: Vec<PathBuf>,
    /// Names of the selected tests.
    pub(super) names: Vec<String>,
}

impl Suite {
    /// Returns the working directory of the tests.
    pub(super) fn folder(&self) -> PathBuf {
        root().join(self.folder)
    }

    /// Returns the programs whose change requires another run.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &Path> {
        let programs = self.programs.iter();
        programs.chain([&self.binary]).map(PathBuf::as_path)
    }

    /// Returns the title for filters and messages.
    pub(super) fn title(&self) -> String {
        title(self.folder, self.target)
    }

    /// Returns the command that runs the named tests; `number` is the binary's number in
    /// the guest.
    pub(super) fn run(&self, number: usize, names: &[String]) -> Run {
        Run {
            folder: self.folder(),
            // Without `--exact` a name also selects the tests whose names contain it, among them
            // exceptions.
            command: format!("{} --exact {}", guest::binary(number), names.join(" ")),
        }
    }

    /// Returns the selected tests except those that do not run on a series, which are
    /// printed.
    pub(super) fn names_for(&self, series: &str) -> Vec<String> {
        let mut names = self.names.clone();
        for exception in self
            .exceptions()
            .filter(|each| each.series.contains(&series))
        {
            eprintln!(
                "{}: skipping {} on {series}: {}",
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

/// Builds the suites whose titles contain `filter`, and selects their tests.
///
/// # Errors
/// If a build fails, or if a selection or an exception does not match the tests
/// of its suite; the error names all such suites.
pub(super) fn build(filter: &str) -> Result<Vec<Suite>> {
    let chosen: Vec<_> = SUITES
        .iter()
        .copied()
        .filter(|(folder, target, ..)| title(folder, target).contains(filter))
        .collect();
    ensure!(!chosen.is_empty(), "no suite has {filter:?} in its title");
    // Builds with the features of all members, as `cargo test --workspace` does,
    // to reuse its artifacts.
    let mut command = cargo(["test", "--workspace", "--no-run"]);
    // A set: several packages have a target of one name, and cargo builds all of them.
    let targets: BTreeSet<&str> = chosen.iter().map(|(_, target, ..)| *target).collect();
    for target in targets {
        command.args(["--test", target]);
    }
    let artifacts = Artifacts::build(&mut command)?;
    let (mut suites, mut problems) = (Vec::new(), Vec::new());
    for (folder, target, count, prefixes) in chosen {
        let package = root().join(folder);
        let binary = artifacts
            .find(&package, "test", target)
            .with_context(|| format!("cargo built no {}", title(folder, target)))?;
        // The binary itself knows best, because features and macros decide which tests exist.
        let (names, mismatches) = select(list(&binary)?, count, prefixes);
        let suite = Suite {
            folder,
            target,
            binary,
            programs: artifacts.programs(&package),
            names,
        };
        let exceptions = suite
            .exceptions()
            .filter(|exception| !suite.names.iter().any(|name| name == exception.name))
            .map(|exception| format!("no test for the exception {}", exception.name));
        let mismatches = mismatches.into_iter().chain(exceptions);
        problems.extend(mismatches.map(|problem| format!("{}: {problem}", suite.title())));
        suites.push(suite);
    }
    // All at once: a change of many names should need one more run, not one for each.
    ensure!(
        problems.is_empty(),
        "update the tables in {}:\n{}",
        file!(),
        problems.join("\n")
    );
    Ok(suites)
}

/// Selects tests by prefixes of their names.
///
/// Also returns a message for each prefix without a test, and one if the number
/// of selected tests is not `count`.
fn select(names: Vec<String>, count: usize, prefixes: &[&str]) -> (Vec<String>, Vec<String>) {
    let mut problems: Vec<String> = prefixes
        .iter()
        .filter(|prefix| !names.iter().any(|name| name.starts_with(**prefix)))
        .map(|prefix| format!("no test has the prefix {prefix:?}: was it renamed?"))
        .collect();
    let mut selected = names;
    selected.retain(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
    if selected.len() != count {
        problems.push(format!(
            "{} tests are selected instead of {count}: were tests renamed, added or removed?",
            selected.len()
        ));
    }
    (selected, problems)
}

fn title(folder: &str, target: &str) -> String {
    format!("{folder} {target}")
}

/// Lists the tests of a test binary.
fn list(binary: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(binary);
    let output = command.args(["--list", "--format", "terse"]).output()?;
    if !output.status.success() {
        bail!("{}: {}", display(&command), output.status);
    }
    Ok(names(&String::from_utf8(output.stdout)?))
}

/// Parses lines `NAME: test`. Lines `NAME: benchmark` are left out.
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
    fn tests_are_listed_without_benchmarks() {
        assert_eq!(names("a::b: test\nc: benchmark\nd: test\n"), ["a::b", "d"]);
    }

    #[test]
    fn a_prefix_without_a_test_and_a_different_number_of_tests_are_problems() {
        let names = || ["a::b", "a::c", "d"].map(str::to_owned).to_vec();
        let all = select(names(), 3, &[""]);
        assert_eq!(all, (names(), Vec::new()));
        let some = select(names(), 2, &["a::c", "d"]);
        assert_eq!(some, (names()[1..].to_vec(), Vec::new()));
        let (selected, problems) = select(names(), 2, &["a::x", "d"]);
        assert_eq!(selected, ["d"]);
        let expected = [
            "no test has the prefix \"a::x\": was it renamed?",
            "1 tests are selected instead of 2: were tests renamed, added or removed?",
        ];
        assert_eq!(problems, expected);
        assert_eq!(select(Vec::new(), 0, &[""]).1.len(), 1);
    }

    #[test]
    fn every_exception_names_a_suite() {
        for exception in EXCEPTIONS {
            let mut suites = SUITES.iter().map(|(folder, target, ..)| (*folder, *target));
            assert!(
                suites.any(|suite| suite == exception.suite),
                "{}",
                exception.name
            );
        }
    }
}
