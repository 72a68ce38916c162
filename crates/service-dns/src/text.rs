//! Text of records, as in zone files (RFC 1035, section 5).

use std::fmt::{self, Display, Formatter, Write};
use std::str::FromStr;

use crate::{ParseError, Record, RecordData, RecordType, ResponseCode, Soa};

/// Types with names.
const TYPES: [(RecordType, &str); 9] = [
    (RecordType::A, "A"),
    (RecordType::Ns, "NS"),
    (RecordType::Cname, "CNAME"),
    (RecordType::Soa, "SOA"),
    (RecordType::Ptr, "PTR"),
    (RecordType::Txt, "TXT"),
    (RecordType::Aaaa, "AAAA"),
    (RecordType::Srv, "SRV"),
    (RecordType::Any, "ANY"),
];

/// The name of the type, or `TYPE65` for a type that no record of a zone has (RFC 3597).
impl Display for RecordType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match TYPES.iter().find(|(record_type, _)| record_type == self) {
            Some((_, name)) => f.pad(name),
            None => f.pad(&format!("TYPE{}", self.number())),
        }
    }
}

/// Parses a name in any case, or `TYPE` and a number.
impl FromStr for RecordType {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let upper = text.to_ascii_uppercase();
        let named = TYPES.iter().find(|(_, name)| *name == upper);
        let number = || upper.strip_prefix("TYPE")?.parse::<u16>().ok();
        match (named, number()) {
            (Some((record_type, _)), _) => Ok(*record_type),
            (None, Some(number)) => Ok(number.into()),
            (None, None) => Err(ParseError::RecordType { text: text.into() }),
        }
    }
}

/// `NAME TTL IN TYPE DATA`.
impl Display for Record {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (ttl, record_type) = (self.ttl, self.data.record_type());
        write!(f, "{} {ttl} IN {record_type} {}", self.name, self.data)
    }
}

/// The data without the type.
impl Display for RecordData {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::A(addr) => addr.fmt(f),
            Self::Aaaa(addr) => addr.fmt(f),
            Self::Srv {
                priority,
                weight,
                port,
                target,
            } => write!(f, "{priority} {weight} {port} {target}"),
            Self::Cname(name) | Self::Ptr(name) | Self::Ns(name) => name.fmt(f),
            Self::Txt(texts) => {
                for (index, text) in texts.iter().enumerate() {
                    let separator = if index > 0 { " " } else { "" };
                    f.write_str(separator)?;
                    quoted(text, f)?;
                }
                Ok(())
            }
            Self::Soa(soa) => soa.fmt(f),
        }
    }
}

/// The seven fields.
impl Display for Soa {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            name_server,
            mailbox,
            serial,
            refresh,
            retry,
            expire,
            minimum,
        } = self;
        write!(
            f,
            "{name_server} {mailbox} {serial} {refresh} {retry} {expire} {minimum}"
        )
    }
}

/// `NOERROR` or `NXDOMAIN`.
impl Display for ResponseCode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NoError => "NOERROR",
            Self::NameError => "NXDOMAIN",
        })
    }
}

/// Writes a text in quotes. Bytes that are no visible ASCII are `\DDD`.
fn quoted(text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
            b' '..=b'~' => f.write_char(char::from(byte))?,
            _ => write!(f, "\\{byte:03}")?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_names_or_numbers() {
        for (text, record_type) in [
            ("A", RecordType::A),
            ("AAAA", RecordType::Aaaa),
            ("ANY", RecordType::Any),
            ("TYPE65", RecordType::Other(65)),
        ] {
            assert_eq!(record_type.to_string(), text);
            assert_eq!(text.parse(), Ok(record_type));
            assert_eq!(text.to_ascii_lowercase().parse(), Ok(record_type));
        }
        assert_eq!("TYPE28".parse(), Ok(RecordType::Aaaa));
        for text in ["", "B", "TYPE", "TYPE65536", "TYPE-1"] {
            let error = text.parse::<RecordType>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{text:?} is no type of a record")
            );
        }
    }

    #[test]
    fn records_are_lines_of_a_zone_file() {
        let name = |text: &str| text.parse().unwrap();
        let soa = Soa {
            name_server: name("ns.example"),
            mailbox: name("admin.example"),
            serial: 7,
            refresh: 6,
            retry: 5,
            expire: 4,
            minimum: 3,
        };
        let srv = RecordData::Srv {
            priority: 0,
            weight: 50,
            port: 80,
            target: name("web.example"),
        };
        for (data, text) in [
            (RecordData::A([10, 0, 0, 1].into()), "A 10.0.0.1"),
            (RecordData::Aaaa("fd00::1".parse().unwrap()), "AAAA fd00::1"),
            (RecordData::Cname(name("b.example")), "CNAME b.example."),
            (srv, "SRV 0 50 80 web.example."),
            (
                RecordData::Txt(vec!["1.1.0".into(), "a\\\"\u{7f}".into()]),
                r#"TXT "1.1.0" "a\\\"\127""#,
            ),
            (
                RecordData::Soa(soa),
                "SOA ns.example. admin.example. 7 6 5 4 3",
            ),
        ] {
            let record = Record {
                name: name("Web.example"),
                ttl: 5,
                data,
            };
            assert_eq!(record.to_string(), format!("Web.example. 5 IN {text}"));
        }
    }
}
