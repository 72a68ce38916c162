//! Match statements: comparisons and lookups.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::datatype::ByteOrder;
use crate::expr::{AnonymousSet, Cmp, CmpOp, Lookup, Range, Register, SetRef};
use crate::expression::{Expression, Term};
use crate::lower::Lower;
use crate::value::End;
use crate::{
    Bytes, Datatype, Element, Family, Field, InvalidElement, Name, Set, SetFlags, Statement,
    TableId, Value,
};

impl Expression {
    /// Matches a value, prefix or range: `ip daddr 10.0.0.1`, `ct state new`,
    /// `iifname "cni*"`, `tcp dport 1-5`.
    ///
    /// The value must have the size of the expression. This function does not check
    /// the size: with another size the kernel rejects the rule, or no packet matches.
    /// A conntrack state, conntrack status or TCP flag matches if any of the bits is
    /// set.
    pub fn is(self, value: impl Into<Value>) -> Statement {
        self.compare(CmpOp::Eq, &value.into())
    }

    /// Matches all other values: `ip daddr != 10.0.0.0/8`.
    ///
    /// Compares all bits, also of conntrack states, conntrack statuses and TCP flags.
    pub fn is_not(self, value: impl Into<Value>) -> Statement {
        self.compare(CmpOp::Ne, &value.into())
    }

    /// Compares with an operator: `meta mark < 5`, `tcp dport >= 1024`.
    pub fn compares(self, op: CmpOp, value: impl Into<Value>) -> Statement {
        self.compare(op, &value.into())
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

    /// Matches the values of an anonymous set: `meta l4proto { tcp, udp }`.
    ///
    /// Each value of a concatenation is a list with one value per field.
    /// With a prefix or a range the set has intervals.
    ///
    /// # Errors
    ///
    /// [`InvalidElement`] if a value does not fit the expression.
    pub fn is_one_of<V: AsRef<[Value]>>(
        self,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Statement, InvalidElement> {
        let values: Vec<V> = values.into_iter().collect();
        let wide = |value: &Value| matches!(value, Value::Prefix(_) | Value::Range(_));
        let intervals = values.iter().any(|value| value.as_ref().iter().any(wide));
        let set = self.anonymous_set(intervals, &values)?;
        Ok(self.lookup(set, intervals, None, false))
    }

    fn anonymous_set<V: AsRef<[Value]>>(
        &self,
        intervals: bool,
        values: &[V],
    ) -> Result<SetRef, InvalidElement> {
        let pattern = |text| Name::new(text).expect("a constant that is a name");
        // A placeholder. The encoder uses the table of the rule.
        let table = TableId::new(Family::Inet, pattern("-"));
        let fields: Vec<Field> = self.parts().iter().cloned().map(Field::from).collect();
        let mut flags = SetFlags::ANONYMOUS | SetFlags::CONSTANT;
        flags.set(SetFlags::INTERVAL, intervals);
        let set = Set::set(table, pattern("__set%d"), fields).with_flags(flags);
        let elements: Result<Vec<Element>, _> = values
            .iter()
            .map(|value| set.element(value.as_ref()))
            .collect();
        Ok(SetRef::Anonymous(Arc::new(AnonymousSet {
            elements: elements?,
            set,
        })))
    }

    /// Assigns the value of another expression: `meta mark set meta mark | 0x4000`.
    pub fn set(self, value: &Self) -> Statement {
        let mut lower = Lower::default();
        let source = lower.value(value);
        if self.order() == ByteOrder::Big {
            lower.convert_to_network_order(0, value);
        }
        lower.store(&self, source);
        Statement::from_lower(lower)
    }

    /// Assigns a constant: `meta mark set 0x4000`.
    pub fn set_to(self, value: impl Into<Value>) -> Statement {
        let (first, _) = self.bytes_of(&value.into(), self.order());
        self.set(&Self::constant(first))
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

    fn bytes_of(&self, value: &Value, order: ByteOrder) -> (Bytes, Bytes) {
        let written = |end| {
            let mut out = Bytes::new();
            value
                .write(self.bytes(), order, end, &mut out)
                .then_some(out)
        };
        if let (Some(first), Some(last)) = (written(End::First), written(End::Last)) {
            return (first, last);
        }
        let bytes = match value {
            Value::Addr(IpAddr::V4(addr)) => Bytes::from(addr.octets()),
            Value::Addr(IpAddr::V6(addr)) => Bytes::from(addr.octets()),
            Value::Prefix(IpNet::V4(net)) => Bytes::from(net.network().octets()),
            Value::Prefix(IpNet::V6(net)) => Bytes::from(net.network().octets()),
            Value::Bytes(bytes) | Value::Text(bytes) => bytes.clone(),
            _ => Bytes::repeat(0xff, usize::from(self.bytes())),
        };
        (bytes.clone(), bytes)
    }

    fn compare(self, op: CmpOp, value: &Value) -> Statement {
        let mut lower = Lower::default();
        let source = Register::word(0);
        match value {
            Value::Prefix(net) if net.prefix_len() < net.max_prefix_len() => {
                let len = usize::from(net.prefix_len());
                let (first, _) = self.bytes_of(value, ByteOrder::Big);
                let data = lower.load_prefix(&self, len, first);
                lower.push(Cmp { source, op, data });
            }
            Value::Range(_) => {
                lower.value(&self);
                lower.convert_to_network_order(0, &self);
                let (from, to) = self.bytes_of(value, ByteOrder::Big);
                if op == CmpOp::Ne {
                    lower.push(Range {
                        source,
                        invert: true,
                        from,
                        to,
                    });
                } else {
                    lower.push(Cmp {
                        source,
                        op: CmpOp::Ge,
                        data: from,
                    });
                    lower.push(Cmp {
                        source,
                        op: CmpOp::Le,
                        data: to,
                    });
                }
            }
            Value::Text(text) if text.ends_with(b"*") => {
                lower.value(&self);
                let data = text.get(..text.len() - 1).unwrap_or(text).into();
                lower.push(Cmp { source, op, data });
            }
            _ if op == CmpOp::Eq && self.is_bitmask() => {
                let (mask, _) = self.bytes_of(value, self.order());
                let none = Bytes::repeat(0, mask.len());
                lower.value(&self.with_bits(mask, none.clone()));
                lower.push(Cmp {
                    source,
                    op: CmpOp::Ne,
                    data: none,
                });
            }
            _ => {
                lower.value(&self);
                let ordered = !matches!(op, CmpOp::Eq | CmpOp::Ne);
                if ordered {
                    lower.convert_to_network_order(0, &self);
                }
                let order = if ordered {
                    ByteOrder::Big
                } else {
                    self.order()
                };
                let (data, _) = self.bytes_of(value, order);
                lower.push(Cmp { source, op, data });
            }
        }
        Statement::from_lower(lower)
    }

    fn is_bitmask(&self) -> bool {
        let bits = matches!(
            self.datatype(),
            Datatype::CtState | Datatype::CtStatus | Datatype::TcpFlag
        );
        bits && !matches!(self.0, Term::Bits { .. })
    }
}
