//! Answers of cluster-dns: their cost and latency, memory, and the time from a change to
//! the answer.
//!
//! `CLUSTER_DNS` is the path of the program; `cargo xtask bench` sets it.
//! Runs in a network namespace, and needs root and the program `dnsperf`. The API server
//! and the upstream name server run in this process.

use std::error::Error;
use std::fmt::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use apiserver::ApiServer;
use benches::cluster::Size;
use benches::dns::{self, Upstream};
use benches::figure::{Figures, conclude, ms, percentile};
use rustix::param::clock_ticks_per_second;
use serde_json::{Value, json};
use testkit::generate::{self, Stack};
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};
use vipline_service_model::api;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TYPICAL: Size = Size::new(10_000, 5);

/// A name of the zone that does not exist.
const UNKNOWN: &str = "none.default.svc.cluster.local";

/// Address of the server.
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 53);

/// Address of the upstream name server.
const UPSTREAM: (Ipv4Addr, u16) = (Ipv4Addr::new(127, 0, 0, 2), 53);

/// Time limit of the start, and of a change.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number and duration of the measurements of a load.
const ROUNDS: usize = 5;
const SECONDS: u32 = 3;

/// Half of the required answers per second.
const HALF_LOAD: u32 = 50_000;

/// Highest processor time per answer in microseconds: 100,000 answers in a second.
const COST: f64 = 10.0;

/// Number of names that the upstream name server is asked for.
const UPSTREAM_NAMES: usize = 1000;

/// Number of changes.
const CHANGES: u8 = 100;

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let words = "CLUSTER_DNS must be the path of the program, built with the profile `image`";
    let program = PathBuf::from(env::var_os("CLUSTER_DNS").ok_or(words)?);
    let mut figures = Figures::new()?;
    let netns = Netns::new()?;
    let folder = Directory::new()?;
    let api = netns.run(ApiServer::start);
    api.apply_all(objects(TYPICAL));
    folder.write("kubeconfig", &api.kubeconfig())?;
    let upstream = netns.run(|| Upstream::start(UPSTREAM))?;
    let server = Server::start(&program, folder.path(), &netns)?;

    let zone = zone_questions(TYPICAL)?;
    let cached = upstream_questions()?;
    for (name, questions) in [("zone", zone), ("cached", cached)] {
        let file = folder.path().join(name);
        folder.write(name, &questions)?;
        load(&mut figures, &server, name, &file)?;
        half_load(&mut figures, &server, name, &file)?;
    }
    let asked = upstream.questions();
    // The cache holds all names after the first questions for them.
    let words = format!("{asked} questions reached the upstream name server");
    let repeated = 100 * UPSTREAM_NAMES;
    if asked < UPSTREAM_NAMES || asked > repeated {
        return Err(words.into());
    }
    change(&mut figures, &server, &api)?;
    let memory = server.memory("VmRSS:")?;
    figures.push("dns: memory, resident", TYPICAL, (memory, "MiB"), 60.0)?;
    let memory = server.memory("VmHWM:")?;
    figures.push("dns: memory, peak", TYPICAL, (memory, "MiB"), None)?;
    server.stop()?;
    Ok(figures.finish("dns")?)
}

/// Measures throughput and processor time of a load that is as high as possible.
fn load(figures: &mut Figures, server: &Server<'_>, name: &str, questions: &Path) -> Outcome<()> {
    let mut costs = Vec::new();
    let mut rates = Vec::new();
    // The first round fills caches.
    for _ in 0..=ROUNDS {
        let before = server.processor()?;
        let run = server.dnsperf(questions, &[])?;
        let used = server.processor()? - before;
        costs.push(used.as_secs_f64() * 1e6 / f64::from(run.answers));
        rates.push(run.rate);
    }
    let mut row = |measure: &str, value, limit: Option<f64>| {
        figures.push(&format!("dns: {name}, {measure}"), TYPICAL, value, limit)
    };
    let cost = percentile(&costs[1..], 50);
    row("processor time per answer", (cost, "us"), Some(COST))?;
    row(
        "answers per processor second",
        (1e6 / cost, "answers"),
        None,
    )?;
    row(
        "answers per second",
        (percentile(&rates[1..], 50), "answers"),
        None,
    )?;
    Ok(())
}

/// Measures the latency at half of the required load.
fn half_load(
    figures: &mut Figures,
    server: &Server<'_>,
    name: &str,
    questions: &Path,
) -> Outcome<()> {
    let mut medians = Vec::new();
    let mut highest = Vec::new();
    for _ in 0..ROUNDS {
        let rate = HALF_LOAD.to_string();
        let run = server.dnsperf(questions, &["-Q", &rate, "-v"])?;
        medians.push(percentile(&run.latencies, 50));
        highest.push(percentile(&run.latencies, 99));
    }
    // Other processes make a p99 longer, never shorter.
    for (part, values, limit) in [("median", medians, None), ("p99", highest, Some(1.0))] {
        let measure = format!("dns: {name}, {part} at half load");
        let lowest = percentile(&values, 0) * 1e3;
        figures.push(&measure, TYPICAL, (lowest, "ms"), limit)?;
    }
    Ok(())
}

/// Measures the time from a change of an EndpointSlice to the answer with its address.
fn change(figures: &mut Figures, server: &Server<'_>, api: &ApiServer) -> Outcome<()> {
    let mut times = Vec::new();
    for number in 1..=CHANGES {
        let addr = Ipv4Addr::new(10, 251, 0, number);
        let began = Instant::now();
        api.apply(headless_slice(addr));
        while !server.answers_contain("headless.default.svc.cluster.local", addr)? {
            if began.elapsed() > PATIENCE {
                return Err("an answer does not follow the change of an EndpointSlice".into());
            }
            thread::sleep(Duration::from_micros(100));
        }
        times.push(ms(began.elapsed()));
        thread::sleep(Duration::from_millis(5));
    }
    let median = (percentile(&times, 50), "ms");
    figures.push("dns: change to answer, median", TYPICAL, median, None)?;
    let p99 = (percentile(&times, 99), "ms");
    figures.push("dns: change to answer, p99", TYPICAL, p99, 10.0)?;
    Ok(())
}

/// A running cluster-dns.
struct Server<'a> {
    netns: &'a Netns,
    process: Process,
    socket: UdpSocket,
}

/// Result of a run of dnsperf.
struct Run {
    answers: u32,
    /// Answers per second.
    rate: f64,
    /// Latencies in seconds; empty without `-v`.
    latencies: Vec<f64>,
}

impl<'a> Server<'a> {
    /// Starts the program, and waits until it answers.
    fn start(program: &Path, folder: &Path, netns: &'a Netns) -> Outcome<Self> {
        let mut command = Command::new(program);
        let (server, upstream) = (text(SERVER), text(UPSTREAM));
        command
            .arg("--kubeconfig")
            .arg(folder.join("kubeconfig"))
            .args(["--zone", "cluster.local", "--listen", &server])
            .args(["--forward", &upstream, "--lame-duck", "0s"]);
        let process = Process::start(netns, &mut command)?;
        let socket = netns.run(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        socket.connect(SERVER)?;
        let server = Self {
            netns,
            process,
            socket,
        };
        let began = Instant::now();
        let last = format!("service-{}.default.svc.cluster.local", TYPICAL.services - 1);
        let addr = generate::cluster(TYPICAL.services, 0, Stack::V4).last();
        let addr = addr.ok_or("an empty cluster")?.service().spec.cluster_ip;
        let addr = addr.parse()?;
        // Before the first list is complete, unknown names get SERVFAIL.
        let is_complete = || -> Outcome<bool> {
            Ok(server.answers_contain(&last, addr)? && server.is_unknown(UNKNOWN)?)
        };
        while !is_complete().unwrap_or(false) {
            if began.elapsed() > PATIENCE {
                return Err(format!("no answer; output:\n{}", server.process.output()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Returns whether the answer to a question of type A contains an address.
    fn answers_contain(&self, name: &str, addr: Ipv4Addr) -> Outcome<bool> {
        let octets = addr.octets();
        Ok(self.answer(name)?.windows(4).any(|bytes| bytes == octets))
    }

    /// Returns whether the answer to a question of type A is NXDOMAIN.
    fn is_unknown(&self, name: &str) -> Outcome<bool> {
        let code = self.answer(name)?.get(3).map(|flags| flags & 0xF);
        Ok(code == Some(3))
    }

    /// Sends a question of type A and returns the response.
    fn answer(&self, name: &str) -> Outcome<Vec<u8>> {
        self.socket.send(&dns::question(name))?;
        let mut answer = vec![0; 4096];
        let length = self.socket.recv(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    }

    /// Sends questions for some seconds.
    fn dnsperf(&self, questions: &Path, options: &[&str]) -> Outcome<Run> {
        let mut dnsperf = Command::new("dnsperf");
        let (addr, port) = (SERVER.0.to_string(), SERVER.1.to_string());
        dnsperf
            .args(["-s", &addr, "-p", &port, "-c", "8", "-T", "1", "-q", "200"])
            .args(["-l", &SECONDS.to_string(), "-d"])
            .arg(questions)
            .args(options);
        let output = self.netns.run(|| dnsperf.output())?;
        let output = String::from_utf8(output.stdout)?;
        let run = Run::parse(&output).ok_or_else(|| output.clone())?;
        let failed = ["SERVFAIL", "REFUSED", "FORMERR"];
        if failed.iter().any(|code| output.contains(code)) {
            return Err(output.into());
        }
        Ok(run)
    }

    /// Returns the processor time of the program.
    fn processor(&self) -> Outcome<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.pid()))?;
        let (_, fields) = stat.rsplit_once(") ").ok_or("no name in stat")?;
        let fields = fields.split(' ').skip(11).take(2);
        let ticks: u64 = fields.map(str::parse::<u64>).sum::<Result<_, _>>()?;
        let second = clock_ticks_per_second();
        Ok(Duration::from_secs(ticks) / u32::try_from(second)?)
    }

    /// Returns a field of the status of the program in MiB.
    fn memory(&self, field: &str) -> Outcome<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("no such field")?.parse::<f64>()? / 1024.0)
    }

    fn stop(self) -> Outcome<()> {
        let output = self.process.output();
        match self.process.terminate()?.success() {
            true => Ok(()),
            false => Err(output.into()),
        }
    }
}

impl Run {
    fn parse(output: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = output.lines().find_map(|line| {
                let line = line.trim_start();
                line.strip_prefix(name)
            })?;
            line.split_whitespace().next()
        };
        let latency = |line: &str| line.rsplit(' ').next()?.parse().ok();
        let answered = output.lines().filter(|line| line.starts_with("> "));
        let run = Self {
            answers: field("Queries completed:")?.parse().ok()?,
            rate: field("Queries per second:")?.parse().ok()?,
            latencies: answered.filter_map(latency).collect(),
        };
        let lost: u32 = field("Queries lost:")?.parse().ok()?;
        (run.answers > 0 && lost <= run.answers / 1000).then_some(run)
    }
}

fn text((addr, port): (Ipv4Addr, u16)) -> String {
    format!("{addr}:{port}")
}

/// Returns the objects of the cluster, and a headless Service with five endpoints.
fn objects(size: Size) -> Vec<Value> {
    let mut objects = Vec::new();
    for plan in generate::cluster(size.services, size.endpoints, Stack::V4) {
        objects.push(object("v1", "Service", json!(plan.service())));
        let slices = plan.slices();
        let slices = slices.iter().map(|slice| json!(slice));
        objects.extend(slices.map(|slice| object("discovery.k8s.io/v1", "EndpointSlice", slice)));
    }
    let headless = json!({
        "metadata": {"namespace": "default", "name": "headless"},
        "spec": {"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"name": "http", "port": 80}]},
    });
    objects.push(object("v1", "Service", headless));
    objects.push(headless_slice(Ipv4Addr::new(10, 251, 0, 0)));
    objects
}

fn headless_slice(first: Ipv4Addr) -> Value {
    let others = (1..5).map(|number| Ipv4Addr::new(10, 252, 0, number));
    let endpoints = [first].into_iter().chain(others);
    let endpoints = endpoints.map(|addr| json!({"addresses": [addr]}));
    let slice = json!({
        "metadata": {
            "namespace": "default",
            "name": "headless-1",
            "labels": {api::EndpointSlice::SERVICE_NAME_LABEL: "headless"},
        },
        "addressType": "IPv4",
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    });
    object("discovery.k8s.io/v1", "EndpointSlice", slice)
}

fn object(version: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object
}

/// Returns questions as those of pods: both families, and names that do not exist because
/// of the search list of resolvers.
fn zone_questions(size: Size) -> Outcome<String> {
    let mut text = String::new();
    for number in 0..size.services {
        // Multiplication by a prime distributes the Services evenly.
        let name = format!("service-{}.default.svc", number * 7919 % size.services);
        writeln!(text, "{name}.cluster.local A")?;
        writeln!(text, "{name}.cluster.local AAAA")?;
        match number % 4 {
            0 => writeln!(text, "_tcp-80._tcp.{name}.cluster.local SRV")?,
            1 => writeln!(text, "{name}.default.svc.cluster.local A")?,
            2 => writeln!(text, "{name}.svc.cluster.local AAAA")?,
            _ => writeln!(text, "headless.default.svc.cluster.local A")?,
        }
    }
    Ok(text)
}

/// Returns questions for names of the upstream name server.
fn upstream_questions() -> Outcome<String> {
    let mut text = String::new();
    for number in 0..UPSTREAM_NAMES {
        writeln!(text, "host-{number}.example.com A")?;
    }
    Ok(text)
}
