//! The text of rules, as printed by nft.
//!
//! The kernel keeps no text, only what it executes. So the rule is executed here too, with
//! expressions of the nft language in the registers instead of values:
//!
//! ```text
//! meta load l4proto => word 0        word 0 is `meta l4proto`
//! cmp eq word 0 06                   part `meta l4proto tcp`
//! payload 2 @ transport + 2          word 0 is `tcp dport`, since the protocol is known by now
//! cmp eq word 0 0016                 part `tcp dport 22`
//! ```
//!
//! and `finish` leaves out the first part, because the second one implies it. This works for
//! rules of any program, also where the order or the registers are not those of nft. What has no
//! syntax is printed as a comment with its bytes, so that nothing of a rule is hidden.
//!
//! What must stay true: expressions only load, and parts only come at the end of a statement. So
//! the number of parts tells which registers were loaded for the same statement ([`Slot::loaded`]),
//! and a value that an earlier statement left behind is never printed as a field of this one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::context::Context;
use super::display::{comparison, operand, range_text, set_text};
use super::literal::Literal;
use crate::expr::{CmpOp, Expr, MetaKey, NFT_OBJECT_COUNTER, Register, SetRef};
use crate::expression::{Expression, Term};
use crate::language::bitfield::BitField;
use crate::language::field::width;
use crate::language::header::{Layer, name_with_ports};
use crate::value::ByteOrder;
use crate::{Bytes, DataKind, Datatype, Family, Field, Name, Rule, Set, Verdict};

/// Number of register words of 4 bytes: `NFT_REG32_COUNT`.
const WORDS: usize = 16;

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
        // Before the expressions: a jump to one of these chains is printed with its rules.
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

/// The text of a rule under construction.
pub(crate) struct Listing {
    pub(super) context: Context,
    words: [Option<Slot>; WORDS],
    parts: Vec<Part>,
    /// Anonymous chains by name: `{ … }`.
    pub(super) blocks: Vec<(Name, String)>,
    /// Sets of the table, if known.
    pub(super) sets: Arc<Sets>,
}

/// Named sets by name.
pub(crate) type Sets = BTreeMap<Name, Set>;

/// Symbolic content of a register.
#[derive(Clone)]
struct Slot {
    expression: Expression,
    /// Number of words of the value.
    words: usize,
    /// Number of parts at the time of the load. Adjacent registers with the same number were
    /// loaded for one statement, so they are the fields of one concatenation; another number is
    /// a value that an earlier statement left behind.
    loaded: usize,
    /// Whether the integer was converted to network byte order.
    swapped: bool,
}

/// A statement of the rule.
struct Part {
    /// Left-hand side, if any.
    left: Option<Expression>,
    text: String,
    kind: PartKind,
}

/// How the part can be merged with the next part.
#[derive(PartialEq)]
enum PartKind {
    Plain,
    /// `meta l4proto tcp`, with the protocol number.
    Transport(u8),
    /// `x >= first`
    AtLeast(Bytes),
}

impl Listing {
    pub(crate) fn new(family: Option<Family>) -> Self {
        Self {
            context: Context::new(family),
            words: [const { None }; WORDS],
            parts: Vec::new(),
            blocks: Vec::new(),
            sets: Arc::default(),
        }
    }

    /// Returns the family of the table, if it is known.
    pub(crate) fn family(&self) -> Option<Family> {
        self.context.family()
    }

    /// Records that a register holds the value of an expression.
    pub(crate) fn load(&mut self, register: Register, expression: Expression) {
        let loaded = self.parts.len();
        // The data of a map that is known by name only have no size. With 0 words `gather` would
        // not advance.
        let words = usize::from(expression.words()).max(1);
        self.put(
            register,
            Slot {
                expression,
                words,
                loaded,
                swapped: false,
            },
        );
    }

    /// Records that a register was converted to network byte order.
    pub(crate) fn swap(&mut self, register: Register) {
        if let Some(Some(slot)) = register
            .start()
            .and_then(|at| self.words.get_mut(usize::from(at)))
        {
            slot.swapped = true;
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

    /// Returns the expression for `bytes` bytes of a register.
    pub(crate) fn read(&self, register: Register, bytes: usize) -> Expression {
        let Some(slot) = self.slot(register) else {
            return Expression::of(Term::Unknown);
        };
        // One value is enough, also one that is shorter than its register: the kernel pads it.
        if usize::from(slot.expression.bytes()) >= bytes || slot.words * 4 >= bytes {
            return slot.expression.clone();
        }
        self.gather(register, Some(bytes.div_ceil(4)))
    }

    /// Returns the expression of a key that ends before register `until`.
    pub(crate) fn read_key(&self, register: Register, until: Option<Register>) -> Expression {
        let words = match (register.start(), until.and_then(Register::start)) {
            (Some(at), Some(end)) if end > at => Some(usize::from(end - at)),
            // Nothing limits the key, so it ends where a register is of another statement.
            _ => None,
        };
        self.gather(register, words)
    }

    /// Returns the expression of the key of a lookup.
    pub(crate) fn read_set_key(&self, register: Register, set: &SetRef) -> Expression {
        match set {
            SetRef::Named(_) => self.read_key(register, None),
            SetRef::Anonymous(anonymous) => {
                let bytes = width(&anonymous.set.key);
                self.gather(register, Some(bytes.div_ceil(4).max(1)))
            }
        }
    }

    /// Forgets the values of adjacent registers that were loaded for the same part.
    ///
    /// A lookup in a map writes its result over the first field of the key. The other fields would
    /// then be printed as a concatenation with the result.
    pub(crate) fn consume(&mut self, register: Register) {
        let Some(first) = self.slot(register).map(|slot| slot.loaded) else {
            return;
        };
        let start = register.start().map_or(WORDS, usize::from);
        for word in self.words.iter_mut().skip(start) {
            if word.as_ref().is_some_and(|slot| slot.loaded == first) {
                *word = None;
            }
        }
    }

    /// Concatenates adjacent registers that were loaded for the same part.
    fn gather(&self, register: Register, words: Option<usize>) -> Expression {
        let (Some(first), Some(start)) = (self.slot(register), register.start()) else {
            return Expression::of(Term::Unknown);
        };
        let end = words.map_or(WORDS, |words| usize::from(start) + words);
        let (mut at, mut parts) = (usize::from(start), Vec::new());
        while at < end {
            match self.words.get(at) {
                Some(Some(slot)) if slot.loaded == first.loaded => {
                    parts.push(slot.expression.clone());
                    at += slot.words;
                }
                _ => break,
            }
        }
        match <[Expression; 1]>::try_from(parts) {
            Ok([single]) => single,
            Err(parts) => Expression::of(Term::Concat(parts)),
        }
    }

    /// Returns whether a register holds the data of a map.
    pub(crate) fn holds_map(&self, register: Register) -> bool {
        self.slot(register)
            .is_some_and(|slot| matches!(slot.expression.0, Term::Map { .. }))
    }

    /// Returns ` to …` for a NAT target from a map.
    pub(crate) fn target_of_map(&self, register: Option<Register>) -> String {
        let target = register.and_then(|register| self.slot(register));
        target.map_or_else(String::new, |slot| format!(" to {}", slot.expression))
    }

    /// Returns the text of an address or an address range. Addresses have `bytes` bytes: 4 or 16.
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

    /// Returns the text of a port or a port range.
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
                .map(|slot| operand(&slot.expression, datatype, false))
        };
        let first = text(first?)?;
        Some(match last.and_then(text) {
            Some(last) => format!("{first}-{last}"),
            None => first,
        })
    }

    /// Returns the text of the key of an element of a set, or of its data. Constants have
    /// the types of the fields.
    pub(crate) fn element_part(&self, value: &Expression, set: &SetRef, is_key: bool) -> String {
        let set = match set {
            SetRef::Named(name) => self.sets.get(name),
            SetRef::Anonymous(anonymous) => Some(&anonymous.set),
        };
        let fields = set.map_or(&[][..], |set| match &set.data {
            _ if is_key => &set.key,
            DataKind::Fields(fields) => fields,
            _ => &[],
        });
        let parts = value.parts();
        if parts.len() != fields.len() {
            return value.to_string();
        }
        let text = |(part, field): (&Expression, &Field)| match &part.0 {
            Term::Constant(bytes) => {
                let bytes = bytes.get(..field.bytes.into()).unwrap_or(bytes);
                let swapped = field.order() == ByteOrder::Big;
                Literal::new(field.datatype, bytes, swapped).to_string()
            }
            _ => part.to_string(),
        };
        let texts: Vec<_> = parts.iter().zip(fields).map(text).collect();
        texts.join(" . ")
    }

    /// Appends a verdict. A jump to an anonymous chain includes its rules.
    pub(crate) fn verdict(&mut self, verdict: &Verdict) {
        let block = verdict.chain().and_then(|chain| {
            let block = self.blocks.iter().find(|(name, _)| name == chain);
            block.map(|(_, block)| block.clone())
        });
        match (verdict, block) {
            (Verdict::Goto(_), Some(block)) => self.push(format_args!("goto {block}")),
            (_, Some(block)) => self.push(format_args!("jump {block}")),
            (verdict, None) => self.push(verdict),
        }
    }

    /// Returns the type of the objects that a map refers to: a counter if unknown.
    pub(crate) fn object_kind(&self, map: &SetRef) -> u32 {
        let map = match map {
            SetRef::Named(name) => self.sets.get(name),
            SetRef::Anonymous(anonymous) => Some(&anonymous.set),
        };
        match map.map(|map| &map.data) {
            Some(DataKind::Object(kind)) => *kind,
            _ => NFT_OBJECT_COUNTER,
        }
    }

    /// Appends a statement.
    pub(crate) fn push(&mut self, text: impl fmt::Display) {
        let text = text.to_string();
        self.parts.push(Part {
            left: None,
            text,
            kind: PartKind::Plain,
        });
    }

    /// Appends a statement with a left-hand side.
    fn push_with_left(&mut self, left: Expression, text: String, kind: PartKind) {
        self.parts.push(Part {
            left: Some(left),
            text,
            kind,
        });
    }

    /// Appends a comment for an expression without nft syntax.
    pub(crate) fn unknown(&mut self, name: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.push(format_args!("/* {name} {hex} */"));
    }

    /// Appends `expression set value`.
    pub(crate) fn set(&mut self, expression: Expression, source: Register) {
        let typed = expression.clone();
        self.set_as(expression, &typed, source);
    }

    /// Appends `expression set value`, with a value of the type of `typed`.
    pub(super) fn set_as(&mut self, expression: Expression, typed: &Expression, source: Register) {
        let value = self.slot(source).map(|slot| slot.expression.clone());
        // A rule of another program may assign a register that nothing known has filled.
        let value = value.unwrap_or_else(|| Expression::of(Term::Unknown));
        let value = self.context.shifted_field(&value, 0).unwrap_or(value);
        let is_big = typed.order() == ByteOrder::Big;
        let value = operand(&value, typed.datatype(), is_big);
        self.push_with_left(expression, format!("set {value}"), PartKind::Plain);
    }

    /// Appends `expression @set` or `expression != @set`.
    pub(crate) fn is_member(&mut self, key: Expression, invert: bool, set: &SetRef) {
        let key = self.name_key(key, set);
        let sign = match &key.0 {
            _ if invert => "!= ",
            // nft writes the operator behind a mask only: `ip daddr & 255.255.240.0 == @networks`.
            Term::Bits { .. } => "== ",
            _ => "",
        };
        let text = format!("{sign}{}", set_text(set, &key));
        self.push_with_left(key, text, PartKind::Plain);
    }

    /// Names the bits of header fields in the key of a set.
    pub(crate) fn name_key(&self, key: Expression, set: &SetRef) -> Expression {
        let key = self.context.name_last_bits(key);
        let SetRef::Anonymous(set) = set else {
            return key;
        };
        let ends = |element: &'_ crate::Element| {
            let last = element.key_end().unwrap_or_else(|| element.key_bytes());
            [Bytes::from(element.key_bytes()), Bytes::from(last)]
        };
        let values: Vec<Bytes> = set.elements.iter().flat_map(ends).collect();
        let values: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
        self.context.name_bits(key, &values)
    }

    /// Appends a verdict map lookup.
    pub(crate) fn vmap(&mut self, key: Expression, set: &SetRef) {
        let key = self.name_key(key, set);
        let text = format!("vmap {}", set_text(set, &key));
        self.push_with_left(key, text, PartKind::Plain);
    }

    /// Appends a comparison. Merges `>=` and `<=` of one expression into a range: nft writes a
    /// range as these two, and only `!=` of a range as one expression.
    pub(crate) fn compare(&mut self, left: Expression, op: CmpOp, data: Bytes, swapped: bool) {
        let left = self.context.name_bits(left, &[&data]);
        if let Some(Part {
            left: Some(of),
            kind: PartKind::AtLeast(first),
            ..
        }) = self.parts.last()
            && op == CmpOp::Le
            && *of == left
        {
            let text = range_text(&left, first, &data, swapped);
            self.parts.pop();
            return self.push_with_left(left, text, PartKind::Plain);
        }
        if let (Term::Payload { base, offset, .. }, CmpOp::Eq) = (&left.0, op)
            && let Some(parts) = self.context.split(*base, *offset, &data)
        {
            for (left, value) in parts {
                self.compare(left, op, value.into(), true);
            }
            return;
        }
        if let Some((left, prefix)) = self.prefix(&left, &data) {
            return self.push_with_left(left, format!("{}{prefix}", op.sign()), PartKind::Plain);
        }
        // Before `matched` makes this protocol the known one. A second match of a protocol is never
        // implied: the rule may contradict itself, and must be printed as it is.
        let is_first = self.context.transport().is_none();
        if op == CmpOp::Eq {
            self.context.matched(&left, &data);
        }
        let (left, text) = comparison(left, op, &data, swapped);
        let kind = match (&left.0, op, &*data) {
            (Term::Meta(MetaKey::L4Proto), CmpOp::Eq, [proto]) if is_first => {
                PartKind::Transport(*proto)
            }
            (_, CmpOp::Ge, _) => PartKind::AtLeast(data),
            _ => PartKind::Plain,
        };
        self.push_with_left(left, text, kind);
    }

    /// Appends a comparison with a range.
    pub(crate) fn compare_range(
        &mut self,
        left: Expression,
        op: CmpOp,
        from: &[u8],
        to: &[u8],
        swapped: bool,
    ) {
        let left = self.context.name_bits(left, &[from, to]);
        let text = format!("{}{}", op.sign(), range_text(&left, from, to, swapped));
        self.push_with_left(left, text, PartKind::Plain);
    }

    /// Returns whether a register holds a number in network byte order.
    pub(crate) fn is_swapped(&self, register: Register) -> bool {
        let is_big = |slot: &Slot| slot.expression.order() == ByteOrder::Big;
        self.slot(register)
            .is_some_and(|slot| slot.swapped || is_big(slot))
    }

    /// Returns the text of the expressions of an element.
    pub(crate) fn inner(&self, exprs: &[Expr]) -> String {
        // Without the sets: stateful expressions such as `counter` and `limit` refer to none.
        let mut inner = Self::new(self.family());
        for expr in exprs {
            inner.expr(expr);
        }
        let text = inner.finish();
        if text.is_empty() {
            text
        } else {
            format!(" {text}")
        }
    }

    /// Joins the statements, and leaves out each match of a protocol that the statement after it
    /// implies.
    pub(crate) fn finish(self) -> String {
        let mut text: Vec<String> = Vec::new();
        let mut parts = self.parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            if let (PartKind::Transport(proto), Some(next)) = (&part.kind, parts.peek_mut()) {
                // nft adds the protocol match when it reads the text. Only the next statement is
                // searched, because both nft and `Rule::new` put the match directly before.
                if next
                    .left
                    .as_mut()
                    .is_some_and(|left| names_protocol(left, *proto))
                {
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

/// Rewrites an expression to name the transport protocol.
///
/// Returns false if the expression does not belong to this protocol.
fn names_protocol(expression: &mut Expression, proto: u8) -> bool {
    match &mut expression.0 {
        Term::Header(field) if field.protocol == "th" => {
            // `icmp dport` is no expression, so `meta l4proto icmp th dport` stays.
            let Some(name) = name_with_ports(proto) else {
                return false;
            };
            expression.0 = Term::Port(name, field.name);
            true
        }
        Term::Header(field) => field.layer == Layer::Transport(proto),
        Term::Port(protocol, _) | Term::BitField(BitField { protocol, .. }) => {
            name_with_ports(proto) == Some(*protocol)
        }
        Term::Bits { of, .. } => names_protocol(of, proto),
        _ => false,
    }
}
