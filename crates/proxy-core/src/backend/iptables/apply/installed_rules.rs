//! Reading of all rules, also those of other programs, for the evaluation of packets.

use vipline_iptables::{Client, SaveOptions, Variant};
use vipline_service_model::Family;

use super::choice::choose;
use super::program_error::of_program;
use crate::backend::apply::all_tables::{self, Installed, installed_with_save};
use crate::backend::iptables::plan::names::SERVICES;
use crate::{Config, Error, IptablesBackend};

/// Reads all rules of a family, those of the legacy variant by its programs.
pub(in crate::backend) fn installed(config: &Config, family: Family) -> Result<Installed, Error> {
    let is_services = |name: &str| name == SERVICES;
    if choose(config).backend == IptablesBackend::Programs {
        let mut client = Client::open(family).map_err(of_program)?;
        if client.variant() != Variant::Nft {
            let save = client.save_with(SaveOptions::new()).map_err(of_program)?;
            let has_proxy = save.contains(&format!("\n:{SERVICES} "));
            return installed_with_save(family, &save, has_proxy);
        }
    }
    all_tables::installed(family, |chain| is_services(chain.name.as_str()))
}
