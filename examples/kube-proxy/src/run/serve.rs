//! The HTTP servers of a running proxy.

use std::sync::Arc;

use vipline_kube_source::api::events::{EventType, NewEvent, Regarding};

use crate::failure::Failure;
#[cfg(target_os = "linux")]
use crate::process;
use crate::server::{self, Explain, ListenFailure, Servers};
use crate::settings::Settings;
use crate::setup::Setup;

/// Starts the health and metrics servers.
///
/// # Errors
///
/// The thread of the servers cannot be created.
pub(super) fn serve(
    setup: &Setup,
    settings: &Settings,
    explanations: Option<Explain>,
) -> Result<Option<Servers>, Failure> {
    let Some(tasks) = &setup.tasks else {
        return Ok(None);
    };
    let (recorder, sender) = (setup.recorder.clone(), tasks.sender().clone());
    let is_hard = settings.bind_address_hard_fail;
    let on_failure = move |failure: ListenFailure| {
        let (regarding, is_fatal) = match &failure {
            ListenFailure::Service { name, .. } => (Regarding::Service(name.clone()), false),
            ListenFailure::Health(_) | ListenFailure::Metrics(_) => (Regarding::Node, is_hard),
        };
        // Upstream creates no Event for a server that is retried.
        if is_fatal || matches!(failure, ListenFailure::Service { .. }) {
            recorder.record(NewEvent {
                regarding,
                kind: EventType::Warning,
                reason: failure.reason(),
                action: failure.action(),
                text: failure.text().to_owned(),
            });
        }
        if is_fatal {
            sender.fatal(failure.text());
        }
    };
    #[cfg(target_os = "linux")]
    let descriptors = process::raise_descriptor_limit();
    // Handles of Windows have no such limit.
    #[cfg(not(target_os = "linux"))]
    let descriptors = usize::MAX;
    let on_failure = Arc::new(on_failure);
    let telemetry = &setup.telemetry;
    let servers = server::start(settings, telemetry, explanations, descriptors, on_failure);
    servers
        .map(Some)
        .map_err(Failure::cannot("start the thread of the servers"))
}
