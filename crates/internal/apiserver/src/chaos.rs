//! Everything that goes wrong, at random, for a while.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::faults::{Answer, CutAfter, Ending, Layer, Order};
use crate::random::Random;
use crate::server::ApiServer;

/// A while in which much goes wrong.
///
/// What is done, and in which order, depends on the seed alone; what a client
/// sees of it depends also on what it does meanwhile.
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
///     // Objects come and go here.
///     driver.join().expect("chaos does not panic")
/// });
/// println!("{counts:?}");
/// ```
#[derive(Clone, Debug)]
pub struct Chaos {
    seed: u64,
    duration: Duration,
    pause: Duration,
    kinds: Vec<Mishap>,
}

/// A thing that goes wrong.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Mishap {
    /// All connections are cut.
    Cut,
    /// The next list or watch is cut somewhere.
    CutAfter,
    /// Nobody is answered on any connection for a moment.
    Hang,
    /// Nobody is connected for a moment.
    Refuse,
    /// Some requests are answered with 429, 500 or 503.
    Answer,
    /// Answers and events come late for a moment.
    Delay,
    /// Events are told twice for a moment.
    Duplicates,
    /// Events about different objects change their order for a moment.
    Mixed,
    /// Events about slices of one Service change their order for a moment.
    SlicesMixed,
    /// Watches say nothing for a moment.
    Silence,
    /// The history is forgotten: who comes back has to list.
    Compact,
    /// The history is forgotten and all watches are told so: 410.
    Expire,
    /// The server goes away and comes back without its history.
    Restart,
    /// Lists are of the past for a moment; only on request, as what they lack
    /// is rightly removed by a client.
    Stale,
}

/// How often each thing went wrong.
pub type Counts = BTreeMap<Mishap, usize>;

impl Mishap {
    /// What a client has to bear without losing anything.
    pub const HARMLESS: [Self; 13] = [
        Self::Cut,
        Self::CutAfter,
        Self::Hang,
        Self::Refuse,
        Self::Answer,
        Self::Delay,
        Self::Duplicates,
        Self::Mixed,
        Self::SlicesMixed,
        Self::Silence,
        Self::Compact,
        Self::Expire,
        Self::Restart,
    ];
}

impl Chaos {
    /// Plans for a duration all that is harmless.
    pub fn new(seed: u64, duration: Duration) -> Self {
        Self {
            seed,
            duration,
            pause: Duration::from_millis(300),
            kinds: Mishap::HARMLESS.to_vec(),
        }
    }

    /// Plans these mishaps only.
    ///
    /// # Panics
    ///
    /// When there are none.
    #[must_use]
    pub fn only(mut self, kinds: &[Mishap]) -> Self {
        assert!(!kinds.is_empty(), "chaos needs something that goes wrong");
        self.kinds = kinds.to_vec();
        self
    }

    /// Plans breaks of this length between two mishaps, on average.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Plays it, waits until all is over, and returns what it was.
    ///
    /// Each of the mishaps happens once before any happens again, if there is
    /// time for it. Nothing goes wrong any more afterwards.
    pub fn run(&self, server: &ApiServer) -> Counts {
        let end = Instant::now() + self.duration;
        let mut random = Random::new(self.seed);
        server.seed(random.next());
        let mut counts = Counts::new();
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
            if let Some(mishap) = turn.pop() {
                play(mishap, server, &mut random, end);
                *counts.entry(mishap).or_default() += 1;
            }
        }
        server.calm();
        counts
    }
}

/// Does one thing wrong, and ends it if it is one that lasts.
fn play(mishap: Mishap, server: &ApiServer, random: &mut Random, end: Instant) {
    let moment = between(
        random,
        Duration::from_millis(200),
        Duration::from_millis(2500),
    );
    let short = moment.min(Duration::from_secs(1));
    match mishap {
        Mishap::Cut => {
            server.cut_connections(ending(random));
        }
        Mishap::CutAfter => {
            let cut = cut_after(random);
            server.faults(|faults| faults.cut_after = Some(cut));
            // So that there is a list or watch to cut.
            server.cut_connections(ending(random));
        }
        Mishap::Hang => {
            server.hang_connections(true);
            wait(moment, end);
            server.hang_connections(false);
        }
        Mishap::Refuse => {
            server.refuse_connections();
            server.cut_connections(ending(random));
            wait(moment, end);
            server.accept_connections();
        }
        Mishap::Answer => {
            let answer = answer(random);
            server.faults(|faults| faults.answer = Some(answer));
            server.cut_connections(ending(random));
        }
        Mishap::Restart => {
            let jump = random.below(1000);
            server.restart(short, u64::try_from(jump).expect("it is small"));
        }
        Mishap::Compact => {
            server.compact();
            server.cut_connections(ending(random));
        }
        Mishap::Expire => server.expire_watches(),
        lasting => {
            let percent = u8::try_from(20 + random.below(80)).expect("it is below 100");
            let lag = u64::try_from(1 + random.below(50)).expect("it is small");
            server.faults(|faults| match lasting {
                Mishap::Delay => {
                    faults.delay = short / 4;
                    faults.event_delay = short / 2;
                }
                Mishap::Duplicates => faults.duplicates = percent,
                Mishap::Mixed => faults.order = Order::Mixed,
                Mishap::SlicesMixed => faults.order = Order::SlicesMixed,
                Mishap::Silence => faults.silent_watches = true,
                _ => faults.stale = lag,
            });
            if lasting == Mishap::Stale {
                server.expire_watches();
            }
            wait(moment, end);
            server.faults(|faults| {
                faults.delay = Duration::ZERO;
                faults.event_delay = Duration::ZERO;
                faults.duplicates = 0;
                faults.order = Order::Kept;
                faults.silent_watches = false;
                faults.stale = 0;
            });
        }
    }
}

fn ending(random: &mut Random) -> Ending {
    [Ending::Close, Ending::Reset][random.below(2)]
}

/// Chooses a byte: early ones are as likely as late ones are.
fn cut_after(random: &mut Random) -> CutAfter {
    let magnitude = 4 + random.below(16);
    CutAfter {
        bytes: random.below(1 << magnitude),
        layer: [Layer::Http, Layer::Tcp][random.below(2)],
        ending: ending(random),
    }
}

fn answer(random: &mut Random) -> Answer {
    let code = [429, 500, 503][random.below(3)];
    Answer {
        code,
        retry_after: (code == 429).then_some(1),
        times: 1 + random.below(5),
    }
}

fn between(random: &mut Random, least: Duration, most: Duration) -> Duration {
    let range = usize::try_from((most - least).as_millis()).expect("it is short");
    let more = u64::try_from(random.below(range + 1)).expect("it is short");
    least + Duration::from_millis(more)
}

/// Waits, but not beyond the end, and tells whether it is not there yet.
fn wait(time: Duration, end: Instant) -> bool {
    let left = end.saturating_duration_since(Instant::now());
    thread::sleep(time.min(left));
    time < left
}
