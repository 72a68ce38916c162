//! Tests of parsing.

use super::*;

fn keys(manifest: &Manifest) -> Vec<String> {
    let line = |found: &ValidObject| format!("{} in {}", found.key, found.place.document);
    manifest.objects.iter().map(line).collect()
}

fn faults(manifest: &Manifest) -> Vec<String> {
    let mut lines = Vec::new();
    for invalid in &manifest.invalid {
        let key = invalid
            .key
            .as_ref()
            .map_or_else(|| "?".to_owned(), Key::to_string);
        for Fault {
            at, path, reason, ..
        } in &invalid.faults
        {
            let document = invalid.place.document;
            lines.push(format!(
                "{document} {key} {}:{} {path}: {reason}",
                at.line, at.column
            ));
        }
    }
    lines
}

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n\
                       spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n";

#[test]
fn every_kind_is_read_and_namespaces_default_to_default() {
    let text = format!(
        "# comment\n---\n{SERVICE}---\n# empty\n---\n\
         {{\"apiVersion\": \"discovery.k8s.io/v1\", \"kind\": \"EndpointSlice\",\n\
         \"metadata\": {{\"name\": \"web-1\", \"namespace\": \"a\"}}, \"addressType\": \"IPv4\"}}\n\
         ---\napiVersion: v1\nkind: Node\nmetadata: {{name: n1, namespace: x}}\n\
         ---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {{name: c}}\n\
         spec: {{cidrs: [10.96.0.0/16]}}\n"
    );
    let manifest = parse(&text).unwrap();
    let expected = [
        "Service default/web in 1",
        "EndpointSlice a/web-1 in 3",
        "Node n1 in 4",
        "ServiceCIDR c in 5",
    ];
    assert_eq!(keys(&manifest), expected);
    assert_eq!(faults(&manifest), [""; 0]);
    let Object::Service(service) = &*manifest.objects[0].object else {
        panic!()
    };
    assert_eq!(service.metadata.namespace, "default");
}

#[test]
fn items_of_lists_inherit_version_and_kind() {
    let item = "{metadata: {name: a}, spec: {clusterIP: None}}";
    let text = format!(
        "apiVersion: v1\nkind: ServiceList\nitems: [{item}]\n---\n\
         apiVersion: v1\nkind: List\nitems:\n- {item}\n- {{apiVersion: v1, kind: Node, \
         metadata: {{name: n1}}}}\n---\napiVersion: v1\nkind: List\nitems: null\n"
    );
    let manifest = parse(&text).unwrap();
    assert_eq!(keys(&manifest), ["Service default/a in 1", "Node n1 in 2"]);
    assert_eq!(faults(&manifest), ["2 ? 8:3 apiVersion: missing"]);
}

#[test]
fn other_kinds_are_ignored_and_other_versions_rejected() {
    let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\n\
                apiVersion: serving.knative.dev/v1\nkind: Service\n---\n\
                apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\n";
    let manifest = parse(text).unwrap();
    let ignored: Vec<_> = manifest
        .ignored
        .iter()
        .map(|ignored| &*ignored.kind)
        .collect();
    assert_eq!(
        ignored,
        ["apps/v1 Deployment", "serving.knative.dev/v1 Service"]
    );
    let reason =
        "EndpointSlice must have version discovery.k8s.io/v1, found discovery.k8s.io/v1beta1";
    assert_eq!(
        faults(&manifest),
        [format!("3 ? 8:13 apiVersion: {reason}")]
    );
}

#[test]
fn invalid_objects_are_named_and_the_others_are_read() {
    let text = format!(
        "{SERVICE}---\napiVersion: v1\nkind: Service\nmetadata: {{name: b}}\n\
         spec: {{clusterIP: 10.0.0.300, ports: [{{port: 0}}]}}\n---\n- 1\n---\nkind: Service\n\
         ---\napiVersion: v1\nkind: Service\nmetadata: {{}}\n---\n\
         apiVersion: v1\nkind: List\nitems: 1\n"
    );
    let manifest = parse(&text).unwrap();
    assert_eq!(keys(&manifest), ["Service default/web in 1"]);
    let expected = [
        "2 Service default/b 9:19 spec.clusterIP: not an IP address: \"10.0.0.300\"",
        "2 Service default/b 9:46 spec.ports[0].port: not a port number: 0",
        "3 ? 11:1 : expected an object",
        "4 ? 13:1 apiVersion: missing",
        "5 ? 17:11 metadata.name: missing",
        "6 ? 21:8 items: expected a list",
    ];
    assert_eq!(faults(&manifest), expected);
}

#[test]
fn invalid_yaml_names_its_document() {
    let text = format!("{SERVICE}---\na: [\n");
    let fault = parse(&text).unwrap_err();
    assert_eq!(document_number(&text, fault.at.line), 2);
    assert_eq!(document_number("", 1), 1);
    assert_eq!(
        document_number("%YAML 1.2\n--- # first\na: 1\n--- {b: 1}\n", 4),
        2
    );
}

#[test]
fn an_empty_text_is_an_empty_manifest() {
    for text in [
        "",
        "\n",
        "---\n",
        "# nothing\n---\n---\n",
        "\u{feff}",
        "null\n",
    ] {
        assert_eq!(parse(text).unwrap(), Manifest::default(), "{text:?}");
    }
}
