//! Events about fields of objects that do not do what their author expects: addresses that
//! the proxy refuses to serve, Services of which it serves a part only, and source ranges
//! that leave an address open.

use std::collections::HashMap;

use proxy_core::Event;
use vipline_kube_source::api::events::{EventType, NewEvent, Regarding};
use vipline_service_model::{Kind, ObjectName, Problem, Warning};

/// The objects with such fields, each with the text of its last Event of a kind.
///
/// An object that changes for other reasons causes no further Event.
#[derive(Debug, Default)]
pub struct FieldEvents {
    last_events: HashMap<(Kind, ObjectName), Vec<(Subject, String)>>,
}

/// What an Event is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Subject {
    RefusedAddress,
    OverLimit,
    SourceRanges,
}

impl Subject {
    const ALL: [Self; 3] = [Self::RefusedAddress, Self::OverLimit, Self::SourceRanges];

    fn of(problem: &Problem) -> Option<Self> {
        match problem {
            Problem::SpecialAddress(..) => Some(Self::RefusedAddress),
            Problem::OverLimit(_) => Some(Self::OverLimit),
            Problem::NoSourceRange(_) => Some(Self::SourceRanges),
            _ => None,
        }
    }

    /// Returns the reason and the action of the Event.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::RefusedAddress => ("AddressRefused", "ReadAddresses"),
            Self::OverLimit => ("ServiceTooLarge", "ServeAddresses"),
            Self::SourceRanges => ("SourceRangesIneffective", "ReadSourceRanges"),
        }
    }
}

impl FieldEvents {
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

    /// Returns the Events for `warnings` about an object, without those that equal the last
    /// Event of the object about the same subject.
    pub fn events(
        &mut self,
        object: Option<(Kind, ObjectName)>,
        warnings: &[Warning],
    ) -> Vec<NewEvent> {
        let named = warnings.first().map(|it| (it.kind, it.name.clone()));
        let Some(object) = named.or(object) else {
            return Vec::new();
        };
        let former = self.last_events.remove(&object).unwrap_or_default();
        let (mut last, mut events) = (Vec::new(), Vec::new());
        for subject in Subject::ALL {
            let is_about = |warning: &&Warning| Subject::of(&warning.problem) == Some(subject);
            let mut about = warnings.iter().filter(is_about);
            let Some(first) = about.next() else {
                continue;
            };
            let regarding = match first.kind {
                Kind::Service => Regarding::Service(first.name.clone()),
                Kind::EndpointSlice => Regarding::EndpointSlice(first.name.clone()),
                _ => continue,
            };
            let text = match about.count() {
                0 => format!("{}: {}", first.field, first.problem),
                others => format!("{}: {}; others: {others}", first.field, first.problem),
            };
            last.push((subject, text.clone()));
            if former.contains(&(subject, text.clone())) {
                continue;
            }
            let (reason, action) = subject.names();
            events.push(NewEvent {
                regarding,
                kind: EventType::Warning,
                reason,
                action,
                text,
            });
        }
        if !last.is_empty() {
            self.last_events.insert(object, last);
        }
        events
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
        fields: FieldEvents,
    }

    impl Stage {
        fn apply(&mut self, event: Event) -> Vec<NewEvent> {
            let object = self.fields.object(&event);
            let warnings = self.engine.apply(event);
            self.fields.events(object, &warnings)
        }
    }

    /// Returns a Service with external IPs.
    fn service(name: &str, external_ips: &[&str]) -> Event {
        let mut service = api::Service {
            metadata: api::ObjectMeta::named("shop", name),
            ..api::Service::default()
        };
        service.spec.cluster_ip = "10.96.0.10".into();
        service.spec.ports = vec![api::ServicePortSpec {
            port: 80,
            ..api::ServicePortSpec::default()
        }];
        service.spec.external_ips = external_ips.iter().map(|&ip| ip.into()).collect();
        service.into()
    }

    #[test]
    fn an_object_gets_one_event_until_its_refused_addresses_change() {
        let mut stage = Stage {
            engine: Engine::plan_only(Config::default()).unwrap(),
            fields: FieldEvents::default(),
        };
        let mut texts = |events: Vec<Event>| -> Vec<String> {
            let texts = events.into_iter().flat_map(|event| stage.apply(event));
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
            fields: FieldEvents::default(),
        };
        let new_event = stage.apply(slice.into()).remove(0);
        let name = ObjectName::new(Arc::from("shop"), Arc::from("web-1"));
        assert_eq!(new_event.regarding, Regarding::EndpointSlice(name));
        assert!(new_event.text.contains("link-local"), "{}", new_event.text);
    }

    #[test]
    fn a_service_beyond_the_limit_gets_an_event_until_it_is_within_it() {
        let mut stage = Stage {
            engine: Engine::plan_only(Config::default()).unwrap(),
            fields: FieldEvents::default(),
        };
        let large = |first: &str| {
            let many = (0..20_000_u16).map(|number| {
                let [high, low] = number.to_be_bytes();
                format!("203.0.{high}.{low}")
            });
            let external_ips: Vec<_> = [first.to_owned()].into_iter().chain(many).collect();
            let external_ips: Vec<_> = external_ips.iter().map(String::as_str).collect();
            service("web", &external_ips)
        };
        let mut reasons = |event| -> Vec<&str> {
            let events = stage.apply(event).into_iter();
            events.map(|event| event.reason).collect()
        };
        assert_eq!(reasons(large("192.0.2.1")), ["ServiceTooLarge"]);
        assert!(reasons(large("192.0.2.1")).is_empty());
        assert_eq!(
            reasons(large("127.0.0.1")),
            ["AddressRefused", "ServiceTooLarge"],
            "both, and the first address beyond the limit is another one"
        );
        assert!(reasons(service("web", &["192.0.2.1"])).is_empty());
        assert_eq!(reasons(large("192.0.2.1")), ["ServiceTooLarge"]);
    }
}
