//! What is at which path.

use std::time::Instant;

use clap::CommandFactory;
use hyper::Method;

use super::http::{PLAIN, Request, Response, not_found, response, text};
use crate::cli::Cli;
use crate::config::{Gate, Gates};
use crate::settings::Settings;
use crate::telemetry::{CONTENT_TYPE, Probe, Telemetry};

/// Answers on the port for health.
pub(super) fn health(telemetry: &Telemetry, request: &Request) -> Response {
    match request.uri().path() {
        "/healthz" => response(telemetry.probe(Probe::Healthz)),
        "/livez" => response(telemetry.probe(Probe::Livez)),
        _ => not_found(),
    }
}

/// What the port for metrics shows besides them.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    telemetry: Telemetry,
    mode: &'static str,
    /// The configuration as JSON.
    configuration: String,
    gates: Gates,
    start: Instant,
}

impl Pages {
    /// Returns the pages of a proxy that begins.
    pub(super) fn new(settings: &Settings, telemetry: Telemetry) -> Self {
        Self {
            telemetry,
            mode: settings.config.mode.name(),
            configuration: settings.configuration.to_configz(),
            gates: settings.feature_gates.clone(),
            start: Instant::now(),
        }
    }

    /// Answers on the port for metrics.
    pub(super) fn answer(&self, request: &Request) -> Response {
        match request.uri().path() {
            "/healthz" => text(200, PLAIN, "ok"),
            "/metrics" => text(200, CONTENT_TYPE, self.telemetry.metrics(&self.gates)),
            // There is no component whose health is counted.
            "/metrics/slis" if request.method() == Method::DELETE => {
                text(200, PLAIN, "metrics reset\n")
            }
            "/metrics/slis" => text(200, CONTENT_TYPE, ""),
            "/proxyMode" => text(200, PLAIN, self.mode),
            "/configz" => text(200, "application/json", &*self.configuration),
            "/flagz" if self.gates.is_open(Gate::ComponentFlagz) => text(200, PLAIN, flags()),
            "/statusz" if self.gates.is_open(Gate::ComponentStatusz) => {
                text(200, PLAIN, self.status())
            }
            _ => not_found(),
        }
    }

    fn status(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let up = self.start.elapsed().as_secs();
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        format!(
            "kube-proxy statusz\n\
             This page is for people; its form may change.\n\n\
             Up: {hours} hr {minutes:02} min {seconds:02} sec\n\
             Binary version: {version}\n\
             Mode: {}\n\
             Paths: /configz /flagz /healthz /metrics /metrics/slis /proxyMode\n",
            self.mode
        )
    }
}

/// Returns the flags that were given, and those that have a default of their
/// own: what others are is in the configuration.
fn flags() -> String {
    let mut page = "kube-proxy flagz\nThis page is for people; its form may change.\n\n".to_owned();
    let mut command = Cli::command();
    // These arguments were read before, or this is no kube-proxy.
    let Ok(read) = command.try_get_matches_from_mut(std::env::args_os()) else {
        return page;
    };
    for flag in command.get_arguments() {
        let values = read.try_get_raw(flag.get_id().as_str());
        if let (Some(name), Ok(Some(values))) = (flag.get_long(), values) {
            let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
            page += &format!("{name}={}\n", values.join(","));
        }
    }
    page
}
