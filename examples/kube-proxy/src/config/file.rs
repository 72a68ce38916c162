//! Parsing of configuration files.

use std::collections::BTreeMap;

use serde_json::Value as Schema;
use vipline_kube_source::manifests::fault::Fault;
use vipline_kube_source::manifests::tree::{self, Duplicates, Node, Value};
use vipline_kube_source::manifests::typed;

use super::{API_VERSION, Configuration, KIND, Vmodule};

/// A configuration and the problems of its file.
#[derive(Debug)]
pub struct ParsedFile {
    /// The configuration, with its defaults.
    pub configuration: Configuration,
    /// Unknown and duplicate fields, as messages.
    pub problems: Vec<String>,
}

/// Parses a configuration and sets defaults.
///
/// # Errors
///
/// The text is not YAML, has another kind, or has a field of the wrong type.
pub fn read(text: &str) -> Result<ParsedFile, Fault> {
    let mut documents = tree::read_with(text, Duplicates::Keep)?;
    let missing = || Fault::unplaced("kind: missing, the file is empty");
    if documents.is_empty() {
        return Err(missing());
    }
    let mut document = documents.swap_remove(0);
    if !matches!(document.value, Value::Map(_)) {
        return Err(Fault::new(document.at, "", "expected an object"));
    }
    let mut problems = Vec::new();
    prune(&mut document, Some(&schema()), "", &mut problems);
    expect(&document, "apiVersion", API_VERSION)?;
    expect(&document, "kind", KIND)?;
    let mut configuration: Configuration = typed::read(&document)?;
    configuration.fill();
    Ok(ParsedFile {
        configuration,
        problems,
    })
}

/// Checks a field that permits one value only.
fn expect(document: &Node<'_>, field: &str, expected: &str) -> Result<(), Fault> {
    let at = document.position(field);
    match document.get(field).and_then(Node::text) {
        Some(text) if text == expected => Ok(()),
        Some(text) => {
            let reason = format!("{text:?} is not supported, must be {expected}");
            Err(Fault::new(at, field, reason))
        }
        None => Err(Fault::new(
            at,
            field,
            format!("missing, must be {expected}"),
        )),
    }
}

/// Returns an example value of every field. `null` matches any value.
fn schema() -> Schema {
    let mut example = Configuration {
        windows_run_as_service: true,
        ..Configuration::default()
    };
    example.logging.vmodule = vec![Vmodule::default()];
    for routing in [
        &mut example.logging.options.text,
        &mut example.logging.options.json,
    ] {
        routing.split_stream = true;
    }
    let mut schema = serde_json::to_value(&example).expect("a configuration is JSON");
    schema["featureGates"] = Schema::Null;
    schema
}

/// Removes null values and duplicate fields. Collects unknown and duplicate
/// fields.
fn prune(node: &mut Node<'_>, schema: Option<&Schema>, path: &str, problems: &mut Vec<String>) {
    match &mut node.value {
        Value::Map(entries) => {
            let mut kept = BTreeMap::new();
            for (index, (name, value)) in entries.iter_mut().enumerate() {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                let line = value.at.line;
                if kept.insert(name.clone(), index).is_some() {
                    problems.push(format!("duplicate field {path:?} in line {line}"));
                }
                let inner = schema.and_then(|schema| schema.get(&*name));
                if inner.is_none() && schema.is_some_and(Schema::is_object) {
                    problems.push(format!("unknown field {path:?} in line {line}"));
                }
                prune(value, inner, &path, problems);
            }
            let mut index = 0..;
            entries.retain(|(name, value)| {
                kept.get(name).copied() == index.next() && value.value != Value::Null
            });
        }
        Value::List(items) => {
            let inner = schema.and_then(|schema| schema.get(0));
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, inner, &format!("{path}[{index}]"), problems);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n\
                        kind: KubeProxyConfiguration\n";

    fn good(text: &str) -> ParsedFile {
        read(&format!("{HEAD}{text}")).unwrap()
    }

    fn bad(text: &str) -> String {
        let fault = read(text).unwrap_err();
        format!(
            "{}:{} {}: {}",
            fault.at.line, fault.at.column, fault.path, fault.reason
        )
    }

    #[test]
    fn omitted_fields_have_defaults() {
        assert_eq!(good("").configuration, Configuration::default());
        let found = good("conntrack: {min: 0, maxPerCore: null}\niptables: {minSyncPeriod: 0s}\n");
        let conntrack = &found.configuration.conntrack;
        assert_eq!((conntrack.min, conntrack.max_per_core), (0, 32768));
        let min = found.configuration.iptables.min_sync_period;
        assert_eq!(min.to_string(), "1s");
        assert!(found.problems.is_empty());
    }

    #[test]
    fn every_field_is_read_back() {
        let mut schema = schema();
        schema["featureGates"] = serde_json::json!({"AllAlpha": true});
        schema["logging"]["flushFrequency"] = 7_000_000_000_u64.into();
        schema["clientConnection"]["qps"] = 0.5.into();
        schema["nodePortAddresses"] = serde_json::json!(["primary"]);
        schema["ipvs"]["excludeCIDRs"] = serde_json::json!(["10.0.0.0/8", "fd00::/8"]);
        let found = read(&schema.to_string()).unwrap();
        assert_eq!(found.problems, [""; 0]);
        schema["logging"]["flushFrequency"] = "7s".into();
        assert_eq!(serde_json::to_value(&found.configuration).unwrap(), schema);
    }

    #[test]
    fn unknown_and_duplicate_fields_are_named() {
        let found = good(
            "mode: ipvs\nMode: x\nconntrack:\n  max: 5\nmode: nftables\nlogging:\n  \
             vmodule: [{filePattern: a, level: 3}]\nfeatureGates: {WinDSR: true}\n",
        );
        assert_eq!(found.configuration.mode, "nftables");
        assert_eq!(
            found.problems,
            [
                "unknown field \"Mode\" in line 4",
                "unknown field \"conntrack.max\" in line 6",
                "duplicate field \"mode\" in line 7",
                "unknown field \"logging.vmodule[0].level\" in line 9",
            ]
        );
    }

    #[test]
    fn invalid_files_are_rejected_with_a_position() {
        for (text, expected) in [
            ("", "0:0 : kind: missing, the file is empty"),
            ("[1]", "1:1 : expected an object"),
            (
                "kind: KubeProxyConfiguration",
                "1:1 apiVersion: missing, must be kubeproxy.config.k8s.io/v1alpha1",
            ),
            (
                "apiVersion: kubeproxy.config.k8s.io/v1\nkind: KubeProxyConfiguration",
                "1:13 apiVersion: \"kubeproxy.config.k8s.io/v1\" is not supported, must be \
                 kubeproxy.config.k8s.io/v1alpha1",
            ),
        ] {
            assert_eq!(bad(text), expected);
        }
        for (text, expected) in [
            (
                "iptables: {masqueradeBit: much}",
                "3:27 iptables.masqueradeBit: expected a number from -2147483648 to 2147483647, \
                 found the string \"much\"",
            ),
            (
                "conntrack:\n  udpTimeout: 5",
                "4:15 conntrack.udpTimeout: expected a string, found 5",
            ),
            (
                "configSyncPeriod: 5",
                "3:19 configSyncPeriod: expected a string, found 5",
            ),
            (
                "configSyncPeriod: 5 minutes",
                "3:19 configSyncPeriod: \"5 minutes\" is not a duration such as 30s, 1m30s or 250ms",
            ),
            (
                "enableProfiling: 1",
                "3:18 enableProfiling: expected true or false, found 1",
            ),
            (
                "nodePortAddresses: primary",
                "3:20 nodePortAddresses: expected a list, found the string \"primary\"",
            ),
            (
                "logging: {options: {text: {infoBufferSize: 1KB}}}",
                "3:44 logging.options.text.infoBufferSize: \"1KB\" is not a quantity such as 512, 1K \
                 or 2Ki",
            ),
        ] {
            assert_eq!(bad(&format!("{HEAD}{text}")), expected);
        }
        assert!(bad("a: [").starts_with('1'));
    }
}
