//! Kernel tests, and benches, on kernels other than the machine's.
//!
//! Debian's kernels are downloaded, not installed, and booted by QEMU without
//! hardware's help: what is left of such a machine is a process.
//! A guest has no disk and no network.
//! All its files are unpacked by its kernel: busybox, modules, the programs
//! that tests run, and test binaries as cargo built them for this machine.
//! Its first process loads what all tests need, runs them and powers off.
//! A bench is run in the same way, and its figures are heard.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cargo::{Metadata, metadata};
use crate::steps::Steps;
use crate::tools;

use self::archive::Archive;
use self::guest::Run;
use self::suites::Suite;

pub(crate) use self::bench::bench;

mod bench;

mod kernels;

mod modules;

mod suites;

mod archive;

mod guest;

mod results;

/// Runs the task.
pub(crate) fn run(filter: &str) -> Result<()> {
    let mut all = Steps::new();
    steps(&mut all, &metadata()?, filter)?;
    all.finish()
}

/// Adds the steps of building and of running on each kernel to a task.
pub(crate) fn steps(steps: &mut Steps, metadata: &Metadata, filter: &str) -> Result<()> {
    let cache = metadata.target_directory.join("vm");
    let (mut kernels, mut suites, mut base) = (Vec::new(), Vec::new(), Archive::default());
    steps.step("vm: tools", || {
        tools::install(&[tools::KERNEL_TOOLS, tools::VM_TOOLS].concat())
    })?;
    steps.step("vm: kernels", || {
        fs::create_dir_all(&cache)?;
        kernels = kernels::fetch(&cache)?;
        Ok(())
    })?;
    steps.step("vm: build", || {
        suites = suites::build(filter)?;
        let mut binaries: Vec<&Path> = suites.iter().map(|suite| &*suite.binary).collect();
        let programs = suites.iter().flat_map(|suite| &suite.programs);
        let programs: BTreeSet<&Path> = programs.map(PathBuf::as_path).collect();
        let first = binaries.len();
        binaries.extend(&programs);
        base = guest::base(&binaries, &cache)?;
        // Tests run them where they were built.
        for (number, program) in (first..).zip(programs) {
            base.link(program, guest::binary(number));
        }
        for suite in &suites {
            base.copy_all(&suite.folder().join("tests"))?;
        }
        Ok(())
    })?;
    for kernel in &kernels {
        steps.counted(&format!("vm: {}", kernel.release), |tally| {
            let initramfs = cache.join(format!("{}.initramfs", kernel.release));
            let chosen: Vec<(&Suite, Vec<String>)> = suites
                .iter()
                .map(|suite| (suite, suite.names_for(&kernel.series)))
                .collect();
            let mut archive = base.clone();
            let runs = chosen.iter().enumerate();
            let runs: Vec<Run> = runs
                .map(|(number, (suite, names))| suite.run(number, names))
                .collect();
            guest::add(&mut archive, kernel, &runs)?;
            fs::write(&initramfs, archive.encode())?;
            let results = guest::run(kernel, &initramfs, |line| tally.count(line))?;
            results.check(
                chosen
                    .iter()
                    .map(|(suite, names)| (suite.title(), &**names)),
            )
        })?;
    }
    Ok(())
}
