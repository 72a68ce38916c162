//! Tests of dummy links and their addresses against the running kernel.
//!
//! Requires root and the kernel module `dummy`; each test runs in a new network
//! namespace.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "lab/mod.rs"]
mod lab;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lab::{Lab, address, name};
use vipline_reconcile::{Edit, diff};
use vipline_rtnl::{AddressFlags, Commands, Kind, Link, LinkFlags, Object};

const LINK: &str = "kube-ipvs0";

/// Returns the link and `count` addresses of each family.
fn services(count: u16) -> Vec<Object> {
    let mut objects = vec![Link::dummy(name(LINK)).into()];
    for number in 0..count {
        let [high, low] = number.to_be_bytes();
        objects.push(address(LINK, &format!("10.96.{high}.{low}/32")).into());
        objects.push(address(LINK, &format!("fd00:96::{number:x}/128")).into());
    }
    objects
}

#[test]
fn a_dummy_link_is_created_and_deleted_with_its_addresses() {
    let mut lab = Lab::new();
    let names = [name(LINK)];
    lab.reach(&names, &services(20));
    lab.assert_judged();
    let link = lab.client.link(&name(LINK)).unwrap().unwrap();
    assert_eq!(link.kind, Kind::Dummy);
    assert!(link.flags.contains(LinkFlags::NO_ARP) && !link.is_up());
    let details = lab.ip("-details link show dev kube-ipvs0");
    assert!(details.contains("dummy"), "{details}");
    for found in lab.dump_links(&names).addresses() {
        let tried = AddressFlags::TENTATIVE | AddressFlags::DAD_FAILED;
        assert!(!found.flags.intersects(tried), "{found:?}");
    }

    // Fewer, more, none.
    lab.reach(&names, &services(5));
    lab.reach(&names, &services(30));
    lab.reach(&names, &services(0));
    lab.reach(&names, &services(3));
    let edits = diff(lab.dump_links(&names).into_objects(), &[]);
    let commands = Commands::from_edits(&edits);
    assert_eq!(commands.to_string(), "link delete kube-ipvs0\n");
    lab.client.commit(&commands).unwrap();
    assert_eq!(lab.client.link(&name(LINK)).unwrap(), None);
    lab.assert_judged();
}

#[test]
fn ip_batch_creates_the_same_objects_from_the_text() {
    let (mut ours, mut theirs) = (Lab::new(), Lab::new());
    let added: Vec<_> = services(10).into_iter().map(Edit::Add).collect();
    let commands = Commands::from_edits(&added);
    let text = commands.to_string();
    let start = "link add kube-ipvs0 type dummy\n\
                 address add 10.96.0.0/32 dev kube-ipvs0\n\
                 address add fd00:96::/128 dev kube-ipvs0 nodad\n";
    assert!(text.starts_with(start), "{text}");
    ours.client.commit(&commands).unwrap();
    theirs.batch(&text);
    let [one, other] = [&mut ours, &mut theirs].map(|lab| lab.client.dump().unwrap());
    let (one, other): (Vec<_>, Vec<_>) = (one.addresses().collect(), other.addresses().collect());
    assert_eq!(one, other);
    assert_eq!(one.len(), 2 + 20);
}

#[test]
fn the_host_accepts_connections_to_addresses_of_a_dummy_link_that_is_down() {
    let mut lab = Lab::new();
    lab.reach(&[name(LINK)], &services(2));
    lab.netns.run(|| {
        for ip in ["10.96.0.1", "fd00:96::1"] {
            let ip: IpAddr = ip.parse().unwrap();
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let target = listener.local_addr().unwrap();
            let stream = connect_when_routed(target).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), target);
        }
    });
}

/// Connects to a local address as soon as it has a route, within 5 s.
///
/// The kernel acknowledges an IPv6 address before its work queue adds the local route
/// (`addrconf_dad_work`). Until then `connect` fails with `ENETUNREACH`.
fn connect_when_routed(target: SocketAddr) -> io::Result<TcpStream> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match TcpStream::connect(target) {
            Err(error)
                if error.kind() == io::ErrorKind::NetworkUnreachable
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

#[test]
fn a_link_of_another_type_with_the_same_name_is_replaced() {
    let mut lab = Lab::new();
    lab.ip("link add kube-ipvs0 type veth peer name other");
    let error = lab
        .commit(&[Edit::Add(Link::dummy(name(LINK)).into())])
        .unwrap_err();
    assert!(error.is_already_exists(), "{error}");
    let wanted = services(1);
    let edits = diff(lab.dump_links(&[name(LINK)]).into_objects(), &wanted);
    let text = Commands::from_edits(&edits).to_string();
    let start = "link delete kube-ipvs0\nlink add kube-ipvs0 type dummy\naddress add ";
    assert!(text.starts_with(start), "{text}");
    lab.reach(&[name(LINK)], &wanted);
}

#[test]
fn thousands_of_addresses_are_changed_in_few_datagrams() {
    let mut lab = Lab::new();
    let objects = services(1000);
    let before = lab.client.counters();
    lab.add(objects.clone());
    // The link, its index, and 2,000 messages, 128 per datagram.
    assert_eq!(lab.client.counters().sends - before.sends, 2 + 16);
    lab.reach(&[name(LINK)], &objects);
    lab.reach(&[name(LINK)], &objects[..1]);
}
