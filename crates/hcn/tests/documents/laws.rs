//! Random documents survive a round trip.

use proptest::prelude::*;
use serde_json::{Map, Value};
use vipline_hcn::{Endpoint, EndpointPolicy, Features, Id, LoadBalancer, Network, Policy, Version};

use super::Node;

/// Returns JSON of any form.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        "[A-Za-z0-9:./-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[A-Za-z]{1,8}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Returns members that replace or extend those of a document.
fn members() -> impl Strategy<Value = Map<String, Value>> {
    let names = prop::sample::select(vec![
        "ID",
        "Name",
        "Flags",
        "Policies",
        "PortMappings",
        "FrontendVIPs",
        "IpConfigurations",
        "State",
        "Type",
    ]);
    let member = (names.prop_map(str::to_owned), json());
    prop::collection::vec(member, 0..4).prop_map(|members| members.into_iter().collect())
}

/// Returns a document without members that are defaults, as this crate writes it.
fn without_defaults(value: Value) -> Value {
    let is_default = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) => false,
    };
    match value {
        Value::Array(elements) => elements.into_iter().map(without_defaults).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            let members = members.map(|(name, value)| (name, without_defaults(value)));
            members.filter(|(_, value)| !is_default(value)).collect()
        }
        value => value,
    }
}

/// Reads a document, and checks that nothing but defaults is lost.
fn check<T>(document: &Value) -> Result<(), TestCaseError>
where
    T: serde::de::DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug,
{
    let Ok(read) = T::deserialize(document) else {
        return Ok(());
    };
    let written = serde_json::to_value(&read).expect("a document has JSON");
    let again = T::deserialize(&written).expect("a written document is valid");
    prop_assert_eq!(again, read);
    prop_assert_eq!(
        without_defaults(written),
        without_defaults(document.clone())
    );
    Ok(())
}

proptest! {
    #[test]
    fn documents_with_changed_members_are_read_without_loss(
        changes in members(),
        kind in 0..3_usize,
        index in 0..2_usize,
    ) {
        let node: Value = serde_json::from_str(super::OVERLAY).unwrap();
        let mut document = node[["Networks", "Endpoints", "LoadBalancers"][kind]][index].clone();
        document.as_object_mut().unwrap().extend(changes);
        match kind {
            0 => check::<Network>(&document)?,
            1 => check::<Endpoint>(&document)?,
            _ => check::<LoadBalancer>(&document)?,
        }
    }

    #[test]
    fn policies_of_any_type_are_read_without_loss(settings in json(), index in 0..8_usize) {
        let types = ["ACL", "QOS", "SDNRoute", "L4WFPPROXY", "TierAcl", "Iov", "PortMapping", "New"];
        let policy = serde_json::json!({"Type": types[index], "Settings": settings});
        let read: Policy<EndpointPolicy> = serde_json::from_value(policy.clone()).unwrap();
        let written = serde_json::to_value(&read).unwrap();
        prop_assert_eq!(&serde_json::from_value::<Policy<EndpointPolicy>>(written.clone()).unwrap(), &read);
        let written = without_defaults(written);
        let policy = without_defaults(policy);
        prop_assert_eq!(written, policy);
    }

    #[test]
    fn a_guid_survives_a_round_trip(guid in any::<u128>()) {
        prop_assert_eq!(Id::from_u128(guid).to_u128(), Some(guid));
        let lower = Id::new(&Id::from_u128(guid).as_str().to_lowercase());
        prop_assert_eq!(lower, Id::from_u128(guid));
    }

    #[test]
    fn a_later_minor_version_keeps_all_features(major in 0..20_u32, minor in 0..20_u32) {
        let features = Features::of(Version::new(major, minor));
        prop_assert!(Features::of(Version::new(major, minor + 1)).contains(features));
    }
}

#[test]
fn the_seed_of_the_laws_is_valid() {
    let node: Node = serde_json::from_str(super::OVERLAY).unwrap();
    assert_eq!((node.networks.len(), node.endpoints.len()), (2, 2));
    assert_eq!(node.load_balancers.len(), 2);
}
