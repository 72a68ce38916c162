//! The running program, and the objects that stay after a kill or an exit.

use std::thread;
use std::time::{Duration, Instant};

use testkit::traffic::{Connection, Load, Protocol};

use crate::site::{Site, contains, wait_until};

/// Changes by other processes. The kernel sends no notifications for the first two.
const FOREIGN_CHANGES: [&str; 4] = [
    "ipset flush KUBE-CLUSTER-IP",
    "ipvsadm -D -t 10.96.0.10:80",
    "ip address delete fd00:10:96::10/128 dev kube-ipvs0",
    "ip link delete kube-ipvs0; ipvsadm -C; iptables -w 5 -t nat -F; ip6tables -w 5 -F; \
     ipset list -n | while read name; do ipset flush $name; done",
];

/// Pause between two requests of a load client.
const PAUSE: Duration = Duration::from_millis(100);

/// Pause between two changes while an endpoint is rejected. The proxy syncs each change at
/// once.
const CHANGE_PERIOD: Duration = Duration::from_secs(1);

#[test]
fn traffic_follows_the_manifests_and_foreign_changes_are_repaired() {
    let site = Site::new();
    site.set_backends(&[0]);
    // The sync period is the polling interval for changes without notifications.
    let flags = "--ipvs-sync-period 2s --ipvs-min-sync-period 0s";
    let proxy = site.start("ipvs", flags);
    site.assert_served_by(&[0]);
    for backends in [&[1][..], &[0, 1]] {
        site.set_backends(backends);
        site.assert_served_by(backends);
    }
    let state = site.state();
    for change in FOREIGN_CHANGES {
        proxy.process().take_output();
        site.shell(change);
        // The proxy logs a sync only if it made edits.
        let mut log = String::new();
        wait_until(change, || {
            log += &proxy.process().take_output();
            contains(log.clone(), "edits=")
        });
        wait_until(change, || match site.state() {
            found if found == state => Ok(()),
            found => Err(format!("{found:#?}")),
        });
        site.assert_served_by(&[0, 1]);
    }
    proxy.stop().unwrap();
}

#[test]
fn a_restart_after_a_kill_does_not_disturb_traffic() {
    let site = Site::new();
    site.set_backends(&[0, 1]);
    let proxy = site.start("ipvs", "");
    let state = site.state();
    let client = &site.lab.client.netns;
    let mut probes = site.probes();
    probes.retain(|probe| probe.protocol == Protocol::Tcp);
    let connections = probes.iter().map(|probe| Connection::open(client, *probe));
    let mut connections: Vec<_> = connections.map(Result::unwrap).collect();
    let loads = probes
        .iter()
        .map(|probe| Load::start(client, *probe, 1, PAUSE));
    let loads: Vec<_> = loads.map(Result::unwrap).collect();
    let mut go_on = |when: &str| {
        for connection in &mut connections {
            let result = connection.exchange("a message");
            assert!(result.is_ok(), "{when}: {} {result:?}", connection.server());
        }
        assert_eq!(site.state(), state, "{when}");
    };
    // Sends SIGKILL.
    drop(proxy);
    go_on("after the kill");
    let proxy = site.start("ipvs", "");
    let synced = || -> Vec<String> {
        let output = proxy.process().output();
        let lines = output.lines().filter(|line| line.contains(" synced "));
        lines.map(str::to_owned).collect()
    };
    wait_until("both families", || match synced() {
        lines if lines.len() == 2 => Ok(()),
        lines => Err(format!("{lines:?}")),
    });
    go_on("after the restart");
    let is_idle = |line: &String| line.contains("edits=0 ");
    assert!(
        synced().iter().all(is_idle),
        "edits after a restart: {:?}",
        synced()
    );
    // Asserts a successful exit code.
    proxy.stop().unwrap();
    go_on("after the exit");
    for load in loads {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{answers}");
    }
    site.assert_served_by(&[0, 1]);
}

#[test]
fn a_rejected_endpoint_does_not_affect_health_and_other_services() {
    let site = Site::new();
    site.set_backends(&[0]);
    site.add_rejected_endpoint();
    // A change that is pending for four seconds makes the proxy unhealthy.
    let flags = "--ipvs-sync-period 2s --ipvs-min-sync-period 0s \
                 --healthz-bind-address 127.0.0.1:10256 --metrics-bind-address 127.0.0.1:10249";
    let proxy = site.start("ipvs", flags);
    let get = |port, path: &str| site.get(port, path);
    let sample = "kubeproxy_sync_rejected_objects{ip_family=\"IPv4\",mode=\"ipvs\"}";
    let is_rejected = |count: u8| contains(get(10249, "/metrics"), &format!("{sample} {count}\n"));
    wait_until("the metric", || is_rejected(1));
    let log = proxy.process().output();
    let warning = "192.168.55.255:8080 -m -w 1: invalid argument";
    assert!(contains(log.clone(), warning).is_ok(), "{log}");
    assert!(log.contains("default/rejected:tcp"), "{log}");
    let end = Instant::now() + Duration::from_secs(12);
    let mut backends = [0, 1].into_iter().cycle();
    while Instant::now() < end {
        let livez = get(10256, "/livez");
        assert!(livez.starts_with("HTTP/1.1 200 "), "{livez}");
        let backend = backends.next().unwrap();
        site.set_backends(&[backend]);
        site.assert_served_by(&[backend]);
        thread::sleep(CHANGE_PERIOD);
    }
    // The rejection is logged once and ends with the Service.
    let log = proxy.process().output();
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    site.remove_rejected_endpoint();
    wait_until("the metric", || is_rejected(0));
    proxy.stop().unwrap();
}
