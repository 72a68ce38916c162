//! Faults of single system calls, foreign changes, and kills at any step of a sync, with the
//! kernel of the host.
#![allow(clippy::print_stdout, reason = "a test prints its table")]

use std::{env, fmt};

use rustix::process::Signal;

use crate::stage::wait_until;

mod site;

mod tracer;

use site::Site;
use tracer::{Threads, Tracer};

/// Faults of netlink sockets, as system calls and injections of `strace(1)`.
///
/// A reply with `EAGAIN` is late: the next call receives it. The last three replies are
/// empty, truncated and malformed.
const NETLINK: [(&str, &str); 12] = [
    ("sendmsg", "error=ENOBUFS"),
    ("sendmsg", "error=ENOMEM"),
    ("sendmsg", "error=EAGAIN"),
    ("sendmsg", "error=EBUSY"),
    ("sendmsg", "error=EINTR"),
    ("recvfrom", "error=ENOBUFS"),
    ("recvfrom", "error=ENOMEM"),
    ("recvfrom", "error=EAGAIN"),
    ("recvfrom", "error=EINTR"),
    ("recvfrom", "retval=0"),
    ("recvfrom", "poke_exit=@arg2=ffffff7f"),
    ("recvfrom", "poke_exit=@arg2=0c000000"),
];

/// Faults of the nft variant's programs, which use libmnl.
const NFT_PROGRAMS: [(&str, &str); 5] = [
    ("sendto", "error=ENOBUFS"),
    ("recvmsg", "error=ENOBUFS"),
    ("recvmsg", "error=ENOMEM"),
    ("recvmsg", "signal=SIGKILL"),
    ("execve", "error=ENOMEM"),
];

/// Faults of the legacy variant's programs, which replace tables by `setsockopt`.
const LEGACY_PROGRAMS: [(&str, &str); 4] = [
    ("setsockopt", "error=EAGAIN"),
    ("setsockopt", "error=ENOMEM"),
    ("setsockopt", "signal=SIGKILL"),
    ("execve", "error=ENOMEM"),
];

/// Number of steps of a sync at which each fault occurs. Variable `FAULT_STEPS` replaces it.
const STEPS: usize = 3;

/// Number of steps before and after the expected end of a sync at which proxies are killed
/// until one is killed after a commit.
const LAST: usize = 8;

/// Cases of one fault.
struct Row {
    backend: &'static str,
    fault: String,
    cases: usize,
    /// Maximum number of failed syncs before the rules converged.
    failures: usize,
}

impl Row {
    fn new(backend: &'static str, fault: impl Into<String>) -> Self {
        Self {
            backend,
            fault: fault.into(),
            cases: 0,
            failures: 0,
        }
    }

    fn add(&mut self, failures: usize) {
        self.cases += 1;
        self.failures = self.failures.max(failures);
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            backend,
            fault,
            cases,
            failures,
        } = self;
        write!(
            f,
            "| {fault} | {backend} | {cases} cases | converged after {failures} failed syncs at most |"
        )
    }
}

/// Returns positions from 1 to `calls`, evenly distributed. `shift` differs between faults.
fn positions(calls: usize, shift: usize) -> Vec<usize> {
    let steps = env::var("FAULT_STEPS").map_or(STEPS, |text| text.parse().unwrap());
    let steps = steps.clamp(1, calls);
    let first = shift * 7;
    let position = |step: usize| 1 + (first + step * calls / steps) % calls;
    (0..steps).map(position).collect()
}

/// Waits until a fault has occurred. Returns whether it has before the rules converged.
fn occurs(site: &Site, tracer: &Tracer, has_occurred: impl Fn(&Tracer) -> bool) -> bool {
    wait_until("a fault or the end of the sync", || {
        has_occurred(tracer) || site.has_converged()
    });
    has_occurred(tracer)
}

/// Makes single calls of the proxy fail.
fn fail_calls(backend: &'static str) {
    let mut site = Site::new(backend);
    let calls = ["sendmsg", "recvfrom"].map(|call| (call, site.calls_per_turn(call)));
    println!("calls of a sync in {backend}: {calls:?}");
    let mut all = 0;
    for (shift, (call, action)) in NETLINK.into_iter().enumerate() {
        let count = calls.iter().find(|(name, _)| *name == call).unwrap().1;
        let mut row = Row::new(backend, format!("{call} {action}"));
        for position in positions(count, shift) {
            let injection = format!("{call}:{action}:when={position}");
            let tracer = site.inject(Threads::Main, &injection);
            let before = site.failures();
            site.turn();
            let has_occurred = occurs(&site, &tracer, Tracer::has_injected);
            wait_until(&injection, || site.has_converged());
            tracer.detach();
            if has_occurred {
                row.add(site.failures() - before);
            }
        }
        println!("{row}");
        assert!(row.failures <= 1, "{row}");
        all += row.cases;
    }
    assert!(site.proxy.try_wait().unwrap().is_none());
    assert_eq!(site.stage().run("diff").code, 0);
    assert!(all > NETLINK.len(), "{all}");
}

/// Removes an object as another program at single steps of a sync, in which the proxy is
/// stopped: between requests, between the parts of a dump, and before the commit.
fn interfere(backend: &'static str) {
    let mut site = Site::new(backend);
    let calls = ["sendmsg", "recvfrom"].map(|call| (call, site.calls_per_turn(call)));
    let mut all = 0;
    for (shift, (call, count)) in calls.into_iter().enumerate() {
        let mut row = Row::new(backend, format!("foreign change at {call}"));
        for position in positions(count, shift) {
            let injection = format!("{call}:signal=SIGSTOP:when={position}");
            let tracer = site.inject(Threads::Main, &injection);
            let before = site.failures();
            site.turn();
            let has_occurred = occurs(&site, &tracer, Tracer::has_stopped);
            if has_occurred {
                site.flush_chain();
                site.proxy.signal(Signal::CONT).unwrap();
            }
            wait_until(&injection, || site.has_converged());
            tracer.detach();
            if has_occurred {
                row.add(site.failures() - before);
            }
        }
        println!("{row}");
        all += row.cases;
    }
    assert_eq!(site.stage().run("diff").code, 0);
    assert!(all >= 2, "{all}");
}

/// Kills the proxy at single steps of a sync. The next proxy writes only the difference.
fn kill(backend: &'static str) {
    let mut site = Site::new(backend);
    let calls = ["sendmsg", "recvfrom"].map(|call| (call, site.calls_per_turn(call)));
    let mut edits = Vec::new();
    for (shift, (call, count)) in calls.into_iter().enumerate() {
        let mut row = Row::new(backend, format!("killed at {call}"));
        for at in positions(count, shift) {
            if let Some(count) = kill_at(&mut site, call, at) {
                edits.push(count);
                row.add(site.failures());
            }
        }
        println!("{row}");
    }
    assert!(edits.len() >= 2, "{edits:?}");
    // The last calls follow a commit. Their number differs a little between syncs.
    let (call, count) = calls[1];
    let is_killed_after_a_commit = |edits: &[u64]| edits.iter().min() < edits.iter().max();
    for at in count.saturating_sub(LAST)..count + LAST {
        if !is_killed_after_a_commit(&edits) {
            edits.extend(kill_at(&mut site, call, at));
        }
    }
    println!("{backend}: edits after the restarts: {edits:?}");
    assert!(is_killed_after_a_commit(&edits), "{edits:?}");
    assert_eq!(site.stage().run("diff").code, 0);
}

/// Kills the proxy at a call, starts another one, and returns the number of its edits.
/// Returns `None` if the rules converged before.
fn kill_at(site: &mut Site, call: &str, at: usize) -> Option<u64> {
    let injection = format!("{call}:signal=SIGKILL:when={at}");
    let tracer = site.inject(Threads::Main, &injection);
    site.turn();
    let has_occurred = occurs(site, &tracer, Tracer::has_killed);
    tracer.detach();
    if !has_occurred {
        // The kill may follow the last look at the rules.
        site.proxy.signal(Signal::KILL).unwrap();
    }
    let is_complete = site.has_converged();
    let edits = site.restart();
    assert_eq!(edits == 0, is_complete, "{injection}");
    wait_until(&injection, || site.has_converged());
    has_occurred.then_some(edits)
}

/// Makes calls of the programs of iptables fail, in all programs that run at the time.
///
/// Each fault has a proxy of its own. Legacy tables do not say which program removed the
/// canary, and its fourth repair within 10 s would wait for that program to stop.
fn fail_programs(backend: &'static str, faults: &[(&'static str, &str)]) {
    for (call, action) in faults {
        let mut site = Site::new(backend);
        let mut row = Row::new(backend, format!("{call} {action}"));
        for position in 1..=2 {
            let injection = format!("{call}:{action}:when={position}");
            let tracer = site.inject(Threads::AllAndPrograms, &injection);
            let before = site.failures();
            site.turn();
            wait_until(&injection, || {
                site.failures() > before || site.has_converged()
            });
            let failures = site.failures() - before;
            tracer.detach();
            wait_until(&injection, || site.has_converged());
            if failures > 0 {
                row.add(site.failures() - before);
            }
        }
        println!("{row}");
        assert!(row.cases > 0, "{row}");
        assert!(site.proxy.try_wait().unwrap().is_none());
        assert_eq!(site.stage().run("diff").code, 0);
    }
}

#[test]
fn rules_converge_after_failed_system_calls_in_mode_nftables() {
    fail_calls("nftables");
}

#[test]
fn rules_converge_after_failed_system_calls_in_mode_iptables() {
    fail_calls("netlink");
}

#[test]
fn rules_converge_after_foreign_changes_during_a_sync_in_mode_nftables() {
    interfere("nftables");
}

#[test]
fn rules_converge_after_foreign_changes_during_a_sync_in_mode_iptables() {
    interfere("netlink");
}

#[test]
fn a_restart_after_a_kill_at_any_step_writes_the_difference_in_mode_nftables() {
    kill("nftables");
}

#[test]
fn a_restart_after_a_kill_at_any_step_writes_the_difference_in_mode_iptables() {
    kill("netlink");
}

#[test]
fn rules_converge_after_failed_system_calls_of_nft_programs() {
    fail_programs("nft", &NFT_PROGRAMS);
}

#[test]
fn rules_converge_after_failed_system_calls_of_legacy_programs() {
    fail_programs("legacy", &LEGACY_PROGRAMS);
}
