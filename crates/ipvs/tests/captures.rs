//! Encoding and decoding of messages recorded in a guest with Linux 6.1 and ipvsadm
//! 1.31.
//!
//! To record again: run the commands in the files under `strace -xx -s 8192 -e
//! trace=sendmsg,recvmsg` and copy the payloads of messages of the IPVS family.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use vipline_ipvs::wire::{Reply, Request};
use vipline_ipvs::{Command, Commands, Family, Role, ServiceKey, SyncDaemon, Timeouts};
use vipline_netlink::attr::Attrs;

/// Returns the command and the payload of each message in a file.
fn captures(text: &'static str) -> Vec<(&'static str, Vec<u8>)> {
    let lines: Vec<&str> = text.lines().collect();
    let captures = lines.chunks(2).map(|pair| {
        let command = pair[0].strip_prefix("# ipvsadm ").unwrap();
        (command, bytes(pair[1]))
    });
    captures.collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let bytes = hex.as_bytes().chunks(2);
    bytes
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(&mut out);
    out
}

/// Returns the content of a nested attribute of this type.
fn nested(payload: &[u8], kind: u16) -> &[u8] {
    let mut attrs = Attrs::new(&payload[4..]).map(Result::unwrap);
    attrs.find(|attr| attr.kind == kind).unwrap().value
}

#[test]
fn commands_encode_to_the_bytes_of_ipvsadm() {
    for (line, payload) in captures(include_str!("captures/commands.hex")) {
        let command: Command = line.parse().unwrap();
        assert_eq!(Command::decode(&payload).unwrap(), command, "{line}");
        let mut ours = Vec::new();
        command.encode(&mut ours);
        assert_eq!(ours[0], payload[0], "{line}");
        match command {
            // ipvsadm sends more attributes than the kernel uses.
            Command::Add(_) | Command::Edit(_) => assert_eq!(ours, payload, "{line}"),
            Command::AddDestination(..) | Command::EditDestination(..) => {
                assert_eq!(nested(&ours, 2), nested(&payload, 2), "{line}");
                assert!(nested(&payload, 1).starts_with(nested(&ours, 1)), "{line}");
            }
            Command::RemoveDestination(..) => {
                assert!(nested(&payload, 2).starts_with(nested(&ours, 2)), "{line}");
            }
            Command::Remove(_) => {
                assert!(nested(&payload, 1).starts_with(nested(&ours, 1)), "{line}");
            }
        }
    }
}

#[test]
fn other_requests_encode_to_the_bytes_of_ipvsadm() {
    let captures = captures(include_str!("captures/requests.hex"));
    let find = |begin: &str| {
        let mut captures = captures.iter();
        captures.find(|(line, _)| line.starts_with(begin)).unwrap()
    };
    let seconds = Duration::from_secs;
    let timeouts = Timeouts {
        tcp: seconds(100),
        tcp_fin: seconds(20),
        udp: seconds(30),
    };
    let payload = &find("--set").1;
    assert_eq!(encoded(&Request::SetTimeouts(&timeouts)), *payload);
    let (master, backup) = daemons();
    let payload = &find("--start-daemon master").1;
    assert_eq!(encoded(&Request::StartDaemon(&master)), *payload);
    let payload = &find("--start-daemon backup").1;
    assert_eq!(encoded(&Request::StartDaemon(&backup)), *payload);
    assert_eq!(encoded(&Request::Flush), find("-C").1);
    let all = captures.iter().find(|(line, _)| *line == "-Z").unwrap();
    assert_eq!(encoded(&Request::Zero(None)), all.1);
    let stop = encoded(&Request::StopDaemon(Role::Master));
    assert!(nested(&find("--stop-daemon").1, 3).starts_with(nested(&stop, 3)));
}

fn daemons() -> (SyncDaemon, SyncDaemon) {
    let master = SyncDaemon::new(Role::Master, "d0", 5)
        .with_max_len(1400)
        .with_multicast_group("224.0.0.90".parse().unwrap())
        .with_port(9000)
        .with_ttl(3);
    let backup =
        SyncDaemon::new(Role::Backup, "d0", 5).with_multicast_group("ff02::60".parse().unwrap());
    (master, backup)
}

#[test]
fn start_requests_decode_to_the_sync_daemon() {
    let (master, backup) = daemons();
    for daemon in [master, backup] {
        let payload = encoded(&Request::StartDaemon(&daemon));
        let answer = Reply::decode(Family::V4, &payload).unwrap();
        assert_eq!(answer, Reply::SyncDaemon(daemon));
    }
}

#[test]
fn replies_of_the_kernel_decode_to_the_added_servers() {
    let mut made: Vec<Command> = Vec::new();
    let mut dumped = Vec::new();
    let (mut timeouts, mut info) = (None, None);
    for (line, payload) in captures(include_str!("captures/commands.hex")) {
        let command: Command = line.parse().unwrap();
        match command {
            // Edits precede the dump; removals follow it.
            Command::Edit(server) => {
                made.retain(
                    |made| !matches!(made, Command::Add(old) if old.service == server.service),
                );
                made.push(Command::Add(server));
            }
            Command::EditDestination(service, real) => {
                made.retain(|made| {
                    !matches!(made, Command::AddDestination(_, old) if old.endpoint() == real.endpoint())
                });
                made.push(Command::AddDestination(service, real));
            }
            Command::RemoveDestination(_, endpoint) => made.retain(
                |made| !matches!(made, Command::AddDestination(_, old) if old.endpoint() == endpoint),
            ),
            Command::Remove(_) => assert_eq!(payload[0], 3),
            command => made.push(command),
        }
    }
    for (_, payload) in captures(include_str!("captures/answers.hex")) {
        match Reply::decode(Family::V4, &payload).unwrap() {
            Reply::Server(server, stats) => {
                assert_eq!(stats.connections, 0);
                dumped.push(Command::Add(server).to_string());
            }
            Reply::Destination(entry) => {
                let service = made.iter().find_map(|made| match made {
                    Command::AddDestination(service, real) if *real == entry.server => {
                        Some(*service)
                    }
                    _ => None,
                });
                let service: ServiceKey = service.unwrap();
                dumped.push(Command::AddDestination(service, entry.server).to_string());
            }
            Reply::Timeouts(found) => timeouts = Some(found.tcp_fin),
            Reply::Info(found) => info = Some(found),
            answer => panic!("{answer:?}"),
        }
    }
    let mut made: Vec<String> = made.iter().map(Command::to_string).collect();
    made.sort();
    dumped.sort();
    assert_eq!(dumped, made);
    assert_eq!(timeouts, Some(Duration::from_secs(20)));
    let info = info.unwrap();
    assert_eq!((info.version, info.table_size), ([1, 2, 1], 4096));
}

#[test]
fn commands_parse_as_one_script() {
    let lines = captures(include_str!("captures/commands.hex"));
    let script: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
    let commands: Commands = script.parse().unwrap();
    assert_eq!(commands.as_slice().len(), lines.len());
}
