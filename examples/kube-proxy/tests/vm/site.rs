//! A lab with pods that serve, manifests that say so, and the node as tools see
//! it.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use testkit::lab::Lab;
use testkit::leftovers::Directory;
use testkit::netns::Netns;
use testkit::proxy::{Options, Proxy};
use testkit::traffic::{Answers, Ask, Protocol, Server};

use crate::shell;

/// How long anything is waited for: a guest takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a client waits for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// How often each address is asked.
const TIMES: usize = 4;

/// The cluster IPs of the Service.
const CLUSTER_IPS: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];

/// Its node port.
const NODE_PORT: u16 = 30080;

/// The port that pods serve it on.
const TARGET: u16 = 8080;

/// What prints rules, sets, virtual servers and addresses, each line of which is
/// one of them.
const TOOLS: [&str; 6] = [
    "iptables-save",
    "ip6tables-save",
    "ipset save",
    "ipvsadm -Sn",
    "ip -o address show",
    "nft list tables",
];

/// The lab, with two pods that serve on its node.
pub(crate) struct Site {
    pub(crate) lab: Lab,
    folder: Directory,
    _servers: Vec<Server>,
}

impl Site {
    /// Sets it up; the Service has no endpoints.
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
        site.serve_by(&[]);
        site
    }

    /// Says in the manifests which backends serve the Service.
    pub(crate) fn serve_by(&self, backends: &[usize]) {
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

    /// Writes a file of manifests.
    pub(crate) fn write(&self, name: &str, text: &str) {
        self.folder.write(name, text).unwrap();
    }

    /// Adds a Service with an endpoint at an address that the kernel refuses: the
    /// broadcast address of a link.
    pub(crate) fn add_refused_endpoint(&self) {
        self.shell(
            "ip link add eth9 type dummy; ip link set eth9 up
             ip address add 192.168.55.1/24 broadcast 192.168.55.255 dev eth9",
        );
        let text = "apiVersion: v1
kind: Service
metadata: {name: refused}
spec:
  clusterIP: 10.96.0.66
  ports:
  - {name: tcp, port: 80}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: refused, labels: {kubernetes.io/service-name: refused}}
addressType: IPv4
ports:
- {name: tcp, port: 8080}
endpoints:
- {addresses: ['192.168.55.255']}
";
        self.folder.write("refused.yaml", text).unwrap();
    }

    /// Removes that Service.
    pub(crate) fn remove_refused_endpoint(&self) {
        std::fs::remove_file(self.folder.path().join("refused.yaml")).unwrap();
    }

    /// Returns the program in a mode with more flags.
    fn options(&self, mode: &'static str, flags: &str) -> Options {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_kube-proxy"));
        Options {
            flags: flags.split_whitespace().map(str::to_owned).collect(),
            ..Options::new(program, mode, self.folder.path())
        }
    }

    /// Starts the program in a mode, and waits until it serves.
    #[track_caller]
    pub(crate) fn start(&self, mode: &'static str, flags: &str) -> Proxy {
        self.start_with(&self.options(mode, flags))
    }

    /// Starts the program in a mode in a PID namespace, and waits until it serves.
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
        for ask in self.asks() {
            let answer = proxy.wait_for(&self.lab.client.netns, ask, PATIENCE);
            answer.unwrap();
        }
        proxy
    }

    /// Runs the program in a mode to its end.
    #[track_caller]
    pub(crate) fn run(&self, mode: &'static str, flags: &str) {
        let mut command = self.options(mode, flags).command();
        let output = self.lab.node.netns.run(|| command.output()).unwrap();
        assert!(output.status.success(), "{mode} {flags}: {output:?}");
    }

    /// Runs a shell command on the node; returns what it prints.
    #[track_caller]
    pub(crate) fn shell(&self, line: &str) -> String {
        shell(&self.lab.node.netns, line)
    }

    /// Returns what a server on the node answers to a GET, with its status line.
    #[track_caller]
    pub(crate) fn get(&self, port: u16, path: &str) -> String {
        get(&self.lab.node.netns, port, path)
    }

    /// Returns how a client asks the Service by its cluster IPs and by the
    /// addresses of the node, by both protocols.
    pub(crate) fn asks(&self) -> Vec<Ask> {
        let cluster_ips = CLUSTER_IPS.map(|text| text.parse::<IpAddr>().unwrap());
        let cluster_ips = cluster_ips.map(|address| SocketAddr::new(address, 80));
        let node = self.lab.node.addresses();
        let node = node.map(|address| SocketAddr::new(address, NODE_PORT));
        let targets = cluster_ips.into_iter().chain(node);
        let of = |target| {
            let protocols = [Protocol::Tcp, Protocol::Udp];
            protocols.map(|protocol| Ask::new(protocol, target).patience(ANSWER))
        };
        targets.flat_map(of).collect()
    }

    /// Waits until these backends answer all questions, and no others.
    #[track_caller]
    pub(crate) fn is_served_by(&self, backends: &[usize]) {
        let names = backends
            .iter()
            .map(|backend| &self.lab.backends[*backend].name);
        let names: Vec<_> = names.collect();
        until(&format!("answers of {names:?}"), || {
            let ask = |ask: Ask| ask.times(&self.lab.client.netns, TIMES);
            let answers = self.asks().into_iter().map(ask);
            // One way of asking may lead to one of them alone, by chance.
            let answers = answers.fold(Answers::default(), Answers::merge);
            let is_so = answers.failures.is_empty() && answers.servers.keys().eq(names.clone());
            match is_so {
                true => Ok(()),
                false => Err(answers.to_string()),
            }
        });
    }

    /// Returns what proxies have on the node, and what others have there of the
    /// same kinds: each with the tool that shows it.
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

/// Returns what a line is about without what is chance, if a proxy may have made
/// that.
fn shown<'a>(tool: &str, line: &'a str) -> Option<&'a str> {
    let is_shown = match tool {
        "nft list tables" => line.contains("kube-proxy"),
        "ip -o address show" => line.contains("kube-ipvs0"),
        // Of tables and their own chains nothing is left to say, and of what is
        // the kubelet's.
        _ => {
            let is_rule = !line.starts_with(['#', '*']) && line != "COMMIT";
            is_rule && !line.contains(" ACCEPT [") && !line.contains("KUBE-FIREWALL")
        }
    };
    // The link has a number, a hash of a set begins somewhere, a chain counts.
    let line = match tool {
        "ip -o address show" => line.split_once(' ')?.1,
        _ => line,
    };
    let line = line.split(" initval ").next()?.split(" [").next()?;
    is_shown.then(|| line.trim_end())
}

/// Returns the response of a server in a namespace to a GET, with its status line.
#[track_caller]
pub(crate) fn get(netns: &Netns, port: u16, path: &str) -> String {
    let stream = netns.run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until something holds; fails with what was there in its place.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(found) = holds() {
        assert!(Instant::now() < deadline, "not there: {what}: {found}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Tells whether a text has a word in it; else the text.
pub(crate) fn has(text: String, word: &str) -> Result<(), String> {
    match text.contains(word) {
        true => Ok(()),
        false => Err(text),
    }
}
