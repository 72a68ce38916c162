//! Feature gates of Kubernetes 1.36.

mod table;

use std::collections::BTreeMap;

use table::{ALL_ALPHA, ALL_BETA, GATES, Spec, Stage, find};

/// A feature gate with effect on this proxy.
///
/// All others of `GATES` are accepted, shown in the metrics, and have no effect: they
/// concern other components, or an implementation that this proxy does not share. Of those
/// that upstream kube-proxy reads, `NativeHistograms` has no effect because histograms are
/// served in the classic text format only, and the gates for CBOR because requests are JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Gate {
    /// Serve external IPs of Services.
    AllowServiceExternalIPs,
    /// Serve the flags at `/flagz`.
    ComponentFlagz,
    /// Serve the status at `/statusz`.
    ComponentStatusz,
    /// Accept alpha options of log formats.
    LoggingAlphaOptions,
    /// Accept log format JSON.
    LoggingBetaOptions,
    /// Request lists of objects within watches, instead of page by page.
    WatchListClient,
}

/// State of all feature gates.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Gates {
    configured: BTreeMap<String, bool>,
}

impl Gate {
    /// Returns the name of the gate.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllowServiceExternalIPs => "AllowServiceExternalIPs",
            Self::ComponentFlagz => "ComponentFlagz",
            Self::ComponentStatusz => "ComponentStatusz",
            Self::LoggingAlphaOptions => "LoggingAlphaOptions",
            Self::LoggingBetaOptions => "LoggingBetaOptions",
            Self::WatchListClient => "WatchListClient",
        }
    }
}

impl Gates {
    /// Creates the state from the configured gates.
    ///
    /// Upstream also refuses a gate without the gates that it depends on. None of these
    /// gates concerns a proxy, so only their components check that.
    ///
    /// # Errors
    ///
    /// Each gate that is unknown, or locked to the other value.
    pub fn new(configured: &BTreeMap<String, bool>) -> Result<Self, Vec<String>> {
        let rejected = |(name, enabled): (&String, &bool)| match find(name) {
            None => Some(format!("unrecognized feature gate: {name}")),
            Some(gate) if gate.is_locked && gate.default != *enabled => Some(format!(
                "cannot set feature gate {name} to {enabled}, feature is locked to {}",
                gate.default
            )),
            Some(_) => None,
        };
        let reasons: Vec<_> = configured.iter().filter_map(rejected).collect();
        if !reasons.is_empty() {
            return Err(reasons);
        }
        Ok(Self {
            configured: configured.clone(),
        })
    }

    /// Returns whether a gate is enabled.
    pub fn is_enabled(&self, gate: Gate) -> bool {
        find(gate.name()).is_some_and(|gate| self.state(gate))
    }

    /// Returns all gates with name, stage and state, for metrics.
    pub fn states(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        GATES
            .iter()
            .map(|gate| (gate.name, gate.stage.label(), self.state(gate)))
    }

    /// Returns a warning about configured gates that the next releases of Kubernetes no
    /// longer know: the process would not start with them.
    pub fn warning(&self) -> Option<String> {
        let vanishes = |name: &&String| {
            find(name).is_some_and(|gate| matches!(gate.stage, Stage::Stable | Stage::Deprecated))
        };
        let names: Vec<_> = self.configured.keys().filter(vanishes).cloned().collect();
        (!names.is_empty()).then(|| {
            format!(
                "feature gates {} are stable or deprecated: a later release rejects them; \
                 remove them from the configuration",
                names.join(", ")
            )
        })
    }

    fn state(&self, gate: &Spec) -> bool {
        let configured = |name| self.configured.get(name).copied();
        let of_stage = || match gate.stage {
            _ if [ALL_ALPHA, ALL_BETA].contains(&gate.name) => None,
            Stage::Alpha => configured(ALL_ALPHA),
            Stage::Beta => configured(ALL_BETA),
            Stage::Stable | Stage::Deprecated => None,
        };
        configured(gate.name)
            .or_else(of_stage)
            .unwrap_or(gate.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(configured: &[(&str, bool)]) -> Result<Gates, Vec<String>> {
        let configured = configured
            .iter()
            .map(|&(name, enabled)| (name.to_owned(), enabled));
        Gates::new(&configured.collect())
    }

    #[test]
    fn gates_have_defaults_until_they_are_set() {
        let gate = Gate::AllowServiceExternalIPs;
        assert!(Gates::default().is_enabled(gate));
        assert!(!gates(&[(gate.name(), false)]).unwrap().is_enabled(gate));
        assert!(!Gates::default().is_enabled(Gate::LoggingAlphaOptions));
        let all = gates(&[("AllAlpha", true), ("AllBeta", false)]).unwrap();
        assert!(all.is_enabled(Gate::LoggingAlphaOptions));
        assert!(!all.is_enabled(Gate::ComponentFlagz));
        assert!(!all.is_enabled(Gate::WatchListClient));
        assert!(all.is_enabled(gate));
        let both = gates(&[("AllBeta", false), ("ComponentFlagz", true)]).unwrap();
        assert!(both.is_enabled(Gate::ComponentFlagz));
    }

    #[test]
    fn the_table_has_each_gate_of_kubernetes_once() {
        assert!(GATES.is_sorted_by(|one, next| one.name < next.name));
        let count = |stage, default, is_locked| {
            let gates = GATES.iter().filter(|gate| {
                (gate.stage, gate.default, gate.is_locked) == (stage, default, is_locked)
            });
            gates.count()
        };
        // Numbers of kube-proxy 1.36.2, with AllAlpha and AllBeta.
        assert_eq!(count(Stage::Alpha, false, false), 49 + 1);
        assert_eq!(count(Stage::Beta, true, false), 88);
        assert_eq!(count(Stage::Beta, false, false), 11 + 1);
        assert_eq!(count(Stage::Stable, true, false), 5);
        assert_eq!(count(Stage::Stable, true, true), 71);
        assert_eq!(count(Stage::Deprecated, false, false), 7);
        assert_eq!(count(Stage::Deprecated, true, false), 4);
        assert_eq!(count(Stage::Deprecated, false, true), 3);
        assert_eq!(count(Stage::Deprecated, true, true), 2);
    }

    #[test]
    fn each_gate_takes_both_values_unless_it_is_locked() {
        for gate in GATES {
            for value in [true, false] {
                let accepted = gates(&[(gate.name, value)]).is_ok();
                let expected = !gate.is_locked || value == gate.default;
                assert_eq!(accepted, expected, "{}={value}", gate.name);
            }
        }
    }

    #[test]
    fn all_gates_are_shown_with_their_stages() {
        let gates = gates(&[("AllAlpha", true), ("ComponentFlagz", false)]).unwrap();
        let states: Vec<_> = gates.states().collect();
        assert_eq!(states.len(), GATES.len());
        for state in [
            ("AllAlpha", "ALPHA", true),
            ("AllBeta", "BETA", false),
            ("AllowServiceExternalIPs", "", true),
            ("ClusterTrustBundle", "BETA", false),
            ("ComponentFlagz", "BETA", false),
            ("ComponentStatusz", "BETA", true),
            ("KMSv1", "DEPRECATED", false),
            ("LoggingAlphaOptions", "ALPHA", true),
            ("NFTablesProxyMode", "", true),
        ] {
            assert!(states.contains(&state), "{state:?}");
        }
    }

    #[test]
    fn locked_and_unknown_gates_are_rejected() {
        let configured = [
            ("GitRepoVolumeDriver", true),
            ("NFTablesProxyMode", false),
            ("Sesame", true),
            ("WinDSR", true),
        ];
        assert_eq!(
            gates(&configured).unwrap_err(),
            [
                "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false",
                "cannot set feature gate NFTablesProxyMode to false, feature is locked to true",
                "unrecognized feature gate: Sesame",
            ]
        );
    }

    #[test]
    fn gates_that_vanish_cause_one_warning() {
        let configured = [("KMSv1", true), ("WinDSR", true), ("WatchListClient", true)];
        let warning = gates(&configured).unwrap().warning().unwrap();
        assert!(
            warning.starts_with("feature gates KMSv1, WinDSR are "),
            "{warning}"
        );
        assert_eq!(
            gates(&[("WatchListClient", false)]).unwrap().warning(),
            None
        );
    }
}
