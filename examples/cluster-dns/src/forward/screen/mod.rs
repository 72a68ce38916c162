//! Checks and filters of upstream responses.
//!
//! A response may carry records that nobody asked for. A resolver that believes them lets whoever
//! runs one zone answer for all others: "the address of www.example.com, and by the way, the name
//! server of com is mine". So nothing of a response is trusted because it is there.
//!
//! For example, the question `www.example.com A`, and what stays of a response:
//!
//! ```text
//! answer      www.example.com  CNAME  cdn.example.net     kept: from the name of the question
//! answer      cdn.example.net  A      192.0.2.7           kept: the end of the chain, of type A
//! answer      bank.example     A      192.0.2.66          removed: not in the chain
//! authority   com              NS     a.gtld-servers.net  kept: com contains a name of the chain
//! additional  bank.example     A      192.0.2.66          removed: no kept record names it
//! ```
//!
//! A response keeps only records that belong to its question:
//!
//! - Answers: the chain of at most [`MAX_CNAME_RECORDS`] CNAME records from the name of the
//!   question, the DNAME records that they come from, and the records of the type of the
//!   question at the end of the chain. They are in the order of the chain, so that the
//!   aliases stay in an answer that is cut: musl before 1.2.4 never repeats a question over TCP,
//!   and must find an address by what is left.
//! - Authorities: SOA, NS and proofs of zones that contain a name of the chain.
//! - Additionals: addresses of hosts that the other sections name.
//!
//! The cache stores whole responses by question, so a record never answers another
//! question. The filters protect caches of clients.
//!
//! What must stay true: the work is at most the number of records times a constant. 4,000 records
//! that all refer to each other are one message, and [`MAX_CNAME_RECORDS`] and
//! [`MAX_AUTHORITY_ZONES`] are what keeps loops over them from being quadratic.

use std::collections::HashSet;
use std::time::Duration;

use hickory_proto::op::{Message, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::cache::AnswerType;
use super::options::CacheOptions;

/// Maximum number of CNAME records of an answer. Real chains have two or three; without a limit a
/// response of 64 KiB could have thousands, each of which is compared with all records.
const MAX_CNAME_RECORDS: usize = 16;

/// Maximum number of zones whose authority records are kept. Each record is compared with each of
/// them. A chain usually ends in one zone.
const MAX_AUTHORITY_ZONES: usize = 8;

/// An upstream response that may be sent to clients.
#[derive(Debug)]
pub(super) struct Screened {
    /// The response, without an OPT record, with TTLs within the bounds of the cache.
    pub(super) message: Message,
    pub(super) answer_type: AnswerType,
    /// Time for which the response may be cached, at least one second.
    pub(super) lifetime: Option<Duration>,
}

/// Reason why an upstream response answers no question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unusable {
    /// The upstream reports an error.
    Code(ResponseCode),
    /// The CNAME records have no single end, or contradict the RCODE.
    Chain,
}

/// Checks and filters the response to `question`.
pub(super) fn screen(
    response: Message,
    question: &Question,
    dnssec_ok: bool,
    options: &CacheOptions,
) -> Result<Screened, Unusable> {
    // All other codes say that the upstream has no answer, whatever records are with them. The next
    // upstream is asked.
    let code = response.metadata.response_code;
    if !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return Err(Unusable::Code(code));
    }
    let chain = chain(question, &response.answers)?;
    // A new message, and not the response with records removed: what is not copied here, such as
    // the OPT record or flags between us and the upstream, cannot reach a client.
    let mut message = Message::response(0, OpCode::Query);
    message.metadata.response_code = code;
    // Only clients that ask for it get it, see `Answer::write`.
    message.metadata.authentic_data = response.metadata.authentic_data;
    message.metadata.recursion_desired = true;
    message.metadata.recursion_available = true;
    message.queries.push(question.clone());
    // Answers before authorities before additionals: each section is filtered by what is kept of
    // the ones before it.
    message.answers = answers(question, &chain, response.answers, dnssec_ok);
    let answers_question = message
        .answers
        .iter()
        .any(|record| answers_type(record, question));
    // A name that does not exist has no records. Whichever half is wrong, clients disagree about
    // what it means, and caching it would keep the confusion. (Aliases with NXDOMAIN are fine: the
    // code is about their end.)
    if answers_question && code == ResponseCode::NXDomain {
        return Err(Unusable::Chain);
    }
    message.authorities = authorities(&chain, response.authorities, question, dnssec_ok);
    message.additionals = additionals(&message, response.additionals, question, dnssec_ok);
    Ok(if answers_question {
        success(message, options)
    } else {
        denial(message, options)
    })
}

/// Returns the names from the question to the end of the CNAME records, at least the question.
fn chain(question: &Question, answers: &[Record]) -> Result<Vec<Name>, Unusable> {
    let mut names = vec![question.name.clone()];
    // The question is for the alias itself, so it is not followed.
    if matches!(question.query_type, RecordType::CNAME | RecordType::ANY) {
        return Ok(names);
    }
    while let Some(target) = target(&names[names.len() - 1], question, answers)? {
        // A loop would never end. `names` has one more than there are CNAME records so far, so the
        // answer may have `MAX_CNAME_RECORDS` of them and not one more.
        if names.contains(target) || names.len() > MAX_CNAME_RECORDS {
            return Err(Unusable::Chain);
        }
        names.push(target.clone());
    }
    Ok(names)
}

/// Returns the target of the only CNAME record of `owner`.
fn target<'a>(
    owner: &Name,
    question: &Question,
    answers: &'a [Record],
) -> Result<Option<&'a Name>, Unusable> {
    let mut targets = answers
        .iter()
        .filter(|record| record.dns_class == question.query_class && record.name == *owner)
        .filter_map(|record| match &record.data {
            RData::CNAME(target) => Some(&target.0),
            _ => None,
        });
    let first = targets.next();
    // The same record twice is harmless. Two targets are forbidden, and whichever was followed,
    // another resolver would follow the other one.
    if targets.all(|target| Some(target) == first) {
        Ok(first)
    } else {
        Err(Unusable::Chain)
    }
}

/// Returns the records that belong to the chain, in its order.
fn answers(
    question: &Question,
    chain: &[Name],
    records: Vec<Record>,
    dnssec_ok: bool,
) -> Vec<Record> {
    // `chain` has at least the name of the question.
    let end = chain.len() - 1;
    let is_of_class = |record: &Record| record.dns_class == question.query_class;
    // The owner of a DNAME record is above the name that it redirects.
    let redirected = |owner: &Name| {
        let is_below = |name: &Name| name != owner && owner.zone_of(name);
        chain.iter().position(is_below)
    };
    // Signatures of DNAME records are kept with them. The record that is signed may come later, so
    // this is found out first.
    let redirecting = records
        .iter()
        .filter(|record| is_of_class(record) && is_redirection(record))
        .map(|record| record.name.clone())
        .collect::<HashSet<_>>();
    // The place of a record: the name of the chain, and its rank there. `None` removes it. A DNAME
    // record precedes the CNAME record that the upstream made of it.
    let place = |record: &mut Record| {
        let record_type = record.record_type();
        let is_signature = record_type == RecordType::RRSIG && dnssec_ok;
        let is_redirection = is_redirection(record);
        if let Some(at) = redirected(&record.name)
            && (is_redirection || (is_signature && redirecting.contains(&record.name)))
        {
            return Some((at, 0));
        }
        if let Some(at) = chain.iter().position(|name| *name == record.name) {
            let belongs = match record_type {
                _ if is_signature => true,
                // At the end there is none, or the question was for it.
                RecordType::CNAME if at < end => true,
                // Also if the question is for DNAME, see `is_redirection`.
                RecordType::DNAME if !is_redirection => false,
                // Other records of a name with an alias contradict it, and are not of the end.
                _ => at == end && is_asked(record_type, question),
            };
            // Equal names of equal case are compressed. An upstream that mixes cases would make the
            // answer longer, and so cut earlier.
            record.name.clone_from(&chain[at]);
            return belongs.then_some((at, 1));
        }
        None
    };
    let mut kept = records
        .into_iter()
        .filter(is_of_class)
        .filter_map(|mut record| Some((place(&mut record)?, record)))
        .collect::<Vec<_>>();
    // Stable: records of one name keep the upstream's order.
    kept.sort_by_key(|&(place, _)| place);
    kept.into_iter().map(|(_, record)| record).collect()
}

/// Returns whether a record is a DNAME record whose target is a whole name without
/// compression (RFC 6672, section 2.5). The codec passes on the bytes, and a pointer would
/// lead to another name in our message.
fn is_redirection(record: &Record) -> bool {
    // The codec has no type for DNAME. If it gets one, a test fails, because these records are then
    // no longer kept.
    let RData::Unknown { code, rdata } = &record.data else {
        return false;
    };
    let is_name = |mut bytes: &[u8]| {
        while let Some((&length, rest)) = bytes.split_first() {
            // The root label must be the last byte. More than 63 is a pointer.
            if length == 0 || length > 63 {
                return length == 0 && rest.is_empty();
            }
            bytes = rest.get(usize::from(length)..).unwrap_or_default();
        }
        false
    };
    *code == RecordType::DNAME && is_name(&rdata.anything)
}

/// Returns whether the question is for records of this type.
fn is_asked(record_type: RecordType, question: &Question) -> bool {
    question.query_type == RecordType::ANY || question.query_type == record_type
}

/// Returns whether a kept record is of the type of the question. Only with [`answers`], which has
/// removed records of other names: an alias alone answers no question for an address.
fn answers_type(record: &Record, question: &Question) -> bool {
    is_asked(record.record_type(), question)
}

/// Returns the authority records of zones that contain a name of the chain, in their order.
fn authorities(
    chain: &[Name],
    records: Vec<Record>,
    question: &Question,
    dnssec_ok: bool,
) -> Vec<Record> {
    let mut zones = Vec::<Name>::new();
    for record in &records {
        let is_apex = matches!(record.record_type(), RecordType::SOA | RecordType::NS);
        let contains = |name: &Name| record.name.zone_of(name);
        let is_listed = zones.len() == MAX_AUTHORITY_ZONES || zones.contains(&record.name);
        if is_apex && !is_listed && chain.iter().any(contains) {
            zones.push(record.name.clone());
        }
    }
    let keep = |record: &Record| {
        record.dns_class == question.query_class
            && match record.record_type() {
                RecordType::SOA | RecordType::NS => zones.contains(&record.name),
                // Proofs have owners below the apex: NSEC3 a hash, NSEC the name before the one in
                // question. Clients without DO did not ask for them.
                RecordType::RRSIG | RecordType::NSEC | RecordType::NSEC3 | RecordType::DS => {
                    dnssec_ok && zones.iter().any(|zone| zone.zone_of(&record.name))
                }
                _ => false,
            }
    };
    records.into_iter().filter(keep).collect()
}

/// Returns the addresses of hosts that the kept records of `message` name, in their order.
fn additionals(
    message: &Message,
    records: Vec<Record>,
    question: &Question,
    dnssec_ok: bool,
) -> Vec<Record> {
    let hosts = message
        .answers
        .iter()
        .chain(&message.authorities)
        .filter_map(|record| host(&record.data))
        .collect::<HashSet<_>>();
    let keep = |record: &Record| {
        record.dns_class == question.query_class
            && match record.record_type() {
                RecordType::A | RecordType::AAAA => hosts.contains(&record.name),
                RecordType::RRSIG => dnssec_ok && hosts.contains(&record.name),
                // Also CNAME records of a host: they would lead a client on to any name.
                _ => false,
            }
    };
    records.into_iter().filter(keep).collect()
}

/// Returns the host whose addresses a client needs next.
fn host(data: &RData) -> Option<&Name> {
    match data {
        RData::NS(data) => Some(&data.0),
        RData::MX(data) => Some(&data.exchange),
        RData::SRV(data) => Some(&data.target),
        RData::SVCB(data) => Some(&data.target_name),
        RData::HTTPS(data) => Some(&data.target_name),
        _ => None,
    }
}

/// Bounds the TTLs of a positive answer, which lives as long as the shortest of them.
fn success(mut message: Message, options: &CacheOptions) -> Screened {
    let bounds = (options.min_success_ttl, options.max_success_ttl);
    let lifetime = bound_ttls(&mut message, bounds);
    Screened {
        message,
        answer_type: AnswerType::Success,
        lifetime,
    }
}

/// A negative answer may be cached for the smaller of the TTL and the minimum of its SOA
/// record. Without a SOA record it is not cached, RFC 2308 section 5.
fn denial(mut message: Message, options: &CacheOptions) -> Screened {
    // Authorities are filtered, so this is the SOA record of a zone of the chain. That of another
    // zone says nothing about how long the name does not exist.
    let mut has_soa = false;
    for record in &mut message.authorities {
        if let RData::SOA(soa) = &record.data {
            has_soa = true;
            record.ttl = effective(record.ttl).min(effective(soa.minimum));
        }
    }
    let bounds = (options.min_denial_ttl, options.max_denial_ttl);
    let lifetime = bound_ttls(&mut message, bounds).filter(|_| has_soa);
    Screened {
        message,
        answer_type: AnswerType::Denial,
        lifetime,
    }
}

/// Moves all TTLs into the bounds, and returns the smallest unless it is zero.
///
/// The TTLs in the message change, too, and not only the lifetime of the entry: otherwise a client
/// would keep for a day what we ask again after 30 s.
fn bound_ttls(message: &mut Message, (min, max): (Duration, Duration)) -> Option<Duration> {
    let seconds = |duration: Duration| u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
    // `clamp` panics if the minimum is greater than the maximum, and both are options.
    let (min, max) = (seconds(min).min(seconds(max)), seconds(max));
    let mut smallest = max;
    let sections = [
        &mut message.answers,
        &mut message.authorities,
        &mut message.additionals,
    ];
    for record in sections.into_iter().flatten() {
        record.ttl = effective(record.ttl).clamp(min, max);
        smallest = smallest.min(record.ttl);
    }
    // An entry of zero seconds would never be fresh, but could be served as a stale one.
    (smallest > 0).then(|| Duration::from_secs(smallest.into()))
}

/// A TTL with its highest bit set counts as zero, RFC 2181 section 8.
fn effective(ttl: u32) -> u32 {
    if i32::try_from(ttl).is_ok() { ttl } else { 0 }
}

#[cfg(test)]
mod tests;
