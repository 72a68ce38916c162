//! A Service with as many pairs of an address and a port as a Service gets.

use std::thread;
use std::time::Duration;

use super::{Node, lines};
use crate::health::{HEALTH, get_in};
use crate::large_service::{MEMORY, edits_of_syncs, large, peak};
use crate::stage::{service, slice, wait_until};

/// Numbers of external IPs and of ports.
const ADDRESSES: u16 = 1000;
const PORTS: u16 = 16;

/// Number of syncs in which the addresses lose their endpoint or get one: in each one, 2,000
/// rules of one chain are replaced by 2,000 of another.
const SYNCS: usize = 8;

/// Returns the manifests of the Service.
fn manifests(endpoint: Option<&str>) -> String {
    let objects = large(ADDRESSES, PORTS, endpoint).into_iter();
    objects.map(|object| format!("---\n{object}\n")).collect()
}

/// Plays in both ways of the nft variant: a restore is reported to the proxy that made it.
#[test]
fn a_rewritten_chain_is_not_read_again() {
    for backend in ["nft", "netlink"] {
        let node = Node::web(backend);
        node.script(
            "iptables-save",
            "echo >> $folder/saves\nexec $real \"$@\"\n",
        );
        let saves = || lines(&node.stage.folder.path().join("saves"));
        node.stage.write("large.yaml", &manifests(None));
        let proxy = node.stage.start_with("--v 2 --iptables-sync-period 1h");
        wait_until("both families", || {
            proxy.output().matches(" synced ").count() == 2
        });
        let (saves_before, before) = (saves(), peak(&proxy));
        for (round, endpoint) in [(2, Some("10.244.9.1")), (3, None)] {
            let syncs = edits_of_syncs(&proxy).len();
            node.stage.write("large.yaml", &manifests(endpoint));
            let web = service("web", "10.96.0.10") + &slice("web", round, 1);
            node.stage.write("web.yaml", &web);
            wait_until("both changes", || {
                let livez = get_in(node.netns(), HEALTH, "/livez");
                assert_eq!(livez.code, 200, "{}", livez.body);
                // A listing of 16,384 rules keeps a processor busy that the proxy needs.
                thread::sleep(Duration::from_millis(500));
                // Not the script.
                let rules = node.shell("iptables-nft-save -t nat");
                let pairs = rules.matches("-A KUBE-SERVICES -d 203.").count();
                let expected = endpoint.map_or(0, |_| usize::from(ADDRESSES * PORTS));
                pairs == expected && rules.contains(&format!("10.244.{round}.1:8080"))
            });
            let mut edits = edits_of_syncs(&proxy).split_off(syncs);
            edits.retain(|&edits| edits > 100);
            assert!(edits.len() >= SYNCS, "{edits:?}");
            assert!(edits.iter().all(|&edits| edits < 6_000), "{edits:?}");
        }
        let runs = proxy.output().matches("dumped=true").count();
        assert_eq!(
            runs,
            2,
            "{backend}: only the first syncs read\n{}",
            proxy.output()
        );
        assert_eq!(saves() - saves_before, 0, "{backend}");
        let grown = peak(&proxy) - before;
        testkit::figures!("{backend}: {grown} MiB more");
        assert!(grown <= MEMORY, "{backend}: {grown} MiB");
        assert!(proxy.terminate().unwrap().success());
    }
}
