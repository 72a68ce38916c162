//! The version that the program reports.

use std::sync::OnceLock;

/// Version of Kubernetes whose kube-proxy this program replaces: major, minor,
/// patch.
const KUBERNETES: [&str; 3] = ["1", "36", "2"];

/// The version that `--version=vX.Y.Z...` sets.
static REPORTED: OnceLock<String> = OnceLock::new();

/// Value of `--version`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Version {
    /// Print the version, and end.
    Print,
    /// Print all build information, and end.
    Raw,
    /// Report this version.
    Report(String),
    /// Flag not set.
    Off,
}

/// Returns the major and minor version of Kubernetes.
pub fn kubernetes() -> (&'static str, &'static str) {
    let [major, minor, _] = KUBERNETES;
    (major, minor)
}

/// Returns the reported version, such as `v1.36.2+vipline.0.1.0`.
pub fn reported() -> String {
    let own = || {
        let kubernetes = KUBERNETES.join(".");
        format!("v{kubernetes}+vipline.{}", env!("CARGO_PKG_VERSION"))
    };
    REPORTED.get().cloned().unwrap_or_else(own)
}

/// Returns the platform in the format of container images, such as
/// `linux/amd64`.
pub fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}

impl Version {
    /// Applies the flag. Returns the text to print before the program ends, if
    /// any.
    pub fn apply(&self) -> Option<String> {
        match self {
            Self::Print => Some(format!("Kubernetes {}\n", reported())),
            Self::Raw => Some(raw()),
            Self::Report(version) => {
                // The flag is applied once.
                let _ = REPORTED.set(version.clone());
                None
            }
            Self::Off => None,
        }
    }

    /// Validates a version to report: its first three numbers must equal those
    /// of `KUBERNETES`.
    ///
    /// # Errors
    ///
    /// The version does not start with these numbers, or has no suffix.
    pub fn report(text: &str) -> Result<Self, String> {
        let expected = KUBERNETES.join(".");
        let suffix = text
            .strip_prefix('v')
            .and_then(|rest| rest.strip_prefix(&expected));
        match suffix {
            Some(rest) if rest.is_empty() || rest.starts_with(['-', '+']) => {
                Ok(Self::Report(text.to_owned()))
            }
            _ => Err(format!(
                "version {text:?} must match major/minor/patch of default version \"v{expected}\""
            )),
        }
    }
}

/// Returns the output of upstream's `--version=raw`: a value in Go syntax.
fn raw() -> String {
    let (major, minor) = kubernetes();
    let empty = [
        "EmulationMajor",
        "EmulationMinor",
        "MinCompatibilityMajor",
        "MinCompatibilityMinor",
    ]
    .map(|name| format!("{name}:\"\""));
    format!(
        "version.Info{{Major:{major:?}, Minor:{minor:?}, {}, GitVersion:{:?}, GitCommit:\"\", \
         GitTreeState:\"\", BuildDate:\"1970-01-01T00:00:00Z\", GoVersion:\"\", \
         Compiler:\"rustc\", Platform:{:?}}}\n",
        empty.join(", "),
        reported(),
        platform()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_suffix_of_the_reported_version_can_be_set() {
        for version in ["v1.36.2", "v1.36.2-gke.1", "v1.36.2+k3s1"] {
            let expected = Version::Report(version.to_owned());
            assert_eq!(Version::report(version), Ok(expected));
        }
        for version in ["v1.36.3", "v1.36.20", "v1.36", "v2", "v", "1.36.2"] {
            assert!(Version::report(version).is_err(), "{version}");
        }
    }
}
