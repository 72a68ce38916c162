//! Clients that send requests until they are stopped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Answers, Probe};
use crate::netns::Netns;

/// Default time limit of a load.
const LIMIT: Duration = Duration::from_secs(120);

/// Clients in a namespace that send requests continuously.
///
/// ```no_run
/// # use std::time::Duration;
/// # use testkit::lab::Lab;
/// # use testkit::traffic::{Probe, Load, Protocol};
/// # let lab = Lab::new()?;
/// let probe = Probe::new(Protocol::Tcp, ([10, 96, 0, 10], 80).into());
/// let load = Load::start(&lab.client.netns, probe, 4, Duration::from_millis(5))?;
/// // … change something …
/// assert!(load.stop().failures.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Load {
    requests: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Answers>>,
}

impl Load {
    /// Starts `clients` clients, each of which pauses after every answer.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(from: &Netns, probe: Probe, clients: usize, pause: Duration) -> io::Result<Self> {
        Self::start_within(from, probe, clients, pause, LIMIT)
    }

    /// Starts clients as [`start`](Self::start) does, which stop after `limit`. Default:
    /// 120 s.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_within(
        from: &Netns,
        probe: Probe,
        clients: usize,
        pause: Duration,
        limit: Duration,
    ) -> io::Result<Self> {
        let start = Instant::now();
        let requests = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = Self {
            requests: Arc::clone(&requests),
            stop: Arc::clone(&stop),
            clients: Vec::new(),
        };
        for _ in 0..clients {
            let (requests, stop) = (Arc::clone(&requests), Arc::clone(&stop));
            let work = move || {
                let mut answers = Answers::default();
                while !stop.load(Ordering::Relaxed) && start.elapsed() < limit {
                    let at = start.elapsed();
                    answers.add(at, probe.in_current_netns());
                    requests.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(pause);
                }
                answers
            };
            let client = from.run(|| thread::Builder::new().spawn(work))?;
            load.clients.push(client);
        }
        Ok(load)
    }

    /// Returns the number of completed requests.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Stops the clients and returns their results.
    pub fn stop(mut self) -> Answers {
        self.stop.store(true, Ordering::Relaxed);
        self.clients
            .drain(..)
            .map(|client| client.join().expect("a client does not panic"))
            .fold(Answers::default(), Answers::merge)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}
