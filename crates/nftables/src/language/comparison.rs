//! Match statements and assignments: comparisons, lookups and stores.

use std::sync::Arc;

use crate::expr::{AnonymousSet, Cmp, CmpOp, Lookup, Range, Register, SetRef};
use crate::expression::{Expression, Term};
use crate::language::invalid::Reason;
use crate::language::lower::Lower;
use crate::language::operand::{Constant, Operand};
use crate::value::ByteOrder;
use crate::value::End;
use crate::{
    Bytes, DataKind, Datatype, Element, Family, Field, InvalidValue, Name, Set, SetFlags,
    Statement, TableId, Value,
};

/// Length of the longest interface name: `IFNAMSIZ`, without the NUL byte that ends it.
const MAX_IFNAME: usize = 15;

impl<T> Expression<T> {
    /// Matches a value, prefix or range: `ip daddr 10.0.0.1`, `ct state new`,
    /// `iifname "cni*"`, `tcp dport 1-5`.
    ///
    /// A conntrack state, conntrack status or TCP flag matches if any of the bits is set.
    /// A value that the expression cannot have makes the statement invalid, which
    /// [`Rule::new`](crate::Rule::new) reports.
    pub fn is(self, value: impl Operand<T>) -> Statement {
        self.compares(CmpOp::Eq, value)
    }

    /// Matches all other values: `ip daddr != 10.0.0.0/8`.
    ///
    /// Compares all bits, also of conntrack states, conntrack statuses and TCP flags.
    pub fn is_not(self, value: impl Operand<T>) -> Statement {
        self.compares(CmpOp::Ne, value)
    }

    /// Compares with an operator: `meta mark < 5`, `tcp dport >= 1024`.
    pub fn compares(self, op: CmpOp, value: impl Operand<T>) -> Statement {
        let (this, values) = (self.untyped(), value.into_values());
        let lower = this.clone().compare(op, &values);
        this.statement(&values, lower)
    }

    /// Matches one of several values, prefixes or ranges: `tcp dport { 22, 80 }`. The set is
    /// anonymous: it belongs to the rule.
    pub fn is_in<V: Operand<T>>(self, values: impl IntoIterator<Item = V>) -> Statement {
        self.anonymous(values, false)
    }

    /// Matches all other values: `tcp dport != { 22, 80 }`.
    pub fn is_not_in<V: Operand<T>>(self, values: impl IntoIterator<Item = V>) -> Statement {
        self.anonymous(values, true)
    }

    fn anonymous<V: Operand<T>>(
        self,
        values: impl IntoIterator<Item = V>,
        invert: bool,
    ) -> Statement {
        let this = self.untyped();
        let values: Vec<Vec<Value>> = values.into_iter().map(Operand::into_values).collect();
        for one in &values {
            if let Err(reason) = this.check_all(one) {
                return InvalidValue::new(&this, one, reason).into();
            }
        }
        let intervals = values.iter().flatten().any(Value::is_interval);
        match this.anonymous_set(intervals, &values) {
            Ok(set) => this.lookup(set, intervals, None, invert),
            Err(()) => InvalidValue::new(&this, &[], Reason::Type).into(),
        }
    }

    /// Matches the elements of a set: `ip daddr @set`.
    pub fn in_set(self, set: &Set) -> Statement {
        self.lookup(set.into(), set.has_intervals(), None, false)
    }

    /// Matches values that are not in a set: `ip daddr != @set`.
    pub fn not_in_set(self, set: &Set) -> Statement {
        self.lookup(set.into(), set.has_intervals(), None, true)
    }

    /// Applies the verdict of a map for the value: `ip daddr . tcp dport vmap @map`.
    pub fn vmap(self, map: &Set) -> Statement {
        self.lookup(
            map.into(),
            map.has_intervals(),
            Some(Register::VERDICT),
            false,
        )
    }

    /// Returns the data that the value maps to: `ip daddr map @m`.
    #[must_use]
    pub fn map(self, map: &Set) -> Expression {
        let data = match &map.data {
            DataKind::Fields(fields) => fields.clone(),
            _ => Vec::new(),
        };
        Expression::of(Term::Map {
            of: Box::new(self.untyped()),
            set: map.into(),
            data,
        })
    }

    /// Returns the data that the value maps to in a map with unknown fields.
    pub(crate) fn map_by(self, set: SetRef) -> Expression {
        Expression::of(Term::Map {
            of: Box::new(self.untyped()),
            set,
            data: Vec::new(),
        })
    }

    /// Assigns the value of another expression: `meta mark set meta mark | 0x4000`.
    ///
    /// Both must have the same size. What can be assigned is decided by the kernel.
    pub fn set<U>(self, value: &Expression<U>) -> Statement {
        let (this, value) = (self.untyped(), value.clone().untyped());
        match this.assign(&value) {
            Ok(lower) => Statement::from_lower(lower),
            Err(reason) => InvalidValue::of_assignment(&this, &value, reason).into(),
        }
    }

    /// Assigns a constant: `meta mark set 0x4000`.
    pub fn set_to(self, value: impl Constant<T>) -> Statement {
        let (this, values) = (self.untyped(), value.into_values());
        let lower = this.assign_constant(&values);
        this.statement(&values, lower)
    }

    fn lookup(
        self,
        set: SetRef,
        intervals: bool,
        destination: Option<Register>,
        invert: bool,
    ) -> Statement {
        let mut lower = Lower {
            intervals,
            ..Lower::default()
        };
        let source = lower.value(&self);
        if intervals && !matches!(self.0, Term::Concat(_)) {
            lower.convert_to_network_order(0, &self);
        }
        lower.push(Lookup {
            set,
            source,
            destination,
            invert,
        });
        Statement::from_lower(lower)
    }
}

impl Expression {
    fn statement(&self, values: &[Value], lower: Result<Lower, Reason>) -> Statement {
        match lower {
            Ok(lower) => Statement::from_lower(lower),
            Err(reason) => InvalidValue::new(self, values, reason).into(),
        }
    }

    fn anonymous_set(&self, intervals: bool, values: &[Vec<Value>]) -> Result<SetRef, ()> {
        let pattern = |text| Name::new(text).expect("a constant that is a name");
        // A placeholder. The encoder uses the table of the rule.
        let table = TableId::new(Family::Inet, pattern("-"));
        let mut flags = SetFlags::ANONYMOUS | SetFlags::CONSTANT;
        flags.set(SetFlags::INTERVAL, intervals);
        let fields: Vec<Field> = self.clone().into_fields();
        let set = Set::new(table, pattern("__set%d"), fields).with_flags(flags);
        let elements = values.iter().map(|value| set.element(value));
        let elements: Result<Vec<Element>, _> = elements.collect();
        Ok(SetRef::Anonymous(Arc::new(AnonymousSet {
            elements: elements.map_err(drop)?,
            set,
        })))
    }

    /// Checks one value for each field.
    fn check_all(&self, values: &[Value]) -> Result<(), Reason> {
        let parts = self.parts();
        if parts.len() != values.len() {
            return Err(Reason::Fields(parts.len()));
        }
        let mut pairs = parts.iter().zip(values);
        pairs.try_for_each(|(part, value)| part.check(value))
    }

    /// Checks that the expression can have a value.
    pub(crate) fn check(&self, value: &Value) -> Result<(), Reason> {
        let datatype = self.datatype();
        let is_text = matches!(datatype, Datatype::Ifname | Datatype::String);
        let is_addr = matches!(datatype, Datatype::Ipv4Addr | Datatype::Ipv6Addr);
        let may_be_addr = is_addr
            || matches!(
                datatype,
                Datatype::Integer | Datatype::LlAddr | Datatype::Other(_)
            );
        let is_type = match value {
            Value::Addr(_) | Value::Prefix(_) => may_be_addr,
            Value::Integer(_) => !is_text && !is_addr,
            Value::Text(_) => is_text,
            Value::Bytes(_) => true,
            Value::Range(ends) => {
                let (first, last) = &**ends;
                if first.is_interval() || last.is_interval() {
                    return Err(Reason::Type);
                }
                self.check(first)?;
                self.check(last)?;
                let written = |end| self.bytes_of(value, ByteOrder::Big, end);
                if written(End::First)? > written(End::Last)? {
                    return Err(Reason::EmptyRange);
                }
                true
            }
        };
        if !is_type {
            return Err(Reason::Type);
        }
        if let (Value::Text(name), Datatype::Ifname) = (value, datatype) {
            let name = name.strip_suffix(b"*").unwrap_or(name);
            let is_name = |byte: &u8| !byte.is_ascii_whitespace() && !b"/:".contains(byte);
            if name.is_empty() || name.len() > MAX_IFNAME || !name.iter().all(is_name) {
                return Err(Reason::Ifname);
            }
        }
        self.bytes_of(value, self.order(), End::First).map(drop)
    }

    /// Returns one end of a value, encoded as the expression.
    pub(crate) fn bytes_of(
        &self,
        value: &Value,
        order: ByteOrder,
        end: End,
    ) -> Result<Bytes, Reason> {
        let mut out = Bytes::new();
        match value.write(self.bytes(), order, end, &mut out) {
            true => Ok(out),
            false => Err(Reason::Size(self.bytes())),
        }
    }

    fn compare(self, op: CmpOp, values: &[Value]) -> Result<Lower, Reason> {
        self.check_all(values)?;
        let value = match values {
            [value] => value,
            values => return self.compare_concatenation(op, values),
        };
        let mut lower = Lower::default();
        let source = Register::word(0);
        let first = |order| self.bytes_of(value, order, End::First);
        match value {
            Value::Prefix(net) if net.prefix_len() < net.max_prefix_len() => {
                if !matches!(op, CmpOp::Eq | CmpOp::Ne) {
                    return Err(Reason::Order);
                }
                let len = usize::from(net.prefix_len());
                let data = lower.load_prefix(&self, len, first(ByteOrder::Big)?);
                lower.push(Cmp { source, op, data });
            }
            Value::Range(_) => {
                lower.value(&self);
                lower.convert_to_network_order(0, &self);
                let from = first(ByteOrder::Big)?;
                let to = self.bytes_of(value, ByteOrder::Big, End::Last)?;
                match op {
                    CmpOp::Ne => lower.push(Range {
                        source,
                        invert: true,
                        from,
                        to,
                    }),
                    CmpOp::Eq => {
                        for (op, data) in [(CmpOp::Ge, from), (CmpOp::Le, to)] {
                            lower.push(Cmp { source, op, data });
                        }
                    }
                    _ => return Err(Reason::Order),
                }
            }
            Value::Text(text) if text.ends_with(b"*") => {
                lower.value(&self);
                let data = text.get(..text.len() - 1).unwrap_or(text).into();
                lower.push(Cmp { source, op, data });
            }
            _ if op == CmpOp::Eq && self.is_bitmask() => {
                let mask = first(self.order())?;
                let none = Bytes::repeat(0, mask.len());
                lower.value(&self.clone().with_bits(mask, none.clone()));
                lower.push(Cmp {
                    source,
                    op: CmpOp::Ne,
                    data: none,
                });
            }
            _ => {
                lower.value(&self);
                let is_ordered = !matches!(op, CmpOp::Eq | CmpOp::Ne);
                if is_ordered {
                    lower.convert_to_network_order(0, &self);
                }
                let order = match is_ordered {
                    true => ByteOrder::Big,
                    false => self.order(),
                };
                let data = first(order)?;
                lower.push(Cmp { source, op, data });
            }
        }
        Ok(lower)
    }

    /// Compares all fields at once: `ip daddr . tcp dport 10.0.0.1 . 80`.
    fn compare_concatenation(&self, op: CmpOp, values: &[Value]) -> Result<Lower, Reason> {
        if !matches!(op, CmpOp::Eq | CmpOp::Ne) {
            return Err(Reason::Order);
        }
        if values.iter().any(Value::is_interval) {
            return Err(Reason::Interval);
        }
        let mut data = Bytes::new();
        for (part, value) in self.parts().iter().zip(values) {
            data.extend(&part.bytes_of(value, part.order(), End::First)?);
            data.pad();
        }
        let mut lower = Lower::default();
        let source = lower.value(self);
        lower.push(Cmp { source, op, data });
        Ok(lower)
    }

    fn assign_constant(&self, values: &[Value]) -> Result<Lower, Reason> {
        self.check_all(values)?;
        let [value] = values else {
            return Err(Reason::NotAssignable);
        };
        if value.is_interval() || matches!(value, Value::Text(text) if text.ends_with(b"*")) {
            return Err(Reason::Interval);
        }
        let bytes = self.bytes_of(value, self.order(), End::First)?;
        self.assign(&Self::of(Term::Constant(bytes)))
    }

    fn assign(&self, value: &Self) -> Result<Lower, Reason> {
        let mut lower = Lower::default();
        // The data of a map that only its name refers to have an unknown size.
        if value.bytes() != self.bytes() && value.bytes() != 0 {
            return Err(Reason::Size(self.bytes()));
        }
        if lower.store_in_words(self, value)? {
            return Ok(lower);
        }
        let source = lower.value(value);
        let is_constant = matches!(value.0, Term::Constant(_));
        match (self.order(), value.order()) {
            (ByteOrder::Big, ByteOrder::Host) => lower.convert_to_network_order(0, value),
            (ByteOrder::Host, ByteOrder::Big) if !is_constant => {
                lower.convert_to_host_order(0, value);
            }
            _ => {}
        }
        lower.store(self, source)?;
        Ok(lower)
    }

    fn is_bitmask(&self) -> bool {
        let bits = matches!(
            self.datatype(),
            Datatype::CtState | Datatype::CtStatus | Datatype::TcpFlag
        );
        bits && !matches!(self.0, Term::Bits { .. })
    }
}
