//! The program while it runs, and what it leaves when it is killed or ends.

use std::time::{Duration, Instant};

use testkit::traffic::{Conversation, Load, Protocol};

use crate::site::{Site, has, until};

/// What others do to the node: nobody tells of the first two.
const DAMAGES: [&str; 4] = [
    "ipset flush KUBE-CLUSTER-IP",
    "ipvsadm -D -t 10.96.0.10:80",
    "ip address delete fd00:10:96::10/128 dev kube-ipvs0",
    "ip link delete kube-ipvs0; ipvsadm -C; iptables -w 5 -t nat -F; ip6tables -w 5 -F; \
     ipset list -n | while read name; do ipset flush $name; done",
];

/// How long a client of the load rests.
const PAUSE: Duration = Duration::from_millis(100);

#[test]
fn traffic_follows_the_manifests_and_what_others_do_is_mended() {
    let site = Site::new();
    site.serve_by(&[0]);
    // It looks that often at what nobody tells it.
    let often = "--ipvs-sync-period 2s --ipvs-min-sync-period 0s";
    let proxy = site.start("ipvs", often);
    site.is_served_by(&[0]);
    for backends in [&[1][..], &[0, 1]] {
        site.serve_by(backends);
        site.is_served_by(backends);
    }
    let state = site.state();
    for damage in DAMAGES {
        proxy.process().news();
        site.shell(damage);
        // It tells of a sync only where there was something to do.
        let mut told = String::new();
        until(damage, || {
            told += &proxy.process().news();
            has(told.clone(), "edits=")
        });
        until(damage, || match site.state() {
            found if found == state => Ok(()),
            found => Err(format!("{found:#?}")),
        });
        site.is_served_by(&[0, 1]);
    }
    proxy.stop().unwrap();
}

#[test]
fn a_program_that_is_killed_and_started_again_disturbs_nobody() {
    let site = Site::new();
    site.serve_by(&[0, 1]);
    let proxy = site.start("ipvs", "");
    let state = site.state();
    let client = &site.lab.client.netns;
    let mut asks = site.asks();
    asks.retain(|ask| ask.protocol == Protocol::Tcp);
    let talks = asks.iter().map(|ask| Conversation::open(client, *ask));
    let mut talks: Vec<_> = talks.map(Result::unwrap).collect();
    let loads = asks.iter().map(|ask| Load::start(client, *ask, 1, PAUSE));
    let loads: Vec<_> = loads.map(Result::unwrap).collect();
    let mut go_on = |when: &str| {
        for talk in &mut talks {
            let said = talk.say("it goes on");
            assert!(said.is_ok(), "{when}: {} {said:?}", talk.server());
        }
        assert_eq!(site.state(), state, "{when}");
    };
    // By signal 9.
    drop(proxy);
    go_on("it was killed");
    let proxy = site.start("ipvs", "");
    let synced = || -> Vec<String> {
        let output = proxy.process().output();
        let lines = output.lines().filter(|line| line.contains(" synced "));
        lines.map(str::to_owned).collect()
    };
    until("both families", || match synced() {
        lines if lines.len() == 2 => Ok(()),
        lines => Err(format!("{lines:?}")),
    });
    go_on("it is back");
    let is_idle = |line: &String| line.contains("edits=0 ");
    assert!(synced().iter().all(is_idle), "it wrote: {:?}", synced());
    // With the exit code of success.
    proxy.stop().unwrap();
    go_on("it ended");
    for load in loads {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{answers}");
    }
    site.is_served_by(&[0, 1]);
}

#[test]
fn an_endpoint_that_the_kernel_refuses_leaves_health_and_other_services_alone() {
    let site = Site::new();
    site.serve_by(&[0]);
    site.add_refused_endpoint();
    // What waits for four seconds makes the proxy unhealthy.
    let flags = "--ipvs-sync-period 2s --ipvs-min-sync-period 0s \
                 --healthz-bind-address 127.0.0.1:10256 --metrics-bind-address 127.0.0.1:10249";
    let proxy = site.start("ipvs", flags);
    let get = |port, path: &str| site.get(port, path);
    let sample = "kubeproxy_sync_rejected_objects{ip_family=\"IPv4\",mode=\"ipvs\"}";
    let is_rejected = |count: u8| has(get(10249, "/metrics"), &format!("{sample} {count}\n"));
    until("the metric", || is_rejected(1));
    let told = proxy.process().output();
    let warning = "192.168.55.255:8080 -m -w 1: invalid argument";
    assert!(has(told.clone(), warning).is_ok(), "{told}");
    assert!(told.contains("default/refused:tcp"), "{told}");
    let end = Instant::now() + Duration::from_secs(12);
    let mut backends = [0, 1].into_iter().cycle();
    while Instant::now() < end {
        let livez = get(10256, "/livez");
        assert!(livez.starts_with("HTTP/1.1 200 "), "{livez}");
        let backend = backends.next().unwrap();
        site.serve_by(&[backend]);
        site.is_served_by(&[backend]);
    }
    // It was told of once, and goes with its Service.
    let told = proxy.process().output();
    assert_eq!(told.matches(warning).count(), 1, "{told}");
    site.remove_refused_endpoint();
    until("the metric", || is_rejected(0));
    proxy.stop().unwrap();
}
