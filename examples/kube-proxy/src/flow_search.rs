//! The thread that searches for stale flows, so that searches delay no rules.

use std::sync::mpsc::{self, Receiver, SendError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use proxy_core::{FinishedFlowSearch, FlowSearch};
use vipline_kube_source::api::feed;

use crate::failure::Failure;
use crate::flows;
use crate::setup::Setup;

/// Maximum time that a shutdown waits for searches. A restart repeats a search that did
/// not end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);

/// Stack size of the thread. Buffers are on the heap.
const STACK: usize = 512 << 10;

/// A thread that runs one search at a time.
#[derive(Debug)]
pub struct FlowSearcher {
    searches: Sender<FlowSearch>,
    finished: Receiver<FinishedFlowSearch>,
    is_running: bool,
}

/// Sends results, and wakes the thread of the engine.
#[derive(Debug)]
struct Results {
    finished: Sender<FinishedFlowSearch>,
    /// Dropped last, so that the end of the search thread is seen.
    engine: WakeOnDrop,
}

/// The thread of the engine, which is woken on drop, too.
#[derive(Debug)]
struct WakeOnDrop(feed::Sender);

impl Results {
    fn send(&self, finished: FinishedFlowSearch) -> Result<(), SendError<FinishedFlowSearch>> {
        self.finished.send(finished)?;
        self.engine.0.wake();
        Ok(())
    }
}

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl FlowSearcher {
    /// Starts the thread. It wakes the thread of the engine when a search is finished.
    ///
    /// # Errors
    ///
    /// The thread cannot be created.
    pub fn start(engine: feed::Sender) -> Result<Self, Failure> {
        let (searches, requests) = mpsc::channel::<FlowSearch>();
        let (sender, finished) = mpsc::channel();
        let results = Results {
            finished: sender,
            engine: WakeOnDrop(engine),
        };
        let search = move || {
            for search in requests {
                if results.send(search.run()).is_err() {
                    return;
                }
            }
        };
        let builder = thread::Builder::new().name("flows".to_owned());
        let thread = builder.stack_size(STACK).spawn(search);
        thread.map_err(Failure::cannot(
            "start the thread that searches for stale flows",
        ))?;
        Ok(Self {
            searches,
            finished,
            is_running: false,
        })
    }

    /// Passes results to the engine, and starts the search that is due. Returns whether a
    /// search has finished.
    ///
    /// # Errors
    ///
    /// The thread has ended.
    pub fn poll(&mut self, setup: &mut Setup) -> Result<bool, Failure> {
        let has_finished = match self.finished.try_recv() {
            Ok(finished) => {
                self.record(setup, finished);
                true
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => {
                let message = "the thread that searches for stale flows ended unexpectedly";
                return Err(Failure::machine(message));
            }
        };
        let now = setup.now();
        self.begin(setup, now);
        Ok(has_finished)
    }

    /// Waits for the running search and for the one that is due next, for a limited time.
    pub fn finish(mut self, setup: &mut Setup) {
        let deadline = Instant::now() + SHUTDOWN_LIMIT;
        // The second search is for changes since the first one began.
        for _ in 0..2 {
            self.begin(setup, Duration::MAX);
            if !self.is_running {
                return;
            }
            let limit = deadline.saturating_duration_since(Instant::now());
            match self.finished.recv_timeout(limit) {
                Ok(finished) => self.record(setup, finished),
                Err(_) => return,
            }
        }
    }

    /// Starts a search if one is due at `now`.
    fn begin(&mut self, setup: &mut Setup, now: Duration) {
        if let Some(search) = setup.engine.take_flow_search(now) {
            // If the thread has ended, the next poll fails.
            self.is_running = self.searches.send(search).is_ok();
        }
    }

    /// Passes a result to the engine, the metrics and the log.
    fn record(&mut self, setup: &mut Setup, finished: FinishedFlowSearch) {
        self.is_running = false;
        let results = setup.engine.finish_flow_search(finished, setup.now());
        for (family, result) in &results {
            setup.telemetry.searched(*family, result);
            flows::log_search(*family, result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_search_thread_wakes_the_thread_of_the_engine() {
        let (engine, mut woken) = feed::feed().unwrap();
        let (sender, finished) = mpsc::channel();
        let results = Results {
            finished: sender,
            engine: WakeOnDrop(engine),
        };
        assert!(!woken.wait(Some(Duration::ZERO)).unwrap());
        let panicked = thread::spawn(move || {
            let _results = results;
            panic!("in a search");
        });
        assert!(panicked.join().is_err());
        assert!(woken.wait(Some(Duration::ZERO)).unwrap());
        assert!(woken.take().unwrap().is_empty());
        let ended = finished.try_recv().unwrap_err();
        assert_eq!(ended, TryRecvError::Disconnected);
    }
}
