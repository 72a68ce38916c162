//! The cost of events and questions, and the memory of a zone, as counts of bytes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use testkit::allocation::{Counting, allocated, retained};
use vipline_service_dns::service_model::{Event, api};
use vipline_service_dns::{Options, Question, RecordType, Zone};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Maximum memory of 10,000 Services with 5 endpoints each.
const LIMIT: u64 = 12 << 20;

fn service(number: usize) -> Event {
    let mut service = api::Service {
        metadata: api::ObjectMeta::named("default", format!("web-{number}")),
        ..api::Service::default()
    };
    service.spec.cluster_ip = format!("10.96.{}.{}", number / 250, number % 250 + 1);
    service.spec.ports.push(api::ServicePortSpec {
        name: "http".into(),
        port: 80,
        ..Default::default()
    });
    service.into()
}

/// Returns a slice with 5 endpoints.
fn slice(service: usize, number: usize) -> Event {
    slice_of(5, service, number)
}

/// Returns a slice with `count` endpoints.
fn slice_of(count: usize, service: usize, number: usize) -> Event {
    let name = format!("web-{service}-{number}");
    let mut metadata = api::ObjectMeta::named("default", name);
    let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
    metadata.labels.insert(label, format!("web-{service}"));
    let endpoint = |host: usize| {
        let host = (service + number) * count + host;
        api::SliceEndpoint {
            addresses: vec![format!(
                "10.{}.{}.{}",
                128 + host / 62_500,
                host / 250 % 250,
                host % 250
            )],
            ..Default::default()
        }
    };
    let slice = api::EndpointSlice {
        metadata,
        endpoints: (0..count).map(endpoint).collect(),
        ports: vec![api::EndpointPort {
            name: Some("http".into()),
            port: Some(8080),
            ..Default::default()
        }],
        ..Default::default()
    };
    slice.into()
}

fn empty() -> Zone {
    Zone::new(Options::new("cluster.local".parse().unwrap()))
}

#[test]
fn ten_thousand_services_take_a_few_mebibytes() {
    let (bytes, zone) = retained(|| {
        let mut zone = empty();
        for number in 0..10_000 {
            assert!(zone.apply(&service(number)).is_empty());
            assert!(zone.apply(&slice(number, 1)).is_empty());
        }
        zone
    });
    println!("10,000 Services with 5 endpoints each: {} KiB", bytes >> 10);
    assert!(bytes < LIMIT, "{bytes} bytes");
    let name = "10-128-0-10.web-1.default.svc.cluster.local"
        .parse()
        .unwrap();
    let question = Question::new(name, RecordType::A);
    assert!(!zone.answer(&question, 0).unwrap().answers.is_empty());
}

#[test]
fn the_cost_of_a_slice_is_independent_of_the_other_slices_of_its_service() {
    let cost = |others: usize| {
        let mut zone = empty();
        zone.apply(&service(0));
        for number in 0..others {
            zone.apply(&slice(0, number));
        }
        let changed = [slice(0, others / 2), slice(0, others + 1)];
        let name = "10-128-0-1.web-0.default.svc.cluster.local"
            .parse()
            .unwrap();
        let question = Question::new(name, RecordType::A);
        let (question_bytes, answer) = allocated(|| zone.answer(&question, 0));
        assert_eq!(answer.unwrap().answers.len(), 1);
        let (bytes, ()) = allocated(|| {
            for event in &changed {
                zone.apply(event);
            }
        });
        bytes + question_bytes
    };
    let (few, many) = (cost(10), cost(2_000));
    println!("two slices and a question: {few} bytes beside 10 slices, {many} beside 2,000");
    // The nodes of trees are larger. Any work for each slice would take 100 KB.
    assert!(
        many < few + 16_384,
        "{few} bytes beside 10 slices, {many} beside 2,000"
    );
}

#[test]
fn the_cost_of_a_truncated_answer_is_independent_of_the_endpoints_that_do_not_fit() {
    let cost = |slices: usize, name: &str, record_type: RecordType| {
        let mut zone = empty();
        let mut service = api::Service {
            metadata: api::ObjectMeta::named("default", "web-0"),
            ..api::Service::default()
        };
        service.spec.cluster_ip = "None".into();
        zone.apply(&service.into());
        for number in 0..slices {
            zone.apply(&slice_of(100, 0, number));
        }
        let name = format!("{name}web-0.default.svc.cluster.local");
        let question = Question::new(name.parse().unwrap(), record_type);
        let (bytes, answer) = allocated(|| zone.answer_within(&question, 12_345, 1232));
        let answer = answer.unwrap();
        let whole = zone.answer(&question, 0).unwrap();
        assert_eq!(whole.answers.len(), slices * 100);
        (bytes, answer.answers.len(), answer.additionals.len())
    };
    for (name, record_type, most) in [
        ("", RecordType::A, 83),
        ("", RecordType::Srv, 25),
        ("_http._tcp.", RecordType::Srv, 25),
    ] {
        let few = cost(2, name, record_type);
        let many = cost(60, name, record_type);
        println!("{name} {record_type}: {few:?} of 200 endpoints, {many:?} of 6,000");
        // One reference for each slice. A name for each endpoint would take 500 KB.
        assert!(many.0 < few.0 + 8192, "{few:?}, {many:?}");
        assert!(many.1 <= most && few.1 == many.1, "{few:?}, {many:?}");
        assert_eq!((few.2, many.2), (0, 0));
    }
}
