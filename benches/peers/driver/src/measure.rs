//! One measured run of a program, in a process of its own.
//!
//! The kernel reports the highest memory of the children of a process together, so each run has
//! a parent without other children.

use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use jobs::Outcome;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use testkit::netns::Netns;

/// The first argument of a process that measures one run.
pub const ARGUMENT: &str = "--measure";

/// A run that takes longer is killed.
const LIMIT: Duration = Duration::from_secs(120);

/// Time and memory of a run.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// From the start of the process to its end.
    pub time: Duration,
    /// Processor time of the process and of those that it started, with that of the kernel.
    pub processor: Duration,
    /// Highest memory of the process, or of the largest one that it started.
    pub kibibytes: u64,
}

/// Why there is no measurement.
pub enum Missing {
    /// The program has no function for the job.
    Cannot,
    /// The program failed, with the end of its output.
    Failed(String),
}

/// Runs a program in a namespace.
pub fn run(netns: &Netns, command: &[String]) -> Outcome<Result<Measured, Missing>> {
    let mut parent = Command::new(std::env::current_exe()?);
    let output = netns.run(|| parent.arg(ARGUMENT).args(command).output())?;
    let line = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
    let [code, time, processor, kibibytes] = numbers[..] else {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    };
    if jobs::cannot(i32::try_from(code).ok()) {
        return Ok(Err(Missing::Cannot));
    }
    if code != 0 {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or("no message");
        let reason = format!(
            "failed with code {code}: {}",
            last.chars().take(80).collect::<String>()
        );
        return Ok(Err(Missing::Failed(reason)));
    }
    Ok(Ok(Measured {
        time: Duration::from_micros(time),
        processor: Duration::from_micros(processor),
        kibibytes,
    }))
}

/// Runs the program of the arguments, and prints its exit code, time and memory.
pub fn child(mut command: impl Iterator<Item = String>) -> Outcome<ExitCode> {
    let program = command.next().ok_or("no program")?;
    let mut program = Command::new(program);
    program
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let start = Instant::now();
    let mut child = program.spawn()?;
    let id = Pid::from_raw(i32::try_from(child.id())?);
    thread::spawn(move || {
        thread::sleep(LIMIT);
        let _ = kill(id, Signal::SIGKILL);
    });
    let status = child.wait()?;
    let time = start.elapsed().as_micros();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = |time: TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
    let processor = micros(usage.user_time()) + micros(usage.system_time());
    let (code, kibibytes) = (status.code().unwrap_or(255), usage.max_rss());
    println!("{code} {time} {processor} {kibibytes}");
    Ok(ExitCode::SUCCESS)
}
