//! The compared rulesets.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use proxy_core::backend::nftables::{Kernel as Nftables, Planner};
use proxy_core::ipnet::IpNet;
use proxy_core::service_model::DetectLocal;
use proxy_core::{Config, Engine, Event, Family, Intervals};
use testkit::netns::Netns;
use testkit::nft;

use super::path::POD_NETWORK;
use super::services::{NODE_NAME, Services};
use super::upstream;

/// Errors of a ruleset that cannot be loaded.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Base chains of type nat without rules. The expression `ct` enables conntrack.
const HOOKS: &str = "table ip hooks {
 chain prerouting { type nat hook prerouting priority -100 ; }
 chain output { type nat hook output priority -100 ; }
 chain postrouting { type nat hook postrouting priority 100 ; }
 chain unused { ct state new accept ; }
}
";

/// A ruleset of the router.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ruleset {
    /// No rules, no conntrack.
    Plain,
    /// Conntrack and base chains of type nat, without rules.
    Hooks,
    /// Upstream kube-proxy in mode nftables.
    Upstream,
    /// This kube-proxy in mode nftables.
    Ours,
}

impl Ruleset {
    /// Loads the ruleset into a namespace.
    ///
    /// # Errors
    ///
    /// If the kernel rejects the ruleset.
    pub fn load(self, netns: &Netns, services: &Services) -> Outcome<()> {
        match self {
            Self::Plain => Ok(()),
            Self::Hooks => load_text(netns, HOOKS),
            Self::Upstream => {
                let documents = upstream::ruleset(services)?;
                documents.iter().try_for_each(|text| load_text(netns, text))
            }
            Self::Ours => netns.run(|| load_ours(services)),
        }
    }

    /// Returns whether the ruleset translates addresses of Services.
    pub fn serves(self) -> bool {
        matches!(self, Self::Upstream | Self::Ours)
    }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain forwarding",
            Self::Hooks => "empty nat hooks",
            Self::Upstream => "upstream",
            Self::Ours => "ours",
        })
    }
}

fn load_text(netns: &Netns, text: &str) -> Outcome<()> {
    let output = netns.run(|| nft::run(&["-f", "-"], text));
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// Programs the Services as kube-proxy does, without its binary.
fn load_ours(services: &Services) -> Outcome<()> {
    let kernel = Nftables::open(Family::V4)?;
    let mut kernel = Some(kernel);
    let mut engine = Engine::with_kernels::<Planner, _>(config(), |_| {
        kernel.take().expect("the configuration has one family")
    });
    for event in services.events() {
        engine.apply(event);
    }
    engine.apply(Event::Synced);
    let report = engine.poll(Duration::ZERO).ok_or("a first sync is due")?;
    match report.is_success() {
        true => Ok(()),
        false => Err(report.to_string().into()),
    }
}

/// Returns the configuration that equals the ruleset of upstream.
fn config() -> Config {
    let intervals = Intervals {
        max: Duration::MAX,
        ..Intervals::default()
    };
    Config::new(NODE_NAME)
        .with_families([Family::V4])
        .with_detect_local(DetectLocal::ClusterCidr(vec![IpNet::V4(POD_NETWORK)]))
        .with_intervals(intervals)
}
