//! The query log: one line per query, in the format of CoreDNS' plugin log.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use std::{io, thread};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use tracing::info;
use vipline_service_dns::Name;
use vipline_service_model::Counted;

use super::Transport;

/// Number of lines that wait for the log. Further lines are lost.
const QUEUED_LINES: usize = 4096;

/// Bytes of a message header.
const HEADER: usize = 12;

/// The query log, which is switched on and off at run time.
///
/// A thread writes the lines, so that a blocked log does not block responses.
#[derive(Debug)]
pub struct QueryLog {
    is_enabled: AtomicBool,
    lines: SyncSender<String>,
    lost: AtomicU64,
}

/// A request and its response, for one line.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Address of the client.
    pub client: SocketAddr,
    /// Transport protocol.
    pub transport: Transport,
    /// The request.
    pub request: &'a [u8],
    /// The response.
    pub response: &'a [u8],
    /// Time from the receipt of the request to the response.
    pub duration: Duration,
}

impl QueryLog {
    /// Starts the thread that writes lines.
    ///
    /// # Errors
    ///
    /// The thread cannot be created.
    pub fn start(is_enabled: bool) -> io::Result<Self> {
        let (lines, queue) = sync_channel(QUEUED_LINES);
        let builder = thread::Builder::new().name("query-log".to_owned());
        builder.spawn(move || write(&queue))?;
        Ok(Self {
            is_enabled: AtomicBool::new(is_enabled),
            lines,
            lost: AtomicU64::new(0),
        })
    }

    /// Returns whether queries are logged.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Switches the log on or off. Returns whether it is on.
    pub fn toggle(&self) -> bool {
        !self.is_enabled.fetch_xor(true, Ordering::Relaxed)
    }

    /// Logs a query.
    pub fn log(&self, entry: &Entry<'_>) {
        let mut line = entry.line();
        match self.lost.load(Ordering::Relaxed) {
            0 => {}
            lost => {
                let _ = write!(line, " ({} lost before)", Counted(lost, "line"));
            }
        }
        match self.lines.try_send(line) {
            Ok(()) => self.lost.store(0, Ordering::Relaxed),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn write(queue: &Receiver<String>) {
    while let Ok(line) = queue.recv() {
        info!("{line}");
    }
}

impl Entry<'_> {
    /// Returns the line in CoreDNS' common log format.
    fn line(&self) -> String {
        let (name, record_type, class) = question(self.request);
        let request = Message::from_vec(self.request).ok();
        let edns = request.as_ref().and_then(|request| request.edns.as_ref());
        let dnssec_ok = edns.is_some_and(|edns| edns.flags().dnssec_ok);
        let payload = edns.map_or(512, |edns| edns.max_payload());
        let flags = |at: usize| self.response.get(at).copied().unwrap_or_default();
        let id = u16::from_be_bytes([flags(0), flags(1)]);
        let set: Vec<&str> = [
            (2, 0x80, "qr"),
            (2, 0x04, "aa"),
            (2, 0x02, "tc"),
            (2, 0x01, "rd"),
            (3, 0x80, "ra"),
            (3, 0x20, "ad"),
            (3, 0x10, "cd"),
        ]
        .iter()
        .filter(|(at, bit, _)| flags(*at) & bit != 0)
        .map(|(_, _, name)| *name)
        .collect();
        format!(
            "{} - {id} \"{record_type} {class} {name} {} {} {dnssec_ok} {payload}\" {} {} {} {:.9}s",
            self.client,
            self.transport.name(),
            self.request.len(),
            code_name(self.response),
            set.join(","),
            self.response.len(),
            self.duration.as_secs_f64(),
        )
    }
}

/// Returns name, type and class of the first question of a message, escaped.
fn question(message: &[u8]) -> (String, String, String) {
    let none = || (".".to_owned(), "NONE".to_owned(), "NONE".to_owned());
    let Some((name, rest)) = message.get(HEADER..).and_then(split_name) else {
        return none();
    };
    let number = |bytes: Option<&[u8; 2]>| bytes.copied().map_or(0, u16::from_be_bytes);
    let record_type = number(rest.first_chunk());
    let class = number(rest.get(2..).and_then(<[u8]>::first_chunk));
    (name.to_string(), type_name(record_type), class_name(class))
}

/// Returns the name at the start of a question, and the bytes after the name.
fn split_name(question: &[u8]) -> Option<(Name, &[u8])> {
    let (name, length) = Name::from_wire(question).ok()?;
    Some((name, question.get(length..)?))
}

/// Returns the name of a type, or `TYPE65280` of a type without a name (RFC 3597).
fn type_name(number: u16) -> String {
    match RecordType::from(number) {
        RecordType::Unknown(number) => format!("TYPE{number}"),
        known => known.to_string(),
    }
}

/// Returns the name of a class, or `CLASS32` of a class without a name (RFC 3597).
fn class_name(number: u16) -> String {
    match DNSClass::from(number) {
        DNSClass::Unknown(number) | DNSClass::OPT(number) => format!("CLASS{number}"),
        known => known.to_string(),
    }
}

/// Returns the name of the response code, with the part in the OPT record.
fn code_name(response: &[u8]) -> String {
    let code = match Message::from_vec(response) {
        Ok(message) => message.metadata.response_code,
        Err(_) => ResponseCode::ServFail,
    };
    let known = super::counters::CODES.iter();
    let number = u16::from(code);
    let known = known.clone().find(|(each, _)| *each == number);
    known.map_or_else(|| format!("RCODE{number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{Edns, MessageType, OpCode, Query};
    use hickory_proto::rr::Name as DnsName;

    use super::*;

    #[test]
    fn a_line_has_the_format_of_coredns() {
        let mut message = Message::new(29_008, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        let name = DnsName::from_ascii("example.org.").unwrap();
        message.add_query(Query::query(name, RecordType::A));
        let mut edns = Edns::new();
        edns.set_max_payload(4096);
        message.edns = Some(edns);
        let request = message.to_vec().unwrap();
        message.metadata.message_type = MessageType::Response;
        message.metadata.recursion_available = true;
        message.metadata.response_code = ResponseCode::NXDomain;
        let response = message.to_vec().unwrap();
        let entry = Entry {
            client: "[::1]:50759".parse().unwrap(),
            transport: Transport::Udp,
            request: &request,
            response: &response,
            duration: Duration::from_micros(37_990),
        };
        assert_eq!(
            entry.line(),
            "[::1]:50759 - 29008 \"A IN example.org. udp 40 false 4096\" NXDOMAIN qr,rd,ra 40 \
             0.037990000s"
        );
        let entry = Entry {
            request: b"garbage",
            response: b"",
            ..entry
        };
        assert_eq!(
            entry.line(),
            "[::1]:50759 - 0 \"NONE NONE . udp 7 false 512\" SERVFAIL  0 0.037990000s"
        );
    }

    #[test]
    fn names_types_and_classes_have_the_text_of_zone_files() {
        let mut message = vec![0; HEADER];
        message.extend_from_slice(b"\x04a\n.b\x03Org\0");
        for (numbers, record_type, class) in [
            ([0, 29, 0, 1], "TYPE29", "IN"),
            ([0xFF, 0, 0, 32], "TYPE65280", "CLASS32"),
            ([0, 15, 0, 3], "MX", "CH"),
        ] {
            let message = [&*message, &numbers].concat();
            let texts = ("a\\010\\.b.Org.", record_type, class);
            let texts = (texts.0.to_owned(), texts.1.to_owned(), texts.2.to_owned());
            assert_eq!(question(&message), texts);
        }
    }

    #[test]
    fn the_log_is_switched() {
        let log = QueryLog::start(false).unwrap();
        assert!(!log.is_enabled());
        assert!(log.toggle() && log.is_enabled());
        assert!(!log.toggle() && !log.is_enabled());
    }
}
