//! Settings that no flag states: those of the running proxy, or of the rules in the kernel.

use proxy_core::{Config, Family, Mode};

use crate::cli::{ExplainArgs, Flags};
use crate::config::Effective;
use crate::failure::Failure;
use crate::rejectedz::get;
use crate::settings::Settings;

/// Path of the configuration, at the port for metrics.
const CONFIGZ: &str = "/configz";

/// Completes the configuration of `explain`, and returns what was assumed.
///
/// Without a configuration file, the running proxy is asked if the mode or the name of the node
/// is not given. Its configuration is used then, except for what flags state. If no proxy
/// answers, the mode is that of the rules in the kernel.
///
/// # Errors
///
/// The configuration of the running proxy with these flags is invalid.
pub(crate) fn complete(
    flags: &Flags,
    args: &ExplainArgs,
    effective: Effective,
    hostname: &str,
) -> Result<(Effective, Vec<String>), Failure> {
    let has_mode = flags.proxy_mode.is_some();
    let has_name = flags.hostname_override.is_some();
    let is_offline = args.plan_only || args.kernel_dump.is_some();
    if effective.file.is_some() || has_mode && has_name || is_offline {
        return Ok((effective, Vec::new()));
    }
    let settings = Settings::new(flags, effective.clone(), hostname)?;
    let answer = settings
        .metrics
        .map(|address| (address, get(address, CONFIGZ)));
    let silence = match answer {
        Some((address, Ok(configz))) => {
            let running = Effective::of_running(flags, &configz)?;
            let name = match &*running.configuration.hostname_override {
                "" => hostname,
                name => name,
            };
            let assumed = format!(
                "mode {}, node {name} and the other settings are those of the running proxy \
                 (http://{address}{CONFIGZ})",
                running.configuration.mode
            );
            return Ok((running, vec![assumed]));
        }
        Some((address, Err(error))) => format!("no proxy answers at {address} ({error})"),
        None => "the metrics of the proxy have no address".to_owned(),
    };
    let mut assumed = Vec::new();
    let mut effective = effective;
    if !has_mode {
        let found = installed(&settings.config);
        let mode = match found.first() {
            Some(mode) => {
                effective = Effective::in_mode(flags, mode.name())?;
                format!("mode {mode}: the kernel has its rules, and {silence}")
            }
            None => format!(
                "mode {}: the default, because {silence}, and the kernel has no rules of a \
                 kube-proxy; --proxy-mode sets another",
                effective.configuration.mode
            ),
        };
        assumed.push(mode);
    }
    if !has_name {
        assumed.push(format!(
            "node {}: the name of this host, because {silence}; --hostname-override sets another",
            hostname.trim().to_lowercase()
        ));
    }
    Ok((effective, assumed))
}

/// Returns the modes whose rules the kernel has. Mode ipvs is the first, because it has chains
/// of the same names as mode iptables.
pub(super) fn installed(config: &Config) -> Vec<Mode> {
    let mut modes: Vec<Mode> = Mode::BUILT_IN.to_vec();
    modes.sort_by_key(|mode| *mode != Mode::Ipvs);
    modes.retain(|mode| {
        let mut config = config.clone().with_mode(*mode);
        if let Some(choice) = mode.choose_iptables_backend(&config) {
            config.iptables.backend = choice.backend;
        }
        let has_rules = |family| {
            let rules = mode.installed_rules(&config, family);
            matches!(rules, Ok(Some(rules)) if rules.has_proxy())
        };
        [Family::V4, Family::V6].into_iter().any(has_rules)
    });
    modes
}
