//! Flags in the manifests of `deploy`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::stage::program;

/// Returns the arguments of the only container of a manifest.
fn arguments(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name);
    let text = fs::read_to_string(path).unwrap();
    let manifest: Value = serde_saphyr::from_str(&text).unwrap();
    let arguments = &manifest["spec"]["template"]["spec"]["containers"][0]["args"];
    serde_json::from_value(arguments.clone()).unwrap()
}

#[test]
fn the_program_has_every_flag_of_the_manifests() {
    let help = program().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let words: BTreeSet<&str> = help
        .split(|character: char| !(character.is_alphanumeric() || character == '-'))
        .collect();
    for name in ["deployment.yaml", "node-local/daemonset.yaml"] {
        for argument in arguments(name) {
            let flag = argument.split('=').next().unwrap();
            assert!(words.contains(flag), "{flag} in {help}");
        }
    }
}
