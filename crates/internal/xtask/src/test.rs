//! Runs all checks of CI.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use testkit::privilege::become_root;

use crate::binaries::{Artifacts, TestBinary};
use crate::cargo::{Metadata, cargo, metadata};
use crate::jobs::Job;
use crate::passed::Passed;
use crate::process::execute;
use crate::steps::{Steps, Tally};
use crate::vm::Guests;
use crate::{dependencies, etcd, features, fuzz, image, publish, tidy, tools, vm, windows};

/// Time to run each fuzz target, in seconds.
const FUZZ_SECONDS: u64 = 3;

/// Tests of one binary that run at the same time. They wait a part of their time, and one at a
/// time would leave processors idle. With four, and three binaries, two processors had 10 to 27
/// threads to run, and tests reached their time limits.
const TEST_THREADS: &str = "2";

/// Test binaries of this package.
const API: &str = "crates/internal/xtask api";
const TRAFFIC: &str = "crates/internal/xtask traffic";

/// Tests beside which no other test runs, because they measure a time: what they measure,
/// the title of their binary, and a part of their names.
const TIMED: [(&str, &str, &str); 6] = [
    // A demonstration counts connections that fail while endpoints are replaced.
    (
        "demonstrations",
        "crates/internal/xtask xtask",
        "demo::tests::rows_",
    ),
    ("restarts", API, "restart::"),
    ("repair under load", TRAFFIC, "_within_100_milliseconds"),
    ("repair", ENGINE, "_within_100_milliseconds"),
    ("changes", "examples/cluster-dns lab", "changes::"),
    ("changes", "examples/kube-proxy binary", "_within_"),
];

/// Packages with tests that run kube-proxy.
const USERS_OF_KUBE_PROXY: [&str; 2] = ["crates/internal/xtask", "examples/kube-proxy"];

/// Titles of the test binaries that run longest, in this order.
const SLOW: &[&str] = &[
    "examples/kube-proxy world",
    "examples/kube-proxy binary",
    "crates/service-ip etcd",
    API,
    "crates/proxy-core kernel",
    "crates/proxy-core memory",
    "crates/nftables kernel",
    "crates/conntrack kernel",
];

/// Title of the test binary of the engine.
const ENGINE: &str = "crates/proxy-core kernel";

/// Title of the test binary that compares messages with those of libnftnl.
const LIBNFTNL: &str = "crates/internal/libnftnl libnftnl";

/// Runs the task.
///
/// With `host_only`, guests and fuzz targets are left out.
fn run_steps(steps: &mut Steps, repeats_all: bool, host_only: bool) -> Result<()> {
    let metadata = metadata()?;
    steps.step("format", || {
        execute(&mut cargo(["fmt", "--all", "--check"]))
    })?;
    let downloads = check("downloads", || download(&metadata, host_only));
    steps.jobs(
        "lints, downloads",
        vec![check("lints", lints), downloads],
        2,
    )?;
    let mut from_packages = Vec::new();
    // The first one is a sequence of short commands, which leave a processor idle. It has
    // a target folder of its own, so cargo runs the second one at the same time.
    let checks = vec![
        check("features, minimum version of Rust", || {
            features::run(&metadata)
        }),
        check("documentation", document),
        check("tidy", tidy::run),
        check("dependencies", dependencies::run),
        check("packages", || {
            from_packages = publish::check_packages()?;
            Ok(())
        }),
        check("Windows", windows::check),
    ];
    steps.jobs("checks", checks, 2)?;
    let mut built = None;
    steps.step("build", || {
        built = Some((build("--tests")?, build("--test=windows")?));
        Ok(())
    })?;
    let (built, for_wine) = built.context("the step has built the tests")?;
    let tests = ordered(built.tests());
    let mut with_nftnl = Vec::new();
    steps.step("libnftnl", || {
        with_nftnl = nftnl()?;
        Ok(())
    })?;
    let guests = match host_only {
        true => None,
        false => Some(Guests::build(steps, &metadata, "", repeats_all)?),
    };
    become_root().context("kernel tests need root or a user namespace")?;
    let programs = Programs {
        kube_proxy: metadata.target_directory.join("debug/kube-proxy"),
        etcd: etcd::fetch(&metadata.target_directory)?,
        passed: Passed::open(&metadata.target_directory, repeats_all)?,
    };
    let (timed, mut jobs) = programs.jobs(&tests);
    // A failed test does not stop the next steps: one run shows all failures.
    let timed = steps.jobs("timed tests", timed, 1);
    let doc = Job::command("doc", cargo(["test", "--workspace", "--doc"]));
    // It is first, because later the build in the background would delay it.
    jobs.insert(0, doc);
    jobs.insert(1, check("image", || image::check(&metadata, &built)));
    jobs.push(Job::new("programs of the packages", |_| {
        let passed = publish::run_programs(&from_packages)?;
        Ok(Tally {
            passed,
            ..Tally::default()
        })
    }));
    jobs.extend(windows_jobs(&for_wine)?);
    jobs.extend(
        with_nftnl
            .iter()
            .map(|test| programs.job(test.title(), test, Vec::new())),
    );
    // Tests wait a part of their time.
    let mut workers = thread::available_parallelism()?.get() + 1;
    match host_only {
        // In place of the build in the background.
        true => workers += 1,
        false => jobs.push(fuzz::build_job().in_background()),
    }
    let tests = steps.jobs("tests", jobs, workers);
    let Some(guests) = guests else {
        return all([timed, tests]);
    };
    // These jobs keep CPUs busy, and the tests have deadlines. So these jobs run last.
    let mut jobs = vec![fuzz::job(&metadata, &programs.passed, FUZZ_SECONDS)];
    jobs.extend(guests.jobs());
    let count = jobs.len();
    let rest = steps.jobs("guests and fuzz targets", jobs, count);
    all([timed, tests, rest])
}

/// Returns the errors of all steps as one error.
fn all<const N: usize>(results: [Result<()>; N]) -> Result<()> {
    let errors = results.into_iter().filter_map(Result::err);
    let errors: Vec<_> = errors.map(|error| format!("{error:#}")).collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

/// Builds tests with one set of features for programs and tests. The lints cover other
/// targets.
fn build(tests: &str) -> Result<Artifacts> {
    Artifacts::build(&mut cargo(["test", "--workspace", tests, "--no-run"]))
}

/// Returns the jobs that run the program for Windows, if it can run.
fn windows_jobs(tests: &Artifacts) -> Result<Vec<Job<'static>>> {
    let Some(program) = windows::program_to_run()? else {
        return Ok(Vec::new());
    };
    let jobs = tests.tests().map(|test| {
        let mut command = Command::new(&test.path);
        command.env(windows::PROGRAM, &program);
        Job::command(test.title(), command)
    });
    Ok(jobs.collect())
}

/// Runs all steps and prints their table.
pub(crate) fn run(repeats_all: bool, host_only: bool) -> Result<()> {
    let mut steps = Steps::new();
    run_steps(&mut steps, repeats_all, host_only)?;
    steps.finish()?;
    if host_only {
        println!("guests and fuzz targets did not run: see `cargo xtask vm`, `cargo xtask fuzz`");
    }
    Ok(())
}

/// Programs that tests start, and the record of jobs that passed.
struct Programs {
    kube_proxy: PathBuf,
    etcd: PathBuf,
    passed: Passed,
}

impl Programs {
    /// Returns the jobs of timed tests, and those of all other tests.
    fn jobs<'a>(&'a self, tests: &'a [TestBinary]) -> (Vec<Job<'a>>, Vec<Job<'a>>) {
        let (mut timed, mut others) = (Vec::new(), Vec::new());
        for test in tests {
            let title = test.title();
            let Some((what, _, part)) = TIMED.iter().find(|(_, of, _)| *of == title) else {
                others.push(self.job(title, test, Vec::new()));
                continue;
            };
            let alone = vec![*part, "--test-threads=1"];
            timed.push(self.job(format!("{title}: {what}"), test, alone));
            others.push(self.job(title, test, vec!["--skip", part]));
        }
        (timed, others)
    }

    /// Returns the job that runs a test binary.
    fn job<'a>(&'a self, title: String, test: &'a TestBinary, arguments: Vec<&'a str>) -> Job<'a> {
        Job::new(title.clone(), move |output| {
            let mut command = Command::new(&test.path);
            command
                .args(&arguments)
                .current_dir(&test.folder)
                .env("RUST_TEST_THREADS", TEST_THREADS)
                .env("KUBE_PROXY", &self.kube_proxy)
                .env("ETCD", &self.etcd);
            // The unit tests of this task read the sources of all crates.
            if test.target == "xtask" {
                return output.run(&mut command);
            }
            let mut inputs = vec![&*test.path];
            if USERS_OF_KUBE_PROXY
                .iter()
                .any(|it| test.folder.ends_with(it))
            {
                inputs.push(&self.kube_proxy);
            }
            let run = || {
                let tally = output.run(&mut command)?;
                // A renamed test could drop out of a selection without notice.
                ensure!(
                    tally.passed > 0 || arguments.is_empty(),
                    "{arguments:?} selects no test"
                );
                Ok(tally)
            };
            let record = [&[&*title], &*arguments].concat().join(" ");
            self.passed.run(&record, &inputs, output, run)
        })
    }
}

/// Lints and builds the comparison with libnftnl. All other steps run without the library.
///
/// The commands select the whole workspace, as those of the other steps do. So the
/// dependencies have the same features and are not compiled again.
fn nftnl() -> Result<Vec<TestBinary>> {
    let selection = [
        "--workspace",
        "--test=libnftnl",
        "--features=libnftnl/libnftnl",
    ];
    let clippy = [&["clippy"], &selection[..], &["--", "--deny=warnings"]].concat();
    execute(&mut cargo(clippy))?;
    let build = [&["test", "--no-run"], &selection[..]].concat();
    let artifacts = Artifacts::build(&mut cargo(build))?;
    let is_ours = |test: &TestBinary| test.title() == LIBNFTNL;
    Ok(artifacts.tests().filter(is_ours).collect())
}

/// Returns test binaries, [slow ones](SLOW) first.
fn ordered(tests: impl Iterator<Item = TestBinary>) -> Vec<TestBinary> {
    let mut tests: Vec<TestBinary> = tests.collect();
    let rank = |title: &str| SLOW.iter().position(|slow| *slow == title);
    tests.sort_by_key(|test| rank(&test.title()).unwrap_or(SLOW.len()));
    tests
}

/// Returns the job of a check without tests.
fn check<'a>(title: &str, work: impl FnOnce() -> Result<()> + Send + 'a) -> Job<'a> {
    Job::new(title, move |_| work().map(|()| Tally::default()))
}

/// Downloads and installs what later steps need, while others compile.
fn download(metadata: &Metadata, host_only: bool) -> Result<()> {
    let host = [
        tools::KERNEL_TOOLS,
        tools::DNS_TOOLS,
        tools::NFTNL,
        tools::IMAGE_TOOLS,
    ];
    let mut tools = host.concat();
    if !host_only {
        tools.extend([tools::VM_TOOLS, tools::FUZZ_TOOLS].concat());
    }
    // One call of apt-get for all steps: another one would wait for its lock.
    tools::install(&tools)?;
    if !host_only {
        vm::download(&metadata.target_directory)?;
    }
    etcd::fetch(&metadata.target_directory)?;
    // Without them, later steps print the error.
    let _ = tools::install(tools::WINE);
    let _ = windows::fetch(&metadata.target_directory);
    Ok(())
}

/// Lints all targets.
fn lints() -> Result<()> {
    // `--all-targets` excludes tests that need a guest or Wine.
    for targets in [&["--all-targets"][..], &["--test=vm", "--test=windows"]] {
        let arguments = [
            &["clippy", "--workspace"],
            targets,
            &["--", "--deny=warnings"],
        ];
        execute(&mut cargo(arguments.concat()))?;
    }
    Ok(())
}

/// Builds the documentation.
fn document() -> Result<()> {
    // Without the test targets, which would need other features of dependencies.
    let targets = ["--lib", "--bins", "--examples"];
    let mut doc = cargo([&["doc", "--workspace", "--no-deps"], &targets[..]].concat());
    execute(doc.env("RUSTDOCFLAGS", "--deny=warnings"))
}

#[cfg(test)]
mod tests {
    use std::env;

    use anyhow::anyhow;
    use testkit::scoped::Directory;

    use super::*;
    use crate::jobs;

    #[test]
    fn the_errors_of_all_steps_are_reported() {
        all([Ok(()), Ok(())]).unwrap();
        let cause = anyhow!("exit status: 1").context("guest");
        let error = all([Err(anyhow!("test")), Ok(()), Err(cause)]).unwrap_err();
        assert_eq!(format!("{error:#}"), "test\nguest: exit status: 1");
    }

    #[test]
    fn a_selection_without_tests_is_an_error() {
        let folder = Directory::new().unwrap();
        let programs = Programs {
            kube_proxy: PathBuf::new(),
            etcd: PathBuf::new(),
            passed: Passed::open(folder.path(), false).unwrap(),
        };
        let test = TestBinary {
            folder: folder.path().to_owned(),
            target: "any".to_owned(),
            path: env::current_exe().unwrap(),
        };
        let run = |selection| {
            let job = programs.job("any".to_owned(), &test, selection);
            jobs::run(vec![job], 1).remove(0).result
        };
        assert_eq!(run(vec!["figures_are_collected"]).unwrap().passed, 1);
        let error = run(vec!["no_test_has_this_name"]).unwrap_err();
        assert!(error.to_string().contains("any"), "{error:#}");
        assert!(
            format!("{error:#}").contains("selects no test"),
            "{error:#}"
        );
    }
}
