//! A Service with many pairs of an address and a port.

use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};

use crate::large_service::{MEMORY, edits_of_syncs, large, peak};
use crate::shell;
use crate::site::get;

const FLAGS: &str = "--proxy-mode ipvs --hostname-override node-1 --cluster-cidr 10.244.0.0/16 \
                     --ipvs-sync-period 1h --ipvs-min-sync-period 0s --v 2 --manifests";

/// Numbers of external IPs and of ports. With 1,000 addresses, which is the limit of a Service, the
/// test passes as well, but needs 8 minutes in an emulated machine; the process grows by 29 MiB.
const ADDRESSES: u16 = 100;
const PORTS: u16 = 16;

/// Maximum number of edits of a sync.
const EDITS: usize = 2 * 1_024;

/// Time for a change of all pairs. The machine of a guest is emulated, and its host may be busy:
/// more than 60 s were seen.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Time between two looks at the kernel. A guest has one processor, which the looks share with
/// the proxy.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns port 8080 of an address as `/proc/net/ip_vs` shows a real server. To read this file
/// is one system call for many virtual servers; `ipvsadm` needs three for each.
fn real_server(address: &str) -> String {
    let address: Ipv4Addr = address.parse().unwrap();
    format!("-> {:08X}:1F90", address.to_bits())
}

/// Returns the manifests of another Service, with one endpoint.
fn web(address: &str) -> String {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ports": [{"port": 80}]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    });
    format!("---\n{service}\n---\n{slice}\n")
}

#[test]
fn other_services_and_health_do_not_wait_for_a_service_with_many_pairs() {
    let netns = Netns::new().unwrap();
    let folder = Directory::new().unwrap();
    let write = |name: &str, text: &str| folder.write(name, text).unwrap();
    write("web.yaml", &web("10.244.1.1"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command.args(FLAGS.split_whitespace()).arg(folder.path());
    let proxy = Process::start(&netns, &mut command).unwrap();
    let await_state = |what: &str, is_reached: &mut dyn FnMut(&str) -> bool| {
        let start = Instant::now();
        while !is_reached(&shell(&netns, "cat /proc/net/ip_vs")) {
            assert!(start.elapsed() < TIMEOUT, "{what}: {}", proxy.output());
            thread::sleep(PAUSE);
        }
    };
    let first = real_server("10.244.1.1");
    await_state("the first sync", &mut |state| state.contains(&first));
    let before = peak(&proxy);
    for (round, endpoint) in [(2, Some("10.244.9.1")), (3, Some("10.244.9.2")), (4, None)] {
        let manifests = large(ADDRESSES, PORTS, endpoint).map(|object| format!("---\n{object}\n"));
        let syncs = edits_of_syncs(&proxy).len();
        write("large.yaml", &manifests.concat());
        let own = format!("10.244.{round}.1");
        write("web.yaml", &web(&own));
        let own = real_server(&own);
        await_state("both changes", &mut |state| {
            let livez = get(&netns, 10256, "/livez");
            assert!(livez.starts_with("HTTP/1.1 200 "), "{livez}");
            let (address, count) = match endpoint {
                Some(address) => (address, usize::from(ADDRESSES + 1) * usize::from(PORTS)),
                None => ("10.244.9.2", 0),
            };
            state.contains(&own) && state.matches(&real_server(address)).count() == count
        });
        // The log of the last sync follows the state.
        let mut logged = 0;
        let start = Instant::now();
        while edits_of_syncs(&proxy).len() > logged {
            assert!(start.elapsed() < TIMEOUT, "syncs: {}", proxy.output());
            logged = edits_of_syncs(&proxy).len();
            thread::sleep(4 * PAUSE);
        }
        let edits = edits_of_syncs(&proxy).split_off(syncs);
        assert!(edits.len() > 3, "{edits:?}");
        let of_web = edits.iter().position(|&edits| edits == 2);
        assert!(of_web.is_some_and(|sync| sync < 2), "{edits:?}");
        assert!(edits.iter().all(|&edits| edits <= EDITS), "{edits:?}");
    }
    assert_eq!(proxy.output().matches("dumped=true").count(), 2);
    let grown = peak(&proxy) - before;
    testkit::figures!("{grown} MiB more");
    assert!(grown <= MEMORY, "{grown} MiB");
}
