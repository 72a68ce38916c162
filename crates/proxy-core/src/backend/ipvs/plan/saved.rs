//! Evaluation of a saved kernel: rules of iptables, IP sets, virtual servers and connections.

use vipline_ipset::{Command, Commands};
use vipline_ipvs::{Connection, Table};

use super::evaluate::{State, rules};
use crate::Error;
use crate::backend::saved::ruleset;
use crate::backend::saved_iptables::{SavedLists, evaluator_of_variants};
use crate::evaluate::{KernelState, Rules, Source};

/// Returns the rules of a saved kernel, also those of other programs. Addresses on
/// `kube-ipvs0` are among those of the host.
pub(in crate::backend::ipvs) fn saved_rules(saved: &KernelState) -> Result<Rules, Error> {
    let mut state = State::default();
    let sets = Commands::parse(saved.text(Source::IpsetSave), &[]);
    for command in sets.map_err(Error::custom_permanent)?.as_slice() {
        if let Command::Add(entry, _) = command {
            state.add_entry(entry);
        }
    }
    let servers: Table = saved
        .text(Source::IpvsadmSave)
        .parse()
        .map_err(Error::custom_permanent)?;
    state.set_servers(servers);
    let lines = saved.text(Source::IpVsConn).lines();
    let connections: Result<Vec<Connection>, _> = lines.map(str::parse).collect();
    state.add_templates(&connections.map_err(Error::custom_permanent)?);
    state.set_recent(SavedLists::parse(saved)?);
    let (evaluator, unread) = evaluator_of_variants(saved, &ruleset(saved)?)?;
    let has_servers = state.has_servers();
    Ok(rules(evaluator, state, has_servers).with_unread(unread))
}
