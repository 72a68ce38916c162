//! The program in a PID namespace. The process IDs that the kernel reports do not match
//! its own.

use testkit::proxy::Proxy;

use crate::site::{Site, contains, wait_until};

/// Flags with a line for each sync, and a period of polls and resyncs that the test does not
/// exceed.
const FLAGS: &str = "--v 2 --ipvs-sync-period 3600s --ipvs-min-sync-period 0s";

/// A Service with source ranges that exclude the node. A rule drops packets of the node
/// to its load balancer IP.
const RESTRICTED: &str = "apiVersion: v1
kind: Service
metadata: {name: restricted}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.20
  loadBalancerSourceRanges: [198.51.100.0/24]
  ports: [{port: 80}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.9}]}}
";

/// Text of the virtual server, the rule, the set entry and the address of the Service.
const OBJECTS_OF_RESTRICTED: [&str; 4] = [
    "-A -t 203.0.113.9:80",
    "--vaddr 203.0.113.9",
    "add KUBE-LOAD-BALANCER-FW 203.0.113.9,tcp:80",
    "inet 203.0.113.9/32",
];

fn syncs(proxy: &Proxy) -> usize {
    proxy.process().output().matches(" synced ").count()
}

/// Waits until there were more than `before` syncs.
#[track_caller]
fn await_sync(proxy: &Proxy, before: usize) {
    wait_until("a sync", || match syncs(proxy) {
        count if count > before => Ok(()),
        count => Err(count.to_string()),
    });
}

#[test]
fn own_commits_cause_no_dump_and_foreign_ones_are_repaired_in_a_pid_namespace() {
    let site = Site::new();
    site.set_backends(&[0]);
    let proxy = site.start_in_pid_namespace("ipvs", FLAGS);
    for backends in [&[1][..], &[0, 1], &[0]] {
        let before = syncs(&proxy);
        site.set_backends(backends);
        await_sync(&proxy, before);
        site.assert_served_by(backends);
    }
    for text in [RESTRICTED, "", RESTRICTED, ""] {
        let before = syncs(&proxy);
        site.write("restricted.yaml", text);
        await_sync(&proxy, before);
        wait_until("the change of the Service", || {
            let state = site.state().concat();
            // Each of the four kernel subsystems of the mode has an object of the
            // Service.
            let (all, nothing) = (4, 0);
            let found = OBJECTS_OF_RESTRICTED
                .iter()
                .filter(|word| state.contains(**word));
            match found.count() == if text.is_empty() { nothing } else { all } {
                true => Ok(()),
                false => Err(state),
            }
        });
    }
    let output = proxy.process().output();
    assert_eq!(output.matches("dumped=true").count(), 2, "{output}");
    assert!(!output.contains("repaired"), "{output}");
    site.shell("iptables -w 5 -t nat -F KUBE-SERVICES");
    let message = "repaired changes by another program: ";
    wait_until(message, || contains(proxy.process().output(), message));
    site.assert_served_by(&[0]);
}
