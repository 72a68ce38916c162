//! The text of rules, as nft writes them.
//!
//! Derived from the expressions: registers hold selectors in place of values,
//! so that rules which somebody else wrote read well, too.

use std::fmt;
use std::time::Duration;

use crate::expr::{
    CmpOp, Direction, Expr, FibFlags, FibResult, MetaKey, NumgenMode, PayloadBase, Register, SetRef,
};
use crate::header::{HeaderField, WITH_PORTS};
use crate::literal::{Literal, is_bitmask};
use crate::selector::{Selector, Term, zip};
use crate::set::split;
use crate::{Bytes, Data, DataKind, Datatype, Element, Family, Field, Rule};

/// How many words registers have.
const WORDS: usize = 16;

/// A rule being written down.
pub(crate) struct Listing {
    family: Option<Family>,
    words: [Option<Slot>; WORDS],
    parts: Vec<Part>,
}

/// What a register holds.
#[derive(Clone)]
struct Slot {
    selector: Selector,
    /// How many words it takes.
    words: usize,
    /// How many parts there were when it was loaded.
    loaded: usize,
    /// Whether a number was turned to network order.
    turned: bool,
}

/// A statement of the rule.
struct Part {
    /// What it is about, if that stands in front.
    left: Option<Selector>,
    text: String,
    kind: PartKind,
}

/// What the next part may be joined with.
#[derive(PartialEq)]
enum PartKind {
    Plain,
    /// `meta l4proto tcp`
    Transport(&'static str),
    /// `x >= first`
    AtLeast(Bytes),
}

impl Listing {
    fn new(family: Option<Family>) -> Self {
        Self {
            family,
            words: [const { None }; WORDS],
            parts: Vec::new(),
        }
    }

    /// Returns the family of the table, if it is known.
    pub(crate) fn family(&self) -> Option<Family> {
        self.family
    }

    /// Notes that a register holds the value of a selector from now on.
    pub(crate) fn load(&mut self, register: Register, selector: Selector) {
        let loaded = self.parts.len();
        let words = usize::from(selector.words()).max(1);
        self.put(
            register,
            Slot {
                selector,
                words,
                loaded,
                turned: false,
            },
        );
    }

    /// Notes that a value was changed.
    pub(crate) fn replace(&mut self, register: Register, selector: Selector) {
        self.load(register, selector);
    }

    /// Notes that a value was turned to network order.
    pub(crate) fn turn(&mut self, register: Register) {
        if let Some(Some(slot)) = register
            .start()
            .and_then(|at| self.words.get_mut(usize::from(at)))
        {
            slot.turned = true;
        }
    }

    fn put(&mut self, register: Register, slot: Slot) {
        let Some(at) = register.start().map(usize::from) else {
            return;
        };
        for word in self.words.iter_mut().skip(at).take(slot.words) {
            *word = None;
        }
        if let Some(word) = self.words.get_mut(at) {
            *word = Some(slot);
        }
    }

    fn slot(&self, register: Register) -> Option<&Slot> {
        let at = register.start()?;
        self.words.get(usize::from(at))?.as_ref()
    }

    /// Returns the selector whose value of so many bytes a register holds.
    pub(crate) fn read(&self, register: Register, bytes: usize) -> Selector {
        let Some(slot) = self.slot(register) else {
            return Selector(Term::Unknown);
        };
        if usize::from(slot.selector.bytes()) >= bytes || slot.words * 4 >= bytes {
            return slot.selector.clone();
        }
        self.gather(register, Some(bytes.div_ceil(4)))
    }

    /// Returns the selector of a key, which ends where `until` starts.
    pub(crate) fn read_key(&self, register: Register, until: Option<Register>) -> Selector {
        let words = match (register.start(), until.and_then(Register::start)) {
            (Some(at), Some(end)) if end > at => Some(usize::from(end - at)),
            _ => None,
        };
        self.gather(register, words)
    }

    /// Joins what adjacent registers hold that were loaded for the same part.
    fn gather(&self, register: Register, words: Option<usize>) -> Selector {
        let (Some(first), Some(start)) = (self.slot(register), register.start()) else {
            return Selector(Term::Unknown);
        };
        let end = words.map_or(WORDS, |words| usize::from(start) + words);
        let (mut at, mut parts) = (usize::from(start), Vec::new());
        while at < end {
            match self.words.get(at) {
                Some(Some(slot)) if slot.loaded == first.loaded => {
                    parts.push(slot.selector.clone());
                    at += slot.words;
                }
                _ => break,
            }
        }
        match <[Selector; 1]>::try_from(parts) {
            Ok([single]) => single,
            Err(parts) => Selector(Term::Concat(parts)),
        }
    }

    /// Tells whether a register holds what something maps to.
    pub(crate) fn holds_map(&self, register: Register) -> bool {
        self.slot(register)
            .is_some_and(|slot| matches!(slot.selector.0, Term::Map { .. }))
    }

    /// Returns ` to …` for a target that comes from a map.
    pub(crate) fn target_of_map(&self, register: Option<Register>) -> String {
        let target = register.and_then(|register| self.slot(register));
        target.map_or_else(String::new, |slot| format!(" to {}", slot.selector))
    }

    /// Returns the text of an address or a range of addresses.
    pub(crate) fn addr_range(
        &self,
        first: Option<Register>,
        last: Option<Register>,
        bytes: u16,
    ) -> Option<String> {
        let datatype = if bytes == 16 {
            Datatype::Ipv6Addr
        } else {
            Datatype::Ipv4Addr
        };
        self.operand_range(first, last, datatype)
    }

    /// Returns the text of a port or a range of ports.
    pub(crate) fn port_range(
        &self,
        first: Option<Register>,
        last: Option<Register>,
    ) -> Option<String> {
        self.operand_range(first, last, Datatype::InetService)
    }

    fn operand_range(
        &self,
        first: Option<Register>,
        last: Option<Register>,
        datatype: Datatype,
    ) -> Option<String> {
        let text = |register| {
            self.slot(register)
                .map(|slot| operand(&slot.selector, datatype, false))
        };
        let first = text(first?)?;
        Some(match last.and_then(text) {
            Some(last) => format!("{first}-{last}"),
            None => first,
        })
    }

    /// Adds a statement.
    pub(crate) fn say(&mut self, text: impl fmt::Display) {
        let text = text.to_string();
        self.parts.push(Part {
            left: None,
            text,
            kind: PartKind::Plain,
        });
    }

    /// Adds a statement about a selector.
    fn say_of(&mut self, left: Selector, text: String, kind: PartKind) {
        self.parts.push(Part {
            left: Some(left),
            text,
            kind,
        });
    }

    /// Adds an expression that nft has no text for.
    pub(crate) fn unknown(&mut self, name: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.say(format_args!("/* {name} {hex} */"));
    }

    /// Adds `selector set value`.
    pub(crate) fn set(&mut self, selector: Selector, source: Register) {
        let value = self.read_key(source, None);
        let value = operand(&value, selector.datatype(), false);
        self.say_of(selector, format!("set {value}"), PartKind::Plain);
    }

    /// Adds `selector @set`, or `selector != @set`.
    pub(crate) fn is_member(&mut self, key: Selector, invert: bool, set: &SetRef) {
        let sign = if invert { "!= " } else { "" };
        self.say_of(key, format!("{sign}{set}"), PartKind::Plain);
    }

    /// Adds a verdict map.
    pub(crate) fn vmap(&mut self, key: Selector, set: &SetRef) {
        self.say_of(key, format!("vmap {set}"), PartKind::Plain);
    }

    /// Adds a comparison.
    pub(crate) fn compare(&mut self, left: Selector, op: CmpOp, data: Bytes, turned: bool) {
        if let Some(Part {
            left: Some(of),
            kind: PartKind::AtLeast(first),
            ..
        }) = self.parts.last()
        {
            if op == CmpOp::Le && *of == left {
                let text = range_text(&left, first, &data, turned);
                self.parts.pop();
                return self.say_of(left, text, PartKind::Plain);
            }
        }
        if let Some((left, prefix)) = self.prefix(&left, &data) {
            return self.say_of(left, format!("{}{prefix}", op.sign()), PartKind::Plain);
        }
        let (left, text) = comparison(left, op, &data, turned);
        let kind = match (&left.0, op, &*data) {
            (Term::Meta(MetaKey::L4Proto), CmpOp::Eq, [proto]) => WITH_PORTS
                .iter()
                .find(|(number, _)| number == proto)
                .map_or(PartKind::Plain, |(_, name)| PartKind::Transport(name)),
            (_, CmpOp::Ge, _) => PartKind::AtLeast(data),
            _ => PartKind::Plain,
        };
        self.say_of(left, text, kind);
    }

    /// Adds a comparison with a range.
    pub(crate) fn compare_range(
        &mut self,
        left: Selector,
        op: CmpOp,
        from: &[u8],
        to: &[u8],
        turned: bool,
    ) {
        let text = format!("{}{}", op.sign(), range_text(&left, from, to, turned));
        self.say_of(left, text, PartKind::Plain);
    }

    /// Tells whether a register was turned to network order.
    pub(crate) fn is_turned(&self, register: Register) -> bool {
        self.slot(register).is_some_and(|slot| slot.turned)
    }

    /// Returns an address and the text of its prefix, if that is compared.
    fn prefix(&self, left: &Selector, data: &[u8]) -> Option<(Selector, String)> {
        match &left.0 {
            Term::Payload { base, offset, len } => {
                let field = HeaderField::find_addr(*base, *offset, *len, self.family)?;
                let mut addr = Bytes::from(data);
                addr.extend(&Bytes::repeat(
                    0,
                    usize::from(field.bytes).checked_sub(data.len())?,
                ));
                let addr = Literal::new(field.datatype, &addr, false).to_string();
                Some((
                    Selector(Term::Header(field)),
                    format!("{addr}/{}", data.len() * 8),
                ))
            }
            Term::Bits { of, mask, xor } => {
                let is_addr = matches!(of.datatype(), Datatype::Ipv4Addr | Datatype::Ipv6Addr);
                let len = prefix_len(mask)?;
                if !is_addr || xor.iter().any(|byte| *byte != 0) {
                    return None;
                }
                let addr = Literal::new(of.datatype(), data, false).to_string();
                Some(((**of).clone(), format!("{addr}/{len}")))
            }
            _ => None,
        }
    }

    /// Returns the text of the expressions of an element.
    pub(crate) fn inner(&self, exprs: &[Expr]) -> String {
        let mut inner = Self::new(self.family);
        for expr in exprs {
            expr.list(&mut inner);
        }
        let text = inner.finish();
        if text.is_empty() {
            text
        } else {
            format!(" {text}")
        }
    }

    fn finish(self) -> String {
        let mut text: Vec<String> = Vec::new();
        let mut parts = self.parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            if let (PartKind::Transport(name), Some(next)) = (&part.kind, parts.peek()) {
                if let Some(port) = next.left.as_ref().and_then(port_name) {
                    text.push(format!("{name} {port} {}", next.text));
                    parts.next();
                    continue;
                }
            }
            text.push(match part.left {
                Some(left) => format!("{left} {}", part.text),
                None => part.text,
            });
        }
        text.join(" ")
    }
}

/// Returns the text of a comparison, and what is compared.
fn comparison(left: Selector, op: CmpOp, data: &[u8], turned: bool) -> (Selector, String) {
    let datatype = left.datatype();
    if let (Term::Bits { of, mask, xor }, CmpOp::Ne) = (&left.0, op) {
        let none = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if is_bitmask(datatype) && none(data) && none(xor) {
            let flags = Literal::new(datatype, mask, turned).to_string();
            return ((**of).clone(), flags);
        }
    }
    let value = Literal::new(datatype, data, turned).to_string();
    if datatype == Datatype::Ifname && data.len() < usize::from(datatype.bytes()) {
        let value = value.trim_end_matches('"');
        return (left, format!("{}{value}*\"", op.sign()));
    }
    let needs_sign = is_bitmask(datatype) || matches!(left.0, Term::Bits { .. });
    let sign = if op == CmpOp::Eq && needs_sign {
        "== "
    } else {
        op.sign()
    };
    let text = match &left.0 {
        Term::Concat(parts) => concatenation(parts, data),
        _ => value,
    };
    (left, format!("{sign}{text}"))
}

/// Returns the text of a value of several fields.
fn concatenation(parts: &[Selector], data: &[u8]) -> String {
    let fields: Vec<_> = parts.iter().cloned().map(Field::from).collect();
    let values: Vec<String> = split(&fields, data)
        .map(|(field, value)| Literal::new(field.datatype, value, false).to_string())
        .collect();
    values.join(" . ")
}

fn range_text(left: &Selector, from: &[u8], to: &[u8], turned: bool) -> String {
    let datatype = left.datatype();
    let text = |bytes| Literal::new(datatype, bytes, turned);
    format!("{}-{}", text(from), text(to))
}

/// Returns the text of a value that something is set to.
fn operand(selector: &Selector, datatype: Datatype, turned: bool) -> String {
    match &selector.0 {
        Term::Constant(bytes) => Literal::new(datatype, bytes, turned).to_string(),
        _ => selector.to_string(),
    }
}

/// Returns how many bits come first in a mask, if no others are set.
fn prefix_len(mask: &[u8]) -> Option<u32> {
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

/// Returns the name of a port of any protocol.
fn port_name(selector: &Selector) -> Option<&'static str> {
    match &selector.0 {
        Term::Header(field) if field.protocol == "th" => Some(field.name),
        _ => None,
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Term::Header(field) => write!(f, "{} {}", field.protocol, field.name),
            Term::Payload { base, offset, len } => {
                let base = match base {
                    PayloadBase::Link => "ll",
                    PayloadBase::Network => "nh",
                    PayloadBase::Transport => "th",
                    PayloadBase::Other(_) => "ih",
                };
                write!(
                    f,
                    "@{base},{},{}",
                    u64::from(*offset) * 8,
                    u64::from(*len) * 8
                )
            }
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
            Term::Map { of, set, .. } => write!(f, "{of} map {set}"),
            Term::Concat(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    let dot = if at == 0 { "" } else { " . " };
                    write!(f, "{dot}{part}")?;
                }
                Ok(())
            }
            Term::Constant(bytes) => write!(f, "{}", Literal::new(Datatype::Integer, bytes, false)),
            Term::Unknown => f.write_str("/* unknown */"),
        }
    }
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

/// Writes changed bits with as few operators as give the same expression.
fn fmt_bits(f: &mut fmt::Formatter<'_>, of: &Selector, mask: &[u8], xor: &[u8]) -> fmt::Result {
    let datatype = of.datatype();
    let text = |bytes: &[u8]| {
        let literal = Literal::new(datatype, bytes, false);
        if is_bitmask(datatype) {
            literal.to_string().replace(',', " | ")
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
                let mut elements: Vec<String> =
                    anonymous.elements.iter().map(ToString::to_string).collect();
                if elements.len() > 1 {
                    elements.dedup();
                }
                write!(f, "{{ {} }}", elements.join(", "))
            }
        }
    }
}

impl Rule {
    /// Returns the text of the rule in a table of a family.
    pub(crate) fn text(&self, family: Option<Family>) -> String {
        let mut listing = Listing::new(family);
        for expr in &self.exprs {
            expr.list(&mut listing);
        }
        let mut text = listing.finish();
        if let Some(comment) = &self.comment {
            text += &format!(" {comment}");
        }
        text
    }
}

impl fmt::Display for Rule {
    /// Writes the rule as nft does.
    ///
    /// What depends on the family of the table is guessed: the text of a
    /// chain, a transaction or a ruleset knows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(None))
    }
}

/// A span of time, as nft writes it.
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
    /// Writes the element as nft does: `10.0.0.1 . tcp . 80 : goto c`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_key(f)?;
        if let Some(timeout) = self.timeout() {
            write!(f, " timeout {}", Span(timeout))?;
        }
        if let Some(comment) = self.comment() {
            write!(f, " {comment}")?;
        }
        match (self.data(), &self.set().data) {
            (Some(Data::Verdict(verdict)), _) => write!(f, " : {verdict}"),
            (Some(Data::Value(bytes)), DataKind::Fields(fields)) => {
                f.write_str(" : ")?;
                fmt_fields(f, fields, bytes, None, false)
            }
            _ => Ok(()),
        }
    }
}

impl Element {
    /// Writes the key alone, which names the element.
    pub(crate) fn fmt_key(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_catch_all() {
            return f.write_str("*");
        }
        let turned = self.set().has_intervals();
        fmt_fields(f, &self.set().key, self.key_bytes(), self.key_end(), turned)
    }
}

/// Writes the fields of a key or data, as intervals if there is an end.
fn fmt_fields(
    f: &mut fmt::Formatter<'_>,
    fields: &[Field],
    first: &[u8],
    last: Option<&[u8]>,
    turned: bool,
) -> fmt::Result {
    let last = last.unwrap_or(first);
    for (at, ((field, first), (_, last))) in
        split(fields, first).zip(split(fields, last)).enumerate()
    {
        if at != 0 {
            f.write_str(" . ")?;
        }
        write!(f, "{}", Literal::new(field.datatype, first, turned))?;
        if first == last {
            continue;
        }
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
            _ => write!(f, "-{}", Literal::new(field.datatype, last, turned))?,
        }
    }
    Ok(())
}
