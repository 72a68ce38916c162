//! Selects the kernel modules of the guest.
//!
//! A guest has half of 1 GiB for files, so it gets the modules of networking and what they depend
//! on. `modules.dep` of `depmod` says what that is:
//!
//! ```text
//! kernel/net/netfilter/ipvs/ip_vs_rr.ko: kernel/net/netfilter/ipvs/ip_vs.ko kernel/lib/libcrc32c.ko
//! ```
//!
//! There are two lists, because being there and being loaded are different things. The kernel
//! loads most modules when a program first asks for them, and tests should see that it does.
//! A few are loaded before, so that a kernel without them is an error and not a skipped test.
//!
//! What must stay true: an entry that matches no module is an error. A module that moved to
//! another folder in a later kernel would otherwise be missing without a word.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

/// Folders of modules, and modules, that the archive includes with their dependencies.
///
/// The kernel loads most modules on demand, such as those of iptables matches. Algorithms of
/// cryptography and of text search are asked for by name at run time, such as `ts_kmp` by `-m
/// string`, so `modules.dep` does not list them as dependencies.
const INCLUDED: [&str; 7] = [
    "kernel/arch/x86/crypto/",
    "kernel/crypto/",
    "kernel/drivers/net/dummy",
    "kernel/drivers/net/veth",
    "kernel/lib/ts_bm",
    "kernel/lib/ts_kmp",
    "kernel/net/",
];

/// Folders of modules, and modules, that the guest loads before the tests: subjects of tests, and
/// links that tests create.
/// A kernel that lacks any is an error.
const LOADED: [&str; 4] = [
    "kernel/drivers/net/dummy",
    "kernel/drivers/net/veth",
    "kernel/net/netfilter/ipvs/",
    "kernel/net/sctp/sctp",
];

/// Modules of a kernel, as listed by `depmod`.
pub(super) struct Modules<'a> {
    /// Direct and indirect dependencies of each module file.
    needs: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Modules<'a> {
    /// Parses `modules.dep`, which has lines `FILE: DEPENDENCY …`.
    pub(super) fn parse(dependencies: &'a str) -> Result<Self> {
        let needs = dependencies.lines().map(|line| {
            let (file, needs) = line
                .split_once(':')
                .with_context(|| format!("{line:?} in modules.dep"))?;
            Ok((file, needs.split_whitespace().collect()))
        });
        Ok(Self {
            needs: needs.collect::<Result<_>>()?,
        })
    }

    /// Returns the files of all modules to include.
    pub(super) fn included(&self) -> Result<BTreeSet<&'a str>> {
        let files = self.matching(&INCLUDED)?;
        // depmod lists indirect dependencies as well, so one step finds all.
        let needed = files.iter().flat_map(|file| self.needs[file].clone());
        Ok(needed.chain(files.iter().copied()).collect())
    }

    /// Returns the names of all modules to load before the tests.
    pub(super) fn loaded(&self) -> Result<Vec<&'a str>> {
        let name = |file: &'a str| {
            // `modprobe` takes names. A file that is compressed has another suffix, but
            // `kernels.rs` decompresses all.
            let name = file.rsplit('/').next()?;
            name.strip_suffix(".ko")
        };
        Ok(self
            .matching(&LOADED)?
            .into_iter()
            .filter_map(name)
            .collect())
    }

    fn matching(&self, places: &[&str]) -> Result<Vec<&'a str>> {
        let mut files = Vec::new();
        for place in places {
            let before = files.len();
            files.extend(self.needs.keys().filter(|file| {
                if place.ends_with('/') {
                    file.starts_with(place)
                } else {
                    // The whole name: `veth` is not `vethereal`.
                    file.strip_suffix(".ko") == Some(place)
                }
            }));
            ensure!(files.len() > before, "the kernel has no module {place}");
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "\
        kernel/arch/x86/crypto/sha1-ssse3.ko:\n\
        kernel/crypto/sha512_generic.ko:\n\
        kernel/drivers/net/dummy.ko:\n\
        kernel/drivers/net/veth.ko:\n\
        kernel/drivers/net/vethereal.ko:\n\
        kernel/lib/libcrc32c.ko:\n\
        kernel/lib/other.ko:\n\
        kernel/lib/ts_bm.ko:\n\
        kernel/lib/ts_kmp.ko:\n\
        kernel/net/netfilter/ipvs/ip_vs.ko: kernel/lib/libcrc32c.ko\n\
        kernel/net/netfilter/ipvs/ip_vs_rr.ko: kernel/net/netfilter/ipvs/ip_vs.ko kernel/lib/libcrc32c.ko\n";

    const SCTP: &str = "kernel/net/sctp/sctp.ko: kernel/lib/libcrc32c.ko\n";

    #[test]
    fn modules_are_included_with_their_dependencies() {
        let text = format!("{DEPENDENCIES}{SCTP}");
        let modules = Modules::parse(&text).unwrap();
        let included = modules.included().unwrap();
        assert!(included.contains("kernel/lib/libcrc32c.ko"));
        assert!(!included.contains("kernel/lib/other.ko"));
        assert!(!included.contains("kernel/drivers/net/vethereal.ko"));
        assert_eq!(included.len(), 10);
        let loaded = ["dummy", "veth", "ip_vs", "ip_vs_rr", "sctp"];
        assert_eq!(modules.loaded().unwrap(), loaded);
    }

    #[test]
    fn a_kernel_that_lacks_a_module_is_an_error() {
        let modules = Modules::parse(DEPENDENCIES).unwrap();
        let error = modules.loaded().unwrap_err().to_string();
        assert_eq!(error, "the kernel has no module kernel/net/sctp/sctp");
        assert!(Modules::parse("no colon").is_err());
    }
}
