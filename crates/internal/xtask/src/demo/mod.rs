//! Runs kube-proxy with real traffic in a lab of network namespaces.
//!
//! The manifests in `examples/kube-proxy/demo` define the traffic: external clients, a
//! pod and the node send requests to each address and port of each Service.
//! Each endpoint has a server.
//! The Services also determine the expected endpoints.
//! Modes that the host's kernel may not support are listed without traffic.

use anyhow::{Context, Result, bail};
use testkit::privilege::become_root;

use crate::cargo::{release_build, root};

mod expect;

mod manifests;

mod mode;

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

/// Runs the task.
pub(crate) fn run() -> Result<()> {
    let program = release_build()?;
    become_root().context("network namespaces need root or a user namespace")?;
    let manifests = root().join("examples/kube-proxy/demo");
    let mut table = Table::default();
    for (name, shown) in MODES {
        match shown {
            Shown::Yes => mode::run(name, &program, &manifests, &mut table)?,
            Shown::GuestOnly => table.add(Row {
                mode: name,
                service: "-".to_owned(),
                what: "see cargo xtask vm".to_owned(),
                from: "-".to_owned(),
                outcome: Outcome::Absent,
            }),
        }
    }
    print!("\n{table}");
    match table.failures() {
        0 => Ok(()),
        count => bail!("{count} rows of the table are wrong"),
    }
}
