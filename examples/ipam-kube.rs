//! Addresses of Services in a cluster from the shell: who has which, and more.
//!
//! ```sh
//! ipam() { cargo run -q -p vipline-service-ip-kube --example ipam-kube -- "$@"; }
//! ipam --kubeconfig ~/.kube/config show
//! ipam --kubeconfig ~/.kube/config allocate --for default/web
//! ```
//!
//! What is allocated is printed alone on its line.
//! It ends with 1 if something is refused or the server fails, and with 2 if
//! the arguments are wrong.
#![allow(clippy::disallowed_methods, reason = "IO file: it looks at the clock")]

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use vipline_service_ip::{Cidrs, Owner, Pool, Range, Registry};
use vipline_service_ip_kube::{Client, Family, Kube};

/// Allocates addresses of Services in a cluster.
#[derive(Parser)]
#[command(name = "ipam-kube", disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// The kubeconfig; without, what a pod is given.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Addresses of IPv6 instead of IPv4.
    #[arg(long, global = true)]
    ipv6: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows the ServiceCIDRs and their bands, and who has what.
    Show {
        /// How many addresses are listed at most.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Takes any address.
    Allocate {
        /// The Service, as NAMESPACE/NAME.
        #[arg(long = "for", value_name = "SERVICE", value_parser = service)]
        owner: Owner,
    },
    /// Takes a certain address.
    Reserve {
        /// The address.
        address: IpAddr,
        /// The Service, as NAMESPACE/NAME.
        #[arg(long = "for", value_name = "SERVICE", value_parser = service)]
        owner: Owner,
    },
    /// Frees an address of a Service.
    Release {
        /// The address.
        address: IpAddr,
        /// The Service, as NAMESPACE/NAME.
        #[arg(long = "for", value_name = "SERVICE", value_parser = service)]
        owner: Owner,
    },
    /// Makes addresses of both families what Services say they have.
    Repair,
}

fn main() -> ExitCode {
    let chance = RandomState::new();
    let mut drawn = 0;
    let random = move || {
        drawn += 1;
        chance.hash_one(drawn)
    };
    match run(Arguments::parse(), &mut io::stdout(), random) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command.
pub(crate) fn run(
    arguments: Arguments,
    output: &mut dyn Write,
    mut random: impl FnMut() -> u64,
) -> Result<()> {
    let client = Arc::new(Client::open(arguments.kubeconfig.as_deref())?);
    let family = if arguments.ipv6 {
        Family::V6
    } else {
        Family::V4
    };
    let mut registry = Registry::new(Kube::new(Arc::clone(&client), family));
    match arguments.command {
        Command::Show { limit } => show(&mut registry, limit, output)?,
        Command::Allocate { owner } => {
            let address = registry.allocate(&owner, &mut random)?;
            writeln!(output, "{address}")?;
        }
        Command::Reserve { address, owner } => {
            registry.reserve(address, &owner)?;
            writeln!(output, "{address}")?;
        }
        Command::Release { address, owner } => {
            let was_taken = registry.release(address, &owner)?;
            ensure!(was_taken, "{address} is not allocated");
        }
        Command::Repair => {
            let mut findings = Vec::new();
            let repaired = client.repair(SystemTime::now(), &mut |finding| {
                findings.push(finding.to_string());
            });
            for finding in findings {
                writeln!(output, "{finding}")?;
            }
            repaired?;
        }
    }
    Ok(())
}

fn service(text: &str) -> Result<Owner> {
    let (namespace, name) = text
        .split_once('/')
        .context("a Service is NAMESPACE/NAME")?;
    ensure!(
        !namespace.is_empty() && !name.is_empty() && !name.contains('/'),
        "a Service is NAMESPACE/NAME"
    );
    Ok(Owner::new(namespace, name))
}

/// Prints the bands of all ranges, and who has what.
fn show(registry: &mut Registry<Cidrs, Kube>, limit: usize, output: &mut dyn Write) -> Result<()> {
    let snapshot = registry.refresh()?;
    let pool = &snapshot.pool;
    let head = "SERVICECIDRS RANGE BAND FROM TO ITEMS USED FREE";
    let mut rows = vec![head.split(' ').map(str::to_owned).collect()];
    for (range, _) in pool.ranges() {
        let names = pool.names(range).map(|(name, is_ready)| match is_ready {
            true => name.to_owned(),
            false => format!("{name}(not-ready)"),
        });
        let names = names.collect::<Vec<_>>().join(",");
        let (lower, len) = (range.lower(), range.len());
        for (band, from, end) in [("lower", 0, lower), ("upper", lower, len)] {
            let ends = end.checked_sub(1).and_then(|last| range.item(last));
            let (Some(first), Some(last)) = (range.item(from), ends) else {
                continue;
            };
            if from == end {
                continue;
            }
            let taken = pool.items().filter_map(|item| range.number(item).ok());
            let used = taken.filter(|number| (from..end).contains(number)).count();
            let free = end - from - used as u128;
            rows.push(vec![
                names.clone(),
                range.to_string(),
                band.to_owned(),
                first.to_string(),
                last.to_string(),
                (end - from).to_string(),
                used.to_string(),
                free.to_string(),
            ]);
        }
    }
    table(&rows, output)?;
    let mut rows = vec![vec!["ADDRESS".to_owned(), "SERVICE".to_owned()]];
    for item in pool.items().take(limit) {
        let owner = snapshot.owners.get(&item);
        let owner = owner.map_or_else(|| "?".to_owned(), ToString::to_string);
        rows.push(vec![item.to_string(), owner]);
    }
    if rows.len() > 1 {
        writeln!(output)?;
        table(&rows, output)?;
    }
    let more = pool.items().skip(limit).count();
    if more > 0 {
        writeln!(output, "and {more} more")?;
    }
    Ok(())
}

/// Prints rows in columns.
fn table(rows: &[Vec<String>], output: &mut dyn Write) -> io::Result<()> {
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len))
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
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
