//! The operations of a mode besides planning.

#[cfg(any(feature = "iptables", feature = "nftables"))]
use vipline_service_model::Family;

#[cfg(any(feature = "iptables", feature = "nftables"))]
use crate::MissingExtension;
#[cfg(any(feature = "iptables", feature = "nftables"))]
use crate::cleanup::Leftovers;
#[cfg(any(feature = "iptables", feature = "nftables"))]
use crate::evaluate::{KernelState, Rules};
use crate::{Config, Context, Engine, Error, IptablesChoice, Sysctl};

/// Everything that differs between modes, except for the plan.
///
/// Each mode implements this trait in its `mod.rs`. [`Planner`](super::Planner) is the
/// pure part.
pub(crate) trait Backend {
    /// Checks whether the kernel has the features that the mode requires. Default: it
    /// has.
    ///
    /// See [`Mode::check_kernel`](crate::Mode::check_kernel).
    fn check_kernel(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Checks whether the mode can program a family. Returns what it cannot use. Default: it
    /// can, and uses everything.
    ///
    /// See [`Mode::check_family`](crate::Mode::check_family).
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    fn check_family(
        &self,
        _config: &Config,
        _family: Family,
    ) -> Result<Vec<MissingExtension>, Error> {
        Ok(Vec::new())
    }

    /// Returns the backend of iptables, if the mode writes rules of iptables. Default: it
    /// does not.
    ///
    /// See [`Mode::choose_iptables_backend`](crate::Mode::choose_iptables_backend).
    fn choose_iptables_backend(&self, _config: &Config) -> Option<IptablesChoice> {
        None
    }

    /// Checks whether the kernel accepts the objects that do not depend on Services.
    /// Returns whether the mode has such a check. Default: `false`.
    ///
    /// See [`Mode::probe`](crate::Mode::probe).
    fn probe(&self, _cx: &Context) -> Result<bool, Error> {
        Ok(false)
    }

    /// Returns the sysctls that the mode requires. Default: none.
    ///
    /// See [`Mode::sysctls`](crate::Mode::sysctls).
    fn sysctls(&self, _config: &Config, _release: &str) -> Vec<Sysctl> {
        Vec::new()
    }

    /// Applies settings of the node that are no sysctls. Default: there are none.
    ///
    /// See [`Mode::prepare`](crate::Mode::prepare).
    fn prepare(&self, _config: &Config) -> Result<(), Error> {
        Ok(())
    }

    /// Opens the kernel of each family. Returns an engine with its watch.
    ///
    /// Leaves out what the settings ask for and the kernel does not support.
    fn open(&self, config: &Config) -> Result<Engine, Error>;

    /// Creates an engine that only plans.
    fn plan_only(&self, config: &Config) -> Engine;

    /// Reads the rules of a family that packets pass in the kernel, also those of other
    /// programs. Default: `None`, because the rules cannot be evaluated.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    fn installed_rules(&self, _config: &Config, _family: Family) -> Result<Option<Rules>, Error> {
        Ok(None)
    }

    /// Adds the state that the mode needs besides tables of nf_tables to a saved kernel.
    /// Default: none.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    fn save(&self, _state: &mut KernelState) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the rules of a saved kernel, also those of other programs. Default: `None`,
    /// because the rules cannot be evaluated.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    fn saved_rules(&self, _state: &KernelState) -> Result<Option<Rules>, Error> {
        Ok(None)
    }

    /// Returns the names of the mode's objects in iptables, and the search for all other
    /// objects that a kube-proxy in this mode programmed.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    fn leftovers(&self) -> Leftovers;
}
