//! The sets of mode ipvs, by the program `ipset`.

use std::fmt;

use anyhow::{Context, Result};

use super::{names, tool};

/// A set that is to be removed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Set(String);

/// Displays as a shell command.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ipset destroy {}", self.0)
    }
}

impl Set {
    /// Removes it.
    ///
    /// # Errors
    ///
    /// What the program says: somebody else's rule may use it.
    pub fn apply(&self) -> Result<()> {
        let program = tool::find("ipset").context("ipset")?;
        tool::run(&program, &["destroy", &self.0], "").map(drop)
    }
}

/// Returns the sets that are to be removed, of what `ipset save` says.
pub fn plan(saved: &str) -> Vec<Set> {
    let names = saved
        .lines()
        .filter_map(|line| line.strip_prefix("create ")?.split(' ').next());
    names
        .filter(|name| names::is_set(name))
        .map(|name| Set(name.to_owned()))
        .collect()
}

/// Returns the members of upstream's sets of what `ipset save` says, each with
/// the name of its set.
pub fn members(saved: &str) -> impl Iterator<Item = (&str, &str)> {
    saved
        .lines()
        .filter_map(|line| line.strip_prefix("add ")?.split_once(' '))
        .filter(|(name, _)| names::is_set(name))
}

/// Returns what `ipset save` says; nothing if it is not installed.
///
/// # Errors
///
/// What the program says.
pub fn look() -> Result<String> {
    match tool::find("ipset") {
        Some(program) => tool::run(&program, &["save"], ""),
        None => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ipset 7.17 saves it.
    const SAVED: &str = include_str!("captures/ipset.txt");

    #[test]
    fn upstreams_sets_of_both_families_go() {
        let shown: Vec<_> = plan(SAVED).iter().map(ToString::to_string).collect();
        let expected = [
            "ipset destroy KUBE-CLUSTER-IP",
            "ipset destroy KUBE-NODE-PORT-TCP",
            "ipset destroy KUBE-6-LOAD-BALANCER-SOURCE-CID",
        ];
        assert_eq!(shown, expected);
        let members: Vec<_> = members(SAVED).collect();
        let expected = [
            ("KUBE-CLUSTER-IP", "10.96.0.20,tcp:80"),
            ("KUBE-NODE-PORT-TCP", "30080"),
        ];
        assert_eq!(members, expected);
    }
}
