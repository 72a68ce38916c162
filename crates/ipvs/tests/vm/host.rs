//! Timeouts, version, statistics and sync daemons.

use std::net::UdpSocket;
use std::process::Command as Process;
use std::thread::sleep;
use std::time::{Duration, Instant};

use vipline_ipvs::{Role, ServiceKey, SyncDaemon, Timeouts, Transport};

use crate::{commands, ip, ipvsadm, with_client};

#[test]
fn timeouts_version_and_statistics_equal_those_of_ipvsadm() {
    with_client(|client| {
        let timeouts = Timeouts {
            tcp: Duration::from_secs(100),
            tcp_fin: Duration::from_secs(20),
            udp: Duration::ZERO,
        };
        let before = client.timeouts().unwrap();
        client.set_timeouts(&timeouts).unwrap();
        let after = client.timeouts().unwrap();
        assert_eq!((after.tcp, after.tcp_fin), (timeouts.tcp, timeouts.tcp_fin));
        assert_eq!(after.udp, before.udp);
        let udp = before.udp.as_secs();
        assert!(ipvsadm("-Ln --timeout").contains(&format!("100 20 {udp}")));
        let info = client.info().unwrap();
        let [major, minor, patch] = info.version;
        let text = format!("version {major}.{minor}.{patch} (size={})", info.table_size);
        assert!(ipvsadm("-Ln").contains(&text));
        let service = ServiceKey::new(Transport::Udp, ip("127.0.0.1"), 53);
        let absent = client.server(&service).unwrap_err();
        assert!(absent.is_not_found(), "{absent}");
        assert!(client.zero(Some(&service)).unwrap_err().is_not_found());
        client
            .commit(&commands(
                "-A -u 127.0.0.1:53 -s rr\n-a -u 127.0.0.1:53 -r 127.0.0.1:9953 -m",
            ))
            .unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"hello", "127.0.0.1:53").unwrap();
        // The kernel sums its per-CPU counters every two seconds.
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut stats = client.server(&service).unwrap().1;
        while stats.packets_in == 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
            stats = client.server(&service).unwrap().1;
        }
        assert_eq!((stats.connections, stats.packets_in), (1, 1));
        assert_eq!(stats.bytes_in, 20 + 8 + 5);
        let reals = client.destinations(&service).unwrap();
        assert_eq!(reals[0].stats.connections, 1);
        assert_eq!(reals[0].connections.inactive, 1);
        let connections = client.connections().unwrap();
        let [connection] = &connections[..] else {
            panic!("{connections:?}");
        };
        let port = socket.local_addr().unwrap().port();
        assert_eq!(connection.client.to_string(), format!("127.0.0.1:{port}"));
        assert_eq!(connection.service.to_string(), "127.0.0.1:53");
        assert_eq!(connection.destination.to_string(), "127.0.0.1:9953");
        assert_eq!(&*connection.state, "UDP");
        let table = std::fs::read_to_string("/proc/thread-self/net/ip_vs_conn").unwrap();
        assert!(
            table.contains(&connection.to_string()[..46]),
            "{table}{connection}"
        );
        client.zero(Some(&service)).unwrap();
        assert_eq!(client.server(&service).unwrap().1.connections, 0);
        client.zero(None).unwrap();
    });
}

#[test]
fn sync_daemons_start_and_stop() {
    with_client(|client| {
        let links = "link add d0 type dummy
            link set d0 up
            address add 192.0.2.1/24 dev d0";
        for line in links.lines() {
            let status = Process::new("ip")
                .args(line.split_ascii_whitespace())
                .status();
            assert!(status.unwrap().success(), "ip {line}");
        }
        assert!(client.sync_daemons().unwrap().is_empty());
        let master = SyncDaemon::new(Role::Master, "d0", 5)
            .with_max_len(1400)
            .with_multicast_group(ip("224.0.0.90"))
            .with_port(9000)
            .with_ttl(3);
        client.start_sync_daemon(&master).unwrap();
        assert!(
            client
                .start_sync_daemon(&master)
                .unwrap_err()
                .is_already_exists()
        );
        client
            .start_sync_daemon(&SyncDaemon::new(Role::Backup, "d0", 6))
            .unwrap();
        let daemons = client.sync_daemons().unwrap();
        assert_eq!(daemons[0], master);
        assert_eq!((daemons[1].role, daemons[1].sync_id), (Role::Backup, 6));
        let text = ipvsadm("-Ln --daemon");
        assert!(
            text.contains("master sync daemon (mcast=d0, syncid=5"),
            "{text}"
        );
        client.stop_sync_daemon(Role::Master).unwrap();
        client.stop_sync_daemon(Role::Backup).unwrap();
        assert!(
            client
                .stop_sync_daemon(Role::Backup)
                .unwrap_err()
                .is_not_found()
        );
        assert!(client.sync_daemons().unwrap().is_empty());
    });
}
