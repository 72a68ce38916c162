//! Links, addresses, routes and neighbors of the calling thread's network namespace.
//!
//! Contains a minimal rtnetlink client, so that labs depend neither on programs nor on
//! the crates under test.
//! Constants are from `linux/rtnetlink.h`, `if_link.h`, `if_addr.h`, `neighbour.h` and
//! `veth.h`.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use ipnet::IpNet;
use rustix::net::netdevice::name_to_index;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;

/// Next hop of a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hop {
    /// The destination is on the link.
    Link,
    /// The destination is reached through this gateway.
    Via(IpAddr),
    /// All addresses of the destination are local.
    Local,
}

/// Sets a link up.
pub fn up(name: &str) -> io::Result<()> {
    let mut body = link_header(index(name)?, IFF_UP);
    request(RTM_NEWLINK, 0, &mut body).map_err(|error| named(&error, "set up link", name))
}

/// Adds a veth pair, with the peer in another namespace.
///
/// Both links are created in their namespaces, so no other namespace contains them.
pub fn add_pair(name: &str, peer: &str, namespace: BorrowedFd<'_>) -> io::Result<()> {
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_INFO_DATA: u16 = 2;
    const VETH_INFO_PEER: u16 = 1;
    const IFLA_NET_NS_FD: u16 = 28;

    let mut body = link_header(0, 0);
    put(&mut body, IFLA_IFNAME, &terminated(name));
    nest(&mut body, IFLA_LINKINFO, |info| {
        put(info, IFLA_INFO_KIND, b"veth");
        nest(info, IFLA_INFO_DATA, |data| {
            nest(data, VETH_INFO_PEER, |other| {
                other.extend(link_header(0, 0));
                put(other, IFLA_IFNAME, &terminated(peer));
                put(other, IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
            });
        });
    });
    request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &mut body)
        .map_err(|error| named(&error, "add link", name))
}

/// Adds an address to a link, without duplicate address detection.
pub fn add_address(name: &str, address: IpNet) -> io::Result<()> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_F_NODAD: u8 = 2;
    const SCOPE: u8 = 0;

    let flags = match address {
        IpNet::V4(_) => 0,
        IpNet::V6(_) => IFA_F_NODAD,
    };
    let mut body = vec![family(address.addr()), address.prefix_len(), flags, SCOPE];
    body.extend(index(name)?.to_ne_bytes());
    put(&mut body, IFA_LOCAL, &octets(address.addr()));
    put(&mut body, IFA_ADDRESS, &octets(address.addr()));
    request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &mut body)
        .map_err(|error| named(&error, &format!("add address {address} to link"), name))
}

/// Adds a route through a link to the main table.
pub fn add_route(destination: IpNet, hop: Hop, name: &str) -> io::Result<()> {
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    const RTA_GATEWAY: u16 = 5;
    const RT_TABLE_MAIN: u8 = 254;
    const RTPROT_STATIC: u8 = 4;
    const RTN_UNICAST: u8 = 1;
    const RTN_LOCAL: u8 = 2;
    const RT_SCOPE_UNIVERSE: u8 = 0;
    const RT_SCOPE_LINK: u8 = 253;
    const RT_SCOPE_HOST: u8 = 254;

    let (kind, scope) = match hop {
        Hop::Link => (RTN_UNICAST, RT_SCOPE_LINK),
        Hop::Via(_) => (RTN_UNICAST, RT_SCOPE_UNIVERSE),
        Hop::Local => (RTN_LOCAL, RT_SCOPE_HOST),
    };
    let mut body = vec![family(destination.addr()), destination.prefix_len(), 0, 0];
    body.extend([RT_TABLE_MAIN, RTPROT_STATIC, scope, kind, 0, 0, 0, 0]);
    if destination.prefix_len() > 0 {
        put(&mut body, RTA_DST, &octets(destination.network()));
    }
    if let Hop::Via(gateway) = hop {
        put(&mut body, RTA_GATEWAY, &octets(gateway));
    }
    put(&mut body, RTA_OIF, &index(name)?.to_ne_bytes());
    request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &mut body)
        .map_err(|error| named(&error, &format!("add route {destination} through"), name))
}

/// Adds a permanent neighbor with a link-layer address.
pub fn add_neighbor(name: &str, address: IpAddr, link_address: [u8; 6]) -> io::Result<()> {
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;
    const NUD_PERMANENT: u16 = 0x80;

    // A `struct ndmsg`: family, index, state, flags, type.
    let mut body = vec![family(address), 0, 0, 0];
    body.extend(index(name)?.to_ne_bytes());
    body.extend(NUD_PERMANENT.to_ne_bytes());
    body.extend([0, 0]);
    put(&mut body, NDA_DST, &octets(address));
    put(&mut body, NDA_LLADDR, &link_address);
    request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, &mut body)
        .map_err(|error| named(&error, &format!("add neighbor {address} to link"), name))
}

/// Returns the number of packets that a link received.
pub fn received(name: &str) -> io::Result<u64> {
    const FILE: &str = "/proc/thread-self/net/dev";
    let links = fs::read_to_string(FILE)?;
    let line = links
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    // Bytes, packets, …
    let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    packets.ok_or_else(|| io::Error::other(format!("{FILE} has no packets of {name}")))
}

/// Sets a value under `/proc/sys/net`, such as `ipv4/ip_forward`.
pub fn set_sysctl(path: &str, value: &str) -> io::Result<()> {
    let file = format!("/proc/sys/net/{path}");
    fs::write(&file, value).map_err(|error| named(&error, "set", &file))
}

const IFF_UP: u32 = 1;
const IFLA_IFNAME: u16 = 3;

/// A `struct ifinfomsg`: family, type, index, flags, mask of flags to change.
fn link_header(index: u32, flags: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    header.extend(index.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header
}

/// Sends one request and waits for its acknowledgment.
fn request(kind: u16, flags: u16, body: &mut Vec<u8>) -> io::Result<()> {
    const HEADER: usize = 16;
    let mut message = u32::try_from(HEADER + body.len())
        .expect("a request is small")
        .to_ne_bytes()
        .to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    message.extend([0; 8]);
    message.append(body);

    let socket = route_socket()?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &message, SendFlags::empty(), &kernel)?;
    let mut answer = [0; 8192];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let answer = &answer[..length];
    let kind = answer.get(4..6).map(|kind| [kind[0], kind[1]]);
    let errno = answer.get(HEADER..HEADER + 4);
    match (kind.map(u16::from_ne_bytes), errno) {
        (Some(NLMSG_ERROR), Some(&[a, b, c, d])) => match i32::from_ne_bytes([a, b, c, d]) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        },
        _ => Err(io::Error::other("not an acknowledgment")),
    }
}

/// Opens a netlink socket of protocol 0, `NETLINK_ROUTE`.
fn route_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

fn index(name: &str) -> io::Result<u32> {
    Ok(name_to_index(route_socket()?, name)?)
}

/// Appends an attribute, padded to four bytes.
fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("an attribute is small");
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn nest(out: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    const NLA_F_NESTED: u16 = 0x8000;
    let mut inner = Vec::new();
    fill(&mut inner);
    put(out, kind | NLA_F_NESTED, &inner);
}

fn terminated(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

fn family(address: IpAddr) -> u8 {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    u8::try_from(family.as_raw()).expect("address families fit in u8")
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn named(error: &io::Error, action: &str, name: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{action} {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;
    use crate::netns::Netns;

    #[test]
    fn two_namespaces_connected_by_a_pair_reach_each_other_in_both_families() {
        let (left, right) = (Netns::new().unwrap(), Netns::new().unwrap());
        let addresses: [[IpNet; 2]; 2] = [
            ["192.0.2.1/24", "192.0.2.2/24"].map(|net| net.parse().unwrap()),
            ["2001:db8::1/64", "2001:db8::2/64"].map(|net| net.parse().unwrap()),
        ];
        left.run(|| add_pair("left", "right", right.as_fd()))
            .unwrap();
        for (netns, name, side) in [(&left, "left", 0), (&right, "right", 1)] {
            netns.run(|| {
                up(name).unwrap();
                for family in addresses {
                    add_address(name, family[side]).unwrap();
                }
            });
        }
        for family in addresses {
            let listener = right
                .run(|| TcpListener::bind((family[1].addr(), 0)))
                .unwrap();
            let target = listener.local_addr().unwrap();
            assert!(left.run(|| TcpStream::connect(target)).is_ok(), "{target}");
        }
    }

    #[test]
    fn packets_to_a_permanent_neighbor_are_received_without_address_resolution() {
        let (left, right) = (Netns::new().unwrap(), Netns::new().unwrap());
        for netns in [&left, &right] {
            netns
                .run(|| set_sysctl("ipv6/conf/default/disable_ipv6", "1"))
                .unwrap();
        }
        left.run(|| add_pair("left", "right", right.as_fd()))
            .unwrap();
        right.run(|| up("right")).unwrap();
        let target: IpAddr = "192.0.2.2".parse().unwrap();
        left.run(|| {
            up("left")?;
            add_address("left", "192.0.2.1/24".parse().unwrap())?;
            add_neighbor("left", target, [2, 0, 0, 0, 0, 1])?;
            let socket = UdpSocket::bind("192.0.2.1:0")?;
            (0..3).try_for_each(|_| socket.send_to(b"a", (target, 9)).map(|_| ()))
        })
        .unwrap();
        assert_eq!(right.run(|| received("right")).unwrap(), 3);
        assert!(right.run(|| received("righ")).is_err());
    }

    #[test]
    fn errors_name_the_action_and_the_link() {
        let netns = Netns::new().unwrap();
        let route = "198.51.100.0/24".parse().unwrap();
        let gateway = Hop::Via("203.0.113.1".parse().unwrap());
        let error = netns.run(|| add_route(route, gateway, "lo")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("add route 198.51.100.0/24 through lo: "),
            "{error}"
        );
        let error = netns
            .run(|| add_address("lo", "127.0.0.1/8".parse().unwrap()))
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
}
