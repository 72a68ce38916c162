//! The IP families that a mode can program on this node.

use proxy_core::{Config, Error, Family, MissingExtension, Mode};
use tracing::warn;

use crate::failure::{Failure, chain};

/// Returns those families of a configuration that its mode can program on this node.
///
/// A family for which the node lacks something that the mode requires is left out with a
/// warning.
///
/// # Errors
///
/// No family is left. The message has the reason for the first family.
pub fn supported(config: &Config) -> Result<Vec<Family>, Failure> {
    let families = config.engine.families.iter();
    let checked = families.map(|&family| (family, config.mode.check_family(config, family)));
    choose(config.mode, checked.collect())
}

/// Returns the supported families. Logs a warning for each other family.
fn choose(
    mode: Mode,
    checked: Vec<(Family, Result<Vec<MissingExtension>, Error>)>,
) -> Result<Vec<Family>, Failure> {
    let (mut supported, mut missing) = (Vec::new(), Vec::new());
    for (family, result) in checked {
        match result {
            Err(error) => missing.push((family, error)),
            Ok(extensions) => {
                // The programs of iptables also need a library for each match and target.
                let or_library = match mode {
                    Mode::Nftables => "",
                    _ => ", or the library of iptables is",
                };
                for extension in extensions {
                    let affected = extension.affected.unwrap_or("everything");
                    warn!(%family, "not served: {affected}: {extension}{or_library}");
                }
                supported.push(family);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(program: &str) -> Error {
        Error::custom_permanent(vipline_iptables::Error::MissingProgram {
            program: program.into(),
        })
    }

    #[test]
    fn a_family_without_iptables_is_left_out_if_the_other_has_it() {
        for (v4, v6, expected) in [
            (Ok(vec![]), Ok(vec![]), Some(&Family::ALL[..])),
            (
                Ok(vec![]),
                Err(missing("ip6tables-save")),
                Some(&[Family::V4]),
            ),
            (
                Err(missing("iptables-save")),
                Ok(vec![]),
                Some(&[Family::V6]),
            ),
            (
                Err(missing("iptables-save")),
                Err(missing("ip6tables-save")),
                None,
            ),
        ] {
            let chosen = choose(Mode::Iptables, vec![(Family::V4, v4), (Family::V6, v6)]);
            assert_eq!(chosen.ok().as_deref(), expected);
        }
        let checked = vec![(Family::V4, Err(missing("iptables-save")))];
        let error = choose(Mode::Iptables, checked).unwrap_err();
        assert!(error.to_string().contains("iptables-save"), "{error}");
    }
}
