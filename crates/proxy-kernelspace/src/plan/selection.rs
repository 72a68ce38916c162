//! Selection of endpoints, which differs from all other modes.

use vipline_hcn::Features;
use vipline_service_model::{Endpoint, ServicePort};

use crate::Settings;

/// The endpoints of a service port.
pub(super) struct Selection {
    /// All selected endpoints, sorted.
    pub(super) endpoints: Vec<Endpoint>,
    /// Whether node ports, external IPs and health checks are served. Otherwise all
    /// endpoints of a load balancer terminate, or none serves.
    pub(super) serves_external: bool,
}

/// An endpoint with its conditions.
#[derive(Clone, Copy)]
struct Candidate {
    endpoint: Endpoint,
    is_serving: bool,
    is_terminating: bool,
}

impl Candidate {
    fn is_ready(self) -> bool {
        self.is_serving && !self.is_terminating
    }
}

/// Returns whether external traffic keeps its source and uses local endpoints only.
pub(super) fn is_local_dsr(settings: &Settings, port: &ServicePort) -> bool {
    port.external_policy_local && settings.features.contains(Features::DSR)
}

/// Selects the endpoints of a service port.
///
/// Without load balancer IPs these are the ready endpoints. With load balancer IPs:
///
/// - If an endpoint serves, the ready endpoints, or the serving ones if all terminate.
/// - If no endpoint serves, all endpoints.
///
/// Topology does not count.
pub(super) fn select(settings: &Settings, port: &ServicePort) -> Selection {
    let is_local_dsr = is_local_dsr(settings, port);
    let candidates = candidates(port);
    let counts = |it: &&Candidate| !is_local_dsr || it.endpoint.is_local;
    let considered: Vec<_> = candidates.iter().filter(counts).collect();
    let has_ingress = !port.load_balancer_ips.is_empty();
    // An endpoint that neither serves nor terminates does not count.
    let all_terminate = has_ingress && !considered.iter().any(|it| it.is_ready());
    let none_serves = has_ingress && !considered.iter().any(|it| it.is_serving);
    let is_selected = |it: &&Candidate| {
        let is_unused = port.internal_policy_local && is_local_dsr && !it.endpoint.is_local;
        let is_fit = none_serves || (it.is_serving && (all_terminate || it.is_ready()));
        !is_unused && is_fit
    };
    let selected = candidates.iter().filter(is_selected);
    let mut endpoints: Vec<_> = selected.map(|it| it.endpoint).collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    Selection {
        endpoints,
        serves_external: !all_terminate && !none_serves,
    }
}

/// Returns all endpoints with their conditions.
fn candidates(port: &ServicePort) -> Vec<Candidate> {
    let serving = port.serving.iter().map(|endpoint| Candidate {
        endpoint: *endpoint,
        is_serving: true,
        is_terminating: port.serving_terminating.contains(endpoint),
    });
    let others = port.not_serving.iter().map(|endpoint| Candidate {
        endpoint: *endpoint,
        is_serving: false,
        is_terminating: false,
    });
    serving.chain(others).collect()
}
