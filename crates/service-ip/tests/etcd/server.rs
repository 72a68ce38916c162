//! A single-member etcd, stopped on drop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use data_encoding::BASE64;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use serde_json::{Value, json};
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};
use vipline_service_ip::{
    AddressRange, Allocator, Etcd, EtcdCluster, EtcdTls, OwnerRef, Registry, Repair, Store,
};

/// Registry type of the tests.
pub(crate) type Addressing = Registry<Allocator<AddressRange>, Addresses>;

/// Maximum time for etcd to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Client address of etcd within its network namespace.
pub(crate) const ADDRESS: &str = "127.0.0.1:2379";

/// Key of the range.
pub(crate) const KEY: &str = EtcdCluster::SERVICE_IPS;

/// Store type of the tests.
pub(crate) type Addresses = Etcd<AddressRange>;

/// A single-member etcd.
pub(crate) struct Server {
    pub(crate) netns: Netns,
    folder: Directory,
    process: Option<Process>,
    access: Option<Access>,
}

/// Certificates for mutual TLS.
pub(crate) struct Access {
    /// Configuration of the client.
    pub(crate) client: EtcdTls,
    /// Certificate and key of etcd.
    pub(crate) server: (String, String),
}

impl Server {
    /// Starts etcd and waits until it responds.
    pub(crate) fn start() -> Self {
        Self::new(None)
    }

    /// Starts etcd with mutual TLS.
    pub(crate) fn with_access(access: Access) -> Self {
        Self::new(Some(access))
    }

    fn new(access: Option<Access>) -> Self {
        let mut server = Self {
            netns: Netns::new().unwrap(),
            folder: Directory::new().unwrap(),
            process: None,
            access,
        };
        server.run();
        server.initialize();
        server
    }

    /// Writes [`KEY`] without allocated items if it is missing.
    pub(crate) fn initialize(&self) {
        let mut registry = self.registry();
        let no_services = || Vec::new();
        self.inside(|| Repair::new().pass(&mut registry, no_services).map(drop))
            .unwrap();
    }

    /// Kills etcd with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Restarts etcd with its data.
    pub(crate) fn run(&mut self) {
        let mut process = Process::start(&self.netns, &mut self.command()).unwrap();
        let mut store = self.store(&self.cluster(), "/anything");
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.netns.run(|| store.load()) {
            let ended = process.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{ended:?}, {error:?}: {}",
                process.output()
            );
            thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
    }

    /// Stops all threads of etcd. Without the wait, some would run for a while after the
    /// signal.
    pub(crate) fn stop(&self) {
        let process = self.process.as_ref().unwrap();
        process.signal(Signal::STOP).unwrap();
        let pid = Pid::from_raw(process.pid().try_into().unwrap()).unwrap();
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(pid), changes).unwrap().unwrap();
        assert!(status.stopped(), "{}", process.output());
    }

    /// Resumes etcd after [`stop`](Self::stop).
    pub(crate) fn resume(&self) {
        let process = self.process.as_ref().unwrap();
        process.signal(Signal::CONT).unwrap();
    }

    fn command(&self) -> Command {
        let folder = self.folder.path();
        let scheme = self.scheme();
        let mut command = Command::new(program());
        command
            .arg("--name=one")
            .arg(format!("--data-dir={}", folder.join("data").display()))
            .arg(format!("--listen-client-urls={scheme}://{ADDRESS}"))
            .arg(format!("--advertise-client-urls={scheme}://{ADDRESS}"))
            .arg("--listen-peer-urls=http://127.0.0.1:2380")
            .arg("--initial-advertise-peer-urls=http://127.0.0.1:2380")
            .arg("--initial-cluster=one=http://127.0.0.1:2380")
            .args(["--logger=zap", "--log-level=warn"]);
        if let Some(access) = &self.access {
            let (certificate, key) = &access.server;
            let authority = String::from_utf8(access.client.ca.clone()).unwrap();
            let file = |name: &str, text: &str| {
                self.folder.write(name, text).unwrap();
                folder.join(name)
            };
            command
                .arg("--client-cert-auth")
                .arg("--trusted-ca-file")
                .arg(file("ca.pem", &authority))
                .arg("--cert-file")
                .arg(file("cert.pem", certificate))
                .arg("--key-file")
                .arg(file("key.pem", key));
        }
        command
    }

    fn scheme(&self) -> &'static str {
        match self.access {
            Some(_) => "https",
            None => "http",
        }
    }

    /// Returns the connection settings.
    pub(crate) fn cluster(&self) -> EtcdCluster {
        let endpoint = format!("{}://{ADDRESS}", self.scheme());
        let mut cluster = EtcdCluster::new(&[&endpoint], Duration::from_secs(30));
        cluster.tls = self.access.as_ref().map(|access| access.client.clone());
        cluster
    }

    /// Returns the store of [`range`] at a key.
    pub(crate) fn store(&self, cluster: &EtcdCluster, key: &str) -> Addresses {
        Etcd::new(cluster, key, range()).unwrap()
    }

    /// Returns a registry of the range at [`KEY`].
    pub(crate) fn registry(&self) -> Addressing {
        Registry::new(self.store(&self.cluster(), KEY))
    }

    /// Runs a function in the network namespace of etcd.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.netns.run(work)
    }

    /// Writes or deletes a value without the store.
    pub(crate) fn put(&self, key: &str, value: Option<&[u8]>) {
        let mut body = json!({ "key": BASE64.encode(key.as_bytes()) });
        let path = match value {
            Some(value) => {
                body["value"] = BASE64.encode(value).into();
                "/v3/kv/put"
            }
            None => "/v3/kv/deleterange",
        };
        self.post(path, &body);
    }

    /// Reads a value without the store.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let answer = self.post(
            "/v3/kv/range",
            &json!({ "key": BASE64.encode(key.as_bytes()) }),
        );
        let value = answer["kvs"][0]["value"].as_str()?;
        Some(BASE64.decode(value.as_bytes()).unwrap())
    }

    /// Sends a request without the client of the store.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.0\r\nHost: {ADDRESS}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = self.inside(|| {
            let mut stream = TcpStream::connect(ADDRESS)?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        });
        let answer = answer.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 OK"), "{path}: {answer}");
        serde_json::from_str(body).unwrap()
    }
}

/// Returns the range that tests allocate from.
pub(crate) fn range() -> AddressRange {
    "10.0.0.0/27".parse().unwrap()
}

/// Returns a Service.
pub(crate) fn owner() -> OwnerRef {
    OwnerRef::service("default", "web")
}

/// Returns random numbers derived from a seed.
pub(crate) fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Returns the path of etcd: the environment variable `ETCD`, or the installed program.
fn program() -> PathBuf {
    if let Some(program) = env::var_os("ETCD") {
        return program.into();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join("etcd"))
        .find(|file| file.is_file())
        .expect(
            "etcd is neither in PATH nor where ETCD says; `cargo xtask etcd` downloads it \
             and prints where it is: ETCD=$(cargo xtask etcd) cargo test …",
        )
}
