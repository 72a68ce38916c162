//! Pages of the health and metrics servers.

use std::sync::Arc;
use std::time::Instant;

use clap::CommandFactory;
use hyper::Method;

use super::Explain;
use crate::cli::Cli;
use crate::config::{Gate, Gates};
use crate::logging;
use crate::rejectedz;
use crate::settings::Settings;
use crate::telemetry::{CONTENT_TYPE, Probe, Telemetry};
use crate::version;
use daemon::http::{PLAIN, Request, Response, is_local, not_found, text};
use proxy_core::health::HttpResponse;

/// Path of explanations.
const EXPLAIN: &str = "/debug/explain";

/// Responds on the health port.
pub(super) fn health(telemetry: &Telemetry, request: &Request) -> Response {
    match request.uri().path() {
        "/healthz" => response(telemetry.probe(Probe::Healthz)),
        "/livez" => response(telemetry.probe(Probe::Livez)),
        _ => not_found(),
    }
}

/// Converts an answer into a response.
pub(super) fn response(answer: HttpResponse) -> Response {
    daemon::http::response(answer.code, answer.headers, answer.body)
}

/// Content of the metrics port besides the metrics.
#[derive(Clone)]
pub(super) struct Pages {
    telemetry: Telemetry,
    mode: &'static str,
    node: Arc<str>,
    /// Effective configuration as JSON.
    configuration: String,
    gates: Gates,
    /// Explanations by the engine. `None` in tests of the server.
    explanations: Option<Explain>,
    /// Whether `--profiling` is set. As in upstream, `/debug` requires it, except for
    /// explanations to clients on this node.
    serves_debug: bool,
    start: Instant,
}

impl Pages {
    /// Creates the pages.
    pub(super) fn new(
        settings: &Settings,
        telemetry: Telemetry,
        explanations: Option<Explain>,
    ) -> Self {
        Self {
            explanations,
            telemetry,
            mode: settings.mode_name(),
            node: settings.config.engine.node_name.as_ref().into(),
            configuration: settings.configuration.to_configz(),
            gates: settings.feature_gates.clone(),
            serves_debug: settings.configuration.enable_profiling,
            start: Instant::now(),
        }
    }

    /// Responds on the metrics port.
    pub(super) fn answer(&self, request: &Request) -> Response {
        match request.uri().path() {
            "/healthz" => text(200, PLAIN, "ok"),
            "/metrics" => text(200, CONTENT_TYPE, self.telemetry.metrics(&self.gates)),
            // The proxy has no component with health counters.
            "/metrics/slis" if request.method() == Method::DELETE => {
                text(200, PLAIN, "metrics reset\n")
            }
            "/metrics/slis" => text(200, CONTENT_TYPE, ""),
            "/proxyMode" => text(200, PLAIN, self.mode),
            rejectedz::PATH => text(200, "application/json", self.rejected()),
            // Whoever may scrape metrics must not learn the firewall rules of the node, or
            // who is connected to whom.
            EXPLAIN if !(self.serves_debug || is_local(request)) => text(
                403,
                PLAIN,
                "explanations show rules and connections of this node: \
                 ask from a loopback address, or start kube-proxy with --profiling\n",
            ),
            EXPLAIN => match &self.explanations {
                Some(explanations) => explanations(request.uri().query().unwrap_or("")),
                None => not_found(),
            },
            "/configz" => text(200, "application/json", &*self.configuration),
            "/flagz" if self.gates.is_enabled(Gate::ComponentFlagz) => text(200, PLAIN, flags()),
            "/statusz" if self.gates.is_enabled(Gate::ComponentStatusz) => {
                text(200, PLAIN, self.status())
            }
            path if self.serves_debug => debug(path, request),
            _ => not_found(),
        }
    }

    fn rejected(&self) -> String {
        rejectedz::Page::new(self.mode, &self.node, &self.telemetry.unserved()).to_json()
    }

    fn status(&self) -> String {
        let version = version::reported();
        let up = self.start.elapsed().as_secs();
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        format!(
            "kube-proxy statusz\n\
             This page is for people; its form may change.\n\n\
             Up: {hours} hr {minutes:02} min {seconds:02} sec\n\
             Binary version: {version}\n\
             Mode: {}\n\
             Paths: /configz /debug/explain /flagz /healthz /metrics /metrics/slis /proxyMode /rejectedz\n",
            self.mode
        )
    }
}

/// Responds at `/debug/flags`: flags that can change at run time.
fn debug(path: &str, request: &Request) -> Response {
    let plain = |code, result: String| text(code, "text/plain", result + "\n");
    match path {
        "/debug/flags/v" if request.method() != Method::PUT => {
            plain(406, "unsupported http method".to_owned())
        }
        "/debug/flags/v" => match set_verbosity(&String::from_utf8_lossy(request.body())) {
            Ok(done) => plain(200, done),
            Err(reason) => plain(400, reason),
        },
        _ if path == "/debug/flags" || path.starts_with("/debug/flags/") => {
            text(200, "text/html; charset=utf-8", FLAGS)
        }
        _ => not_found(),
    }
}

/// The list of flags, with upstream's text.
const FLAGS: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n\
    /debug/flags/<br>\n<br>\nflags:<br>\n<table>\n<tr>v<br>\n</table>\n<br>\n\
    full flags configurable<br>\n</body>\n</html>\n";

/// Sets the verbosity of the log. Result and errors have upstream's text.
fn set_verbosity(text: &str) -> Result<String, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wrong = |what, why| format!("strconv.{what}: parsing {text:?}: {why}");
    if !is_number {
        return Err(wrong("ParseUint", "invalid syntax"));
    }
    let verbosity: u32 = text
        .parse()
        .map_err(|_| wrong("ParseUint", "value out of range"))?;
    if i32::try_from(verbosity).is_err() {
        let reason = wrong("ParseInt", "value out of range");
        return Err(format!(
            "failed set klog.logging.verbosity {text}: {reason}"
        ));
    }
    logging::set_verbosity(verbosity)?;
    Ok(format!("successfully set klog.logging.verbosity to {text}"))
}

/// Returns the flags that were set, and flags with defaults. Other values are
/// in the configuration.
fn flags() -> String {
    let mut page = "kube-proxy flagz\nThis page is for people; its form may change.\n\n".to_owned();
    let mut command = Cli::command();
    // Parsing fails only in other programs, such as tests.
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
