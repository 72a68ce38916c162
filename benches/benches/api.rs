//! Time and memory of a start of kube-proxy with an API server, compared with a start
//! with the same objects from a file.
//!
//! `KUBE_PROXY` is the path of the program; `cargo xtask bench` sets it.
//! Runs in network namespaces, and needs root. The API server runs in this process
//! and shares the host with the measured program.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use apiserver::ApiServer;
use benches::cluster::Size;
use benches::figure::{Figures, conclude, ms};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::{Value, json};
use testkit::generate::{self, Stack};
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};
use vipline_service_model::api;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TYPICAL: Size = Size::new(10_000, 5);
const LARGE: Size = Size::new(100_000, 1);

/// Time limit of a start.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time between the start of the last watch and the measurement of memory.
const SETTLING: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let words = "KUBE_PROXY must be the path of the program to be measured, built for release";
    let program = PathBuf::from(env::var_os("KUBE_PROXY").ok_or(words)?);
    let mut figures = Figures::new()?;
    start(&mut figures, &program, TYPICAL, 5, 60.0)?;
    start(&mut figures, &program, LARGE, 1, 250.0)?;
    Ok(figures.finish("api")?)
}

/// Starts the program with objects from the API server and from a file, in turn.
fn start(
    figures: &mut Figures,
    program: &Path,
    size: Size,
    rounds: usize,
    memory: f64,
) -> Outcome<()> {
    let objects = objects(size);
    let folder = Directory::new()?;
    let manifests = folder.path().join("manifests");
    fs::create_dir(&manifests)?;
    fs::write(manifests.join("all.json"), manifest(&objects)?)?;
    let mut from_api = Vec::new();
    let mut from_files = Vec::new();
    for _ in 0..rounds {
        from_files.push(Start::with_manifests(program, &manifests)?);
        from_api.push(Start::with_api(program, &objects, &folder)?);
    }
    let quickest = |starts: &[Start], time: fn(&Start) -> Duration| {
        let times = starts.iter().map(time);
        times.min().unwrap_or_default()
    };
    let peak = |starts: &[Start], memory: fn(&Start) -> f64| {
        let sizes = starts.iter().map(memory);
        sizes.fold(0.0, f64::max)
    };
    let mut row = |measure, value, limit| figures.push(measure, size, value, limit);
    // Other processes make each of the two longer, never shorter.
    let [api, files] = [&from_api, &from_files].map(|starts| quickest(starts, |it| it.time));
    let ratio = api.as_secs_f64() / files.as_secs_f64();
    row("start: API", (ratio, "x manifests"), Some(3.0))?;
    row("start: API, to first sync", (ms(api), "ms"), None)?;
    row("start: manifests, to first sync", (ms(files), "ms"), None)?;
    let server = quickest(&from_api, |it| it.beside);
    row("start: API, work of the server", (ms(server), "ms"), None)?;
    let resident = peak(&from_api, |it| it.resident);
    row(
        "start: API, memory, resident",
        (resident, "MiB"),
        Some(memory),
    )?;
    let name = "start: API, memory, peak";
    row(name, (peak(&from_api, |it| it.peak), "MiB"), None)?;
    let name = "start: manifests, memory, resident";
    row(name, (peak(&from_files, |it| it.resident), "MiB"), None)?;
    let name = "start: manifests, memory, peak";
    row(name, (peak(&from_files, |it| it.peak), "MiB"), None)?;
    Ok(())
}

/// Cost of a start of the program.
struct Start {
    /// Time from the start of the process to the first sync.
    time: Duration,
    /// Processor time of this process, which contains the API server.
    beside: Duration,
    /// Memory after the start, in MiB.
    resident: f64,
    /// Peak memory, in MiB.
    peak: f64,
}

impl Start {
    fn with_manifests(program: &Path, manifests: &Path) -> Outcome<Self> {
        let netns = Netns::new()?;
        let source = ["--manifests".into(), manifests.display().to_string()];
        Self::of(program, &source, &netns, || true)
    }

    fn with_api(program: &Path, objects: &[Value], folder: &Directory) -> Outcome<Self> {
        let netns = Netns::new()?;
        let server = netns.run(ApiServer::start);
        server.apply_all(objects.iter().cloned());
        folder.write("kubeconfig", &server.kubeconfig())?;
        let file = folder.path().join("kubeconfig");
        let source = ["--kubeconfig".into(), file.display().to_string()];
        let is_watched = || {
            let kinds = ["services", "endpointslices", "nodes", "servicecidrs"];
            kinds.iter().all(|kind| server.watchers(kind) > 0)
        };
        Self::of(program, &source, &netns, is_watched)
    }

    fn of(
        program: &Path,
        source: &[String],
        netns: &Netns,
        is_settled: impl Fn() -> bool,
    ) -> Outcome<Self> {
        let mut command = Command::new(program);
        command
            .env_remove("MALLOC_TRIM_THRESHOLD_")
            .args(["--proxy-mode", "nftables", "--hostname-override", "node-1"])
            .args(["--cluster-cidr", "10.128.0.0/9"])
            .args(source);
        let (began, processor) = (Instant::now(), processor());
        let process = Process::start(netns, &mut command)?;
        wait(&process, || process.output().contains("synced"))?;
        let (time, beside) = (began.elapsed(), self::processor() - processor);
        wait(&process, is_settled)?;
        thread::sleep(SETTLING);
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
        let start = Self {
            time,
            beside,
            resident: mib(&status, "VmRSS:")?,
            peak: mib(&status, "VmHWM:")?,
        };
        let output = process.output();
        match process.terminate()?.success() {
            true => Ok(start),
            false => Err(output.into()),
        }
    }
}

/// Waits until a condition holds.
fn wait(process: &Process, holds: impl Fn() -> bool) -> Outcome<()> {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > PATIENCE {
            return Err(format!("no sync; output:\n{}", process.output()).into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns the processor time of this process.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn mib(status: &str, field: &str) -> Outcome<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no such field")?.parse::<f64>()? / 1024.0)
}

/// Returns a Node and all Services and EndpointSlices, as API objects.
fn objects(size: Size) -> Vec<Value> {
    let mut objects = vec![json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    })];
    for plan in generate::cluster(size.services, size.endpoints, Stack::V4) {
        let (version, kind) = (api::Service::API_VERSION, api::Service::KIND);
        objects.push(object(version, kind, &plan.service()));
        let (version, kind) = (api::EndpointSlice::API_VERSION, api::EndpointSlice::KIND);
        let slices = plan.slices();
        objects.extend(slices.iter().map(|slice| object(version, kind, slice)));
    }
    objects
}

fn object(version: &str, kind: &str, object: &impl Serialize) -> Value {
    let mut object = json!(object);
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object
}

/// Returns a manifest in the format that is parsed fastest: one JSON document per
/// object, without whitespace.
fn manifest(objects: &[Value]) -> Outcome<String> {
    let mut text = String::new();
    for object in objects {
        text += "---\n";
        text += &serde_json::to_string(object)?;
        text.push('\n');
    }
    Ok(text)
}
