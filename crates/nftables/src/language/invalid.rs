//! Statements with a value that their expression cannot have.

use std::fmt::{self, Display, Write};

use thiserror::Error;

use crate::{Name, Value};

/// A value that its place cannot have: in a statement, such as `ip saddr` with an address of
/// IPv6, or in an element of a set.
///
/// Most such statements do not compile: a port is not compared with a number of 32 bits. What is
/// known only when the program runs is checked when the statement is built, and
/// [`Rule::new`](crate::Rule::new) returns the first invalid statement, so that no other rule
/// than the written one is ever sent to the kernel.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum InvalidValue {
    /// The expression of a statement cannot have the value.
    #[error("{expression} {value}: {reason}")]
    Statement {
        /// The expression in nft syntax, such as `tcp dport`.
        expression: Box<str>,
        /// The value in nft syntax, such as `10.0.0.0/8`.
        value: Box<str>,
        /// Why the expression cannot have the value.
        reason: Box<str>,
    },
    /// The values of an element do not fit the fields of its set.
    #[error("the {part} does not fit the fields of set {set}")]
    Element {
        /// `key` or `data`.
        part: &'static str,
        /// Name of the set.
        set: Name,
    },
}

/// Why an expression cannot have a value.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(crate) enum Reason {
    #[error("a value of another type")]
    Type,
    #[error("a value of another size than {} {}", .0, if *.0 == 1 { "byte" } else { "bytes" })]
    Size(u16),
    #[error("the number of fields is not {0}")]
    Fields(usize),
    #[error("the first value of the range exceeds the last one")]
    EmptyRange,
    #[error("an interface name has 1 to 15 bytes, and neither spaces nor / or :")]
    Ifname,
    #[error("an interval where only a single value is possible")]
    Interval,
    #[error("such values have no order")]
    Order,
    #[error("the expression cannot be assigned")]
    NotAssignable,
    #[error("only a constant can be assigned to a single byte of a header with a checksum")]
    NotConstant,
    #[error("the checksum of this header depends on the protocol: assign the port of TCP or UDP")]
    UnknownChecksum,
}

impl InvalidValue {
    pub(crate) fn new(expression: &impl Display, values: &[Value], reason: Reason) -> Self {
        let mut value = String::new();
        for (at, one) in values.iter().enumerate() {
            let separator = if at > 0 { " . " } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(value, "{separator}{}", Shown(one));
        }
        Self::Statement {
            expression: expression.to_string().into(),
            value: value.into(),
            reason: reason.to_string().into(),
        }
    }

    pub(crate) fn of_assignment(to: &impl Display, value: &impl Display, reason: Reason) -> Self {
        Self::Statement {
            expression: to.to_string().into(),
            value: format!("set {value}").into(),
            reason: reason.to_string().into(),
        }
    }
}

/// A value without the type that nft would show it with.
struct Shown<'a>(&'a Value);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Addr(addr) => write!(f, "{addr}"),
            Value::Prefix(net) => write!(f, "{net}"),
            Value::Integer(number) => write!(f, "{number}"),
            Value::Range(ends) => write!(f, "{}-{}", Self(&ends.0), Self(&ends.1)),
            Value::Text(text) => write!(f, "{:?}", String::from_utf8_lossy(text)),
            Value::Bytes(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}
