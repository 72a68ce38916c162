//! Sysctls that mode ipvs requires.

use std::borrow::Cow;

use crate::Sysctl;

/// Sysctls that mode ipvs always needs.
const ALWAYS: [Sysctl; 4] = [
    // Makes packets of virtual servers visible to conntrack, for masquerading.
    for_ipvs("net/ipv4/vs/conntrack", "1"),
    // Ends connections together with their real server.
    for_ipvs("net/ipv4/vs/expire_nodest_conn", "1"),
    // Ends persistence together with the real server.
    for_ipvs("net/ipv4/vs/expire_quiescent_template", "1"),
    for_ipvs("net/ipv4/ip_forward", "1"),
];

/// From this kernel version on, [`CONN_REUSE`] may stay on. Earlier kernels lose packets
/// of connections that reuse a port.
const CONN_REUSE_FIXED: (u32, u32) = (5, 9);
/// Kernels before this version do not have [`CONN_REUSE`].
const CONN_REUSE_ADDED: (u32, u32) = (4, 1);
/// Keeps a connection that reuses a source port on its former real server.
const CONN_REUSE: Sysctl = for_ipvs("net/ipv4/vs/conn_reuse_mode", "0");

/// Restricts ARP replies to addresses of the receiving interface.
const STRICT_ARP: [Sysctl; 2] = [
    strict_arp("net/ipv4/conf/all/arp_ignore", "1"),
    strict_arp("net/ipv4/conf/all/arp_announce", "2"),
];

const fn for_ipvs(name: &'static str, value: &'static str) -> Sysctl {
    Sysctl::new(name, Cow::Borrowed(value), "as required by mode ipvs")
}

const fn strict_arp(name: &'static str, value: &'static str) -> Sysctl {
    Sysctl::new(
        name,
        Cow::Borrowed(value),
        "as required by --ipvs-strict-arp",
    )
    .unless("--ipvs-strict-arp=false")
}

/// Returns the sysctls that mode ipvs needs on a kernel release such as `6.1.0-13-amd64`.
pub(in crate::backend) fn sysctls(release: &str, strict_arp: bool) -> Vec<Sysctl> {
    let needs_conn_reuse = version(release)
        .is_some_and(|version| (CONN_REUSE_ADDED..CONN_REUSE_FIXED).contains(&version));
    let mut sysctls = ALWAYS.to_vec();
    sysctls.extend(needs_conn_reuse.then_some(CONN_REUSE));
    sysctls.extend(STRICT_ARP.into_iter().filter(|_| strict_arp));
    sysctls
}

/// Parses the first two numbers of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_ipvs_needs_more_sysctls_on_some_kernels_and_with_strict_arp() {
        let shown = |release, strict_arp| {
            let sysctls = sysctls(release, strict_arp).into_iter();
            let lines = sysctls.map(|sysctl| format!("{}={}", sysctl.name, sysctl.value));
            lines.collect::<Vec<_>>()
        };
        let always = [
            "net/ipv4/vs/conntrack=1",
            "net/ipv4/vs/expire_nodest_conn=1",
            "net/ipv4/vs/expire_quiescent_template=1",
            "net/ipv4/ip_forward=1",
        ];
        let arp = [
            "net/ipv4/conf/all/arp_ignore=1",
            "net/ipv4/conf/all/arp_announce=2",
        ];
        for release in [
            "6.18.0",
            "5.10.0-8-amd64",
            "5.9",
            "4.0.9",
            "3.10.0-957.el7",
            "x",
        ] {
            assert_eq!(shown(release, false), always, "{release}");
        }
        for release in ["4.1.0", "4.19.0-21-amd64", "5.8.18+"] {
            let all = [&always[..], &["net/ipv4/vs/conn_reuse_mode=0"], &arp].concat();
            assert_eq!(shown(release, true), all, "{release}");
        }
    }
}
