//! Reading of the state of mode iptables besides tables of nf_tables, as text.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fs;
use std::io::{self, ErrorKind};

use vipline_iptables::{SaveOptions, Variant, nft, program_name};
use vipline_service_model::Family;

use super::cleanup::programs;
use super::legacy::{legacy_tables, may_have_tables, names_path};
use super::program_error::of_program;
use crate::Error;
use crate::backend::apply::recent_lists::{FOLDER, read_time};
use crate::backend::saved_iptables::{NOT_EVALUATED, UNKNOWN_TIME};
use crate::evaluate::{KernelState, Source};

/// Adds the rules of the legacy variant, the names of IP sets, and the lists of match
/// `recent`.
pub(in crate::backend) fn save(state: &mut KernelState) -> Result<(), Error> {
    for (family, source) in [
        (Family::V4, Source::IptablesSave),
        (Family::V6, Source::Ip6tablesSave),
    ] {
        state.add_text(source, &legacy_rules(family));
    }
    save_names(state);
    save_lists(state).map_err(Error::custom)
}

/// Returns the rules of the legacy variant as its programs print them, or a comment if they
/// cannot be read. Only tables that exist are read: a program would create others.
///
/// In a container, a user besides root cannot even read which tables exist, and there are no
/// programs. The rules of nf_tables are worth evaluating without those of the legacy variant,
/// which most nodes do not have.
pub(in crate::backend) fn legacy_rules(family: Family) -> String {
    let doubt = match legacy_tables(family) {
        Ok(tables) if tables.is_empty() => return String::new(),
        Err(_) if !may_have_tables(family) => return String::new(),
        Ok(_) => String::new(),
        Err(error) => format!(
            "whether they exist is unknown, because {} cannot be read ({error}), and ",
            names_path(family)
        ),
    };
    let saved = programs(family, Variant::Legacy).and_then(|found| match found {
        Some((_, mut client)) => {
            let saved = client.save_with(SaveOptions::new());
            saved.map(Some).map_err(of_program)
        }
        None => Ok(None),
    });
    let reason = match saved {
        Ok(Some(rules)) => return rules,
        Ok(None) => "its programs are not installed".to_owned(),
        Err(error) => error.to_string(),
    };
    let name = program_name(family);
    format!("# rules of {name}-legacy{NOT_EVALUATED}{doubt}{reason}")
}

/// Adds the names of IP sets, if the kernel has IP sets.
fn save_names(state: &mut KernelState) {
    let client = nft::Client::open(Family::V4);
    let Ok(names) = client.and_then(|mut client| client.set_names()) else {
        return;
    };
    let mut names: Vec<_> = names.iter().collect();
    names.sort_unstable();
    for (index, name) in names {
        state.add_text(Source::SetNames, &format!("{index} {name}"));
    }
}

/// Adds the lists of match `recent` that have entries, and the current time.
fn save_lists(state: &mut KernelState) -> io::Result<()> {
    let files = match fs::read_dir(FOLDER) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        files => files?,
    };
    for file in files {
        let file = file?;
        let Ok(name) = file.file_name().into_string() else {
            continue;
        };
        for line in fs::read_to_string(file.path())?.lines() {
            state.add_text(Source::XtRecent, &format!("{name} {line}"));
        }
    }
    let time = match read_time() {
        Ok(time) => time.to_string(),
        Err(reason) => format!("{UNKNOWN_TIME}{reason}"),
    };
    state.add_text(Source::Jiffies, &time);
    Ok(())
}
