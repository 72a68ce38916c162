//! The program in a PID namespace, where the process IDs that the kernel reports mean
//! nothing to it.

use testkit::proxy::Proxy;

use crate::site::{Site, has, until};

/// A period of looks and resyncs that the test does not wait for.
const SELDOM: &str = "--ipvs-sync-period 3600s --ipvs-min-sync-period 0s";

/// A Service whose load balancer address not even the node may use, as a rule says.
const GUARDED: &str = "apiVersion: v1
kind: Service
metadata: {name: guarded}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.20
  loadBalancerSourceRanges: [198.51.100.0/24]
  ports: [{port: 80}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.9}]}}
";

/// Words of the virtual server, the rule, the set entry and the address of the Service.
const OF_GUARDED: [&str; 4] = [
    "-A -t 203.0.113.9:80",
    "--vaddr 203.0.113.9",
    "add KUBE-LOAD-BALANCER-FW 203.0.113.9,tcp:80",
    "inet 203.0.113.9/32",
];

fn syncs(proxy: &Proxy) -> usize {
    proxy.process().output().matches(" synced ").count()
}

#[test]
fn own_commits_cause_no_dump_and_foreign_ones_are_mended_in_a_pid_namespace() {
    let site = Site::new();
    site.serve_by(&[0]);
    let proxy = site.start_in_pid_namespace("ipvs", SELDOM);
    for backends in [&[1][..], &[0, 1], &[0]] {
        let before = syncs(&proxy);
        site.serve_by(backends);
        until("the change", || match syncs(&proxy) {
            count if count > before => Ok(()),
            count => Err(count.to_string()),
        });
        site.is_served_by(backends);
    }
    for text in [GUARDED, "", GUARDED, ""] {
        site.write("guarded.yaml", text);
        until("the Service or none", || {
            let state = site.state().concat();
            // All four kernels of the mode hold something of the Service.
            let (all, nothing) = (4, 0);
            let found = OF_GUARDED.iter().filter(|word| state.contains(**word));
            match found.count() == if text.is_empty() { nothing } else { all } {
                true => Ok(()),
                false => Err(state),
            }
        });
    }
    let output = proxy.process().output();
    assert_eq!(output.matches("dumped=true").count(), 2, "{output}");
    assert!(!output.contains("mended"), "{output}");
    site.shell("iptables -w 5 -t nat -F KUBE-SERVICES");
    let told = "repaired changes by another program: ";
    until(told, || has(proxy.process().output(), told));
    site.is_served_by(&[0]);
}
