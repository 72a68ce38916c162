//! Reading of rules, IP sets and virtual servers for the evaluation of packets.

use vipline_service_model::Family;
use {vipline_ipset as ipset, vipline_ipvs as ipvs};

use crate::backend::iptables::apply::installed_rules::installed;
use crate::backend::ipvs::plan::evaluate::{State, rules};
use crate::evaluate::Rules;
use crate::{Config, Error};

/// Reads the rules of a family, also those of other programs, all IP sets and all virtual
/// servers. Addresses on `kube-ipvs0` are among those of the host.
pub(in crate::backend) fn installed_rules(config: &Config, family: Family) -> Result<Rules, Error> {
    let mut state = State::default();
    let sets = ipset::Client::open()?.dump_all()?;
    let entries = sets.iter().flat_map(|set| set.entries.iter());
    entries.for_each(|entry| state.add_entry(entry));
    state.set_servers(ipvs::Client::open()?.dump()?);
    let installed = installed(config, family)?;
    let has_proxy = installed.has_proxy && state.has_servers();
    Ok(rules(installed.evaluator, state, has_proxy))
}
