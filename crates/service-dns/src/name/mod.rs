//! Domain names.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// Maximum length of a label in bytes (RFC 1035, section 2.3.4).
pub(crate) const MAX_LABEL: usize = 63;

/// Maximum length of a name in bytes, with the length bytes of its labels and of the
/// root (RFC 1035, section 2.3.4).
pub(crate) const MAX_NAME: usize = 255;

/// An absolute domain name.
///
/// Comparison and hash ignore the case of ASCII letters. The name keeps the case that it
/// was made with. A clone shares the memory.
///
/// ```
/// use vipline_service_dns::Name;
///
/// let name: Name = "Web.default.svc.cluster.local".parse()?;
/// assert_eq!(name, "web.DEFAULT.svc.cluster.local.".parse()?);
/// assert_eq!(name.to_string(), "Web.default.svc.cluster.local.");
/// # Ok::<(), vipline_service_dns::ParseError>(())
/// ```
#[derive(Clone)]
pub struct Name {
    /// Labels, each after a length byte, and the empty label of the root.
    ///
    /// Invariant: well-formed, without compression pointers, at most 255 bytes.
    wire: Arc<[u8]>,
}

/// A text or byte sequence that is not a domain name, or not a type of a record.
///
/// Exhaustive: the limits of RFC 1035, and the only other text that is parsed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// A label is empty.
    #[error("a label is empty")]
    EmptyLabel,
    /// A label has more than 63 bytes.
    #[error("a label has more than 63 bytes")]
    LongLabel,
    /// The name has more than 255 bytes.
    #[error("the name has more than 255 bytes")]
    LongName,
    /// A backslash does not precede a character, or three digits of a byte.
    #[error("a backslash does not begin an escape sequence")]
    BadEscape,
    /// The bytes end within the name.
    #[error("the bytes end within the name")]
    Truncated,
    /// A length byte has one of its two upper bits. It is a compression pointer or has a
    /// reserved type.
    #[error("a label is compressed or has an unknown type")]
    BadLabelType,
    /// The text is no type of a record.
    #[error("{text:?} is no type of a record")]
    RecordType {
        /// The text.
        text: Box<str>,
    },
}

impl Name {
    /// Returns the name of the root.
    pub fn root() -> Self {
        Self {
            wire: Arc::from([0]),
        }
    }

    /// Returns the name with these labels, from left to right. Labels may have any bytes.
    ///
    /// # Errors
    ///
    /// [`ParseError::EmptyLabel`], [`ParseError::LongLabel`] and [`ParseError::LongName`].
    pub fn from_labels<L>(labels: impl IntoIterator<Item = L>) -> Result<Self, ParseError>
    where
        L: AsRef<[u8]>,
    {
        let mut wire = WireName::default();
        for label in labels {
            wire.push_label(label.as_ref())?;
        }
        wire.finish()
    }

    /// Decodes an uncompressed name at the start of `bytes`, such as the name of a
    /// question. Returns the name and its length in bytes.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`], [`ParseError::BadLabelType`] and [`ParseError::LongName`].
    pub fn from_wire(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let mut length = 0;
        loop {
            let &label = bytes.get(length).ok_or(ParseError::Truncated)?;
            if usize::from(label) > MAX_LABEL {
                return Err(ParseError::BadLabelType);
            }
            length += 1 + usize::from(label);
            if length > MAX_NAME {
                return Err(ParseError::LongName);
            }
            if label == 0 {
                break;
            }
        }
        let wire = bytes.get(..length).ok_or(ParseError::Truncated)?;
        Ok((Self { wire: wire.into() }, length))
    }

    /// Returns the name in wire format, without compression.
    pub fn as_wire(&self) -> &[u8] {
        &self.wire
    }

    /// Returns the labels from left to right, without the empty label of the root.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        labels_of(&self.wire)
    }

    /// Returns whether the name equals `ancestor` or is below it.
    pub fn is_within(&self, ancestor: &Self) -> bool {
        self.is_within_wire(&ancestor.wire)
    }

    /// Returns whether the name is in `in-addr.arpa` or `ip6.arpa`, the domains of the
    /// names of addresses. Objects decide which of these names are in a zone.
    pub fn is_reverse(&self) -> bool {
        let domains: [&[u8]; 2] = [b"\x07in-addr\x04arpa\0", b"\x03ip6\x04arpa\0"];
        domains.iter().any(|domain| self.is_within_wire(domain))
    }

    /// Returns whether the name equals a name in wire format or is below it.
    fn is_within_wire(&self, ancestor: &[u8]) -> bool {
        let mut rest = &*self.wire;
        while let Some((&length, after)) = rest.split_first() {
            if rest.len() <= ancestor.len() {
                return rest.eq_ignore_ascii_case(ancestor);
            }
            rest = after.get(usize::from(length)..).unwrap_or_default();
        }
        false
    }

    /// Returns the name without its first `count` labels.
    pub(crate) fn skip_labels(&self, count: usize) -> Self {
        let mut rest = &*self.wire;
        for _ in 0..count {
            let length = rest.first().copied().unwrap_or_default();
            let after = rest.get(1 + usize::from(length)..);
            rest = after.filter(|after| !after.is_empty()).unwrap_or(&[0]);
        }
        if rest.len() == self.wire.len() {
            return self.clone();
        }
        Self { wire: rest.into() }
    }

    /// Returns the name below this one with these labels. `None` if it is too long.
    pub(crate) fn below<L>(&self, labels: impl IntoIterator<Item = L>) -> Option<Self>
    where
        L: AsRef<[u8]>,
    {
        let mut wire = WireName::default();
        for label in labels {
            wire.push_label(label.as_ref()).ok()?;
        }
        wire.push_bytes(self.wire.strip_suffix(&[0])?).ok()?;
        wire.finish().ok()
    }
}

fn labels_of(mut wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&length, rest) = wire.split_first()?;
        let (label, rest) = rest.split_at_checked(usize::from(length))?;
        wire = rest;
        (length != 0).then_some(label)
    })
}

/// A name that is assembled on the stack.
struct WireName {
    bytes: [u8; MAX_NAME],
    length: usize,
}

impl Default for WireName {
    fn default() -> Self {
        Self {
            bytes: [0; MAX_NAME],
            length: 0,
        }
    }
}

impl WireName {
    fn push_label(&mut self, label: &[u8]) -> Result<(), ParseError> {
        let length = u8::try_from(label.len()).map_err(|_| ParseError::LongLabel)?;
        match usize::from(length) {
            0 => Err(ParseError::EmptyLabel),
            length if length > MAX_LABEL => Err(ParseError::LongLabel),
            _ => {
                self.push_bytes(&[length])?;
                self.push_bytes(label)
            }
        }
    }

    /// Appends bytes, and leaves room for the label of the root.
    fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        let end = self.length + bytes.len();
        if end >= MAX_NAME {
            return Err(ParseError::LongName);
        }
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }

    fn finish(self) -> Result<Name, ParseError> {
        let wire = self.bytes.get(..=self.length);
        let wire = wire.ok_or(ParseError::LongName)?;
        Ok(Name { wire: wire.into() })
    }
}

/// Parses the text of a name, with or without the dot of the root. A backslash escapes a
/// character, or begins the three decimal digits of a byte.
impl FromStr for Name {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == "." {
            return Ok(Self::root());
        }
        let mut wire = WireName::default();
        let mut label = Vec::with_capacity(MAX_LABEL);
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'.' => {
                    wire.push_label(&label)?;
                    label.clear();
                    continue;
                }
                b'\\' => label.push(escaped(&mut bytes)?),
                byte => label.push(byte),
            }
            if label.len() > MAX_LABEL {
                return Err(ParseError::LongLabel);
            }
        }
        if !label.is_empty() || text.is_empty() {
            wire.push_label(&label)?;
        }
        wire.finish()
    }
}

/// Returns the byte of the escape sequence after a backslash.
fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Result<u8, ParseError> {
    let first = bytes.next().ok_or(ParseError::BadEscape)?;
    if !first.is_ascii_digit() {
        return Ok(first);
    }
    let mut value = u16::from(first - b'0');
    for _ in 0..2 {
        let digit = bytes.next().filter(u8::is_ascii_digit);
        value = value * 10 + u16::from(digit.ok_or(ParseError::BadEscape)? - b'0');
    }
    u8::try_from(value).map_err(|_| ParseError::BadEscape)
}

/// Displays the text of the name, with the dot of the root. Dots within labels and
/// bytes that are not printable are escaped.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.wire.len() == 1 {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &byte in label {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                    b'!'..=b'~' => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        // Length bytes are below 64, so they are not letters.
        self.wire.eq_ignore_ascii_case(&other.wire)
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut folded = [0; MAX_NAME];
        let folded = &mut folded[..self.wire.len()];
        folded.copy_from_slice(&self.wire);
        folded.make_ascii_lowercase();
        state.write(folded);
    }
}

#[cfg(test)]
mod tests;
