//! Access to members of JSON objects; an absent member is null.

use serde_json::Value;

/// Returns the member at a JSON pointer.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    // `Value::pointer` allocates two strings for each step of the pointer.
    if pointer.contains('~') {
        return value.pointer(pointer).unwrap_or(&Value::Null);
    }
    let mut steps = pointer.split('/').skip(1);
    let member = steps.try_fold(value, |value, step| match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        _ => value.get(step),
    });
    member.unwrap_or(&Value::Null)
}

/// Returns a string, or an empty one if absent.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).as_str().unwrap_or_default()
}

/// Returns a number, or 0 if absent.
pub(crate) fn number(value: &Value, pointer: &str) -> i64 {
    at(value, pointer).as_i64().unwrap_or_default()
}

/// Returns the elements of a list, or none if absent.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    at(value, pointer).as_array().map_or(&[], |list| list)
}

/// Returns the strings of a list.
pub(crate) fn texts<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    let elements = list(value, pointer).iter();
    elements.filter_map(Value::as_str).collect()
}

/// Returns the members of an object as strings.
pub(crate) fn labels<'a>(
    value: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let members = at(value, pointer).as_object().into_iter().flatten();
    members.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// Removes a member of an object, if both exist.
pub(crate) fn remove(value: &mut Value, pointer: &str, member: &str) {
    let object = value.pointer_mut(pointer).and_then(Value::as_object_mut);
    if let Some(object) = object {
        object.remove(member);
    }
}
