//! Reading of all rules that packets pass, also those of other programs.

use vipline_evaluate::Evaluator;
#[cfg(feature = "iptables")]
use vipline_iptables as iptables;
use vipline_nftables::{Chain, Client, DumpOptions, Family, HookEntry, Ruleset, TableId};
use vipline_service_model as service_model;

use crate::Error;
use crate::backend::evaluate;
#[cfg(feature = "iptables")]
use crate::backend::iptables::apply::saved::legacy_rules;
use crate::backend::saved::has_chain;
#[cfg(feature = "iptables")]
use crate::backend::saved_iptables::Variants;
use crate::evaluate::{Rules, read_hooks};

/// Rules of the kernel.
pub(in crate::backend) struct Installed {
    pub(in crate::backend) evaluator: Evaluator,
    /// Whether they include those of a proxy in the mode.
    pub(in crate::backend) has_proxy: bool,
    /// Rules that could not be read, with the reasons.
    pub(in crate::backend) unread: Vec<String>,
    dump: Ruleset,
}

impl Installed {
    /// Wraps the rules.
    pub(in crate::backend) fn into_rules(self) -> Rules {
        #[cfg(feature = "iptables")]
        let recent = super::recent_lists::InstalledLists::new();
        #[cfg(not(feature = "iptables"))]
        let recent = evaluate::NoClients;
        evaluate::rules(self.evaluator, &self.dump, recent, self.has_proxy).with_unread(self.unread)
    }
}

/// Reads the tables of nf_tables and of both variants of iptables.
///
/// `is_own` recognizes the chains of a proxy in the mode.
pub(in crate::backend) fn installed(
    family: service_model::Family,
    is_own: impl Fn(&Chain) -> bool,
) -> Result<Installed, Error> {
    let (dump, hooks) = all_tables(family)?;
    let (evaluator, unread) = evaluator(&dump, family)?;
    Ok(Installed {
        evaluator: evaluator.with_hooks(&hooks),
        has_proxy: has_chain(&dump, is_own),
        unread,
        dump,
    })
}

/// Reads the tables of nf_tables and those of the legacy variant of iptables, which the
/// programs print as `save`.
#[cfg(feature = "iptables")]
pub(in crate::backend) fn installed_with_save(
    family: service_model::Family,
    save: &str,
    has_proxy: bool,
) -> Result<Installed, Error> {
    let (dump, hooks) = match all_tables(family) {
        Err(vipline_nftables::Error::Unsupported { .. }) => Default::default(),
        read => read?,
    };
    let rules = vipline_evaluate::iptables::Rules::from_dump(dump.clone(), set_names(family));
    let variants = Variants::new(rules).with_legacy(save, family)?;
    let (evaluator, unread) = variants.evaluator();
    Ok(Installed {
        evaluator: evaluator.with_hooks(&hooks),
        has_proxy,
        unread,
        dump,
    })
}

/// Dumps all tables that packets of a family pass, with the elements of dynamic sets and the
/// order of base chains.
fn all_tables(
    family: service_model::Family,
) -> Result<(Ruleset, Vec<HookEntry>), vipline_nftables::Error> {
    let own = Family::from(family);
    let mut client = Client::open()?;
    let passes = |table: &TableId| {
        let families = [own, Family::Inet, Family::Netdev];
        families.contains(&table.family)
    };
    let mut tables: Vec<TableId> = client.tables()?.into_iter().map(|it| it.id).collect();
    tables.retain(passes);
    let dump = client.dump_with(&tables, DumpOptions::new().with_dynamic_elements())?;
    let hooks = read_hooks(&mut client, own)?;
    Ok((dump, hooks))
}

/// Returns the evaluator of a dump and of the rules of the legacy variant, and the reasons why
/// some rules are missing. With mode iptables it knows matches and targets of xtables.
#[cfg(feature = "iptables")]
fn evaluator(
    dump: &Ruleset,
    family: service_model::Family,
) -> Result<(Evaluator, Vec<String>), Error> {
    let rules = vipline_evaluate::iptables::Rules::from_dump(dump.clone(), set_names(family));
    let variants = Variants::new(rules);
    let variants = variants.with_legacy(&legacy_rules(family), family)?;
    Ok(variants.evaluator())
}

/// Returns the evaluator of a dump.
#[cfg(not(feature = "iptables"))]
fn evaluator(
    dump: &Ruleset,
    _family: service_model::Family,
) -> Result<(Evaluator, Vec<String>), Error> {
    Ok((Evaluator::new(dump), Vec::new()))
}

/// Returns the names of IP sets, or none if the kernel has no IP sets.
#[cfg(feature = "iptables")]
fn set_names(family: service_model::Family) -> iptables::nft::SetNames {
    let client = iptables::nft::Client::open(family);
    client
        .and_then(|mut client| client.set_names())
        .unwrap_or_default()
}
