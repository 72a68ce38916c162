//! Three processes allocate addresses from one range in etcd.
//!
//! ```sh
//! cargo run --example three-processes -- http://127.0.0.1:2379
//! ```
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "IO file"
)]

use std::collections::BTreeSet;
use std::env;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vipline_service_ip::{AddressRange, Allocator, Etcd, EtcdCluster, OwnerRef, Registry, Repair};

const KEY: &str = "/example/serviceips";
const RANGE: &str = "10.0.0.0/24";
const PROCESSES: usize = 3;
const ADDRESSES: usize = 10;

type Addresses = Registry<Allocator<AddressRange>, Etcd<AddressRange>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let endpoint = arguments.first().context("usage: three-processes URL")?;
    if arguments.len() > 1 {
        return allocate(endpoint);
    }
    let program = env::current_exe()?;
    let start = || {
        let mut command = Command::new(&program);
        command.args([endpoint, "allocate"]);
        command
    };
    println!("{}", allocate_in_processes(endpoint, start)?);
    Ok(())
}

/// Runs the processes and returns a summary.
pub(crate) fn allocate_in_processes(endpoint: &str, start: impl Fn() -> Command) -> Result<String> {
    let mut registry = open(endpoint)?;
    let mut repair = Repair::new();
    let mut release_unused = || repair.pass(&mut registry, Vec::new);
    // The first pass creates the key.
    release_unused()?;
    let start = |_| start().stdout(Stdio::piped()).spawn();
    let children: Vec<_> = (0..PROCESSES).map(start).collect::<Result<_, _>>()?;
    let mut addresses = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{}", output.status);
        let text = String::from_utf8(output.stdout)?;
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("allocated "));
        addresses.extend(lines.map(str::to_owned));
    }
    let different: BTreeSet<&String> = addresses.iter().collect();
    // No Service has the addresses. The third pass releases them.
    for _ in 0..2 {
        release_unused()?;
    }
    let released = release_unused()?.len();
    Ok(format!(
        "{PROCESSES} processes allocated {} addresses, {} of them different; repair released {released}",
        addresses.len(),
        different.len(),
    ))
}

/// Allocates addresses and prints them: the work of one process.
pub(crate) fn allocate(endpoint: &str) -> Result<()> {
    let mut state = u64::from(process::id());
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state
    };
    // Processes that change a range at the same time wait after a conflict.
    let pause = |attempts: usize| {
        let number = u64::from(process::id()) % 7 + attempts as u64;
        thread::sleep(Duration::from_millis(number));
    };
    let mut registry = open(endpoint)?.with_backoff(pause);
    let owner = OwnerRef::service("default", &format!("service-{}", process::id()));
    for _ in 0..ADDRESSES {
        println!("allocated {}", registry.allocate(&owner, &mut random)?);
    }
    Ok(())
}

fn open(endpoint: &str) -> Result<Addresses> {
    let cluster = EtcdCluster::new(&[endpoint], Duration::from_secs(10));
    Ok(Registry::new(Etcd::new(&cluster, KEY, RANGE.parse()?)?))
}
