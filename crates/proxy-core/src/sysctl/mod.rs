//! Sysctls that modes require.

/// A sysctl and the value that a mode requires.
///
/// The engine neither reads nor writes sysctls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Sysctl {
    /// Path below `/proc/sys`, such as `net/ipv4/ip_forward`.
    pub name: &'static str,
    /// Required value.
    pub value: &'static str,
    /// Reason of the requirement, to follow "must be 1,": such as "as required by mode
    /// ipvs".
    pub reason: &'static str,
    /// Flag of kube-proxy that removes the requirement, if there is one.
    pub disable_flag: Option<&'static str>,
}

#[cfg_attr(
    not(feature = "iptables"),
    allow(dead_code, reason = "mode nftables requires no sysctls")
)]
impl Sysctl {
    /// Creates a requirement that no flag removes.
    pub(crate) const fn new(name: &'static str, value: &'static str, reason: &'static str) -> Self {
        Self {
            name,
            value,
            reason,
            disable_flag: None,
        }
    }

    /// Sets the flag that removes the requirement.
    pub(crate) const fn unless(mut self, disable_flag: &'static str) -> Self {
        self.disable_flag = Some(disable_flag);
        self
    }
}
