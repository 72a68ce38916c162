//! All fuzz targets in one program. `FUZZ_TARGET` names the target to run.

use std::str;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

mod configuration;

mod conntrack;

mod dns_question;

mod dns_upstream;

mod envelope;

mod evaluate;

mod hcn;

mod ipset;

mod iptables;

mod ipvs;

mod manifests;

mod netlink;

mod nftables;

mod rtnl;

mod service_ip;

mod store;

/// A function that checks one input.
type Run = fn(&[u8]);

/// The targets by name.
const TARGETS: &[(&str, Run)] = &[
    ("configuration", |input| configuration::run(text(input))),
    ("conntrack", conntrack::run),
    ("dns_question", dns_question::run),
    ("dns_upstream", dns_upstream::run),
    ("envelope", envelope::run),
    ("evaluate", evaluate::run),
    ("hcn", hcn::run),
    ("ipset", ipset::run),
    ("iptables", |input| iptables::run(text(input))),
    ("ipvs", ipvs::run),
    ("manifests", |input| manifests::run(text(input))),
    ("netlink", netlink::run),
    ("nftables", nftables::run),
    ("rtnl", rtnl::run),
    ("service_ip", service_ip::run),
    ("store", store::run),
];

static TARGET: OnceLock<Run> = OnceLock::new();

fuzz_target!(init: choose(), |input: &[u8]| {
    if let Some(run) = TARGET.get() {
        run(input);
    }
});

/// Reads the name of the target from the environment.
fn choose() {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    let Some((_, run)) = target else {
        panic!("FUZZ_TARGET={name} names no fuzz target");
    };
    let _ = TARGET.set(*run);
}

/// Returns the longest prefix of an input that is UTF-8.
fn text(input: &[u8]) -> &str {
    let length = str::from_utf8(input).map_or_else(|error| error.valid_up_to(), str::len);
    str::from_utf8(&input[..length]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_target_has_seeds_and_accepts_its_seeds() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for (target, run) in TARGETS {
            let seeds: Vec<_> = fs::read_dir(corpus.join(target)).unwrap().collect();
            assert!(!seeds.is_empty(), "{target}");
            for seed in seeds {
                run(&fs::read(seed.unwrap().path()).unwrap());
            }
        }
        assert_eq!(fs::read_dir(corpus).unwrap().count(), TARGETS.len());
    }
}
