//! Removal of everything that a kube-proxy programmed in any mode, upstream's
//! or this one.
//!
//! The state is read, converted into typed [steps](plan) without IO, and
//! removed step by step. A failed step does not stop the others. [`names`]
//! lists everything that may be removed. Objects that rules of other programs
//! use stay.
//!
//! Rules of iptables are read and removed by the iptables programs, all else by
//! netlink. If a program is missing although the kernel shows traces of rules,
//! a message says so.
//!
//! - [`tables`]: mode nftables;
//! - [`iptables`]: chains of modes iptables and ipvs, in both variants of
//!   iptables and both families;
//! - [`servers`], [`link`], [`sets`]: the other objects of mode ipvs.

pub mod names;

pub mod tables;

pub mod iptables;

pub mod servers;

pub mod link;

pub mod sets;

pub mod module;

use std::fmt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ipnet::IpNet;
use proxy_core::Mode;
use tracing::{error, info, warn};
use vipline_ipset::Sets;
use vipline_ipvs::ServiceKey;
use vipline_nftables::{Client, Error};

use crate::failure::Failure;
use crate::output::print;
use names::Maker;

/// Objects to consider.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Objects of all modes.
    AllModes,
    /// Objects of all modes except one. Chains that this mode shares with
    /// another mode are left out, too.
    AllExcept(Mode),
}

impl Scope {
    /// Returns whether iptables objects of `maker` are in the scope.
    fn includes_maker(self, maker: Maker) -> bool {
        match self {
            Self::AllModes | Self::AllExcept(Mode::Nftables) => true,
            Self::AllExcept(Mode::Iptables) => maker == Maker::Ipvs,
            Self::AllExcept(Mode::Ipvs) => maker == Maker::Iptables,
            Self::AllExcept(_) => false,
        }
    }

    /// Returns whether objects of a mode outside of iptables are in the scope.
    fn includes(self, mode: Mode) -> bool {
        self != Self::AllExcept(mode)
    }
}

/// Objects found on the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Tables of mode nftables.
    pub tables: Vec<tables::Removal>,
    /// Output of the iptables-save programs.
    pub rules: Vec<iptables::Saved>,
    /// All virtual servers.
    pub servers: Vec<ServiceKey>,
    /// The link of mode ipvs, if it exists.
    pub link: Option<link::Link>,
    /// The sets of mode ipvs.
    pub sets: Sets,
}

/// An object to remove. Displays as the shell command that removes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// A table of mode nftables.
    Table(tables::Removal),
    /// Chains of one table of iptables.
    Chains(iptables::Document),
    /// A virtual server of mode ipvs.
    Server(servers::Server),
    /// The link of mode ipvs.
    Link(link::Link),
    /// A set of mode ipvs.
    Set(sets::Set),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => table.fmt(f),
            Self::Chains(document) => document.fmt(f),
            Self::Server(server) => server.fmt(f),
            Self::Link(link) => link.fmt(f),
            Self::Set(set) => set.fmt(f),
        }
    }
}

impl Step {
    fn apply(&self, client: Option<&mut Client>) -> Result<()> {
        match self {
            Self::Table(table) => table.apply(client.context("nf_tables is not open")?),
            Self::Chains(document) => document.apply(),
            Self::Server(server) => server.apply(),
            Self::Link(link) => link.apply(),
            Self::Set(set) => set.apply(),
        }
    }

    /// Returns a summary for the log.
    fn summary(&self) -> String {
        match self {
            Self::Chains(document) => document.summary(),
            step => format!("`{step}`"),
        }
    }
}

/// The steps of a removal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Messages about objects that stay, with the reason.
    pub stays: Vec<String>,
}

/// Plans the removal of the objects found. Virtual servers within `excluded`
/// networks stay.
///
/// Rules are removed before the sets that they use.
pub fn plan(scope: Scope, found: &Found, excluded: &[IpNet]) -> Plan {
    let mut plan = Plan::default();
    let tables = found.tables.iter().cloned();
    plan.steps.extend(tables.map(Step::Table));
    for saved in &found.rules {
        let (documents, stays) = iptables::plan(scope, saved);
        plan.steps.extend(documents.into_iter().map(Step::Chains));
        plan.stays.extend(stays);
    }
    let link = found.link.as_ref();
    let addresses = link.map_or(&[][..], |link| &link.addresses);
    let (servers, stays) = servers::plan(&found.servers, &found.sets, addresses, excluded);
    plan.steps.extend(servers.into_iter().map(Step::Server));
    plan.stays.extend(stays);
    plan.steps.extend(link.cloned().map(Step::Link));
    let sets = sets::plan(&found.sets);
    plan.steps.extend(sets.into_iter().map(Step::Set));
    plan
}

/// Objects found, messages about checks that failed, and the nf_tables client
/// if the kernel supports nf_tables.
struct Examination {
    found: Found,
    unchecked: Vec<String>,
    client: Option<Client>,
}

fn examine(scope: Scope) -> Result<Examination, Error> {
    let mut examination = Examination {
        found: Found::default(),
        unchecked: Vec::new(),
        client: None,
    };
    match Client::open().and_then(|mut client| Ok((tables::find(&mut client)?, client))) {
        Ok((tables, client)) => {
            if scope.includes(Mode::Nftables) {
                examination.found.tables = tables;
            }
            examination.client = Some(client);
        }
        Err(Error::Unsupported { .. }) => {}
        Err(error) => return Err(error),
    }
    let (rules, unchecked) = iptables::find(scope, examination.client.as_mut());
    examination.found.rules = rules;
    examination.unchecked.extend(unchecked);
    if scope.includes(Mode::Ipvs) {
        examination.find_ipvs();
    }
    Ok(examination)
}

impl Examination {
    /// Collects the objects of mode ipvs outside of iptables.
    fn find_ipvs(&mut self) {
        let found = &mut self.found;
        let unchecked = [
            servers::find().map(|servers| found.servers = servers),
            link::find().map(|link| found.link = link),
            sets::find().map(|sets| found.sets = sets),
        ];
        let unchecked = unchecked.into_iter().filter_map(Result::err);
        self.unchecked
            .extend(unchecked.map(|error| format!("{error:#}")));
    }
}

/// `--cleanup`: removes the objects of all modes, or prints the commands with
/// `dry_run`. Virtual servers within `excluded` networks stay.
///
/// Returns a failure code if a step fails. Failed checks are only logged.
///
/// # Errors
///
/// The kernel's state cannot be read.
pub fn cleanup(dry_run: bool, excluded: &[IpNet]) -> Result<ExitCode, Failure> {
    let scope = Scope::AllModes;
    let mut examination = examine(scope).map_err(Failure::machine)?;
    let Plan { steps, stays } = plan(scope, &examination.found, excluded);
    for message in examination.unchecked.iter().chain(&stays) {
        warn!("{message}");
    }
    if dry_run {
        let lines: String = steps.iter().map(|step| format!("{step}\n")).collect();
        return print(&lines).map(|()| ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    for step in &steps {
        match step.apply(examination.client.as_mut()) {
            Ok(()) => info!("removed: {}", step.summary()),
            Err(error) => {
                error!("removal failed: {error:#}");
                code = ExitCode::FAILURE;
            }
        }
    }
    if steps.is_empty() {
        info!("nothing to remove");
    }
    Ok(code)
}

/// Removes the objects of other modes after the first successful sync, and logs
/// a summary. Virtual servers within `excluded` networks stay.
///
/// Services stay reachable all the time. Upstream removes such objects before
/// its first sync.
pub fn remove_leftovers(mode: Mode, excluded: &[IpNet]) {
    let scope = Scope::AllExcept(mode);
    let mut examination = match examine(scope) {
        Ok(examination) => examination,
        Err(error) => return warn!("leftovers of other modes cannot be determined: {error}"),
    };
    let Plan { steps, stays } = plan(scope, &examination.found, excluded);
    for message in examination.unchecked.iter().chain(&stays) {
        warn!("{message}");
    }
    let mut removed = Vec::new();
    for step in &steps {
        match step.apply(examination.client.as_mut()) {
            Ok(()) => removed.push(step.summary()),
            Err(error) => warn!("leftovers of another mode cannot be removed: {error:#}"),
        }
    }
    if !removed.is_empty() {
        info!("removed leftovers of other modes: {}", removed.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::servers::tests::services;
    use super::sets::tests::found as sets;
    use super::*;

    #[test]
    fn rules_are_removed_before_the_sets_that_they_use() {
        let found = Found {
            rules: vec![iptables::Saved {
                restore: "iptables-nft-restore".to_owned(),
                text: "*filter\n:KUBE-IPVS-FILTER - [0:0]\nCOMMIT\n".to_owned(),
            }],
            servers: services("-A -t 10.96.0.20:80 -s rr\n-A -t 10.96.0.30:80 -s rr\n"),
            link: Some(link::Link {
                addresses: vec!["10.96.0.20".parse().unwrap()],
            }),
            sets: sets("create KUBE-IPVS-IPS hash:ip family inet\n"),
            ..Found::default()
        };
        let Plan { steps, stays } = plan(Scope::AllModes, &found, &[]);
        let shown: String = steps.iter().map(|step| format!("{step}\n")).collect();
        assert_eq!(
            shown,
            "iptables-nft-restore --noflush --wait 5 <<'END'\n*filter\n:KUBE-IPVS-FILTER - [0:0]\n\
             -X KUBE-IPVS-FILTER\nCOMMIT\nEND\nipvsadm -D -t 10.96.0.20:80\n\
             ip link delete kube-ipvs0\nipset destroy KUBE-IPVS-IPS\n"
        );
        assert_eq!(stays.len(), 1, "{stays:?}");
        assert_eq!(
            plan(Scope::AllModes, &Found::default(), &[]),
            Plan::default()
        );
    }
}
