//! Real servers with every forwarding method.

use vipline_ipvs::{
    Checksum, Forwarding, RealServer, Scheduler, ServiceKey, Table, Transport, Tunnel,
    VirtualServer,
};
use vipline_netlink::Errno;

use crate::{check, commands, ip, with_client};

/// Returns a real server for every forwarding method.
fn reals() -> Vec<RealServer> {
    let base = RealServer::new(ip("10.1.0.1"), 80);
    let checksums = [Checksum::None, Checksum::Full, Checksum::Remote];
    let gue = |checksum| Tunnel::Gue {
        port: 6080,
        checksum,
    };
    let gre = [Checksum::None, Checksum::Full].map(|checksum| Tunnel::Gre { checksum });
    let mut tunnels = vec![Tunnel::Ipip];
    tunnels.extend(checksums.map(gue));
    tunnels.extend(gre);
    let mut ways = vec![
        Forwarding::Masquerade,
        Forwarding::Direct,
        Forwarding::Local,
    ];
    ways.extend(tunnels.into_iter().map(Forwarding::Tunnel));
    let mut reals = Vec::new();
    for (place, forwarding) in ways.into_iter().enumerate() {
        let port = 8000 + u16::try_from(place).unwrap();
        let weight = u32::try_from(place).unwrap() * 1000;
        let real = RealServer::new(base.address, port);
        reals.push(real.with_forwarding(forwarding).with_weight(weight));
    }
    reals.push(
        base.with_weight(i32::MAX.unsigned_abs())
            .with_upper_threshold(100)
            .with_lower_threshold(50),
    );
    // A tunnel can use the other address family.
    let other_family = RealServer::new(ip("fd00::2"), base.port);
    reals.push(other_family.with_forwarding(Forwarding::Tunnel(Tunnel::Ipip)));
    reals
}

#[test]
fn every_forwarding_method_is_dumped_unchanged() {
    with_client(|client| {
        let mut table = Table::default();
        let service = ServiceKey::new(Transport::Tcp, ip("10.0.0.1"), 80);
        table.insert(VirtualServer::new(service, Scheduler::WeightedRoundRobin));
        for real in reals() {
            table.insert_destination(&service, real);
        }
        let v6 = ServiceKey::new(Transport::Tcp, ip("fd00::1"), 80);
        table.insert(VirtualServer::new(v6, Scheduler::Maglev));
        table.insert_destination(&v6, RealServer::new(ip("fd00::2"), 8080));
        check(client, &table);
        // Each real server is changed in place.
        for real in reals() {
            let forwarding = Forwarding::Masquerade;
            let changed = real.with_weight(7).with_forwarding(forwarding);
            if real.address.is_ipv4() {
                table.insert_destination(&service, changed);
            }
        }
        check(client, &table);
        check(client, &Table::default());
    });
}

#[test]
fn only_tunnels_use_the_other_address_family() {
    with_client(|client| {
        let servers = "-A -t 10.0.0.1:80 -s rr\n-A -t [fd00::1]:80 -s rr\n";
        client.commit(&commands(servers)).unwrap();
        for real in [
            "-t 10.0.0.1:80 -r [fd00::2]:80",
            "-t [fd00::1]:80 -r 10.1.0.1:80",
        ] {
            let error = client.commit(&commands(&format!("-a {real} -m")));
            assert_eq!(error.unwrap_err().errno(), Some(Errno::INVAL), "{real}");
        }
        let mut table: Table = servers.parse().unwrap();
        for (service, real) in [
            ("10.0.0.1", "fd00::2"),
            ("10.0.0.1", "10.1.0.1"),
            ("fd00::1", "10.1.0.1"),
            ("fd00::1", "fd00::2"),
        ] {
            let tunnel = Forwarding::Tunnel(Tunnel::Ipip);
            let real = RealServer::new(ip(real), 80).with_forwarding(tunnel);
            table.insert_destination(&ServiceKey::new(Transport::Tcp, ip(service), 80), real);
        }
        check(client, &table);
    });
}
