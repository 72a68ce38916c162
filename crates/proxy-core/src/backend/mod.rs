//! The proxy modes, one folder each.
//!
//! Each folder contains a unit struct that implements `Backend` (`mod.rs`), planning
//! without IO (`plan/`) and IO (`apply/`). To add a mode, add a folder, a feature of its
//! name, the folder's `mod` line and a line in the list of modes in this file.

use std::fmt;
use std::str::FromStr;

use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::{Family, NodeView, ServicePort};

#[cfg(any(feature = "iptables", feature = "nftables"))]
use crate::cleanup::Leftovers;
use crate::driver::Drive;
use crate::watch::Watch;
use crate::{Config, Context, Error, PortObjects, Sysctl};

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

/// Everything that differs between modes, except for the plan.
///
/// Each mode implements this trait in its `mod.rs`. [`Planner`] is the pure part.
pub(crate) trait Backend {
    /// Checks whether the kernel has the features that the mode requires. Default: it
    /// has.
    ///
    /// See [`Mode::check_kernel`].
    fn check_kernel(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Checks whether the mode can program a family. Default: it can.
    ///
    /// See [`Mode::check_family`].
    fn check_family(&self, _family: Family) -> Result<(), Error> {
        Ok(())
    }

    /// Checks whether the kernel accepts the objects that do not depend on Services.
    /// Returns whether the mode has such a check. Default: `false`.
    ///
    /// See [`Mode::probe`].
    fn probe(&self, _cx: &Context) -> Result<bool, Error> {
        Ok(false)
    }

    /// Returns the sysctls that the mode requires. Default: none.
    ///
    /// See [`Mode::sysctls`].
    fn sysctls(&self, _config: &Config, _release: &str) -> Vec<Sysctl> {
        Vec::new()
    }

    /// Applies settings of the node that are no sysctls. Default: there are none.
    ///
    /// See [`Mode::prepare`].
    fn prepare(&self, _config: &Config) -> Result<(), Error> {
        Ok(())
    }

    /// Opens the kernel of each family. Returns the drivers and the watch.
    ///
    /// Clears settings in `config` that the kernel does not support.
    fn open(&self, config: &mut Config) -> Result<Opened, Error>;

    /// Creates the driver of a family without a kernel.
    fn plan_only(&self, family: Family) -> Box<dyn Drive>;

    /// Returns the names of the mode's objects in iptables, and the search for all other
    /// objects that a kube-proxy in this mode programmed.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    fn leftovers(&self) -> Leftovers;
}

/// Defines [`Mode`]. The name of a mode is also the name of its feature.
macro_rules! modes {
    ($($(#[$attribute:meta])* $mode:ident: $name:literal = $module:ident,)+) => {
        /// A proxy mode.
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Mode {
            $($(#[$attribute])* $mode,)+
        }

        impl Mode {
            /// All modes that are built in.
            pub const BUILT_IN: &[Self] = &[$(#[cfg(feature = $name)] Self::$mode,)+];

            /// Returns the name of the mode, as in the flag `--proxy-mode`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$mode => $name,)+
                }
            }

            /// Returns the implementation of the mode.
            pub(crate) fn backend(self) -> Result<&'static dyn Backend, Error> {
                match self {
                    $(#[cfg(feature = $name)] Self::$mode => Ok(&$module::$mode),)+
                    #[allow(unreachable_patterns, reason = "a mode may not be built in")]
                    _ => Err(Error::NoSuchMode(self.name().into())),
                }
            }
        }
    };
}

modes! {
    /// One nf_tables table per family with constant rules.
    #[default]
    Nftables: "nftables" = nftables,
    /// iptables chains per Service and endpoint, as upstream kube-proxy writes them.
    Iptables: "iptables" = iptables,
    /// IPVS virtual servers with ipset sets and iptables rules.
    Ipvs: "ipvs" = ipvs,
}

impl Mode {
    /// Checks whether the kernel has the features that the mode requires, and makes the
    /// kernel load their modules.
    ///
    /// Only mode ipvs has such a check. The caller may use another mode after an error.
    ///
    /// # Errors
    ///
    /// - [`Error::Ipvs`] or [`Error::Ipset`] if the kernel lacks IPVS or ip_set. Other
    ///   failures are reported when the engine opens.
    /// - [`Error::NoSuchMode`] if the mode is not built in.
    pub fn check_kernel(self) -> Result<(), Error> {
        self.backend()?.check_kernel()
    }

    /// Checks whether the mode can program a family, which the kernel supports.
    ///
    /// Modes iptables and ipvs require the iptables programs and the table `nat`.
    ///
    /// # Errors
    ///
    /// - [`Error::Iptables`] if a retry cannot succeed. Other failures are reported when
    ///   the engine syncs.
    /// - [`Error::NoSuchMode`] if the mode is not built in.
    pub fn check_family(self, family: Family) -> Result<(), Error> {
        self.backend()?.check_family(family)
    }

    /// Checks whether the kernel accepts all objects that do not depend on Services, and
    /// makes the kernel load the modules that the objects require. Changes nothing.
    ///
    /// Returns whether the mode has such a check: only mode nftables has one.
    ///
    /// # Errors
    ///
    /// - [`Error::Unsupported`] if the kernel rejects an object.
    /// - [`Error::ProbeAccepted`] if the kernel cannot be checked.
    /// - [`Error::Nftables`] if a request fails.
    /// - [`Error::NoSuchMode`] if the mode is not built in.
    pub fn probe(self, config: &Config, family: Family) -> Result<bool, Error> {
        let cx = Context::new(config, &NodeView::default(), [], family);
        self.backend()?.probe(&cx)
    }

    /// Returns the sysctls that the mode requires, in the order in which to set them.
    ///
    /// `release` is the release of the kernel as in uname(2), such as `6.1.0-13-amd64`.
    /// The result is empty if the mode is not built in.
    pub fn sysctls(self, config: &Config, release: &str) -> Vec<Sysctl> {
        let backend = self.backend();
        backend.map_or_else(|_| Vec::new(), |it| it.sysctls(config, release))
    }

    /// Applies settings of the node that are no sysctls: in mode ipvs the timeouts of
    /// IPVS. The rules work without these settings.
    ///
    /// # Errors
    ///
    /// - [`Error::IpvsTimeouts`] if the timeouts cannot be set.
    /// - [`Error::NoSuchMode`] if the mode is not built in.
    pub fn prepare(self, config: &Config) -> Result<(), Error> {
        self.backend()?.prepare(config)
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
