//! Objects from manifests or from an API server, applied to the zone.
//!
//! A thread waits for changes and applies each at once. While the API server is
//! unreachable, the zone keeps its last state.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use daemon::log_limit::{self, LineLimit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::runtime::Handle;
use tracing::{debug, error, info, warn};
use vipline_kube_source::WatchMode;
use vipline_kube_source::api::Api;
use vipline_kube_source::api::exec_plugin::RunningPlugin;
use vipline_kube_source::api::feed::{Item, Receiver, feed};
use vipline_kube_source::manifests::Manifests;
use vipline_kube_source::manifests::source::Update;
use vipline_service_dns::Zone;
use vipline_service_model::{Event, Kind};

use crate::config;
use crate::failure::Failure;
use crate::telemetry::Telemetry;

/// The thread that applies changes. Dropping the value ends it.
#[derive(Debug)]
pub struct Source {
    thread: Option<JoinHandle<()>>,
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    /// Exec plugin of the credentials.
    plugin: RunningPlugin,
}

/// Objects that change.
enum Objects {
    Manifests(Manifests),
    Api {
        receiver: Receiver,
        /// Kinds that were listed.
        listed: Vec<Kind>,
    },
}

/// The zone, and what is reported about its changes.
struct Applier {
    zone: Arc<RwLock<Zone>>,
    telemetry: Arc<Telemetry>,
    /// Limit of the warnings about fields of objects.
    problems: LineLimit,
    start: Instant,
}

impl Source {
    /// Starts to follow objects. On return, manifests are applied; those of an API server
    /// follow.
    ///
    /// # Errors
    ///
    /// - [`Failure::Input`] if manifests or credentials are invalid.
    /// - [`Failure::Machine`] if the thread cannot be created.
    pub fn start(
        source: &config::Source,
        zone: Arc<RwLock<Zone>>,
        telemetry: &Arc<Telemetry>,
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let plugin = RunningPlugin::default();
        let applier = Applier {
            zone,
            telemetry: Arc::clone(telemetry),
            problems: LineLimit::new("problems of objects"),
            start: Instant::now(),
        };
        let objects = match source {
            config::Source::Manifests(path) => applier.open(path)?,
            config::Source::Api(access) => {
                let (observer, node) = (Arc::clone(telemetry), Arc::from(""));
                let api = Api::open(access, node, runtime.clone(), observer, plugin.clone());
                let api = api.map_err(Failure::input)?;
                let (sender, receiver) =
                    feed().map_err(Failure::cannot("create the queue of objects"))?;
                api.watch_all_services(WatchMode::ListAndWatch, &sender);
                api.watch_namespaces(WatchMode::ListAndWatch, &sender);
                let listed = Vec::new();
                Objects::Api { receiver, listed }
            }
        };
        let (reader, stop) =
            pipe_with(PipeFlags::CLOEXEC).map_err(Failure::cannot("create a pipe"))?;
        let builder = thread::Builder::new().name("source".to_owned());
        let thread = builder.spawn(move || applier.run(objects, &reader));
        Ok(Self {
            thread: Some(thread.map_err(Failure::cannot("start the thread of the source"))?),
            stop: Some(stop),
            plugin,
        })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stop = None;
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            error!("the source thread panicked");
        }
        self.plugin.kill();
    }
}

impl Applier {
    /// Opens manifests and applies them.
    fn open(&self, path: &Path) -> Result<Objects, Failure> {
        let opened = Manifests::watch(path);
        let (manifests, update) =
            opened.map_err(|error| Failure::input(format_args!("{}: {error}", path.display())))?;
        if !update.errors.is_empty() {
            let errors = update.errors.iter().map(ToString::to_string);
            return Err(Failure::Input(errors.collect()));
        }
        self.update(update);
        self.apply(&Event::Synced);
        Ok(Objects::Manifests(manifests))
    }

    /// Applies changes until the other end of `stop` is closed.
    fn run(self, mut objects: Objects, stop: &OwnedFd) {
        loop {
            match self.wait(&objects, stop.as_fd()) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    error!("changes cannot be waited for: {error}; the zone keeps its state");
                    return;
                }
            }
            match &mut objects {
                Objects::Manifests(manifests) => {
                    let update = manifests.poll(self.start.elapsed());
                    self.update(update);
                }
                Objects::Api { receiver, listed } => match receiver.take() {
                    Ok(items) => self.items(items, listed),
                    Err(reason) => {
                        error!("{reason}; the zone keeps its state");
                        return;
                    }
                },
            }
        }
    }

    /// Waits for a change. Returns whether the thread must end.
    fn wait(&self, objects: &Objects, stop: BorrowedFd<'_>) -> io::Result<bool> {
        let (readable, deadline) = match objects {
            Objects::Manifests(manifests) => (manifests.readable(), manifests.next_deadline()),
            Objects::Api { receiver, .. } => (Some(receiver.as_fd()), None),
        };
        let fds = [Some(stop), readable].into_iter().flatten();
        let mut fds: Vec<_> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout =
            deadline.map(|deadline| timespec(deadline.saturating_sub(self.start.elapsed())));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fds.first().is_some_and(|fd| !fd.revents().is_empty()))
    }

    fn update(&self, update: Update) {
        log_limit::each("ignored documents", update.ignored, |line| {
            debug!("ignored: {line}");
        });
        for _ in &update.errors {
            self.telemetry.count_problem();
        }
        log_limit::each("invalid manifests", update.errors, |error| {
            error!("{error}");
        });
        for event in update.events {
            self.apply(&event);
        }
    }

    fn items(&self, items: Vec<Item>, listed: &mut Vec<Kind>) {
        for item in items {
            match item {
                Item::Event(event) => self.apply(&event),
                Item::Listed(kind) => {
                    listed.push(kind);
                    let required = [Kind::Service, Kind::EndpointSlice, Kind::Namespace];
                    let is_complete = required.iter().all(|kind| listed.contains(kind));
                    if is_complete && required.contains(&kind) {
                        info!("all Services, EndpointSlices and Namespaces are listed");
                        self.apply(&Event::Synced);
                    }
                }
            }
        }
    }

    fn apply(&self, event: &Event) {
        self.telemetry.count_event();
        let mut zone = self.zone.write().unwrap_or_else(PoisonError::into_inner);
        let warnings = zone.apply(event);
        drop(zone);
        for warning in warnings {
            self.telemetry.count_problem();
            if self.problems.admits() {
                warn!("{warning}");
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
