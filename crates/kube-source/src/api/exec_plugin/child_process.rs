//! A plugin as a child process, on systems without process groups. Its own children are not
//! killed.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{MAX_OUTPUT, timed_out, too_long};

/// Interval between two checks whether the plugin has ended.
const INTERVAL: Duration = Duration::from_millis(20);

/// Number of buffers between the reading thread and the waiting one.
const BUFFERS: usize = 4;

/// The running plugin, if any.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<Mutex<Option<Child>>>);

impl Running {
    /// Runs a plugin, and returns its exit status and its output.
    pub(super) fn run(
        &self,
        command: &mut Command,
        limit: Duration,
    ) -> io::Result<(ExitStatus, Vec<u8>)> {
        let end = Instant::now() + limit;
        let mut child = command.spawn()?;
        let output = read_in_background(child.stdout.take());
        *self.lock() = Some(child);
        let outcome = self.finish(&output, end, limit);
        if outcome.is_err() {
            self.kill();
        }
        outcome
    }

    /// Kills the running plugin, if any.
    pub(super) fn kill(&self) {
        if let Some(mut child) = self.lock().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Reads the output until the plugin has ended.
    fn finish(
        &self,
        output: &Receiver<io::Result<Vec<u8>>>,
        end: Instant,
        limit: Duration,
    ) -> io::Result<(ExitStatus, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let status = self.try_wait()?;
            // A child of the plugin may keep the output open, so that the output has no end.
            let left = match output.recv_timeout(INTERVAL) {
                Ok(part) => {
                    all.extend(part?);
                    true
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => {
                    if status.is_none() {
                        thread::sleep(INTERVAL);
                    }
                    false
                }
            };
            if all.len() > MAX_OUTPUT {
                return Err(too_long());
            }
            if let Some(status) = status.filter(|_| !left) {
                *self.lock() = None;
                return Ok((status, all));
            }
            if Instant::now() >= end {
                return Err(timed_out(limit));
            }
        }
    }

    /// Returns the exit status if the plugin has ended.
    fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        match &mut *self.lock() {
            Some(child) => child.try_wait(),
            None => Err(io::Error::other("it was killed")),
        }
    }

    /// A panic of another thread leaves a valid value.
    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a pipe on another thread, which ends with the pipe or with the receiver.
fn read_in_background(pipe: Option<impl Read + Send + 'static>) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::sync_channel(BUFFERS);
    if let Some(pipe) = pipe {
        thread::spawn(move || read_all(pipe, &sender));
    }
    receiver
}

fn read_all(mut pipe: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    let mut buffer = [0; 1 << 12];
    loop {
        let part = match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(buffer.get(..count).unwrap_or_default().to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_over = part.is_err();
        if sender.send(part).is_err() || is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn run(script: &str, limit: Duration) -> io::Result<(ExitStatus, Vec<u8>)> {
        let mut command = Command::new("sh");
        let command = command.args(["-c", script]).stdout(Stdio::piped());
        Running::default().run(command, limit)
    }

    #[test]
    fn status_and_output_are_returned() {
        let (status, output) = run("printf a; sleep 0.1; printf b; exit 3", LONG).unwrap();
        assert_eq!((status.code(), &*output), (Some(3), &b"ab"[..]));
    }

    #[test]
    fn a_plugin_that_hangs_or_prints_too_much_is_killed() {
        let start = Instant::now();
        let hangs = run("exec sleep 1000", Duration::from_millis(100)).unwrap_err();
        assert!(
            hangs.to_string().contains("did not end within 100ms"),
            "{hangs}"
        );
        let silent = run("exec sleep 1000 >&-", Duration::from_millis(100)).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
        let prints = run("exec yes", LONG).unwrap_err();
        assert!(prints.to_string().contains("too long"), "{prints}");
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn a_child_that_keeps_the_output_open_holds_nothing_up() {
        let start = Instant::now();
        let (_, output) = run("sleep 20 & echo a", LONG).unwrap();
        assert_eq!(output, b"a\n");
        assert!(start.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn a_plugin_is_killed_by_another_thread() {
        let running = Running::default();
        let other = running.clone();
        let thread = thread::spawn(move || {
            let mut command = Command::new("sh");
            other.run(command.args(["-c", "exec sleep 1000"]), LONG)
        });
        while running.lock().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        running.kill();
        let error = thread.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "it was killed");
    }
}
