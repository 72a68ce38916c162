//! Check of the kernel's support for the rules of a family.

use vipline_iptables::nft::{self, Lack};
use vipline_iptables::{self as tool, Client};
use vipline_service_model::Family;

use super::choice::{COMPAT, choose};
use super::program_error::{is_permanent, of_program};
use crate::backend::iptables::plan::extensions::{self, Extension, document};
use crate::{Config, Error, IptablesBackend, MissingExtension, Mode};

/// Checks whether the kernel has what the backend of iptables needs for a family. Returns the
/// extensions that it lacks and without which most Services are served.
///
/// Fails only if a retry cannot succeed.
pub(in crate::backend) fn check_family(
    config: &Config,
    family: Family,
) -> Result<Vec<MissingExtension>, Error> {
    let mode = config.mode;
    let missing = match choose(config).backend {
        IptablesBackend::Netlink => match lacking(mode, family) {
            Ok(Lacking::Compat) => return Err(unsupported(mode, family, no_compat())),
            Ok(Lacking::Extensions(missing)) => missing,
            Err(error) if error.is_permanent() => return Err(error),
            // The first sync reports the error, and retries.
            Err(_) => Vec::new(),
        },
        _ => missing_of_programs(mode, family)?,
    };
    let (required, optional): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|it| it.is_required(mode));
    if !required.is_empty() {
        let reasons = required
            .iter()
            .map(|it| it.missing(mode, family).to_string());
        let reasons: Vec<_> = reasons.collect();
        return Err(unsupported(mode, family, reasons.join("; ")));
    }
    let described = optional.iter().map(|it| it.missing(mode, family));
    Ok(described.collect())
}

fn unsupported(mode: Mode, family: Family, reasons: String) -> Error {
    Error::Unsupported {
        mode: mode.name(),
        family,
        reasons,
    }
}

fn no_compat() -> String {
    format!("--iptables-backend=netlink requires {COMPAT}")
}

/// What a kernel lacks for the rules of a mode in the form of the nft variant.
pub(super) enum Lacking {
    /// `CONFIG_NFT_COMPAT`.
    Compat,
    /// These extensions.
    Extensions(Vec<Extension>),
}

/// Asks the kernel for all extensions of a mode.
pub(super) fn lacking(mode: Mode, family: Family) -> Result<Lacking, Error> {
    let mut client = nft::Client::open(family)?;
    let mut missing = Vec::new();
    for extension in extensions::of(mode) {
        match client.lack(&extension.rule(family))? {
            None => {}
            Some(Lack::Compat) => return Ok(Lacking::Compat),
            Some(_) => missing.push(extension),
        }
    }
    Ok(Lacking::Extensions(missing))
}

/// Makes the programs of a family open table `nat` and ask the kernel for all extensions of a
/// mode.
///
/// The programs refuse a document with an extension whose library is not installed. So
/// extensions that are not required are then checked one by one.
fn missing_of_programs(mode: Mode, family: Family) -> Result<Vec<Extension>, Error> {
    let all: Vec<_> = extensions::of(mode).collect();
    let mut client = match Client::open(family) {
        Err(error) if is_unsupported(&error) => return Err(of_program(error)),
        // The first sync reports the error, and retries.
        Err(_) => return Ok(Vec::new()),
        Ok(client) => client,
    };
    let mut test = |extensions: &[Extension]| {
        let names = client.test_extensions(&document(extensions, family))?;
        let is_named = |it: &&Extension| names.iter().any(|name| **name == *it.name);
        let missing: Vec<_> = extensions.iter().filter(is_named).copied().collect();
        Ok::<_, tool::Error>(missing)
    };
    match test(&all) {
        Err(tool::Error::Rejected { .. }) => {}
        Err(error) if is_unsupported(&error) => return Err(of_program(error)),
        Err(_) => return Ok(Vec::new()),
        Ok(missing) => return Ok(missing),
    }
    let (required, optional): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|it| it.is_required(mode));
    let mut missing = test(&required).map_err(of_program)?;
    for extension in optional {
        match test(&[extension]) {
            Ok(found) => missing.extend(found),
            Err(_) => missing.push(extension),
        }
    }
    Ok(missing)
}

/// Returns whether a test of a document cannot succeed later. After other errors the family is
/// served and syncs are retried.
fn is_unsupported(error: &tool::Error) -> bool {
    use tool::Error::{Rejected, Spawn};
    is_permanent(error) || matches!(error, Rejected { .. } | Spawn { .. })
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
        assert!(!is_unsupported(&locked));
        let missing = tool::Error::MissingProgram {
            program: "ip6tables-save".into(),
        };
        assert!(is_unsupported(&missing));
    }
}
