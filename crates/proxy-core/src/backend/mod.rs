//! The proxy modes, one folder each.
//!
//! To add a mode, add a folder with the same files, a variant of [`Mode`] and its match
//! arms in this file.

use std::fmt;
use std::str::FromStr;

use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::{Family, ServicePort};

use crate::driver::Drive;
#[cfg(any(feature = "iptables", feature = "nftables"))]
use crate::driver::{Absent, driver};
use crate::watch::Watch;
use crate::{Config, Context, Error, PortObjects};

#[cfg(feature = "iptables")]
pub mod iptables;

#[cfg(feature = "ipvs")]
pub mod ipvs;

#[cfg(feature = "nftables")]
pub mod nftables;

#[cfg(any(feature = "iptables", feature = "nftables"))]
mod apply;

/// The planner of a mode: translates Services to objects of the kernel.
///
/// A planner has no state and cannot fail.
pub trait Planner {
    /// A kernel object that the mode programs.
    type Object: Keyed;

    /// Returns the objects that do not depend on Services.
    fn base(cx: &Context) -> Vec<Self::Object>;

    /// Returns whether a change of context changes the objects of service ports, so that
    /// all ports must be planned again.
    fn requires_replan(before: &Context, after: &Context) -> bool;

    /// Returns the objects of one service port.
    fn port(cx: &Context, port: &ServicePort) -> PortObjects<Self::Object>;

    /// Returns whether an object stays installed for 30 s after its last use. Default:
    /// `false`.
    ///
    /// Several service ports may use such an object. It has no effect while unused, and
    /// objects with equal keys are equal. At most 64 unused objects stay.
    fn is_removal_delayed(_object: &Self::Object) -> bool {
        false
    }

    /// Returns whether an unused object may stay installed without counting as a
    /// difference to the plan. Default: `false`.
    fn tolerates_unused(_object: &Self::Object) -> bool {
        false
    }

    /// Returns the table of an object and its number of rules, in modes with rules per
    /// Service. Default: `None`.
    fn rule_count(_object: &Self::Object) -> Option<(&'static str, usize)> {
        None
    }

    /// Returns an object as the mode's native tool names it.
    fn text(object: &Self::Object) -> String {
        format!("{:?}", object.key())
    }

    /// Returns edits in the format that the mode's native tool applies.
    ///
    /// The edits lead to the `desired` state. If the tool cannot apply the edits one by
    /// one, the script replaces the whole state.
    fn script<'a>(
        family: Family,
        edits: Vec<Edit<Self::Object>>,
        desired: impl Iterator<Item = &'a Self::Object>,
    ) -> String
    where
        Self::Object: 'a;

    /// Returns a whole state in the format that the mode's native tool loads.
    ///
    /// Equal states give equal text, regardless of the order of objects.
    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Self::Object>) -> String
    where
        Self::Object: 'a;
}

/// The drivers of all families, and the watch of the mode.
pub(crate) type Opened = (Vec<Box<dyn Drive>>, Box<dyn Watch>);

/// A proxy mode.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Mode {
    /// One nf_tables table per family with constant rules.
    #[default]
    Nftables,
    /// iptables chains per Service and endpoint, as upstream kube-proxy writes them.
    Iptables,
    /// IPVS virtual servers with ipset sets and iptables rules.
    Ipvs,
}

impl Mode {
    /// All modes that are built in.
    pub const BUILT_IN: &[Self] = &[
        #[cfg(feature = "nftables")]
        Self::Nftables,
        #[cfg(feature = "iptables")]
        Self::Iptables,
        #[cfg(feature = "ipvs")]
        Self::Ipvs,
    ];

    /// Returns the name of the mode, as in the flag `--proxy-mode`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
        }
    }

    /// Opens the kernel of each family. Returns the drivers and the watch.
    ///
    /// Clears settings in `config` that the kernel does not support.
    #[cfg_attr(
        not(feature = "iptables"),
        allow(
            unused_variables,
            clippy::needless_pass_by_ref_mut,
            reason = "not all modes are built in"
        )
    )]
    pub(crate) fn open(self, config: &mut Config) -> Result<Opened, Error> {
        match self {
            #[cfg(feature = "nftables")]
            Self::Nftables => {
                let mut watch = nftables::Watch::default();
                let drivers = config.families.iter().map(|&family| {
                    let kernel = watch.open(family)?;
                    Ok(driver::<nftables::Planner, _>(family, kernel))
                });
                let drivers = drivers.collect::<Result<_, Error>>()?;
                Ok((drivers, Box::new(watch)))
            }
            #[cfg(feature = "iptables")]
            Self::Iptables => {
                let mut watch = iptables::Watch::new(config.intervals.retry);
                let mut drivers = Vec::new();
                for &family in &config.families {
                    let kernel = watch.open(family)?;
                    let version = kernel.client().version();
                    config.iptables.random_fully &= version.has_random_fully();
                    drivers.push(driver::<iptables::Planner, _>(family, kernel));
                }
                config.iptables.nfacct &= iptables::make_counters();
                Ok((drivers, Box::new(watch)))
            }
            #[cfg(feature = "ipvs")]
            Self::Ipvs => {
                let mut watch = ipvs::Watch::new(config.intervals.retry)?;
                let mut drivers = Vec::new();
                for &family in &config.families {
                    let kernel = watch.open(family, &config.ipvs)?;
                    config.iptables.random_fully &= kernel.has_random_fully();
                    drivers.push(driver::<ipvs::Planner, _>(family, kernel));
                }
                watch.listen_to_links()?;
                Ok((drivers, Box::new(watch)))
            }
            #[allow(unreachable_patterns, reason = "a mode may not be built in")]
            _ => Err(Error::NoSuchMode(self.name().into())),
        }
    }

    /// Creates the driver of a family without a kernel.
    #[cfg_attr(
        not(any(feature = "iptables", feature = "nftables")),
        allow(unused_variables, reason = "no mode is built in")
    )]
    pub(crate) fn plan_only(self, family: Family) -> Result<Box<dyn Drive>, Error> {
        match self {
            #[cfg(feature = "nftables")]
            Self::Nftables => Ok(driver::<nftables::Planner, _>(family, Absent::default())),
            #[cfg(feature = "iptables")]
            Self::Iptables => Ok(driver::<iptables::Planner, _>(family, Absent::default())),
            #[cfg(feature = "ipvs")]
            Self::Ipvs => Ok(driver::<ipvs::Planner, _>(family, Absent::default())),
            #[allow(unreachable_patterns, reason = "a mode may not be built in")]
            _ => Err(Error::NoSuchMode(self.name().into())),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    /// Parses the name of a mode.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchMode`] if the mode does not exist or is not built in.
    fn from_str(name: &str) -> Result<Self, Error> {
        let mut modes = Self::BUILT_IN.iter().copied();
        modes
            .find(|mode| mode.name() == name)
            .ok_or_else(|| Error::NoSuchMode(name.into()))
    }
}

#[cfg(all(test, feature = "ipvs", feature = "nftables"))]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_found_by_the_name_it_displays_as() {
        for &mode in Mode::BUILT_IN {
            assert_eq!(mode.to_string().parse::<Mode>().unwrap(), mode);
        }
        assert_eq!(
            "userspace".parse::<Mode>().unwrap_err().to_string(),
            r#"no proxy mode "userspace"; built in: nftables, iptables, ipvs"#
        );
    }
}
