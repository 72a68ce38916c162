//! What counts in the end: file or flags, defaults, checked.

use std::fs;
use std::path::{Path, PathBuf};

use super::validate::check;
use super::{Configuration, Gates, file};
use crate::cli::Flags;
use crate::failure::Failure;

/// A configuration that is complete and valid.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The configuration.
    pub configuration: Configuration,
    /// The configuration for where the kernel cannot do mode ipvs, if it asks for
    /// that.
    pub fallback: Option<Configuration>,
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
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| path != Path::new(""));
        let file = given(&flags.config);
        let mut warnings = Vec::new();
        let mut configuration = match &file {
            Some(path) => read(path, &mut warnings)?,
            None => Configuration::from_flags(flags),
        };
        if file.is_some() {
            configuration.logging.take(&flags.log);
        }
        configuration.fill_for_linux();
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
        let fallback = configuration.without_ipvs();
        configuration.narrow();
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
        warnings.extend(flags.remarks());
        Ok(Self {
            configuration,
            fallback,
            gates,
            file,
            warnings,
        })
    }
}

/// Reads a file and warns of what in it goes unused.
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
    if !found.strange.is_empty() {
        warnings.push(format!(
            "{shown}: Using lenient decoding as strict decoding failed: {}",
            found.strange.join(", ")
        ));
    }
    Ok(found.configuration)
}
