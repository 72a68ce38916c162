//! What the kernel is programmed with, and tests that hold for each of it.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(unused_macros, unused_imports, reason = "each test file uses one")]

use std::io::Write;
use std::process::{Command, Stdio};

use proxy_core::backend::iptables::{Kernel, Planner};
use proxy_core::{Config, Engine, Family, Mode};
use testkit::iptables::Programs;
use vipline_iptables::{Client, Variant, nfacct};
use vipline_service_model::NodePortAddresses;

/// Counts packets that conntrack took for invalid.
const INVALID_DROPPED: &str = "ct_state_invalid_dropped_pkts";

/// Counts connections to node ports by loopback addresses.
pub(crate) const LOCALHOST_ACCEPTED: &str = "localhost_nps_accepted_pkts";

/// What the rules of the engine are, and whose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rules {
    Nftables,
    Iptables(Variant),
    /// Only where the kernel has IPVS.
    Ipvs,
}

/// An engine that programs the namespace it was opened in.
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    /// What it runs.
    _programs: Option<Programs>,
}

impl Rules {
    pub(crate) const IPTABLES_NFT: Self = Self::Iptables(Variant::Nft);
    pub(crate) const IPTABLES_LEGACY: Self = Self::Iptables(Variant::Legacy);

    /// Returns a configuration with what a mode does on its own: which addresses
    /// node ports are served on.
    pub(crate) fn configured(self, config: Config) -> Config {
        let node_port_addresses = match self {
            Self::Nftables => NodePortAddresses::Primary,
            Self::Iptables(_) | Self::Ipvs => NodePortAddresses::All,
        };
        Config {
            mode: match self {
                Self::Ipvs => Mode::Ipvs,
                _ => config.mode,
            },
            node_port_addresses,
            ..config
        }
    }

    /// Opens an engine in the namespace of the calling thread.
    pub(crate) fn open(self, mut config: Config) -> Opened {
        let Self::Iptables(variant) = self else {
            let engine = Engine::open(config).expect("the kernel has what the mode needs");
            return Opened {
                engine,
                _programs: None,
            };
        };
        make_counters();
        config.iptables.nfacct = true;
        let programs = Programs::new().expect("there is room for a folder");
        let mut engine = Engine::with_kernels::<Planner, _>(config, |family| {
            let base = match family {
                Family::V4 => "iptables",
                Family::V6 => "ip6tables",
            };
            let [save, restore] = programs
                .variant(&format!("{base}-{variant}"))
                .expect("there is room for programs");
            let client = Client::open_at(save, restore).expect("both variants are installed");
            Kernel::with_client(client, family)
        });
        let is_tracking = engine.enable_flow_cleanup();
        assert!(
            is_tracking.expect("the kernel lets us"),
            "it tells of flows"
        );
        Opened {
            engine,
            _programs: Some(programs),
        }
    }

    /// Restores a document of iptables in both families, in the namespace of the
    /// calling thread.
    ///
    /// It is what others wrote: mode nftables finds it in tables of nft.
    pub(crate) fn restore(self, document: &str) {
        let variant = match self {
            Self::Nftables | Self::Ipvs => Variant::Nft,
            Self::Iptables(variant) => variant,
        };
        for base in ["iptables", "ip6tables"] {
            let mut child = Command::new(format!("{base}-{variant}-restore"))
                .args(["-w", "5", "--noflush"])
                .stdin(Stdio::piped())
                .spawn()
                .expect("both variants are installed");
            let mut input = child.stdin.take().expect("it is piped");
            input.write_all(document.as_bytes()).expect("it reads");
            drop(input);
            let status = child.wait().expect("it is a child");
            assert!(status.success(), "{base}-{variant}: {status}\n{document}");
        }
    }
}

/// Makes the counters that rules of iptables name, as who opens an engine does.
fn make_counters() {
    let mut client = nfacct::Client::open().expect("the kernel has nfacct");
    for name in [INVALID_DROPPED, LOCALHOST_ACCEPTED] {
        let name = nfacct::Name::new(name).expect("it is short");
        client.ensure(&name).expect("the kernel has nfacct");
    }
}

/// Makes tests of functions that take rules: those for `all`, and those that
/// only mode `iptables` is held to, of which each variant is tested.
///
/// The module of a test says what its rules are.
macro_rules! tests_of_rules {
    (all { $($all:ident)* } iptables { $($own:ident)* }) => {
        $crate::rules::tests_of_rules! {
            nftables: $crate::rules::Rules::Nftables; $($all)*
        }

        $crate::rules::tests_of_rules! {
            iptables_nft: $crate::rules::Rules::IPTABLES_NFT; $($all)* $($own)*
        }

        $crate::rules::tests_of_rules! {
            iptables_legacy: $crate::rules::Rules::IPTABLES_LEGACY; $($all)* $($own)*
        }
    };
    ($name:ident: $rules:expr; $($test:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::$test($rules);
                }
            )*
        }
    };
}

pub(crate) use tests_of_rules;
