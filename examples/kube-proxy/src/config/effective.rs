//! The effective configuration: flags, file and defaults, validated.

use std::fs;
use std::path::{Path, PathBuf};

use super::validate::check;
use super::write::CONFIGZ_KEY;
use super::{Configuration, Gates, file};
use crate::cli::Flags;
use crate::failure::Failure;

/// A complete and valid configuration.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The configuration.
    pub configuration: Configuration,
    /// Configuration of mode iptables, if the mode is ipvs. Used if the kernel
    /// does not support mode ipvs.
    pub fallback: Option<Configuration>,
    /// The feature gates.
    pub gates: Gates,
    /// Path of the configuration file, if any.
    pub file: Option<PathBuf>,
    /// Warnings about the configuration.
    pub warnings: Vec<String>,
}

impl Effective {
    /// Combines flags with the file that they name.
    ///
    /// # Errors
    ///
    /// All problems, one line each.
    pub fn new(flags: &Flags) -> Result<Self, Failure> {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| path != Path::new(""));
        let file = given(&flags.config);
        let mut warnings = Vec::new();
        let mut configuration = match &file {
            Some(path) => read(path, &mut warnings)?,
            None => Configuration::from_flags(flags),
        };
        if file.is_some() {
            configuration.logging.apply(&flags.log);
        }
        Self::complete(flags, configuration, file, warnings)
    }

    /// Combines flags with the configuration of a running proxy, as `/configz` shows it. The
    /// access to the API server is that of the flags.
    ///
    /// # Errors
    ///
    /// The text is no configuration, or all problems, one line each.
    pub fn of_running(flags: &Flags, configz: &str) -> Result<Self, Failure> {
        let named = |reason: String| {
            Failure::machine(format_args!(
                "the configuration of the running proxy: {reason}"
            ))
        };
        let document: serde_json::Value =
            serde_json::from_str(configz).map_err(|error| named(error.to_string()))?;
        let inner = document.get(CONFIGZ_KEY).unwrap_or(&document);
        let found =
            file::read(&inner.to_string()).map_err(|fault| named(fault.reason.into_owned()))?;
        let mut configuration = found.configuration;
        configuration.overlay(flags);
        Self::complete(flags, configuration, None, Vec::new())
    }

    /// Combines flags with a mode that they do not state.
    ///
    /// # Errors
    ///
    /// All problems, one line each.
    pub fn in_mode(flags: &Flags, mode: &str) -> Result<Self, Failure> {
        let mut configuration = Configuration::from_flags(flags);
        configuration.mode = mode.to_owned();
        Self::complete(flags, configuration, None, Vec::new())
    }

    /// Completes and checks a configuration.
    fn complete(
        flags: &Flags,
        mut configuration: Configuration,
        file: Option<PathBuf>,
        mut warnings: Vec<String>,
    ) -> Result<Self, Failure> {
        configuration.fill_for_system();
        let mut reasons = Vec::new();
        if let Some(name) = flags
            .hostname_override
            .as_ref()
            .filter(|name| !name.is_empty())
        {
            configuration.hostname_override = name.trim().to_lowercase();
            if configuration.hostname_override.is_empty() {
                reasons.push("--hostname-override: empty host name".to_owned());
            }
        }
        let fallback = configuration.fallback();
        configuration.reset_other_modes();
        let gates = check(&configuration).unwrap_or_else(|faults| {
            reasons.extend(faults);
            Gates::default()
        });
        if !reasons.is_empty() {
            return Err(Failure::Input(match &file {
                Some(path) => reasons
                    .iter()
                    .map(|reason| format!("{}: {reason}", path.display()))
                    .collect(),
                None => reasons,
            }));
        }
        warnings.extend(flags.warnings(&configuration.mode));
        warnings.extend(gates.warning());
        Ok(Self {
            configuration,
            fallback,
            gates,
            file,
            warnings,
        })
    }
}

/// Reads a file. Adds warnings about unused fields.
fn read(path: &Path, warnings: &mut Vec<String>) -> Result<Configuration, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::input(format_args!("{shown}: {error}")))?;
    let found = file::read(&text).map_err(|fault| {
        let place = match (fault.at.line, fault.at.column) {
            (0, _) => String::new(),
            (line, column) => format!(":{line}:{column}"),
        };
        let field = match &*fault.path {
            "" => String::new(),
            path => format!(" {path}:"),
        };
        Failure::input(format_args!("{shown}{place}:{field} {}", fault.reason))
    })?;
    if !found.problems.is_empty() {
        warnings.push(format!(
            "{shown}: Using lenient decoding as strict decoding failed: {}",
            found.problems.join(", ")
        ));
    }
    Ok(found.configuration)
}
