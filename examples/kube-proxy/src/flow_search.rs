//! The thread that searches for stale flows, so that searches delay no rules.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use proxy_core::{FinishedFlowSearch, FlowSearch};

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
    /// Becomes readable when a search is finished.
    readable: UnixStream,
    is_running: bool,
}

impl FlowSearcher {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The thread or its descriptors cannot be created.
    pub fn start() -> Result<Self, Failure> {
        Self::spawn().map_err(Failure::machine)
    }

    fn spawn() -> io::Result<Self> {
        let (readable, mut wake) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        let (searches, requests) = mpsc::channel::<FlowSearch>();
        let (results, finished) = mpsc::channel();
        let search = move || {
            for search in requests {
                if results.send(search.run()).is_err() || wake.write_all(&[0]).is_err() {
                    return;
                }
            }
        };
        let builder = thread::Builder::new().name("flows".to_owned());
        builder.stack_size(STACK).spawn(search)?;
        Ok(Self {
            searches,
            finished,
            readable,
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
        // Each byte follows its result, so no result waits after its byte is read.
        while matches!(self.readable.read(&mut [0; 16]), Ok(1..)) {}
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

/// Becomes readable when a search is finished.
impl AsFd for FlowSearcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
