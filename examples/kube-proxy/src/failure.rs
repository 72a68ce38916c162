//! Fatal errors and exit codes.

use std::fmt;
use std::process::ExitCode;

use proxy_core::{Config, Report};

/// Exit code of `diff` if the kernel differs from the plan in rejected objects alone.
pub const ONLY_REJECTED: u8 = 3;

/// A fatal error.
#[derive(Debug)]
pub enum Failure {
    /// Invalid flags, configuration or manifests, one line per problem.
    Input(Vec<String>),
    /// A missing privilege or kernel feature, or a failed operation.
    Machine(String),
}

impl Failure {
    /// Creates an input failure with one line.
    pub fn input(reason: impl fmt::Display) -> Self {
        Self::Input(vec![reason.to_string()])
    }

    /// Creates a failure of the machine.
    pub fn machine(reason: impl fmt::Display) -> Self {
        Self::Machine(reason.to_string())
    }

    /// Returns a function that creates a failure of the machine: `cannot WHAT: ERROR`.
    pub fn cannot<E: fmt::Display>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Machine(format!("cannot {what}: {error}"))
    }

    /// Returns the exit code: 2 for invalid input, otherwise 1.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Input(_) => ExitCode::from(2),
            Self::Machine(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(reasons) => f.write_str(&reasons.join("\n")),
            Self::Machine(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Failure {}

/// Fails if an error of the first sync is permanent, or if the kernel lacks what the mode
/// needs.
///
/// A kernel rejects a rule with an expression that it lacks like one with a name that does not
/// exist. So the mode then asks for all that it needs, to name the option of the kernel instead of
/// retrying for ever.
///
/// # Errors
///
/// The first error of which a retry cannot succeed.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
pub fn check_first_sync(report: &Report, config: &Config) -> Result<(), Failure> {
    for (family, error) in report.errors() {
        if let Some(failure) = permanent_failure(error) {
            return Err(failure);
        }
        #[cfg(target_os = "linux")]
        if is_rejection(error)
            && let Err(error) = config.mode.probe(config, family)
            && let Some(failure) = permanent_failure(&error)
        {
            return Err(failure);
        }
    }
    Ok(())
}

/// Returns whether nf_tables rejected operations, for whatever reason.
#[cfg(target_os = "linux")]
fn is_rejection(error: &proxy_core::Error) -> bool {
    use proxy_core::netlink::ClientError;
    matches!(
        error.downcast_ref::<proxy_core::nftables::Error>(),
        Some(ClientError::Rejected { .. })
    )
}

/// Returns the failure if a retry cannot succeed.
fn permanent_failure(error: &proxy_core::Error) -> Option<Failure> {
    error.is_permanent().then(|| Failure::machine(error))
}

/// Formats an error with all its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;
    use std::time::Duration;

    use proxy_core::iptables::Error as IptablesError;
    use proxy_core::netlink::{Errno, Error as Netlink};
    use proxy_core::nftables::Error as NftablesError;
    use proxy_core::{Error, Event};

    use super::*;

    #[test]
    fn permanent_errors_end_the_program_with_one_line() {
        let unsupported = NftablesError::unsupported(Some(Errno::OPNOTSUPP));
        for (error, word) in [
            (unsupported, "CONFIG_NF_TABLES"),
            (NftablesError::Denied, "CAP_NET_ADMIN"),
        ] {
            let failure = permanent_failure(&error.into()).unwrap();
            assert!(failure.to_string().contains(word), "{failure}");
            assert_eq!(failure.to_string().lines().count(), 1);
            assert_eq!(failure.code(), ExitCode::FAILURE);
        }
        assert!(permanent_failure(&NftablesError::from(Netlink::Timeout).into()).is_none());
        let (program, message) = ("iptables-restore".into(), "no".into());
        let denied = IptablesError::Denied { program, message };
        let failure = permanent_failure(&Error::custom_permanent(denied))
            .unwrap()
            .to_string();
        assert!(failure.contains("CAP_NET_RAW"), "{failure}");
    }

    #[test]
    fn only_permanent_errors_of_the_first_sync_are_fatal() {
        let mut engine = Config::default().plan_only().unwrap();
        engine.apply(Event::Synced);
        let mut report = engine.poll(Duration::ZERO).unwrap();
        let config = Config::default();
        let failure = check_first_sync(&report, &config).unwrap_err();
        assert_eq!(failure.to_string(), "no kernel: this engine only plans");
        for done in &mut report.families {
            done.outcome = Err(NftablesError::from(Netlink::Timeout).into());
        }
        check_first_sync(&report, &config).unwrap();
    }

    #[test]
    fn an_error_is_one_line_with_its_causes() {
        let source = std::io::Error::other("no room");
        let error = NftablesError::from(Netlink::Io {
            operation: "open a netlink socket",
            source,
        });
        assert_eq!(chain(&error), "open a netlink socket: no room");
    }
}
