//! Encoding of aliases in the zone, with the records of the upstreams.

use hickory_proto::ProtoError;
use hickory_proto::op::{Message, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder, BinEncodable, BinEncoder};
use vipline_service_dns as zone;

use super::request::{OPT_SIZE, push_opt};
use crate::forward::Query;
use crate::truncation;

/// Creates the response to a query, with the records of the zone.
///
/// # Errors
///
/// A name that is no valid name for the encoder.
pub(super) fn response(
    query: &Query<'_>,
    answer: &zone::Answer,
    is_recursive: bool,
) -> Result<Message, ProtoError> {
    let mut message = Message::response(query.id, OpCode::Query);
    message.metadata.authoritative = true;
    message.metadata.recursion_desired = query.recursion_desired;
    message.metadata.recursion_available = is_recursive;
    message.metadata.checking_disabled = query.checking_disabled;
    message.metadata.response_code = match answer.code {
        zone::ResponseCode::NoError => ResponseCode::NoError,
        zone::ResponseCode::NameError => ResponseCode::NXDomain,
    };
    let record_type = RecordType::from(query.record_type);
    message.queries = vec![Question::query(decode(query.name)?, record_type)];
    message.answers = records(&answer.answers)?;
    message.authorities = records(&answer.authorities)?;
    message.additionals = records(&answer.additionals)?;
    Ok(message)
}

/// Replaces the content of `out` by a message of at most `limit` bytes, with an OPT record
/// if the query has one. A longer message is [cut](truncation::cut).
///
/// # Errors
///
/// A record cannot be encoded.
pub(super) fn write(
    message: &Message,
    query: &Query<'_>,
    payload_size: u16,
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), ProtoError> {
    out.clear();
    let mut encoder = BinEncoder::new(out);
    message.emit(&mut encoder)?;
    // Removes the bytes of a record that did not fit into the longest message.
    encoder.trim();
    let opt = if query.edns.is_some() { OPT_SIZE } else { 0 };
    truncation::cut(out, limit.saturating_sub(opt));
    if let Some(edns) = query.edns {
        let code = message.metadata.response_code.high();
        push_opt(code, payload_size, edns.dnssec_ok, out);
    }
    Ok(())
}

/// Decodes a name from uncompressed wire format.
pub(super) fn decode(wire: &[u8]) -> Result<Name, ProtoError> {
    Ok(Name::read(&mut BinDecoder::new(wire))?)
}

fn name(name: &zone::Name) -> Result<Name, ProtoError> {
    decode(name.as_wire())
}

fn records(records: &[zone::Record]) -> Result<Vec<Record>, ProtoError> {
    records.iter().map(record).collect()
}

fn record(record: &zone::Record) -> Result<Record, ProtoError> {
    let data = match &record.data {
        zone::RecordData::A(address) => RData::A(A(*address)),
        zone::RecordData::Aaaa(address) => RData::AAAA(AAAA(*address)),
        zone::RecordData::Srv {
            priority,
            weight,
            port,
            target,
        } => RData::SRV(SRV::new(*priority, *weight, *port, name(target)?)),
        zone::RecordData::Cname(target) => RData::CNAME(CNAME(name(target)?)),
        zone::RecordData::Ptr(target) => RData::PTR(PTR(name(target)?)),
        zone::RecordData::Txt(texts) => RData::TXT(TXT::new(texts.clone())),
        zone::RecordData::Soa(soa) => RData::SOA(self::soa(soa)?),
        zone::RecordData::Ns(target) => RData::NS(NS(name(target)?)),
    };
    Ok(Record::from_rdata(name(&record.name)?, record.ttl, data))
}

fn soa(soa: &zone::Soa) -> Result<SOA, ProtoError> {
    let seconds = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    Ok(SOA::new(
        name(&soa.name_server)?,
        name(&soa.mailbox)?,
        soa.serial,
        seconds(soa.refresh),
        seconds(soa.retry),
        seconds(soa.expire),
        soa.minimum,
    ))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::forward::QueryEdns;

    const NAME: &[u8] = b"\x03Web\x07default\x03svc\x07cluster\x05local\0";

    fn query(payload_size: Option<u16>) -> Query<'static> {
        Query {
            id: 9,
            name: NAME,
            record_type: 1,
            class: 1,
            recursion_desired: true,
            authentic_data: false,
            checking_disabled: false,
            edns: payload_size.map(|payload_size| QueryEdns {
                payload_size,
                dnssec_ok: true,
            }),
        }
    }

    fn answer(addresses: u8, additionals: u8) -> zone::Answer {
        let name = zone::Name::from_wire(NAME).unwrap().0;
        let record = |number: u8| zone::Record {
            name: name.clone(),
            ttl: 5,
            data: zone::RecordData::A(Ipv4Addr::new(10, 0, 0, number)),
        };
        zone::Answer {
            code: zone::ResponseCode::NoError,
            answers: (0..addresses).map(record).collect(),
            authorities: Vec::new(),
            additionals: (0..additionals).map(record).collect(),
            unresolved: None,
        }
    }

    fn written(addresses: u8, additionals: u8, payload: Option<u16>, limit: usize) -> Message {
        let query = query(payload);
        let message = response(&query, &answer(addresses, additionals), true).unwrap();
        let mut out = Vec::new();
        write(&message, &query, 1232, limit, &mut out).unwrap();
        assert!(out.len() <= limit, "{} bytes", out.len());
        Message::from_vec(&out).unwrap()
    }

    #[test]
    fn a_response_has_the_case_of_the_question_and_an_opt_record_only_on_demand() {
        let plain = written(2, 0, None, 512);
        assert_eq!(plain.answers.len(), 2);
        assert!(plain.answers[0].name.to_string().starts_with("Web."));
        assert!(plain.metadata.authoritative && !plain.metadata.truncation);
        assert_eq!(plain.edns, None);
        let edns = written(2, 0, Some(4096), 1232).edns.unwrap();
        assert_eq!((edns.max_payload(), edns.version()), (1232, 0));
        assert!(edns.flags().dnssec_ok);
    }

    #[test]
    fn a_truncated_response_has_the_bit_tc_and_the_answers_that_fit() {
        let whole = written(200, 0, None, 65_535);
        assert_eq!(
            (whole.answers.len(), whole.metadata.truncation),
            (200, false)
        );
        let cut = written(200, 0, None, 512);
        assert!(cut.metadata.truncation);
        assert!(
            (25..40).contains(&cut.answers.len()),
            "{}",
            cut.answers.len()
        );
        let cut = written(200, 0, Some(1232), 1232);
        assert!(cut.metadata.truncation && cut.edns.is_some());
    }

    #[test]
    fn additional_records_are_left_out_without_truncation() {
        let message = written(20, 60, Some(512), 512);
        assert_eq!(message.answers.len(), 20);
        assert!(message.additionals.is_empty() && !message.metadata.truncation);
    }
}
