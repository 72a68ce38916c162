//! Addresses and ports of Services from the shell: who has which, and more.
//!
//! ```sh
//! ipam() { cargo run -q -p vipline-service-ip --example ipam -- "$@"; }
//! ipam demo                                          # in memory
//! ipam --etcd http://127.0.0.1:2379 --range 30000-32767 show
//! ipam --etcd http://127.0.0.1:2379 --range 30000-32767 initialize
//! ipam --etcd http://127.0.0.1:2379 --range 30000-32767 allocate --for default/web
//! ipam --kubernetes --kubeconfig ~/.kube/config show
//! ```
//!
//! What is allocated is printed alone on its line.
//! It ends with 1 if something is refused or a store fails, and with 2 if the
//! arguments are wrong.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "IO file: it waits, looks at the clock, reads certificates and shows what it finds"
)]

use std::convert::Infallible;
use std::fmt::Display;
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
    AddressRange, Allocator, Cidrs, Etcd, EtcdCluster, EtcdTls, Family, Memory, Pool, PortRange,
    Range, RangeError, Registry, Repair, RepairReason, ServiceRef, Store,
};
use vipline_service_ip_kube::{Client, Kube};

/// Allocates addresses and ports of Services.
#[derive(Parser)]
#[command(name = "ipam", disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

/// What is allocated from, and where it is kept what is.
#[derive(Args)]
struct Place {
    /// A network or ports; in memory, several networks of a family.
    #[arg(long, global = true, default_value = "10.0.0.0/24")]
    range: Vec<Ranges>,
    /// Members of the cluster of etcd that has it; without, it is in memory.
    #[arg(long, global = true, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<String>,
    /// The key in etcd; if not given, the one of Kubernetes.
    #[arg(long, global = true, requires = "etcd")]
    key: Option<String>,
    /// Certificates of the authority that etcd has its own from.
    #[arg(long, global = true, value_name = "FILE", requires = "etcd")]
    ca: Option<PathBuf>,
    /// A certificate that etcd knows.
    #[arg(long, global = true, value_name = "FILE", requires_all = ["ca", "cert_key"])]
    cert: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    cert_key: Option<PathBuf>,
    /// The cluster of Kubernetes that has it, with its own ranges.
    #[arg(long, global = true, conflicts_with_all = ["etcd", "range"])]
    kubernetes: bool,
    /// The kubeconfig; without, what a pod is given.
    #[arg(long, global = true, value_name = "FILE", requires = "kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// Addresses of IPv6 of that cluster, instead of IPv4.
    #[arg(long, global = true, requires = "kubernetes")]
    ipv6: bool,
    /// How many seconds a request may take.
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
}

#[derive(Subcommand)]
enum Command {
    /// Shows the bands of the range, and who has what as far as that is known.
    Show {
        /// How many items are listed at most.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Takes any item, or several at once.
    Allocate {
        /// The Service, as NAMESPACE/NAME.
        #[arg(long = "for", value_name = "SERVICE")]
        owner: Service,
        /// How many: all of them, or none.
        #[arg(long, default_value_t = 1)]
        count: usize,
    },
    /// Takes a certain item.
    Reserve {
        /// The address, or the port.
        item: String,
        /// The Service, as NAMESPACE/NAME.
        #[arg(long = "for", value_name = "SERVICE")]
        owner: Service,
    },
    /// Frees an item.
    Release {
        /// The address, or the port.
        item: String,
        /// Only if it is not known to be another Service's.
        #[arg(long = "for", value_name = "SERVICE")]
        owner: Option<Service>,
    },
    /// Makes addresses what the Services of a cluster of Kubernetes say they
    /// have, of both families.
    Repair,
    /// Writes the key in etcd for the first time; API servers of Kubernetes do so
    /// themselves.
    Initialize,
    /// Does some of all that in memory.
    Demo,
}

/// Where it is kept what is allocated.
enum Kept {
    Memory,
    Etcd,
    Kubernetes,
}

impl Place {
    fn kept(&self) -> Kept {
        match (self.kubernetes, self.etcd.is_empty()) {
            (true, _) => Kept::Kubernetes,
            (false, true) => Kept::Memory,
            (false, false) => Kept::Etcd,
        }
    }
}

/// What is allocated from.
#[derive(Clone, Copy)]
enum Ranges {
    Addresses(AddressRange),
    Ports(PortRange),
}

impl FromStr for Ranges {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        match text.contains(['/', '.', ':']) {
            true => text.parse().map(Self::Addresses),
            false => text.parse().map(Self::Ports),
        }
    }
}

/// A Service by its name.
#[derive(Clone)]
struct Service(ServiceRef);

impl FromStr for Service {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self(ServiceRef::new(namespace, name)))
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

/// Runs a command on the store that it is meant for.
pub(crate) fn run(
    arguments: Arguments,
    output: &mut dyn Write,
    random: impl FnMut() -> u64,
) -> Result<()> {
    let Arguments { place, command } = arguments;
    if matches!(command, Command::Demo) {
        return demo(output);
    }
    match (place.kept(), &place.range[..]) {
        (Kept::Memory, [Ranges::Addresses(range)]) => {
            let store = Memory::new(Allocator::new(*range));
            execute(&mut registry(store), command, output, random)
        }
        (Kept::Memory, [Ranges::Ports(range)]) => {
            let store = Memory::new(Allocator::new(*range));
            execute(&mut registry(store), command, output, random)
        }
        (Kept::Memory, ranges) => {
            let store = Memory::new(cidrs(ranges)?);
            execute(&mut registry(store), command, output, random)
        }
        (Kept::Etcd, [Ranges::Addresses(range)]) => {
            let range = AddressRange::for_bitmap(range.network())?;
            let store = etcd(&place, EtcdCluster::SERVICE_IPS, range)?;
            execute(&mut registry(store), command, output, random)
        }
        (Kept::Etcd, [Ranges::Ports(range)]) => {
            let store = etcd(&place, EtcdCluster::SERVICE_NODE_PORTS, *range)?;
            execute(&mut registry(store), command, output, random)
        }
        (Kept::Etcd, _) => bail!("a key of etcd has one range"),
        (Kept::Kubernetes, _) => {
            let client = Client::open(place.kubeconfig.as_deref())?;
            let client = client.with_timeout(Duration::from_secs(place.timeout));
            if matches!(command, Command::Repair) {
                return repair(&client, output);
            }
            let family = if place.ipv6 { Family::V6 } else { Family::V4 };
            // Where others are faster it is by one address: no need to wait.
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

/// Repairs the addresses of a cluster, and prints what was found.
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

/// Returns a registry that waits when others are faster: up to 2 ms at first,
/// and up to 64 ms in the end.
fn registry<P: Pool, S: Store<P>>(store: S) -> Registry<P, S> {
    let random = RandomState::new();
    Registry::new(store).with_backoff(move |attempts| {
        let longest = 1000 << attempts.min(6);
        let micros = random.hash_one(attempts) % longest;
        thread::sleep(Duration::from_micros(micros));
    })
}

/// Returns networks as Kubernetes has them, of one family.
fn cidrs(ranges: &[Ranges]) -> Result<Cidrs> {
    let mut cidrs: Option<Cidrs> = None;
    for (number, range) in ranges.iter().enumerate() {
        let Ranges::Addresses(range) = range else {
            bail!("there is one range of ports, or several networks");
        };
        let empty = || match range.network().addr().is_ipv4() {
            true => Cidrs::ipv4(),
            false => Cidrs::ipv6(),
        };
        let cidrs = cidrs.get_or_insert_with(empty);
        cidrs.insert(&format!("range-{number}"), *range, true)?;
    }
    cidrs.context("there is no range")
}

/// Returns the store of a range in etcd.
fn etcd<R: Range>(place: &Place, key: &str, range: R) -> Result<Etcd<R>> {
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    let endpoints: Vec<&str> = place.etcd.iter().map(String::as_str).collect();
    let mut cluster = EtcdCluster::new(&endpoints, Duration::from_secs(place.timeout));
    if let Some(ca) = &place.ca {
        let identity = match (&place.cert, &place.cert_key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            _ => None,
        };
        let ca = read(ca)?;
        cluster.tls = Some(EtcdTls { ca, identity });
    }
    Ok(Etcd::new(
        &cluster,
        place.key.as_deref().unwrap_or(key),
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
        item.with_context(|| format!("{text:?} is nothing that the range can have"))
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
        Command::Repair => bail!("only a cluster of Kubernetes tells what Services have"),
        Command::Initialize => initialize(registry, output)?,
        Command::Demo => demo(output)?,
    }
    Ok(())
}

/// Writes a range of which nothing is taken where there is none.
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
    let no_services = || Ok::<_, Infallible>(Vec::new());
    for finding in Repair::new().pass(registry, no_services)? {
        writeln!(output, "{finding}")?;
    }
    Ok(())
}

/// A part of a range.
struct Band {
    name: &'static str,
    from: String,
    to: String,
    len: u128,
    used: u128,
}

/// What has ranges that have bands.
trait Bands {
    /// Returns the bands of all ranges that are not empty, and what is taken.
    fn bands(&self) -> Vec<(String, [Band; 2])>;
}

impl<R: Range> Bands for Allocator<R> {
    fn bands(&self) -> Vec<(String, [Band; 2])> {
        vec![(self.range().to_string(), split(self.range(), self.items()))]
    }
}

impl Bands for Cidrs {
    fn bands(&self) -> Vec<(String, [Band; 2])> {
        let label = |range: AddressRange| {
            let names = self.names(range).map(|(name, is_ready)| match is_ready {
                true => name.to_owned(),
                false => format!("{name} not ready"),
            });
            format!("{range} ({})", names.collect::<Vec<_>>().join(", "))
        };
        self.ranges()
            .map(|(range, _)| (label(range), split(&range, self.items())))
            .collect()
    }
}

/// Returns both bands of a range, of which some items are taken.
fn split<R: Range>(range: &R, taken: impl Iterator<Item = R::Item>) -> [Band; 2] {
    let (lower, len) = (range.static_band(), range.len());
    let band = |name, from: u128, to: u128| {
        let text = |number| range.item(number).map(|item| item.to_string());
        Band {
            name,
            from: text(from).unwrap_or_default(),
            to: to.checked_sub(1).and_then(text).unwrap_or_default(),
            len: to.saturating_sub(from),
            used: 0,
        }
    };
    let mut bands = [band("lower", 0, lower), band("upper", lower, len)];
    for number in taken.filter_map(|item| range.number(item).ok()) {
        bands[usize::from(number >= lower)].used += 1;
    }
    bands
}

/// Prints the bands, and who has what.
fn show<P, S>(registry: &mut Registry<P, S>, limit: usize, output: &mut dyn Write) -> Result<()>
where
    P: Pool + Bands,
    S: Store<P>,
{
    let snapshot = registry.refresh()?;
    let head = "RANGE BAND FROM TO ITEMS USED FREE %";
    let mut rows = vec![head.split(' ').map(str::to_owned).collect()];
    for (range, bands) in snapshot.pool.bands() {
        for band in bands.iter().filter(|band| band.len > 0) {
            let (used, free) = (band.used, band.len - band.used);
            let percent = used as f64 * 100.0 / band.len as f64;
            let cells: [&dyn Display; 7] = [
                &range, &band.name, &band.from, &band.to, &band.len, &used, &free,
            ];
            let mut row = cells.map(ToString::to_string).to_vec();
            row.push(format!("{percent:.1}"));
            rows.push(row);
        }
    }
    table(&rows, output)?;
    let items: Vec<P::Item> = snapshot.pool.items().collect();
    if items.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["ITEM", "SERVICE"].map(str::to_owned).to_vec()];
    for item in items.iter().take(limit) {
        let owner = snapshot.owners.get(item);
        let owner = owner.map_or_else(|| "?".to_owned(), ToString::to_string);
        rows.push(vec![item.to_string(), owner]);
    }
    writeln!(output)?;
    table(&rows, output)?;
    if items.len() > limit {
        writeln!(output, "and {} more", items.len() - limit)?;
    }
    Ok(())
}

/// Prints rows in columns.
fn table(rows: &[Vec<String>], output: &mut dyn Write) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(String::len).max().unwrap_or_default()
        })
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:<width$}  "))
            .collect();
        writeln!(output, "{}", line.trim_end())?;
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
