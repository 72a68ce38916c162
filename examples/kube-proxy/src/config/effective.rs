//! What counts in the end: file or flags, defaults, checked.

use std::path::PathBuf;

use super::{Configuration, Gates};
use crate::cli::Flags;
use crate::failure::Failure;

/// A configuration that is complete and valid.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The configuration.
    pub configuration: Configuration,
    /// The feature gates.
    pub gates: Gates,
    /// The file that it came from.
    pub file: Option<PathBuf>,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

impl Effective {
    /// Brings together what flags and the file that they name say.
    ///
    /// # Errors
    ///
    /// All that is wrong, each in a line.
    pub fn new(flags: &Flags) -> Result<Self, Failure> {
        let warnings = Vec::new();
        let mut configuration = Configuration::from_flags(flags);
        configuration.fill_for_linux();
        configuration.narrow();
        if let Some(name) = flags
            .hostname_override
            .as_ref()
            .filter(|name| !name.is_empty())
        {
            configuration.hostname_override = name.trim().to_lowercase();
        }
        let gates = Gates::new(&configuration.feature_gates).map_err(Failure::Input)?;
        Ok(Self {
            configuration,
            gates,
            file: flags.config.clone(),
            warnings,
        })
    }
}
