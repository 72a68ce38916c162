//! Kernel tests, and benches, on kernels other than the machine's.
//!
//! Debian's kernels are downloaded, not installed, and booted by QEMU without
//! hardware's help: what is left of such a machine is a process.
//! A guest has no disk and no network.
//! All its files are unpacked by its kernel: busybox, modules, the programs
//! that tests run, and test binaries as cargo built them for this machine.
//! Its first process loads what all tests need, runs them and powers off.
//! Guests of all kernels run at the same time, for each keeps one processor busy.
//! A bench is run in the same way, and its figures are heard.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, thread};

use anyhow::{Context, Result, bail};

use crate::cargo::{Metadata, metadata};
use crate::steps::{Steps, Tally};
use crate::tools;

use self::archive::Archive;
use self::guest::Run;
use self::kernels::Kernel;
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

/// Builds the suites whose titles contain `filter` and prints the tests that they
/// select.
pub(crate) fn list(filter: &str) -> Result<()> {
    let suites = suites::build(filter)?;
    for suite in &suites {
        for name in &suite.names {
            println!("{}: {name}", suite.title());
        }
    }
    let count: usize = suites.iter().map(|suite| suite.names.len()).sum();
    eprintln!("{} suites, {count} tests", suites.len());
    Ok(())
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
    steps.counted("vm: guests", |tally| {
        let run = |kernel: &Kernel| test(kernel, &suites, base.clone(), &cache);
        for counted in at_once(&kernels, run)? {
            *tally += counted;
        }
        Ok(())
    })
}

/// Runs the suites on a kernel; each line that the guest prints is told with the
/// kernel's series.
fn test(kernel: &Kernel, suites: &[Suite], mut archive: Archive, cache: &Path) -> Result<Tally> {
    let start = Instant::now();
    let chosen: Vec<(&Suite, Vec<String>)> = suites
        .iter()
        .map(|suite| (suite, suite.names_for(&kernel.series)))
        .collect();
    let runs = chosen.iter().enumerate();
    let runs: Vec<Run> = runs
        .map(|(number, (suite, names))| suite.run(number, names))
        .collect();
    guest::add(&mut archive, kernel, &runs)?;
    let initramfs = cache.join(format!("{}.initramfs", kernel.release));
    fs::write(&initramfs, archive.encode())?;
    let mut tally = Tally::default();
    let results = guest::run(kernel, &initramfs, |line| {
        println!("{}: {line}", kernel.series);
        tally.count(line);
    })?;
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{}: the guest ran for {seconds:.1} s", kernel.release);
    results.check(
        chosen
            .iter()
            .map(|(suite, names)| (suite.title(), &**names)),
    )?;
    Ok(tally)
}

/// Does something with all kernels at the same time; of each with which it failed
/// the error names the release.
fn at_once<T: Send>(
    kernels: &[Kernel],
    work: impl Fn(&Kernel) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &|kernel: &Kernel| work(kernel).with_context(|| kernel.release.clone());
    let results: Vec<Result<T>> = thread::scope(|scope| {
        let threads: Vec<_> = kernels
            .iter()
            .map(|kernel| scope.spawn(move || work(kernel)))
            .collect();
        let threads = threads.into_iter();
        threads
            .map(|thread| thread.join().expect("it does not panic"))
            .collect()
    });
    let failures = results.iter().filter_map(|result| result.as_ref().err());
    let failures: Vec<String> = failures.map(|error| format!("{error:#}")).collect();
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    results.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use anyhow::ensure;

    use super::*;

    #[test]
    fn work_with_all_kernels_is_done_at_once_and_each_that_fails_is_named() {
        let kernels = ["6.1", "6.12", "6.18"].map(Kernel::of_series);
        let there = AtomicUsize::new(0);
        let deadline = Instant::now() + Duration::from_secs(10);
        let met = at_once(&kernels, |kernel| {
            there.fetch_add(1, Ordering::Relaxed);
            while there.load(Ordering::Relaxed) < 3 {
                ensure!(Instant::now() < deadline, "the others are late");
                thread::yield_now();
            }
            Ok(kernel.series.len())
        });
        assert_eq!(met.unwrap(), [3, 4, 4]);
        let failed = at_once(&kernels, |kernel| {
            ensure!(kernel.series == "6.12", "it broke");
            Ok(())
        });
        let expected = "6.1.0-cloud: it broke\n6.18.0-cloud: it broke";
        assert_eq!(failed.unwrap_err().to_string(), expected);
    }
}
