//! Fatal errors and exit codes.

use std::fmt;
use std::process::ExitCode;

/// A fatal error.
#[derive(Debug, Eq, PartialEq)]
pub enum Failure {
    /// Invalid flags, configuration or manifests, one line per problem.
    Input(Vec<String>),
    /// A missing privilege, or a failed operation.
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
