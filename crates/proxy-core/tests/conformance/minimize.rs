//! Minimization of a failing case.

use serde_json::Value;

use crate::world::World;

/// Maximum number of attempts to remove a part of a world.
const MAX_ATTEMPTS: usize = 2_000;

/// Removes objects and parts of objects while `fails` returns an error. Returns the
/// smallest world and its error.
pub(crate) fn minimize(
    mut world: World,
    mut error: String,
    fails: impl Fn(&World) -> Option<String>,
) -> (World, String) {
    let mut attempts = 0;
    let mut place = 0;
    while attempts < MAX_ATTEMPTS {
        let Some(objects) = without(&world, place) else {
            break;
        };
        attempts += 1;
        let smaller = World::new(objects, world.node.clone(), world.config.clone());
        match fails(&smaller) {
            Some(new) => (world, error) = (smaller, new),
            None => place += 1,
        }
    }
    (world, error)
}

/// Returns the objects without one object or a member of an object, or `None` if there is
/// no such part.
fn without(world: &World, place: usize) -> Option<Vec<(vipline_service_model::Kind, Value)>> {
    let mut objects = world.objects.clone();
    if place < objects.len() {
        objects.remove(place);
        return Some(objects);
    }
    let mut place = place - objects.len();
    for (_, object) in &mut objects {
        let mut pointers = Vec::new();
        members(object, "", &mut pointers);
        match pointers.get(place) {
            Some((holder, member)) => {
                match object.pointer_mut(holder) {
                    Some(Value::Array(list)) => drop(list.remove(member.parse().ok()?)),
                    Some(Value::Object(map)) => drop(map.remove(member)),
                    _ => return None,
                }
                return Some(objects);
            }
            None => place -= pointers.len(),
        }
    }
    None
}

/// Collects the members of a value that an object may lack, as pointer and key.
fn members(value: &Value, at: &str, into: &mut Vec<(String, String)>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Array(list) => (0..).map(|n: usize| n.to_string()).zip(list).collect(),
        Value::Object(map) => map.iter().map(|(key, each)| (key.clone(), each)).collect(),
        _ => return,
    };
    // An API server sets these members, and defaults are not the subject of the oracle.
    let kept = [
        "addressType",
        "apiVersion",
        "clusterIP",
        "clusterIPs",
        "ipFamilies",
        "kind",
        "metadata",
        "name",
        "namespace",
        "port",
        "protocol",
    ];
    for (key, child) in children {
        if !kept.contains(&&*key) {
            into.push((at.to_owned(), key.clone()));
        }
        let escaped = key.replace('~', "~0").replace('/', "~1");
        members(child, &format!("{at}/{escaped}"), into);
    }
}
