//! TCP: pipelined requests, limits and timeouts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};

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
    let files = testkit::scoped::Directory::new().unwrap();
    files
        .write("web.yaml", &service("web", "10.96.0.10"))
        .unwrap();
    let config = testkit::scoped::Directory::new().unwrap();
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
