//! Persistence by client, firewall mark and SIP call, and one-packet scheduling.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command as Process;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, listen, socket};
use testkit::lab::Host;
use testkit::traffic::{Probe, Protocol};

use crate::ip;
use crate::site::{PORT, Site, VIRTUAL, both};

/// Timeout for all waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends one request and then several, and returns the number of replies of each
/// backend.
///
/// The first request is alone: of concurrent connections any can select the backend.
fn stay(site: &Site, probe: Probe, from: &Host) -> Vec<usize> {
    let first = site.shares(probe, from, 1);
    let rest = site.shares(probe, from, 5);
    first
        .iter()
        .zip(&rest)
        .map(|(one, other)| one + other)
        .collect()
}

#[test]
fn a_persistent_client_or_network_stays_with_its_server() {
    let mut site = Site::new(2);
    let wide = ["-M 255.255.0.0", "-M 32"];
    for protocol in both() {
        for (family, wide) in wide.iter().enumerate() {
            let one = site.serve(protocol, family, "-s rr -p 100", &["", ""]);
            let mut shares = [&site.lab.pod, &site.lab.remote].map(|host| {
                let shares = stay(&site, one, host);
                assert!(shares.contains(&6), "{protocol}: {shares:?}");
                shares
            });
            // The second client uses the next server.
            shares[1].reverse();
            assert_eq!(shares[0], shares[1], "{protocol}");
            let options = format!("-s rr -p 100 {wide}");
            let all = site.serve(protocol, family, &options, &["", ""]);
            let shares = [&site.lab.pod, &site.lab.remote].map(|host| stay(&site, all, host));
            assert_eq!(shares[0], shares[1], "{protocol} {options}");
        }
    }
}

/// Sends datagrams from one socket or from separate sockets and waits until the
/// backends received all datagrams.
/// Returns the number of datagrams per backend.
fn send(site: &Site, target: SocketAddr, datagrams: &[&str], is_alone: bool) -> Vec<usize> {
    let before = site.requests();
    site.lab.client.netns.run(|| {
        let open = || {
            let any: IpAddr = match target {
                SocketAddr::V4(_) => [0; 4].into(),
                SocketAddr::V6(_) => [0_u16; 8].into(),
            };
            UdpSocket::bind((any, 0)).unwrap()
        };
        let shared = open();
        for datagram in datagrams {
            let fresh = is_alone.then(open);
            let socket = fresh.as_ref().unwrap_or(&shared);
            socket.send_to(datagram.as_bytes(), target).unwrap();
        }
    });
    let deadline = Instant::now() + PATIENCE;
    loop {
        let after = site.requests();
        let got = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before);
        let got: Vec<usize> = got.collect();
        if got.iter().sum::<usize>() == datagrams.len() {
            return got;
        }
        assert!(Instant::now() < deadline, "some got lost: {got:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn one_packet_scheduling_schedules_each_packet_of_a_socket() {
    let mut site = Site::new(2);
    for family in 0..2 {
        let probe = site.serve(Protocol::Udp, family, "-s rr -o", &["", ""]);
        assert_eq!(send(&site, probe.target, &["hello"; 10], false), [5, 5]);
        let probe = site.serve(Protocol::Udp, family, "-s rr", &["", ""]);
        let together = send(&site, probe.target, &["hello"; 10], false);
        assert!(together.contains(&10), "{together:?}");
    }
}

#[test]
fn messages_of_a_sip_call_go_to_one_server() {
    let mut site = Site::new(2);
    let messages = [1, 2].map(|call| {
        format!(
            "OPTIONS sip:a@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.10\r\n\
                 Call-ID: call-{call}-of-many@192.0.2.10\r\nCSeq: 1 OPTIONS\r\n\r\n"
        )
    });
    let probe = site.serve(Protocol::Udp, 0, "-s rr -p 100 --pe sip", &["", ""]);
    let mut servers = messages.map(|message| {
        let server = send(&site, probe.target, &[&*message], true);
        let rest = send(&site, probe.target, &[&*message; 4], true);
        let fourfold: Vec<usize> = server.iter().map(|count| count * 4).collect();
        assert_eq!(rest, fourfold);
        server
    });
    // The second call uses the next server.
    servers[1].reverse();
    assert_eq!(servers[0], servers[1]);
}

#[test]
fn a_firewall_mark_combines_many_addresses_into_one_service() {
    let mut site = Site::new(2);
    let rules = "table inet marks {
        chain marks {
            type filter hook prerouting priority mangle;
            ip daddr 203.0.113.1 meta mark set 7
            ip6 daddr 2001:db8:2::1 meta mark set 7
        }
    }";
    let nft = site
        .lab
        .node
        .netns
        .run(|| Process::new("nft").arg(rules).output());
    let nft = nft.expect("nft is installed");
    assert!(nft.status.success(), "{nft:?}");
    let options = ["-f 7", "-f 7 -6"].into_iter().zip(VIRTUAL);
    for (family, (option, address)) in options.enumerate() {
        let mut text = format!("-A {option} -s rr\n");
        for backend in &site.lab.backends {
            // Port 0 keeps the port of the packet.
            let real = SocketAddr::new(backend.addresses()[family], 0);
            text += &format!("-a {option} -r {real} -m\n");
        }
        site.commit(&text);
        for protocol in both() {
            let probe = Probe::new(protocol, (ip(address), PORT).into());
            assert_eq!(site.shares(probe, &site.lab.client, 10), [5, 5]);
        }
    }
}

/// Opens an SCTP socket with timeouts.
fn sctp(address: SocketAddr) -> rustix::fd::OwnedFd {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket(family, SocketType::STREAM, Some(ipproto::SCTP)).unwrap();
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, direction, Some(PATIENCE)).unwrap();
    }
    socket
}

#[test]
fn sctp_associations_are_scheduled_round_robin() {
    /// Number of replies per server.
    const EACH: usize = 2;
    let mut site = Site::new(2);
    for (family, address) in VIRTUAL.into_iter().enumerate() {
        let target = SocketAddr::new(ip(address), 99);
        let mut text = format!("-A --sctp-service {target} -s rr\n");
        for backend in &site.lab.backends {
            let real = SocketAddr::new(backend.addresses()[family], PORT);
            text += &format!("-a --sctp-service {target} -r {real} -m\n");
        }
        site.commit(&text);
        let mut listeners = Vec::new();
        for backend in &site.lab.backends {
            let at = SocketAddr::new(backend.addresses()[family], PORT);
            listeners.push(backend.netns.run(|| {
                let socket = sctp(at);
                bind(&socket, &at).unwrap();
                listen(&socket, 8).unwrap();
                TcpListener::from(socket)
            }));
        }
        let mut names = thread::scope(|scope| {
            for (listener, backend) in listeners.iter().zip(&site.lab.backends) {
                scope.spawn(move || {
                    for _ in 0..EACH {
                        let (mut stream, _) = listener.accept().unwrap();
                        writeln!(stream, "{}", backend.name).unwrap();
                    }
                });
            }
            let probe = |_| {
                site.lab.client.netns.run(|| {
                    let socket = sctp(target);
                    connect(&socket, &target).unwrap();
                    let mut name = String::new();
                    TcpStream::from(socket).read_to_string(&mut name).unwrap();
                    name
                })
            };
            (0..2 * EACH).map(probe).collect::<Vec<_>>()
        });
        names.sort();
        let expected = ["backend-1\n", "backend-1\n", "backend-2\n", "backend-2\n"];
        assert_eq!(names, expected, "{address}");
    }
}
