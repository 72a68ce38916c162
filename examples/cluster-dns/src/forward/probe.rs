//! Forwarding loops: servers that send the queries that they get from us back to us.
//!
//! A loop over two servers is silent. The question that returns shares the query that is
//! under way, so it waits for itself, and both servers report a timeout of the other one.
//! So each upstream gets a question with a random name that nobody else asks, as the plugin
//! `loop` of CoreDNS does. If a client asks us for this name, the upstream forwards to us.
//! In contrast to CoreDNS the process continues: names of the cluster need no upstream.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tracing::{error, info};

use super::exchange::random;
use super::forwarder::Shared;
use super::query::Query;
use super::request::Request;
use super::upstream::Upstream;

/// Type of the questions. Clients do not ask it, so that the others cost no look-up.
const TYPE_HINFO: u16 = 13;

/// Time to wait for a reply, and for the question to come back.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Questions to one upstream until it replies. It may start later than this process.
const MOST_TRIES: u32 = 5;

/// Pause after a question without a reply.
const TRY_PAUSE: Duration = Duration::from_secs(5);

/// Shortest time between two searches at one upstream that looks suspicious.
const SUSPICION_PAUSE: Duration = Duration::from_secs(30);

/// Time after which an upstream with a loop is asked again.
const RECHECK: Duration = Duration::from_secs(30);

/// Questions that are under way, and what came back.
#[derive(Debug, Default)]
pub(super) struct Probes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Questions by their names, in wire format and lower case.
    questions: HashMap<Vec<u8>, Question>,
    /// Start of the last search at each upstream.
    searches: HashMap<SocketAddr, Instant>,
    /// Upstreams whose question came back, and the client that asked it.
    loops: BTreeMap<SocketAddr, IpAddr>,
}

#[derive(Debug)]
struct Question {
    /// The upstream that was asked.
    upstream: SocketAddr,
    came_back: bool,
}

impl Probes {
    /// Returns whether a question of a client is ours, and logs the loop once.
    pub(super) fn came_back(&self, query: &Query<'_>, client: IpAddr) -> bool {
        if query.record_type != TYPE_HINFO {
            return false;
        }
        let mut state = self.state();
        let name = query.name.to_ascii_lowercase();
        let Some(question) = state.questions.get_mut(&name) else {
            return false;
        };
        question.came_back = true;
        let upstream = question.upstream;
        let client = client.to_canonical();
        if state.loops.insert(upstream, client).is_none() {
            drop(state);
            error!(
                "forwarding loop: name server {upstream} sends the queries of this server back to \
                 it, from {client}, so that only cached names and those of the cluster are \
                 answered; let {upstream} forward to other servers, or name other upstreams with \
                 --forward, --stub or in the node's /etc/resolv.conf"
            );
        }
        true
    }

    /// Ends a question, whose upstream replied or not. Returns whether there is a loop as
    /// far as is known.
    fn end(&self, name: &[u8], upstream: SocketAddr, replied: bool) -> bool {
        let mut state = self.state();
        let asked = state.questions.remove(name);
        let came_back = asked.is_some_and(|question| question.came_back);
        if replied && !came_back && state.loops.remove(&upstream).is_some() {
            info!("the forwarding loop over name server {upstream} has ended");
        }
        state.loops.contains_key(&upstream)
    }

    /// Returns the number of upstreams whose questions come back.
    pub(super) fn loops(&self) -> usize {
        self.state().loops.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a search at each upstream of each domain.
pub(super) fn start_all(shared: &Arc<Shared>) {
    let routes = shared.routes();
    shared.probes.state().loops.retain(|address, _| {
        let mut upstreams = routes.upstreams();
        upstreams.any(|upstream| upstream.address() == *address)
    });
    for (domain, set) in routes.sets() {
        for upstream in set.upstreams() {
            spawn(shared, domain, upstream);
        }
    }
}

/// Starts a search at an upstream that sends what was sent to it, except shortly after
/// another one.
pub(super) fn start(shared: &Arc<Shared>, domain: &[u8], upstream: &Arc<Upstream>) {
    let (now, address) = (Instant::now(), upstream.address());
    let before = shared.probes.state().searches.get(&address).copied();
    if before.is_none_or(|before| now.duration_since(before) >= SUSPICION_PAUSE) {
        spawn(shared, domain, upstream);
    }
}

fn spawn(shared: &Arc<Shared>, domain: &[u8], upstream: &Arc<Upstream>) {
    let mut state = shared.probes.state();
    state.searches.insert(upstream.address(), Instant::now());
    drop(state);
    let task = search(Arc::clone(shared), domain.to_vec(), Arc::clone(upstream));
    shared.runtime.spawn(task);
}

/// Asks an upstream until it replies, and while it has a loop.
async fn search(shared: Arc<Shared>, domain: Vec<u8>, upstream: Arc<Upstream>) {
    let address = upstream.address();
    let shared = Arc::downgrade(&shared);
    let mut tries = 0;
    while tries < MOST_TRIES {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        let is_current = |current: &Arc<Upstream>| Arc::ptr_eq(current, &upstream);
        let Some(name) =
            random_name(&domain).filter(|_| strong.routes().upstreams().any(is_current))
        else {
            return;
        };
        let Some(request) = Request::new(&question(&name), PROBE_PAYLOAD) else {
            return;
        };
        let probes = &strong.probes;
        let sent = Question {
            upstream: address,
            came_back: false,
        };
        probes.state().questions.insert(name.clone(), sent);
        let replied = upstream.probe(&request, PROBE_TIMEOUT).await;
        let has_loop = probes.end(&name, address, replied);
        drop(strong);
        match (has_loop, replied) {
            (true, _) => sleep(RECHECK).await,
            (false, true) => return,
            (false, false) => {
                tries += 1;
                sleep(TRY_PAUSE).await;
            }
        }
    }
}

/// EDNS buffer size of the questions.
const PROBE_PAYLOAD: u16 = 1_232;

fn question(name: &[u8]) -> Query<'_> {
    Query {
        id: 0,
        name,
        record_type: TYPE_HINFO,
        class: 1,
        recursion_desired: true,
        authentic_data: false,
        checking_disabled: false,
        edns: None,
    }
}

/// Returns a random name below a domain, in wire format and lower case.
fn random_name(domain: &[u8]) -> Option<Vec<u8>> {
    const LABEL: u8 = 32;
    let mut bytes = [0; 16];
    random(&mut bytes).ok()?;
    let label = format!("{:032x}", u128::from_be_bytes(bytes));
    let name = [&[LABEL], label.as_bytes(), domain].concat();
    // No name is longer, and so no question comes back from a domain that long.
    (name.len() <= 255).then_some(name)
}
