//! The cut of a response that is longer than its client accepts.
//!
//! Many clients never repeat a question over TCP: musl before 1.2.4, which Alpine 3.17 and
//! Debian 12 have, uses what the datagram carries and ignores the bit TC. A truncated
//! response without records is no answer for them, so whole records stay up to the limit.
//! Aliases precede their targets in all our responses, and stay first.

/// Bytes of a message header.
const HEADER: usize = 12;

const TC: u8 = 0x02;

/// Shortens an encoded response with one question, and without an OPT record, to at most
/// `room` bytes, which is more than header and question have.
///
/// Additional records are optional: without them, the response is not truncated. A truncated
/// response has the bit TC, and all records that fit in the order of the message: later
/// sections only if the earlier ones are complete.
pub(crate) fn cut(message: &mut Vec<u8>, room: usize) {
    if message.len() <= room {
        return;
    }
    // Pointers of compressed names lead to the front, so every prefix can be read.
    let (mut end, mut kept) = (question_end(message).unwrap_or(HEADER), [0_u16; 3]);
    let counts = [6, 8].map(|at| u16_at(message, at).unwrap_or_default());
    'sections: for (kept, count) in kept.iter_mut().zip(counts) {
        while *kept < count {
            match record_end(message, end).filter(|&end| end <= room) {
                Some(next) => end = next,
                None => break 'sections,
            }
            *kept += 1;
        }
    }
    message.truncate(end);
    for (at, count) in [6, 8, 10].into_iter().zip(kept) {
        message[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }
    if kept[..2] != counts {
        message[2] |= TC;
    }
}

fn question_end(message: &[u8]) -> Option<usize> {
    Some(name_end(message, HEADER)? + 4)
}

/// Returns the end of the record that begins at `start`.
fn record_end(message: &[u8], start: usize) -> Option<usize> {
    // Type, class, TTL and length.
    let data = name_end(message, start)? + 10;
    let end = data + usize::from(u16_at(message, data - 2)?);
    (end <= message.len()).then_some(end)
}

/// Returns the end of the name that begins at `start`: after its root label, or after its
/// pointer.
fn name_end(message: &[u8], mut start: usize) -> Option<usize> {
    loop {
        match *message.get(start)? {
            0 => return Some(start + 1),
            0xC0.. => return Some(start + 2),
            label => start += 1 + usize::from(label),
        }
    }
}

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_proto::op::{Message, OpCode, Query};
    use hickory_proto::rr::rdata::{A, CNAME, NS};
    use hickory_proto::rr::{Name, RData, Record, RecordType};

    use super::*;

    /// Returns a response with an alias and further records in each section.
    fn response(addresses: u8, servers: u8, additionals: u8) -> Vec<u8> {
        let name = |text: &str| Name::from_ascii(text).unwrap();
        let (alias, end) = (name("www.example.com."), name("end.example.net."));
        let mut message = Message::response(7, OpCode::Query);
        message.add_query(Query::query(alias.clone(), RecordType::A));
        message.add_answer(Record::from_rdata(
            alias,
            60,
            RData::CNAME(CNAME(end.clone())),
        ));
        let address = |last| RData::A(A(Ipv4Addr::new(192, 0, 2, last)));
        for last in 0..addresses {
            message.add_answer(Record::from_rdata(end.clone(), 60, address(last)));
        }
        for number in 0..servers {
            let data = RData::NS(NS(name(&format!("ns{number}.example.net."))));
            message.add_authority(Record::from_rdata(name("example.net."), 60, data));
        }
        for last in 0..additionals {
            message.add_additional(Record::from_rdata(end.clone(), 60, address(last)));
        }
        message.to_vec().unwrap()
    }

    #[test]
    fn every_room_has_the_records_that_fit_in_the_order_of_the_message() {
        for (addresses, servers, additionals) in [(40, 0, 0), (20, 20, 5), (3, 2, 60), (0, 0, 70)] {
            let encoded = response(addresses, servers, additionals);
            let whole = Message::from_vec(&encoded).unwrap();
            let mut before = 0;
            for room in 100..=encoded.len() {
                let mut out = encoded.clone();
                cut(&mut out, room);
                assert!(out.len() <= room);
                let message = Message::from_vec(&out).unwrap();
                let counts = [&message.answers, &message.authorities, &message.additionals];
                let [answers, authorities, extra] = counts.map(|records| records.len());
                assert_eq!(message.answers, whole.answers[..answers]);
                assert_eq!(message.authorities, whole.authorities[..authorities]);
                let is_complete =
                    answers == whole.answers.len() && authorities == whole.authorities.len();
                assert_eq!(message.metadata.truncation, !is_complete, "{room}");
                assert!(answers == whole.answers.len() || authorities == 0);
                // Additional records stay only if all of them fit.
                assert_eq!(extra > 0, room == encoded.len() && additionals > 0);
                assert!(answers + authorities >= before, "{room}");
                before = answers + authorities;
            }
            assert!(before > 0);
        }
    }

    #[test]
    fn a_message_that_fits_stays_as_it_is() {
        let encoded = response(3, 2, 1);
        let mut out = encoded.clone();
        cut(&mut out, encoded.len());
        assert_eq!(out, encoded);
    }
}
