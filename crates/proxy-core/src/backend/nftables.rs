//! Mode nftables, as one of the modes.

use proxy_nftables::TABLE;
pub use proxy_nftables::{Kernel, Planner, transactions};
use vipline_service_model::Family;

use super::apply::all_tables::installed;
use super::evaluate::{NoClients, rules};
use super::operations::Backend;
use super::saved::{evaluator, has_chain, ruleset};
use crate::cleanup::{Leftovers, Search};
use crate::evaluate::{KernelState, Rules};
use crate::{Config, Context, Engine, Error, MissingExtension, Mode};

impl From<&Config> for Planner {
    /// The mode has no settings of its own.
    fn from(_config: &Config) -> Self {
        Self
    }
}

/// Mode nftables.
pub(super) struct Nftables;

impl Backend for Nftables {
    fn check_family(
        &self,
        _config: &Config,
        family: Family,
    ) -> Result<Vec<MissingExtension>, Error> {
        // The first sync reports the error, such as a missing privilege.
        Ok(proxy_nftables::missing_extensions(family).unwrap_or_default())
    }

    fn probe(&self, cx: &Context) -> Result<bool, Error> {
        proxy_nftables::probe(cx).map(|()| true)
    }

    fn open(&self, config: &Config) -> Result<Engine, Error> {
        proxy_nftables::open(config.engine.clone())
    }

    fn plan_only(&self, config: &Config) -> Engine {
        Engine::plan_only(config.engine.clone(), Planner)
    }

    fn installed_rules(&self, _config: &Config, family: Family) -> Result<Option<Rules>, Error> {
        let installed = installed(family, |chain| chain.table.name.as_str() == TABLE)?;
        Ok(Some(installed.into_rules()))
    }

    fn saved_rules(&self, state: &KernelState) -> Result<Option<Rules>, Error> {
        let ruleset = ruleset(state)?;
        let has_proxy = has_chain(&ruleset, |chain| chain.table.name.as_str() == TABLE);
        let (evaluator, unread) = evaluator(state, &ruleset)?;
        let rules = rules(evaluator, &ruleset, NoClients, has_proxy);
        Ok(Some(rules.with_unread(unread)))
    }

    fn leftovers(&self) -> Leftovers {
        Leftovers { find }
    }
}

/// Finds the tables of the mode.
///
/// They are read in every scope: if nf_tables cannot be read, the chains of the nft variant of
/// iptables cannot be read, either.
fn find(search: &mut Search) -> Result<(), Error> {
    let tables = proxy_nftables::leftovers()?;
    if search.includes(Mode::Nftables) {
        search.found(tables);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_all_that_proxies_wrote_has_the_table() {
        assert_eq!(TABLE, crate::owned::NFTABLES_TABLE);
    }
}
