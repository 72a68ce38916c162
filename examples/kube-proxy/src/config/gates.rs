//! Feature gates of Kubernetes 1.36.

use std::collections::BTreeMap;

use super::others::OTHERS;

/// A feature gate with effect on this proxy.
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
        }
    }
}

/// Stage of a feature gate, with its default.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Disabled by default, changed by `AllAlpha`.
    Alpha,
    /// Enabled by default, changed by `AllBeta`.
    Beta,
    /// Enabled by default.
    Stable,
    /// Always enabled.
    Locked,
}

/// The feature gates of kube-proxy.
const KNOWN: [(&str, Stage); 15] = [
    ("AllowServiceExternalIPs", Stage::Stable),
    ("ComponentFlagz", Stage::Beta),
    ("ComponentStatusz", Stage::Beta),
    ("ContextualLogging", Stage::Beta),
    ("DisableAllocatorDualWrite", Stage::Locked),
    ("LoggingAlphaOptions", Stage::Alpha),
    ("LoggingBetaOptions", Stage::Beta),
    ("MultiCIDRServiceAllocator", Stage::Locked),
    ("NFTablesProxyMode", Stage::Locked),
    ("NativeHistograms", Stage::Alpha),
    ("PreferSameTrafficDistribution", Stage::Locked),
    ("RelaxedServiceNameValidation", Stage::Beta),
    ("StrictIPCIDRValidation", Stage::Beta),
    ("WinDSR", Stage::Locked),
    ("WinOverlay", Stage::Locked),
];

/// Gates that set all gates of a stage.
const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

impl Gates {
    /// Creates the state from the configured gates.
    ///
    /// # Errors
    ///
    /// Each gate that is unknown or locked.
    pub fn new(configured: &BTreeMap<String, bool>) -> Result<Self, Vec<String>> {
        let rejected = |(name, enabled): (&String, &bool)| match stage(name) {
            None if name == ALL_ALPHA || name == ALL_BETA => None,
            None if OTHERS.binary_search(&&**name).is_ok() => None,
            None => Some(format!("unrecognized feature gate: {name}")),
            Some(Stage::Locked) if !enabled => Some(format!(
                "cannot set feature gate {name} to false, feature is locked to true"
            )),
            Some(_) => None,
        };
        let reasons: Vec<_> = configured.iter().filter_map(rejected).collect();
        match reasons.is_empty() {
            true => Ok(Self {
                configured: configured.clone(),
            }),
            false => Err(reasons),
        }
    }

    /// Returns whether a gate is enabled.
    pub fn is_enabled(&self, gate: Gate) -> bool {
        self.state(gate.name(), stage(gate.name()))
    }

    /// Returns all gates with name, stage and state, for metrics.
    pub fn states(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        KNOWN.iter().map(|&(name, stage)| {
            let shown = match stage {
                Stage::Alpha => "ALPHA",
                Stage::Beta => "BETA",
                Stage::Stable | Stage::Locked => "",
            };
            (name, shown, self.state(name, Some(stage)))
        })
    }

    fn state(&self, name: &str, stage: Option<Stage>) -> bool {
        let configured = |name| self.configured.get(name).copied();
        configured(name).unwrap_or_else(|| match stage {
            Some(Stage::Alpha) => configured(ALL_ALPHA).unwrap_or(false),
            Some(Stage::Beta) => configured(ALL_BETA).unwrap_or(true),
            Some(Stage::Stable | Stage::Locked) | None => true,
        })
    }
}

fn stage(name: &str) -> Option<Stage> {
    let found = KNOWN.iter().find(|(known, _)| *known == name);
    found.map(|&(_, stage)| stage)
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
        assert!(all.is_enabled(gate));
        let both = gates(&[("AllBeta", false), ("ComponentFlagz", true)]).unwrap();
        assert!(both.is_enabled(Gate::ComponentFlagz));
    }

    #[test]
    fn gates_of_other_components_are_accepted() {
        assert!(OTHERS.is_sorted());
        assert!(KNOWN.iter().all(|(name, _)| !OTHERS.contains(name)));
        assert!(gates(&[("UserNamespacesSupport", false), ("HPAScaleToZero", true)]).is_ok());
    }

    #[test]
    fn all_gates_are_shown_with_their_stages() {
        let gates = gates(&[("AllAlpha", true), ("ComponentFlagz", false)]).unwrap();
        let states: Vec<_> = gates.states().collect();
        assert_eq!(states.len(), KNOWN.len());
        for state in [
            ("AllowServiceExternalIPs", "", true),
            ("ComponentFlagz", "BETA", false),
            ("ComponentStatusz", "BETA", true),
            ("LoggingAlphaOptions", "ALPHA", true),
            ("NFTablesProxyMode", "", true),
        ] {
            assert!(states.contains(&state), "{state:?}");
        }
    }

    #[test]
    fn locked_and_unknown_gates_are_rejected() {
        let configured = [
            ("NFTablesProxyMode", false),
            ("Sesame", true),
            ("WinDSR", true),
        ];
        assert_eq!(
            gates(&configured).unwrap_err(),
            [
                "cannot set feature gate NFTablesProxyMode to false, feature is locked to true",
                "unrecognized feature gate: Sesame",
            ]
        );
    }
}
