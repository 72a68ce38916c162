//! Documents of all reasons as golden files.
//!
//! `CASE.json` is the document of all modes, without mode and trace. Modes that differ have
//! `CASE.MODE.json`. Documents with traces are in `traces`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use testkit::golden;

use super::{CLUSTER, MODES, explain, json};

/// Names of files, and questions.
const CASES: [(&str, &str); 23] = [
    ("affinity", "tcp 10.96.0.70:80 --from 10.244.1.5"),
    ("contested", "service shop/rival --from 198.51.100.7"),
    ("contested-owner", "tcp 203.0.113.10:80 --from 198.51.100.7"),
    ("direct", "tcp 10.244.1.11:8080 --from 10.244.1.5"),
    (
        "external-policy-local",
        "tcp 192.168.0.5:30040 --from 198.51.100.7",
    ),
    ("headless", "service shop/headless"),
    (
        "internal-policy-local",
        "tcp 10.96.0.40:80 --from 10.244.1.5",
    ),
    ("ip-mode-proxy", "tcp 203.0.113.8:80 --from 198.51.100.7"),
    ("no-endpoints", "tcp 10.96.0.60:80 --from 10.244.1.5"),
    ("no-node-port", "tcp 192.168.0.5:30099 --from 198.51.100.7"),
    (
        "node-port-address",
        "tcp 192.168.0.5:30080 --from 198.51.100.7 --nodeport-addresses 10.0.0.0/8",
    ),
    ("not-ready", "tcp 10.96.0.30:80 --from 10.244.1.5"),
    ("skipped-address", "tcp 10.96.0.50:80 --from 10.244.1.5"),
    ("skipped-service", "service shop/other"),
    ("source-ranges", "tcp 203.0.113.9:80 --from 192.0.2.7"),
    ("unknown-address", "tcp 192.0.2.80:80 --from 10.244.1.5"),
    (
        "unserved-family",
        "tcp [2001:db8::77]:80 --from 2001:db8::7",
    ),
    ("unused-cluster-ip", "tcp 10.96.7.7:80 --from 10.244.1.5"),
    ("works", "tcp 10.96.0.10:80 --from 10.244.1.5"),
    ("works-from-itself", "tcp 10.96.0.10:80 --from 10.244.1.11"),
    ("works-ipv6", "tcp [fd00:96::10]:80 --from-node"),
    ("works-masqueraded", "tcp 10.96.0.10:80 --from 192.0.2.7"),
    ("wrong-port", "tcp 10.96.0.10:81 --from 10.244.1.5"),
];

/// Cases with traces: a connection that works, and one that a rule or a server refuses.
const TRACES: [&str; 2] = ["works-masqueraded", "no-endpoints"];

#[test]
fn documents_of_all_reasons_equal_their_golden_files() {
    let mut files = BTreeSet::new();
    for (name, line) in CASES {
        let documents = MODES.map(|mode| {
            let document = json(&explain(
                mode,
                CLUSTER,
                &format!("{line} --plan-only -o json"),
            ));
            (mode, document)
        });
        for (mode, document) in &documents {
            if TRACES.contains(&name) {
                compare(&mut files, format!("traces/{name}.{mode}.json"), document);
            }
        }
        let documents = documents.map(|(mode, document)| (mode, without_traces(document)));
        let [(_, first), rest @ ..] = &documents;
        match rest.iter().all(|(_, it)| it == first) {
            true => compare(&mut files, format!("{name}.json"), first),
            false => {
                for (mode, document) in &documents {
                    compare(&mut files, format!("{name}.{mode}.json"), document);
                }
            }
        }
    }
    assert_eq!(found(), files, "remove the files of no case");
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/explain")
}

/// Compares a document with its golden file, and adds the name of the file.
fn compare(files: &mut BTreeSet<String>, name: String, document: &Value) {
    golden::compare(folder().join(&name), &format!("{document:#}\n"));
    files.insert(name);
}

/// Removes the mode and the evaluations, which are never equal in two modes.
fn without_traces(mut document: Value) -> Value {
    let answers = match document.get_mut("answers") {
        Some(answers) => answers.as_array_mut().unwrap().iter_mut().collect(),
        None => vec![&mut document],
    };
    for answer in answers {
        let answer = answer.as_object_mut().unwrap();
        answer.retain(|name, _| !["mode", "plan"].contains(&&**name));
    }
    document
}

/// Returns the golden files that exist.
fn found() -> BTreeSet<String> {
    let names = |sub: &str| {
        let entries = fs::read_dir(folder().join(sub)).unwrap();
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let files = names.filter(|name| name.ends_with(".json"));
        files.map(|name| format!("{sub}{name}")).collect::<Vec<_>>()
    };
    names("").into_iter().chain(names("traces/")).collect()
}
