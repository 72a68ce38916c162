//! Questions, records and answers.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::Name;

/// Type of a record, or of a question.
///
/// Exhaustive: `Other` holds the types that no record of a [`Zone`](crate::Zone) has.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RecordType {
    /// IPv4 address.
    A,
    /// Name server of a zone.
    Ns,
    /// Canonical name of an alias.
    Cname,
    /// Start of authority of a zone.
    Soa,
    /// Name of an address.
    Ptr,
    /// Text.
    Txt,
    /// IPv6 address.
    Aaaa,
    /// Host and port of a service.
    Srv,
    /// Any type. Questions only.
    Any,
    /// Another type.
    Other(u16),
}

impl RecordType {
    /// Returns the number of the type.
    pub const fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Ns => 2,
            Self::Cname => 5,
            Self::Soa => 6,
            Self::Ptr => 12,
            Self::Txt => 16,
            Self::Aaaa => 28,
            Self::Srv => 33,
            Self::Any => 255,
            Self::Other(number) => number,
        }
    }
}

impl From<u16> for RecordType {
    fn from(number: u16) -> Self {
        match number {
            1 => Self::A,
            2 => Self::Ns,
            5 => Self::Cname,
            6 => Self::Soa,
            12 => Self::Ptr,
            16 => Self::Txt,
            28 => Self::Aaaa,
            33 => Self::Srv,
            255 => Self::Any,
            number => Self::Other(number),
        }
    }
}

/// A question of class IN.
///
/// Exhaustive: the fields of a question.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Question {
    /// Name.
    pub name: Name,
    /// Type of the records.
    pub record_type: RecordType,
}

impl Question {
    /// Returns a question.
    pub fn new(name: Name, record_type: RecordType) -> Self {
        Self { name, record_type }
    }
}

/// A record of class IN.
///
/// Exhaustive: the fields of a record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Owner of the record. In an answer, the name in the case of the question.
    pub name: Name,
    /// Time to live in seconds.
    pub ttl: u32,
    /// Type and data.
    pub data: RecordData,
}

/// Type and data of a record.
///
/// Exhaustive: a server encodes every type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RecordData {
    /// IPv4 address.
    A(Ipv4Addr),
    /// IPv6 address.
    Aaaa(Ipv6Addr),
    /// Host and port of a service.
    Srv {
        /// Priority. The lowest one is used first.
        priority: u16,
        /// Weight among the records with the same priority.
        weight: u16,
        /// Port number.
        port: u16,
        /// Name of the host.
        target: Name,
    },
    /// Canonical name of the alias.
    Cname(Name),
    /// Name of the address.
    Ptr(Name),
    /// Texts, each of at most 255 bytes.
    Txt(Vec<String>),
    /// Start of authority.
    Soa(Soa),
    /// Name of a name server.
    Ns(Name),
}

impl RecordData {
    /// Returns the type.
    pub const fn record_type(&self) -> RecordType {
        match self {
            Self::A(_) => RecordType::A,
            Self::Aaaa(_) => RecordType::Aaaa,
            Self::Srv { .. } => RecordType::Srv,
            Self::Cname(_) => RecordType::Cname,
            Self::Ptr(_) => RecordType::Ptr,
            Self::Txt(_) => RecordType::Txt,
            Self::Soa(_) => RecordType::Soa,
            Self::Ns(_) => RecordType::Ns,
        }
    }
}

/// Data of a start of authority.
///
/// Exhaustive: the fields of RFC 1035, section 3.3.13.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Soa {
    /// Name of the primary name server (`MNAME`).
    pub name_server: Name,
    /// Mailbox of the responsible person (`RNAME`).
    pub mailbox: Name,
    /// Version of the zone.
    pub serial: u32,
    /// Refresh interval of secondary servers in seconds.
    pub refresh: u32,
    /// Retry interval of secondary servers in seconds.
    pub retry: u32,
    /// Time in seconds until data of a secondary server expires.
    pub expire: u32,
    /// Time to live of negative answers in seconds.
    pub minimum: u32,
}

/// Response code of an answer.
///
/// Exhaustive: all other codes are decisions of the server.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ResponseCode {
    /// `NOERROR`: the name exists. Without records of the type there are no answers.
    NoError,
    /// `NXDOMAIN`: neither the name nor a name below it exists.
    NameError,
}

/// An authoritative answer.
///
/// Exhaustive: the sections of a response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// Response code.
    pub code: ResponseCode,
    /// Answer section. An alias precedes the records of its canonical name.
    pub answers: Vec<Record>,
    /// Authority section: the start of authority if there are no records of the type.
    pub authorities: Vec<Record>,
    /// Additional section: addresses of the names in the answer section.
    pub additionals: Vec<Record>,
    /// Canonical name outside of the zone. The server resolves it with the type of the
    /// question, appends the answers, and uses the response code.
    pub unresolved: Option<Name>,
}

impl Answer {
    /// Returns whether the last name of the answer has no record of the type: NXDOMAIN or
    /// NODATA, also after aliases.
    pub fn is_negative(&self) -> bool {
        !self.authorities.is_empty()
    }
}
