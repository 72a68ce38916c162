//! One mode after another: a start serves, and removes what the former one left.

use crate::site::{Site, has, until};

#[test]
fn nothing_is_left_of_a_mode_when_another_serves() {
    let site = Site::new();
    site.serve_by(&[0, 1]);
    site.run("iptables", "--oneshot");
    let after_a_start_in = |mode| {
        let proxy = site.start(mode, "");
        let told = "removed leftovers of other modes: ";
        until(told, || has(proxy.process().output(), told));
        site.is_served_by(&[0, 1]);
        proxy.stop().unwrap();
        site.state()
    };
    let after_iptables = after_a_start_in("ipvs");
    // These are all that mode nftables has: nothing is left of two modes.
    let nftables =
        ["ip", "ip6"].map(|family| format!("nft list tables: table {family} kube-proxy"));
    assert_eq!(after_a_start_in("nftables"), nftables);
    site.is_served_by(&[0, 1]);
    let after_nftables = after_a_start_in("ipvs");
    assert_eq!(after_nftables, after_iptables);
    assert!(!after_nftables.contains(&nftables[0]), "{after_nftables:?}");
    site.is_served_by(&[0, 1]);
}
