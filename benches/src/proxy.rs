//! An engine in mode nftables with instrumented kernels.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use proxy_core::backend::nftables::{Kernel as Nftables, Planner, transactions};
use proxy_core::{Config, Engine, Event, Family, Intervals, Report};
use vipline_netlink::Counters;
use vipline_nftables::{Error, Object, Transaction};
use vipline_reconcile::{Edit, Rejection, Target};

use crate::time::Time;

/// Instrumented kernel of one family. Clones share their state.
#[derive(Clone, Debug)]
pub struct Watched(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    kernel: Nftables,
    records: bool,
    recorded: Vec<Vec<Edit<Object>>>,
    recording: Time,
    commits: usize,
}

impl Watched {
    fn open(family: Family) -> Result<Self, Error> {
        Ok(Self(Arc::new(Mutex::new(State {
            kernel: Nftables::open(family)?,
            records: false,
            recorded: Vec::new(),
            recording: Time::default(),
            commits: 0,
        }))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panicked")
    }
}

impl Target for Watched {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        self.state().kernel.dump()
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        let mut state = self.state();
        if state.records {
            let (time, edits) = Time::of(|| edits.to_vec());
            state.recorded.push(edits);
            state.recording = state.recording + time;
        }
        state.commits += 1;
        state.kernel.commit(edits)
    }
}

/// Returns a configuration without periodic full syncs.
pub fn config() -> Config {
    let intervals = Intervals {
        max: Duration::MAX,
        ..Intervals::default()
    };
    Config::default().with_intervals(intervals)
}

/// An engine with kernels of both families, in the namespace of the thread.
pub struct Proxy {
    engine: Engine,
    kernels: [Watched; 2],
    now: Duration,
}

/// Number of system calls on netlink sockets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    /// Calls of `sendmsg` for IPv4.
    pub sends_v4: u64,
    /// Calls of `sendmsg` for IPv6.
    pub sends_v6: u64,
    /// Datagrams received.
    pub receives: u64,
}

impl Proxy {
    /// Opens the kernels and applies the events before [`Event::Synced`].
    ///
    /// # Errors
    ///
    /// If a netlink socket cannot be opened.
    pub fn start(events: impl Iterator<Item = Event>) -> Result<Self, Error> {
        let kernels = [Watched::open(Family::V4)?, Watched::open(Family::V6)?];
        let mut engine = Engine::with_kernels(
            config().engine,
            Planner::from(&config()),
            |family| match family {
                Family::V4 => kernels[0].clone(),
                Family::V6 => kernels[1].clone(),
            },
        );
        for event in events {
            engine.apply(event);
        }
        Ok(Self {
            engine,
            kernels,
            now: Duration::ZERO,
        })
    }

    /// Applies an event, syncs, and returns the time of both.
    ///
    /// # Panics
    ///
    /// If no sync is due, or if the sync fails.
    pub fn change(&mut self, event: impl Into<Event>) -> (Time, Report) {
        self.change_all([event.into()])
    }

    /// Applies events, syncs once, and returns the time of both.
    ///
    /// # Panics
    ///
    /// If no sync is due, or if the sync fails.
    pub fn change_all(&mut self, events: impl IntoIterator<Item = Event>) -> (Time, Report) {
        // The minimum sync period starts with the next poll.
        assert!(self.engine.poll(self.now).is_none(), "nothing is due yet");
        self.now += Duration::from_secs(5);
        let recording = self.recording();
        let (time, report) = Time::of(|| {
            for event in events {
                self.engine.apply(event);
            }
            self.engine.poll(self.now).expect("a sync is due")
        });
        assert!(report.is_success(), "{report}");
        (time - (self.recording() - recording), report)
    }

    /// Removes objects that have been unused for one minute.
    pub fn expire(&mut self) {
        for _ in 0..60 {
            self.now += Duration::from_secs(1);
            self.engine.poll(self.now);
        }
    }

    /// Returns the traffic so far.
    pub fn traffic(&self) -> Traffic {
        let [v4, v6] = self.counters();
        Traffic {
            sends_v4: v4.sends,
            sends_v6: v6.sends,
            receives: v4.receives + v6.receives,
        }
    }

    /// Returns the number of commits.
    pub fn commits(&self) -> usize {
        let commits = self.kernels.iter().map(|kernel| kernel.state().commits);
        commits.sum()
    }

    /// Starts to record transactions.
    pub fn record(&self) {
        for kernel in &self.kernels {
            kernel.state().records = true;
        }
    }

    /// Returns the recorded transactions of IPv4 and IPv6.
    pub fn transactions(&self) -> [Vec<Transaction>; 2] {
        self.kernels.each_ref().map(|kernel| {
            let recorded = &kernel.state().recorded;
            recorded
                .iter()
                .flat_map(|edits| transactions(edits))
                .collect()
        })
    }

    fn counters(&self) -> [Counters; 2] {
        self.kernels
            .each_ref()
            .map(|kernel| kernel.state().kernel.counters())
    }

    fn recording(&self) -> Time {
        let times = self
            .kernels
            .each_ref()
            .map(|kernel| kernel.state().recording);
        times[0] + times[1]
    }
}
