//! `--oneshot`: one sync, then a comparison of the kernel with the plan.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use proxy_core::{Engine, FamilyReport};
use serde::Serialize;
use vipline_kube_source::WatchMode;
use vipline_service_model::Counted;

use crate::cli::Output;
use crate::failure::{Failure, chain, check_first_sync};
use crate::flows;
use crate::output::print;
use crate::process;
use crate::settings::Settings;
use crate::setup::Setup;
use crate::sysctl::Stage;

/// Report of `--oneshot`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The mode.
    pub mode: String,
    /// The node.
    pub node: String,
    /// Number of served Services.
    pub services: usize,
    /// Number of their ports, once per IP family.
    pub ports: usize,
    /// Number of endpoints of the ports.
    pub endpoints: usize,
    /// Number of edits in all IP families.
    pub edits: usize,
    /// Report per IP family.
    pub families: Vec<FamilySummary>,
    /// Whether the kernel equals the plan now.
    pub in_sync: bool,
    /// Duration of the sync in seconds.
    pub seconds: f64,
}

/// Report for one IP family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilySummary {
    /// The family.
    pub family: String,
    /// Number of committed edits.
    pub edits: usize,
    /// Number of installed objects.
    pub objects: usize,
    /// Objects that the kernel rejected, each with its Service and the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<String>,
    /// The error, if the sync failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Syncs once and prints a report. Succeeds if the kernel equals the plan.
///
/// # Errors
///
/// The manifests are invalid, or a privilege or kernel feature is missing.
pub fn oneshot(settings: Settings, output: Output) -> Result<ExitCode, Failure> {
    let (mode, node) = (
        settings.config.mode.to_string(),
        settings.config.engine.node_name.to_string(),
    );
    let mut setup = Setup::open(settings, WatchMode::ListOnly)?;
    process::prepare_mode(setup.settings(), Stage::Start)?;
    let start = Instant::now();
    let report = setup.engine.poll(Duration::ZERO);
    let seconds = start.elapsed().as_secs_f64();
    if let Some(report) = &report {
        check_first_sync(report, &setup.settings().config)?;
    }
    let done = report.as_ref().map_or(&[][..], |report| &report.families);
    for done in done {
        if let Some(result) = &done.cleanup {
            flows::log_search(done.family, result);
        }
    }
    let mut families: Vec<_> = done.iter().map(FamilySummary::new).collect();
    let is_success = report.as_ref().is_some_and(proxy_core::Report::is_success);
    let in_sync = is_success && equals(&mut setup, &mut families);
    let Counts {
        services,
        ports,
        endpoints,
    } = Counts::of(&setup.engine);
    let edits = families.iter().map(|family| family.edits).sum();
    let summary = Summary {
        mode,
        node,
        services,
        ports,
        endpoints,
        edits,
        families,
        in_sync,
        seconds,
    };
    print(&summary.show(output)?)?;
    Ok(if in_sync {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Numbers of served objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Counts {
    /// Served Services.
    services: usize,
    /// Their ports, once per family.
    ports: usize,
    /// Endpoints of the ports.
    endpoints: usize,
}

impl Counts {
    fn of(engine: &Engine) -> Self {
        let mut counts = Self::default();
        let mut services = HashSet::new();
        for port in engine.store().ports() {
            services.insert(port.name.service_name());
            counts.ports += 1;
            counts.endpoints += port.reachable().len();
        }
        counts.services = services.len();
        counts
    }
}

/// Compares the kernel with the plan.
fn equals(setup: &mut Setup, families: &mut [FamilySummary]) -> bool {
    match setup.engine.difference() {
        Ok(difference) => difference.edits == 0,
        Err(error) => {
            for family in families {
                family.error.get_or_insert_with(|| chain(&error));
            }
            false
        }
    }
}

impl FamilySummary {
    fn new(done: &FamilyReport) -> Self {
        let family = done.family.to_string();
        let rejected = done.rejected.iter().map(ToString::to_string).collect();
        match &done.outcome {
            Ok(outcome) => Self {
                family,
                edits: outcome.edits,
                objects: outcome.objects,
                rejected,
                error: None,
            },
            Err(error) => Self {
                family,
                edits: 0,
                objects: 0,
                rejected,
                error: Some(chain(error)),
            },
        }
    }
}

impl Summary {
    fn show(&self, output: Output) -> Result<String, Failure> {
        match output {
            Output::Text => Ok(self.text()),
            Output::Json => serde_json::to_string_pretty(self)
                .map(|text| text + "\n")
                .map_err(Failure::machine),
        }
    }

    fn text(&self) -> String {
        let Self {
            mode,
            node,
            services,
            ports,
            endpoints,
            ..
        } = self;
        let mut text = format!(
            "mode {mode}, node {node}: {}, {}, {}\n",
            Counted(*services, "service"),
            Counted(*ports, "port"),
            Counted(*endpoints, "endpoint")
        );
        for FamilySummary {
            family,
            edits,
            objects,
            rejected,
            error,
        } in &self.families
        {
            text += &match error {
                Some(error) => format!("{family}: {error}\n"),
                None => {
                    let (edits, objects) = (Counted(*edits, "edit"), Counted(*objects, "object"));
                    format!("{family}: {edits}, {objects}\n")
                }
            };
            for rejected in rejected {
                text += &format!("{family}: rejected: {rejected}\n");
            }
        }
        let state = if self.in_sync {
            "in sync"
        } else {
            "NOT in sync"
        };
        text + &format!("{state} after {:.3} s\n", self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_text_or_json() {
        let family = |family: &str, edits, error: Option<&str>| FamilySummary {
            family: family.into(),
            edits,
            objects: 30,
            rejected: Vec::new(),
            error: error.map(Into::into),
        };
        let mut summary = Summary {
            mode: "nftables".into(),
            node: "n1".into(),
            services: 1,
            ports: 2,
            endpoints: 3,
            edits: 4,
            families: vec![family("IPv4", 4, None), family("IPv6", 0, None)],
            in_sync: true,
            seconds: 0.25,
        };
        let text = "mode nftables, node n1: 1 service, 2 ports, 3 endpoints\n\
                    IPv4: 4 edits, 30 objects\nIPv6: 0 edits, 30 objects\nin sync after 0.250 s\n";
        assert_eq!(summary.show(Output::Text).unwrap(), text);
        let rejected = "shop/web:http: -a -t 10.96.0.1:80: invalid argument";
        summary.families[1].rejected.push(rejected.into());
        let text = summary.show(Output::Text).unwrap();
        assert!(
            text.contains(&format!("IPv6: rejected: {rejected}\n")),
            "{text}"
        );
        summary.families = vec![family("IPv4", 0, Some("refused"))];
        summary.in_sync = false;
        let text = summary.show(Output::Text).unwrap();
        assert!(text.contains("IPv4: refused\nNOT in sync"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&summary.show(Output::Json).unwrap()).unwrap();
        assert_eq!(json["families"][0]["error"], "refused");
        assert_eq!(
            (&json["services"], &json["in_sync"]),
            (&1.into(), &false.into())
        );
    }
}
