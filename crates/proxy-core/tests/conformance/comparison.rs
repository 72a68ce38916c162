//! The comparison of all modes with the oracle.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, thread};

use vipline_service_model::arbitrary::Dice;

use crate::case::{check, text};
use crate::exceptions;
use crate::flow::Flow;
use crate::minimize::minimize;
use crate::modes::{Iptables, Ipvs, Nftables, Rules};
use crate::oracle::Oracle;
use crate::world::World;

/// Number of worlds.
const WORLDS: u64 = 290;

/// Further worlds, for rare lines of the table of exceptions and rules that failed before.
const RARE: [u64; 6] = [294, 655, 2766, 3761, 7492, 9246];

/// Number of packets in each world.
const PACKETS: usize = 40;

/// Number of decisions without those of the table of exceptions: rules with the kind of the
/// address, and affinity.
const DECISIONS: usize = 17;

/// Number of cases by what decided.
type Counts = BTreeMap<String, usize>;

/// Compares all packets of a world in a mode.
fn check_world<R: Rules>(
    world: &World,
    flows: &[Flow],
    counts: &Mutex<Counts>,
) -> Result<(), String> {
    let oracle = Oracle::new(world);
    let rules = R::install(world);
    for flow in flows {
        let decisions = check(&oracle, &rules, flow).map_err(|error| {
            let fails = |world: &World| check(&Oracle::new(world), &R::install(world), flow).err();
            let (world, error) = minimize(world.clone(), error, fails);
            format!("{error}\n{}", text(R::MODE, &world, flow))
        })?;
        let mut counts = counts.lock().expect("no worker panics");
        for decision in decisions {
            *counts.entry(decision).or_default() += 1;
        }
    }
    Ok(())
}

/// Compares the packets of the world of a seed in all modes.
fn check_seed(seed: u64, counts: &Mutex<Counts>) -> Result<(), String> {
    let mut dice = Dice::from_seed(seed);
    let world = World::random(&mut dice);
    let flows = (0..PACKETS).map(|_| Flow::random(&world, &mut dice));
    let flows: Vec<_> = flows.collect();
    let checked = check_world::<Nftables>(&world, &flows, counts)
        .and_then(|()| check_world::<Iptables>(&world, &flows, counts))
        .and_then(|()| check_world::<Ipvs>(&world, &flows, counts));
    checked.map_err(|failure| format!("SEED={seed}: {failure}"))
}

#[test]
fn all_modes_agree_with_the_oracle() {
    let seed = env::var("SEED").ok();
    let seed = seed.map(|text| text.parse().expect("SEED is a number"));
    let seeds: Vec<u64> = match seed {
        Some(seed) => vec![seed],
        None => (0..WORLDS).chain(RARE).collect(),
    };
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Counts::new()));
    let failure = Mutex::new(None);
    let work = || {
        while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed))
            && failure.lock().expect("no worker panics").is_none()
        {
            if let Err(found) = check_seed(seed, &counts) {
                failure
                    .lock()
                    .expect("no worker panics")
                    .get_or_insert(found);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    if let Some(failure) = failure.into_inner().expect("no worker panics") {
        panic!("{failure}");
    }
    let counts = counts.into_inner().expect("no worker panics");
    let cases = seeds.len() * PACKETS;
    testkit::figures!(
        "{cases} packets of {} worlds in each of modes nftables, iptables and ipvs, 0 disagreements",
        seeds.len()
    );
    for (decision, count) in &counts {
        testkit::figures!("{count:6} {decision}");
    }
    let is_complete = counts.len() == DECISIONS + exceptions::COUNT;
    assert!(
        seed.is_some() || is_complete,
        "a decision does not occur: {counts:?}"
    );
}
