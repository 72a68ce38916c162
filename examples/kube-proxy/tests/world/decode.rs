//! Watch events as the binary decodes them.

use testworld::Change;
use vipline_kube_source::api::change::Change as Line;
use vipline_kube_source::api::objects::{Namespace, Node, Object, Service, ServiceCidr, Slice};
use vipline_service_model::{Event, Kind};

/// Decodes a watch event. `None` if a part of the object is unreadable.
pub(crate) fn decode(change: &Change) -> Option<Event> {
    let line = change.line();
    match change.kind {
        Kind::Service => decoded::<Service>(&line),
        Kind::EndpointSlice => decoded::<Slice>(&line),
        Kind::Namespace => decoded::<Namespace>(&line),
        Kind::Node => decoded::<Node>(&line),
        Kind::ServiceCidr => decoded::<ServiceCidr>(&line),
    }
}

fn decoded<O: Object>(line: &str) -> Option<Event> {
    match Line::<O>::parse(line).ok()? {
        Line::Applied(parsed) if parsed.dropped.is_none() => Some(parsed.object.applied()),
        Line::Deleted(identity) => Some(O::deleted(identity.name())),
        Line::Applied(_) | Line::Unreadable(_) | Line::Bookmark { .. } => None,
    }
}
