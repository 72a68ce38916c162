//! Fields of objects that do not do what their author expects, from their appearance to their
//! end: a log line once for each, and an Event for addresses that the proxy refuses to serve, for
//! Services of which it serves a part only, and for source ranges that leave an address open.
//!
//! An object changes more often than its problems: the deletion of a Service with a finalizer
//! begins with an update of its metadata, and a rollout changes an EndpointSlice with each pod.

use std::collections::HashMap;
use std::sync::Arc;

use proxy_core::Event;
use vipline_kube_source::api::events::{EventType, NewEvent, Regarding};
use vipline_service_model::{Kind, ObjectName, Problem, Warning};

/// The objects with problems, each with those of its last version.
///
/// An object that changes for other reasons causes neither a line nor an Event.
#[derive(Debug, Default)]
pub struct FieldProblems {
    last: HashMap<(Kind, ObjectName), Vec<Warning>>,
}

/// What is new about the problems of an object.
#[derive(Debug, Default)]
pub struct News {
    /// Problems that the last version of the object did not have.
    pub warnings: Vec<Warning>,
    /// Events with another text than for the last version.
    pub events: Vec<NewEvent>,
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

    /// Returns the object and the text of the Event about the warnings of one object. `None` if
    /// no warning is about the subject.
    fn text(self, warnings: &[Warning]) -> Option<(Regarding, String)> {
        let mut about = warnings
            .iter()
            .filter(|it| Self::of(&it.problem) == Some(self));
        let first = about.next()?;
        let regarding = match first.kind {
            Kind::Service => Regarding::Service(first.name.clone()),
            Kind::EndpointSlice => Regarding::EndpointSlice(first.name.clone()),
            _ => return None,
        };
        let text = match about.count() {
            0 => format!("{}: {}", first.field, first.problem),
            others => format!("{}: {}; others: {others}", first.field, first.problem),
        };
        Some((regarding, text))
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

impl FieldProblems {
    /// Returns the object of an event, if any object has problems.
    pub fn object(&self, event: &Event) -> Option<(Kind, ObjectName)> {
        if self.last.is_empty() {
            return None;
        }
        let cluster_wide = |name: &Arc<str>| ObjectName::new("", Arc::clone(name));
        Some(match event {
            Event::ServiceApplied(it) => (Kind::Service, it.metadata.object_name()),
            Event::ServiceDeleted(name) => (Kind::Service, name.clone()),
            Event::SliceApplied(it) => (Kind::EndpointSlice, it.metadata.object_name()),
            Event::SliceDeleted(name) => (Kind::EndpointSlice, name.clone()),
            Event::NodeApplied(it) => (Kind::Node, it.metadata.object_name()),
            Event::NodeDeleted(name) => (Kind::Node, cluster_wide(name)),
            Event::ServiceCidrApplied(it) => (Kind::ServiceCidr, it.metadata.object_name()),
            Event::ServiceCidrDeleted(name) => (Kind::ServiceCidr, cluster_wide(name)),
            Event::NamespaceApplied(_) | Event::NamespaceDeleted(_) | Event::Synced => return None,
        })
    }

    /// Takes the problems of the present version of an object, and returns what is new.
    pub fn replace(&mut self, object: Option<(Kind, ObjectName)>, warnings: Vec<Warning>) -> News {
        let named = warnings.first().map(|it| (it.kind, it.name.clone()));
        let Some(object) = named.or(object) else {
            return News::default();
        };
        let former = self.last.remove(&object).unwrap_or_default();
        let new = warnings.iter().filter(|it| !former.contains(it));
        let events = Subject::ALL.into_iter().filter_map(|subject| {
            let (regarding, text) = subject.text(&warnings)?;
            let known = subject.text(&former);
            let (reason, action) = subject.names();
            let is_new = known.is_none_or(|(_, known)| known != text);
            is_new.then_some(NewEvent {
                regarding,
                kind: EventType::Warning,
                reason,
                action,
                text,
            })
        });
        let news = News {
            warnings: new.cloned().collect(),
            events: events.collect(),
        };
        if !warnings.is_empty() {
            self.last.insert(object, warnings);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use proxy_core::{Config, Engine};
    use vipline_service_model::api;

    use super::*;

    /// An engine, and the problems of what it takes in.
    struct Stage {
        engine: Engine,
        problems: FieldProblems,
    }

    impl Stage {
        fn news(&mut self, event: Event) -> News {
            let object = self.problems.object(&event);
            let warnings = self.engine.apply(event);
            self.problems.replace(object, warnings)
        }

        fn apply(&mut self, event: Event) -> Vec<NewEvent> {
            self.news(event).events
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
            engine: Config::default().plan_only().unwrap(),
            problems: FieldProblems::default(),
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
    fn a_problem_is_new_once_until_it_ends() {
        let mut stage = Stage {
            engine: Config::default().plan_only().unwrap(),
            problems: FieldProblems::default(),
        };
        let open = |ranges: &[&str]| {
            let Event::ServiceApplied(mut service) = service("web", &[]) else {
                panic!("a Service");
            };
            service.spec.kind = api::ServiceType::LoadBalancer;
            service.spec.load_balancer_source_ranges = ranges.iter().map(|&it| it.into()).collect();
            service.status.load_balancer.ingress = vec![api::Ingress {
                ip: "203.0.113.9".into(),
                ..api::Ingress::default()
            }];
            service
        };
        let mut count = |event: Event| {
            let News { warnings, events } = stage.news(event);
            (warnings.len(), events.len())
        };
        let ranges = ["2001:db8::/32"];
        assert_eq!(count(open(&ranges).into()), (1, 1));
        // The first step of the deletion of an object with finalizers, and any other change.
        assert_eq!(count(open(&ranges).into()), (0, 0));
        let mut changed = open(&ranges);
        changed.spec.ports[0].port = 81;
        assert_eq!(count(changed.into()), (0, 0));
        // A further problem of another kind, that has no Event.
        assert_eq!(count(open(&["2001:db8::/32", "everything"]).into()), (1, 0));
        assert_eq!(count(open(&ranges).into()), (0, 0));
        assert_eq!(count(open(&["192.0.2.0/24"]).into()), (0, 0));
        assert_eq!(count(open(&ranges).into()), (1, 1));
        let name = ObjectName::new("shop", "web");
        assert_eq!(count(Event::ServiceDeleted(name)), (0, 0));
        assert_eq!(count(open(&ranges).into()), (1, 1));
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
            engine: Config::default().plan_only().unwrap(),
            problems: FieldProblems::default(),
        };
        let new_event = stage.apply(slice.into()).remove(0);
        let name = ObjectName::new(Arc::from("shop"), Arc::from("web-1"));
        assert_eq!(new_event.regarding, Regarding::EndpointSlice(name));
        assert!(new_event.text.contains("link-local"), "{}", new_event.text);
    }

    #[test]
    fn a_service_beyond_the_limit_gets_an_event_until_it_is_within_it() {
        let mut stage = Stage {
            engine: Config::default().plan_only().unwrap(),
            problems: FieldProblems::default(),
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
