//! The program: its threads, its signals and its end.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use std::{process, thread};

use daemon::descriptors::raise_limit;
use daemon::runtime;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use tokio::runtime::Handle;
use tracing::{error, info, warn};
use vipline_service_dns::Zone;

use crate::config::Settings;
use crate::failure::Failure;
use crate::forward::Forwarder;
use crate::local_addresses;
use crate::node_local::NodeLocal;
use crate::server::{Responder, Server};
use crate::source::Source;
use crate::telemetry::{self, QueryLog, Telemetry};

/// Number of threads of tasks: upstream queries, TCP and the API server.
const TASK_THREADS: usize = 2;

/// Stack size of the threads that wait for signals.
const STACK: usize = 256 << 10;

/// Time after the first signal in which another one is the same: `timeout` and container
/// runtimes may signal a process and its group.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Answers queries until SIGTERM or SIGINT.
///
/// After the signal, `/ready` fails, and queries are answered for the time of the lame
/// duck. A second signal ends the process at once, except in the first half second.
///
/// # Errors
///
/// - [`Failure::Input`] if manifests, credentials or upstreams are invalid.
/// - [`Failure::Machine`] if an address cannot be bound, or a privilege is missing.
pub fn run(settings: &Settings) -> Result<(), Failure> {
    // Before the first descriptor: each connection and each upstream query takes one.
    if let Err((limit, error)) = raise_limit() {
        warn!("RLIMIT_NOFILE cannot be raised, using {limit}: {error}");
    }
    let signals = Signals::listen().map_err(Failure::cannot("handle signals"))?;
    let runtime = runtime::start(TASK_THREADS, "tasks")
        .map_err(Failure::cannot("start the threads of tasks"))?;
    let mut options = settings.zone.clone();
    options.local_addresses = local_addresses::of_listeners(&settings.listen);
    let zone = Arc::new(RwLock::new(Zone::new(options)));
    let forwarder = match &settings.forward {
        Some(options) => {
            let _guard = runtime.enter();
            Some(Forwarder::new(options.clone()).map_err(Failure::input)?)
        }
        None => None,
    };
    let log = Arc::new(
        QueryLog::start(settings.log_queries)
            .map_err(Failure::cannot("start the thread of the query log"))?,
    );
    let telemetry = Arc::new(Telemetry::new(Arc::clone(&zone), forwarder.clone()));
    let source = Source::start(
        &settings.source,
        Arc::clone(&zone),
        &telemetry,
        runtime.handle(),
    )?;
    let responder = Responder::new(
        zone,
        forwarder.clone(),
        Arc::clone(&log),
        settings.payload_size,
    );
    let node_local = settings.node_local.clone().map(NodeLocal::open);
    let node_local = node_local.transpose().map_err(Failure::machine)?;
    let parts = Parts {
        settings,
        signals: &signals,
        responder: Arc::new(responder),
        forwarder,
        log,
        telemetry: &telemetry,
        runtime: runtime.handle(),
    };
    let done = parts.serve(node_local.as_ref());
    drop(source);
    // Also after a failure, so that no address or rule leads to a server that ended.
    if let Some(node_local) = node_local {
        report(node_local.close());
    }
    done?;
    runtime.shutdown_background();
    info!("ended");
    Ok(())
}

/// Parts of the program that exist before its servers.
struct Parts<'a> {
    settings: &'a Settings,
    signals: &'a Signals,
    responder: Arc<Responder>,
    forwarder: Option<Forwarder>,
    log: Arc<QueryLog>,
    telemetry: &'a Arc<Telemetry>,
    runtime: &'a Handle,
}

impl Parts<'_> {
    /// Answers queries until the end of the lame duck. On return, all listeners are closed.
    fn serve(self, node_local: Option<&NodeLocal>) -> Result<(), Failure> {
        let Self {
            settings,
            signals,
            telemetry,
            ..
        } = self;
        let mut server = Server::start(
            &settings.listen,
            settings.threads,
            settings.tcp,
            self.responder,
            telemetry,
            self.runtime,
        )?;
        if let Some(node_local) = node_local {
            node_local.serve().map_err(Failure::machine)?;
        }
        let servers = telemetry::serve(&settings.pages, telemetry)
            .map_err(Failure::cannot("start the thread of health and metrics"))?;
        signals
            .toggle(self.log)
            .map_err(Failure::cannot("handle signals"))?;
        if let Some(forwarder) = &self.forwarder {
            forwarder.probe_loops();
        }
        signals
            .flush(self.forwarder)
            .map_err(Failure::cannot("handle signals"))?;
        signals.wait();
        let lame_duck = settings.lame_duck;
        info!(
            ?lame_duck,
            "ending: /ready fails, and queries are answered for the lame duck"
        );
        telemetry.set_ending();
        if let Err(error) = signals.end_at_second() {
            warn!("a second signal does not end the process at once: {error}");
        }
        if let Some(node_local) = node_local {
            report(node_local.withdraw());
        }
        thread::sleep(lame_duck);
        server.stop();
        drop((server, servers));
        Ok(())
    }
}

fn report(done: Result<(), crate::node_local::Error>) {
    if let Err(error) = done {
        warn!("node-local addresses or rules cannot be removed: {error}");
    }
}

/// Signals of this process.
struct Signals {
    end: UnixStream,
    query_log: UnixStream,
    flush: UnixStream,
}

impl Signals {
    /// Registers handlers for SIGTERM, SIGINT, SIGUSR1 and SIGUSR2, and ignores SIGHUP.
    fn listen() -> io::Result<Self> {
        let (end, ends) = UnixStream::pair()?;
        let (query_log, toggles) = UnixStream::pair()?;
        let (flush, flushes) = UnixStream::pair()?;
        let clone = ends.try_clone()?;
        for (signal, stream) in [
            (SIGTERM, clone),
            (SIGINT, ends),
            (SIGUSR1, toggles),
            (SIGUSR2, flushes),
        ] {
            pipe::register(signal, stream)?;
        }
        // Without a handler, the end of a terminal or a reload script ends the process.
        flag::register(SIGHUP, Arc::default())?;
        Ok(Self {
            end,
            query_log,
            flush,
        })
    }

    /// Waits for SIGTERM or SIGINT.
    fn wait(&self) {
        // Only the signal handler writes, and nothing closes the descriptor.
        let _ = (&self.end).read_exact(&mut [0]);
    }

    /// Switches the query log at each SIGUSR1.
    fn toggle(&self, log: Arc<QueryLog>) -> io::Result<()> {
        let mut stream = self.query_log.try_clone()?;
        spawn("query-log-switch", move || {
            while stream.read_exact(&mut [0]).is_ok() {
                let state = if log.toggle() { "on" } else { "off" };
                info!("query log is {state}");
            }
        })
    }

    /// Removes all answers of the upstreams from the cache at each SIGUSR2, as
    /// systemd-resolved does.
    fn flush(&self, forwarder: Option<Forwarder>) -> io::Result<()> {
        let mut stream = self.flush.try_clone()?;
        spawn("cache-flush", move || {
            while stream.read_exact(&mut [0]).is_ok() {
                match &forwarder {
                    Some(forwarder) => {
                        forwarder.flush();
                        info!("the cache of the upstreams' answers is empty");
                    }
                    None => info!("there is no cache to empty: nothing is forwarded"),
                }
            }
        })
    }

    /// Ends the process at the next SIGTERM or SIGINT after [`SAME_SIGNAL`].
    fn end_at_second(&self) -> io::Result<()> {
        let mut stream = self.end.try_clone()?;
        spawn("second-signal", move || {
            thread::sleep(SAME_SIGNAL);
            if discard(&mut stream).is_ok() && stream.read_exact(&mut [0]).is_ok() {
                error!("ended at once by a second signal");
                // Leaves time for the log.
                thread::sleep(Duration::from_millis(10));
                process::exit(1);
            }
        })
    }
}

/// Discards the signals that have arrived.
fn discard(signals: &mut UnixStream) -> io::Result<()> {
    signals.set_nonblocking(true)?;
    while signals.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
    signals.set_nonblocking(false)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.stack_size(STACK).spawn(work).map(drop)
}
