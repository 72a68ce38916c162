//! The program as a service: it starts and stops with the Service Control Manager.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use tracing::error;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use windows_service::service::{
    ServiceControl, ServiceControlAccept, ServiceExitCode, ServiceState, ServiceStatus, ServiceType,
};
use windows_service::service_control_handler::{self, ServiceControlHandlerResult};
use windows_service::{define_windows_service, service_dispatcher};

use super::event_log::EventLog;
use crate::cli::Cli;
use crate::command;
use crate::config::{Effective, Logging};
use crate::failure::chain;
use crate::logging;
use crate::stop::Stop;

/// Name of the service, and source of its events.
const NAME: &str = "kube-proxy";

/// The command line of the process. Windows calls [`serve`] without it.
static COMMAND_LINE: OnceLock<Cli> = OnceLock::new();

define_windows_service!(service_main, serve);

/// Runs the command line, as a service with `--windows-service` (`windowsRunAsService`).
pub(crate) fn start(cli: &Cli) -> ExitCode {
    if !is_service(cli) {
        return command::start(cli);
    }
    // The process has one command line.
    let _ = COMMAND_LINE.set(cli.clone());
    match service_dispatcher::start(NAME, service_main) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logging::start(
                &Logging::from(&cli.flags.log),
                BoxMakeWriter::new(io::stderr),
            );
            error!(
                "--windows-service: the Service Control Manager has not started this process: {}",
                chain(&error)
            );
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the command line is that of a service. The Event Log has the reason if
/// the rest of the command line is invalid.
fn is_service(cli: &Cli) -> bool {
    let is_service = match Effective::new(&cli.flags) {
        Ok(effective) => effective.configuration.windows_run_as_service,
        Err(_) => cli.flags.kernelspace.windows_service == Some(true),
    };
    is_service && cli.command.is_none()
}

/// The service: reports its state, and runs the command line.
fn serve(_: Vec<OsString>) {
    let stop = Stop::default();
    let requested = stop.clone();
    let control = move |control| match control {
        ServiceControl::Stop | ServiceControl::Shutdown | ServiceControl::Preshutdown => {
            requested.request();
            ServiceControlHandlerResult::NoError
        }
        // Every service must accept it.
        ServiceControl::Interrogate => ServiceControlHandlerResult::NoError,
        _ => ServiceControlHandlerResult::NotImplemented,
    };
    let (Some(cli), Ok(manager)) = (
        COMMAND_LINE.get(),
        service_control_handler::register(NAME, control),
    ) else {
        return;
    };
    // Without a reported state, the Service Control Manager ends the process.
    let _ = manager.set_service_status(status(ServiceState::Running, ServiceExitCode::NO_ERROR));
    let code = command::run(cli, BoxMakeWriter::new(EventLog::open(NAME)), &stop);
    let code = match code == ExitCode::SUCCESS {
        true => ServiceExitCode::NO_ERROR,
        // Recovery actions of the service apply to it.
        false => ServiceExitCode::ServiceSpecific(1),
    };
    let _ = manager.set_service_status(status(ServiceState::Stopped, code));
}

fn status(current_state: ServiceState, exit_code: ServiceExitCode) -> ServiceStatus {
    let controls_accepted = match current_state {
        ServiceState::Running => ServiceControlAccept::STOP | ServiceControlAccept::PRESHUTDOWN,
        _ => ServiceControlAccept::empty(),
    };
    ServiceStatus {
        service_type: ServiceType::OWN_PROCESS,
        current_state,
        controls_accepted,
        exit_code,
        checkpoint: 0,
        wait_hint: Duration::default(),
        process_id: None,
    }
}
