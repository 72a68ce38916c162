//! Removing what a kube-proxy programmed, upstream's or this one, in any mode.
//!
//! What is there is read, [planned](plan) without any IO as typed steps, and
//! removed step by step; a step that fails does not keep the others from their
//! turn.
//! [`names`] lists all that may ever be removed: what is not there is somebody
//! else's, and so is what somebody else's rules use.
//!
//! nf_tables is spoken to by netlink, the rest by the programs of the system:
//! what the kernel shows traces of and no program can look at is told.
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

pub mod tool;

use std::fmt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use proxy_core::Mode;
use tracing::{error, info, warn};
use vipline_nftables::{Client, Error};

use crate::failure::Failure;
use crate::output::print;

/// What is looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// What any mode programs.
    AllModes,
    /// What is in the way of a mode, as upstream sees it: modes iptables and
    /// ipvs are not in each other's.
    OthersThan(Mode),
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Tables of mode nftables.
    pub tables: Vec<tables::Removal>,
    /// What the iptables programs saved.
    pub rules: Vec<iptables::Saved>,
    /// What `ipvsadm -Sn` says.
    pub servers: String,
    /// The addresses of the link of mode ipvs, if it exists.
    pub link: Option<Vec<String>>,
    /// What `ipset save` says.
    pub sets: String,
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
    Link,
    /// A set of mode ipvs.
    Set(sets::Set),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => table.fmt(f),
            Self::Chains(document) => document.fmt(f),
            Self::Server(server) => server.fmt(f),
            Self::Link => f.write_str(link::COMMAND),
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
            Self::Link => link::remove(),
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

/// Returns what is to be removed of what is there.
///
/// Rules go before the sets that they use.
pub fn plan(found: &Found) -> Plan {
    let mut plan = Plan::default();
    let tables = found.tables.iter().cloned();
    plan.steps.extend(tables.map(Step::Table));
    for saved in &found.rules {
        let (documents, stays) = iptables::plan(saved);
        plan.steps.extend(documents.into_iter().map(Step::Chains));
        plan.stays.extend(stays);
    }
    let addresses = found.link.iter().flatten();
    let addresses: Vec<&str> = addresses.map(String::as_str).collect();
    let (servers, stays) = servers::plan(&found.servers, &found.sets, &addresses);
    plan.steps.extend(servers.into_iter().map(Step::Server));
    plan.stays.extend(stays);
    plan.steps
        .extend(found.link.is_some().then_some(Step::Link));
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
    let (nftables, others) = match scope {
        Scope::AllModes => (true, true),
        Scope::OthersThan(Mode::Nftables) => (false, true),
        Scope::OthersThan(_) => (true, false),
    };
    let mut look = Look {
        found: Found::default(),
        unchecked: Vec::new(),
        client: None,
    };
    match Client::open().and_then(|mut client| Ok((tables::look(&mut client)?, client))) {
        Ok((tables, client)) => {
            if nftables {
                look.found.tables = tables;
            }
            look.client = Some(client);
        }
        Err(Error::Unsupported { .. }) => {}
        Err(error) => return Err(error),
    }
    if others {
        look.others();
    }
    Ok(look)
}

impl Look {
    /// Looks at what modes iptables and ipvs program.
    fn others(&mut self) {
        let (rules, unchecked) = iptables::look(self.client.as_mut());
        self.found.rules = rules;
        self.unchecked.extend(unchecked);
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

/// Removes what any mode programmed, or only prints how.
///
/// Fails in the end if a step failed; what could not be looked at is told only.
///
/// # Errors
///
/// The kernel does not tell what is there.
pub fn cleanup(dry_run: bool) -> Result<ExitCode, Failure> {
    let mut look = look(Scope::AllModes).map_err(Failure::machine)?;
    let Plan { steps, stays } = plan(&look.found);
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

/// Removes what modes that do not run left behind, as well as that goes, and
/// logs what was removed in one line.
///
/// To be called after the first successful sync, so that Services are served
/// all the time; upstream does it before.
pub fn leftovers_of_other_modes(mode: Mode) {
    let mut look = match look(Scope::OthersThan(mode)) {
        Ok(look) => look,
        Err(error) => return warn!("what other modes left behind is not known: {error}"),
    };
    let Plan { steps, stays } = plan(&look.found);
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
    use super::*;

    #[test]
    fn rules_go_before_what_they_use() {
        let found = Found {
            rules: vec![iptables::Saved {
                restore: "iptables-nft-restore".to_owned(),
                text: "*filter\n:KUBE-IPVS-FILTER - [0:0]\nCOMMIT\n".to_owned(),
            }],
            servers: "-A -t 10.96.0.20:80 -s rr\n-A -t 10.96.0.30:80 -s rr\n".to_owned(),
            link: Some(vec!["10.96.0.20".to_owned()]),
            sets: "create KUBE-IPVS-IPS hash:ip family inet\ncreate MINE hash:ip\n".to_owned(),
            ..Found::default()
        };
        let Plan { steps, stays } = plan(&found);
        let shown: String = steps.iter().map(|step| format!("{step}\n")).collect();
        assert_eq!(
            shown,
            "iptables-nft-restore --noflush --wait 5 <<'END'\n*filter\n:KUBE-IPVS-FILTER - [0:0]\n\
             -X KUBE-IPVS-FILTER\nCOMMIT\nEND\nipvsadm -D -t 10.96.0.20:80\n\
             ip link delete dev kube-ipvs0\nipset destroy KUBE-IPVS-IPS\n"
        );
        assert_eq!(stays.len(), 1, "{stays:?}");
        assert_eq!(plan(&Found::default()), Plan::default());
    }
}
