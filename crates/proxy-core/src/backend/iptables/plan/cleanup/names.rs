//! Names of the chains and jumps in iptables that may be removed.
//!
//! The lists contain what upstream 1.36 removes with `--cleanup`. Objects that upstream
//! creates and leaves behind are marked.
//!
//! Objects of the kubelet are not listed and stay: the chains `KUBE-FIREWALL`,
//! `KUBE-MARK-DROP`, `KUBE-KUBELET-CANARY` and `KUBE-IPTABLES-HINT`, and the jumps to
//! them.

use crate::Mode;
use crate::backend::iptables::plan::names::is_of_service;
use crate::cleanup::names::{Names, chain, jump};

/// Chains and jumps of modes iptables and ipvs, and those of mode iptables alone.
pub(in crate::backend::iptables) const IPTABLES: &[Names] = &[
    Names {
        modes: &[Mode::Iptables, Mode::Ipvs],
        chains: &[
            chain("nat", "KUBE-SERVICES"),
            chain("nat", "KUBE-POSTROUTING"),
            chain("nat", "KUBE-MARK-MASQ"),
            chain("filter", "KUBE-FORWARD"),
            chain("filter", "KUBE-PROXY-FIREWALL"),
        ],
        is_of_service: |_| false,
        jumps: &[
            jump(
                "nat",
                "OUTPUT",
                "KUBE-SERVICES",
                "kubernetes service portals",
            ),
            jump(
                "nat",
                "PREROUTING",
                "KUBE-SERVICES",
                "kubernetes service portals",
            ),
            jump(
                "nat",
                "POSTROUTING",
                "KUBE-POSTROUTING",
                "kubernetes postrouting rules",
            ),
            jump(
                "filter",
                "FORWARD",
                "KUBE-FORWARD",
                "kubernetes forwarding rules",
            ),
        ],
    },
    Names {
        modes: &[Mode::Iptables],
        chains: &[
            chain("nat", "KUBE-NODEPORTS"),
            chain("nat", "KUBE-PROXY-CANARY"),
            chain("filter", "KUBE-SERVICES"),
            chain("filter", "KUBE-EXTERNAL-SERVICES"),
            chain("filter", "KUBE-NODEPORTS"),
            chain("filter", "KUBE-PROXY-CANARY"),
            chain("mangle", "KUBE-PROXY-CANARY"),
        ],
        is_of_service,
        jumps: &[
            jump(
                "filter",
                "INPUT",
                "KUBE-EXTERNAL-SERVICES",
                "kubernetes externally-visible service portals",
            ),
            jump(
                "filter",
                "FORWARD",
                "KUBE-EXTERNAL-SERVICES",
                "kubernetes externally-visible service portals",
            ),
            jump(
                "filter",
                "INPUT",
                "KUBE-NODEPORTS",
                "kubernetes health check service ports",
            ),
            jump(
                "filter",
                "FORWARD",
                "KUBE-SERVICES",
                "kubernetes service portals",
            ),
            jump(
                "filter",
                "OUTPUT",
                "KUBE-SERVICES",
                "kubernetes service portals",
            ),
            jump(
                "filter",
                "INPUT",
                "KUBE-PROXY-FIREWALL",
                "kubernetes load balancer firewall",
            ),
            jump(
                "filter",
                "OUTPUT",
                "KUBE-PROXY-FIREWALL",
                "kubernetes load balancer firewall",
            ),
            jump(
                "filter",
                "FORWARD",
                "KUBE-PROXY-FIREWALL",
                "kubernetes load balancer firewall",
            ),
        ],
    },
];
