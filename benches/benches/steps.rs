//! Microbenchmarks of the steps from events to bytes, without a kernel.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::iter;
use std::time::{Duration, Instant};

use benches::cluster::{self, Size};
use benches::proxy::config;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use proxy_core::backend::nftables::Planner;
use proxy_core::{Context, Engine, Event, Family, Planner as _};
use vipline_nftables::{Error, Object, Transaction};
use vipline_reconcile::{Edit, Ledger, Rejection, Target, diff};
use vipline_service_model::{NodeView, PortChange, Store};

const SIZES: [Size; 3] = [
    Size::new(1_000, 5),
    Size::new(10_000, 5),
    Size::new(100_000, 1),
];

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = resolve, plan, replace, difference, transaction, encode, one_endpoint
}
criterion_main!(benches);

/// Returns a store with all objects, before resolution.
fn store(size: Size) -> Store {
    let mut store = Store::default();
    for event in size.events() {
        store.apply(event);
    }
    store.apply(Event::Synced);
    store
}

fn resolved(size: Size) -> Vec<PortChange> {
    store(size).resolve(&NodeView::default())
}

fn context() -> Context {
    Context::new(&config().engine, &NodeView::default(), [], Family::V4)
}

/// Returns the planned objects of each service port, and last the base objects.
fn fragments(size: Size) -> Vec<Vec<Object>> {
    let cx = context();
    let ports = resolved(size);
    let ports = ports.iter().filter_map(|each| each.port.as_deref());
    let fragments = ports.map(|port| {
        let objects = Planner.port(&cx, port).into_objects();
        let mut objects: Vec<_> = objects.collect();
        objects.retain(|object| !Planner::is_removal_delayed(object));
        objects
    });
    fragments.chain(iter::once(Planner.base(&cx))).collect()
}

fn ledger(fragments: Vec<Vec<Object>>) -> Ledger<usize, Object> {
    let mut ledger = Ledger::new();
    for (owner, objects) in fragments.into_iter().enumerate() {
        ledger.replace(owner, objects, None);
    }
    ledger
}

fn resolve(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resolve");
    for size in SIZES {
        group.throughput(Throughput::Elements(size.services as u64));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|rounds| {
                let time = |_| {
                    let mut store = store(size);
                    let start = Instant::now();
                    black_box(store.resolve(&NodeView::default()));
                    start.elapsed()
                };
                (0..rounds).map(time).sum()
            });
        });
    }
}

fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    for size in SIZES {
        let (cx, ports) = (context(), resolved(size));
        let ports: Vec<_> = ports
            .iter()
            .filter_map(|each| each.port.as_deref())
            .collect();
        group.throughput(Throughput::Elements(elements(size)));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                for port in &ports {
                    black_box(Planner.port(&cx, port));
                }
            });
        });
    }
}

fn replace(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ledger");
    for size in SIZES {
        let fragments = fragments(size);
        group.throughput(Throughput::Elements(elements(size)));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|rounds| {
                let time = |_| {
                    let fragments = fragments.clone();
                    let start = Instant::now();
                    let ledger = ledger(fragments);
                    let time = start.elapsed();
                    drop(ledger);
                    time
                };
                (0..rounds).map(time).sum()
            });
        });
    }
}

fn difference(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("diff");
    for size in SIZES {
        let ledger = ledger(fragments(size));
        group.throughput(Throughput::Elements(elements(size)));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_with_large_drop(|| diff([], ledger.objects()));
        });
    }
}

fn transaction(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("transaction");
    for size in SIZES {
        let edits = diff([], ledger(fragments(size)).objects());
        group.throughput(Throughput::Elements(elements(size)));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_with_large_drop(|| Transaction::from_edits(&edits));
        });
    }
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    for size in SIZES {
        let edits = diff([], ledger(fragments(size)).objects());
        let transaction = Transaction::from_edits(&edits);
        group.throughput(Throughput::Elements(elements(size)));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_with_large_drop(|| transaction.encode(1, None));
        });
    }
}

/// A kernel that encodes transactions and discards the bytes.
struct Encoded;

impl Target for Encoded {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        Ok(Vec::new())
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        black_box(Transaction::from_edits(edits).encode(1, None));
        Ok(Vec::new())
    }
}

/// Measures the replacement of one endpoint, from the event to the bytes.
fn one_endpoint(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one endpoint replaced");
    for size in SIZES {
        let mut engine = Engine::with_kernels(config().engine, Planner, |_| Encoded);
        for event in size.events().chain([Event::Synced]) {
            engine.apply(event);
        }
        let mut now = Duration::ZERO;
        engine.poll(now).expect("the first sync is due");
        let mut slices = size.slices(100);
        let mut number = 0;
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|rounds| {
                let time = |_| {
                    engine.poll(now);
                    now += Duration::from_secs(5);
                    let place = number % slices.len();
                    cluster::replace(&mut slices[place], number, number as u32);
                    number += 1;
                    let event = Event::from(slices[place].clone());
                    let start = Instant::now();
                    engine.apply(event);
                    engine.poll(now).expect("a change is due");
                    start.elapsed()
                };
                (0..rounds).map(time).sum()
            });
        });
    }
}

/// Returns the number of elements of a cluster: two per Service and one per endpoint.
fn elements(size: Size) -> u64 {
    (size.services * (2 + size.endpoints)) as u64
}
