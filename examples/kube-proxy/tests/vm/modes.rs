//! Changes of the mode: a start serves traffic and removes the objects of the former
//! mode.

use crate::site::{Site, contains, wait_until};

#[test]
fn a_start_removes_all_objects_of_the_former_mode() {
    let site = Site::new();
    site.set_backends(&[0, 1]);
    site.run("iptables", "--oneshot");
    let after_a_start_in = |mode| {
        let proxy = site.start(mode, "");
        let message = "removed leftovers of other modes: ";
        wait_until(message, || contains(proxy.process().output(), message));
        site.assert_served_by(&[0, 1]);
        println!("{mode}: {}", proxy.process().output());
        proxy.stop().unwrap();
        site.state()
    };
    let after_iptables = after_a_start_in("ipvs");
    // Mode nftables has only these tables, so no object of another mode is left.
    let nftables =
        ["ip", "ip6"].map(|family| format!("nft list tables: table {family} kube-proxy"));
    assert_eq!(after_a_start_in("nftables"), nftables);
    site.assert_served_by(&[0, 1]);
    let after_nftables = after_a_start_in("ipvs");
    assert_eq!(after_nftables, after_iptables);
    assert!(!after_nftables.contains(&nftables[0]), "{after_nftables:?}");
    site.assert_served_by(&[0, 1]);
}
