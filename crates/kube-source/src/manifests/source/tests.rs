//! Tests of the conversion from files to events.
use vipline_service_model::Event;

use super::*;

fn service(name: &str, ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
         spec: {{clusterIP: {ip}, ports: [{{port: 80}}]}}\n---\n"
    )
}

fn text(parts: &[String]) -> Content {
    Content::Text(parts.concat())
}

/// Applies a batch of files. Returns the events as `+name ip` and `-name`, and
/// the errors.
fn update(source: &mut Source, files: Vec<(&str, Content)>) -> (Vec<String>, Vec<String>) {
    let files = files
        .into_iter()
        .map(|(name, content)| (Arc::from(Path::new(name)), content));
    let update = source.update(files.collect());
    let event = |event: &Event| match event {
        Event::ServiceApplied(service) => {
            format!("+{} {}", service.metadata.name, service.spec.cluster_ip)
        }
        Event::ServiceDeleted(name) => format!("-{}", name.name),
        other => panic!("{other:?}"),
    };
    let events = update.events.map(|it| event(&it)).collect();
    (
        events,
        update.errors.iter().map(ToString::to_string).collect(),
    )
}

/// Changes one file without an error and returns the events.
fn change(source: &mut Source, name: &str, content: Content) -> Vec<String> {
    let (events, errors) = update(source, vec![(name, content)]);
    assert_eq!(errors, [""; 0]);
    events
}

#[test]
fn only_what_changed_in_a_file_is_an_event() {
    let mut source = Source::default();
    let (a, b) = (service("a", "10.0.0.1"), service("b", "10.0.0.2"));
    let both = text(&[a.clone(), b.clone()]);
    assert_eq!(
        change(&mut source, "1", both.clone()),
        ["+a 10.0.0.1", "+b 10.0.0.2"]
    );
    assert_eq!(change(&mut source, "1", both), [""; 0]);
    let moved = text(&[service("b", "10.0.0.3"), a.clone()]);
    assert_eq!(change(&mut source, "1", moved), ["+b 10.0.0.3"]);
    assert_eq!(change(&mut source, "1", text(&[a])), ["-b"]);
    assert_eq!(change(&mut source, "1", Content::Gone), ["-a"]);
    assert_eq!(source.files().count(), 0);
    assert!(source.claims.is_empty());
    assert_eq!(change(&mut source, "2", Content::Gone), [""; 0]);
}

#[test]
fn moving_an_object_to_another_file_is_no_change() {
    let mut source = Source::default();
    let a = || text(&[service("a", "10.0.0.1")]);
    change(&mut source, "1", a());
    for files in [
        vec![("1", Content::Gone), ("2", a())],
        vec![("1", a()), ("2", Content::Gone)],
    ] {
        assert_eq!(update(&mut source, files), (vec![], vec![]));
    }
}

#[test]
fn the_same_object_twice_is_an_error_that_names_both_places() {
    let mut source = Source::default();
    let (first, second) = (service("a", "10.0.0.1"), service("a", "10.0.0.2"));
    let files = vec![
        ("1", Content::Text(first.clone())),
        ("2", text(&[String::from("---\n"), second])),
    ];
    let (events, errors) = update(&mut source, files);
    assert_eq!(events, ["+a 10.0.0.1"]);
    let reason = "the same object exists at 1:1:1 (document 1)";
    assert_eq!(
        errors,
        [format!("2:2:1: document 1: Service default/a: {reason}")]
    );
    assert_eq!(change(&mut source, "1", Content::Gone), ["+a 10.0.0.2"]);

    let twice = text(&[first.clone(), first]);
    let (events, errors) = update(&mut source, vec![("2", twice)]);
    assert_eq!(events, ["+a 10.0.0.1"]);
    let reason = "the same object exists at 2:1:1 (document 1)";
    assert_eq!(
        errors,
        [format!("2:6:1: document 2: Service default/a: {reason}")]
    );
}

#[test]
fn an_invalid_yaml_file_keeps_its_objects_and_is_reported_once() {
    let mut source = Source::default();
    change(&mut source, "1", text(&[service("a", "10.0.0.1")]));
    let broken = || vec![("1", Content::Text("---\n{}}\n".into()))];
    let (events, errors) = update(&mut source, broken());
    assert_eq!(events, [""; 0]);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("1:2:3: document 1: "), "{errors:?}");
    assert!(source.has_errors(Path::new("1")));
    assert_eq!(update(&mut source, broken()), (vec![], vec![]));
    assert_eq!(
        change(&mut source, "1", text(&[service("a", "10.0.0.2")])),
        ["+a 10.0.0.2"]
    );
    assert!(!source.has_errors(Path::new("1")));
    assert_eq!(
        update(&mut source, broken()).1.len(),
        1,
        "an error that recurs is reported again"
    );
    let unreadable = Content::Unreadable("permission denied".into());
    let (events, errors) = update(&mut source, vec![("1", unreadable)]);
    assert_eq!((events.len(), &*errors[0]), (0, "1: permission denied"));
    assert_eq!(change(&mut source, "1", Content::Gone), ["-a"]);
}

#[test]
fn an_invalid_object_keeps_its_last_valid_state_and_others_are_updated() {
    let mut source = Source::default();
    let (a, b) = (service("a", "10.0.0.1"), service("b", "10.0.0.2"));
    change(&mut source, "1", text(&[a, b]));
    let broken = text(&[service("a", "10.0.0.300"), service("c", "10.0.0.3")]);
    let (events, errors) = update(&mut source, vec![("1", broken)]);
    assert_eq!(events, ["-b", "+c 10.0.0.3"]);
    let reason = "not an IP address: \"10.0.0.300\"";
    let expected = format!("1:4:19: document 1: Service default/a: spec.clusterIP: {reason}");
    assert_eq!(errors, [expected]);
    assert_eq!(
        change(&mut source, "1", text(&[service("c", "10.0.0.3")])),
        ["-a"]
    );
}

#[test]
fn an_invalid_object_without_a_name_keeps_all_objects_of_its_file() {
    let mut source = Source::default();
    let (a, b) = (service("a", "10.0.0.1"), service("b", "10.0.0.2"));
    change(&mut source, "1", text(&[a.clone(), b]));
    let nameless = service("[]", "10.0.0.2");
    let (events, errors) = update(&mut source, vec![("1", text(&[a.clone(), nameless]))]);
    assert_eq!((events.len(), errors.len()), (0, 1), "{errors:?}");
    assert_eq!(change(&mut source, "1", text(&[a])), ["-b"]);
}

#[test]
fn possibly_incomplete_files_are_detected() {
    let mut source = Source::default();
    let (a, b) = (service("a", "10.0.0.1"), service("b", "10.0.0.2"));
    change(&mut source, "1", text(&[a.clone(), b.clone()]));
    let may_be_incomplete = |source: &Source, files: Vec<(&str, Content)>| {
        let files = files
            .into_iter()
            .map(|(name, content)| (Arc::from(Path::new(name)), content));
        source.may_be_incomplete(&files.collect())
    };
    let other = || service("b", "10.0.0.3");
    assert!(!may_be_incomplete(
        &source,
        vec![("1", text(&[a.clone(), other()]))]
    ));
    assert!(!may_be_incomplete(
        &source,
        vec![("2", text(&[service("c", "10.0.0.4")]))]
    ));
    assert!(!may_be_incomplete(
        &source,
        vec![("1", Content::Text(a.clone())), ("2", text(&[b]))]
    ));
    for content in [
        Content::Gone,
        Content::Text(String::new()),
        Content::Text("kind: [".into()),
        Content::Text("kind: Service".into()),
        Content::Unreadable("why".into()),
        text(&[a]),
    ] {
        assert!(
            may_be_incomplete(&source, vec![("1", content.clone())]),
            "{content:?}"
        );
    }
}
