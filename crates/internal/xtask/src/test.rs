//! Runs all checks of CI.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use testkit::privilege::become_root;

use crate::cargo::{Metadata, cargo, metadata};
use crate::process::execute;
use crate::steps::{Steps, Tally};
use crate::{etcd, fuzz, publish, tidy, tools, vm};

/// Time to run each fuzz target, in seconds.
const FUZZ_SECONDS: u64 = 5;

/// Feature sets to lint, for each published package with features.
///
/// The other steps build the workspace with all features except `nftnl`, which has a step.
const FEATURES: &[(&str, &[&str])] = &[
    ("proxy-core", &["", "nftables", "iptables", "ipvs"]),
    ("vipline-kube-source", &["", "manifests"]),
    ("vipline-nftables", &[""]),
    ("vipline-service-ip", &[""]),
    ("vipline-service-model", &["", "serde", "test-util"]),
];

/// Runs the task.
pub(crate) fn run_steps(steps: &mut Steps) -> Result<()> {
    let metadata = metadata()?;
    steps.step("tools", || {
        tools::install(&[tools::KERNEL_TOOLS, tools::NFTNL, tools::VM_TOOLS].concat())
    })?;
    steps.step("format", || {
        execute(&mut cargo(["fmt", "--all", "--check"]))
    })?;
    steps.step("tidy", || tidy::run(false))?;
    steps.step("lints", || {
        // `--all-targets` excludes the tests named `vm`, which run only in guests.
        for targets in [&["--all-targets"][..], &["--test", "vm"]] {
            let arguments = [
                &["clippy", "--workspace"],
                targets,
                &["--", "--deny=warnings"],
            ];
            execute(&mut cargo(arguments.concat()))?;
        }
        Ok(())
    })?;
    steps.step("features", || features(&metadata))?;
    steps.step("documentation", || {
        let mut doc = cargo(["doc", "--workspace", "--no-deps"]);
        execute(doc.env("RUSTDOCFLAGS", "--deny=warnings"))
    })?;
    // Packages are not built here: the other steps build the same code.
    steps.step("packages", || publish::run(true, false))?;
    steps.step("build", || {
        // One set of features for programs, tests, benchmarks and examples.
        let targets = ["test", "--workspace", "--all-targets", "--no-run"];
        execute(&mut cargo(targets))
    })?;
    let program = metadata.target_directory.join("debug/kube-proxy");
    let mut etcd = PathBuf::new();
    steps.step("etcd", || {
        etcd = etcd::fetch(&metadata.target_directory)?;
        Ok(())
    })?;
    steps.counted("tests", |tally| {
        become_root().context("kernel tests need root or a user namespace")?;
        let mut tests = cargo(["test", "--workspace"]);
        tally.run(tests.env("KUBE_PROXY", &program).env("ETCD", &etcd))
    })?;
    steps.counted("libnftnl", nftnl)?;
    vm::steps(steps, &metadata, "")?;
    fuzz::steps(steps, &metadata, FUZZ_SECONDS)
}

/// Runs all steps and prints their table.
pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::new();
    run_steps(&mut steps)?;
    steps.finish()
}

/// Lints and tests the feature `nftnl`; all other steps run without the feature.
fn nftnl(tally: &mut Tally) -> Result<()> {
    let features = [
        "--package=vipline-nftables",
        "--features=vipline-nftables/nftnl",
    ];
    let lints = [
        &["clippy", "--tests"],
        &features[..],
        &["--", "--deny=warnings"],
    ]
    .concat();
    execute(&mut cargo(lints))?;
    let tests = [&["test", "--lib", "--test", "nftnl"], &features[..]].concat();
    tally.run(&mut cargo(tests))?;
    tally.run(&mut cargo([
        "test",
        "--package=proxy-core",
        "--features=nftnl",
        "--test=affinity",
        "--test=affinity_traffic",
        "--test=kernel",
        "--test=matrix",
        "--test=rollout",
        "--test=takeover",
        "--test=traffic",
        // Mode iptables does not use nftnl.
        "--",
        "--skip=iptables_nft::",
        "--skip=iptables_legacy::",
    ]))
}

/// Lints published packages with parts of their features.
fn features(metadata: &Metadata) -> Result<()> {
    for package in metadata.packages.iter().filter(|each| each.is_published()) {
        let sets = FEATURES.iter().find(|(name, _)| *name == package.name);
        let sets = match sets {
            None if package.features.is_empty() => continue,
            None => bail!("{}: FEATURES lacks the package", package.name),
            Some((_, sets)) => sets,
        };
        for set in *sets {
            execute(&mut cargo([
                "clippy",
                "--package",
                &package.name,
                "--no-default-features",
                "--features",
                set,
                "--",
                "--deny=warnings",
            ]))?;
        }
    }
    Ok(())
}
