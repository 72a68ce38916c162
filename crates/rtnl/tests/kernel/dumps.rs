//! Tests of dumps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use vipline_rtnl::{Error, Family, Kind, LinkFlags, Scope};

use crate::lab::{Lab, address, name};

#[test]
fn objects_created_by_ip_are_dumped_as_ip_lists_them() {
    let mut lab = Lab::new();
    lab.batch(
        "link add b0 type bridge\n\
         link add v0 type veth peer name v1\n\
         link set v0 up\n\
         link set v1 up\n\
         address add 10.0.0.1/24 dev b0\n\
         address add 10.0.0.2/24 dev b0\n\
         address add 10.0.0.2/32 dev b0\n\
         address add 10.0.0.3/24 dev v0 scope link\n\
         address add 10.0.1.1 peer 10.0.1.2/30 dev v0 noprefixroute\n\
         address add 10.0.2.1/24 brd + dev v0 scope 77 valid_lft 900 preferred_lft 900\n\
         address add 127.0.0.7/8 dev lo\n\
         address add fd00::1/64 dev v0\n\
         address add fd00::2/64 dev v1 nodad home mngtmpaddr\n\
         address add fd00::3/128 dev b0 nodad noprefixroute\n\
         address add fd00::4 peer fd00::5/128 dev v1 nodad\n\
         address add fec0::1/64 dev v1 nodad\n\
         address add fe80::1/64 dev v1 nodad\n\
         address add 2001:db8::1/64 dev v0 nodad valid_lft 900 preferred_lft 0\n",
    );
    lab.assert_judged();

    let dump = lab.client.dump().unwrap();
    let kinds: Vec<(String, &Kind)> = dump
        .links()
        .map(|link| (link.name.to_string(), &link.kind))
        .collect();
    let other = |kind: &str| Kind::Other(kind.into());
    assert_eq!(
        kinds,
        [
            ("b0".to_owned(), &other("bridge")),
            ("lo".to_owned(), &Kind::Device),
            ("v0".to_owned(), &other("veth")),
            ("v1".to_owned(), &other("veth")),
        ]
    );
    let lo = dump.link(&name("lo")).unwrap();
    assert!(lo.flags.contains(LinkFlags::UP | LinkFlags::LOOPBACK));
    let scopes: Vec<Scope> = dump.of(&name("v0")).map(|found| found.scope).collect();
    assert!(scopes.contains(&Scope::Other(77)), "{scopes:?}");
}

#[test]
fn a_dump_of_one_link_receives_only_objects_of_that_link() {
    let mut lab = Lab::new();
    let mut script = "link add b0 type bridge\nlink add b1 type bridge\n".to_owned();
    for host in 0..4000 {
        let (high, low) = (host / 250, host % 250);
        script += &format!("address add 10.1.{high}.{low}/32 dev b0\n");
    }
    script += "address add 10.2.0.1/32 dev b1\naddress add fd00::1/128 dev b1 nodad\n";
    lab.batch(&script);

    let all = lab.client.dump().unwrap();
    let whole = lab.client.counters();
    for link in ["b0", "b1", "lo"].map(name) {
        let part = lab.client.dump_link(&link).unwrap();
        assert_eq!(part.links().collect::<Vec<_>>(), [all.link(&link).unwrap()]);
        let addresses: Vec<_> = part.addresses().collect();
        assert_eq!(addresses, all.of(&link).collect::<Vec<_>>());
    }
    assert_eq!(all.of(&name("b0")).count(), 4000);
    for (family, addresses) in [(Family::V4, ["10.2.0.1/32"]), (Family::V6, ["fd00::1/128"])] {
        let part = lab.client.dump_link_in(&name("b1"), family).unwrap();
        let found = part.addresses().map(|address| address.net.to_string());
        assert_eq!(found.collect::<Vec<_>>(), addresses);
        assert_eq!(part.links().count(), 1);
    }
    let before = lab.client.counters().receives;
    let v6 = lab.client.dump_link_in(&name("b0"), Family::V6).unwrap();
    assert_eq!(v6.addresses().count(), 0);
    let receives = lab.client.counters().receives - before;
    assert!(receives <= 3, "{receives}");

    let before = lab.client.counters();
    lab.client.dump_link(&name("b1")).unwrap();
    let after = lab.client.counters();
    assert_eq!(after.sends - before.sends, 2, "the link, and its addresses");
    // The link and its acknowledgment, the addresses of each family, the end.
    let receives = after.receives - before.receives;
    assert!(receives <= 5, "{receives}");
    assert!(whole.receives > 2 * receives, "{whole:?}");
}

#[test]
fn the_dump_of_a_missing_link_is_empty() {
    let mut lab = Lab::new();
    let dump = lab.client.dump_link(&name("kube-ipvs0")).unwrap();
    assert_eq!(dump.into_objects().next(), None);
    assert_eq!(lab.client.link(&name("kube-ipvs0")).unwrap(), None);
}

#[test]
fn a_name_that_is_not_utf8_is_dumped() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    let mut lab = Lab::new();
    let odd = OsStr::from_bytes(b"odd\xff");
    lab.netns.run(|| {
        let status = Command::new("ip")
            .args(["link", "add"])
            .arg(odd)
            .args(["type", "bridge"])
            .status();
        assert!(status.unwrap().success());
    });
    let dump = lab.client.dump().unwrap();
    let found = dump.links().find(|link| link.name.to_str().is_none());
    let found = found.unwrap().clone();
    assert_eq!(found.name.as_bytes(), b"odd\xff");

    // The dumped name identifies the link in requests.
    let mut own = address("lo", "10.0.0.1/32");
    own.interface = found.name;
    lab.reach(&[found.name], &[found.into(), own.into()]);
}

#[test]
fn links_created_or_deleted_during_a_dump_cause_no_error() {
    let mut lab = Lab::new();
    lab.add([address("lo", "10.0.0.1/32").into()]);
    let lab = &mut lab;
    let is_over = AtomicBool::new(false);
    let mut whole = 0;
    thread::scope(|scope| {
        let churn = scope.spawn(|| {
            let other = Lab {
                client: lab.netns.run(vipline_rtnl::Client::open).unwrap(),
                netns: testkit::netns::Netns::open(lab.netns.path()).unwrap(),
            };
            for _ in 0..40 {
                other.batch(
                    "link add b0 type bridge\n\
                     address add 10.0.0.2/32 dev b0\n\
                     address add fd00::2/128 dev b0 nodad\n\
                     link delete b0\n",
                );
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let client = &mut lab.client;
        while !is_over.load(Ordering::Relaxed) && !churn.is_finished() {
            for dump in [
                client.dump(),
                client.dump_link(&name("lo")),
                client.dump_link(&name("b0")),
            ] {
                match dump {
                    Ok(dump) => {
                        let lonely = dump
                            .addresses()
                            .find(|address| dump.link(&address.interface).is_none());
                        assert_eq!(lonely, None);
                        whole += 1;
                    }
                    Err(Error::Interrupted { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    assert!(whole > 0);
}
