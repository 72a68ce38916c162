//! Runs kube-proxy and cluster-dns with real traffic in a lab of network namespaces.
//!
//! The manifests in `examples/kube-proxy/demo` define the traffic: external clients, a
//! pod and the node send requests to each address and port of each Service.
//! Each endpoint has a server.
//! The Services also determine the expected endpoints.
//! `kube-proxy explain` evaluates the rules of the kernel for each row, and must agree.
//! cluster-dns resolves the names of the Services, and a pod sends requests to the answers.
//! Modes that the host's kernel may not support are listed without traffic.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use testkit::privilege::become_root;

use crate::cargo::root;

mod build;

mod expect;

mod explain;

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
            let explained = table.explained();
            println!(
                "\n{rows} rows as expected, in {seconds} s; {explained} explained, 0 disagreements"
            );
            Ok(())
        }
        count => bail!("{count} rows of the table are wrong"),
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::PathBuf;

    use super::*;

    /// Number of rows that kube-proxy explains in each mode.
    const EXPLAINED: usize = 41;

    /// Runs the demo in a mode, with the program in `KUBE_PROXY` and the other one beside
    /// it, or with programs that it builds.
    fn check(mode: &'static str) {
        let programs = match env::var_os("KUBE_PROXY").map(PathBuf::from) {
            Some(kube_proxy) => build::Programs {
                cluster_dns: kube_proxy.with_file_name("cluster-dns"),
                kube_proxy,
            },
            None => build::programs().unwrap(),
        };
        let mut table = Table::default();
        let manifests = root().join("examples/kube-proxy/demo");
        mode::run(mode, Length::Short, &programs, &manifests, &mut table).unwrap();
        let [rows, explained, wrong] = [table.rows(), table.explained(), table.failures()];
        testkit::figures!(
            "demo in mode {mode}: {rows} rows, {explained} explained, {wrong} disagreements"
        );
        assert_eq!((explained, wrong), (EXPLAINED, 0), "explained and wrong");
    }

    #[test]
    fn rows_in_mode_nftables_are_expected_and_explained() {
        check("nftables");
    }

    #[test]
    fn rows_in_mode_iptables_are_expected_and_explained() {
        check("iptables");
    }
}
