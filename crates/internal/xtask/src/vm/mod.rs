//! Runs kernel tests and benchmarks on kernels other than the host's.
//!
//! Kernels differ in what they accept: 6.12.117 rejects a conversion of the byte order that 6.1
//! takes, and the kernel of a developer's machine may have no IPVS at all. A test that passed
//! here says nothing of them. So the same test binaries also run on the oldest and the newest
//! kernel that Debian offers.
//!
//! ```text
//! kernels   downloads and unpacks linux-image-6.1.…-cloud-amd64, installs nothing
//! modules   selects its modules: networking, and what that needs
//! suites    builds test binaries, selects tests by name
//! guest     base: busybox, programs such as nft, libraries, test binaries
//!           add:  modules of one kernel, and the script /init that runs the suites
//! archive   all of this as an initramfs
//! guest     QEMU boots it; the script prints to the serial console and powers off
//! results   reads the console: has each selected test passed?
//! ```
//!
//! The kernel unpacks an initramfs to memory, so a guest needs no image of a disk, and cannot
//! change the host: it has no disk and no network. QEMU emulates the processor, so that guests
//! also run on machines without hardware virtualization. A test takes up to ten times as long as
//! on the host, which is the reason for much of what looks odd here: an old model of the
//! processor, kernel parameters, and records of what passed.
//!
//! Tried and given up:
//!
//! - Several processors in a guest: slower, and the kernel panicked while it patched its own code
//!   (`PROCESSOR` in guest.rs).
//! - A repetition of failed tests in another guest, because an emulated test may miss a time
//!   limit. It would have hidden a defect of wakeups that only some runs showed.
//! - All modules loaded before the tests. Now kernels load them on demand, as on a node.
//!
//! What must stay true: a test that did not run is a failure, whatever the reason. Names are
//! compared, not numbers alone, and silence of a guest is an error.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cargo::{Metadata, metadata};
use crate::jobs::{Job, Output};
use crate::passed::{Passed, Record};
use crate::steps::{Failures, Steps, Tally};
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
    // Who asks for guests wants to see them run: what passed before counts only in `xtask test`.
    let guests = Guests::build(&mut all, &metadata()?, filter, true)?;
    let jobs: Vec<Job<'_>> = guests.jobs().collect();
    // All at once: each guest keeps one processor busy, and there is nothing to run beside them.
    let workers = jobs.len();
    all.jobs("vm: guests", jobs, workers)?;
    all.finish()
}

/// Builds the suites whose titles contain `filter` and prints the tests that they
/// select. Needs no kernel and no QEMU: this checks the table of suites without a guest.
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

/// Downloads and unpacks the kernels, if they are missing. `xtask test` does so beside the
/// lints.
pub(crate) fn download(target_directory: &Path) -> Result<()> {
    kernels(&target_directory.join("vm")).map(drop)
}

/// Returns the kernels. Unpacks missing ones in the folder `cache`.
fn kernels(cache: &Path) -> Result<Vec<Kernel>> {
    fs::create_dir_all(cache)?;
    kernels::fetch(cache)
}

/// Guests that can boot: kernels, and the files and tests of all guests.
#[derive(Debug)]
pub(crate) struct Guests {
    kernels: Vec<Kernel>,
    suites: Vec<Suite>,
    /// The files of all kernels. Stripping and reading them takes time, so it is done once.
    base: Archive,
    /// Folder of kernels and of files that guests boot from.
    cache: PathBuf,
    passed: Passed,
}

impl Guests {
    /// Adds the steps that build guests to a task.
    pub(crate) fn build(
        steps: &mut Steps,
        metadata: &Metadata,
        filter: &str,
        repeats_all: bool,
    ) -> Result<Self> {
        // Filled in by the steps below, each of which ends this function if it fails.
        let mut guests = Self {
            kernels: Vec::new(),
            suites: Vec::new(),
            base: Archive::default(),
            cache: metadata.target_directory.join("vm"),
            passed: Passed::open(&metadata.target_directory, repeats_all)?,
        };
        // Both lists, because `base` copies programs of this machine, such as `nft`, into guests.
        steps.step("vm: tools", || {
            tools::install(&[tools::KERNEL_TOOLS, tools::VM_TOOLS].concat())
        })?;
        steps.step("vm: kernels", || {
            guests.kernels = kernels(&guests.cache)?;
            Ok(())
        })?;
        steps.step("vm: build", || {
            guests.suites = suites::build(filter)?;
            guests.base = base(&guests.suites, &guests.cache)?;
            Ok(())
        })?;
        Ok(guests)
    }

    /// Returns a job for each kernel, which runs all suites that changed.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = Job<'_>> {
        self.kernels.iter().map(move |kernel| {
            let title = format!("vm {}", kernel.series);
            Job::new(title, move |output| self.run(kernel, output))
        })
    }

    /// Runs the suites on a kernel, except those that passed and did not change.
    fn run(&self, kernel: &Kernel, output: &Output) -> Result<Tally> {
        let image = kernel.image();
        let (mut tally, mut chosen) = (Tally::default(), Vec::new());
        // Numbers of all suites and not of the chosen ones: under these `base` has their binaries.
        for (number, suite) in self.suites.iter().enumerate() {
            let names = suite.names_for(&kernel.series);
            // With the names, because another table of suites may select other tests of the same
            // binary.
            let title = format!("vm {} {} {}", kernel.series, suite.title(), names.join(" "));
            // A new release of the kernel repeats all suites, also if no program changed.
            let inputs: Vec<&Path> = suite.inputs().chain([&*image]).collect();
            let record = self.passed.record(&title, &inputs);
            if let Some(count) = record.count {
                tally += Tally::unchanged(count);
                continue;
            }
            let run = suite.run(number, &names);
            chosen.push(Chosen {
                suite,
                names,
                run,
                record,
            });
        }
        if tally.unchanged > 0 {
            let line = format!("{} tests passed and are unchanged", tally.unchanged);
            output.line(&line);
        }
        if chosen.is_empty() {
            return Ok(tally);
        }
        tally += self.boot(kernel, &chosen, output)?;
        // Not reached if any suite failed, so the next run repeats all suites of this guest.
        for Chosen { names, record, .. } in &chosen {
            record.save(names.len())?;
        }
        Ok(tally)
    }

    /// Runs suites on a kernel.
    fn boot(&self, kernel: &Kernel, chosen: &[Chosen<'_>], output: &Output) -> Result<Tally> {
        // A clone, because the other guests add the modules of their kernels to the same base.
        let mut archive = self.base.clone();
        guest::add(&mut archive, kernel, chosen.iter().map(|each| &each.run))?;
        // One file for each kernel, because their guests boot at the same time.
        let initramfs = self.cache.join(format!("{}.initramfs", kernel.release));
        fs::write(&initramfs, archive.encode())?;
        let (mut tally, mut failures) = (Tally::default(), Failures::default());
        let results = guest::run(kernel, &initramfs, |line| {
            output.line(line);
            tally.count(line);
            failures.record(line);
        })?;
        let suites = chosen.iter();
        let result = results.check(suites.map(|each| (each.suite.title(), &*each.names)));
        // The error repeats the output of failed tests, which the console printed long before.
        failures.append_to(result)?;
        Ok(tally)
    }
}

/// A suite that runs in a guest.
struct Chosen<'a> {
    suite: &'a Suite,
    /// Names of the tests that run.
    names: Vec<String>,
    run: Run,
    record: Record,
}

/// Returns the files that the guests of all kernels share.
fn base(suites: &[Suite], cache: &Path) -> Result<Archive> {
    let mut binaries: Vec<&Path> = suites.iter().map(|suite| &*suite.binary).collect();
    let programs = suites.iter().flat_map(|suite| &suite.programs);
    // A set, because several suites run one program.
    let programs: BTreeSet<&Path> = programs.map(PathBuf::as_path).collect();
    // Programs have the numbers after those of the suites, in the order of the set.
    let first = binaries.len();
    binaries.extend(&programs);
    let mut base = guest::base(&binaries, cache)?;
    // Tests run programs at their paths on the host.
    for (number, program) in (first..).zip(programs) {
        base.link(program, guest::binary(number));
    }
    // Tests read their data at run time, relative to the folder of the package.
    for suite in suites {
        base.copy_all(&suite.folder().join("tests"))?;
    }
    Ok(base)
}
