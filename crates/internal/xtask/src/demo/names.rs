//! Resolves names of Services by cluster-dns beside the proxy, and sends traffic to the
//! resolved addresses.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use testkit::lab::Lab;
use testkit::netns::Netns;
use testkit::scoped::Process;

use super::manifests::{Frontend, Kind};
use super::mode::{START_TIMEOUT, Stage};
use super::table::Table;

/// Domain of the cluster.
const ZONE: &str = "cluster.local";

/// Time to wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts cluster-dns on the node, resolves the name of each Service in the pod, and sends
/// requests to the addresses in the answers.
pub(super) fn run(stage: &Stage, program: &Path, table: &mut Table) -> Result<()> {
    let server = SocketAddr::new(Lab::GATEWAYS[0], 53);
    let mut command = Command::new(program);
    command
        .arg("--manifests")
        .arg(stage.folder.path())
        .args([
            "--zone",
            ZONE,
            "--listen",
            &server.to_string(),
            "--metrics=",
        ])
        .args(["--forward", "none", "--lame-duck", "0s"]);
    let process = Process::start(&stage.lab.node.netns, &mut command)?;
    let of_cluster = |it: &&Frontend| it.kind == Kind::ClusterIp;
    let frontends: Vec<_> = stage.frontends.iter().filter(of_cluster).cloned().collect();
    for frontends in frontends.chunk_by(Frontend::differs_by_address) {
        let (service, namespace) = (&frontends[0].service, &frontends[0].namespace);
        let name = format!("{service}.{namespace}.svc.{ZONE}.");
        let expected: BTreeSet<IpAddr> = frontends.iter().map(|it| it.address.ip()).collect();
        wait_for(&stage.lab.pod.netns, server, &name, &expected)
            .with_context(|| format!("output of cluster-dns:\n{}", process.output()))?;
        stage.probe_name(frontends, table);
    }
    process.terminate().context("stop cluster-dns")?;
    Ok(())
}

/// Resolves a name until the answers are the expected addresses.
fn wait_for(
    from: &Netns,
    server: SocketAddr,
    name: &str,
    expected: &BTreeSet<IpAddr>,
) -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let found = from.run(|| resolve(server, name));
        match found {
            Ok(found) if found == *expected => return Ok(()),
            found if Instant::now() > deadline => {
                bail!("{name}: {found:?} instead of {expected:?}")
            }
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Returns the addresses of a name in both families.
fn resolve(server: SocketAddr, name: &str) -> io::Result<BTreeSet<IpAddr>> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut addresses = BTreeSet::new();
    for record_type in [RecordType::A, RecordType::AAAA] {
        let name = Name::from_ascii(name).map_err(io::Error::other)?;
        let mut question = Message::query();
        question.add_query(Query::query(name, record_type));
        socket.send(&question.to_vec().map_err(io::Error::other)?)?;
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer)?;
        let answer = Message::from_vec(&buffer[..length]).map_err(io::Error::other)?;
        addresses.extend(
            answer
                .answers
                .iter()
                .filter_map(|record| match &record.data {
                    RData::A(address) => Some(IpAddr::V4(address.0)),
                    RData::AAAA(address) => Some(IpAddr::V6(address.0)),
                    _ => None,
                }),
        );
    }
    Ok(addresses)
}
