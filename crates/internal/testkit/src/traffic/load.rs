//! Clients that send requests until they are stopped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Answers, Ask};
use crate::netns::Netns;

/// Time limit of a load.
const LIMIT: Duration = Duration::from_secs(120);

/// Clients in a namespace that send requests continuously.
///
/// ```no_run
/// # use std::time::Duration;
/// # use testkit::lab::Lab;
/// # use testkit::traffic::{Ask, Load, Protocol};
/// # let lab = Lab::new()?;
/// let ask = Ask::new(Protocol::Tcp, ([10, 96, 0, 10], 80).into());
/// let load = Load::start(&lab.client.netns, ask, 4, Duration::from_millis(5))?;
/// // … change something …
/// assert!(load.stop().failures.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Load {
    asked: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Answers>>,
}

impl Load {
    /// Starts `clients` clients, each of which pauses after every answer.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(from: &Netns, ask: Ask, clients: usize, pause: Duration) -> io::Result<Self> {
        let start = Instant::now();
        let asked = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = Self {
            asked: Arc::clone(&asked),
            stop: Arc::clone(&stop),
            clients: Vec::new(),
        };
        for _ in 0..clients {
            let (asked, stop) = (Arc::clone(&asked), Arc::clone(&stop));
            let work = move || {
                let mut answers = Answers::default();
                while !stop.load(Ordering::Relaxed) && start.elapsed() < LIMIT {
                    let at = start.elapsed();
                    answers.add(at, ask.here());
                    asked.fetch_add(1, Ordering::Relaxed);
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
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
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
