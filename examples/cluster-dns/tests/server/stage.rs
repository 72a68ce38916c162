//! A namespace with manifests and a running cluster-dns.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use hickory_proto::op::Message;
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};

/// Timeout of expected events.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Address of the server.
pub(crate) const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 53);

/// Flags of most tests.
pub(crate) const FLAGS: &str =
    "--listen 127.0.0.1:53,[::1]:53 --forward none --metrics 127.0.0.1:9153 --lame-duck 0s";

/// A namespace, a directory and the process.
pub(crate) struct Stage {
    pub(crate) netns: Netns,
    pub(crate) files: Directory,
    pub(crate) process: Process,
}

impl Stage {
    /// Starts the program with manifests, and waits until it is ready.
    pub(crate) fn start(manifests: &[(&str, &str)], flags: &str) -> Self {
        Self::start_in(Netns::new().unwrap(), manifests, flags)
    }

    /// Starts the program with manifests in a namespace, and waits until it is ready.
    pub(crate) fn start_in(netns: Netns, manifests: &[(&str, &str)], flags: &str) -> Self {
        let files = Directory::new().unwrap();
        for (name, text) in manifests {
            files.write(name, text).unwrap();
        }
        let path = files.path().display().to_string();
        let stage = Self::run(netns, files, &format!("--manifests {path} {flags}"), &[]);
        stage.wait_until_ready();
        stage
    }

    /// Starts the program through a command prefix.
    pub(crate) fn with(files: Directory, flags: &str, prefix: &[&str]) -> Self {
        Self::run(Netns::new().unwrap(), files, flags, prefix)
    }

    /// Starts the program in a namespace through a command prefix.
    pub(crate) fn run(netns: Netns, files: Directory, flags: &str, prefix: &[&str]) -> Self {
        let process = Process::start(&netns, &mut command(flags, prefix)).unwrap();
        Self {
            netns,
            files,
            process,
        }
    }

    /// Starts an API server, changes it, and starts the program with its kubeconfig.
    pub(crate) fn with_api(change: impl FnOnce(&ApiServer)) -> (Self, ApiServer) {
        Self::with_api_and("", change)
    }

    /// Starts an API server, changes it, and starts the program with further flags.
    pub(crate) fn with_api_and(flags: &str, change: impl FnOnce(&ApiServer)) -> (Self, ApiServer) {
        let (netns, files) = (Netns::new().unwrap(), Directory::new().unwrap());
        let server = netns.run(ApiServer::start);
        change(&server);
        files.write("kubeconfig", &server.kubeconfig()).unwrap();
        let kubeconfig = files.path().join("kubeconfig");
        let flags = format!("--kubeconfig {} {FLAGS} {flags}", kubeconfig.display());
        let process = Process::start(&netns, &mut command(&flags, &[])).unwrap();
        let stage = Self {
            netns,
            files,
            process,
        };
        (stage, server)
    }

    pub(crate) fn wait_until_ready(&self) {
        self.until("the program is ready", || {
            self.page("/ready").is_some_and(|page| page.ends_with("OK"))
        });
    }

    /// Waits until the last thread of the program has started. Returns the output if the
    /// program ends before.
    pub(crate) fn wait_until_started(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + TIMEOUT;
        while self.process.try_wait().unwrap().is_none() {
            let output = self.process.output();
            if output.contains("health and metrics server") {
                return Ok(());
            }
            assert!(Instant::now() < deadline, "{output}");
            sleep(Duration::from_millis(2));
        }
        Err(self.process.output())
    }

    /// Waits for a condition.
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !condition() {
            let output = || self.process.output();
            assert!(Instant::now() < deadline, "{what}: never: {}", output());
            sleep(Duration::from_millis(2));
        }
    }

    /// Requests a page of the HTTP server.
    pub(crate) fn page(&self, path: &str) -> Option<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9153));
        self.netns
            .run(|| testkit::http::try_request(address, &format!("GET {path}")))
    }

    /// Runs `dig` with words such as `+short web.shop.svc.cluster.local`, at 127.0.0.1.
    pub(crate) fn dig(&self, words: &str) -> String {
        let output = self.netns.run(|| {
            let mut dig = Command::new("dig");
            let dig = dig.args(["+timeout=10", "+tries=1"]);
            let dig = match words.contains('@') {
                true => dig,
                false => dig.arg("@127.0.0.1"),
            };
            dig.args(words.split_whitespace()).output()
        });
        let output = output.expect("dig is installed");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sends a packet, and returns the response if one arrives in time.
    pub(crate) fn exchange(&self, packet: &[u8], timeout: Duration) -> Option<Vec<u8>> {
        self.netns.run(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(timeout)).unwrap();
            socket.send_to(packet, SERVER).unwrap();
            let mut buffer = vec![0; 65_535];
            let size = socket.recv(&mut buffer).ok()?;
            buffer.truncate(size);
            Some(buffer)
        })
    }

    /// Sends a packet and decodes the response.
    pub(crate) fn ask(&self, packet: &[u8]) -> Message {
        let response = self.exchange(packet, TIMEOUT);
        Message::from_vec(&response.expect("a response")).unwrap()
    }
}

/// Returns the command of the program.
pub(crate) fn command(flags: &str, prefix: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_cluster-dns");
    let words = prefix.iter().copied().chain([program]);
    let mut words = words.chain(flags.split_whitespace());
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    command
}

/// Runs the program to its end, and returns exit code and output.
pub(crate) fn outcome(flags: &str) -> (Option<i32>, String) {
    let output = command(flags, &[]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Returns the manifest of a Service with a port.
pub(crate) fn service(name: &str, address: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{clusterIP: {address}, ports: [{{name: http, port: 80}}]}}\n"
    )
}

/// Returns the manifests of a headless Service with `count` endpoints.
pub(crate) fn headless(name: &str, count: u8) -> String {
    let endpoint =
        |number| format!("- {{addresses: [10.0.0.{number}], conditions: {{ready: true}}}}\n");
    let endpoints: String = (1..=count).map(endpoint).collect();
    format!(
        "{}---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, \
         namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\n\
         ports: [{{name: http, port: 80, protocol: TCP}}]\nendpoints:\n{endpoints}",
        service(name, "None")
    )
}
