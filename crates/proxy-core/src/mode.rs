//! The list of proxy modes.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Calls a macro with the list of modes: the variant of [`Mode`], the name, and the
/// module in `backend`. The name of a mode is also the name of its feature.
macro_rules! modes {
    ($call:ident) => {
        $call! {
            /// One nf_tables table per family with constant rules.
            #[default]
            Nftables: "nftables" = nftables,
            /// iptables chains per Service and endpoint, as upstream kube-proxy writes
            /// them.
            Iptables: "iptables" = iptables,
            /// IPVS virtual servers with ipset sets and iptables rules.
            Ipvs: "ipvs" = ipvs,
        }
    };
}

pub(crate) use modes;

/// Defines [`Mode`].
macro_rules! define {
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
        }
    };
}

modes!(define);

/// Returns the error for a mode that does not exist or is not built in.
pub(crate) fn no_such_mode(name: &str) -> Error {
    let built_in: Vec<_> = Mode::BUILT_IN.iter().map(|mode| mode.name()).collect();
    Error::NoSuchMode {
        name: name.into(),
        built_in: built_in.join(", ").into(),
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
            .ok_or_else(|| no_such_mode(name))
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
