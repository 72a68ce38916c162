//! Figures of mode iptables: loads compared with the iptables programs, and the cost of
//! changes.
//!
//! Runs in network namespaces, and needs root and both variants of iptables.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use benches::cluster::{self, Size};
use benches::figure::{Figures, conclude, ms, percentile};
use benches::time::Time;
use proxy_core::backend::iptables::{Kernel as Iptables, Planner};
use proxy_core::{Config, Engine, Event, Family};
use testkit::netns::Netns;
use vipline_iptables::{self as iptables, Client, Object, Restore, Variant};
use vipline_reconcile::{Edit, Rejection, Target};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TYPICAL: Size = Size::new(10_000, 5);

/// Number of measured changes.
const CHANGES: usize = 10;

/// Time of upstream kube-proxy for the same load with the nft variant on similar
/// hardware, in seconds. The limit is a tenth.
const UPSTREAM: f64 = 369.0;

fn main() -> ExitCode {
    conclude(figures())
}

fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    for variant in [Variant::Legacy, Variant::Nft] {
        load(variant, &mut figures)?;
    }
    Ok(figures.finish("rules")?)
}

/// Measures the load of a cluster, and changes.
fn load(variant: Variant, figures: &mut Figures) -> Outcome<()> {
    let named = |what: &str| format!("iptables-{variant}: {what}");
    let kernel = Watched::new(variant)?;
    let mut engine = engine(&kernel);
    TYPICAL.events().for_each(|event| {
        engine.apply(event);
    });
    engine.apply(Event::Synced);
    let mut now = Duration::ZERO;
    let (whole, report) = Time::of(|| engine.poll(now));
    let report = report.ok_or("a first sync is due")?;
    if !report.is_success() {
        return Err(report.to_string().into());
    }
    let seen = kernel.seen();
    let ours = whole.wall.saturating_sub(seen.restored);
    let ratio = ours.as_secs_f64() / seen.restored.as_secs_f64();
    let load = named("full load");
    figures.push(
        &load,
        TYPICAL,
        (seen.restored.as_secs_f64(), "s, restore"),
        None,
    )?;
    figures.push(&load, TYPICAL, (ms(ours), "ms, ours"), None)?;
    figures.push(&load, TYPICAL, (ratio, "x restore"), 0.25)?;
    if variant == Variant::Nft {
        let whole = whole.wall.as_secs_f64();
        figures.push(&load, TYPICAL, (whole, "s"), UPSTREAM / 10.0)?;
    }
    let (mut times, mut chains) = (Vec::new(), 0);
    for (number, mut slice) in (0..).zip(TYPICAL.slices(CHANGES)) {
        cluster::replace(&mut slice, 2, number);
        engine.poll(now);
        now += Duration::from_secs(10);
        engine.apply(slice.into());
        let (time, report) = Time::of(|| engine.poll(now));
        if !report.is_some_and(|report| report.is_success()) {
            return Err("a change failed".into());
        }
        times.push(time.wall);
        chains = chains.max(kernel.seen().chains);
    }
    let replaced = named("one endpoint replaced");
    let median = percentile(&times, 50);
    figures.push(&replaced, TYPICAL, (ms(median), "ms, median"), None)?;
    #[allow(clippy::cast_precision_loss, reason = "chains are few")]
    figures.push(&replaced, TYPICAL, (chains as f64, "chains"), 5.0)?;
    Ok(())
}

fn engine(kernel: &Watched) -> Engine {
    let mut config = Config::default().with_families(vec![Family::V4]);
    // The creator of an engine also creates the counters.
    config.iptables.nfacct = false;
    Engine::with_kernels::<Planner, _>(config, |_| kernel.clone())
}

/// A kernel that measures the time of its program.
#[derive(Clone)]
struct Watched(Arc<Mutex<Inner>>);

struct Inner {
    netns: Netns,
    kernel: Iptables,
    seen: Seen,
}

/// Measurements of the last commit.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Time of the program for the document alone.
    restored: Duration,
    chains: usize,
}

impl Watched {
    fn new(variant: Variant) -> Outcome<Self> {
        let netns = Netns::new()?;
        let client = Client::open_variant(iptables::Family::V4, variant)?;
        let inner = Inner {
            netns,
            kernel: Iptables::with_client(client, Family::V4),
            seen: Seen::default(),
        };
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    fn seen(&self) -> Seen {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).seen
    }
}

impl Target for Watched {
    type Object = Object;
    type Error = proxy_core::Error;

    fn dump(&mut self) -> Result<Vec<Object>, proxy_core::Error> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { netns, kernel, .. } = &mut *inner;
        netns.run(|| kernel.dump())
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, proxy_core::Error> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner {
            netns,
            kernel,
            seen,
        } = &mut *inner;
        let (time, done) = Time::of(|| netns.run(|| kernel.commit(edits)));
        let (printed, chains) = Time::of(|| {
            let restore = Restore::from_edits(edits);
            (restore.to_string().len(), restore.chains())
        });
        // The document is printed while the program reads it.
        seen.restored = time.wall.saturating_sub(printed.wall);
        seen.chains = chains.1;
        done
    }
}
