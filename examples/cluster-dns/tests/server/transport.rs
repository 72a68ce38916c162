//! TCP: pipelined requests, limits and timeouts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use rustix::process::{Resource, getrlimit, setrlimit};
use testkit::netns::Netns;
use testkit::scoped::Directory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::scripted::in_runtime;
use crate::stage::{FLAGS, SERVER, Stage, TIMEOUT, service};

fn frame(id: u16) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    let name = Name::from_ascii("web.shop.svc.cluster.local.").unwrap();
    message.add_query(Query::query(name, RecordType::A));
    let message = message.to_vec().unwrap();
    let size = u16::try_from(message.len()).unwrap();
    [&size.to_be_bytes(), &message[..]].concat()
}

fn read(stream: &mut TcpStream) -> Option<Message> {
    let mut size = [0; 2];
    stream.read_exact(&mut size).ok()?;
    let mut message = vec![0; u16::from_be_bytes(size).into()];
    stream.read_exact(&mut message).ok()?;
    Some(Message::from_vec(&message).unwrap())
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(SERVER).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

#[test]
fn pipelined_requests_are_answered_even_in_single_bytes() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    stage.netns.run(|| {
        let mut stream = connect();
        let frames: Vec<u8> = (0..300).flat_map(frame).collect();
        stream.write_all(&frames).unwrap();
        let ids = (0..300).map(|_| read(&mut stream).unwrap().metadata.id);
        let mut ids: Vec<u16> = ids.collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..300).collect::<Vec<u16>>());
        for byte in frame(7) {
            stream.write_all(&[byte]).unwrap();
        }
        assert_eq!(read(&mut stream).unwrap().answers.len(), 1);
    });
}

#[test]
fn idle_and_incomplete_connections_are_closed() {
    let files = Directory::new().unwrap();
    files
        .write("web.yaml", &service("web", "10.96.0.10"))
        .unwrap();
    let config = Directory::new().unwrap();
    let text = "tcp: {idleTimeout: 300ms, maxConnections: 8}\n";
    config.write("config.yaml", text).unwrap();
    let flags = format!(
        "--config {} --manifests {} {FLAGS}",
        config.path().join("config.yaml").display(),
        files.path().display()
    );
    let stage = Stage::with(files, &flags, &[]);
    stage.wait_until_ready();
    stage.netns.run(|| {
        let mut idle = connect();
        let mut partial = connect();
        partial.write_all(&frame(1)[..5]).unwrap();
        let begin = Instant::now();
        assert!(read(&mut idle).is_none() && read(&mut partial).is_none());
        assert!(begin.elapsed() < TIMEOUT - Duration::from_secs(1));
        // More clients than the limit: the newest is served.
        let mut streams: Vec<_> = (0..40).map(|_| connect()).collect();
        let newest = streams.last_mut().unwrap();
        newest.write_all(&frame(9)).unwrap();
        assert_eq!(read(newest).unwrap().metadata.id, 9);
    });
    let metrics = stage.page("/metrics").unwrap();
    let evicted = "cluster_dns_tcp_evicted_connections_total";
    let line = metrics.lines().find(|line| line.starts_with(evicted));
    assert_ne!(line.unwrap(), format!("{evicted} 0"));
}

/// NodeLocal DNSCache with `force_tcp` has a connection for each query under way.
#[test]
fn two_thousand_connections_of_twenty_nodes_stay_open() {
    const PER_NODE: usize = 100;
    // The test has as many descriptors as the program.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let (netns, files) = (Netns::new().unwrap(), Directory::new().unwrap());
    let web = service("web", "10.96.0.10");
    files.write("web.yaml", &web).unwrap();
    let config = Directory::new().unwrap();
    config
        .write("config.yaml", "tcp: {idleTimeout: 5m}\n")
        .unwrap();
    let flags = format!(
        "--config {} --manifests {} {FLAGS}",
        config.path().join("config.yaml").display(),
        files.path().display()
    );
    // The soft limit of containerd and systemd.
    let stage = Stage::run(netns, files, &flags, &["prlimit", "--nofile=1024:8192"]);
    stage.wait_until_ready();
    stage.netns.run(|| {
        in_runtime(|| async {
            let mut streams = Vec::new();
            for node in 1..=20 {
                for _ in 0..PER_NODE {
                    let socket = TcpSocket::new_v4().unwrap();
                    socket
                        .bind(SocketAddr::from(([127, 0, 1, node], 0)))
                        .unwrap();
                    streams.push(socket.connect(SERVER).await.unwrap());
                }
            }
            for round in 0..2 {
                for stream in &mut streams {
                    stream.write_all(&frame(round)).await.unwrap();
                    let size = stream.read_u16().await.unwrap();
                    let mut response = vec![0; size.into()];
                    stream.read_exact(&mut response).await.unwrap();
                    let response = Message::from_vec(&response).unwrap();
                    assert_eq!(response.answers.len(), 1);
                }
            }
        });
    });
    let metrics = stage.page("/metrics").unwrap();
    assert!(
        metrics.contains("\ncluster_dns_tcp_evicted_connections_total 0\n"),
        "{metrics}"
    );
}
