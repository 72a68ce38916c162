//! The program while it runs, and what it leaves when it is killed or ends.

use std::time::Duration;

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
