//! Background tasks: their runtime and their queue to the engine thread.

#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use daemon::runtime;
use tokio::runtime::{Handle, Runtime};
use vipline_kube_source::api::exec_plugin::RunningPlugin;
use vipline_kube_source::api::feed::{Item, Receiver, Sender, feed};

use crate::failure::Failure;

/// Number of runtime threads. Tasks mostly wait.
const THREADS: usize = 2;

/// The runtime of all tasks. Dropping it ends all tasks.
pub struct Tasks {
    /// `Some` until the drop.
    runtime: Option<Runtime>,
    sender: Sender,
    receiver: Receiver,
    plugin: RunningPlugin,
}

impl Tasks {
    /// Starts the runtime without tasks.
    ///
    /// # Errors
    ///
    /// Threads or descriptors cannot be created.
    pub fn start() -> Result<Self, Failure> {
        let (sender, receiver) = feed().map_err(Failure::cannot("create the queue of tasks"))?;
        let runtime = runtime::start(THREADS, "tasks")
            .map_err(Failure::cannot("start the threads of tasks"))?;
        Ok(Self {
            runtime: Some(runtime),
            sender,
            receiver,
            plugin: RunningPlugin::default(),
        })
    }

    /// Returns the handle to spawn tasks.
    pub fn handle(&self) -> &Handle {
        self.runtime
            .as_ref()
            .expect("the runtime exists until the drop")
            .handle()
    }

    /// Returns the sending end of the queue to the engine thread.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Returns the exec plugin of the credentials, killed with the tasks.
    pub fn plugin(&self) -> &RunningPlugin {
        &self.plugin
    }

    /// Returns the queued items. Does not block.
    ///
    /// # Errors
    ///
    /// The reason of a task that requested the end of the process.
    pub fn take(&mut self) -> Result<Vec<Item>, Failure> {
        self.receiver.take().map_err(Failure::Machine)
    }

    /// Waits until items are queued, or until a timeout.
    ///
    /// # Errors
    ///
    /// On Linux, a system call fails.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), Failure> {
        self.receiver
            .wait(timeout)
            .map(drop)
            .map_err(Failure::cannot("wait for events"))
    }
}

/// Becomes readable while items are queued.
#[cfg(target_os = "linux")]
impl AsFd for Tasks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Does not wait for tasks, such as requests to a server that does
            // not respond.
            runtime.shutdown_background();
            self.plugin.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn hanging_tasks_do_not_delay_the_end_of_the_process() {
        let tasks = Tasks::start().unwrap();
        let (started, hears) = std::sync::mpsc::channel();
        let (release, held) = std::sync::mpsc::channel::<()>();
        tasks.handle().spawn_blocking(move || {
            started.send(()).unwrap();
            let _ = held.recv();
        });
        tasks.handle().spawn(std::future::pending::<()>());
        hears.recv().unwrap();
        let begin = Instant::now();
        drop(tasks);
        assert!(begin.elapsed() < Duration::from_secs(5));
        drop(release);
    }
}
