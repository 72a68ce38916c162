//! `-m string`: text in the payload.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::field::{Value, extension, names};
use crate::options::negatable::Negatable;
use crate::options::{Unsupported, Values};

extension! {
    /// Matches bytes in the packet: `-m string --string "GET" --algo bm`.
    pub struct StringMatch = "-m string" {
        /// Bytes to find; iptables requires them.
        pattern: Option<Negatable<Pattern>> = "--string" | "--hex-string",
        /// Search algorithm; iptables requires one.
        algorithm: Option<Algorithm> = "--algo",
        /// Offset of the first byte to search. Default: 0.
        from: Option<u16> = "--from",
        /// Offset of the last byte to search. Default: 65,535.
        to: Option<u16> = "--to",
        /// Whether letters match in both cases.
        ignore_case: bool = "--icase",
    }
    complete |it| it.pattern.is_some() && it.algorithm.is_some();
    normalize |it| {
        it.from = it.from.filter(|from| *from != 0);
        it.to = it.to.filter(|to| *to != u16::MAX);
    };
}

names! {
    /// Search algorithms.
    pub enum Algorithm by str::eq {
        /// Boyer-Moore.
        BoyerMoore = "bm",
        /// Knuth-Pratt-Morris.
        KnuthMorrisPratt = "kmp",
    }
}

/// Bytes to find, printed as `"text"` or `"|0a0d|"`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Pattern(Vec<u8>);

impl Pattern {
    /// Maximum length: `XT_STRING_MAX_PATTERN_SIZE`.
    const MAX: usize = 128;

    /// Creates a pattern of 1 to 128 bytes, otherwise returns `None`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (1..=Self::MAX)
            .contains(&bytes.len())
            .then_some(Self(bytes))
    }

    /// Returns the bytes.
    pub fn get(&self) -> &[u8] {
        &self.0
    }

    /// Parses text with hexadecimal blocks: `a|0d 0a|b`.
    fn parse_hex(text: &str) -> Option<Self> {
        let mut bytes = Vec::new();
        // Escapes of single characters are rare.
        if text.contains('\\') {
            return None;
        }
        let parts: Vec<_> = text.split('|').collect();
        for (at, part) in parts.iter().enumerate() {
            if at % 2 == 0 {
                bytes.extend_from_slice(part.as_bytes());
                continue;
            }
            let is_hex = |word: &str| word.bytes().all(|b| b.is_ascii_hexdigit());
            for word in part.split(' ').filter(|word| !word.is_empty()) {
                for pair in word.as_bytes().chunks(2) {
                    let pair = str::from_utf8(pair)
                        .ok()
                        .filter(|pair| pair.len() == 2 && is_hex(pair))?;
                    bytes.push(u8::from_str_radix(pair, 16).ok()?);
                }
            }
        }
        // An odd number of parts has all blocks closed.
        Self::new(bytes).filter(|_| parts.len() % 2 == 1)
    }

    /// Returns whether iptables prints the pattern as hexadecimal digits.
    fn is_hex(&self) -> bool {
        self.0.iter().any(|b| !matches!(b, b' '..=b'~')) || self.0.ends_with(b"\\")
    }
}

impl Value<'_> for Pattern {
    fn take(option: &str, values: &mut Values<'_, '_>) -> Result<Self, Unsupported> {
        match option {
            "--hex-string" => values.parse(Self::parse_hex),
            _ => values.parse(|text| Self::new(text)),
        }
    }

    fn write(&self, _: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_hex() {
            f.write_str(" --hex-string \"|")?;
            self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            return f.write_str("|\"");
        }
        f.write_str(" --string \"")?;
        for byte in &self.0 {
            if matches!(byte, b'"' | b'\\') {
                f.write_str("\\")?;
            }
            write!(f, "{}", char::from(*byte))?;
        }
        f.write_str("\"")
    }
}

/// Length of the name of an algorithm with its NUL byte.
const XT_STRING_MAX_ALGO_NAME_SIZE: usize = 16;
const XT_STRING_MAX_PATTERN_SIZE: usize = 128;

// Flags of `struct xt_string_info`.
const XT_STRING_FLAG_INVERT: u8 = 1;
const XT_STRING_FLAG_IGNORECASE: u8 = 2;

/// `struct xt_string_info`.
impl Structure for StringMatch {
    const NAME: &'static str = "string";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let pattern = self.pattern.as_ref()?;
        let bytes = pattern.value().get();
        out.u16(self.from.unwrap_or(0));
        out.u16(self.to.unwrap_or(u16::MAX));
        out.text(self.algorithm?.name(), XT_STRING_MAX_ALGO_NAME_SIZE)?;
        out.padded(bytes, XT_STRING_MAX_PATTERN_SIZE)?;
        out.u8(bytes.len().try_into().ok()?).u8(flags([
            (pattern.is_negated(), XT_STRING_FLAG_INVERT),
            (self.ignore_case, XT_STRING_FLAG_IGNORECASE),
        ]));
        out.pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (from, to) = (reader.u16()?, reader.u16()?);
        let algorithm = reader.text(XT_STRING_MAX_ALGO_NAME_SIZE)?;
        let algorithms = [Algorithm::BoyerMoore, Algorithm::KnuthMorrisPratt];
        let algorithm = algorithms.into_iter().find(|it| it.name() == algorithm)?;
        let bytes = reader.bytes(XT_STRING_MAX_PATTERN_SIZE)?;
        let [len, flags] = reader.array()?;
        let pattern = Pattern::new(bytes.get(..usize::from(len))?)?;
        let is_negated = flags & XT_STRING_FLAG_INVERT != 0;
        Some(Self {
            pattern: Some(Negatable::new(is_negated, pattern)),
            algorithm: Some(algorithm),
            from: Some(from).filter(|from| *from != 0),
            to: Some(to).filter(|to| *to != u16::MAX),
            ignore_case: flags & XT_STRING_FLAG_IGNORECASE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Rule;

    #[test]
    fn patterns_are_text_or_hexadecimal() {
        let table = [
            ("--string \"a\\\"b\"", "--string \"a\\\"b\""),
            ("--hex-string \"|41 42|C\"", "--string \"ABC\""),
            ("--hex-string \"a|0d 0A|b\"", "--hex-string \"|610d0a62|\""),
            ("--string \"ü\"", "--hex-string \"|c3bc|\""),
            ("--hex-string \"|4|\"", "--hex-string \"|4|\""),
            ("--hex-string \"|41\"", "--hex-string \"|41\""),
        ];
        for (pattern, printed) in table {
            let text = format!("-m string {pattern} --algo bm");
            let rule = Rule::parse(&text).unwrap();
            assert_eq!(rule.to_string(), format!("-m string {printed} --algo bm"));
        }
    }
}
