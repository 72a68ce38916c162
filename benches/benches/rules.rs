//! The figures of mode iptables: what a load costs us beside what it costs the
//! programs of iptables, and what a change is about.
//!
//! Everything happens in network namespaces made for it, so this needs root,
//! and both variants of iptables.

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

/// How many changes are measured.
const CHANGES: usize = 10;

/// What upstream needs for the same load with the nft variant, in seconds, on a
/// machine like ours; we are to be ten times as fast.
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

/// Loads a cluster and changes it.
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
    let mut config = Config {
        families: vec![Family::V4],
        ..Config::default()
    };
    // Counters are made by who opens an engine.
    config.iptables.nfacct = false;
    Engine::with_kernels::<Planner, _>(config, |_| kernel.clone())
}

/// A kernel that tells how long its program takes.
#[derive(Clone)]
struct Watched(Arc<Mutex<Inner>>);

struct Inner {
    netns: Netns,
    kernel: Iptables,
    seen: Seen,
}

/// What the last commit was.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// How long the program needs for the document alone.
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
    type Error = iptables::Error;

    fn dump(&mut self) -> Result<Vec<Object>, iptables::Error> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { netns, kernel, .. } = &mut *inner;
        netns.run(|| kernel.dump())
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, iptables::Error> {
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
        // While a program reads, the document is printed for it.
        seen.restored = time.wall.saturating_sub(printed.wall);
        seen.chains = chains.1;
        done
    }
}
