//! A minute in which everything goes wrong with the API, under traffic.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use apiserver::{Answer, ApiServer, Chaos, Counts, CutAfter, Ending, Layer, Mishap};
use testkit::over::Over;
use testkit::traffic::{Conversation, Load, Server};

use crate::cluster::{Cluster, PAUSE, Source, go_on, stop, until};
use crate::kernel::Kernel;
use crate::objects::{Brief, Generation, ask_rolling, ask_web, rolling};

/// How long everything goes wrong at a time, between two ways of being away.
const SPELL: Duration = Duration::from_secs(13);

/// How many Services are deleted while the API is away, ten in a second.
const SECRETS: usize = 20;

/// After how many bytes the first of the lists ends that are not complete.
const CUT: usize = 150;

/// How far apart two changes are.
const BREAK: Duration = Duration::from_millis(100);

/// How long an endpoint serves on after the kernel does not have it any more.
const SERVES_ON: Duration = Duration::from_secs(1);

/// How many Services are there that come and go.
const BRIEF: usize = 10;

/// How many endpoints `rolling` has at a time.
const AT_A_TIME: usize = 3;

/// The first of the Services by which it is seen that everything came through.
const FIRST_SIGN: usize = 10_000;

/// A way in which the API is not there.
#[derive(Clone, Copy, Debug)]
enum Away {
    /// Nobody is connected.
    Refused,
    /// Nobody is connected, and afterwards there is no history any more.
    Restarted,
    /// Connections stay, but nothing comes through them.
    Hanging,
    /// There is no history any more, and everything is answered with 503.
    Failing,
}

/// What the threads of the test share.
struct Play {
    cluster: Cluster,
    kernel: Kernel,
    /// When the API took something back: an address, or an endpoint.
    taken_back: Mutex<BTreeMap<String, Instant>>,
    /// Held by whoever changes objects.
    pace: Mutex<()>,
    signs: AtomicUsize,
    is_over: AtomicBool,
}

#[test]
fn a_minute_of_chaos_loses_nothing_and_leaves_the_kernel_as_the_api_wants_it() {
    let play = Play::new();
    let servers = play.begin_rolling();
    let mut options = play.cluster.options(Source::Api);
    // All that is told is to be seen in the kernel, and nothing be skipped.
    options.flags = ["--iptables-min-sync-period", "0s"].map(Into::into).into();
    let proxy = play.cluster.start(&options);
    let begin = Instant::now();
    let loads: Vec<Load> = play
        .cluster
        .load(ask_web(&play.cluster.lab).chain(ask_rolling()));
    let talks = play.cluster.talk();
    let (mishaps, said, (replaced, _servers), briefs) = thread::scope(|scope| {
        let over = Over::new(&play.is_over);
        let said = scope.spawn(|| play.talk(talks));
        let replaced = scope.spawn(|| play.roll(servers));
        let briefs = scope.spawn(|| play.come_and_go());
        let mut mishaps = Counts::new();
        for (seed, way) in (0..).zip([Away::Refused, Away::Restarted, Away::Hanging, Away::Failing])
        {
            let spell = Chaos::new(seed.into(), SPELL).pause(BREAK);
            for (mishap, count) in spell.run(&play.cluster.server) {
                *mishaps.entry(mishap).or_default() += count;
            }
            play.cut_a_list(CUT * 4_usize.pow(seed));
            play.be_away(way);
        }
        drop(over);
        let said = said.join().unwrap();
        let (replaced, briefs) = (replaced.join().unwrap(), briefs.join().unwrap());
        (mishaps, said, replaced, briefs)
    });
    play.settle();
    until("the kernel is as the API wants it", || {
        let mut diff = options.command();
        let said = play
            .cluster
            .lab
            .node
            .netns
            .run(|| diff.arg("diff").output());
        said.unwrap().status.code() == Some(0)
    });
    go_on(&loads, 50);
    let asked = stop(loads);
    let took = begin.elapsed();
    proxy.stop().unwrap();
    let removals = play.judge();
    println!(
        "{took:?}: {mishaps:?}; {replaced} endpoints replaced, {briefs} Services came and went, \
         {removals} things removed, {asked} questions and {said} words without a failure"
    );
    assert_eq!(mishaps.len(), Mishap::HARMLESS.len(), "{mishaps:?}");
    assert!(replaced > 20 && briefs > 100 && removals > 100);
}

impl Play {
    fn new() -> Self {
        let cluster = Cluster::new();
        cluster.server.apply(rolling());
        Self {
            kernel: Kernel::listen(&cluster.lab.node.netns),
            cluster,
            taken_back: Mutex::default(),
            pace: Mutex::default(),
            signs: AtomicUsize::new(FIRST_SIGN),
            is_over: AtomicBool::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Lets nobody else change objects for a while.
    fn pause(&self) -> MutexGuard<'_, ()> {
        self.pace.lock().unwrap()
    }

    /// Deletes an object of which the text is known in the kernel.
    fn take_back(&self, text: String) {
        self.taken_back.lock().unwrap().insert(text, Instant::now());
    }

    /// Gives `rolling` its first endpoints, and returns their servers.
    fn begin_rolling(&self) -> Vec<Vec<Server>> {
        let first = (0..AT_A_TIME).map(|number| {
            let generation = Generation(number);
            let slice = generation.slice(&self.cluster.lab);
            self.cluster.server.apply(slice);
            self.cluster.serve(generation)
        });
        first.collect()
    }

    /// Says something in each conversation again and again; returns how often.
    fn talk(&self, mut talks: Vec<Conversation>) -> usize {
        let mut said = 0;
        while !self.is_over() {
            for talk in &mut talks {
                talk.say("still there?").unwrap();
                said += 1;
            }
            thread::sleep(PAUSE);
        }
        said
    }

    /// Lets Services come and go; returns how many did.
    fn come_and_go(&self) -> usize {
        let mut next = 0;
        while !self.is_over() {
            let alone = self.pause();
            let objects = Brief(next).objects(&self.cluster.lab);
            self.cluster.server.apply_all(objects);
            if let Some(last) = next.checked_sub(BRIEF) {
                self.delete(Brief(last));
            }
            drop(alone);
            next += 1;
            thread::sleep(BREAK);
        }
        next
    }

    /// Deletes a Service and its endpoints, in one order or the other.
    fn delete(&self, brief: Brief) {
        self.take_back(brief.address());
        let mut kinds = ["Service", "EndpointSlice"];
        kinds.rotate_left(brief.0 % 2);
        for kind in kinds {
            let server = &self.cluster.server;
            assert!(server.delete(kind, "default", &brief.name()));
        }
    }

    /// Replaces the endpoints of `rolling`, one after the other; returns how
    /// often, and the servers of the last ones.
    ///
    /// Of three two are in the kernel all the time; the third, once it is not
    /// there any more, serves on for a while.
    fn roll(&self, serving: Vec<Vec<Server>>) -> (usize, Vec<Vec<Server>>) {
        let (lab, server) = (&self.cluster.lab, &self.cluster.server);
        let mut serving = VecDeque::from(serving);
        // Those that the kernel does not have any more, and since when.
        let mut leaving = VecDeque::new();
        let mut replaced = 0;
        while !self.is_over() {
            let (old, new) = (Generation(replaced), Generation(replaced + AT_A_TIME));
            serving.push_back(self.cluster.serve(new));
            let alone = self.pause();
            server.apply(new.slice(lab));
            self.take_back(old.text(lab));
            assert!(server.delete("EndpointSlice", "default", &old.name()));
            drop(alone);
            until("an endpoint is replaced", || {
                let is_done = self.kernel.has(&new.text(lab)) && !self.kernel.has(&old.text(lab));
                is_done || self.is_over()
            });
            leaving.push_back((Instant::now(), serving.pop_front()));
            leaving.retain(|(since, _)| since.elapsed() < SERVES_ON);
            replaced += 1;
            thread::sleep(BREAK);
        }
        // They are asked until the end.
        (replaced, serving.into())
    }

    /// Waits until all that was changed up to now is in the kernel.
    fn settle(&self) -> Duration {
        let begin = Instant::now();
        let sign = Brief(self.signs.fetch_add(1, Ordering::Relaxed));
        let objects = sign.objects(&self.cluster.lab);
        self.cluster.server.apply_all(objects);
        let text = format!("{} . tcp . 80", sign.address());
        until("a change comes through", || self.kernel.has(&text));
        begin.elapsed()
    }

    /// Waits until the kernel has nothing any more that was deleted.
    fn wait_for_removals(&self) {
        let taken_back = self.taken_back.lock().unwrap().clone();
        until("what was deleted is removed", || {
            taken_back.keys().all(|text| !self.kernel.has(text))
        });
    }

    /// Has everything listed again, of which one list ends in the middle.
    fn cut_a_list(&self, bytes: usize) {
        let server = &self.cluster.server;
        let (layer, ending) = (Layer::Http, Ending::Close);
        server.faults(|faults| {
            faults.cut_after = Some(CutAfter {
                bytes,
                layer,
                ending,
            });
        });
        server.expire_watches();
        until("a list is cut", || {
            let mut is_cut = false;
            server.faults(|faults| is_cut = faults.cut_after.is_none());
            is_cut
        });
    }

    /// Has the API away for a while, in which nothing may be removed.
    fn be_away(&self, way: Away) {
        let (server, node) = (&self.cluster.server, &self.cluster.lab.node.netns);
        let alone = self.pause();
        let settled = self.settle();
        // Lists made anew tell what there is before they tell what is gone.
        self.wait_for_removals();
        self.kernel.catch_up(node);
        let before = self.kernel.look(|told| told.deletions.len());
        way.begin(server);
        drop(alone);
        let known = self.taken_back.lock().unwrap().len();
        until("objects are deleted", || {
            self.taken_back.lock().unwrap().len() >= known + SECRETS
        });
        let alone = self.pause();
        self.kernel.catch_up(node);
        let removed = self.kernel.look(|told| told.deletions[before..].to_vec());
        assert_eq!(removed, [""; 0], "{way:?}");
        way.end(server);
        let back = self.settle();
        self.wait_for_removals();
        drop(alone);
        println!("{way:?}: in step after {settled:?}, and again after {back:?}");
    }

    /// Holds each removal against what the API took back; returns how many.
    fn judge(&self) -> usize {
        self.kernel.catch_up(&self.cluster.lab.node.netns);
        let taken_back = self.taken_back.lock().unwrap();
        self.kernel.look(|told| {
            for (at, fact) in &told.lost {
                let address = fact.service.split(' ').next().unwrap_or_default();
                let texts = [address, &fact.endpoint];
                let is_asked = |text: &&str| taken_back.get(*text).is_some_and(|since| since < at);
                assert!(texts.iter().any(is_asked), "{fact:?} was removed");
            }
            told.lost.len()
        })
    }
}

impl Away {
    fn begin(self, server: &ApiServer) {
        match self {
            Self::Refused | Self::Restarted => server.refuse_connections(),
            Self::Hanging => return server.hang_connections(true),
            Self::Failing => {
                server.faults(|faults| {
                    faults.answer = Some(Answer {
                        code: 503,
                        times: usize::MAX,
                        retry_after: None,
                    });
                });
                return server.expire_watches();
            }
        }
        server.cut_connections(Ending::Reset);
    }

    fn end(self, server: &ApiServer) {
        match self {
            Self::Restarted => server.restart(Duration::ZERO, 1000),
            _ => server.calm(),
        }
    }
}
