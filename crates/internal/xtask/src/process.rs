//! Commands, run to their end and no longer than they may.

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

/// How long a command may take.
///
/// The longest one builds and runs all tests, in 25 minutes on two slow
/// processors.
/// CI gives up after 90 minutes, without a word on what it waited for.
pub(crate) const LIMIT: Duration = Duration::from_secs(40 * 60);

/// How long processes may take to clean up after they were asked to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often it is looked whether a command has ended.
const PERIOD: Duration = Duration::from_millis(20);

/// A command on its way, killed with all that it started when dropped.
struct Running {
    child: Child,
    text: String,
    start: Instant,
    limit: Duration,
}

/// The lines of what a command prints.
struct Lines {
    pipe: Option<ChildStdout>,
    rest: Vec<u8>,
}

/// Runs a command to its end.
pub(crate) fn execute(command: &mut Command) -> Result<()> {
    execute_within(LIMIT, command)
}

/// Runs a command to its end, or kills it.
pub(crate) fn execute_within(limit: Duration, command: &mut Command) -> Result<()> {
    let mut running = Running::start(limit, command)?;
    loop {
        if let Some(status) = running.ended()? {
            return running.check(status);
        }
        thread::sleep(PERIOD);
    }
}

/// Runs a command to its end, or kills it, and hears each line it prints.
pub(crate) fn listen(
    limit: Duration,
    command: &mut Command,
    mut hear: impl FnMut(&str),
) -> Result<()> {
    let mut running = Running::start(limit, command.stdout(Stdio::piped()))?;
    let mut lines = Lines {
        pipe: running.child.stdout.take(),
        rest: Vec::new(),
    };
    loop {
        let ended = running.ended()?;
        let more = lines.read(&mut hear)?;
        // A process that it left behind may hold the pipe for ever.
        if let (Some(status), false) = (ended, more) {
            if !lines.rest.is_empty() {
                hear(&String::from_utf8_lossy(&lines.rest));
            }
            return running.check(status);
        }
    }
}

/// Returns a command as one would type it.
pub(crate) fn display(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    command
        .get_args()
        .fold(program.into_owned(), |text, argument| {
            text + " " + &argument.to_string_lossy()
        })
}

impl Running {
    fn start(limit: Duration, command: &mut Command) -> Result<Self> {
        let text = display(command);
        eprintln!("$ {text}");
        Ok(Self {
            child: command.spawn().with_context(|| text.clone())?,
            text,
            start: Instant::now(),
            limit,
        })
    }

    /// Returns how it ended, if it has; it is an error if it should have.
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
            // Not a process group: it would not hear of Ctrl-C on the terminal.
            kill_all(Pid::from_child(&self.child));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Lines {
    /// Waits for a while; returns whether there was something to read.
    fn read(&mut self, hear: &mut impl FnMut(&str)) -> Result<bool> {
        let Some(pipe) = &mut self.pipe else {
            thread::sleep(PERIOD);
            return Ok(false);
        };
        let timeout = Timespec::try_from(PERIOD).context("a short time")?;
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
                    hear(&String::from_utf8_lossy(&self.rest));
                    self.rest.clear();
                }
            }
        }
        Ok(length > 0)
    }
}

/// Asks a process and all that descend from it to end; kills those that stay.
fn kill_all(ancestor: Pid) {
    let mut all = descendants(ancestor);
    for signal in [Signal::TERM, Signal::KILL] {
        for pid in &all {
            let _ = kill_process(*pid, signal);
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && all.iter().any(|pid| parent(*pid).is_some()) {
            thread::sleep(PERIOD);
        }
        all.retain(|pid| parent(*pid).is_some());
        all = all.into_iter().flat_map(descendants).collect();
    }
}

/// Returns a process and all that descend from it, each after its parent.
fn descendants(ancestor: Pid) -> Vec<Pid> {
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

/// Returns the parent of a process that is no zombie.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name before may hold anything.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    if words.next()? == "Z" {
        return None;
    }
    Pid::from_raw(words.next()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script and returns its lines and how it ended.
    fn run(limit: u64, script: &str) -> (Vec<String>, Result<(), String>) {
        let mut lines = Vec::new();
        let result = listen(
            Duration::from_secs(limit),
            Command::new("sh").args(["-c", script]),
            |line| lines.push(line.to_owned()),
        );
        (lines, result.map_err(|error| error.to_string()))
    }

    #[test]
    fn all_lines_are_heard_and_the_last_one_without_its_end() {
        let (lines, result) = run(60, "echo one; echo; printf 'two\\nthr'; printf ee");
        assert_eq!((lines.join("|"), result), ("one||two|three".into(), Ok(())));
        let long = "a".repeat(10_000);
        assert_eq!(run(60, &format!("echo {long}")).0, [long]);
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
    fn what_a_command_leaves_behind_is_not_waited_for() {
        let start = Instant::now();
        let (lines, result) = run(60, "sleep 60 & echo $!");
        result.unwrap();
        assert!(start.elapsed() < Duration::from_secs(50));
        let left = Pid::from_raw(lines[0].parse().unwrap()).unwrap();
        kill_process(left, Signal::KILL).unwrap();
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed_with_all_that_it_started() {
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
        assert!(start.elapsed() < PATIENCE);
    }
}
