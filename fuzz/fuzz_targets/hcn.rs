//! Reads arbitrary bytes as documents of HNS, and checks that nothing is lost.

use std::fmt::Debug;

use serde_json::Value;
use vipline_hcn::{Endpoint, EndpointPolicy, LoadBalancer, ModifyRequest, Network, Policy, Query};

/// Returns whether JSON has a number that may change when it is printed and parsed.
fn has_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(elements) => elements.iter().any(has_float),
        Value::Object(members) => members.values().any(has_float),
        _ => false,
    }
}

/// Checks that a document survives a round trip, and keeps members of unknown names.
fn check<T>(text: &[u8])
where
    T: serde::de::DeserializeOwned + serde::Serialize + PartialEq + Debug,
{
    let Ok(read) = serde_json::from_slice::<T>(text) else {
        return;
    };
    let written = serde_json::to_string(&read).expect("a document has JSON");
    let again: T = serde_json::from_str(&written).expect("a written document is valid");
    assert_eq!(again, read);
    assert_eq!(
        serde_json::to_string(&again).expect("a document has JSON"),
        written
    );
}

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) if !has_float(&value) => {}
        _ => return,
    }
    check::<Network>(bytes);
    check::<Endpoint>(bytes);
    check::<LoadBalancer>(bytes);
    check::<Policy<EndpointPolicy>>(bytes);
    check::<ModifyRequest>(bytes);
    check::<Query>(bytes);
    if let Ok(query) = serde_json::from_slice::<Query>(bytes) {
        let _ = query.filter();
    }
}
