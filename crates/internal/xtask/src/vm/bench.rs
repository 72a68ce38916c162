//! Runs benchmarks that need a kernel feature that the host may lack, such as IPVS.
//!
//! The times of an emulated processor are not those of a real one, so only ratios within one run
//! mean something, such as mode ipvs beside the programs that do the same.
//!
//! The guest has no disk to leave its figures on, so a second command prints their file to the
//! console: objects of JSON, one a line. Each line that begins with `{` counts as one, so a
//! benchmark must print no other such line.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::guest::{self, Run};
use super::kernels;
use crate::binaries::Artifacts;
use crate::cargo::{cargo, root};
use crate::tools;

/// Builds a benchmark, runs it on the newest kernel, and returns its figures.
pub(crate) fn bench(name: &str, target_directory: &Path) -> Result<String> {
    tools::install(&[tools::KERNEL_TOOLS, tools::VM_TOOLS].concat())?;
    let cache = target_directory.join("vm");
    fs::create_dir_all(&cache)?;
    let kernel = kernels::fetch(&cache)?;
    let kernel = kernel.last().context("no kernel available")?;
    let binary = build(name)?;
    let mut archive = guest::base(&[&binary], &cache)?;
    // The guest has no disk: it prints its files to the console.
    // A benchmark that exceeds a limit fails after it has written its figures.
    let runs = [
        format!(
            "BENCH_FIGURES=/run {} || test -s /run/{name}.json",
            guest::binary(0)
        ),
        format!("cat /run/{name}.json"),
    ];
    let runs = runs.map(|command| Run {
        folder: "/".into(),
        command,
    });
    guest::add(&mut archive, kernel, &runs)?;
    let initramfs = cache.join("bench.initramfs");
    fs::write(&initramfs, archive.encode())?;
    let mut figures = String::new();
    let results = guest::run(kernel, &initramfs, |line| {
        println!("{line}");
        if line.starts_with('{') {
            figures += line;
            figures.push('\n');
        }
    })?;
    results.check_runs(&[name, "its figures"])?;
    Ok(figures)
}

/// Builds a benchmark and returns the path of its binary.
fn build(name: &str) -> Result<PathBuf> {
    let mut command = cargo(["bench", "--package", "benches", "--no-run"]);
    command.args(["--bench", name]);
    Artifacts::build(&mut command)?
        .find(&root().join("benches"), "bench", name)
        .with_context(|| format!("cargo built no bench {name}"))
}
