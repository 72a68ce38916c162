//! Responses to requests: from the zone, from the cache, or from the upstreams.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use hickory_proto::ProtoError;
use hickory_proto::op::{Message, ResponseCode};
use vipline_service_dns::{self as zone, Question, RecordType, Zone};

use super::request::{HEADER, Rejection, Request};
use super::{encode, wire};
use crate::forward::{Forwarder, Query};
use crate::rotation::Rotation;
use crate::telemetry::{Counters, LogEntry, Observation, Origin, QueryLog, Transport, ZoneLabel};

/// Size limit of a response over TCP.
const TCP_LIMIT: usize = u16::MAX as usize;

/// Answers requests. Shared by all threads.
#[derive(Debug)]
pub struct Responder {
    zone: Arc<RwLock<Zone>>,
    forwarder: Option<Forwarder>,
    log: Arc<QueryLog>,
    /// EDNS buffer size of this server, and the size limit of responses over UDP.
    payload_size: u16,
    rotation: Rotation,
}

/// A request with its circumstances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    /// The request.
    pub(super) message: &'a [u8],
    /// Address of the client.
    pub(super) client: SocketAddr,
    /// Transport protocol.
    pub(super) transport: Transport,
    /// Time of the receipt.
    pub(super) at: Instant,
}

/// State of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// The response is complete.
    Done,
    /// The upstreams must be asked.
    Wait,
    /// There must be no response.
    Ignore,
}

/// Facts about a response, for metrics.
#[derive(Clone, Copy, Debug)]
struct Written {
    zone: ZoneLabel,
    origin: Origin,
}

/// Bit of a truncated response, in the third byte of the header.
const TC: u8 = 0x02;

/// Part of a response code that is in the header of a response.
const HEADER_CODE: u16 = 0xF;

/// Result of a look-up in the zone.
enum Found {
    /// Not in the zone.
    Outside,
    /// Objects that are not listed yet decide about the answer.
    Unknown,
    Answer(zone::Answer),
}

impl Responder {
    /// Creates a responder.
    pub fn new(
        zone: Arc<RwLock<Zone>>,
        forwarder: Option<Forwarder>,
        log: Arc<QueryLog>,
        payload_size: u16,
    ) -> Self {
        Self {
            zone,
            forwarder,
            log,
            payload_size,
            rotation: Rotation::default(),
        }
    }

    /// Writes the response into `out` if the upstreams are not needed.
    pub(super) fn respond(
        &self,
        received: &Received<'_>,
        counters: &Counters,
        out: &mut Vec<u8>,
    ) -> Step {
        let query = match Request::parse(received.message) {
            Request::Ignored => return Step::Ignore,
            Request::Rejected(rejection) => {
                rejection.write(self.payload_size, out);
                let zone = ZoneLabel::Dropped;
                let origin = Origin::Server;
                let written = Written { zone, origin };
                self.record(received, rejection.record_type, written, counters, out);
                return Step::Done;
            }
            Request::Query(query) => query,
        };
        let written = match self.find(&query, received.transport) {
            Found::Answer(answer) if self.resolver(&answer).is_some() => return Step::Wait,
            Found::Answer(answer) => {
                self.write_answer(&query, &answer, received, out);
                Written {
                    zone: ZoneLabel::Cluster,
                    origin: Origin::Zone,
                }
            }
            Found::Unknown => {
                self.reject(ResponseCode::ServFail, &query, received, out);
                Written {
                    zone: ZoneLabel::Cluster,
                    origin: Origin::Zone,
                }
            }
            Found::Outside => match self.forwarder_of(query.name) {
                None => {
                    self.reject(ResponseCode::Refused, &query, received, out);
                    Written {
                        zone: ZoneLabel::Root,
                        origin: Origin::Server,
                    }
                }
                Some(forwarder) if forwarder.is_probe(&query, received.client.ip()) => {
                    self.reject(ResponseCode::Refused, &query, received, out);
                    Written {
                        zone: ZoneLabel::Root,
                        origin: Origin::Server,
                    }
                }
                Some(forwarder) => {
                    let limit = self.limit(&query, received.transport);
                    let (client, now) = (received.client.ip(), received.at);
                    let cached = forwarder.cached(&query, client, limit, now, out);
                    if cached.is_none() {
                        return Step::Wait;
                    }
                    Written {
                        zone: ZoneLabel::Root,
                        origin: Origin::Cache,
                    }
                }
            },
        };
        self.record(received, query.record_type, written, counters, out);
        Step::Done
    }

    /// Writes the response into `out`, after [`respond`](Self::respond) returned
    /// [`Step::Wait`].
    ///
    /// Returns false if the response needs more than `room` bytes, but fits into the limit
    /// of its transport. Then the caller must repeat the call with more room.
    pub(super) async fn respond_later(
        &self,
        received: &Received<'_>,
        counters: &Counters,
        room: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let (Request::Query(query), Some(forwarder)) =
            (Request::parse(received.message), &self.forwarder)
        else {
            out.clear();
            return true;
        };
        let most = self.limit(&query, received.transport);
        let limit = most.min(room);
        let written = match self.find(&query, received.transport) {
            Found::Answer(answer) => {
                let client = received.client.ip();
                let resolved = self.resolve(&query, &answer, client, forwarder).await;
                let written = resolved.and_then(|message| {
                    encode::write(&message, &query, self.payload_size, limit, out)
                });
                if written.is_err() {
                    self.reject(ResponseCode::ServFail, &query, received, out);
                }
                Written {
                    zone: ZoneLabel::Cluster,
                    origin: Origin::Zone,
                }
            }
            // The objects of an alias that was listed before are gone.
            Found::Unknown => {
                self.reject(ResponseCode::ServFail, &query, received, out);
                Written {
                    zone: ZoneLabel::Cluster,
                    origin: Origin::Zone,
                }
            }
            Found::Outside => {
                let client = received.client.ip();
                forwarder.answer(&query, client, limit, out).await;
                Written {
                    zone: ZoneLabel::Root,
                    origin: Origin::Forward,
                }
            }
        };
        if limit < most && is_truncated(out) {
            return false;
        }
        self.record(received, query.record_type, written, counters, out);
        true
    }

    /// Writes SERVFAIL into `out`, because too many queries wait for the upstreams.
    pub(super) fn refuse_to_wait(
        &self,
        received: &Received<'_>,
        counters: &Counters,
        out: &mut Vec<u8>,
    ) {
        if let Request::Query(query) = Request::parse(received.message) {
            self.reject(ResponseCode::ServFail, &query, received, out);
            let zone = ZoneLabel::Root;
            let origin = Origin::Server;
            let written = Written { zone, origin };
            self.record(received, query.record_type, written, counters, out);
        }
    }

    fn find(&self, query: &Query<'_>, transport: Transport) -> Found {
        let Ok((name, _)) = zone::Name::from_wire(query.name) else {
            return Found::Outside;
        };
        let question = Question::new(name, RecordType::from(query.record_type));
        let rotation = self.rotation.next();
        let zone = self.zone.read().unwrap_or_else(PoisonError::into_inner);
        let answer = zone.answer_within(&question, rotation, self.limit(query, transport));
        if !zone.is_synced() && is_provisional(&question.name, answer.as_ref()) {
            return Found::Unknown;
        }
        answer.map_or(Found::Outside, Found::Answer)
    }

    /// Returns the forwarder if the name in wire format has upstreams.
    fn forwarder_of(&self, name: &[u8]) -> Option<&Forwarder> {
        let forwarder = self.forwarder.as_ref();
        forwarder.filter(|forwarder| forwarder.has_upstreams(name))
    }

    /// Returns the forwarder if it must resolve the canonical name of an answer.
    fn resolver(&self, answer: &zone::Answer) -> Option<&Forwarder> {
        let target = answer.unresolved.as_ref()?;
        self.forwarder_of(target.as_wire())
    }

    /// Returns the size limit of a response in bytes.
    fn limit(&self, query: &Query<'_>, transport: Transport) -> usize {
        match transport {
            Transport::Udp => query.udp_limit(self.payload_size),
            Transport::Tcp => TCP_LIMIT,
        }
    }

    fn write_answer(
        &self,
        query: &Query<'_>,
        answer: &zone::Answer,
        received: &Received<'_>,
        out: &mut Vec<u8>,
    ) {
        let limit = self.limit(query, received.transport);
        let is_recursive = self.forwarder.is_some();
        wire::write(query, answer, is_recursive, self.payload_size, limit, out);
    }

    /// Appends the records of the canonical name outside of the zone.
    async fn resolve(
        &self,
        query: &Query<'_>,
        answer: &zone::Answer,
        client: IpAddr,
        forwarder: &Forwarder,
    ) -> Result<Message, ProtoError> {
        let mut message = encode::response(query, answer, true)?;
        let Some(target) = &answer.unresolved else {
            return Ok(message);
        };
        let query = Query {
            name: target.as_wire(),
            ..*query
        };
        let mut out = Vec::new();
        forwarder.answer(&query, client, TCP_LIMIT, &mut out).await;
        let found = Message::from_vec(&out)?;
        message.metadata.response_code = found.metadata.response_code;
        message.metadata.truncation |= found.metadata.truncation;
        message.answers.extend(found.answers);
        message.authorities.extend(found.authorities);
        Ok(message)
    }

    fn reject(
        &self,
        code: ResponseCode,
        query: &Query<'_>,
        received: &Received<'_>,
        out: &mut Vec<u8>,
    ) {
        out.clear();
        if let Some(header) = received.message.first_chunk::<HEADER>() {
            Rejection::of_query(code, query, header).write(self.payload_size, out);
        }
    }

    /// Counts and logs a response.
    fn record(
        &self,
        received: &Received<'_>,
        record_type: u16,
        written: Written,
        counters: &Counters,
        out: &[u8],
    ) {
        let query = Query::parse(received.message);
        let duration = received.at.elapsed();
        // Only rejections of requests have a code in their OPT record.
        let code = match written.zone {
            ZoneLabel::Dropped => rejection_code(received.message),
            ZoneLabel::Cluster | ZoneLabel::Root => None,
        };
        let header_code = out
            .get(3)
            .map_or(0, |flags| u16::from(*flags) & HEADER_CODE);
        let code = code.unwrap_or(header_code);
        counters.record(&Observation {
            transport: received.transport,
            is_ipv6: received.client.is_ipv6(),
            zone: written.zone,
            origin: written.origin,
            record_type,
            dnssec_ok: query.is_some_and(|query| query.dnssec_ok()),
            code,
            request_size: received.message.len(),
            response_size: out.len(),
            duration,
        });
        if self.log.is_enabled() {
            self.log.log(&LogEntry {
                client: received.client,
                transport: received.transport,
                request: received.message,
                response: out,
                duration,
            });
        }
    }
}

/// Returns whether objects that are not listed yet may change a negative answer, or may
/// make an outside name one of the zone.
fn is_provisional(name: &zone::Name, answer: Option<&zone::Answer>) -> bool {
    let Some(answer) = answer else {
        return name.is_reverse();
    };
    let outside = answer.unresolved.as_ref();
    answer.is_negative() || outside.is_some_and(zone::Name::is_reverse)
}

/// Returns whether a response has the bit TC.
fn is_truncated(response: &[u8]) -> bool {
    response.get(2).is_some_and(|flags| flags & TC != 0)
}

/// Returns the response code of a rejected request.
fn rejection_code(request: &[u8]) -> Option<u16> {
    match Request::parse(request) {
        Request::Rejected(rejection) => Some(u16::from(rejection.code)),
        Request::Query(_) | Request::Ignored => None,
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{MessageType, OpCode, Query as DnsQuery};
    use hickory_proto::rr::{Name, RecordType as DnsType};
    use vipline_service_dns::service_model::{Event, api};

    use super::*;

    /// Returns a responder whose list of objects is not complete. It has a Service `web`
    /// and aliases in the zone.
    fn responder() -> Responder {
        let mut zone = Zone::new(zone::Options::new("cluster.local".parse().unwrap()));
        let mut web = api::Service {
            metadata: api::ObjectMeta::named("shop", "web"),
            ..api::Service::default()
        };
        web.spec.cluster_ip = "10.96.0.10".into();
        zone.apply(&Event::ServiceApplied(web));
        for (name, target) in [
            ("to-web", "web.shop.svc.cluster.local"),
            ("to-db", "db.shop.svc.cluster.local"),
            ("to-ptr", "1.0.0.10.in-addr.arpa"),
        ] {
            let mut alias = api::Service {
                metadata: api::ObjectMeta::named("shop", name),
                ..api::Service::default()
            };
            alias.spec.kind = "ExternalName".into();
            alias.spec.external_name = target.into();
            zone.apply(&Event::ServiceApplied(alias));
        }
        let log = Arc::new(QueryLog::start(false).unwrap());
        Responder::new(Arc::new(RwLock::new(zone)), None, log, 1232)
    }

    /// Returns response code and number of answers.
    fn ask(responder: &Responder, name: &str, record_type: DnsType) -> (ResponseCode, usize) {
        let mut query = Message::new(7, MessageType::Query, OpCode::Query);
        query.add_query(DnsQuery::query(
            Name::from_ascii(name).unwrap(),
            record_type,
        ));
        let received = Received {
            message: &query.to_vec().unwrap(),
            client: SocketAddr::from(([127, 0, 0, 1], 4000)),
            transport: Transport::Udp,
            at: Instant::now(),
        };
        let mut out = Vec::new();
        let step = responder.respond(&received, &Counters::default(), &mut out);
        assert_eq!(step, Step::Done, "{name}");
        let response = Message::from_vec(&out).unwrap();
        (response.metadata.response_code, response.answers.len())
    }

    #[test]
    fn no_name_is_denied_before_the_first_list_is_complete() {
        use ResponseCode::{NXDomain, NoError, Refused, ServFail};
        let responder = responder();
        let questions = [
            ("web.shop.svc.cluster.local.", DnsType::A),
            ("to-web.shop.svc.cluster.local.", DnsType::A),
            ("to-db.shop.svc.cluster.local.", DnsType::CNAME),
            ("www.example.com.", DnsType::A),
            ("db.shop.svc.cluster.local.", DnsType::A),
            ("web.shop.svc.cluster.local.", DnsType::AAAA),
            ("to-web.shop.svc.cluster.local.", DnsType::AAAA),
            ("to-db.shop.svc.cluster.local.", DnsType::A),
            ("to-ptr.shop.svc.cluster.local.", DnsType::PTR),
            ("1.0.0.10.in-addr.arpa.", DnsType::PTR),
            ("1.0.0.0.IP6.arpa.", DnsType::PTR),
        ];
        let answers = || questions.map(|(name, kind)| ask(&responder, name, kind));
        let listed = [(NoError, 1), (NoError, 2), (NoError, 1), (Refused, 0)];
        let found = answers();
        assert_eq!(found[..4], listed);
        assert_eq!(found[4..], [(ServFail, 0); 7]);
        responder.zone.write().unwrap().apply(&Event::Synced);
        let found = answers();
        assert_eq!(found[..4], listed);
        assert_eq!(
            found[4..8],
            [(NXDomain, 0), (NoError, 0), (NoError, 1), (NXDomain, 1)]
        );
        assert_eq!(found[8..], [(NoError, 1), (Refused, 0), (Refused, 0)]);
    }
}
