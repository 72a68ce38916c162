//! Random fault injection.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::faults::{CutAfter, Disconnect, ErrorResponse, Layer, Order};
use crate::random::Random;
use crate::server::ApiServer;

/// A plan of random faults.
///
/// The seed determines the faults and their order. Their effect also depends on the
/// client's requests.
///
/// ```no_run
/// use std::thread;
/// use std::time::Duration;
///
/// use apiserver::{ApiServer, Chaos};
///
/// let server = ApiServer::start();
/// let chaos = Chaos::new(1, Duration::from_secs(60));
/// let counts = thread::scope(|scope| {
///     let driver = scope.spawn(|| chaos.run(&server));
///     // Change objects here.
///     driver.join().expect("chaos does not panic")
/// });
/// println!("{counts:?}");
/// ```
#[derive(Clone, Debug)]
pub struct Chaos {
    seed: u64,
    duration: Duration,
    pause: Duration,
    kinds: Vec<FaultKind>,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum FaultKind {
    /// Closes all connections.
    Cut,
    /// Closes the connection of the next list or watch after some bytes.
    CutAfter,
    /// Stalls all connections for a moment.
    Hang,
    /// Refuses connections for a moment.
    Refuse,
    /// Answers some requests with 429, 500 or 503.
    ErrorResponse,
    /// Delays responses and events for a moment.
    Delay,
    /// Sends events twice for a moment.
    Duplicates,
    /// Shuffles events of different objects for a moment.
    Shuffle,
    /// Shuffles events of EndpointSlices of the same Service, too, for a moment.
    ShuffleSlices,
    /// Sends no watch events or bookmarks for a moment.
    Silence,
    /// Discards the history, so that interrupted watches must relist.
    Compact,
    /// Discards the history and ends all watches with 410.
    Expire,
    /// Restarts the server without its history.
    Restart,
    /// Serves lists of a past version for a moment.
    /// Not in [`RECOVERABLE`](Self::RECOVERABLE): clients rightly remove absent objects.
    Stale,
}

/// Number of faults by kind.
pub type FaultCounts = BTreeMap<FaultKind, usize>;

impl FaultKind {
    /// Faults that clients must handle without losing state.
    pub const RECOVERABLE: [Self; 13] = [
        Self::Cut,
        Self::CutAfter,
        Self::Hang,
        Self::Refuse,
        Self::ErrorResponse,
        Self::Delay,
        Self::Duplicates,
        Self::Shuffle,
        Self::ShuffleSlices,
        Self::Silence,
        Self::Compact,
        Self::Expire,
        Self::Restart,
    ];
}

impl Chaos {
    /// Plans all recoverable faults for a duration.
    pub fn new(seed: u64, duration: Duration) -> Self {
        Self {
            seed,
            duration,
            pause: Duration::from_millis(300),
            kinds: FaultKind::RECOVERABLE.to_vec(),
        }
    }

    /// Limits the plan to these faults.
    ///
    /// # Panics
    ///
    /// If `kinds` is empty.
    #[must_use]
    pub fn only(mut self, kinds: &[FaultKind]) -> Self {
        assert!(!kinds.is_empty(), "no kind of fault");
        self.kinds = kinds.to_vec();
        self
    }

    /// Sets the mean pause between faults. Default: 300 ms.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Injects faults until the duration has passed, then clears all faults.
    /// Returns the number of injected faults.
    ///
    /// Each kind occurs once before any kind occurs again.
    pub fn run(&self, server: &ApiServer) -> FaultCounts {
        let end = Instant::now() + self.duration;
        let mut random = Random::new(self.seed);
        server.seed(random.next());
        let mut counts = FaultCounts::new();
        let mut turn = Vec::new();
        loop {
            let pause = between(&mut random, self.pause / 2, self.pause * 3 / 2);
            if !wait(pause, end) {
                break;
            }
            if turn.is_empty() {
                turn.clone_from(&self.kinds);
                random.shuffle(&mut turn);
            }
            if let Some(fault) = turn.pop() {
                inject(fault, server, &mut random, end);
                *counts.entry(fault).or_default() += 1;
            }
        }
        server.clear_faults();
        counts
    }
}

/// Injects one fault, and ends it after a moment if it is a lasting fault.
fn inject(fault: FaultKind, server: &ApiServer, random: &mut Random, end: Instant) {
    let moment = between(
        random,
        Duration::from_millis(200),
        Duration::from_millis(2500),
    );
    let short = moment.min(Duration::from_secs(1));
    match fault {
        FaultKind::Cut => {
            server.cut_connections(disconnect(random));
        }
        FaultKind::CutAfter => {
            let cut = cut_after(random);
            server.faults(|faults| faults.cut_after = Some(cut));
            // Clients reconnect and send the request to cut.
            server.cut_connections(disconnect(random));
        }
        FaultKind::Hang => {
            server.hang_connections(true);
            wait(moment, end);
            server.hang_connections(false);
        }
        FaultKind::Refuse => {
            server.refuse_connections();
            server.cut_connections(disconnect(random));
            wait(moment, end);
            server.accept_connections();
        }
        FaultKind::ErrorResponse => {
            let response = error_response(random);
            server.faults(|faults| faults.error_response = Some(response));
            server.cut_connections(disconnect(random));
        }
        FaultKind::Restart => {
            let jump = random.below(1000);
            server.restart(short, u64::try_from(jump).expect("a small number"));
        }
        FaultKind::Compact => {
            server.compact();
            server.cut_connections(disconnect(random));
        }
        FaultKind::Expire => server.expire_watches(),
        lasting => {
            let percent = u8::try_from(20 + random.below(80)).expect("a percentage fits in u8");
            let lag = u64::try_from(1 + random.below(50)).expect("a small number");
            server.faults(|faults| match lasting {
                FaultKind::Delay => {
                    faults.delay = short / 4;
                    faults.event_delay = short / 2;
                }
                FaultKind::Duplicates => faults.duplicates = percent,
                FaultKind::Shuffle => faults.order = Order::Shuffled,
                FaultKind::ShuffleSlices => faults.order = Order::SlicesShuffled,
                FaultKind::Silence => faults.silent_watches = true,
                _ => faults.stale = lag,
            });
            if lasting == FaultKind::Stale {
                server.expire_watches();
            }
            wait(moment, end);
            server.faults(|faults| {
                faults.delay = Duration::ZERO;
                faults.event_delay = Duration::ZERO;
                faults.duplicates = 0;
                faults.order = Order::Unchanged;
                faults.silent_watches = false;
                faults.stale = 0;
            });
        }
    }
}

fn disconnect(random: &mut Random) -> Disconnect {
    [Disconnect::Close, Disconnect::Reset][random.below(2)]
}

/// Chooses an offset with a log-uniform distribution.
fn cut_after(random: &mut Random) -> CutAfter {
    let magnitude = 4 + random.below(16);
    CutAfter {
        bytes: random.below(1 << magnitude),
        layer: [Layer::Http, Layer::Tcp][random.below(2)],
        disconnect: disconnect(random),
    }
}

fn error_response(random: &mut Random) -> ErrorResponse {
    let code = [429, 500, 503][random.below(3)];
    ErrorResponse {
        code,
        retry_after: (code == 429).then_some(1),
        times: 1 + random.below(5),
    }
}

fn between(random: &mut Random, least: Duration, most: Duration) -> Duration {
    let range = usize::try_from((most - least).as_millis()).expect("a short duration");
    let more = u64::try_from(random.below(range + 1)).expect("a short duration");
    least + Duration::from_millis(more)
}

/// Sleeps for `time`, but at most until `end`. Returns whether `end` is not yet reached.
fn wait(time: Duration, end: Instant) -> bool {
    let left = end.saturating_duration_since(Instant::now());
    thread::sleep(time.min(left));
    time < left
}
