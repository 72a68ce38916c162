//! Which modules the guest has, and which of them it loads before the tests.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

/// Folders of modules, and modules, that the guest has with those they need.
///
/// The kernel loads what a test asks for by doing, such as a match of iptables.
const THERE: [&str; 7] = [
    "kernel/arch/x86/crypto/",
    "kernel/crypto/",
    "kernel/drivers/net/dummy",
    "kernel/drivers/net/veth",
    "kernel/lib/ts_bm",
    "kernel/lib/ts_kmp",
    "kernel/net/",
];

/// Folders of modules, and modules, that the guest loads: a kernel without one
/// of them is not what the tests are for.
const LOADED: [&str; 4] = [
    "kernel/drivers/net/dummy",
    "kernel/drivers/net/veth",
    "kernel/net/netfilter/ipvs/",
    "kernel/net/sctp/sctp",
];

/// The modules of a kernel, as `depmod` lists them.
pub(super) struct Modules<'a> {
    /// The files that each file needs.
    needs: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Modules<'a> {
    /// Reads `FILE: FILE …` of each line of `modules.dep`.
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

    /// Returns the files of all modules that the guest has.
    pub(super) fn there(&self) -> Result<BTreeSet<&'a str>> {
        let files = self.wanted(&THERE)?;
        // What depmod lists are all files that are needed, not the nearest.
        let needed = files.iter().flat_map(|file| self.needs[file].clone());
        Ok(needed.chain(files.iter().copied()).collect())
    }

    /// Returns the names of all modules that the guest loads.
    pub(super) fn loaded(&self) -> Result<Vec<&'a str>> {
        let name = |file: &'a str| {
            let name = file.rsplit('/').next()?;
            name.strip_suffix(".ko")
        };
        Ok(self.wanted(&LOADED)?.into_iter().filter_map(name).collect())
    }

    fn wanted(&self, places: &[&str]) -> Result<Vec<&'a str>> {
        let mut files = Vec::new();
        for place in places {
            let before = files.len();
            files.extend(self.needs.keys().filter(|file| match place.ends_with('/') {
                true => file.starts_with(place),
                false => file.strip_suffix(".ko") == Some(place),
            }));
            ensure!(files.len() > before, "there is no module {place}");
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
    fn the_guest_has_what_is_wanted_and_what_that_needs() {
        let text = format!("{DEPENDENCIES}{SCTP}");
        let modules = Modules::parse(&text).unwrap();
        let there = modules.there().unwrap();
        assert!(there.contains("kernel/lib/libcrc32c.ko"));
        assert!(!there.contains("kernel/lib/other.ko"));
        assert!(!there.contains("kernel/drivers/net/vethereal.ko"));
        assert_eq!(there.len(), 10);
        let loaded = ["dummy", "veth", "ip_vs", "ip_vs_rr", "sctp"];
        assert_eq!(modules.loaded().unwrap(), loaded);
    }

    #[test]
    fn a_kernel_that_lacks_a_module_is_an_error() {
        let modules = Modules::parse(DEPENDENCIES).unwrap();
        let error = modules.loaded().unwrap_err().to_string();
        assert_eq!(error, "there is no module kernel/net/sctp/sctp");
        assert!(Modules::parse("no colon").is_err());
    }
}
