//! Upstream name servers of the process.

use tokio::runtime::{Builder, Runtime};

use crate::scripted::{Action, Seen, Upstream};
use crate::stage::{FLAGS, Stage, service};

/// A scripted upstream on a thread of its own, in a namespace.
pub(crate) struct Server {
    upstream: Upstream,
    runtime: Runtime,
}

impl Server {
    /// Starts an upstream in the namespace of a stage.
    pub(crate) fn start(
        stage: &Stage,
        address: &str,
        script: impl Fn(&Seen) -> Vec<Action> + Send + Sync + 'static,
    ) -> Self {
        // Threads stay in the namespace in which they start.
        stage.netns.run(|| {
            let mut builder = Builder::new_multi_thread();
            let runtime = builder.worker_threads(1).enable_all().build().unwrap();
            let upstream = runtime.block_on(Upstream::start(address, script));
            Self { upstream, runtime }
        })
    }

    /// Returns the names of all queries, without health checks.
    pub(crate) fn names(&self) -> Vec<String> {
        self.upstream.seen().iter().map(Seen::name).collect()
    }

    /// Closes the sockets.
    pub(crate) fn stop(self) {
        self.runtime.block_on(self.upstream.stop());
    }
}

/// Starts the program with a Service, and with flags and a configuration for forwarding.
pub(crate) fn forwarding(flags: &str, config: &str) -> Stage {
    with_objects(&service("web", "10.96.0.10"), flags, config)
}

/// Starts the program with manifests, and with flags and a configuration for forwarding.
pub(crate) fn with_objects(objects: &str, flags: &str, config: &str) -> Stage {
    let directory = testkit::scoped::Directory::new().unwrap();
    directory.write("config.yml", config).unwrap();
    let config = directory.path().join("config.yml");
    let flags = FLAGS.replace("--forward none", flags);
    let flags = format!("--config {} {flags}", config.display());
    Stage::start(&[("objects.yaml", objects)], &flags)
}

/// Returns the value of a sample without labels, or of the first sample with a label.
pub(crate) fn metric(stage: &Stage, name: &str, label: &str) -> f64 {
    let page = stage.page("/metrics").unwrap();
    let is_wanted = |line: &&str| {
        let rest = line.strip_prefix(name).unwrap_or_default();
        rest.starts_with(['{', ' ']) && rest.contains(label)
    };
    let line = page.lines().find(is_wanted);
    let line = line.unwrap_or_else(|| panic!("{name} {label}: {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}
