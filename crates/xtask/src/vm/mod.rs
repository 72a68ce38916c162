//! Kernel tests on kernels other than the machine's.
//!
//! Debian's kernels are downloaded, not installed, and booted by QEMU without
//! hardware's help: what is left of such a machine is a process.
//! A guest has no disk and no network.
//! All its files are unpacked by its kernel: busybox, modules, the programs
//! that tests run, and test binaries as cargo built them for this machine.
//! Its first process loads what all tests need, runs them and powers off.

use std::fs;

use anyhow::Result;

use crate::cargo::{Metadata, metadata};
use crate::steps::Steps;
use crate::tools;

use self::archive::Archive;
use self::suites::Suite;

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
        base = guest::base(&suites, &cache)?;
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
            guest::add(&mut archive, kernel, &chosen)?;
            fs::write(&initramfs, archive.encode())?;
            let results = guest::run(kernel, &initramfs, tally)?;
            results.check(
                chosen
                    .iter()
                    .map(|(suite, names)| (suite.title(), &**names)),
            )
        })?;
    }
    Ok(())
}
