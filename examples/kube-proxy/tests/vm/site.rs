//! A lab with serving pods, manifests, and the node state that system tools show.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use testkit::lab::Lab;
use testkit::netns::Netns;
use testkit::proxy::{Options, Proxy};
use testkit::scoped::Directory;
use testkit::traffic::{Answers, Probe, Protocol, Server};

use crate::shell;

/// Timeout of all waits. A guest is slow.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two checks of a condition. Checks of a guest run processes.
const PAUSE: Duration = Duration::from_millis(100);

/// Number of requests to each address.
const REQUESTS: usize = 4;

/// The cluster IPs of the Service.
const CLUSTER_IPS: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];

/// Its node port.
const NODE_PORT: u16 = 30080;

/// The port of the pods.
const TARGET: u16 = 8080;

/// Commands that print rules, sets, virtual servers, addresses and tables, one object
/// per line.
const TOOLS: [&str; 6] = [
    "iptables-save",
    "ip6tables-save",
    "ipset save",
    "ipvsadm -Sn",
    "ip -o address show",
    "nft list tables",
];

/// A lab with two serving pods on its node.
pub(crate) struct Site {
    pub(crate) lab: Lab,
    folder: Directory,
    _servers: Vec<Server>,
}

impl Site {
    /// Sets up the lab with a Service without endpoints.
    pub(crate) fn new() -> Self {
        let lab = Lab::with_backends(2).unwrap();
        let mut servers = Vec::new();
        for host in &lab.backends {
            for address in host.addresses() {
                for protocol in [Protocol::Tcp, Protocol::Udp] {
                    let at = SocketAddr::new(address, TARGET);
                    servers.push(Server::start(&host.netns, protocol, at, &host.name).unwrap());
                }
            }
        }
        let site = Self {
            lab,
            folder: Directory::new().unwrap(),
            _servers: servers,
        };
        site.set_backends(&[]);
        site
    }

    /// Writes manifests in which the Service has these backends.
    pub(crate) fn set_backends(&self, backends: &[usize]) {
        let [v4, v6] = CLUSTER_IPS;
        let mut text = format!(
            "apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  type: NodePort
  ipFamilies: [IPv4, IPv6]
  clusterIP: {v4}
  clusterIPs: ['{v4}', '{v6}']
  ports:
  - {{name: tcp, port: 80, nodePort: {NODE_PORT}}}
  - {{name: udp, port: 80, nodePort: {NODE_PORT}, protocol: UDP}}
"
        );
        for (number, family) in ["IPv4", "IPv6"].into_iter().enumerate() {
            text += &format!(
                "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-{number}, labels: {{kubernetes.io/service-name: web}}}}
addressType: {family}
ports:
- {{name: tcp, port: {TARGET}}}
- {{name: udp, port: {TARGET}, protocol: UDP}}
endpoints:
"
            );
            for backend in backends {
                let address = self.lab.backends[*backend].addresses()[number];
                text += &format!("- {{addresses: ['{address}']}}\n");
            }
        }
        self.folder.write("web.yaml", &text).unwrap();
    }

    /// Writes a manifest file.
    pub(crate) fn write(&self, name: &str, text: &str) {
        self.folder.write(name, text).unwrap();
    }

    /// Adds a Service with an endpoint at an address that the kernel rejects: the
    /// broadcast address of a link.
    pub(crate) fn add_rejected_endpoint(&self) {
        self.shell(
            "ip link add eth9 type dummy; ip link set eth9 up
             ip address add 192.168.55.1/24 broadcast 192.168.55.255 dev eth9",
        );
        let text = "apiVersion: v1
kind: Service
metadata: {name: rejected}
spec:
  clusterIP: 10.96.0.66
  ports:
  - {name: tcp, port: 80}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: rejected, labels: {kubernetes.io/service-name: rejected}}
addressType: IPv4
ports:
- {name: tcp, port: 8080}
endpoints:
- {addresses: ['192.168.55.255']}
";
        self.folder.write("rejected.yaml", text).unwrap();
    }

    /// Removes the Service of [`add_rejected_endpoint`](Self::add_rejected_endpoint).
    pub(crate) fn remove_rejected_endpoint(&self) {
        std::fs::remove_file(self.folder.path().join("rejected.yaml")).unwrap();
    }

    /// Returns the options of the program in a mode, with additional flags.
    fn options(&self, mode: &'static str, flags: &str) -> Options {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_kube-proxy"));
        Options {
            flags: flags.split_whitespace().map(str::to_owned).collect(),
            ..Options::new(program, mode, self.folder.path())
        }
    }

    /// Starts the program in a mode and waits until it serves all addresses.
    #[track_caller]
    pub(crate) fn start(&self, mode: &'static str, flags: &str) -> Proxy {
        self.start_with(&self.options(mode, flags))
    }

    /// Starts the program in a mode in a PID namespace and waits until it serves all
    /// addresses.
    #[track_caller]
    pub(crate) fn start_in_pid_namespace(&self, mode: &'static str, flags: &str) -> Proxy {
        let runner = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
        self.start_with(&Options {
            runner: runner.map(str::to_owned).into(),
            ..self.options(mode, flags)
        })
    }

    #[track_caller]
    fn start_with(&self, options: &Options) -> Proxy {
        let mut proxy = Proxy::start(&self.lab, options).unwrap();
        for probe in self.probes() {
            let answer = proxy.wait_for(&self.lab.client.netns, probe, TIMEOUT);
            answer.unwrap();
        }
        proxy
    }

    /// Runs the program in a mode until it exits. The run must succeed.
    #[track_caller]
    pub(crate) fn run(&self, mode: &'static str, flags: &str) {
        let output = self.output(mode, flags);
        assert!(output.status.success(), "{mode} {flags}: {output:?}");
    }

    /// Returns the output of the program in a mode.
    pub(crate) fn output(&self, mode: &'static str, flags: &str) -> Output {
        let mut command = self.options(mode, flags).command();
        self.lab.node.netns.run(|| command.output()).unwrap()
    }

    /// Returns the output of the program in a mode, with mounts that a shell script makes and
    /// only the program sees.
    pub(crate) fn output_with_mounts(
        &self,
        mode: &'static str,
        flags: &str,
        script: &str,
    ) -> Output {
        let script = format!("set -e\n{script}\nexec \"$@\"");
        let runner = ["unshare", "--mount", "sh", "-c", &*script, "sh"];
        let options = Options {
            runner: runner.map(str::to_owned).into(),
            ..self.options(mode, flags)
        };
        let mut command = options.command();
        self.lab.node.netns.run(|| command.output()).unwrap()
    }

    /// Runs a shell command on the node and returns its output.
    #[track_caller]
    pub(crate) fn shell(&self, line: &str) -> String {
        shell(&self.lab.node.netns, line)
    }

    /// Returns the response of a server on the node to a GET request, with its status
    /// line.
    #[track_caller]
    pub(crate) fn get(&self, port: u16, path: &str) -> String {
        get(&self.lab.node.netns, port, path)
    }

    /// Returns the requests of a client to the cluster IPs and the node port of the
    /// Service, in both protocols.
    pub(crate) fn probes(&self) -> Vec<Probe> {
        let cluster_ips = CLUSTER_IPS.map(|text| text.parse::<IpAddr>().unwrap());
        let cluster_ips = cluster_ips.map(|address| SocketAddr::new(address, 80));
        let node = self.lab.node.addresses();
        let node = node.map(|address| SocketAddr::new(address, NODE_PORT));
        let targets = cluster_ips.into_iter().chain(node);
        let of = |target| {
            let protocols = [Protocol::Tcp, Protocol::Udp];
            protocols.map(|protocol| Probe::new(protocol, target).timeout(REQUEST_TIMEOUT))
        };
        targets.flat_map(of).collect()
    }

    /// Waits until exactly these backends answer all requests.
    #[track_caller]
    pub(crate) fn assert_served_by(&self, backends: &[usize]) {
        let names = backends
            .iter()
            .map(|backend| &self.lab.backends[*backend].name);
        let names: Vec<_> = names.collect();
        wait_until(&format!("answers of {names:?}"), || {
            let probe = |probe: Probe| probe.times(&self.lab.client.netns, REQUESTS);
            let answers = self.probes().into_iter().map(probe);
            // Few requests to one address may reach only one of the backends.
            let answers = answers.fold(Answers::default(), Answers::merge);
            let is_expected =
                answers.failures.is_empty() && answers.servers.keys().eq(names.clone());
            match is_expected {
                true => Ok(()),
                false => Err(answers.to_string()),
            }
        });
    }

    /// Returns the sorted objects on the node, each with the tool that shows it.
    /// Includes objects of other programs.
    pub(crate) fn state(&self) -> Vec<String> {
        let script = TOOLS.map(|tool| format!("echo '= {tool}'; {tool}\n"));
        let text = self.shell(&script.concat());
        let (mut tool, mut lines) = ("", Vec::new());
        for line in text.lines() {
            match line.strip_prefix("= ") {
                Some(next) => tool = next,
                None => lines.extend(shown(tool, line).map(|line| format!("{tool}: {line}"))),
            }
        }
        lines.sort();
        lines
    }
}

/// Returns a line without its random parts, or `None` if no proxy creates such objects.
fn shown<'a>(tool: &str, line: &'a str) -> Option<&'a str> {
    let is_shown = match tool {
        "nft list tables" => line.contains("kube-proxy"),
        "ip -o address show" => line.contains("kube-ipvs0"),
        // Skips table headings, built-in chains and the chains of the kubelet.
        _ => {
            let is_rule = !line.starts_with(['#', '*']) && line != "COMMIT";
            is_rule && !line.contains(" ACCEPT [") && !line.contains("KUBE-FIREWALL")
        }
    };
    // Removes the index of the link, the size of buckets, which is that of the creator of the set,
    // the initial value of the hash, and the counters.
    let line = match tool {
        "ip -o address show" => line.split_once(' ')?.1,
        _ => line,
    };
    let line = line.split(" bucketsize ").next()?;
    let line = line.split(" initval ").next()?.split(" [").next()?;
    is_shown.then(|| line.trim_end())
}

/// Returns the response of a server in a namespace to a GET request, with its status
/// line.
#[track_caller]
pub(crate) fn get(netns: &Netns, port: u16, path: &str) -> String {
    let stream = netns.run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(REQUEST_TIMEOUT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until a condition holds. Panics with the last error after [`TIMEOUT`].
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + TIMEOUT;
    while let Err(found) = holds() {
        assert!(Instant::now() < deadline, "timeout: {what}: {found}");
        thread::sleep(PAUSE);
    }
}

/// Returns the text as an error if it does not contain a word.
pub(crate) fn contains(text: String, word: &str) -> Result<(), String> {
    match text.contains(word) {
        true => Ok(()),
        false => Err(text),
    }
}
