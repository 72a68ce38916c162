//! Child processes with pipes, a timeout and error output.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, io};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, access};
use rustix::io::{Errno, ioctl_fionbio, read, write};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::client::tool_error::{Cause, ToolError};
use crate::{DocumentLine, Error};

/// Maximum number of bytes per read or write.
pub(crate) const CHUNK: usize = 1 << 16;

/// Maximum number of buffered bytes of error output.
const COMPLAINT: usize = 1 << 14;

/// Directories to search after `PATH`.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// A running program and its output.
pub(crate) struct Process {
    pub(crate) program: Box<str>,
    child: Guard,
    /// pidfd; readable after the program has ended.
    exit: OwnedFd,
    /// timerfd; readable after the timeout.
    timer: OwnedFd,
    timeout: Duration,
    /// Standard output.
    pub(crate) output: Vec<u8>,
    complaint: Vec<u8>,
}

impl Process {
    pub(crate) fn start(
        path: &Path,
        args: &[&str],
        input: Stdio,
        output: Stdio,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let program = name_of(path);
        let timer = timer(timeout).map_err(|errno| match errno {
            // The profile of a mode without programs: the first call that it lacks.
            Errno::NOSYS => failed(
                "start a program: timerfd_create is forbidden, usually by a seccomp profile \
                 that is not made for the programs of iptables",
            )(errno),
            errno => failed("start a timer")(errno),
        })?;
        let mut command = Command::new(path);
        command
            .args(args)
            .stdin(input)
            .stdout(output)
            .stderr(Stdio::piped())
            .process_group(0);
        kill_with_parent(&mut command);
        let child = command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => not_found(path),
            _ => Error::Spawn {
                program: program.clone(),
                source,
            },
        })?;
        let child = Guard(child);
        let exit = pidfd_open(Pid::from_child(&child.0), PidfdFlags::empty())
            .map_err(failed("watch a program"))?;
        let Child {
            stdin,
            stdout,
            stderr,
            ..
        } = &child.0;
        let pipes = [
            stdin.as_ref().map(AsFd::as_fd),
            stdout.as_ref().map(AsFd::as_fd),
            stderr.as_ref().map(AsFd::as_fd),
        ];
        for pipe in pipes.into_iter().flatten() {
            ioctl_fionbio(pipe, true).map_err(failed("prepare a pipe"))?;
        }
        Ok(Self {
            program,
            child,
            exit,
            timer,
            timeout,
            output: Vec::new(),
            complaint: Vec::new(),
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Writes a chunk and reads output meanwhile.
    pub(crate) fn write(&mut self, piece: &[u8]) -> Result<Wrote, Error> {
        let mut rest = piece;
        while !rest.is_empty() {
            let has_ended = self.step(true)?;
            let Some(pipe) = self.child.0.stdin.as_ref().filter(|_| !has_ended) else {
                return Ok(Wrote::Part);
            };
            match write(pipe, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::PIPE) => return Ok(Wrote::Part),
                Err(errno) => return Err(failed("write to a program")(errno)),
            }
        }
        Ok(Wrote::All)
    }

    /// Closes standard input and waits until the program ends.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.child.0.stdin = None;
        while !self.step(false)? {}
        Ok(())
    }

    /// Waits for an event and reads available output. Returns whether the program
    /// has ended.
    ///
    /// If `writes` is true, space in the input pipe is an event, too.
    pub(crate) fn step(&mut self, writes: bool) -> Result<bool, Error> {
        let child = &mut self.child.0;
        let mut waited = vec![
            PollFd::new(&self.exit, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        let stdin = child.stdin.as_ref().filter(|_| writes);
        waited.extend(stdin.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        let stdout = child.stdout.as_ref();
        waited.extend(stdout.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let stderr = child.stderr.as_ref();
        waited.extend(stderr.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        match poll(&mut waited, None) {
            Err(Errno::INTR) => return Ok(false),
            result => result.map_err(failed("wait for a program"))?,
        };
        let is_ready = |place: usize| {
            let waited: Option<&PollFd<'_>> = waited.get(place);
            waited.is_some_and(|fd| !fd.revents().is_empty())
        };
        let (has_ended, is_late) = (is_ready(0), is_ready(1));
        // After the end, at most the capacity of the pipe remains.
        while take(&mut child.stdout, &mut self.output)? && has_ended {}
        while take(&mut child.stderr, &mut self.complaint)? && has_ended {}
        self.complaint.truncate(COMPLAINT);
        if is_late && !has_ended {
            return Err(Error::Timeout {
                program: self.program.clone(),
                timeout: self.timeout,
            });
        }
        Ok(has_ended)
    }

    /// Returns what the program printed on standard error.
    pub(crate) fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.complaint).into_owned()
    }

    /// Returns the result of a program that has ended.
    pub(crate) fn conclude(
        &mut self,
        wait: u32,
        line_of: impl FnOnce(usize) -> Option<DocumentLine>,
    ) -> Result<(), Error> {
        let status = self.child.0.wait().map_err(|source| Error::Io {
            operation: "wait for the exit status of a program",
            source,
        })?;
        let program = self.program.clone();
        let Some(status) = status.code() else {
            let signal = status.signal().unwrap_or_default();
            return Err(Error::Killed { program, signal });
        };
        if status == 0 {
            return Ok(());
        }
        let ToolError {
            cause,
            line,
            message,
        } = ToolError::new(&String::from_utf8_lossy(&self.complaint));
        let message = match &*message {
            "" => format!("exit status {status}").into(),
            words => words.into(),
        };
        Err(match cause {
            Cause::Denied => Error::Denied { program, message },
            Cause::Locked => Error::Locked { wait, message },
            Cause::Other => Error::Rejected {
                program,
                status,
                command: None,
                line: line.and_then(line_of),
                message,
            },
            Cause::Unsupported => Error::Unsupported { program, message },
        })
    }
}

/// Sets the parent-death signal of a program. The kernel kills the program if the
/// thread that started it ends, for example if the process is killed.
///
/// A program that outlives its parent would change rules while the next process
/// reads them.
#[allow(unsafe_code, reason = "only the child itself can set the signal")]
fn kill_with_parent(command: &mut Command) {
    let parent = getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the signal was set.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(Errno::SRCH.into()),
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls. It does not
    // allocate and takes no lock, even if it fails.
    unsafe { command.pre_exec(before_exec) };
}

/// Result of a write to a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wrote {
    All,
    /// The program ended or closed its input.
    Part,
}

/// Kills a child and its process group on drop, unless it has ended.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            // The child may have left its process group.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Appends available data and returns whether more may be available.
fn take(pipe: &mut Option<impl AsFd>, bytes: &mut Vec<u8>) -> Result<bool, Error> {
    let Some(open) = pipe else { return Ok(false) };
    bytes.reserve(CHUNK);
    match read(open, spare_capacity(bytes)) {
        Ok(0) => *pipe = None,
        Ok(_) => return Ok(bytes.len() == bytes.capacity()),
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(errno) => return Err(failed("read from a program")(errno)),
    }
    Ok(false)
}

/// Starts a timer, which is readable after the timeout.
fn timer(timeout: Duration) -> rustix::io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    // A value of zero would disarm the timer.
    let timeout = timeout.max(Duration::from_nanos(1));
    let value = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: value,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(timer)
}

pub(crate) fn find(name: &str) -> Result<PathBuf, Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .chain(FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| access(file, Access::EXEC_OK).is_ok())
        .ok_or_else(|| not_found(Path::new(name)))
}

fn not_found(path: &Path) -> Error {
    Error::MissingProgram {
        program: path.to_string_lossy().into(),
    }
}

/// Returns the name of a program for error messages.
pub(crate) fn name_of(path: &Path) -> Box<str> {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into()
}

/// Adds the operation to an error number.
pub(crate) fn failed(operation: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Io {
        operation,
        source: errno.into(),
    }
}
