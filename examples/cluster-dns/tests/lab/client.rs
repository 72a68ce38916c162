//! A DNS client over UDP.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

/// Timeout of one question. A lost question is an error.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Code and data of an answer. The data are sorted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Answer {
    pub(crate) code: ResponseCode,
    pub(crate) data: Vec<String>,
    /// Smallest TTL of the answers, in seconds.
    pub(crate) ttl: Option<u32>,
}

/// A client with a socket in the namespace in which it was created.
pub(crate) struct Client {
    socket: UdpSocket,
    next: u16,
}

impl Client {
    /// Creates a client of a server, in the network namespace of the calling thread.
    pub(crate) fn new(server: SocketAddr) -> io::Result<Self> {
        let any = if server.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { socket, next: 0 })
    }

    /// Asks a question. Ignores answers to earlier questions.
    ///
    /// # Errors
    ///
    /// No answer within 5 s, or a malformed one.
    pub(crate) fn ask(&mut self, name: &str, record_type: RecordType) -> io::Result<Answer> {
        self.next = self.next.wrapping_add(1);
        let name = Name::from_ascii(name).map_err(io::Error::other)?;
        let query = Query::query(name, record_type);
        let mut question = Message::query();
        question.metadata.id = self.next;
        question.metadata.recursion_desired = true;
        question.add_query(query.clone());
        let bytes = question.to_vec().map_err(io::Error::other)?;
        self.socket.send(&bytes)?;
        let mut buffer = [0; 4096];
        loop {
            let length = self.socket.recv(&mut buffer)?;
            let answer = Message::from_vec(&buffer[..length]).map_err(io::Error::other)?;
            if answer.metadata.id != self.next {
                continue;
            }
            if answer.queries != [query] {
                return Err(io::Error::other("an answer to another question"));
            }
            let records = answer.answers.iter();
            let mut data: Vec<String> = records.map(|record| record.data.to_string()).collect();
            data.sort_unstable();
            return Ok(Answer {
                code: answer.metadata.response_code,
                data,
                ttl: answer.answers.iter().map(|record| record.ttl).min(),
            });
        }
    }
}
