//! Runs kernel tests and benchmarks on kernels other than the host's.
//!
//! Debian's kernels are downloaded, not installed, and booted by QEMU without
//! hardware virtualization.
//! A guest has no disk and no network.
//! Its initramfs contains busybox, kernel modules, the programs that tests run, and
//! the test binaries that cargo built for the host.
//! The init script loads modules, runs the tests and powers off.
//! Guests of all kernels run in parallel; each uses one processor.

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
        // Tests run programs at their paths on the host.
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
        for counted in in_parallel(&kernels, run)? {
            *tally += counted;
        }
        Ok(())
    })
}

/// Runs the suites on a kernel and prints each line of the guest with the kernel's
/// series.
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

/// Runs `work` for all kernels in parallel.
/// The error names the release of each kernel for which `work` failed.
fn in_parallel<T: Send>(
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
            .map(|thread| thread.join().expect("a guest's thread does not panic"))
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
    fn kernels_run_in_parallel_and_the_error_names_each_that_failed() {
        let kernels = ["6.1", "6.12", "6.18"].map(Kernel::of_series);
        let arrived = AtomicUsize::new(0);
        let deadline = Instant::now() + Duration::from_secs(10);
        let met = in_parallel(&kernels, |kernel| {
            arrived.fetch_add(1, Ordering::Relaxed);
            while arrived.load(Ordering::Relaxed) < 3 {
                ensure!(Instant::now() < deadline, "not all threads run");
                thread::yield_now();
            }
            Ok(kernel.series.len())
        });
        assert_eq!(met.unwrap(), [3, 4, 4]);
        let failed = in_parallel(&kernels, |kernel| {
            ensure!(kernel.series == "6.12", "it broke");
            Ok(())
        });
        let expected = "6.1.0-cloud: it broke\n6.18.0-cloud: it broke";
        assert_eq!(failed.unwrap_err().to_string(), expected);
    }
}
