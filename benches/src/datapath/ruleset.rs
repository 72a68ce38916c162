//! The compared rulesets.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::process::{Command, Output};
use std::time::Duration;

use proxy_core::backend::nftables::{Kernel as Nftables, Planner};
use proxy_core::ipnet::IpNet;
use proxy_core::service_model::{DetectLocal, NodePortAddresses};
use proxy_core::{Config, Engine, Event, Family, Intervals};
use testkit::iptables::Programs;
use testkit::netns::Netns;
use testkit::nft;
use vipline_iptables::Variant;

use super::path::POD_NETWORK;
use super::services::{NODE_NAME, Services};
use super::{upstream, upstream_iptables};

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

/// Mode of both proxies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Mode nftables.
    Nftables,
    /// Mode iptables with a variant of the programs.
    Iptables(Variant),
}

/// Formats as `nftables`, `iptables-nft` or `iptables-legacy`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nftables => f.write_str("nftables"),
            Self::Iptables(variant) => write!(f, "iptables-{variant}"),
        }
    }
}

/// A ruleset of the router.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ruleset {
    /// No rules, no conntrack.
    Plain,
    /// Conntrack and base chains of type nat, without rules.
    Hooks,
    /// Upstream kube-proxy.
    Upstream(Mode),
    /// This kube-proxy.
    Ours(Mode),
}

impl Ruleset {
    /// Returns the rulesets to compare in a mode.
    pub fn all(mode: Mode) -> Vec<Self> {
        let compared = [Self::Upstream(mode), Self::Ours(mode)];
        match mode {
            Mode::Nftables => [[Self::Plain, Self::Hooks], compared].concat(),
            Mode::Iptables(_) => compared.to_vec(),
        }
    }

    /// Loads the ruleset into a namespace. In the ruleset of upstream in mode nftables,
    /// at most `chains` Services have chains of their own.
    ///
    /// # Errors
    ///
    /// If the kernel rejects the ruleset.
    pub fn load(self, netns: &Netns, services: &Services, chains: u32) -> Outcome<()> {
        netns.run(|| match self {
            Self::Plain => Ok(()),
            Self::Hooks => load_nftables(HOOKS),
            Self::Upstream(Mode::Nftables) => {
                let documents = upstream::ruleset(services, chains)?;
                documents.iter().try_for_each(|text| load_nftables(text))
            }
            Self::Upstream(Mode::Iptables(variant)) => {
                load_iptables(variant, &upstream_iptables::rules(services)?)
            }
            Self::Ours(Mode::Nftables) => load_ours(services),
            Self::Ours(Mode::Iptables(variant)) => load_iptables(variant, &ours(services)?),
        })
    }

    /// Returns whether the ruleset translates addresses of Services.
    pub fn serves(self) -> bool {
        matches!(self, Self::Upstream(_) | Self::Ours(_))
    }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain forwarding",
            Self::Hooks => "empty nat hooks",
            Self::Upstream(_) => "upstream",
            Self::Ours(_) => "ours",
        })
    }
}

fn load_nftables(text: &str) -> Outcome<()> {
    checked(&nft::run(&["-f", "-"], text))
}

/// Returns the messages of a program that failed.
fn checked(output: &Output) -> Outcome<()> {
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// Loads rules into a namespace without rules.
fn load_iptables(variant: Variant, text: &str) -> Outcome<()> {
    let programs = Programs::new()?;
    let [_, restore] = programs.variant(&format!("iptables-{variant}"))?;
    let document = programs.path("rules");
    fs::write(&document, text)?;
    let input = File::open(document)?;
    checked(&Command::new(restore).stdin(input).output()?)
}

/// Returns the rules of this kube-proxy in mode iptables.
fn ours(services: &Services) -> Outcome<String> {
    let mut config = config()
        .with_mode(proxy_core::Mode::Iptables)
        .with_node_port_addresses(NodePortAddresses::All);
    // The creator of an engine also creates the counters.
    config.iptables.nfacct = false;
    let mut engine = config.plan_only()?;
    for event in services.events().chain([Event::Synced]) {
        engine.apply(event);
    }
    Ok(engine.desired())
}

/// Programs the Services in mode nftables as kube-proxy does, without its binary.
fn load_ours(services: &Services) -> Outcome<()> {
    let kernel = Nftables::open(Family::V4)?;
    let mut kernel = Some(kernel);
    let mut engine = Engine::with_kernels(config().engine, Planner, |_| {
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
