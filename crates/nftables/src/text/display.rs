//! `Display` of expressions, rules and elements.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::anonymous::set_text;
use super::listing::{Listing, Sets};
use super::literal::{Literal, Style, is_bitmask};
use crate::bytes::zip;
use crate::datatype::ByteOrder;
use crate::expr::{CmpOp, Direction, FibFlags, FibResult, NumgenMode, PayloadBase, SetRef};
use crate::expression::{Expression, Term};
use crate::field::split;
use crate::{DataKind, Datatype, Element, ElementData, Family, Field, Name, Rule, Set};

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

impl Rule {
    /// Returns the text of the rule in a table of this family.
    pub(crate) fn text(&self, family: Option<Family>) -> String {
        self.text_with(family, &Arc::default())
    }

    /// Returns the rule as `nft list ruleset` prints it in a table of this family with these
    /// named sets.
    ///
    /// `Display` knows neither of them: it writes also what the family implies, and a rule that
    /// updates a named set has the values of the element without the types of its fields.
    pub fn text_in(&self, family: Family, sets: &Arc<BTreeMap<Name, Set>>) -> String {
        self.text_with(Some(family), sets)
    }

    /// Returns the text of the rule in a table with these sets.
    pub(crate) fn text_with(&self, family: Option<Family>, sets: &Arc<Sets>) -> String {
        let mut listing = Listing::new(family);
        listing.sets = Arc::clone(sets);
        for chain in &self.chains {
            let rules = chain.rules.iter();
            let rules = rules.map(|rule| format!("{}; ", rule.text_with(family, sets)));
            let block = format!("{{ {}}}", rules.collect::<String>());
            listing.blocks.push((chain.name.clone(), block));
        }
        for expr in &self.exprs {
            listing.expr(expr);
        }
        let mut text = listing.finish();
        if let Some(comment) = &self.comment {
            text += &format!(" {comment}");
        }
        text
    }
}

impl fmt::Display for Rule {
    /// Writes the rule in nft syntax, without knowledge of the table's family.
    ///
    /// The `Display` of a chain, transaction or ruleset uses the family.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(None))
    }
}

/// A duration in nft syntax.
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        for (unit, text) in [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")] {
            let count = match unit {
                86_400 => seconds / unit,
                3_600 => seconds % 86_400 / unit,
                60 => seconds % 3_600 / unit,
                _ => seconds % 60,
            };
            if count != 0 {
                write!(f, "{count}{text}")?;
            }
        }
        let milliseconds = self.0.subsec_millis();
        if milliseconds != 0 || seconds == 0 {
            write!(f, "{milliseconds}ms")?;
        }
        Ok(())
    }
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
pub(super) fn fmt_options(f: &mut impl fmt::Write, element: &Element) -> fmt::Result {
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
pub(super) fn fmt_data(f: &mut impl fmt::Write, element: &Element) -> fmt::Result {
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
pub(super) fn wildcard(datatype: Datatype, first: &[u8], last: &[u8]) -> Option<String> {
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
pub(super) fn literal<'a>(left: &Expression, bytes: &'a [u8], swapped: bool) -> Literal<'a> {
    let literal = Literal::new(left.datatype(), bytes, swapped).shifted(left.bits_after());
    match left.is_raw() {
        true => literal.with_style(Style::Hex),
        false => literal,
    }
}

/// Returns the end of a range, or the operand of an inequality.
pub(super) fn number<'a>(left: &Expression, bytes: &'a [u8], swapped: bool) -> Literal<'a> {
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
