//! One Service of a million pairs of an address and a port.

use serde_json::json;

use crate::cluster::{Cluster, service_with_endpoints, slice};
use crate::health::{HEALTH, METRICS, get_in};
use crate::large_service::{MEMORY, edits_of_syncs, large, peak};
use crate::stage::wait_until;

/// The numbers of external IPs and of ports. The object has 87 kB.
const SIDE: u16 = 1000;

/// Maximum number of edits of a sync in mode nftables.
const EDITS: usize = 2 * 4_096;

#[test]
fn a_million_pairs_are_cut_to_the_limit_and_programmed_in_parts_beside_other_services() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let proxy = cluster.start_unsynced("--v 2");
    wait_until("the first sync", || proxy.output().contains("synced"));
    let before = peak(&proxy);
    let mut syncs = 0;
    for (round, endpoint) in [(2, Some("10.244.9.1")), (3, Some("10.244.9.2")), (4, None)] {
        match endpoint {
            Some(endpoint) => {
                cluster.server.apply_all(large(SIDE, SIDE, Some(endpoint)));
            }
            None => assert!(cluster.server.delete("Service", "default", "large")),
        }
        let mut web = slice("web", 1, 1);
        web["endpoints"][0]["addresses"] = json!([format!("10.244.{round}.9")]);
        cluster.server.apply(web);
        wait_until("both changes", || {
            let livez = get_in(&cluster.netns, HEALTH, "/livez");
            assert_eq!(livez.code, 200, "{}", livez.body);
            let rules = cluster.ruleset();
            let last = "203.0.14.1 . tcp . 1999 : ";
            let is_large = match endpoint {
                Some(endpoint) => rules.contains(&format!("{last}{endpoint} . 8080")),
                None => !rules.contains("10.96.0.99"),
            };
            is_large && rules.contains(&format!("10.244.{round}.9"))
        });
        let mut edits = edits_of_syncs(&proxy);
        edits.retain(|&edits| edits > 500);
        assert!(edits.len() >= syncs + 3, "{edits:?}");
        assert!(edits.iter().all(|&edits| edits <= EDITS), "{edits:?}");
        syncs = edits.len();
        let page = get_in(&cluster.netns, METRICS, "/rejectedz").body;
        let text = "985 IPv4 addresses from 203.0.15.1 on are not served";
        assert_eq!(page.contains(text), endpoint.is_some(), "{page}");
    }
    let grown = peak(&proxy) - before;
    println!("{syncs} syncs with many edits, {grown} MiB more");
    assert!(grown <= MEMORY, "{grown} MiB");
    let line = "Service default/large: spec.externalIPs: 985 IPv4 addresses from 203.0.15.1 on are \
                not served: a Service gets at most 16384 pairs";
    assert_eq!(
        proxy.output().matches(line).count(),
        1,
        "{}",
        proxy.output()
    );
    wait_until("the Event", || {
        let events = cluster.server.events();
        events.iter().any(|event| {
            event["reason"] == "ServiceTooLarge" && event["regarding"]["name"] == "large"
        })
    });
    assert!(proxy.terminate().unwrap().success());
}
