//! Deserialization of typed objects from a tree. Errors name the field.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::fault::{Fault, Position};
use super::tree::{Node, Value};

/// Deserializes a value from a tree.
///
/// # Errors
///
/// The type does not match. The fault has field and position.
pub fn read<'de, T: Deserialize<'de>>(node: &'de Node<'de>) -> Result<T, Fault> {
    T::deserialize(Reader(node)).map_err(|mut fault| {
        if fault.at.line == 0 {
            fault.at = node.at;
        }
        fault
    })
}

/// Deserializer of a node.
#[derive(Clone, Copy)]
struct Reader<'de>(&'de Node<'de>);

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Signed(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items { items, next: 0 }),
            Value::Map(entries) => visitor.visit_map(Entries {
                entries,
                value: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// Accepts only an object: serde would also accept a list.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.0.value {
            Value::List(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    /// Accepts the name of a variant.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Text(text) => visitor.visit_enum(StrDeserializer::new(text)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier
    }
}

struct Items<'de> {
    items: &'de [Node<'de>],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        let Some(node) = self.items.get(self.next) else {
            return Ok(None);
        };
        let index = self.next;
        self.next += 1;
        let item = seed.deserialize(Reader(node));
        item.map(Some)
            .map_err(|fault| fault.in_item(index, node.at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len() - self.next)
    }
}

struct Entries<'de> {
    entries: &'de [(String, Node<'de>)],
    value: Option<&'de (String, Node<'de>)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        let Some((entry, rest)) = self.entries.split_first() else {
            return Ok(None);
        };
        self.entries = rest;
        self.value = Some(entry);
        let key: StrDeserializer<'_, Fault> = entry.0.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let Some((name, node)) = self.value.take() else {
            return Err(de::Error::custom("value requested before its key"));
        };
        seed.deserialize(Reader(node))
            .map_err(|fault| fault.in_field(name, node.at))
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self::new(Position::default(), "", reason.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!(
            "expected {}, found {}",
            ExpectedType(expected),
            FoundValue(found)
        ))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Position::default(), field, "missing")
    }
}

/// An expected type, in terms of YAML.
struct ExpectedType<'a>(&'a dyn Expected);

impl fmt::Display for ExpectedType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.to_string().as_str() {
            "u16" => f.write_str("a number from 0 to 65535"),
            "i32" => f.write_str("a number from -2147483648 to 2147483647"),
            "u32" => f.write_str("a number from 0 to 4294967295"),
            "f32" => f.write_str("a number"),
            "a boolean" => f.write_str("true or false"),
            "a string" => f.write_str("a string"),
            "a sequence" => f.write_str("a list"),
            "a map" => f.write_str("an object"),
            text if text.starts_with("struct ") => f.write_str("an object"),
            text => f.write_str(text),
        }
    }
}

/// A found value, in terms of YAML.
struct FoundValue<'a>(Unexpected<'a>);

impl fmt::Display for FoundValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unexpected::Unit | Unexpected::Option => f.write_str("null"),
            Unexpected::Bool(value) => write!(f, "{value}"),
            Unexpected::Unsigned(value) => write!(f, "{value}"),
            Unexpected::Signed(value) => write!(f, "{value}"),
            Unexpected::Float(value) => write!(f, "{value}"),
            Unexpected::Str(text) => write!(f, "the string {text:?}"),
            Unexpected::Seq => f.write_str("a list"),
            Unexpected::Map => f.write_str("an object"),
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use vipline_service_model::api::{EndpointSlice, Service, TransportProtocol};

    use super::super::tree;
    use super::*;

    fn read_service(text: &str) -> Result<Service, Fault> {
        let documents = tree::read(text).unwrap();
        read(&documents[0])
    }

    fn line(fault: &Fault) -> String {
        format!(
            "{}:{} {}: {}",
            fault.at.line, fault.at.column, fault.path, fault.reason
        )
    }

    #[test]
    fn a_service_is_read_and_unknown_fields_are_ignored() {
        let service = read_service(
            "apiVersion: v1\nkind: Service\nmetadata: {name: web, uid: 5, labels: null}\n\
             spec: {clusterIP: 10.0.0.1, selector: {a: b}, ports: [{port: 80, targetPort: x}]}\n",
        );
        let service = service.unwrap();
        assert_eq!(service.metadata.name, "web");
        assert_eq!(service.spec.ports[0].port, 80);
        assert_eq!(service.spec.ports[0].protocol, TransportProtocol::Tcp);
    }

    #[test]
    fn an_enumeration_is_read_from_the_name_of_its_variant() {
        #[derive(Debug, serde::Deserialize, PartialEq)]
        #[serde(rename_all = "camelCase")]
        enum Color {
            LightGreen,
            Red,
        }
        let read_list = |text: &str| {
            let documents = tree::read(text).unwrap();
            read::<Vec<Color>>(&documents[0])
        };
        let colors = read_list("[red, lightGreen]");
        assert_eq!(colors.unwrap(), [Color::Red, Color::LightGreen]);
        let unknown = read_list("- red\n- blue").unwrap_err();
        assert_eq!(
            line(&unknown),
            "2:3 [1]: unknown variant `blue`, expected `lightGreen` or `red`"
        );
        let number = read_list("[7]").unwrap_err();
        assert!(line(&number).starts_with("1:2 [0]: expected "), "{number}");
    }

    #[test]
    fn a_fault_names_field_position_and_both_types() {
        let cases = [
            ("metadata: {}", "1:11 metadata.name: missing"),
            ("spec: {}", "1:1 metadata: missing"),
            (
                "metadata:\n  name: 7",
                "2:9 metadata.name: expected a string, found 7",
            ),
            (
                "metadata: {name: a}\nspec:\n  ports:\n  - port: http",
                "4:11 spec.ports[0].port: expected a number from 0 to 65535, found the string \"http\"",
            ),
            (
                "metadata: {name: a}\nspec: {ports: [{port: 1}, {port: 70000}]}",
                "2:34 spec.ports[1].port: expected a number from 0 to 65535, found 70000",
            ),
            (
                "metadata: {name: a}\nspec: {ports: {port: 1}}",
                "2:15 spec.ports: expected a list, found an object",
            ),
            (
                "metadata: {name: a, labels: {x.y/z: true}}",
                "1:37 metadata.labels[\"x.y/z\"]: expected a string, found true",
            ),
            (
                "metadata: [1]",
                "1:11 metadata: expected an object, found a list",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(line(&read_service(text).unwrap_err()), expected, "{text}");
        }
    }

    #[test]
    fn a_slice_is_read_with_absent_conditions() {
        let text = "metadata: {name: a}\naddressType: IPv6\nports: [{port: 80, name: null}]\n\
                    endpoints: [{addresses: ['::1'], conditions: {ready: false}}]\n";
        let documents = tree::read(text).unwrap();
        let slice: EndpointSlice = read(&documents[0]).unwrap();
        assert_eq!(slice.ports[0].name, None);
        assert_eq!(slice.endpoints[0].conditions.ready, Some(false));
        assert_eq!(slice.endpoints[0].conditions.serving, None);
    }
}
