//! Tasks of the Vipline workspace: demo, test, ci, vm, windows, etcd, bench, fuzz, soak, mutants,
//! tidy, dependencies, publish, image, bless.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program prints")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod demo;

mod test;

mod binaries;

mod jobs;

mod passed;

mod features;

mod vm;

mod etcd;

mod fuzz;

mod soak;

mod mutants;

mod bench;

mod bless;

mod pictures;

mod tidy;

mod dependencies;

mod steps;

mod process;

mod cargo;

mod tools;

mod publish;

mod packages;

mod image;

mod windows;

/// Tasks of the Vipline workspace.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs kube-proxy in network namespaces and shows which endpoints serve its traffic.
    Demo {
        /// Sends more requests and replaces more endpoints.
        #[arg(long)]
        full: bool,
    },
    /// Runs all checks of CI: format, tidy, lints, documentation, tests, fuzz targets.
    ///
    /// Tests that passed are repeated only after a change of their program or of a data file.
    #[command(alias = "ci")]
    Test {
        /// Repeats all tests.
        #[arg(long)]
        all: bool,
        /// Runs neither guests nor fuzz targets, which take as long as the other tests.
        #[arg(long)]
        host: bool,
    },
    /// Runs kernel tests on Debian's oldest and newest cloud kernels in QEMU.
    Vm {
        /// Runs only suites whose titles contain this text, such as `iptables kernel`.
        #[arg(default_value = "")]
        filter: String,
        /// Builds the suites and prints their tests, without booting a kernel.
        #[arg(long)]
        list: bool,
    },
    /// Checks all crates that build for Windows, with Debian's compiler, and runs kube-proxy
    /// for Windows under Wine.
    Windows,
    /// Prints the path of etcd for tests; downloads etcd if it is not in PATH.
    Etcd,
    /// Runs all benchmarks to their end and writes their figures to target/bench.json.
    ///
    /// Fails at the end if a figure exceeds its limit.
    Bench {
        /// Runs only benchmarks whose names contain this text, such as `ipvs`. `peers` compares
        /// with other crates and programs, and runs only alone.
        #[arg(default_value = "")]
        filter: String,
        /// Number of Services in benchmark `datapath`. Default: 10,000.
        #[arg(long)]
        services: Option<u32>,
        /// Benchmark `peers` also measures builds of the crates, which takes minutes.
        #[arg(long)]
        cold: bool,
    },
    /// Builds all fuzz targets, replays their corpora, and runs each target.
    Fuzz {
        /// Time to run each target, in seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Runs kube-proxy under 200 events per second, kills, foreign flushes and API outages, with
    /// traffic, and checks rules, memory, descriptors and connections at the end.
    Soak {
        /// Duration in minutes.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// Proxy mode.
        #[arg(long, value_enum, default_value = "nftables")]
        mode: soak::Mode,
    },
    /// Changes the code in many ways, and lists the changes that no test notices.
    Mutants {
        /// Changes only files whose paths contain this text, such as `policy.rs`.
        #[arg(default_value = "")]
        filter: String,
        /// Lists the changes without running tests.
        #[arg(long)]
        list: bool,
    },
    /// Checks conventions of the repository: layout, circles between modules, manifests and sources.
    Tidy,
    /// Checks dependencies: licenses, sources, duplicate versions, and use.
    Dependencies,
    /// Packages all published crates, builds the packages, and uploads them to crates.io. A dry
    /// run also runs programs from the packages.
    ///
    /// An upload requires a clean work tree and a token of crates.io (`cargo login`).
    Publish {
        /// Uploads nothing. The work tree may have changes.
        #[arg(long)]
        dry_run: bool,
        /// Does not build the packages; only with `--dry-run`.
        #[arg(long, requires = "dry_run")]
        no_verify: bool,
    },
    /// Writes an OCI image of kube-proxy, without a container engine.
    Image(image::Options),
    /// Rewrites golden files and pictures; review the diff before you commit it.
    Bless,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Demo { full: true } => demo::run(demo::Length::Full),
        Task::Demo { full: false } => demo::run(demo::Length::Short),
        Task::Test { all, host } => test::run(all, host),
        Task::Vm { filter, list: true } => vm::list(&filter),
        Task::Vm { filter, .. } => vm::run(&filter),
        Task::Windows => windows::run(),
        Task::Etcd => etcd::run(),
        Task::Bench { filter, cold, .. } if filter == bench::PEERS => bench::peers(cold),
        Task::Bench {
            filter, services, ..
        } => bench::run(&filter, services),
        Task::Fuzz { seconds } => fuzz::run(seconds),
        Task::Soak { minutes, mode } => soak::run(minutes, mode),
        Task::Mutants { filter, list } => mutants::run(&filter, list),
        Task::Tidy => tidy::run(),
        Task::Dependencies => dependencies::run(),
        Task::Publish {
            dry_run: true,
            no_verify: false,
        } => publish::dry_run(),
        Task::Publish { dry_run, no_verify } => publish::run(dry_run, !no_verify),
        Task::Image(options) => image::run(&options),
        Task::Bless => bless::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
