//! Tests of namespaces, descriptors, options and memberships against the running kernel.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test opens sockets and files itself"
)]

use std::fs::read_link;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, netlink, socket, sockopt};
use testkit::netns::Netns;
use vipline_netlink::attr::put;
use vipline_netlink::generic::put_header;
use vipline_netlink::message::Message;
use vipline_netlink::{
    Dump, Errno, Error, Event, KernelError, Listener, NetworkNamespace, Protocol, Socket,
    SocketOption,
};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
// enum rtnetlink_groups
const RTNLGRP_LINK: u32 = 1;
/// `struct ifinfomsg`, all zero.
const ANY_LINK: [u8; 16] = [0; 16];

fn current() -> PathBuf {
    read_link("/proc/thread-self/ns/net").unwrap()
}

/// Returns the number of links that the socket dumps.
fn links(socket: &mut Socket) -> usize {
    let count = |count: &mut usize, _: Message<'_>| {
        *count += 1;
        Ok::<(), Error>(())
    };
    let Dump::Complete(links) = socket.dump(RTM_GETLINK, &ANY_LINK, 3, || 0, count).unwrap() else {
        panic!("nothing changes in this namespace");
    };
    links
}

/// Changes the alias of the loopback device, which notifies the group of links.
fn change(socket: &mut Socket) {
    let mut payload = ANY_LINK.to_vec();
    payload[4] = 1;
    put(&mut payload, 20, b"alias\0");
    let each = |_: Message<'_>| Ok::<(), Error>(());
    socket.request(RTM_NEWLINK, 0, &payload, each).unwrap();
}

fn rejected(socket: &mut Socket, ty: u16, payload: &[u8]) -> KernelError {
    let each = |_: Message<'_>| Ok::<(), Error>(());
    match socket.request(ty, 0, payload, each) {
        Err(Error::Kernel(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_socket_opens_in_another_namespace_and_the_thread_returns() {
    let netns = Netns::new().unwrap();
    netns.run(|| {
        let mut socket = Socket::open(Protocol::ROUTE).unwrap();
        assert_eq!(links(&mut socket), 1);
    });
    let before = current();
    let by_path = NetworkNamespace::open(netns.path()).unwrap();
    let by_fd = NetworkNamespace::from(netns.as_fd().try_clone_to_owned().unwrap());
    for namespace in [by_path, by_fd] {
        let (inside, socket) = namespace
            .run(|| (current(), Socket::open(Protocol::ROUTE)))
            .unwrap();
        assert_eq!(inside, netns.run(current));
        assert_ne!(inside, before);
        assert_eq!(current(), before);
        assert_eq!(links(&mut socket.unwrap()), 1);
    }
}

#[test]
fn the_thread_returns_to_its_namespace_after_a_panic_and_after_errors() {
    let netns = Netns::new().unwrap();
    let namespace = NetworkNamespace::open(netns.path()).unwrap();
    let before = current();
    let panicked = catch_unwind(AssertUnwindSafe(|| namespace.run(|| panic!("inside"))));
    assert!(panicked.is_err());
    assert_eq!(current(), before);

    let no_namespace: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let failed = NetworkNamespace::from(no_namespace).run(|| panic!("never called"));
    assert_eq!(failed.unwrap_err().errno(), Some(Errno::INVAL));
    assert_eq!(current(), before);
    let missing = NetworkNamespace::open("/run/netns/no-such-namespace").unwrap_err();
    assert_eq!(missing.errno(), Some(Errno::NOENT));
}

/// Opens a netlink socket without this crate.
fn foreign_socket() -> OwnedFd {
    // NETLINK_ROUTE is the default protocol.
    socket(AddressFamily::NETLINK, SocketType::RAW, None).unwrap()
}

#[test]
fn an_existing_descriptor_is_a_socket() {
    let netns = Netns::new().unwrap();
    let mut socket = netns.run(|| Socket::from_fd(foreign_socket())).unwrap();
    assert_ne!(socket.port_id(), 0);
    assert_eq!(links(&mut socket), 1);
    let option = socket.set_option(SocketOption::ExtAck, true).unwrap_err();
    let Error::Io { source, .. } = &option else {
        panic!("{option:?}");
    };
    assert_eq!(source.kind(), std::io::ErrorKind::Unsupported);

    let udp = socket_of_another_family();
    let error = Socket::from_fd(udp).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::AFNOSUPPORT));
}

fn socket_of_another_family() -> OwnedFd {
    socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap()
}

#[test]
fn an_existing_descriptor_keeps_its_memberships() {
    let netns = Netns::new().unwrap();
    let (mut listener, mut changer) = netns.run(|| {
        let fd = foreign_socket();
        rustix::net::bind(&fd, &netlink::SocketAddrNetlink::new(0, 1)).unwrap();
        (
            Listener::from_fd(fd).unwrap(),
            Socket::open(Protocol::ROUTE).unwrap(),
        )
    });
    change(&mut changer);
    assert_eq!(received(&mut listener), 1);
}

/// Returns the number of events since the last call.
fn received(listener: &mut Listener) -> usize {
    let mut count = 0;
    listener
        .read(|event| count += usize::from(matches!(event, Event::Message(_))))
        .unwrap();
    count
}

#[test]
fn a_listener_that_left_a_group_receives_no_notifications() {
    let netns = Netns::new().unwrap();
    let (mut listener, mut changer) = netns.run(|| {
        (
            Listener::open(Protocol::ROUTE).unwrap(),
            Socket::open(Protocol::ROUTE).unwrap(),
        )
    });
    listener.join(RTNLGRP_LINK).unwrap();
    change(&mut changer);
    assert_eq!(received(&mut listener), 1);
    listener.leave(RTNLGRP_LINK).unwrap();
    change(&mut changer);
    assert_eq!(received(&mut listener), 0);
    assert!(listener.join(9999).is_err(), "no such group");
}

#[test]
fn groups_of_a_generic_family_have_names() {
    let mut socket = Socket::open(Protocol::GENERIC).unwrap();
    let controller = socket.generic_family("nlctrl").unwrap().unwrap();
    assert_eq!((controller.id, &*controller.name), (16, "nlctrl"));
    assert_eq!(controller.header_size, 0);
    let group = controller.group("notify").unwrap();
    let mut listener = Listener::open(Protocol::GENERIC).unwrap();
    listener.join(group).unwrap();
    assert_eq!(socket.generic_family("no-such-family").unwrap(), None);
}

#[test]
fn all_options_of_an_own_socket_can_be_set() {
    let socket = Socket::open(Protocol::ROUTE).unwrap();
    let listener = Listener::open(Protocol::ROUTE).unwrap();
    for option in [
        SocketOption::BroadcastError,
        SocketOption::CapAck,
        SocketOption::ExtAck,
        SocketOption::ListenAllNsid,
        SocketOption::NoEnobufs,
        SocketOption::StrictCheck,
    ] {
        for value in [true, false] {
            socket.set_option(option, value).unwrap();
            listener.set_option(option, value).unwrap();
        }
    }
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let size = sockopt::socket_recv_buffer_size(socket.as_fd()).unwrap();
    assert_eq!(size, 64 << 10);
    assert_eq!(socket.as_raw_fd(), socket.as_fd().as_raw_fd());
    assert_eq!(listener.as_raw_fd(), listener.as_fd().as_raw_fd());
    socket.set_timeout(Duration::from_millis(1)).unwrap();
}

#[test]
fn without_no_enobufs_an_overrun_is_reported_and_with_it_not() {
    let netns = Netns::new().unwrap();
    for (option, reported) in [(false, true), (true, false)] {
        let (mut listener, mut changer) = netns.run(|| {
            (
                Listener::open(Protocol::ROUTE).unwrap(),
                Socket::open(Protocol::ROUTE).unwrap(),
            )
        });
        listener.set_recv_buffer_size(4096).unwrap();
        listener
            .set_option(SocketOption::NoEnobufs, option)
            .unwrap();
        listener.join(RTNLGRP_LINK).unwrap();
        for _ in 0..100 {
            change(&mut changer);
        }
        let mut overrun = false;
        listener
            .read(|event| overrun |= event == Event::Overrun)
            .unwrap();
        assert_eq!(overrun, reported);
    }
}

#[test]
fn a_violated_policy_is_reported() {
    let netns = Netns::new().unwrap();
    let mut socket = netns.run(|| Socket::open(Protocol::ROUTE)).unwrap();
    let mut payload = ANY_LINK.to_vec();
    // IFLA_IFNAME has at most 15 bytes and a NUL byte.
    put(&mut payload, 3, &[b'x'; 20]);
    let error = rejected(&mut socket, RTM_DELLINK, &payload);
    let policy = error.policy().unwrap();
    assert_eq!(policy.type_name(), Some("string"));
    assert_eq!(policy.max_length, Some(15));
    assert_eq!(error.cookie(), None);
}

#[test]
fn a_missing_attribute_is_reported() {
    let mut socket = Socket::open(Protocol::GENERIC).unwrap();
    let netdev = socket.generic_family("netdev").unwrap().unwrap();
    // NETDEV_CMD_DEV_GET without NETDEV_A_DEV_IFINDEX, whose type is 1.
    let mut payload = Vec::new();
    put_header(&mut payload, 1, 1);
    let error = rejected(&mut socket, netdev.id, &payload);
    assert_eq!(error.errno, Errno::INVAL);
    assert_eq!(
        (error.missing_type(), error.missing_nest()),
        (Some(1), None)
    );
}
