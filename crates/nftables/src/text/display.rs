//! The text of nft expressions, of what they are compared with, and of sets and elements.

use std::fmt;

use super::listing::Listing;
use super::literal::{Literal, Span, Style, is_bitmask};
use crate::expr::{
    AnonymousSet, CmpOp, Direction, FibFlags, FibResult, NumgenMode, PayloadBase, SetRef,
};
use crate::expression::{Expression, Term};
use crate::language::field::split;
use crate::value::ByteOrder;
use crate::value::bytes::zip;
use crate::{DataKind, Datatype, Element, ElementData, Field};

/// `NFT_PAYLOAD_INNER_HEADER`
const INNER: u32 = 3;

impl<T> fmt::Display for Expression<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Term::Header(field) => write!(f, "{} {}", field.protocol, field.name),
            Term::Payload { base, offset, len } => fmt_payload(f, *base, *offset, *len),
            Term::Meta(key) => match key.as_str() {
                Some(text) => f.write_str(text),
                None => write!(f, "/* meta key {} */", key.number()),
            },
            Term::Ct(key, direction) => {
                f.write_str(match direction {
                    None => "ct ",
                    Some(Direction::Original) => "ct original ",
                    Some(Direction::Reply) => "ct reply ",
                })?;
                match key.as_str() {
                    Some(text) => f.write_str(text),
                    None => write!(f, "/* key {} */", key.number()),
                }
            }
            Term::Load(load) => write!(f, "{load}"),
            Term::Fib(flags, result) => fmt_fib(f, *flags, *result),
            Term::Numgen {
                mode,
                modulus,
                offset,
            } => {
                let mode = match mode {
                    NumgenMode::Incremental => "inc",
                    NumgenMode::Random => "random",
                };
                write!(f, "numgen {mode} mod {modulus}")?;
                fmt_offset(f, *offset)
            }
            Term::Jenkins {
                of,
                modulus,
                seed,
                offset,
            } => {
                write!(f, "jhash {of} mod {modulus}")?;
                if let Some(seed) = seed {
                    write!(f, " seed {seed:#x}")?;
                }
                fmt_offset(f, *offset)
            }
            Term::Symmetric { modulus, offset } => {
                write!(f, "symhash mod {modulus}")?;
                fmt_offset(f, *offset)
            }
            Term::Bits { of, mask, xor } => fmt_bits(f, of, mask, xor),
            Term::Shift { of, left, bits } => fmt_shift(f, of, *left, *bits),
            Term::Map { of, set, .. } => write!(f, "{of} map {}", set_text(set, of)),
            Term::Concat(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    let dot = if at == 0 { "" } else { " . " };
                    write!(f, "{dot}{part}")?;
                }
                Ok(())
            }
            Term::Constant(bytes) => write!(f, "{}", Literal::new(Datatype::Integer, bytes, false)),
            Term::Port(protocol, name) => write!(f, "{protocol} {name}"),
            Term::BitField(field) => write!(f, "{}{} {}", field.prefix, field.protocol, field.name),
            Term::Invalid(invalid) => write!(f, "/* {invalid} */"),
            Term::Unknown => f.write_str("/* unknown */"),
        }
    }
}

impl Eq for Term {}

impl PartialEq for Term {
    /// Two expressions are equal if their nft texts are equal.
    fn eq(&self, other: &Self) -> bool {
        Expression::of(self.clone()).to_string() == Expression::of(other.clone()).to_string()
    }
}

/// Writes the location of bytes of the packet, in bits.
fn fmt_payload(
    f: &mut fmt::Formatter<'_>,
    base: PayloadBase,
    offset: u32,
    len: u32,
) -> fmt::Result {
    let base = match base {
        PayloadBase::Link => "ll",
        PayloadBase::Network => "nh",
        PayloadBase::Transport => "th",
        PayloadBase::Other(INNER) => "ih",
        PayloadBase::Other(base) => {
            return write!(f, "/* payload {base} {offset} {len} */");
        }
    };
    let [offset, len] = [offset, len].map(|bytes| u64::from(bytes) * 8);
    write!(f, "@{base},{offset},{len}")
}

fn fmt_offset(f: &mut fmt::Formatter<'_>, offset: u32) -> fmt::Result {
    if offset == 0 {
        Ok(())
    } else {
        write!(f, " offset {offset}")
    }
}

fn fmt_fib(f: &mut fmt::Formatter<'_>, flags: FibFlags, result: FibResult) -> fmt::Result {
    let words = [
        (FibFlags::SADDR, "saddr"),
        (FibFlags::DADDR, "daddr"),
        (FibFlags::MARK, "mark"),
        (FibFlags::IIF, "iif"),
        (FibFlags::OIF, "oif"),
    ];
    let words: Vec<&str> = words
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, word)| *word)
        .collect();
    let result = match result {
        FibResult::Oif => "oif",
        FibResult::Oifname => "oifname",
        FibResult::AddrType => "type",
    };
    write!(f, "fib {} {result}", words.join(" . "))
}

fn fmt_shift(f: &mut fmt::Formatter<'_>, of: &Expression, left: bool, bits: u32) -> fmt::Result {
    let sign = if left { "<<" } else { ">>" };
    match of.0 {
        Term::Bits { .. } => write!(f, "({of}) {sign} {bits}"),
        _ => write!(f, "{of} {sign} {bits}"),
    }
}

/// Writes a bitwise operation with the fewest operators.
fn fmt_bits(f: &mut fmt::Formatter<'_>, of: &Expression, mask: &[u8], xor: &[u8]) -> fmt::Result {
    let datatype = of.datatype();
    let text = |bytes: &[u8]| {
        let literal = literal(of, bytes, of.order() == ByteOrder::Big);
        if is_bitmask(datatype) {
            let text = literal.to_string();
            match text.contains(',') {
                true => format!("({})", text.replace(',', " | ")),
                false => text,
            }
        } else {
            literal.to_string()
        }
    };
    let none = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let all = mask.iter().all(|byte| *byte == 0xff);
    let common = zip(mask, xor, |a, b| a & b);
    let outside = zip(mask, xor, |a, b| !a ^ b);
    match () {
        () if none(xor) => write!(f, "{of} & {}", text(mask)),
        () if all => write!(f, "{of} ^ {}", text(xor)),
        () if none(&outside) => write!(f, "{of} | {}", text(xor)),
        () if none(&common) => write!(f, "{of} & {} | {}", text(mask), text(xor)),
        () => write!(f, "{of} & {} ^ {}", text(mask), text(xor)),
    }
}

impl fmt::Display for SetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "@{name}"),
            Self::Anonymous(anonymous) => {
                let elements = anonymous.elements.iter().map(ToString::to_string);
                let elements: Vec<String> = elements.collect();
                write!(f, "{{ {} }}", elements.join(", "))
            }
        }
    }
}

/// Returns the text of a set whose key is an expression.
///
/// Types and byte orders are those of the expression: the types of the set are notes of
/// the program that created the set.
pub(super) fn set_text(set: &SetRef, key: &Expression) -> String {
    match set {
        SetRef::Anonymous(anonymous) => anonymous_text(anonymous, key),
        SetRef::Named(_) => set.to_string(),
    }
}

fn anonymous_text(anonymous: &AnonymousSet, key: &Expression) -> String {
    let elements = anonymous.elements.iter();
    let elements: Vec<String> = elements.map(|it| element_text(it, key.parts())).collect();
    format!("{{ {} }}", elements.join(", "))
}

fn element_text(element: &Element, parts: &[Expression]) -> String {
    let mut text = key_text(element, parts).unwrap_or_else(|| element.key_text().to_string());
    // Writing to a string cannot fail.
    let _ = fmt_options(&mut text, element).and_then(|()| fmt_data(&mut text, element));
    text
}

/// Returns the text of a key, or `None` if the expression has other fields than the set.
fn key_text(element: &Element, parts: &[Expression]) -> Option<String> {
    let fields = &element.set().key;
    // The set may have lengths of the types instead of those of the values.
    let words = |bytes: u16| bytes.div_ceil(4);
    let same = |(part, field): (&Expression, &Field)| words(part.bytes()) == words(field.bytes);
    let fits = parts.len() == fields.len() && parts.iter().zip(fields).all(same);
    if !fits || element.is_catch_all() {
        return None;
    }
    let fields: Vec<Field> = parts.iter().cloned().map(Field::from).collect();
    let fields = &fields;
    let first = element.key_bytes();
    let last = element.key_end().unwrap_or(first);
    let is_ordered = element.set().has_intervals();
    let values = split(fields, first).zip(split(fields, last)).zip(parts);
    let values: Vec<String> = values
        .map(|(((_, first), (_, last)), part)| {
            value_text(
                part,
                first,
                last,
                is_ordered || part.order() == ByteOrder::Big,
            )
        })
        .collect();
    Some(values.join(" . "))
}

/// Returns the text of a value, a prefix or a range.
fn value_text(of: &Expression, first: &[u8], last: &[u8], swapped: bool) -> String {
    if first == last {
        return literal(of, first, swapped).to_string().replace(',', " | ");
    }
    if let Some(prefix) = wildcard(of.datatype(), first, last) {
        return format!("\"{prefix}*\"");
    }
    let is_addr = matches!(of.datatype(), Datatype::Ipv4Addr | Datatype::Ipv6Addr);
    match net_len(first, last).filter(|_| is_addr) {
        Some(len) => format!("{}/{len}", literal(of, first, swapped)),
        None => {
            let number = |bytes| number(of, bytes, swapped);
            format!("{}-{}", number(first), number(last))
        }
    }
}

/// Returns the prefix length if the values are the first and the last of a network.
fn net_len(first: &[u8], last: &[u8]) -> Option<u32> {
    let mask = zip(first, last, |a, b| !(a ^ b));
    let host = zip(first, &mask, |a, m| a & !m);
    let full = zip(last, &mask, |b, m| b | m);
    let is_net = host.iter().all(|byte| *byte == 0) && full.iter().all(|byte| *byte == 0xff);
    prefix_len(&mask).filter(|_| is_net)
}

impl fmt::Display for Element {
    /// Writes the element in nft syntax: `10.0.0.1 . tcp . 80 : goto c`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_key(f)?;
        fmt_options(f, self)?;
        fmt_data(f, self)
    }
}

/// Writes the stateful expressions, timeout, remaining lifetime and comment of an element.
fn fmt_options(f: &mut impl fmt::Write, element: &Element) -> fmt::Result {
    if !element.exprs().is_empty() {
        let listing = Listing::new(Some(element.set().table.family));
        f.write_str(&listing.inner(element.exprs()))?;
    }
    if let Some(timeout) = element.timeout() {
        write!(f, " timeout {}", Span(timeout))?;
    }
    if let Some(expires_in) = element.expires_in() {
        write!(f, " expires {}", Span(expires_in))?;
    }
    if let Some(comment) = element.comment() {
        write!(f, " {comment}")?;
    }
    Ok(())
}

/// Writes ` : ` and the data of an element.
fn fmt_data(f: &mut impl fmt::Write, element: &Element) -> fmt::Result {
    match (element.data(), &element.set().data) {
        (Some(ElementData::Verdict(verdict)), _) => write!(f, " : {verdict}"),
        (Some(ElementData::Value(bytes)), DataKind::Fields(fields)) => {
            f.write_str(" : ")?;
            let (first, last) = match element.set().data_intervals {
                true => bytes.split_at(bytes.len() / 2),
                false => (bytes, bytes),
            };
            fmt_fields(f, fields, first, Some(last), false)
        }
        _ => match element.object() {
            Some(object) => write!(f, " : \"{object}\""),
            None => Ok(()),
        },
    }
}

impl Element {
    /// Writes the key only.
    pub(crate) fn fmt_key(&self, f: &mut impl fmt::Write) -> fmt::Result {
        if self.is_catch_all() {
            return f.write_str("*");
        }
        let swapped = self.set().has_intervals();
        fmt_fields(
            f,
            &self.set().key,
            self.key_bytes(),
            self.key_end(),
            swapped,
        )
    }
}

/// Returns the text of a value in a set: flags of one element are joined by ` | `.
fn value(field: &Field, bytes: &[u8], swapped: bool) -> String {
    let text = Literal::new(field.datatype, bytes, swapped).to_string();
    match is_bitmask(field.datatype) {
        true => text.replace(',', " | "),
        false => text,
    }
}

/// Returns the common start if the interval contains all names that begin with it.
fn wildcard(datatype: Datatype, first: &[u8], last: &[u8]) -> Option<String> {
    let len = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let (start, zeros) = first.split_at_checked(len)?;
    let is_wildcard = zeros.iter().all(|byte| *byte == 0)
        && last.iter().skip(len).all(|byte| *byte == u8::MAX)
        && datatype == Datatype::Ifname;
    is_wildcard.then(|| String::from_utf8_lossy(start).into_owned())
}

/// Writes the fields of a key or of data; as intervals if there is a last key.
fn fmt_fields(
    f: &mut impl fmt::Write,
    fields: &[Field],
    first: &[u8],
    last: Option<&[u8]>,
    swapped: bool,
) -> fmt::Result {
    let last = last.unwrap_or(first);
    for (at, ((field, first), (_, last))) in
        split(fields, first).zip(split(fields, last)).enumerate()
    {
        if at != 0 {
            f.write_str(" . ")?;
        }
        let swapped = swapped || field.order() == ByteOrder::Big;
        if first == last {
            write!(f, "{}", value(field, first, swapped))?;
            continue;
        }
        if let Some(prefix) = wildcard(field.datatype, first, last) {
            write!(f, "\"{prefix}*\"")?;
            continue;
        }
        let text = |bytes| match field.datatype {
            // The ends of ranges are numbers.
            Datatype::InetProto | Datatype::IcmpType | Datatype::Icmpv6Type => {
                Literal::new(Datatype::Integer, bytes, true)
            }
            datatype => Literal::new(datatype, bytes, swapped),
        };
        write!(f, "{}", text(first))?;
        let is_addr = matches!(field.datatype, Datatype::Ipv4Addr | Datatype::Ipv6Addr);
        let same = zip(first, last, |a, b| !(a ^ b));
        let host = zip(first, last, |a, b| a & (a ^ b));
        let full = zip(last, &same, |b, s| b | s);
        match prefix_len(&same) {
            Some(len)
                if is_addr
                    && host.iter().all(|byte| *byte == 0)
                    && full.iter().all(|byte| *byte == 0xff) =>
            {
                write!(f, "/{len}")?;
            }
            _ => write!(f, "-{}", text(last))?,
        }
    }
    Ok(())
}

/// Returns the left-hand side and the text of a comparison.
pub(crate) fn comparison(
    left: Expression,
    op: CmpOp,
    data: &[u8],
    swapped: bool,
) -> (Expression, String) {
    let datatype = left.datatype();
    if let (Term::Bits { of, mask, xor }, CmpOp::Ne) = (&left.0, op) {
        let none = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if is_bitmask(datatype) && none(data) && none(xor) {
            let flags = literal(&left, mask, swapped).to_string();
            return ((**of).clone(), flags);
        }
    }
    if datatype == Datatype::Ifname && data.len() < usize::from(datatype.bytes()) {
        let prefix = String::from_utf8_lossy(data);
        return (left, format!("{}\"{prefix}*\"", op.sign()));
    }
    let value = match op {
        CmpOp::Eq | CmpOp::Ne => literal(&left, data, swapped),
        _ => number(&left, data, swapped),
    };
    let needs_sign = is_bitmask(datatype) || matches!(left.0, Term::Bits { .. });
    let sign = if op == CmpOp::Eq && needs_sign {
        "== "
    } else {
        op.sign()
    };
    let text = match &left.0 {
        Term::Concat(parts) => concatenation(parts, data),
        _ => value.to_string(),
    };
    (left, format!("{sign}{text}"))
}

/// Returns the text of a concatenated value.
fn concatenation(parts: &[Expression], data: &[u8]) -> String {
    let fields: Vec<_> = parts.iter().cloned().map(Field::from).collect();
    let values: Vec<String> = split(&fields, data)
        .zip(parts)
        .map(|((_, value), part)| literal(part, value, part.order() == ByteOrder::Big).to_string())
        .collect();
    values.join(" . ")
}

/// Returns the value that an expression is compared with.
fn literal<'a>(left: &Expression, bytes: &'a [u8], swapped: bool) -> Literal<'a> {
    let literal = Literal::new(left.datatype(), bytes, swapped).shifted(left.bits_after());
    match left.is_raw() {
        true => literal.with_style(Style::Hex),
        false => literal,
    }
}

/// Returns the end of a range, or the operand of an inequality.
fn number<'a>(left: &Expression, bytes: &'a [u8], swapped: bool) -> Literal<'a> {
    let literal = Literal::new(left.datatype(), bytes, swapped).shifted(left.bits_after());
    literal.with_style(match left.is_raw() {
        true => Style::Hex,
        false => Style::Numbers,
    })
}

pub(crate) fn range_text(left: &Expression, from: &[u8], to: &[u8], swapped: bool) -> String {
    let text = |bytes| number(left, bytes, swapped);
    format!("{}-{}", text(from), text(to))
}

/// Returns the text of an assigned value.
pub(crate) fn operand(expression: &Expression, datatype: Datatype, swapped: bool) -> String {
    match &expression.0 {
        Term::Constant(bytes) => Literal::new(datatype, bytes, swapped).to_string(),
        _ => expression.to_string(),
    }
}

/// Returns the prefix length of a mask, or `None` if the mask is not contiguous.
pub(crate) fn prefix_len(mask: &[u8]) -> Option<u32> {
    let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let mut left = ones;
    for byte in mask {
        let here = left.min(8);
        left -= here;
        if byte.leading_ones() != here {
            return None;
        }
    }
    Some(ones)
}
