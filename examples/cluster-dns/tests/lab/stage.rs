//! A lab with the program on the node.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;
use serde_json::Value;
use testkit::lab::Lab;
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};

use crate::client::{Answer, Client};
use crate::objects::{manifest, shop};

/// Time limit of all waits, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Address of the program: that of the node for its pods.
pub(crate) const SERVER: &str = "10.244.1.1";

/// Address of the upstream name server, outside the cluster.
pub(crate) const UPSTREAM: &str = "198.51.100.2";

/// Address of `www.example.org` and all other names in `example.org`.
pub(crate) const EXAMPLE: &str = "203.0.113.80";

/// A lab with the program on the node.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    pub(crate) folder: Directory,
    pub(crate) process: Process,
    /// Address of the program.
    server: &'static str,
}

impl Stage {
    /// Starts the program with the manifests of namespace `shop` and an upstream.
    pub(crate) fn new() -> Self {
        Self::with(|_, folder| {
            let manifests = folder.path().join("manifests").display().to_string();
            let listen = format!("{SERVER}:53");
            let flags = ["--manifests", &manifests, "--listen", &listen];
            flags.map(str::to_owned).to_vec()
        })
    }

    /// Starts the program on the node with these flags, and waits for an answer.
    pub(crate) fn with(flags: impl FnOnce(&Lab, &Directory) -> Vec<String>) -> Self {
        Self::with_addresses(SERVER, flags)
    }

    /// Starts the program on the node with flags by which it has an address, and waits for
    /// an answer from there.
    pub(crate) fn with_addresses(
        server: &'static str,
        flags: impl FnOnce(&Lab, &Directory) -> Vec<String>,
    ) -> Self {
        let lab = Lab::with_backends(2).unwrap();
        let folder = Directory::new().unwrap();
        fs::create_dir(folder.path().join("manifests")).unwrap();
        write(&folder, "shop.yaml", &shop());
        let mut command = program();
        command.args([
            "--zone",
            "cluster.local",
            "--forward",
            UPSTREAM,
            "--lame-duck",
            "0s",
        ]);
        command.args(flags(&lab, &folder));
        let process = Process::start(&lab.node.netns, &mut command).unwrap();
        let stage = Self {
            lab,
            folder,
            process,
            server,
        };
        stage.wait_for("web.shop.svc.cluster.local.", RecordType::A, |answer| {
            answer.data == ["10.96.0.20"]
        });
        stage
    }

    /// Writes a manifest.
    pub(crate) fn write(&self, name: &str, objects: &[Value]) {
        write(&self.folder, name, objects);
    }

    /// Returns a client in the pod.
    pub(crate) fn client(&self) -> Client {
        self.client_of(self.server)
    }

    /// Returns a client in the pod, of another address of the program.
    pub(crate) fn client_of(&self, server: &str) -> Client {
        let server = SocketAddr::new(server.parse().unwrap(), 53);
        self.lab.pod.netns.run(|| Client::new(server)).unwrap()
    }

    /// Asks a question until the answer is as expected.
    #[track_caller]
    pub(crate) fn wait_for(
        &self,
        name: &str,
        record_type: RecordType,
        is_expected: impl Fn(&Answer) -> bool,
    ) {
        let deadline = Instant::now() + SOON;
        loop {
            let answer = self.client().ask(name, record_type);
            if answer.as_ref().is_ok_and(&is_expected) {
                return;
            }
            let output = self.process.output();
            assert!(Instant::now() < deadline, "{name}: {answer:?}\n{output}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the upstream name server.
    pub(crate) fn upstream(&self, ttl: u32) -> Process {
        let upstream = upstream(&self.lab, ttl);
        let server = SocketAddr::new(UPSTREAM.parse().unwrap(), 53);
        let mut client = self.lab.pod.netns.run(|| Client::new(server)).unwrap();
        let deadline = Instant::now() + SOON;
        while client.ask("www.example.org.", RecordType::A).is_err() {
            assert!(Instant::now() < deadline, "{}", upstream.output());
            thread::sleep(Duration::from_millis(10));
        }
        upstream
    }

    /// Runs a command in the pod, in a mount namespace with the files of a pod:
    /// `/etc/resolv.conf` with the search path of namespace `shop`.
    pub(crate) fn in_pod(&self, words: &[&str]) -> Output {
        let resolv = format!(
            "nameserver {SERVER}\n\
             search shop.svc.cluster.local svc.cluster.local cluster.local\n\
             options ndots:5\n"
        );
        self.folder.write("resolv.conf", &resolv).unwrap();
        self.folder.write("hosts", "127.0.0.1 localhost\n").unwrap();
        self.folder
            .write("nsswitch.conf", "hosts: files dns\n")
            .unwrap();
        let mount = "cd \"$1\" && shift && \
                     for file in resolv.conf hosts nsswitch.conf; do \
                     mount --bind \"$file\" \"/etc/$file\" || exit 99; done && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mount, "sh"]);
        command.arg(self.folder.path()).args(words);
        run(&self.lab.pod.netns, &mut command)
    }
}

/// Returns a command of the program, without the environment of the test.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cluster-dns"));
    command.env_clear();
    command
}

/// Starts the upstream name server outside the cluster.
pub(crate) fn upstream(lab: &Lab, ttl: u32) -> Process {
    let mut command = Command::new("dnsmasq");
    command
        .args([
            "--keep-in-foreground",
            "--no-resolv",
            "--no-hosts",
            "--conf-file=/dev/null",
        ])
        .args([
            "--user=root",
            "--pid-file=",
            "--bind-interfaces",
            "--log-facility=-",
        ])
        .arg(format!("--listen-address={UPSTREAM}"))
        .arg(format!("--address=/example.org/{EXAMPLE}"))
        .arg(format!("--local-ttl={ttl}"));
    Process::start(&lab.world.netns, &mut command).unwrap()
}

/// Runs a command in a namespace.
pub(crate) fn run(netns: &Netns, command: &mut Command) -> Output {
    netns.run(|| command.output()).unwrap()
}

/// Replaces a manifest atomically.
fn write(folder: &Directory, name: &str, objects: &[Value]) {
    let draft: PathBuf = folder.path().join(name);
    fs::write(&draft, manifest(objects)).unwrap();
    fs::rename(draft, folder.path().join("manifests").join(name)).unwrap();
}
