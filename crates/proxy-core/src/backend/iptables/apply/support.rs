//! Check of the kernel's support for the rules of a family.

use vipline_iptables::{self as tool, Client};
use vipline_service_model::Family;

use super::choice::{COMPAT, choose, has_compat};
use crate::backend::iptables::plan::rules::iptables_family;
use crate::{Config, Error, IptablesBackend};

/// An empty section. It changes nothing, but fails if the kernel lacks the table.
const NAT: &str = "*nat\nCOMMIT\n";

/// Checks whether the kernel has what the backend of iptables needs for a family.
///
/// Fails only if a retry cannot succeed.
pub(in crate::backend) fn check_family(config: &Config, family: Family) -> Result<(), Error> {
    match choose(config).backend {
        IptablesBackend::Netlink => check_netlink(config, family),
        _ => check_programs(family),
    }
}

/// Checks whether the kernel evaluates the rules of the nft variant.
fn check_netlink(config: &Config, family: Family) -> Result<(), Error> {
    match has_compat(family) {
        Ok(false) => Err(Error::Unsupported {
            mode: config.mode,
            family,
            reasons: format!("--iptables-backend=netlink requires {COMPAT}"),
        }),
        Err(error) if error.is_permanent() => Err(error),
        _ => Ok(()),
    }
}

/// Finds the iptables programs of a family and makes them open table `nat`.
fn check_programs(family: Family) -> Result<(), Error> {
    let tested = Client::open(iptables_family(family)).and_then(|mut it| it.test(&NAT));
    match tested.map_err(Error::from) {
        Err(error) if is_unsupported(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether an empty section cannot be restored. After other errors the family is
/// served and syncs are retried.
fn is_unsupported(error: &Error) -> bool {
    error.is_permanent()
        || matches!(
            error,
            Error::Iptables(tool::Error::Rejected { .. } | tool::Error::Spawn { .. })
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_whose_tables_are_locked_is_served() {
        let locked = tool::Error::Locked {
            wait: 5,
            message: "held".into(),
        };
        assert!(!is_unsupported(&locked.into()));
        let missing = tool::Error::NotFound {
            program: "ip6tables-save".into(),
        };
        assert!(is_unsupported(&missing.into()));
    }
}
