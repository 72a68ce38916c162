//! The command line.

use clap::Parser;

/// Answer DNS queries for Kubernetes Services, and forward all others
#[derive(Debug, Parser)]
#[command(name = "cluster-dns", version)]
pub struct Cli {}

impl Cli {
    /// Parses the command line of this process. Ends the process if it is
    /// invalid.
    pub fn read() -> Self {
        Self::parse()
    }
}
