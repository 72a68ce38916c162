//! Injection of faults into the system calls of a process, by strace.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::netns::Netns;
use testkit::scoped::Process;

/// Maximum time for strace to attach, and number of attempts.
const ATTACH_LIMIT: Duration = Duration::from_secs(10);
const ATTEMPTS: usize = 4;

/// Threads whose calls fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Threads {
    /// The main thread, which syncs.
    Main,
    /// All threads, and the programs that they start later. Each has its own counter of
    /// calls.
    AllAndPrograms,
}

/// A strace that traces a process until it is detached.
#[derive(Debug)]
pub(super) struct Tracer(Process);

impl Tracer {
    /// Attaches to a process. `injection` is a value of `--inject` in `strace(1)`.
    pub(super) fn attach(
        netns: &Netns,
        process: &Process,
        threads: Threads,
        injection: &str,
    ) -> Self {
        let calls = injection.split(':').next().unwrap();
        let mut command = Command::new("strace");
        command
            .args(["-s", "0", "--trace", calls, "--inject", injection])
            .args(["-p", &process.pid().to_string()]);
        if threads == Threads::AllAndPrograms {
            command.arg("-f");
        }
        // A thread that starts or ends meanwhile may keep strace from attaching.
        let mut outputs = String::new();
        for _ in 0..ATTEMPTS {
            let tracer = Process::start(netns, &mut command).unwrap();
            let start = Instant::now();
            while start.elapsed() < ATTACH_LIMIT {
                if tracer.output().contains(" attached") {
                    return Self(tracer);
                }
                thread::sleep(Duration::from_millis(5));
            }
            outputs += &tracer.output();
        }
        panic!("strace does not attach: {outputs:?}");
    }

    /// Returns the number of traced calls that have ended.
    pub(super) fn calls(&self) -> usize {
        self.0.output().matches(" = ").count()
    }

    /// Returns whether a call has failed or returned other data because of the fault.
    pub(super) fn has_injected(&self) -> bool {
        self.0.output().contains("(INJECTED")
    }

    /// Returns whether the fault has stopped the process.
    pub(super) fn has_stopped(&self) -> bool {
        self.0.output().contains("--- stopped by SIGSTOP ---")
    }

    /// Returns whether the fault has killed the process.
    pub(super) fn has_killed(&self) -> bool {
        self.0.output().contains("+++ killed by SIGKILL +++")
    }

    /// Ends the injection. The process continues.
    pub(super) fn detach(self) {
        // strace ends by the signal that it receives.
        self.0.terminate().unwrap();
    }
}
