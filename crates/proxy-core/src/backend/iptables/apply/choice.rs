//! Choice between the programs of iptables and netlink.

use vipline_iptables::{self as tool, Client, Variant, nft};
use vipline_service_model::Family;

use super::legacy::legacy_tables;
use super::support::{Lacking, lacking};
use crate::backend::iptables::plan::names::{self, MANGLE};
use crate::{Config, Error, IptablesBackend, IptablesChoice, Mode};

/// Kernel option that the rules of the nft variant require.
pub(super) const COMPAT: &str = "CONFIG_NFT_COMPAT";

/// Chains of the kubelet in table `mangle`, for the detection of the variant. The second
/// one is that of kubelets before 1.24.
const KUBELET_CHAINS: [&str; 2] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/// Chooses the backend for this node.
pub(in crate::backend) fn choose(config: &Config) -> IptablesChoice {
    match config.iptables.backend {
        IptablesBackend::Auto => detect(config.mode, &config.engine.families),
        backend => IptablesChoice::new(backend, "set by --iptables-backend"),
    }
}

/// Chooses netlink if the nft variant is in use and the kernel supports its rules.
///
/// A kernel without a required extension cannot serve the mode by the programs, either; their
/// check names the extension.
fn detect(mode: Mode, families: &[Family]) -> IptablesChoice {
    let by_programs = |reason| IptablesChoice::new(IptablesBackend::Programs, reason);
    let reason = match nft_variant(families) {
        Ok(reason) => reason,
        Err(reason) => return by_programs(reason),
    };
    for &family in families {
        match lacking(mode, family) {
            Ok(Lacking::Extensions(missing)) => {
                let mut required = missing.iter().filter(|it| it.is_required(mode));
                if let Some(first) = required.next() {
                    return by_programs(format!("{}", first.missing(mode, family)));
                }
            }
            Ok(Lacking::Compat) => {
                return by_programs(format!("the kernel lacks {COMPAT} for {family}"));
            }
            Err(error) => return by_programs(format!("nf_tables cannot be used: {error}")),
        }
    }
    IptablesChoice::new(IptablesBackend::Netlink, reason)
}

/// Returns why the nft variant is in use, or why it is not.
///
/// The chain of the kubelet decides, otherwise the variant of the installed programs.
fn nft_variant(families: &[Family]) -> Result<String, String> {
    if let Some(chain) = kubelet_chain(families) {
        return Ok(format!("nf_tables has chain {chain} of the kubelet"));
    }
    let family = families.first().copied().unwrap_or(Family::V4);
    let has_tables = |&family: &Family| legacy_tables(family).is_ok_and(|it| !it.is_empty());
    let has_legacy_tables = || Family::ALL.iter().any(has_tables);
    match Client::open(family) {
        Ok(client) => match client.variant() {
            Variant::Nft => Ok("the installed iptables is of the nft variant".into()),
            variant => Err(format!(
                "the installed iptables is of the {variant} variant"
            )),
        },
        Err(tool::Error::MissingProgram { .. }) if !has_legacy_tables() => {
            Ok("no iptables is installed".into())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the chain by which the kubelet shows that it uses the nft variant.
fn kubelet_chain(families: &[Family]) -> Option<&'static str> {
    let clients = families.iter().map(|&family| nft::Client::open(family));
    let mut clients: Vec<_> = clients.filter_map(Result::ok).collect();
    let mut has_chain = |name| {
        let (table, chain) = (names::table(MANGLE), names::chain(name));
        let mut found = clients.iter_mut().map(|it| it.has_chain(table, chain));
        found.any(|found| matches!(found, Ok(true)))
    };
    KUBELET_CHAINS.into_iter().find(|name| has_chain(name))
}

/// Returns whether the kernel evaluates the rules of the nft variant in a family.
pub(super) fn has_compat(family: Family) -> Result<bool, Error> {
    let mut client = nft::Client::open(family)?;
    Ok(client.has_compat()?)
}
