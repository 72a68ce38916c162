//! What the jobs are, so that all programs do the same.
//!
//! A program gets the name of a job as its argument, and the input of some jobs as a file. It runs
//! in a network namespace with what the job needs. It ends with success if it did the job.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Result of a job.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Adds a set with [`ELEMENTS`] addresses to the table, in one transaction if the program can.
pub const ADD_ELEMENTS: &str = "add-elements";
/// Adds a base chain with [`RULES`] rules to the table, in one transaction if the program can.
pub const ADD_RULES: &str = "add-rules";
/// Reads and decodes the rules.
pub const READ_RULES: &str = "read-rules";
/// Lists all IPv4 flows in memory. nlink asks for no other ones.
pub const LIST_FLOWS: &str = "list-flows";
/// Lists the flows to [`PORT`].
pub const FILTER_FLOWS: &str = "filter-flows";
/// Adds an IP set with [`ELEMENTS`] addresses.
pub const ADD_ENTRIES: &str = "add-entries";
/// Parses the rules in a file with the output of `iptables-save`.
pub const PARSE_SAVE: &str = "parse-save";

/// Number of elements and entries.
pub const ELEMENTS: u32 = 10_000;
/// Elements in one message of crates that do not split a list: an attribute has at most 64 KiB.
pub const ELEMENTS_OF_A_MESSAGE: usize = 1_000;
/// Number of rules.
pub const RULES: u32 = 10_000;
/// Rules in one transaction of crates that do not grow the send buffer of their socket, which has
/// 208 KiB.
pub const RULES_OF_A_BATCH: usize = 250;
/// Number of flows.
pub const FLOWS: u32 = 100_000;
/// One of this number of flows is to [`PORT`].
pub const ONE_OF: u32 = 100;
/// Number of lines of the save.
pub const LINES: u32 = 50_000;

/// Name of the table of family `ip`, which exists.
pub const TABLE: &str = "peers";
/// Name of the chain.
pub const CHAIN: &str = "input";
/// Name of the set and of the IP set.
pub const SET: &str = "clients";
/// The destination port of few flows.
pub const PORT: u16 = 53;

/// The exit code of a program that cannot do a job.
const CANNOT: u8 = 3;

/// Returns the addresses of set elements.
pub fn addresses() -> impl Iterator<Item = Ipv4Addr> {
    (0..ELEMENTS).map(address)
}

/// Returns source address and destination port of each rule
/// `ip saddr A tcp dport P counter accept`.
pub fn rules() -> impl Iterator<Item = (Ipv4Addr, u16)> {
    (0..RULES).map(|number| (address(number), 1024 + (number % 60_000) as u16))
}

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 0).to_bits() + number)
}

/// Returns an error unless a job found as many objects as there are.
///
/// # Errors
///
/// If the numbers differ.
pub fn expect(found: usize, expected: u32) -> Outcome<()> {
    match found == expected as usize {
        true => Ok(()),
        false => Err(format!("found {found} instead of {expected}").into()),
    }
}

/// Runs the job that the first argument names. `run` gets the second argument, and returns
/// `None` if it cannot do the job.
pub fn main(run: impl FnOnce(&str, PathBuf) -> Option<Outcome<()>>) -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let job = arguments.next().unwrap_or_default();
    match run(&job, arguments.next().unwrap_or_default().into()) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{job}: {error}");
            ExitCode::FAILURE
        }
        None => ExitCode::from(CANNOT),
    }
}

/// Returns whether an exit code tells that the program cannot do the job.
pub fn cannot(code: Option<i32>) -> bool {
    code == Some(CANNOT.into())
}
