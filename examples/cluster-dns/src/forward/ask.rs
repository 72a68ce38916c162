//! One question to the upstreams, one after another.

use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use tokio::time::timeout;
use tracing::debug;

use super::answer::{Answer, Form, Ttl};
use super::cache::{Cache, NewEntry};
use super::exchange::ExchangeError;
use super::flight::Outcome;
use super::forwarder::Shared;
use super::options::CacheOptions;
use super::query::{Key, Query};
use super::request::{Reply, Request};
use super::screen::{Screened, Unusable, screen};

/// Result of asking the upstreams.
pub(super) enum Asked {
    /// An answer, with what to cache.
    Answer {
        /// The answer for clients.
        answer: Answer,
        /// The entry of the cache, unless the answer must not be cached.
        entry: Option<NewEntry>,
    },
    /// No upstream has a whole answer.
    Failure {
        /// The error or the truncated answer for clients.
        answer: Answer,
        /// Whether an upstream responded.
        responded: bool,
    },
}

impl Asked {
    /// Returns the outcome for clients, and what to cache.
    pub(super) fn into_outcome(self, options: &CacheOptions) -> (Outcome, Option<NewEntry>) {
        match self {
            Self::Answer { answer, entry } => (Outcome::Answer(answer), entry),
            Self::Failure { answer, responded } => {
                let entry = NewEntry::failure(answer.clone(), responded, options);
                (Outcome::Failure(answer), entry)
            }
        }
    }
}

/// Returns the answer of at most `limit` bytes to a query, given the reply of an upstream to
/// its question, as the cache returns it. `None` if the reply is unusable.
///
/// The ID of the reply must be that of the query. Without sockets, for tests with hostile
/// replies.
pub fn answer_from_reply(
    query: &Query<'_>,
    reply: &[u8],
    limit: usize,
    options: &CacheOptions,
) -> Option<Vec<u8>> {
    const PAYLOAD_SIZE: u16 = 1_232;
    let request = Request::new(query, PAYLOAD_SIZE)?;
    let Reply::Message(message) = request.check(query.id, reply) else {
        return None;
    };
    let screened = screen(*message, &request.question, request.dnssec_ok, options).ok()?;
    let Asked::Answer { answer, entry } = encode(screened)? else {
        return None;
    };
    let form = Form {
        ttl: Ttl::Age(0),
        limit,
        payload_size: PAYLOAD_SIZE,
        rotation: 0,
    };
    let (mut cache, mut out) = (Cache::new(options), Vec::new());
    if let Some(entry) = entry {
        cache.insert(&query.key(), entry, Duration::ZERO);
    }
    match cache.get(&query.key(), Duration::ZERO) {
        Some(hit) => hit.answer.write(query, form, &mut out),
        None => answer.write(query, form, &mut out),
    }
    Some(out)
}

/// Asks the upstreams of a key until one has an answer, or until the deadline.
pub(super) async fn ask(shared: &Shared, key: &Key) -> Asked {
    let query = key.query();
    let (mut error, mut truncated) = (None, None);
    if let Some(request) = Request::new(&query, shared.options.udp_payload_size) {
        let rounds = rounds(shared, key, &request, &mut error, &mut truncated);
        let screened = timeout(shared.options.deadline, rounds)
            .await
            .ok()
            .flatten();
        if let Some(asked) = screened.and_then(encode) {
            return asked;
        }
    } else {
        error = Some(ResponseCode::FormErr);
    }
    if let Some(answer) = truncated {
        return Asked::Failure {
            answer,
            responded: true,
        };
    }
    shared.counters.failures.increment();
    let code = error.map_or(ResponseCode::ServFail, representable);
    let answer = Answer::error(&query, code.low());
    Asked::Failure {
        answer,
        responded: error.is_some(),
    }
}

/// Longest wait for an upstream while all of a set are down. The health checks notice a
/// recovery; this try only covers the time between two of them.
const TRY_WHILE_DOWN: Duration = Duration::from_millis(500);

/// Asks all upstreams, in several rounds. `error` is the last RCODE without an answer, and
/// `truncated` the answer of an upstream that answers only over UDP.
///
/// While all of the upstreams are down, one of them gets one short try: a query that waits
/// for a dead server holds a place that another one needs.
async fn rounds(
    shared: &Shared,
    key: &Key,
    request: &Request,
    error: &mut Option<ResponseCode>,
    truncated: &mut Option<Answer>,
) -> Option<Screened> {
    let name = Key::name(key);
    let routes = shared.routes();
    let (mut attempts, mut tries, mut wait) = (routes.attempts, usize::MAX, routes.try_timeout);
    if routes.set(name).is_down() {
        shared.counters.healthcheck_broken.increment();
        (attempts, tries, wait) = (1, 1, wait.min(TRY_WHILE_DOWN));
    }
    for _ in 0..attempts {
        let mut all_responded = true;
        let order = routes.order(name, &shared.turn);
        for upstream in order.into_iter().take(tries) {
            let reply = upstream.exchange(request, wait).await;
            let cache = &shared.options.cache;
            let message = match reply {
                Ok(message) => message,
                Err(error) => {
                    let name = &request.question.name;
                    debug!(upstream = %upstream.address(), %name, %error, "upstream failed");
                    all_responded &= !error.is_silence();
                    if let ExchangeError::OnlyUdp { reply, .. } = error {
                        let reply =
                            reply.and_then(|reply| encode_truncated(*reply, request, cache));
                        *truncated = reply.or_else(|| truncated.take());
                    }
                    continue;
                }
            };
            match screen(message, &request.question, request.dnssec_ok, cache) {
                Ok(screened) => return Some(screened),
                Err(Unusable::Code(code)) => *error = Some(code),
                Err(Unusable::Chain) => *error = Some(ResponseCode::ServFail),
            }
        }
        if all_responded {
            break;
        }
    }
    None
}

/// Returns an RCODE that fits into a header.
fn representable(code: ResponseCode) -> ResponseCode {
    if u16::from(code) < 16 {
        code
    } else {
        ResponseCode::ServFail
    }
}

/// Returns the answer of a truncated reply. Most clients repeat their query over TCP.
fn encode_truncated(reply: Message, request: &Request, cache: &CacheOptions) -> Option<Answer> {
    let screened = screen(reply, &request.question, request.dnssec_ok, cache).ok()?;
    Some(Answer::encode(&screened.message)?.truncated())
}

fn encode(screened: Screened) -> Option<Asked> {
    let answer = Answer::encode(&screened.message)?;
    let entry = screened.lifetime.map(|lifetime| NewEntry {
        answer: answer.clone(),
        answer_type: screened.answer_type,
        lifetime,
        is_failure: false,
    });
    Some(Asked::Answer { answer, entry })
}
