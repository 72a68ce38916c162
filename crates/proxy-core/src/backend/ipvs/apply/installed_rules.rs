//! Reading of rules, IP sets and virtual servers for the evaluation of packets.

use vipline_service_model::Family;
use {vipline_ipset as ipset, vipline_ipvs as ipvs};

use crate::backend::apply::recent_lists::InstalledLists;
use crate::backend::iptables::apply::installed_rules::installed;
use crate::backend::ipvs::plan::evaluate::{State, rules};
use crate::evaluate::Rules;
use crate::{Config, Error};

/// Maximum number of dumps of virtual servers, until two are equal.
const DUMPS: usize = 5;

/// Reads the rules of a family, also those of other programs, all IP sets and all virtual
/// servers with their persistence templates. Addresses on `kube-ipvs0` are among those of the host.
pub(in crate::backend) fn installed_rules(config: &Config, family: Family) -> Result<Rules, Error> {
    let mut state = State::default();
    let sets = ipset::Client::open()?.dump_all()?;
    let entries = sets.iter().flat_map(|set| set.entries.iter());
    entries.for_each(|entry| state.add_entry(entry));
    let mut client = ipvs::Client::open()?;
    state.set_servers(virtual_servers(&mut client)?);
    state.add_templates(&client.connections()?);
    state.set_recent(InstalledLists::new());
    let installed = installed(config, family)?;
    let has_proxy = installed.has_proxy && state.has_servers();
    Ok(rules(installed.evaluator, state, has_proxy).with_unread(installed.unread))
}

/// Reads all virtual servers.
///
/// One dump can lack servers, if servers of any network namespace change meanwhile. So the
/// dump is repeated until two are equal.
pub(super) fn virtual_servers(client: &mut ipvs::Client) -> Result<ipvs::Table, Error> {
    let mut table = client.dump()?;
    for _ in 1..DUMPS {
        let again = client.dump()?;
        if again == table {
            break;
        }
        table = again;
    }
    Ok(table)
}
