//! A plugin in a process group of its own, which is killed with all its children.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::{MAX_OUTPUT, timed_out, too_long};

/// The process group of the running plugin, or 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<AtomicI32>);

impl Running {
    /// Runs a plugin, and returns its exit status and its output.
    pub(super) fn run(
        &self,
        command: &mut Command,
        limit: Duration,
    ) -> io::Result<(ExitStatus, Vec<u8>)> {
        let mut plugin = Plugin::start(&self.0, command.process_group(0))?;
        let output = plugin.finish(limit)?;
        Ok((plugin.wait()?, output))
    }

    /// Kills the running plugin, if any.
    pub(super) fn kill(&self) {
        if let Some(group) = Pid::from_raw(self.0.swap(0, Ordering::Relaxed)) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// A running plugin. Killed on drop.
struct Plugin<'a> {
    child: Child,
    group: &'a AtomicI32,
}

impl<'a> Plugin<'a> {
    fn start(group: &'a AtomicI32, command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        group.store(Pid::from_child(&child).as_raw_pid(), Ordering::Relaxed);
        Ok(Self { child, group })
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        // After the wait the kernel may reuse the process ID.
        self.group.store(0, Ordering::Relaxed);
        self.child.wait()
    }

    /// Returns the output of the plugin after its end.
    fn finish(&mut self, limit: Duration) -> io::Result<Vec<u8>> {
        let end = Instant::now() + limit;
        let exit = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let mut stdout = self.child.stdout.take();
        if let Some(pipe) = &stdout {
            ioctl_fionbio(pipe, true)?;
        }
        let mut output = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out(limit));
            }
            let mut files = vec![PollFd::new(&exit, PollFlags::IN)];
            files.extend(stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            match poll(&mut files, Timespec::try_from(left).ok().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let has_ended = files.first().is_some_and(|exit| !exit.revents().is_empty());
            if let Some(pipe) = stdout.take()
                && read_available(&pipe, &mut output)?
            {
                stdout = Some(pipe);
            }
            if has_ended {
                return Ok(output);
            }
        }
    }
}

impl Drop for Plugin<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.wait();
        }
    }
}

/// Reads without blocking. Returns whether more output may follow.
fn read_available(pipe: impl AsFd, output: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        if output.len() >= MAX_OUTPUT {
            return Err(too_long());
        }
        output.reserve(1 << 12);
        match read(&pipe, spare_capacity(output)) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
}
