//! The text of anonymous sets.

use super::display::{fmt_data, fmt_options, literal, number, prefix_len, wildcard};
use crate::bytes::zip;
use crate::datatype::ByteOrder;
use crate::expr::{AnonymousSet, SetRef};
use crate::expression::Expression;
use crate::field::split;
use crate::{Datatype, Element, Field};

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
