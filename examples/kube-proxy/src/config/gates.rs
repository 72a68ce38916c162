//! Feature gates: which there are in Kubernetes 1.36, and which are turned.

use std::collections::BTreeMap;

use super::others::OTHERS;

/// A feature gate that matters here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Gate {
    /// The external IPs of Services are served.
    AllowServiceExternalIPs,
    /// The flags are shown at `/flagz`.
    ComponentFlagz,
    /// The state is shown at `/statusz`.
    ComponentStatusz,
    /// Options of single log formats may be given.
    LoggingAlphaOptions,
    /// The log may be JSON.
    LoggingBetaOptions,
}

/// The state of the feature gates.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Gates {
    turned: BTreeMap<String, bool>,
}

impl Gate {
    /// Returns the name.
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

/// When a gate is open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Closed, unless turned or all of its kind are.
    Alpha,
    /// Open, unless turned or all of its kind are.
    Beta,
    /// Open, unless turned.
    Stable,
    /// Open whatever is said.
    Locked,
}

/// The gates of a kube-proxy.
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

/// The gates that turn all of a kind.
const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

impl Gates {
    /// Returns the state that follows from gates that are turned.
    ///
    /// # Errors
    ///
    /// Each gate that there is not, or that cannot be turned.
    pub fn new(turned: &BTreeMap<String, bool>) -> Result<Self, Vec<String>> {
        let refused = |(name, open): (&String, &bool)| match stage(name) {
            None if name == ALL_ALPHA || name == ALL_BETA => None,
            None if OTHERS.binary_search(&&**name).is_ok() => None,
            None => Some(format!("unrecognized feature gate: {name}")),
            Some(Stage::Locked) if !open => Some(format!(
                "cannot set feature gate {name} to false, feature is locked to true"
            )),
            Some(_) => None,
        };
        let reasons: Vec<_> = turned.iter().filter_map(refused).collect();
        match reasons.is_empty() {
            true => Ok(Self {
                turned: turned.clone(),
            }),
            false => Err(reasons),
        }
    }

    /// Tells whether a gate is open.
    pub fn is_open(&self, gate: Gate) -> bool {
        self.state(gate.name(), stage(gate.name()))
    }

    /// Returns all gates with their stages, as metrics show them, and whether
    /// they are open.
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
        let turned = |name| self.turned.get(name).copied();
        turned(name).unwrap_or_else(|| match stage {
            Some(Stage::Alpha) => turned(ALL_ALPHA).unwrap_or(false),
            Some(Stage::Beta) => turned(ALL_BETA).unwrap_or(true),
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

    fn gates(turned: &[(&str, bool)]) -> Result<Gates, Vec<String>> {
        let turned = turned.iter().map(|&(name, open)| (name.to_owned(), open));
        Gates::new(&turned.collect())
    }

    #[test]
    fn gates_are_open_or_closed_until_they_are_turned() {
        let gate = Gate::AllowServiceExternalIPs;
        assert!(Gates::default().is_open(gate));
        assert!(!gates(&[(gate.name(), false)]).unwrap().is_open(gate));
        assert!(!Gates::default().is_open(Gate::LoggingAlphaOptions));
        let all = gates(&[("AllAlpha", true), ("AllBeta", false)]).unwrap();
        assert!(all.is_open(Gate::LoggingAlphaOptions));
        assert!(!all.is_open(Gate::ComponentFlagz));
        assert!(all.is_open(gate));
        let both = gates(&[("AllBeta", false), ("ComponentFlagz", true)]).unwrap();
        assert!(both.is_open(Gate::ComponentFlagz));
    }

    #[test]
    fn gates_of_other_components_are_taken() {
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
    fn what_is_locked_or_unknown_is_refused() {
        let turned = [
            ("NFTablesProxyMode", false),
            ("Sesame", true),
            ("WinDSR", true),
        ];
        assert_eq!(
            gates(&turned).unwrap_err(),
            [
                "cannot set feature gate NFTablesProxyMode to false, feature is locked to true",
                "unrecognized feature gate: Sesame",
            ]
        );
    }
}
