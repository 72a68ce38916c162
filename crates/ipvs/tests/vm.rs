//! IPVS of a real kernel: what we make is what we read and what `ipvsadm` prints.
//!
//! Runs as root where the kernel has IPVS, in network namespaces of its own.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

use std::net::IpAddr;
use std::process::Command as Process;
use std::thread::sleep;
use std::time::{Duration, Instant};

use testkit::netns::Netns;
use vipline_ipvs::{
    Checksum, Client, Command, Commands, Daemon, Engine, Error, Family, Flags, Forwarding, Netmask,
    Object, Persistence, Protocol, RealServer, Role, Scheduler, Service, Table, Timeouts, Tunnel,
    VirtualServer,
};
use vipline_reconcile::{Edit, diff};

/// Runs a test in a namespace of its own.
fn with_client(test: impl FnOnce(&mut Client) + Send) {
    let netns = Netns::new().unwrap();
    netns.run(|| {
        let mut client = Client::open().expect("the kernel has IPVS");
        test(&mut client);
    });
}

/// Runs `ipvsadm`, and returns what it prints.
fn ipvsadm(args: &str) -> String {
    let output = Process::new("ipvsadm")
        .args(args.split_ascii_whitespace())
        .output()
        .expect("ipvsadm is installed");
    assert!(output.status.success(), "ipvsadm {args}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the lines of `ipvsadm -Sn` in an order of their own.
fn saved() -> Vec<String> {
    sorted(&ipvsadm("-Sn"))
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.sort();
    lines
}

fn commands(text: &str) -> Commands {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Makes a table, and compares what the kernel has with it, by us and by ipvsadm.
fn check(client: &mut Client, wanted: &Table) {
    let objects: Vec<Object> = wanted.objects().collect();
    let installed = client.dump().unwrap();
    let change = Commands::from_edits(&diff(installed.objects(), &objects));
    client.commit(&change).unwrap();
    assert_eq!(client.dump().unwrap(), *wanted);
    let mut expected = wanted.clone();
    // ipvsadm does not print thresholds.
    for object in &objects {
        if let Object::Real(service, real) = object {
            let (upper_threshold, lower_threshold) = (0, 0);
            let real = RealServer {
                upper_threshold,
                lower_threshold,
                ..*real
            };
            expected.insert_real(service, real);
        }
    }
    assert_eq!(saved(), sorted(&expected.to_string()));
}

/// Returns every sum of a scheduler's own flags.
fn sums(scheduler: &Scheduler) -> Vec<Flags> {
    let own = scheduler.flags().iter();
    own.fold(vec![Flags::empty()], |sums, (flag, _)| {
        let more: Vec<Flags> = sums.iter().map(|sum| *sum | *flag).collect();
        sums.into_iter().chain(more).collect()
    })
}

/// Returns services of both families, of all protocols, and of marks.
fn services() -> Vec<Service> {
    let mut services = Vec::new();
    for address in ["10.0.0.1", "fd00::1"] {
        for protocol in Protocol::ALL {
            services.push(Service::new(protocol, ip(address), 80));
        }
    }
    for family in [Family::V4, Family::V6] {
        let mark = 7.try_into().unwrap();
        services.push(Service::Mark { mark, family });
    }
    services
}

/// Returns a virtual server in all ways in which a scheduler can serve it.
fn ways(service: Service, scheduler: Scheduler) -> Vec<VirtualServer> {
    let wide = match service.family() {
        Family::V4 => Netmask::V4([255, 255, 0, 0].into()),
        Family::V6 => Netmask::V6(64),
    };
    let host = Netmask::host(service.family());
    let mut ways = Vec::new();
    for flags in sums(&scheduler) {
        for flags in [flags, flags | Flags::ONE_PACKET] {
            for netmask in [None, Some(host), Some(wide)] {
                ways.push(VirtualServer {
                    flags,
                    persistence: netmask.map(|netmask| Persistence {
                        timeout: 300,
                        netmask,
                    }),
                    ..VirtualServer::new(service, scheduler)
                });
            }
        }
    }
    ways
}

#[test]
fn every_scheduler_is_read_back_with_each_of_its_flags() {
    let services = services();
    for scheduler in Scheduler::KNOWN {
        with_client(|client| {
            let probe = VirtualServer::new(services[0], scheduler);
            let added = client.commit(&Commands::from_iter([Command::Add(probe)]));
            if scheduler == Scheduler::PowerOfTwo {
                if let Err(error) = added {
                    // Linux has it since 5.14, Debian's kernels leave it out.
                    assert!(error.is_scheduler_missing(), "{error}");
                    return;
                }
            } else {
                added.unwrap();
            }
            let all: Vec<_> = services
                .iter()
                .map(|service| ways(*service, scheduler))
                .collect();
            for way in 0..all[0].len() {
                let servers = all.iter().map(|ways| Object::Virtual(ways[way]));
                check(client, &servers.collect());
            }
        });
    }
}

#[test]
fn the_persistence_engine_is_read_back() {
    with_client(|client| {
        let service = Service::new(Protocol::Udp, ip("10.0.0.1"), 5060);
        let server = VirtualServer {
            persistence: Some(Persistence::of_clients(Family::V4, 100)),
            engine: Some(Engine::Sip),
            ..VirtualServer::new(service, Scheduler::RoundRobin)
        };
        check(client, &[Object::Virtual(server)].into_iter().collect());
        let plain = VirtualServer {
            engine: None,
            ..server
        };
        check(client, &[Object::Virtual(plain)].into_iter().collect());
    });
}

/// Returns a real server for every way of forwarding.
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
        reals.push(RealServer {
            port,
            forwarding,
            weight,
            ..base
        });
    }
    reals.push(RealServer {
        weight: i32::MAX.unsigned_abs(),
        upper_threshold: 100,
        lower_threshold: 50,
        ..base
    });
    // A tunnel may lead through the other family.
    reals.push(RealServer {
        address: ip("fd00::2"),
        forwarding: Forwarding::Tunnel(Tunnel::Ipip),
        ..base
    });
    reals
}

#[test]
fn every_way_of_forwarding_is_read_back() {
    with_client(|client| {
        let mut table = Table::default();
        let service = Service::new(Protocol::Tcp, ip("10.0.0.1"), 80);
        table.insert(VirtualServer::new(service, Scheduler::WeightedRoundRobin));
        for real in reals() {
            table.insert_real(&service, real);
        }
        let v6 = Service::new(Protocol::Tcp, ip("fd00::1"), 80);
        table.insert(VirtualServer::new(v6, Scheduler::Maglev));
        table.insert_real(&v6, RealServer::new(ip("fd00::2"), 8080));
        check(client, &table);
        // Each becomes another, with the connections it has.
        for real in reals() {
            let forwarding = Forwarding::Masquerade;
            let changed = RealServer {
                weight: 7,
                forwarding,
                ..real
            };
            if real.address.is_ipv4() {
                table.insert_real(&service, changed);
            }
        }
        check(client, &table);
        check(client, &Table::default());
    });
}

#[test]
fn our_text_is_read_by_ipvsadm() {
    with_client(|client| {
        let text = "-A -t 10.0.0.1:80 -s mh -p 100 -b mh-port\n\
                    -a -t 10.0.0.1:80 -r 10.1.0.1:8080 -m -w 3 -x 20 -y 10\n\
                    -A -f 7 -6 -s rr\n";
        for line in text.lines() {
            ipvsadm(line);
        }
        assert_eq!(client.dump().unwrap().to_string(), text);
    });
}

#[test]
fn refusals_are_told_by_kind_and_name_their_commands() {
    with_client(|client| {
        let server = "-A -t 10.0.0.1:80 -s rr\n";
        let real = "-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m\n";
        client
            .commit(&commands(&format!("{server}{real}")))
            .unwrap();
        let mut told = |text: &str| {
            let error = client.commit(&commands(text)).unwrap_err();
            let Error::Refused { refused } = &error else {
                panic!("{text}: {error}");
            };
            assert_eq!(refused.len(), text.lines().count(), "{error}");
            error
        };
        assert!(told(&format!("{server}{real}")).is_already_exists());
        for absent in [
            "-E -t 10.0.0.2:80 -s rr",
            "-D -t 10.0.0.2:80",
            "-a -t 10.0.0.2:80 -r 10.1.0.1 -m",
            "-d -t 10.0.0.2:80 -r 10.1.0.1",
            "-e -t 10.0.0.1:80 -r 10.1.0.2 -m",
            "-d -t 10.0.0.1:80 -r 10.1.0.2",
        ] {
            assert!(told(absent).is_not_found(), "{absent}");
        }
        let unknown = told("-A -t 10.0.0.3:80 -s nosuch");
        assert!(unknown.is_scheduler_missing() && !unknown.is_not_found());
        assert_eq!(
            unknown.to_string(),
            "ipvsadm -A -t 10.0.0.3:80 -s nosuch: load the module ip_vs_nosuch"
        );
        assert!(told("-E -t 10.0.0.1:80 -s nosuch").is_scheduler_missing());
        let heavy = told("-a -t 10.0.0.1:80 -r 10.1.0.3:80 -m -w 4294967295");
        assert!(heavy.is_out_of_range(), "{heavy}");
        assert!(told("-a -t 10.0.0.1:80 -r 10.1.0.3:80 -m -x 1 -y 2").is_out_of_range());
        let mixed = told("-A -t 10.0.0.1:80 -s rr\n-D -t 10.0.0.2:80");
        assert!(!mixed.is_already_exists() && !mixed.is_not_found());
        assert_eq!(saved().len(), 2);
    });
}

#[test]
fn a_batch_goes_out_in_few_sends_and_a_refusal_stops_nothing() {
    with_client(|client| {
        let mut edits = Vec::new();
        for number in 0..1000_u16 {
            let [high, low] = number.to_be_bytes();
            let address = IpAddr::from([10, 0, high, low]);
            let service = Service::new(Protocol::Tcp, address, 80);
            let server = VirtualServer::new(service, Scheduler::RoundRobin);
            edits.push(Edit::Add(Object::Virtual(server)));
            let real = RealServer::new(IpAddr::from([10, 1, high, low]), 80);
            edits.push(Edit::Add(Object::Real(service, real)));
        }
        let batch = Commands::from_edits(&edits);
        // Another program has made two of them.
        ipvsadm("-A -t 10.0.0.5:80 -s wrr");
        ipvsadm("-A -t 10.0.1.9:80 -s wrr");
        let before = client.counters().sends;
        let error = client.commit(&batch).unwrap_err();
        assert!(client.counters().sends - before <= 16);
        assert!(error.is_already_exists());
        let text = error.to_string();
        assert!(text.contains("-A -t 10.0.0.5:80 -s rr"), "{text}");
        assert!(text.contains("-A -t 10.0.1.9:80 -s rr"), "{text}");
        assert_eq!(saved().len(), 2000);
        // A dump and a diff mend what was refused.
        let wanted: Vec<Object> = edits.iter().map(|edit| *edit.object()).collect();
        let mend = Commands::from_edits(&diff(client.dump().unwrap().objects(), &wanted));
        assert_eq!(mend.as_slice().len(), 2);
        client.commit(&mend).unwrap();
        let dump = client.dump().unwrap();
        assert!(diff(dump.objects(), &wanted).is_empty());
        // Every one is refused, and every refusal is told.
        let Err(Error::Refused { refused }) = client.commit(&batch) else {
            panic!("all are there");
        };
        assert_eq!(refused.len(), 2000);
    });
}

#[test]
fn servers_of_others_stay_as_they_are() {
    with_client(|client| {
        ipvsadm("-A -u 192.0.2.1:53 -s mh -b mh-port");
        ipvsadm("-a -u 192.0.2.1:53 -r 192.0.2.2:53 -m -w 9");
        let foreign = saved();
        let ours: Table = "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m -w 1\n"
            .parse()
            .unwrap();
        let add: Vec<_> = ours.objects().map(Edit::Add).collect();
        client.commit(&Commands::from_edits(&add)).unwrap();
        assert_eq!(saved().len(), 4);
        let remove: Vec<_> = ours.objects().map(Edit::Remove).collect();
        client.commit(&Commands::from_edits(&remove)).unwrap();
        assert_eq!(saved(), foreign);
        client.flush().unwrap();
        assert!(saved().is_empty());
    });
}

#[test]
fn timeouts_version_and_statistics_are_those_of_ipvsadm() {
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
        let service = Service::new(Protocol::Udp, ip("127.0.0.1"), 53);
        let absent = client.server(&service).unwrap_err();
        assert!(absent.is_not_found(), "{absent}");
        assert!(client.zero(Some(&service)).unwrap_err().is_not_found());
        client
            .commit(&commands(
                "-A -u 127.0.0.1:53 -s rr\n-a -u 127.0.0.1:53 -r 127.0.0.1:9953 -m",
            ))
            .unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"hello", "127.0.0.1:53").unwrap();
        // The kernel sums up what its processors count every two seconds.
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut stats = client.server(&service).unwrap().1;
        while stats.packets_in == 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
            stats = client.server(&service).unwrap().1;
        }
        assert_eq!((stats.connections, stats.packets_in), (1, 1));
        assert_eq!(stats.bytes_in, 20 + 8 + 5);
        let reals = client.reals(&service).unwrap();
        assert_eq!(reals[0].stats.connections, 1);
        assert_eq!(reals[0].connections.inactive, 1);
        client.zero(Some(&service)).unwrap();
        assert_eq!(client.server(&service).unwrap().1.connections, 0);
        client.zero(None).unwrap();
    });
}

#[test]
fn daemons_start_and_stop() {
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
        assert!(client.daemons().unwrap().is_empty());
        let master = Daemon {
            longest: 1400,
            group: Some(ip("224.0.0.90")),
            port: 9000,
            ttl: 3,
            ..Daemon::new(Role::Master, "d0", 5)
        };
        client.start(&master).unwrap();
        assert!(client.start(&master).unwrap_err().is_already_exists());
        client.start(&Daemon::new(Role::Backup, "d0", 6)).unwrap();
        let daemons = client.daemons().unwrap();
        assert_eq!(daemons[0], master);
        assert_eq!((daemons[1].role, daemons[1].sync_id), (Role::Backup, 6));
        let text = ipvsadm("-Ln --daemon");
        assert!(
            text.contains("master sync daemon (mcast=d0, syncid=5"),
            "{text}"
        );
        client.stop(Role::Master).unwrap();
        client.stop(Role::Backup).unwrap();
        assert!(client.stop(Role::Backup).unwrap_err().is_not_found());
        assert!(client.daemons().unwrap().is_empty());
    });
}
