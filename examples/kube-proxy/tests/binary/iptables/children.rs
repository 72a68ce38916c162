//! Hanging iptables processes while the proxy is terminated or killed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::scoped::Process;

use super::{Node, VARIANTS};
use crate::stage::wait_until;

/// Maximum time until a proxy exits after SIGTERM.
const MAX_EXIT_TIME: Duration = Duration::from_secs(10);

/// A hanging iptables process, which is killed on drop.
struct Hanging(Pid);

impl Hanging {
    /// Replaces `iptables-restore` by a program that hangs before it commits, and
    /// starts the proxy.
    fn start(node: &Node) -> (Process, Self) {
        let hang = "echo $$ > $folder/draft; mv $folder/draft $folder/pid; exec sleep 300";
        node.script("iptables-restore", &on_commit(hang));
        let proxy = node.stage.start_unsynced();
        let file = node.stage.folder.path().join("pid");
        wait_until("the program", || file.exists());
        let pid = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        (proxy, Self(Pid::from_raw(pid).unwrap()))
    }

    fn is_running(&self) -> bool {
        let stat = Path::new("/proc").join(self.0.to_string()).join("stat");
        fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z "))
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        if self.is_running() {
            kill_process(self.0, Signal::KILL).unwrap();
        }
    }
}

/// Returns a script that runs `words` before it commits.
fn on_commit(words: &str) -> String {
    format!("case \"$*\" in *--noflush*) {words};; esac\nexec $real \"$@\"\n")
}

/// Waits until a proxy exits, and returns its exit code.
fn wait(mut proxy: Process, limit: Duration) -> Option<i32> {
    let start = Instant::now();
    let mut status = None;
    wait_until("the exit", || {
        status = proxy.try_wait().unwrap();
        status.is_some()
    });
    assert!(start.elapsed() < limit, "{:?}", start.elapsed());
    status.unwrap().code()
}

#[test]
fn an_iptables_process_ends_when_its_proxy_is_killed() {
    for variant in VARIANTS {
        let node = Node::web(variant);
        let (proxy, program) = Hanging::start(&node);
        assert!(program.is_running());
        drop(proxy);
        wait_until("the end of the program", || !program.is_running());
    }
}

#[test]
fn a_proxy_exits_in_time_while_iptables_hangs_and_leaves_the_rules_intact() {
    let node = Node::web("nft");
    let before = node.rules();
    let (proxy, program) = Hanging::start(&node);
    proxy.signal(Signal::TERM).unwrap();
    assert_eq!(wait(proxy, MAX_EXIT_TIME), Some(1));
    wait_until("the end of the program", || !program.is_running());
    assert_eq!(node.rules(), before);
    node.script("iptables-restore", "exec $real \"$@\"\n");
    assert_eq!(node.stage.oneshot()["in_sync"], true);
}

#[test]
fn a_running_sync_is_finished_before_the_exit() {
    let node = Node::web("nft");
    let slow = "touch $folder/started; sleep 2";
    node.script("iptables-restore", &on_commit(slow));
    let proxy = node.stage.start_unsynced();
    let started = node.stage.folder.path().join("started");
    wait_until("the program", || started.exists());
    proxy.signal(Signal::TERM).unwrap();
    assert_eq!(wait(proxy, MAX_EXIT_TIME), Some(0));
    assert!(node.rules().contains("10.244.1.3:8080"));
}
