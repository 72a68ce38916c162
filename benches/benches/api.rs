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

/// Time without a change of more than 1 MiB, after which memory counts as settled.
const SETTLING: Duration = Duration::from_secs(2);

/// Number of EndpointSlices that change before the second measurement of memory.
const CHANGES: usize = 5000;

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let words = "KUBE_PROXY must be the path of the program, built with the profile `image`";
    let program = PathBuf::from(env::var_os("KUBE_PROXY").ok_or(words)?);
    let mut figures = Figures::new()?;
    let megabytes = fs::metadata(&program)?.len() as f64 / 1e6;
    figures.push(
        "kube-proxy: size of the program",
        "",
        (megabytes, "MB"),
        15.0,
    )?;
    let limits = Limits {
        milliseconds: Some(700.0),
        memory: 45.0,
        memory_of_manifests: Some(60.0),
    };
    start(&mut figures, &program, TYPICAL, 5, limits)?;
    let limits = Limits {
        milliseconds: None,
        memory: 200.0,
        memory_of_manifests: None,
    };
    start(&mut figures, &program, LARGE, 1, limits)?;
    Ok(figures.finish("api")?)
}

/// Limits of the figures of a start.
struct Limits {
    /// Time from the start of the process with the API to the first sync.
    milliseconds: Option<f64>,
    /// Resident memory with the API, in MiB.
    memory: f64,
    /// Peak memory with manifests, in MiB.
    memory_of_manifests: Option<f64>,
}

/// Starts the program with objects from the API server and from a file, in turn.
fn start(
    figures: &mut Figures,
    program: &Path,
    size: Size,
    rounds: usize,
    limits: Limits,
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
    row(
        "start: API, to first sync",
        (ms(api), "ms"),
        limits.milliseconds,
    )?;
    row("start: manifests, to first sync", (ms(files), "ms"), None)?;
    let server = quickest(&from_api, |it| it.beside);
    row("start: API, work of the server", (ms(server), "ms"), None)?;
    let resident = peak(&from_api, |it| it.resident);
    let name = "start: API, memory, resident";
    row(name, (resident, "MiB"), Some(limits.memory))?;
    let name = "start: API, memory, peak";
    row(name, (peak(&from_api, |it| it.peak), "MiB"), None)?;
    let name = "start: manifests, memory, resident";
    let resident = peak(&from_files, |it| it.resident);
    row(name, (resident, "MiB"), None)?;
    let name = "start: manifests, memory, peak";
    let highest = peak(&from_files, |it| it.peak);
    row(name, (highest, "MiB"), limits.memory_of_manifests)?;
    Ok(())
}

/// Cost of a start of the program.
struct Start {
    /// Time from the start of the process to the first sync.
    time: Duration,
    /// Processor time of this process, which contains the API server.
    beside: Duration,
    /// Memory after the start, and after changes of the API, in MiB.
    resident: f64,
    /// Peak memory, in MiB.
    peak: f64,
}

impl Start {
    fn with_manifests(program: &Path, manifests: &Path) -> Outcome<Self> {
        let netns = Netns::new()?;
        let source = ["--manifests".into(), manifests.display().to_string()];
        Self::of(program, &source, &netns, || true, || ())
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
        let change = || {
            server.apply_all(changed(objects));
        };
        Self::of(program, &source, &netns, is_watched, change)
    }

    fn of(
        program: &Path,
        source: &[String],
        netns: &Netns,
        is_watched: impl Fn() -> bool,
        change: impl Fn(),
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
        wait(&process, is_watched)?;
        let after_start = settled(&process)?;
        change();
        let after_changes = settled(&process)?;
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
        let start = Self {
            time,
            beside,
            resident: after_start.max(after_changes),
            peak: mib(&status, "VmHWM:")?,
        };
        let output = process.output();
        match process.terminate()?.success() {
            true => Ok(start),
            false => Err(output.into()),
        }
    }
}

/// Waits until the memory of the process is settled, and returns it in MiB.
fn settled(process: &Process) -> Outcome<f64> {
    let path = format!("/proc/{}/status", process.pid());
    let began = Instant::now();
    let (mut since, mut memory) = (began, f64::MAX);
    while since.elapsed() < SETTLING {
        if began.elapsed() > PATIENCE {
            return Err("the memory does not settle".into());
        }
        let now = mib(&fs::read_to_string(&path)?, "VmRSS:")?;
        if f64::abs(now - memory) > 1.0 {
            (since, memory) = (Instant::now(), now);
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(memory)
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

/// Returns some EndpointSlices with another address of their first endpoint.
fn changed(objects: &[Value]) -> impl Iterator<Item = Value> {
    let slices = objects.iter();
    let slices = slices.filter(|object| object["kind"] == api::EndpointSlice::KIND);
    slices.take(CHANGES).enumerate().map(|(number, slice)| {
        let mut slice = slice.clone();
        let address = format!("10.250.{}.{}", number / 250, number % 250 + 1);
        slice["endpoints"][0]["addresses"] = json!([address]);
        slice
    })
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
