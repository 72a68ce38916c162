//! The proxy modes, one folder each.
//!
//! Each folder contains a unit struct that implements `Backend` (`mod.rs`), planning
//! without IO (`plan/`) and IO (`apply/`). To add a mode, add a folder, a feature of its
//! name, the folder's `mod` line in this file and a line in the list of `mode.rs`.

use vipline_service_model::{Family, NodeView};

pub(crate) use self::operations::Backend;
#[cfg(any(feature = "iptables", feature = "nftables"))]
use crate::MissingExtension;
#[cfg(any(feature = "iptables", feature = "nftables"))]
use crate::evaluate::{KernelState, Rules};
use crate::mode::{modes, no_such_mode};
use crate::{Config, Context, Engine, Error, IptablesChoice, Mode, Sysctl};
pub use proxy_engine::Planner;

mod operations;

#[cfg(feature = "iptables")]
pub mod iptables;

#[cfg(feature = "ipvs")]
pub mod ipvs;

#[cfg(feature = "nftables")]
pub mod nftables;

#[cfg(any(feature = "iptables", feature = "nftables"))]
mod apply;

#[cfg(any(feature = "iptables", feature = "nftables"))]
mod evaluate;

#[cfg(any(feature = "iptables", feature = "nftables"))]
mod saved;

#[cfg(feature = "iptables")]
mod saved_iptables;

/// Defines [`Mode::backend`].
macro_rules! implementations {
    ($($(#[$attribute:meta])* $mode:ident: $name:literal = $module:ident,)+) => {
        impl Mode {
            /// Returns the implementation of the mode.
            pub(crate) fn backend(self) -> Result<&'static dyn Backend, Error> {
                match self {
                    $(#[cfg(feature = $name)] Self::$mode => Ok(&$module::$mode),)+
                    #[allow(unreachable_patterns, reason = "a mode may not be built in")]
                    _ => Err(no_such_mode(self.name())),
                }
            }
        }
    };
}

modes!(implementations);

impl Config {
    /// Opens the kernel of the mode for each family.
    ///
    /// Opening writes nothing, with two exceptions. Mode iptables creates the nfacct
    /// counters that rules use. Mode ipvs creates a virtual server at a documentation
    /// address to probe the scheduler, and removes it at once.
    ///
    /// # Errors
    ///
    /// - [`Error::Permanent`] if the kernel lacks nfnetlink, IPVS, the default scheduler or
    ///   ip_set or denies access, or if a program of iptables is missing or too old.
    /// - [`Error::Temporary`] for other errors of the clients of the kernel and of programs.
    /// - [`Error::NoSuchMode`] if the mode is not built in.
    ///
    /// In modes nftables and iptables, the first sync reports a kernel without support
    /// for the mode and a missing CAP_NET_ADMIN.
    #[cfg(target_os = "linux")]
    pub fn open(&self) -> Result<Engine, Error> {
        let mut engine = self.mode.backend()?.open(self)?;
        engine.enable_flow_cleanup()?;
        Ok(engine)
    }

    /// Creates an engine that only plans. Requires no privileges.
    ///
    /// Its syncs and differences fail with [`Error::NoKernel`].
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchMode`] if the mode is not built in.
    pub fn plan_only(&self) -> Result<Engine, Error> {
        Ok(self.mode.backend()?.plan_only(self))
    }
}

impl Mode {
    /// Reads all rules that packets of a family pass in the kernel, also those of other
    /// programs. Changes nothing.
    ///
    /// Reads the network namespace of the calling thread. Returns `None` if the rules of
    /// the mode cannot be evaluated.
    ///
    /// # Errors
    ///
    /// The error of the mode if the rules cannot be read, and [`Error::NoSuchMode`] if the
    /// mode is not built in.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    pub fn installed_rules(self, config: &Config, family: Family) -> Result<Option<Rules>, Error> {
        self.backend()?.installed_rules(config, family)
    }

    /// Returns the rules of a saved kernel, also those of other programs.
    ///
    /// Returns `None` if the rules of the mode cannot be evaluated.
    ///
    /// # Errors
    ///
    /// Saved state is malformed, and [`Error::NoSuchMode`] if the mode is not built in.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    pub fn saved_rules(self, state: &KernelState) -> Result<Option<Rules>, Error> {
        self.backend()?.saved_rules(state)
    }

    /// Checks whether the kernel has the features that the mode requires, and makes the
    /// kernel load their modules.
    ///
    /// Only mode ipvs has such a check. The caller may use another mode after an error.
    ///
    /// # Errors
    ///
    /// - [`Error::Permanent`] if the kernel lacks IPVS or ip_set. Other failures are reported
    ///   when the engine opens.
    /// - [`Error::NoSuchMode`] if the mode is not built in.
    pub fn check_kernel(self) -> Result<(), Error> {
        self.backend()?.check_kernel()
    }

    /// Checks whether the mode can program a family, which the kernel supports.
    ///
    /// Mode nftables can; only session affinity needs an expression that a kernel may lack
    /// although it has all others. [`probe`](Self::probe) asks for those that all Services need.
    /// Modes iptables and ipvs require table `nat` of iptables, the programs or a kernel with
    /// `CONFIG_NFT_COMPAT`, depending on the backend, and the matches and targets that rules of
    /// nearly all Services use. Returns those that only some Services need: they are not
    /// served, all others are. The kernel loads missing modules.
    ///
    /// # Errors
    ///
    /// - [`Error::Permanent`] or [`Error::Unsupported`] if a retry cannot succeed;
    ///   `Unsupported` names the option of the kernel. Other failures are reported when the
    ///   engine syncs.
    /// - [`Error::NoSuchMode`] if the mode is not built in.
    #[cfg(any(feature = "iptables", feature = "nftables"))]
    pub fn check_family(
        self,
        config: &Config,
        family: Family,
    ) -> Result<Vec<MissingExtension>, Error> {
        self.backend()?.check_family(config, family)
    }

    /// Chooses how the mode reads and writes the tables of iptables on this node.
    ///
    /// [`IptablesBackend::Auto`](crate::IptablesBackend::Auto) in `config` becomes
    /// `Netlink` if the nft variant of iptables is in use and the kernel supports its
    /// rules, otherwise `Programs`. As in the detection of upstream, the nft variant is in
    /// use if nf_tables has a chain of the kubelet, otherwise if it is the variant of the
    /// installed programs. May run `iptables-restore --version`.
    ///
    /// Returns `None` if the mode writes no rules of iptables.
    pub fn choose_iptables_backend(self, config: &Config) -> Option<IptablesChoice> {
        self.backend().ok()?.choose_iptables_backend(config)
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
    /// - The error of the client if a request fails.
    /// - [`Error::NoSuchMode`] if the mode is not built in.
    pub fn probe(self, config: &Config, family: Family) -> Result<bool, Error> {
        let cx = Context::new(&config.engine, &NodeView::default(), [], family);
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
    /// - [`Error::Operation`] if the timeouts cannot be set.
    /// - [`Error::NoSuchMode`] if the mode is not built in.
    pub fn prepare(self, config: &Config) -> Result<(), Error> {
        self.backend()?.prepare(config)
    }
}
