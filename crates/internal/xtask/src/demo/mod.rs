//! Runs kube-proxy and cluster-dns with real traffic in a lab of network namespaces.
//!
//! The manifests in `examples/kube-proxy/demo` define the traffic: external clients, a
//! pod and the node send requests to each address and port of each Service.
//! Each endpoint has a server.
//! The Services also determine the expected endpoints.
//! cluster-dns resolves the names of the Services, and a pod sends requests to the answers.
//! Modes that the host's kernel may not support are listed without traffic.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use testkit::privilege::become_root;

use crate::cargo::root;

mod build;

mod expect;

mod manifests;

mod mode;

mod names;

mod rollout;

mod table;

use table::{Outcome, Row, Table};

/// Proxy modes, and whether the demo runs them.
const MODES: [(&str, Shown); 3] = [
    ("nftables", Shown::Yes),
    ("iptables", Shown::Yes),
    ("ipvs", Shown::GuestOnly),
];

#[derive(Clone, Copy)]
enum Shown {
    Yes,
    GuestOnly,
}

/// Length of the demo.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Length {
    Short,
    Full,
}

impl Length {
    /// Returns the number of requests from each client to each address.
    ///
    /// With 40 requests to three endpoints, one is missed with a probability of 3e-7.
    fn requests(self) -> usize {
        match self {
            Self::Short => 40,
            Self::Full => 100,
        }
    }

    /// Returns the number of replaced endpoints, of three.
    fn replaced(self) -> usize {
        match self {
            Self::Short => 1,
            Self::Full => 2,
        }
    }
}

/// Runs the task.
pub(crate) fn run(length: Length) -> Result<()> {
    let programs = build::programs()?;
    let start = Instant::now();
    become_root().context("network namespaces need root or a user namespace")?;
    let manifests = root().join("examples/kube-proxy/demo");
    let mut table = Table::default();
    for (name, shown) in MODES {
        match shown {
            Shown::Yes => mode::run(name, length, &programs, &manifests, &mut table)?,
            Shown::GuestOnly => table.add(&Row {
                mode: name,
                service: "-".to_owned(),
                what: "see cargo xtask vm".to_owned(),
                from: "-".to_owned(),
                outcome: Outcome::Absent,
            }),
        }
    }
    match table.failures() {
        0 => {
            let (rows, seconds) = (table.rows(), start.elapsed().as_secs());
            println!("\n{rows} rows as expected, in {seconds} s");
            Ok(())
        }
        count => bail!("{count} rows of the table are wrong"),
    }
}
