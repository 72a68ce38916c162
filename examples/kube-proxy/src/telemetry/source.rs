//! Reports of the API source: metrics and log lines.

use tracing::{debug, info, warn};
use vipline_kube_source::api::{Contact, Observer, Report, RequestEvent, Severity};
use vipline_service_model::Kind;

use super::Telemetry;

impl Observer for Telemetry {
    fn request(&self, host: &str, method: &str, event: RequestEvent) {
        self.state().metrics.requests.record(host, method, event);
    }

    fn contact(&self, kind: Kind, contact: Contact) {
        self.state().contacts.insert(kind, contact);
    }

    fn report(&self, report: &Report) {
        if let Some(kind) = report.object_problem() {
            self.object_problem(kind);
        }
        match report.severity() {
            Severity::Warning => warn!("{report}"),
            Severity::Info => info!("{report}"),
            Severity::Debug => debug!("{report}"),
        }
    }
}
