//! Events about addresses that the proxy refuses to serve.

use std::collections::HashMap;

use proxy_core::Event;
use vipline_kube_source::api::events::{EventType, NewEvent, Regarding};
use vipline_service_model::{Kind, ObjectName, Problem, Warning};

/// The objects with refused addresses, each with the text of its last Event.
///
/// An object that changes for other reasons causes no further Event.
#[derive(Debug, Default)]
pub struct RefusedAddresses {
    last_events: HashMap<(Kind, ObjectName), String>,
}

impl RefusedAddresses {
    /// Returns the object of an event, if an Event was created for any object.
    pub fn object(&self, event: &Event) -> Option<(Kind, ObjectName)> {
        if self.last_events.is_empty() {
            return None;
        }
        match event {
            Event::ServiceApplied(service) => Some((Kind::Service, service.metadata.object_name())),
            Event::ServiceDeleted(name) => Some((Kind::Service, name.clone())),
            Event::SliceApplied(slice) => Some((Kind::EndpointSlice, slice.metadata.object_name())),
            Event::SliceDeleted(name) => Some((Kind::EndpointSlice, name.clone())),
            _ => None,
        }
    }

    /// Returns the Event for refused addresses among `warnings`, unless it
    /// equals the last Event of the object.
    pub fn event(
        &mut self,
        object: Option<(Kind, ObjectName)>,
        warnings: &[Warning],
    ) -> Option<NewEvent> {
        let is_refused =
            |warning: &&Warning| matches!(warning.problem, Problem::SpecialAddress(..));
        let mut refused = warnings.iter().filter(is_refused);
        let Some(first) = refused.next() else {
            self.last_events.remove(&object?);
            return None;
        };
        let regarding = match first.kind {
            Kind::Service => Regarding::Service(first.name.clone()),
            Kind::EndpointSlice => Regarding::EndpointSlice(first.name.clone()),
            _ => return None,
        };
        let text = match refused.count() {
            0 => format!("{}: {}", first.field, first.problem),
            others => format!("{}: {}; others: {others}", first.field, first.problem),
        };
        let key = (first.kind, first.name.clone());
        let former = self.last_events.insert(key, text.clone());
        (former.as_ref() != Some(&text)).then_some(NewEvent {
            regarding,
            kind: EventType::Warning,
            reason: "AddressRefused",
            action: "ReadAddresses",
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proxy_core::{Config, Engine};
    use vipline_service_model::api;

    use super::*;

    /// An engine, and the texts about what it takes in.
    struct Stage {
        engine: Engine,
        refused: RefusedAddresses,
    }

    impl Stage {
        fn apply(&mut self, event: Event) -> Option<NewEvent> {
            let object = self.refused.object(&event);
            let warnings = self.engine.apply(event);
            self.refused.event(object, &warnings)
        }
    }

    /// Returns a Service with external IPs.
    fn service(name: &str, external_ips: &[&str]) -> Event {
        let mut service = api::Service {
            metadata: api::ObjectMeta::named("shop", name),
            ..api::Service::default()
        };
        service.spec.cluster_ip = "10.96.0.10".into();
        service.spec.external_ips = external_ips.iter().map(|&ip| ip.into()).collect();
        service.into()
    }

    #[test]
    fn an_object_gets_one_event_until_its_refused_addresses_change() {
        let mut stage = Stage {
            engine: Engine::plan_only(Config::default()).unwrap(),
            refused: RefusedAddresses::default(),
        };
        let mut texts = |events: Vec<Event>| -> Vec<String> {
            let texts = events.into_iter().filter_map(|event| stage.apply(event));
            texts.map(|event| event.text).collect()
        };
        let multicast = || service("web", &["192.0.2.1", "224.0.1.1"]);
        let first = "spec.externalIPs[1]: multicast address refused: 224.0.1.1";
        assert_eq!(texts(vec![multicast(), multicast()]), [first]);
        let more = || service("web", &["192.0.2.1", "224.0.1.1", "127.0.0.1"]);
        let both = format!("{first}; others: 1");
        assert_eq!(texts(vec![more(), more()]), [both]);
        assert!(texts(vec![service("other", &[]), more()]).is_empty());
        assert_eq!(texts(vec![service("web", &[]), multicast()]), [first]);
        let name = ObjectName::new("shop", "web");
        assert_eq!(
            texts(vec![Event::ServiceDeleted(name), multicast()]),
            [first]
        );
    }

    #[test]
    fn a_slice_gets_an_event_of_its_own() {
        let endpoint = api::SliceEndpoint {
            addresses: vec!["169.254.169.254".into()],
            ..api::SliceEndpoint::default()
        };
        let mut slice = api::EndpointSlice {
            metadata: api::ObjectMeta::named("shop", "web-1"),
            address_type: api::AddressType::V4,
            endpoints: vec![endpoint],
            ..api::EndpointSlice::default()
        };
        let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
        slice.metadata.labels.insert(label, "web".into());
        let mut stage = Stage {
            engine: Engine::plan_only(Config::default()).unwrap(),
            refused: RefusedAddresses::default(),
        };
        let new_event = stage.apply(slice.into()).unwrap();
        let name = ObjectName::new(Arc::from("shop"), Arc::from("web-1"));
        assert_eq!(new_event.regarding, Regarding::EndpointSlice(name));
        assert!(new_event.text.contains("link-local"), "{}", new_event.text);
    }
}
