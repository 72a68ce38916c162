//! Why the program ends, and with which exit code.

use std::fmt;
use std::process::ExitCode;

/// Why nothing more can be done.
#[derive(Debug)]
pub enum Failure {
    /// Flags or manifests are wrong, one line for each thing.
    Input(Vec<String>),
    /// The machine or its kernel lacks something, or refused.
    Machine(String),
}

impl Failure {
    /// Returns a failure about one thing that the user gave.
    pub fn input(reason: impl fmt::Display) -> Self {
        Self::Input(vec![reason.to_string()])
    }

    /// Returns a failure of the machine.
    pub fn machine(reason: impl fmt::Display) -> Self {
        Self::Machine(reason.to_string())
    }

    /// Returns the exit code: 2 for bad input, 1 for the rest.
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
