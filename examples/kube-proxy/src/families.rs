//! The IP families that a mode can program on this node.

use proxy_core::{Family, Mode, interfaces};
use tracing::warn;
use vipline_iptables::{Client, Error, Family as IptablesFamily};

use crate::failure::{Failure, chain};

/// An empty section. It changes nothing, but fails if the kernel lacks the
/// table.
const NAT: &str = "*nat\nCOMMIT\n";

/// Returns the IP families that a mode can program on this node.
///
/// A family that the kernel lacks is left out. Modes iptables and ipvs also
/// leave out a family without iptables programs or without table `nat`, with a
/// warning.
///
/// # Errors
///
/// No family is left. The message has the reason for the first family.
pub fn supported(mode: Mode) -> Result<Vec<Family>, Failure> {
    let families = interfaces::families();
    if mode == Mode::Nftables {
        return Ok(families);
    }
    let checked = families.into_iter().map(|family| (family, check(family)));
    choose(checked.collect())
}

/// Returns the supported families. Logs a warning for each other family.
fn choose(checked: Vec<(Family, Result<(), Error>)>) -> Result<Vec<Family>, Failure> {
    let (mut supported, mut missing) = (Vec::new(), Vec::new());
    for (family, result) in checked {
        match result {
            Err(error) if is_lasting(&error) => missing.push((family, error)),
            _ => supported.push(family),
        }
    }
    if let ([], Some((_, error))) = (&*supported, missing.first()) {
        return Err(Failure::machine(chain(error)));
    }
    for (family, error) in &missing {
        let error = chain(error);
        warn!(%family, "IP family not served because iptables does not support it: {error}");
    }
    Ok(supported)
}

/// Finds the iptables programs and makes them open table `nat`.
fn check(family: Family) -> Result<(), Error> {
    let family = match family {
        Family::V4 => IptablesFamily::V4,
        Family::V6 => IptablesFamily::V6,
    };
    Client::open(family)?.test(&NAT)
}

/// Returns whether an error is permanent. After other errors the family is
/// served and syncs are retried.
fn is_lasting(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::Outdated { .. }
            | Error::Unsupported { .. }
            | Error::Denied { .. }
            | Error::Rejected { .. }
            | Error::Spawn { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(program: &str) -> Error {
        Error::NotFound {
            program: program.into(),
        }
    }

    fn locked() -> Error {
        Error::Locked {
            wait: 5,
            message: "held".into(),
        }
    }

    #[test]
    fn a_family_without_iptables_is_left_out_if_the_other_has_it() {
        for (v4, v6, expected) in [
            (Ok(()), Ok(()), Some(&Family::ALL[..])),
            (Ok(()), Err(missing("ip6tables-save")), Some(&[Family::V4])),
            (Err(missing("iptables-save")), Ok(()), Some(&[Family::V6])),
            (Ok(()), Err(locked()), Some(&Family::ALL)),
            (
                Err(missing("iptables-save")),
                Err(missing("ip6tables-save")),
                None,
            ),
        ] {
            let chosen = choose(vec![(Family::V4, v4), (Family::V6, v6)]);
            assert_eq!(chosen.ok().as_deref(), expected);
        }
        let error = choose(vec![(Family::V4, Err(missing("iptables-save")))]).unwrap_err();
        assert!(error.to_string().contains("iptables-save"), "{error}");
    }
}
