//! Proposals of hostile objects, most of which are valid.
//!
//! Names, addresses and ports are chosen from small pools, so that objects collide:
//! Services contest addresses, slices overlap, names are reused.

mod node;

pub mod pool;

mod service;

mod slice;

use serde_json::{Value, json};
use vipline_service_model::Kind;
use vipline_service_model::arbitrary::Dice;

use crate::{Change, Cluster, Id, Proposal};

/// Number of rejected proposals after which a step fails.
const ATTEMPTS: usize = 100;

/// Proposes changes of a cluster until one is admitted, and returns its watch event.
///
/// # Panics
///
/// If none of 100 proposals is valid.
pub fn step(cluster: &mut Cluster, dice: &mut Dice) -> Change {
    for _ in 0..ATTEMPTS {
        let proposal = proposal(cluster, dice);
        if let Ok(Some(change)) = cluster.admit(proposal) {
            return change;
        }
    }
    panic!("none of {ATTEMPTS} proposals is valid");
}

/// Proposes a change of a cluster.
pub fn proposal(cluster: &Cluster, dice: &mut Dice) -> Proposal {
    let kind = kind(cluster, dice);
    let id = id(cluster, kind, dice);
    let Some(old) = cluster.get(&id) else {
        return Proposal::Create(kind, object(cluster, dice, &id, None));
    };
    match dice.roll(8) {
        0 | 1 => Proposal::Delete(id),
        2 | 3 if matches!(kind, Kind::Service | Kind::Node) => {
            let mut object = old.clone();
            object["status"] = match kind {
                Kind::Service => service::status(dice),
                _ => node::status(dice),
            };
            Proposal::UpdateStatus(kind, object)
        }
        _ => Proposal::Update(kind, object(cluster, dice, &id, Some(old))),
    }
}

/// Proposes an object near the size limits of the API: hundreds of ports or 1,000
/// endpoints.
pub fn giant(cluster: &Cluster, dice: &mut Dice) -> Proposal {
    let kind = dice.pick(&[Kind::Service, Kind::EndpointSlice]);
    let id = id(cluster, kind, dice);
    let old = cluster.get(&id);
    let mut object = object(cluster, dice, &id, old);
    match kind {
        Kind::Service => service::grow(&mut object, dice),
        _ => slice::grow(&mut object, dice),
    }
    match old {
        None => Proposal::Create(kind, object),
        Some(_) => Proposal::Update(kind, object),
    }
}

/// Replaces one string or number in an object, or repeats or removes an element of a
/// list. The object may become invalid.
pub fn corrupt(object: &mut Value, dice: &mut Dice) {
    let mut pointers = Vec::new();
    collect(&object["spec"], "/spec", &mut pointers);
    collect(&object["status"], "/status", &mut pointers);
    for field in ["endpoints", "ports", "addressType"] {
        collect(&object[field], &format!("/{field}"), &mut pointers);
    }
    if pointers.is_empty() {
        return;
    }
    let place = below(dice, pointers.len());
    let Some(value) = object.pointer_mut(&pointers[place]) else {
        return;
    };
    match value {
        Value::String(text) => *text = dice.pick(&pool::ODD_TEXTS).to_owned(),
        Value::Number(number) => {
            *number = dice
                .pick(&[0, 1, -1, 53, 65_535, 65_536, 70_000, 30_001, 86_401])
                .into();
        }
        Value::Bool(flag) => *flag = !*flag,
        Value::Array(list) if dice.once_in(2) => drop(list.pop()),
        Value::Array(list) => list.extend(list.first().cloned()),
        Value::Null | Value::Object(_) => {}
    }
}

/// Collects JSON pointers to a value and all its members.
fn collect(value: &Value, pointer: &str, into: &mut Vec<String>) {
    match value {
        Value::Null => return,
        Value::Array(list) => {
            for (index, each) in list.iter().enumerate() {
                collect(each, &format!("{pointer}/{index}"), into);
            }
        }
        Value::Object(members) => {
            for (key, each) in members.iter().filter(|(key, _)| *key != "selector") {
                collect(each, &format!("{pointer}/{key}"), into);
            }
            return;
        }
        _ => {}
    }
    into.push(pointer.to_owned());
}

/// Chooses a kind: Services first, then slices, then all kinds that a proxy reads.
fn kind(cluster: &Cluster, dice: &mut Dice) -> Kind {
    let has = |kind| cluster.objects().any(|(id, _)| id.kind == kind);
    match dice.roll(16) {
        0..14 if !has(Kind::Service) => Kind::Service,
        2..13 if !has(Kind::EndpointSlice) => Kind::EndpointSlice,
        0..6 => Kind::Service,
        6..13 => Kind::EndpointSlice,
        13 | 14 => Kind::Node,
        _ => Kind::ServiceCidr,
    }
}

/// Returns an identity, mostly of an existing object or of a slice of an existing
/// Service.
fn id(cluster: &Cluster, kind: Kind, dice: &mut Dice) -> Id {
    let of_kind = |kind| {
        let objects = cluster.objects().map(|(id, _)| id);
        objects
            .filter(move |id| id.kind == kind)
            .collect::<Vec<_>>()
    };
    let held = of_kind(kind);
    if !held.is_empty() && dice.once_in(2) {
        return held[below(dice, held.len())].clone();
    }
    let services = of_kind(Kind::Service);
    if kind == Kind::EndpointSlice && !services.is_empty() && !dice.once_in(4) {
        let service = services[below(dice, services.len())];
        return Id {
            kind,
            namespace: service.namespace.clone(),
            name: format!("{}-{}", service.name, dice.roll(3)),
        };
    }
    let namespace = dice.pick(&pool::NAMESPACES).into();
    let (namespace, name) = match kind {
        Kind::Service => (namespace, dice.pick(&pool::SERVICES).into()),
        Kind::EndpointSlice => (namespace, slice::name(dice)),
        Kind::Namespace => (String::new(), namespace),
        Kind::Node => (String::new(), dice.pick(&pool::NODES).into()),
        Kind::ServiceCidr => {
            let name = dice.pick(&["main", "more", "most.example"]);
            (String::new(), name.into())
        }
    };
    Id {
        kind,
        namespace,
        name,
    }
}

fn object(cluster: &Cluster, dice: &mut Dice, id: &Id, old: Option<&Value>) -> Value {
    match id.kind {
        Kind::Service => service::object(cluster, dice, id, old),
        Kind::EndpointSlice => slice::object(cluster, dice, id, old),
        Kind::Node => node::object(dice, id, old),
        Kind::Namespace => json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": metadata(dice, id, old),
        }),
        Kind::ServiceCidr => node::service_cidr(dice, id, old),
    }
}

/// Returns metadata with an age and, possibly, annotations and finalizers.
fn metadata(dice: &mut Dice, id: &Id, old: Option<&Value>) -> Value {
    let mut metadata = json!({
        "name": id.name,
        "labels": {"app": "web"},
        "annotations": {},
        "creationTimestamp": dice.pick(&["2025-05-05T05:05:05Z", "2026-01-01T00:00:00Z"]),
    });
    if !id.namespace.is_empty() {
        metadata["namespace"] = json!(id.namespace);
    }
    if let Some(old) = old {
        metadata["creationTimestamp"] = old["metadata"]["creationTimestamp"].clone();
    }
    if dice.once_in(8) {
        let key = "kubectl.kubernetes.io/last-applied-configuration";
        metadata["annotations"][key] = json!(dice.pick(&pool::ODD_TEXTS));
    }
    metadata
}

/// Returns a number below a bound, which may exceed 255.
fn below(dice: &mut Dice, bound: usize) -> usize {
    let (high, low) = (dice.roll(u8::MAX), dice.roll(u8::MAX));
    (usize::from(high) * 255 + usize::from(low)) % bound.max(1)
}

/// Returns up to `most` choices, possibly repeated.
fn some(dice: &mut Dice, most: u8, choices: &[&str]) -> Vec<String> {
    let count = dice.roll(most + 1);
    (0..count).map(|_| dice.pick(choices).to_owned()).collect()
}
