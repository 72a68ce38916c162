//! What happens beside the engine: the runtime of all tasks, and their way to
//! the engine's thread.

use std::os::fd::{AsFd, BorrowedFd};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::failure::Failure;
use crate::kubernetes::exec_plugin;
use crate::kubernetes::feed::{Item, Receiver, Sender, feed};

/// How many threads the tasks share: they wait, most of the time.
const THREADS: usize = 2;

/// The runtime of all tasks; they end with it, whatever they are about.
pub struct Tasks {
    /// There is one until the end.
    runtime: Option<Runtime>,
    sender: Sender,
    receiver: Receiver,
}

impl Tasks {
    /// Starts threads that have nothing to do yet.
    ///
    /// # Errors
    ///
    /// The system has no room for them.
    pub fn start() -> Result<Self, Failure> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder
            .worker_threads(THREADS)
            .thread_name("tasks")
            .enable_all();
        let (sender, receiver) = feed().map_err(Failure::machine)?;
        Ok(Self {
            runtime: Some(builder.build().map_err(Failure::machine)?),
            sender,
            receiver,
        })
    }

    /// Returns what starts a task.
    pub fn handle(&self) -> &Handle {
        self.runtime
            .as_ref()
            .expect("it is there until the end")
            .handle()
    }

    /// Returns what a task tells the engine's thread by.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Returns what the tasks told, without waiting.
    ///
    /// # Errors
    ///
    /// Why one of them wants the process to end.
    pub fn take(&mut self) -> Result<Vec<Item>, Failure> {
        self.receiver.take().map_err(Failure::Machine)
    }
}

/// Becomes readable when there is something to take.
impl AsFd for Tasks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Nobody waits for a server that does not answer.
            runtime.shutdown_background();
            exec_plugin::kill_running();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn tasks_that_hang_do_not_keep_the_process() {
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
