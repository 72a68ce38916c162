//! Removing what a kube-proxy programmed, upstream's or this one, in any mode.
//!
//! What is there is read, [planned](plan) without any IO as typed steps, and
//! removed step by step; a step that fails does not keep the others from their
//! turn.
//! [`names`] lists all that may ever be removed: what is not there is somebody
//! else's, and so is what somebody else's rules use.
//!
//! iptables is spoken to by its programs, the rest by netlink: what the kernel
//! shows traces of and no program can look at is told.
//!
//! - [`tables`]: mode nftables;
//! - [`iptables`]: chains of modes iptables and ipvs, in both kinds of iptables
//!   and both families;
//! - [`servers`], [`link`], [`sets`]: the rest of mode ipvs.

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

/// What is looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// What any mode programs.
    AllModes,
    /// What is in the way of a mode: what it makes itself is not, of which modes
    /// iptables and ipvs share some.
    OthersThan(Mode),
}

impl Scope {
    /// Tells whether something of iptables that these modes make is looked at.
    fn holds(self, maker: Maker) -> bool {
        match self {
            Self::AllModes | Self::OthersThan(Mode::Nftables) => true,
            Self::OthersThan(Mode::Iptables) => maker == Maker::Ipvs,
            Self::OthersThan(Mode::Ipvs) => maker == Maker::Iptables,
            Self::OthersThan(_) => false,
        }
    }

    /// Tells whether what a mode programs besides rules of iptables is looked at.
    fn includes(self, mode: Mode) -> bool {
        self != Self::OthersThan(mode)
    }
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Tables of mode nftables.
    pub tables: Vec<tables::Removal>,
    /// What the iptables programs saved.
    pub rules: Vec<iptables::Saved>,
    /// All virtual servers.
    pub servers: Vec<ServiceKey>,
    /// The link of mode ipvs, if it exists.
    pub link: Option<link::Link>,
    /// The sets of mode ipvs.
    pub sets: Sets,
}

/// Something to be removed, displayed as the shell command that does it.
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

    /// Returns what is removed, in a few words.
    fn summary(&self) -> String {
        match self {
            Self::Chains(document) => document.summary(),
            step => format!("`{step}`"),
        }
    }
}

/// What is to be removed, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// What looks like a kube-proxy's and stays, with the reason.
    pub stays: Vec<String>,
}

/// Returns what is to be removed of what is there, but virtual servers within
/// `excluded` networks.
///
/// Rules go before the sets that they use.
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

/// What is there, what could not be looked at, and the way to nf_tables if the
/// kernel has it.
struct Look {
    found: Found,
    unchecked: Vec<String>,
    client: Option<Client>,
}

fn look(scope: Scope) -> Result<Look, Error> {
    let mut look = Look {
        found: Found::default(),
        unchecked: Vec::new(),
        client: None,
    };
    match Client::open().and_then(|mut client| Ok((tables::look(&mut client)?, client))) {
        Ok((tables, client)) => {
            if scope.includes(Mode::Nftables) {
                look.found.tables = tables;
            }
            look.client = Some(client);
        }
        Err(Error::Unsupported { .. }) => {}
        Err(error) => return Err(error),
    }
    let (rules, unchecked) = iptables::look(scope, look.client.as_mut());
    look.found.rules = rules;
    look.unchecked.extend(unchecked);
    if scope.includes(Mode::Ipvs) {
        look.look_at_ipvs();
    }
    Ok(look)
}

impl Look {
    /// Looks at what mode ipvs programs besides rules.
    fn look_at_ipvs(&mut self) {
        let found = &mut self.found;
        let unchecked = [
            servers::look().map(|servers| found.servers = servers),
            link::look().map(|link| found.link = link),
            sets::look().map(|sets| found.sets = sets),
        ];
        let unchecked = unchecked.into_iter().filter_map(Result::err);
        self.unchecked
            .extend(unchecked.map(|error| format!("{error:#}")));
    }
}

/// Removes what any mode programmed, but virtual servers within `excluded`
/// networks, or only prints how.
///
/// Fails in the end if a step failed; what could not be looked at is told only.
///
/// # Errors
///
/// The kernel does not tell what is there.
pub fn cleanup(dry_run: bool, excluded: &[IpNet]) -> Result<ExitCode, Failure> {
    let scope = Scope::AllModes;
    let mut look = look(scope).map_err(Failure::machine)?;
    let Plan { steps, stays } = plan(scope, &look.found, excluded);
    for words in look.unchecked.iter().chain(&stays) {
        warn!("{words}");
    }
    if dry_run {
        let lines: String = steps.iter().map(|step| format!("{step}\n")).collect();
        return print(&lines).map(|()| ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    for step in &steps {
        match step.apply(look.client.as_mut()) {
            Ok(()) => info!("removed: {}", step.summary()),
            Err(error) => {
                error!("not removed: {error:#}");
                code = ExitCode::FAILURE;
            }
        }
    }
    if steps.is_empty() {
        info!("nothing to remove");
    }
    Ok(code)
}

/// Removes what modes that do not run left behind, as well as that goes, but
/// virtual servers within `excluded` networks; logs what was removed in one line.
///
/// To be called after the first successful sync, so that Services are served
/// all the time; upstream does it before.
pub fn leftovers_of_other_modes(mode: Mode, excluded: &[IpNet]) {
    let scope = Scope::OthersThan(mode);
    let mut look = match look(scope) {
        Ok(look) => look,
        Err(error) => return warn!("what other modes left behind is not known: {error}"),
    };
    let Plan { steps, stays } = plan(scope, &look.found, excluded);
    for words in look.unchecked.iter().chain(&stays) {
        warn!("{words}");
    }
    let mut removed = Vec::new();
    for step in &steps {
        match step.apply(look.client.as_mut()) {
            Ok(()) => removed.push(step.summary()),
            Err(error) => warn!("left behind by another mode, and not removed: {error:#}"),
        }
    }
    if !removed.is_empty() {
        info!(
            "removed what other modes left behind: {}",
            removed.join("; ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::servers::tests::services;
    use super::sets::tests::found as sets;
    use super::*;

    #[test]
    fn rules_go_before_what_they_use() {
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
