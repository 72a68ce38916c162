//! Parses arbitrary text as a configuration file. The result is an error with a position,
//! or a configuration that is validated and survives a round trip.

use kube_proxy::config::{check, read};

/// Checks one input.
pub(crate) fn run(text: &str) {
    let found = match read(text) {
        Ok(found) => found,
        Err(fault) => {
            assert!(!fault.to_string().is_empty());
            return;
        }
    };
    if let Err(faults) = check(&found.configuration) {
        assert!(faults.iter().all(|fault| !fault.is_empty()));
    }
    let written = found.configuration.to_yaml();
    let again = read(&written).expect("a written configuration is valid");
    assert_eq!(again.configuration, found.configuration, "{written}");
    assert!(again.problems.is_empty(), "{:?}", again.problems);
}
