//! Runs commands with a time limit.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

/// Default time limit of a command: 40 minutes.
///
/// The longest command builds and runs all tests, in 25 minutes on two slow
/// processors.
/// The limit is shorter than that of the CI job (90 minutes), which does not report
/// the command that exceeded it.
pub(crate) const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Time between SIGTERM and SIGKILL.
const GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Interval of checks whether a command has exited.
const PERIOD: Duration = Duration::from_millis(20);

/// A running command. Kills the process and all its descendants when dropped.
struct Running {
    child: Child,
    text: String,
    start: Instant,
    limit: Duration,
}

/// Splits the output of a command into lines.
struct Lines {
    pipe: Option<ChildStdout>,
    rest: Vec<u8>,
}

/// Runs a command and waits for its exit.
pub(crate) fn execute(command: &mut Command) -> Result<()> {
    execute_within(LIMIT, command)
}

/// Runs a command and waits for its exit; kills it after `limit`.
pub(crate) fn execute_within(limit: Duration, command: &mut Command) -> Result<()> {
    announce(command);
    let mut running = Running::start(limit, command)?;
    loop {
        if let Some(status) = running.ended()? {
            return running.check(status);
        }
        thread::sleep(PERIOD);
    }
}

/// Runs a command as [`execute_within`] does, and calls `on_line` for each line that
/// it prints to standard output.
pub(crate) fn execute_with_output(
    limit: Duration,
    command: &mut Command,
    mut on_line: impl FnMut(&str),
) -> Result<()> {
    announce(command);
    observe(limit, command, |line| {
        if let Some(line) = line {
            on_line(line);
        }
    })
}

/// Runs a command as [`execute_with_output`] does, without printing the command. Calls
/// `on_line` with `None` after each [`PERIOD`] without output.
pub(crate) fn observe(
    limit: Duration,
    command: &mut Command,
    mut on_line: impl FnMut(Option<&str>),
) -> Result<()> {
    let mut running = Running::start(limit, command.stdout(Stdio::piped()))?;
    let mut lines = Lines {
        pipe: running.child.stdout.take(),
        rest: Vec::new(),
    };
    loop {
        let ended = running.ended()?;
        let more = lines.read(&mut |line| on_line(Some(line)))?;
        // Does not wait for the end of the pipe: a descendant may keep it open.
        if let (Some(status), false) = (ended, more) {
            if !lines.rest.is_empty() {
                on_line(Some(&String::from_utf8_lossy(&lines.rest)));
            }
            return running.check(status);
        }
        if !more {
            on_line(None);
        }
    }
}

/// Formats a command as in a shell, without quotes.
pub(crate) fn display(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    command
        .get_args()
        .fold(program.into_owned(), |text, argument| {
            text + " " + &argument.to_string_lossy()
        })
}

/// Prints a command that is about to run.
fn announce(command: &Command) {
    eprintln!("$ {}", display(command));
}

impl Running {
    fn start(limit: Duration, command: &mut Command) -> Result<Self> {
        let text = display(command);
        Ok(Self {
            child: command.spawn().with_context(|| text.clone())?,
            text,
            start: Instant::now(),
            limit,
        })
    }

    /// Returns the exit status, if the command has exited.
    ///
    /// # Errors
    /// If the command runs for longer than its limit.
    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_none() && self.start.elapsed() > self.limit {
            let seconds = self.limit.as_secs();
            bail!("{}: killed after {seconds} s", self.text);
        }
        Ok(status)
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("{}: {status}", self.text);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // Does not use a process group, which would not receive Ctrl-C of the terminal.
            kill_all(Pid::from_child(&self.child));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Lines {
    /// Waits for output for up to [`PERIOD`]; returns whether any was read.
    fn read(&mut self, on_line: &mut impl FnMut(&str)) -> Result<bool> {
        let Some(pipe) = &mut self.pipe else {
            thread::sleep(PERIOD);
            return Ok(false);
        };
        let timeout = Timespec::try_from(PERIOD).context("poll timeout out of range")?;
        let mut ready = [PollFd::new(&*pipe, PollFlags::IN)];
        if poll(&mut ready, Some(&timeout))? == 0 {
            return Ok(false);
        }
        let mut buffer = [0; 4096];
        let length = pipe.read(&mut buffer)?;
        if length == 0 {
            self.pipe = None;
        }
        for part in buffer[..length].split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                None => self.rest.extend(part),
                Some(end) => {
                    self.rest.extend(end);
                    on_line(&String::from_utf8_lossy(&self.rest));
                    self.rest.clear();
                }
            }
        }
        Ok(length > 0)
    }
}

/// Sends SIGTERM to a process and its descendants, then SIGKILL to the remaining ones.
fn kill_all(ancestor: Pid) {
    let mut all = descendants(ancestor);
    for signal in [Signal::TERM, Signal::KILL] {
        for pid in &all {
            let _ = kill_process(*pid, signal);
        }
        let deadline = Instant::now() + GRACE_PERIOD;
        while Instant::now() < deadline && all.iter().any(|pid| parent(*pid).is_some()) {
            thread::sleep(PERIOD);
        }
        all.retain(|pid| parent(*pid).is_some());
        all = all.into_iter().flat_map(descendants).collect();
    }
}

/// Returns a process and its descendants, parents first.
pub(crate) fn descendants(ancestor: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw)
            && let Some(parent) = parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut all = vec![ancestor];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        all.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    all
}

/// Returns the parent of a process, unless the process is a zombie.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The process name before the last parenthesis may contain any character.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    if words.next()? == "Z" {
        return None;
    }
    Pid::from_raw(words.next()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script and returns its lines and its result.
    fn run(limit: u64, script: &str) -> (Vec<String>, Result<(), String>) {
        let mut lines = Vec::new();
        let result = execute_with_output(
            Duration::from_secs(limit),
            Command::new("sh").args(["-c", script]),
            |line| lines.push(line.to_owned()),
        );
        (lines, result.map_err(|error| error.to_string()))
    }

    #[test]
    fn each_line_is_reported_and_the_last_one_needs_no_newline() {
        let (lines, result) = run(60, "echo one; echo; printf 'two\\nthr'; printf ee");
        assert_eq!((lines.join("|"), result), ("one||two|three".into(), Ok(())));
        let long = "a".repeat(10_000);
        assert_eq!(run(60, &format!("echo {long}")).0, [long]);
    }

    #[test]
    fn waiting_for_output_is_reported() {
        let mut waits = 0;
        let mut command = Command::new("sh");
        observe(
            Duration::from_secs(60),
            command.args(["-c", "sleep 0.2; echo end"]),
            |line| match line {
                Some(line) => assert_eq!(line, "end"),
                None => waits += 1,
            },
        )
        .unwrap();
        assert!(waits > 0);
    }

    #[test]
    fn a_command_that_fails_is_an_error() {
        let (lines, result) = run(60, "echo 1; exit 3");
        assert_eq!(lines, ["1"]);
        let error = result.unwrap_err();
        assert_eq!(error, "sh -c echo 1; exit 3: exit status: 3");
        assert!(execute(&mut Command::new("false")).is_err());
        assert!(execute(&mut Command::new("no-such-program")).is_err());
        execute(&mut Command::new("true")).unwrap();
    }

    #[test]
    fn a_background_process_of_a_command_is_not_waited_for() {
        let start = Instant::now();
        let (lines, result) = run(60, "sleep 60 & echo $!");
        result.unwrap();
        assert!(start.elapsed() < Duration::from_secs(50));
        let left = Pid::from_raw(lines[0].parse().unwrap()).unwrap();
        kill_process(left, Signal::KILL).unwrap();
    }

    #[test]
    fn a_command_that_exceeds_its_limit_is_killed_with_its_descendants() {
        let script = "echo $$; sh -c 'echo $$; trap : TERM; sleep 60 & echo $!; wait; sleep 60'; :";
        let (lines, result) = run(2, script);
        assert_eq!(result, Err(format!("sh -c {script}: killed after 2 s")));
        assert_eq!(lines.len(), 3, "{lines:?}");
        for line in lines {
            let pid = Pid::from_raw(line.parse().unwrap()).unwrap();
            assert_eq!(parent(pid), None);
        }
        let start = Instant::now();
        let sleep = execute_within(Duration::ZERO, Command::new("sleep").arg("60"));
        assert_eq!(sleep.unwrap_err().to_string(), "sleep 60: killed after 0 s");
        assert!(start.elapsed() < GRACE_PERIOD);
    }
}
