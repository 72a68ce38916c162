//! The modes and iptables variants, and a macro for tests that run in each mode.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(unused_macros, unused_imports, reason = "each test file uses one")]

use std::io::Write;
use std::process::{Command, Stdio};

use proxy_core::backend::iptables::{Kernel, Planner};
use proxy_core::{Config, Engine, Family, IptablesBackend, Mode};
use testkit::iptables::Programs;
use vipline_iptables::{Client, Variant, nfacct};
use vipline_service_model::NodePortAddresses;

/// Name of the counter of packets with conntrack state INVALID.
const INVALID_DROPPED: &str = "ct_state_invalid_dropped_pkts";

/// Name of the counter of node port connections to loopback addresses.
pub(crate) const LOCALHOST_ACCEPTED: &str = "localhost_nps_accepted_pkts";

/// The mode of the engine, and in mode iptables the variant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rules {
    Nftables,
    Iptables(Variant),
    /// The rules of the nft variant, written over netlink.
    IptablesNetlink,
    /// Requires a kernel with IPVS.
    Ipvs,
}

/// An engine that programs the network namespace in which it was opened.
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    /// Configuration of the engine and its mode.
    pub(crate) config: Config,
    /// Wrapper programs that the engine runs.
    _programs: Option<Programs>,
}

impl Rules {
    pub(crate) const IPTABLES_NFT: Self = Self::Iptables(Variant::Nft);
    pub(crate) const IPTABLES_LEGACY: Self = Self::Iptables(Variant::Legacy);

    /// Returns a configuration with the mode and its default addresses of node ports.
    pub(crate) fn configured(self, config: Config) -> Config {
        let node_port_addresses = match self {
            Self::Nftables => NodePortAddresses::Primary,
            Self::Iptables(_) | Self::IptablesNetlink | Self::Ipvs => NodePortAddresses::All,
        };
        let mode = match self {
            Self::Ipvs => Mode::Ipvs,
            _ => config.mode,
        };
        config
            .with_mode(mode)
            .with_node_port_addresses(node_port_addresses)
    }

    /// Opens an engine in the namespace of the calling thread.
    pub(crate) fn open(self, mut config: Config) -> Opened {
        let Self::Iptables(variant) = self else {
            if self == Self::IptablesNetlink {
                config.mode = Mode::Iptables;
                config.iptables.backend = IptablesBackend::Netlink;
            }
            let engine = config.open().expect("the kernel has what the mode needs");
            return Opened {
                engine,
                config,
                _programs: None,
            };
        };
        create_counters();
        config.iptables.nfacct = true;
        let programs = Programs::new().expect("a temporary directory");
        let planner = Planner::from(&config);
        let mut engine = Engine::with_kernels(config.engine.clone(), planner, |family| {
            let base = match family {
                Family::V4 => "iptables",
                Family::V6 => "ip6tables",
            };
            let [save, restore] = programs
                .variant(&format!("{base}-{variant}"))
                .expect("the directory is writable");
            let client = Client::open_at(save, restore).expect("both variants are installed");
            Kernel::with_client(client, family)
        });
        let is_tracking = engine.enable_flow_cleanup();
        assert!(
            is_tracking.expect("conntrack can be watched"),
            "the kernel reports flows"
        );
        Opened {
            engine,
            config,
            _programs: Some(programs),
        }
    }

    /// Returns whether the mode is iptables.
    pub(crate) fn is_iptables(self) -> bool {
        matches!(self, Self::Iptables(_) | Self::IptablesNetlink)
    }

    /// Restores an iptables document in both families, in the namespace of the calling
    /// thread.
    ///
    /// The document plays the rules of another program. Mode nftables and mode ipvs
    /// find them in iptables-nft tables.
    pub(crate) fn restore(self, document: &str) {
        let variant = match self {
            Self::Nftables | Self::IptablesNetlink | Self::Ipvs => Variant::Nft,
            Self::Iptables(variant) => variant,
        };
        for base in ["iptables", "ip6tables"] {
            let mut child = Command::new(format!("{base}-{variant}-restore"))
                .args(["-w", "5", "--noflush"])
                .stdin(Stdio::piped())
                .spawn()
                .expect("both variants are installed");
            let mut input = child.stdin.take().expect("stdin is piped");
            input
                .write_all(document.as_bytes())
                .expect("the program reads its input");
            drop(input);
            let status = child.wait().expect("the program exits");
            assert!(status.success(), "{base}-{variant}: {status}\n{document}");
        }
    }
}

/// Creates the nfacct counters that iptables rules name, as `Config::open` does.
fn create_counters() {
    let mut client = nfacct::Client::open().expect("the kernel has nfacct");
    for name in [INVALID_DROPPED, LOCALHOST_ACCEPTED] {
        let name = nfacct::Name::new(name).expect("the name is short");
        client.ensure(&name).expect("the kernel has nfacct");
    }
}

/// Creates a test for each named function and rule backend: functions in `all` for mode
/// nftables and both iptables variants, functions in `iptables` for both iptables
/// variants, and functions in `netlink` for mode iptables over netlink.
///
/// The module of a test names its backend.
macro_rules! tests_of_rules {
    (all { $($all:ident)* } iptables { $($own:ident)* } netlink { $($netlink:ident)* }) => {
        $crate::rules::tests_of_rules! {
            all { $($all)* } iptables { $($own)* }
        }

        $crate::rules::tests_of_rules! {
            iptables_netlink: $crate::rules::Rules::IptablesNetlink; $($netlink)*
        }
    };
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
