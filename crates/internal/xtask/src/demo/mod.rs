//! The proxy at work: real traffic through a real kernel, in a lab.
//!
//! What is asked follows from the manifests in `examples/kube-proxy/demo`: each
//! address and port of each Service is asked by clients outside, a pod and the
//! node, and each endpoint there gets a server.
//! Who has to answer follows from the Services too.
//! A mode that this machine's kernel may lack is a line that says where it is
//! shown.

use anyhow::{Context, Result, bail};
use testkit::privilege::become_root;

use crate::cargo::{release_build, root};

mod expect;

mod manifests;

mod mode;

mod rollout;

mod table;

use table::{Outcome, Row, Table};

/// A mode of the proxy, and whether it can be shown.
const MODES: [(&str, Shown); 3] = [
    ("nftables", Shown::Yes),
    ("iptables", Shown::Yes),
    ("ipvs", Shown::InGuests),
];

#[derive(Clone, Copy)]
enum Shown {
    Yes,
    InGuests,
}

/// Runs the task.
pub(crate) fn run() -> Result<()> {
    let program = release_build()?;
    become_root().context("a lab needs network namespaces")?;
    let manifests = root().join("examples/kube-proxy/demo");
    let mut table = Table::default();
    for (name, shown) in MODES {
        match shown {
            Shown::Yes => mode::run(name, &program, &manifests, &mut table)?,
            Shown::InGuests => table.add(Row {
                mode: name,
                service: "-".to_owned(),
                what: "shown by cargo xtask vm".to_owned(),
                from: "-".to_owned(),
                outcome: Outcome::Absent,
            }),
        }
    }
    print!("\n{table}");
    match table.failures() {
        0 => Ok(()),
        count => bail!("{count} lines of the table are not as they should be"),
    }
}
