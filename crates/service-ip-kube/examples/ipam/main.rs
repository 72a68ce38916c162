//! Allocation of Service IPs and node ports from the shell.
//!
//! ```sh
//! ipam() { cargo run -q -p vipline-service-ip-kube --example ipam -- "$@"; }
//! ipam demo                                          # in memory
//! ipam --etcd http://127.0.0.1:2379 --range 30000-32767 show
//! ipam --etcd http://127.0.0.1:2379 --range 30000-32767 initialize
//! ipam --etcd http://127.0.0.1:2379 --range 30000-32767 allocate --for default/web
//! ipam --kubernetes --kubeconfig ~/.kube/config show
//! ```
//!
//! Each allocated item is printed on a line of its own. The exit code is 1 if
//! an item is rejected or a store fails, and 2 if the arguments are invalid.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "IO file: it waits, looks at the clock, reads certificates and shows what it finds"
)]

mod bands;

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use vipline_service_ip::{
    AddressRange, Allocator, Cidrs, Etcd, EtcdCluster, EtcdTls, Family, InvalidValue, Memory,
    OwnerRef, Pool, PortRange, Range, Registry, Repair, RepairReason, Store,
};
use vipline_service_ip_kube::blocking::{Client, Kube};

use bands::{Bands, show};

/// Allocates Service IPs and node ports.
#[derive(Parser)]
#[command(name = "ipam", disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    location: Location,
    #[command(subcommand)]
    command: Command,
}

/// The range and the store of its allocations.
#[derive(Args)]
struct Location {
    /// A network or a port range; in memory, several networks of one IP family
    #[arg(long, global = true, default_value = "10.0.0.0/24")]
    range: Vec<Ranges>,
    /// Members of the etcd cluster that stores the allocations; without it, the
    /// store is in memory
    #[arg(long, global = true, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<String>,
    /// Key in etcd; default is the key of Kubernetes
    #[arg(long, global = true, requires = "etcd")]
    key: Option<String>,
    /// CA certificates of the etcd servers
    #[arg(long, global = true, value_name = "FILE", requires = "etcd")]
    ca: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long, global = true, value_name = "FILE", requires_all = ["ca", "cert_key"])]
    cert: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    cert_key: Option<PathBuf>,
    /// Use the Kubernetes API as store, with the ranges of its ServiceCIDRs
    #[arg(long, global = true, conflicts_with_all = ["etcd", "range"])]
    kubernetes: bool,
    /// Kubeconfig; without it, the service account of the pod
    #[arg(long, global = true, value_name = "FILE", requires = "kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// Use the IPv6 ranges of the cluster instead of IPv4
    #[arg(long, global = true, requires = "kubernetes")]
    ipv6: bool,
    /// Timeout of a request in seconds
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
}

#[derive(Subcommand)]
enum Command {
    /// Print the bands of the range, and the allocated items with their owners,
    /// if known
    Show {
        /// Maximum number of printed items
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Allocate one or several arbitrary items
    Allocate {
        /// The Service, as NAMESPACE/NAME
        #[arg(long = "for", value_name = "SERVICE")]
        owner: Service,
        /// Number of items, allocated atomically
        #[arg(long, default_value_t = 1)]
        count: usize,
    },
    /// Allocate a specific item
    Reserve {
        /// The address or the port
        item: String,
        /// The Service, as NAMESPACE/NAME
        #[arg(long = "for", value_name = "SERVICE")]
        owner: Service,
    },
    /// Release an item
    Release {
        /// The address or the port
        item: String,
        /// Release only if the item is not known to belong to another Service
        #[arg(long = "for", value_name = "SERVICE")]
        owner: Option<Service>,
    },
    /// Repair the IPAddress objects of a Kubernetes cluster from its Services,
    /// for both IP families
    Repair,
    /// Write the key in etcd for the first time; the API servers of Kubernetes
    /// do that themselves
    Initialize,
    /// Run a sequence of commands in memory
    Demo,
}

/// The store of the allocations.
enum StoreKind {
    Memory,
    Etcd,
    Kubernetes,
}

impl Location {
    fn store_kind(&self) -> StoreKind {
        match (self.kubernetes, self.etcd.is_empty()) {
            (true, _) => StoreKind::Kubernetes,
            (false, true) => StoreKind::Memory,
            (false, false) => StoreKind::Etcd,
        }
    }
}

/// A range to allocate from.
#[derive(Clone, Copy)]
enum Ranges {
    Addresses(AddressRange),
    Ports(PortRange),
}

impl FromStr for Ranges {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        match text.contains(['/', '.', ':']) {
            true => text.parse().map(Self::Addresses),
            false => text.parse().map(Self::Ports),
        }
    }
}

/// A Service name.
#[derive(Clone)]
struct Service(OwnerRef);

impl FromStr for Service {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self(OwnerRef::service(namespace, name)))
            }
            _ => Err("a Service is NAMESPACE/NAME"),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let random = RandomState::new();
    let mut drawn = 0;
    let random = move || {
        drawn += 1;
        random.hash_one(drawn)
    };
    match run(arguments, &mut io::stdout(), random) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command on the selected store.
pub(crate) fn run(
    arguments: Arguments,
    output: &mut dyn Write,
    random: impl FnMut() -> u64,
) -> Result<()> {
    let Arguments { location, command } = arguments;
    if matches!(command, Command::Demo) {
        return demo(output);
    }
    match (location.store_kind(), &location.range[..]) {
        (StoreKind::Memory, [Ranges::Addresses(range)]) => {
            let store = Memory::new(Allocator::new(*range));
            execute(&mut registry(store), command, output, random)
        }
        (StoreKind::Memory, [Ranges::Ports(range)]) => {
            let store = Memory::new(Allocator::new(*range));
            execute(&mut registry(store), command, output, random)
        }
        (StoreKind::Memory, ranges) => {
            let store = Memory::new(cidrs(ranges)?);
            execute(&mut registry(store), command, output, random)
        }
        (StoreKind::Etcd, [Ranges::Addresses(range)]) => {
            let range = AddressRange::for_bitmap(range.network())?;
            let store = etcd(&location, EtcdCluster::SERVICE_IPS, range)?;
            execute(&mut registry(store), command, output, random)
        }
        (StoreKind::Etcd, [Ranges::Ports(range)]) => {
            let store = etcd(&location, EtcdCluster::SERVICE_NODE_PORTS, *range)?;
            execute(&mut registry(store), command, output, random)
        }
        (StoreKind::Etcd, _) => bail!("a key of etcd has exactly one range"),
        (StoreKind::Kubernetes, _) => {
            let client = Client::open(location.kubeconfig.as_deref())?;
            let client = client.with_timeout(Duration::from_secs(location.timeout));
            if matches!(command, Command::Repair) {
                return repair(&client, output);
            }
            let family = if location.ipv6 {
                Family::V6
            } else {
                Family::V4
            };
            // A conflict concerns a single address here, so retries need no
            // pause.
            let store = Kube::new(Arc::new(client), family);
            let mut registry = Registry::new(store);
            let executed = execute(&mut registry, command, output, random);
            for error in registry.store().unreadable() {
                eprintln!("left out: {error}");
            }
            executed
        }
    }
}

/// Repairs the addresses of a cluster, and prints the findings.
fn repair(client: &Client, output: &mut dyn Write) -> Result<()> {
    let mut findings = Vec::new();
    let repaired = client.repair(SystemTime::now(), &mut |finding| {
        findings.push(finding.to_string());
    });
    for finding in findings {
        writeln!(output, "{finding}")?;
    }
    repaired?;
    Ok(())
}

/// Returns a registry that pauses before it retries after a conflict: at most 2
/// ms at first, and at most 64 ms in the end.
fn registry<P: Pool, S: Store<P>>(store: S) -> Registry<P, S> {
    let random = RandomState::new();
    Registry::new(store).with_backoff(move |attempts| {
        let longest = 1000 << attempts.min(6);
        let micros = random.hash_one(attempts) % longest;
        thread::sleep(Duration::from_micros(micros));
    })
}

/// Returns the ServiceCIDRs of the networks, which must be of one IP family.
fn cidrs(ranges: &[Ranges]) -> Result<Cidrs> {
    let mut cidrs: Option<Cidrs> = None;
    for (number, range) in ranges.iter().enumerate() {
        let Ranges::Addresses(range) = range else {
            bail!("--range must be one range of ports, or several networks");
        };
        let empty = || match range.network().addr().is_ipv4() {
            true => Cidrs::ipv4(),
            false => Cidrs::ipv6(),
        };
        let cidrs = cidrs.get_or_insert_with(empty);
        cidrs.insert(&format!("range-{number}"), *range, true)?;
    }
    cidrs.context("--range is missing")
}

/// Opens the store of a range in etcd.
fn etcd<R: Range>(location: &Location, key: &str, range: R) -> Result<Etcd<R>> {
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    let endpoints: Vec<&str> = location.etcd.iter().map(String::as_str).collect();
    let mut cluster = EtcdCluster::new(&endpoints, Duration::from_secs(location.timeout));
    if let Some(ca) = &location.ca {
        let identity = match (&location.cert, &location.cert_key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            _ => None,
        };
        cluster.tls = Some(EtcdTls::new(read(ca)?, identity));
    }
    Ok(Etcd::new(
        &cluster,
        location.key.as_deref().unwrap_or(key),
        range,
    )?)
}

/// Runs a command.
fn execute<P, S>(
    registry: &mut Registry<P, S>,
    command: Command,
    output: &mut dyn Write,
    mut random: impl FnMut() -> u64,
) -> Result<()>
where
    P: Pool<Item: FromStr> + Bands,
    S: Store<P>,
{
    let parse = |text: &str| {
        let item: Option<P::Item> = text.parse().ok();
        item.with_context(|| format!("{text:?} is not a valid item of the range"))
    };
    match command {
        Command::Show { limit } => show(registry, limit, output)?,
        Command::Allocate { owner, count } => {
            let items = registry.change(|draft| {
                (0..count)
                    .map(|_| draft.allocate(&owner.0, &mut random))
                    .collect::<Result<Vec<_>, _>>()
            })?;
            for item in items {
                writeln!(output, "{item}")?;
            }
        }
        Command::Reserve { item, owner } => {
            let item = parse(&item)?;
            registry.reserve(item, &owner.0)?;
            writeln!(output, "{item}")?;
        }
        Command::Release { item, owner } => {
            let item = parse(&item)?;
            let was_taken = registry.change(|draft| match &owner {
                Some(owner) => draft.release(item, &owner.0),
                None => Ok(draft.free(item)),
            })?;
            ensure!(was_taken, "{item} is not allocated");
        }
        Command::Repair => bail!("only a cluster of Kubernetes can be repaired from its Services"),
        Command::Initialize => initialize(registry, output)?,
        Command::Demo => demo(output)?,
    }
    Ok(())
}

/// Initializes the range in the store, unless it is initialized already.
fn initialize<P: Pool, S: Store<P>>(
    registry: &mut Registry<P, S>,
    output: &mut dyn Write,
) -> Result<()> {
    let snapshot = registry.refresh()?;
    match &snapshot.repair_reason {
        Some(RepairReason::Uninitialized { .. }) => {}
        Some(reason) => bail!("{reason}: only a repair that knows all Services changes it"),
        None => bail!("{} is initialized already", snapshot.pool),
    }
    let no_services = || Vec::new();
    for finding in Repair::new().pass(registry, no_services)? {
        writeln!(output, "{finding}")?;
    }
    Ok(())
}

/// Runs some commands on a store in memory.
fn demo(output: &mut dyn Write) -> Result<()> {
    const COMMANDS: [&str; 8] = [
        "reserve 10.0.0.1 --for default/kubernetes",
        "reserve 10.0.0.10 --for kube-system/dns",
        "allocate --for default/web",
        "allocate --for default/shop --count 12",
        "reserve 10.0.0.10 --for default/other",
        "release 10.0.0.10 --for default/other",
        "allocate --for default/more --count 20",
        "show --limit 4",
    ];
    let range = "10.0.0.0/27";
    let store = Memory::new(Allocator::new(range.parse::<AddressRange>()?));
    let mut state: u64 = 0;
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    };
    for line in COMMANDS {
        writeln!(output, "$ ipam --range {range} {line}")?;
        let arguments = Arguments::try_parse_from(["ipam"].into_iter().chain(line.split(' ')))?;
        let outcome = execute(
            &mut Registry::new(store.clone()),
            arguments.command,
            output,
            &mut random,
        );
        if let Err(error) = outcome {
            writeln!(output, "error: {error:#}")?;
        }
    }
    Ok(())
}
