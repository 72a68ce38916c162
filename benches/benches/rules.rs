//! Figures of mode iptables: loads compared with the iptables programs or with a replay of
//! the same rules, and the cost of changes.
//!
//! Runs in network namespaces, and needs root and both variants of iptables.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use benches::cluster::{self, Size};
use benches::figure::{Figures, conclude, ms, percentile};
use benches::floor;
use benches::time::Time;
use proxy_core::backend::iptables::{Kernel as Iptables, Planner};
use proxy_core::{Config, Engine, Event, Family, IptablesBackend};
use testkit::netns::Netns;
use vipline_iptables::{Client, Object, Restore, Rule, Variant, nft};
use vipline_nftables::{self as nftables, Transaction};
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
    over_netlink(&mut figures)?;
    Ok(figures.finish("rules")?)
}

/// Measures the load of a cluster, and changes.
fn load(variant: Variant, figures: &mut Figures) -> Outcome<()> {
    let named = |what: &str| format!("iptables-{variant}: {what}");
    let kernel = Watched::new(variant)?;
    let (mut engine, whole, _) = start(&kernel)?;
    let seen = kernel.seen();
    let ours = whole.saturating_sub(seen.restored);
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
        let whole = whole.as_secs_f64();
        figures.push(&load, TYPICAL, (whole, "s"), UPSTREAM / 10.0)?;
    }
    let mut chains = 0;
    let times = replace_endpoints(&mut engine, &kernel, || {
        chains = chains.max(kernel.seen().chains);
        Ok(())
    })?;
    let replaced = named("one endpoint replaced");
    let median = percentile(&times, 50);
    figures.push(&replaced, TYPICAL, (ms(median), "ms, median"), None)?;
    #[allow(clippy::cast_precision_loss, reason = "chains are few")]
    figures.push(&replaced, TYPICAL, (chains as f64, "chains"), 5.0)?;
    Ok(())
}

/// Number of loads over netlink.
const ROUNDS: usize = 3;

/// Measures loads, restarts and changes over netlink, and replays of their batches.
fn over_netlink(figures: &mut Figures) -> Outcome<()> {
    let rounds: Vec<_> = (0..ROUNDS).map(|_| Round::run()).collect::<Outcome<_>>()?;
    let median = |value: fn(&Round) -> Duration| {
        let values: Vec<_> = rounds.iter().map(value).collect();
        percentile(&values, 50)
    };
    let ratio = |value: fn(&Round) -> [Duration; 2]| {
        let ratio = |round: &Round| {
            let [ours, floor] = value(round);
            ours.as_secs_f64() / floor.as_secs_f64()
        };
        let mut ratios: Vec<_> = rounds.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ROUNDS / 2]
    };
    let mut row = |what: &str, figure, limit| {
        let name = format!("iptables over netlink: {what}");
        figures.push(&name, TYPICAL, figure, limit)
    };
    let load = "full load";
    row(load, (median(|it| it.load).as_secs_f64(), "s"), None)?;
    row(
        load,
        (ratio(|it| [it.load, it.load_floor]), "x replay"),
        Some(1.5),
    )?;
    let restart = median(|it| it.restart).as_secs_f64();
    row("restart with nothing changed", (restart, "s"), Some(1.2))?;
    let edits = rounds.iter().map(|it| it.restart_edits).max();
    #[allow(clippy::cast_precision_loss, reason = "edits are few")]
    let edits = edits.unwrap_or_default() as f64;
    row("restart with nothing changed", (edits, "edits"), Some(0.0))?;
    let replaced = "one endpoint replaced";
    row(replaced, (ms(median(|it| it.change)), "ms, median"), None)?;
    let ratio = ratio(|it| [it.change, it.change_floor]);
    row(replaced, (ratio, "x replay"), Some(1.15))?;
    Ok(())
}

/// Times of a load over netlink, and of replays of its batches. Times of changes are
/// medians.
struct Round {
    load: Duration,
    load_floor: Duration,
    restart: Duration,
    restart_edits: usize,
    change: Duration,
    change_floor: Duration,
}

impl Round {
    fn run() -> Outcome<Self> {
        let kernel = Watched::over_netlink()?;
        let (mut engine, load, _) = start(&kernel)?;
        let mut batches = vec![kernel.installed()?];
        let (restarted, restart, restart_edits) = start(&kernel)?;
        drop(restarted);
        let times = replace_endpoints(&mut engine, &kernel, || {
            batches.push(kernel.last_batch()?);
            Ok(())
        })?;
        let floors = Netns::new()?.run(|| floor::replay(&batches))?;
        let floors: Vec<_> = floors.iter().map(|time| time.wall).collect();
        Ok(Self {
            load,
            load_floor: floors[0],
            restart,
            restart_edits,
            change: percentile(&times, 50),
            change_floor: percentile(&floors[1..], 50),
        })
    }
}

/// Syncs a new engine. Returns the time and the number of edits.
fn start(kernel: &Watched) -> Outcome<(Engine, Duration, usize)> {
    let mut engine = engine(kernel);
    TYPICAL.events().for_each(|event| {
        engine.apply(event);
    });
    engine.apply(Event::Synced);
    let (time, report) = Time::of(|| engine.poll(Duration::ZERO));
    let report = report.ok_or("a first sync is due")?;
    if !report.is_success() {
        return Err(report.to_string().into());
    }
    let outcomes = report.families.iter().flat_map(|family| &family.outcome);
    let edits = outcomes.map(|outcome| outcome.edits).sum();
    Ok((
        engine,
        time.wall.saturating_sub(kernel.seen().copied),
        edits,
    ))
}

/// Replaces an endpoint of one Service after the other, and calls `each` after each sync.
/// Returns the times of the changes.
fn replace_endpoints(
    engine: &mut Engine,
    kernel: &Watched,
    mut each: impl FnMut() -> Outcome<()>,
) -> Outcome<Vec<Duration>> {
    let (mut now, mut times) = (Duration::ZERO, Vec::new());
    for (number, mut slice) in (0..).zip(TYPICAL.slices(CHANGES)) {
        cluster::replace(&mut slice, 2, number);
        engine.poll(now);
        now += Duration::from_secs(10);
        engine.apply(slice.into());
        let (time, report) = Time::of(|| engine.poll(now));
        if !report.is_some_and(|report| report.is_success()) {
            return Err("a change failed".into());
        }
        // Copying the edits is no part of a change.
        times.push(time.wall.saturating_sub(kernel.seen().copied));
        each()?;
    }
    Ok(times)
}

/// Encodes edits of chains as nf_tables transaction.
fn batch(edits: &[Edit<Object>]) -> Outcome<Vec<u8>> {
    let edits = edits.iter().map(|edit| {
        Ok(match edit {
            Edit::Add(new) => Edit::Add(nft_chain(new)?),
            Edit::Change { old, new } => Edit::Change {
                old: nft_chain(old)?,
                new: nft_chain(new)?,
            },
            Edit::Remove(old) => Edit::Remove(nft_chain(old)?),
        })
    });
    let edits: Vec<_> = edits.collect::<Outcome<_>>()?;
    Ok(Transaction::from_edits(&edits)
        .encode(1, None)
        .bytes()
        .to_vec())
}

/// Adds the protocols of rules, which a dump lacks and some targets require.
fn with_compat(object: nftables::Object) -> nftables::Object {
    let nftables::Object::Chain(chain) = &object else {
        return object;
    };
    let family = Family::V4;
    let encode = |rule: &nftables::Rule| {
        let decoded = nft::decode(rule, family).expect("a rule of the engine");
        nft::encode(&decoded, family).expect("a rule of the engine")
    };
    let rules: Vec<_> = chain.rules.iter().map(encode).collect();
    nftables::Chain::clone(chain).with_rules(rules).into()
}

/// Converts a chain to the form of the nft variant.
fn nft_chain(object: &Object) -> Outcome<nftables::Object> {
    let Object::Chain(chain) = object else {
        return Err("one endpoint changes no shared rule".into());
    };
    let family = Family::V4;
    let encode = |text| -> Outcome<_> { Ok(nft::encode(&Rule::parse(text)?, family)?) };
    let rules = chain.rules().map(encode).collect::<Outcome<Vec<_>>>()?;
    let name = nftables::Name::new(chain.name.as_str())?;
    let table = nft::table_id(family, chain.table);
    Ok(nftables::Chain::new(table, name).with_rules(rules).into())
}

fn engine(kernel: &Watched) -> Engine {
    let mut config = Config::default().with_families(vec![Family::V4]);
    // The creator of an engine also creates the counters.
    config.iptables.nfacct = false;
    let planner = Planner::from(&config);
    Engine::with_kernels(config.engine, planner, |_| kernel.clone())
}

/// A kernel that measures the time of its program.
#[derive(Clone)]
struct Watched(Arc<Mutex<Inner>>);

struct Inner {
    netns: Netns,
    kernel: Iptables,
    seen: Seen,
    /// Edits of the last commit.
    last: Vec<Edit<Object>>,
}

/// Measurements of the last commit.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Time of the program for the document alone.
    restored: Duration,
    chains: usize,
    /// Time of work for the benchmark.
    copied: Duration,
}

impl Watched {
    fn new(variant: Variant) -> Outcome<Self> {
        let netns = Netns::new()?;
        let client = Client::open_variant(Family::V4, variant)?;
        let inner = Inner {
            netns,
            kernel: Iptables::with_client(client, Family::V4),
            seen: Seen::default(),
            last: Vec::new(),
        };
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    fn over_netlink() -> Outcome<Self> {
        let netns = Netns::new()?;
        let kernel = netns.run(|| Iptables::open_with(Family::V4, IptablesBackend::Netlink))?;
        let inner = Inner {
            netns,
            kernel,
            seen: Seen::default(),
            last: Vec::new(),
        };
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    /// Returns the installed rules as one batch.
    fn installed(&self) -> Outcome<Vec<u8>> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = ["filter", "mangle", "nat"].map(|name| {
            let name = nftables::Name::new(name).expect("a valid name");
            nftables::TableId::new(nftables::Family::Ip, name)
        });
        let ruleset = inner.netns.run(|| {
            let mut client = nftables::Client::open()?;
            client.dump(&tables)
        })?;
        let objects = ruleset.into_objects().map(with_compat);
        let edits: Vec<_> = objects.map(Edit::Add).collect();
        Ok(Transaction::from_edits(&edits)
            .encode(1, None)
            .bytes()
            .to_vec())
    }

    /// Returns the batch of the last commit.
    fn last_batch(&self) -> Outcome<Vec<u8>> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batch(&inner.last)
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
        let Inner {
            netns,
            kernel,
            seen,
            ..
        } = &mut *inner;
        seen.copied = Duration::ZERO;
        netns.run(|| kernel.dump())
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, proxy_core::Error> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner {
            netns,
            kernel,
            seen,
            last,
        } = &mut *inner;
        let (time, done) = Time::of(|| netns.run(|| kernel.commit(edits)));
        let (printed, chains) = Time::of(|| {
            let restore = Restore::from_edits(edits);
            (restore.to_string().len(), restore.chains())
        });
        let (copied, ()) = Time::of(|| *last = edits.to_vec());
        seen.copied = printed.wall + copied.wall;
        // The document is printed while the program reads it.
        seen.restored = time.wall.saturating_sub(printed.wall);
        seen.chains = chains.1;
        done
    }
}
