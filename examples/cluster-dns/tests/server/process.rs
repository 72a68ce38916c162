//! Flags, privileges, signals, HTTP and logs of the process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};

use crate::stage::{FLAGS, Stage, outcome, service};

#[test]
fn the_help_lists_all_flags_and_the_version_is_printed() {
    let (code, help) = outcome("--help");
    assert_eq!(code, Some(0));
    for flag in [
        "--manifests",
        "--kubeconfig",
        "--zone",
        "--listen",
        "--forward",
        "--stub",
        "--metrics",
        "--lame-duck",
        "--log-queries",
        "--config",
        "--node-local",
        "--threads",
        "\nExamples:\n",
    ] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
    let (code, version) = outcome("--version");
    assert_eq!(code, Some(0));
    assert!(version.starts_with("cluster-dns 0."), "{version}");
}

#[test]
fn an_invalid_configuration_is_reported_with_its_line() {
    let files = Directory::new().unwrap();
    files
        .write("config.yaml", "zone: a.example\nttl: long\n")
        .unwrap();
    let path = files.path().join("config.yaml");
    let (code, text) = outcome(&format!("--config {}", path.display()));
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("config.yaml:2:") && text.contains("ttl"),
        "{text}"
    );
    let (code, text) = outcome("--manifests /dev/null --listen here --ttl 5 --pods some");
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn an_address_in_use_is_one_error() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    let flags = format!(
        "--manifests {} --listen 192.0.2.1:53 --forward none",
        stage.files.path().display()
    );
    let mut command = crate::stage::command(&flags, &[]);
    let output = stage.netns.run(|| command.output()).unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("192.0.2.1:53"), "{text}");
}

#[test]
fn a_lack_of_descriptors_is_one_error_that_says_where() {
    let reason = "Too many open files (os error 24)";
    let places = places_of_errors(reason, |limit| format!("prlimit --nofile={limit}:{limit}"));
    assert!(places.contains("cannot handle signals"), "{places:?}");
    assert!(places.len() > 4, "{places:?}");
}

/// Runs as a user that no other test uses, because the kernel counts the threads of a user.
#[test]
fn a_lack_of_threads_is_one_error_that_says_where() {
    let reason = "Resource temporarily unavailable (os error 11)";
    let places = places_of_errors(reason, |limit| {
        format!("{} prlimit --nproc={limit}:{limit}", as_user(65002))
    });
    for expected in [
        "UDP 0.0.0.0:0",
        "cannot start the thread of the query log",
        "cannot start the thread of the source",
        "cannot start the threads of http: OS can't spawn worker thread",
        "cannot start the threads of tasks: OS can't spawn worker thread",
    ] {
        assert!(places.contains(expected), "{places:?}");
    }
}

/// Starts the program with limits from 1 on until its servers run. Returns what it
/// could not do with the smaller limits. Each time it ends with one error line.
fn places_of_errors(reason: &str, prefix: impl Fn(u32) -> String) -> BTreeSet<String> {
    let (_folder, program) = program_for_all_users();
    let mut places = BTreeSet::new();
    for limit in 1..=64 {
        let mut stage = start_through(&prefix(limit), &program);
        let Err(output) = stage.wait_until_started() else {
            return places;
        };
        // The dynamic loader opens libraries before the program begins.
        if output.contains("error while loading shared libraries") {
            continue;
        }
        let errors = output.lines().filter(|line| line.contains("ERROR"));
        let [error] = errors.collect::<Vec<_>>()[..] else {
            panic!("{limit}: {output}");
        };
        let (_, text) = error.split_once("ERROR ").unwrap();
        let place = text
            .strip_suffix(reason)
            .and_then(|it| it.strip_suffix(": "));
        places.insert(place.expect(text).to_owned());
    }
    panic!("a limit of 64 is too small: {places:?}");
}

/// Returns a command prefix that runs a program as a user with the only capability that DNS
/// requires.
fn as_user(id: u32) -> String {
    format!(
        "setpriv --reuid={id} --regid={id} --clear-groups --bounding-set=-all,+net_bind_service \
         --inh-caps=-all,+net_bind_service --ambient-caps=-all,+net_bind_service --no-new-privs"
    )
}

/// Returns a copy of the program in a folder. The build folder may not be readable by other
/// users.
fn program_for_all_users() -> (Directory, PathBuf) {
    let folder = Directory::new().unwrap();
    let program = folder.path().join("cluster-dns");
    testkit::program::copy(env!("CARGO_BIN_EXE_cluster-dns").as_ref(), &program).unwrap();
    make_readable(&folder);
    (folder, program)
}

fn make_readable(directory: &Directory) {
    let mut chmod = Command::new("chmod");
    let status = chmod.args(["-R", "a+rX"]).arg(directory.path()).status();
    assert!(status.unwrap().success());
}

/// Starts a program through a command prefix, with a Service.
fn start_through(prefix: &str, program: &Path) -> Stage {
    let (netns, files) = (Netns::new().unwrap(), Directory::new().unwrap());
    files
        .write("web.yaml", &service("web", "10.96.0.10"))
        .unwrap();
    make_readable(&files);
    let mut words = prefix.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).arg(program);
    command.args(["--manifests".as_ref(), files.path().as_os_str()]);
    command.args(FLAGS.split_whitespace());
    let process = Process::start(&netns, &mut command).unwrap();
    Stage {
        netns,
        files,
        process,
    }
}

/// Runs as another user, with the only capability that DNS requires.
#[test]
fn net_bind_service_is_the_only_required_capability() {
    let (_folder, program) = program_for_all_users();
    let stage = start_through(&as_user(65534), &program);
    stage.wait_until_ready();
    assert_eq!(
        stage.dig("+short web.shop.svc.cluster.local"),
        "10.96.0.10\n"
    );
    let status = std::fs::read_to_string(format!("/proc/{}/status", stage.process.pid())).unwrap();
    let line = |name: &str| {
        status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(line("Uid:").contains("65534"), "{status}");
    assert!(line("CapEff:").ends_with("0000000000000400"), "{status}");
}

#[test]
fn a_lame_duck_answers_but_is_not_ready() {
    let flags = FLAGS.replace("--lame-duck 0s", "--lame-duck 3s");
    let mut stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], &flags);
    stage.process.signal(Signal::TERM).unwrap();
    let begin = Instant::now();
    stage.until("not ready", || {
        stage.page("/ready").unwrap().starts_with("HTTP/1.1 503")
    });
    assert!(stage.page("/health").unwrap().ends_with("OK"));
    assert_eq!(
        stage.dig("+short web.shop.svc.cluster.local"),
        "10.96.0.10\n"
    );
    let mut status = None;
    while status.is_none() {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
        status = stage.process.try_wait().unwrap();
    }
    assert!(begin.elapsed() >= Duration::from_secs(3));
    assert_eq!(
        status.unwrap().code(),
        Some(0),
        "{}",
        stage.process.output()
    );
}

#[test]
fn a_second_signal_ends_the_lame_duck() {
    let flags = FLAGS.replace("--lame-duck 0s", "--lame-duck 1h");
    let mut stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], &flags);
    stage.process.signal(Signal::TERM).unwrap();
    stage.until("lame duck", || {
        stage.page("/ready").unwrap().starts_with("HTTP/1.1 503")
    });
    // The server ignores a signal that follows the first one at once.
    let begin = Instant::now();
    let mut status = None;
    while status.is_none() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        let _ = stage.process.signal(Signal::TERM);
        std::thread::sleep(Duration::from_millis(50));
        status = stage.process.try_wait().unwrap();
    }
    assert_eq!(status.unwrap().code(), Some(1));
}

#[test]
fn a_signal_that_arrives_twice_at_once_leaves_the_time_of_the_lame_duck() {
    let flags = FLAGS.replace("--lame-duck 0s", "--lame-duck 2s");
    let mut stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], &flags);
    stage.process.signal(Signal::TERM).unwrap();
    stage.process.signal(Signal::INT).unwrap();
    assert_eq!(end(&mut stage), Some(0), "{}", stage.process.output());
}

#[test]
fn sighup_is_ignored() {
    let mut stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    for _ in 0..3 {
        stage.process.signal(Signal::HUP).unwrap();
        assert_eq!(
            stage.dig("+short web.shop.svc.cluster.local"),
            "10.96.0.10\n"
        );
    }
    stage.process.signal(Signal::TERM).unwrap();
    assert_eq!(end(&mut stage), Some(0), "{}", stage.process.output());
}

/// Waits for the end of the process, and returns the exit code.
fn end(stage: &mut Stage) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = stage.process.try_wait().unwrap() {
            return status.code();
        }
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_query_log_is_switched_by_a_signal() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    stage.dig("before.shop.svc.cluster.local");
    stage.process.signal(Signal::USR1).unwrap();
    stage.until("the log is on", || {
        stage.process.output().contains("query log is on")
    });
    stage.dig("+noedns web.shop.svc.cluster.local");
    let words = "\"A IN web.shop.svc.cluster.local. udp 44 false 512\" NOERROR qr,aa,rd 60 0.0";
    stage.until("a line", || stage.process.output().contains(words));
    assert!(!stage.process.output().contains("before.shop"));
}

#[test]
fn metrics_have_the_names_and_labels_of_coredns() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    stage.dig("+noedns web.shop.svc.cluster.local");
    stage.dig("+tcp +dnssec AAAA nothing.shop.svc.cluster.local");
    stage.dig("@::1 www.example.com");
    stage.dig("CH TXT version.bind");
    let page = stage.page("/metrics").unwrap();
    for line in [
        "coredns_dns_requests_total{server=\"dns://127.0.0.1:53\",view=\"\",zone=\"cluster.local.\",family=\"1\",proto=\"udp\",type=\"A\"} 1",
        "coredns_dns_requests_total{server=\"dns://127.0.0.1:53\",view=\"\",zone=\"cluster.local.\",family=\"1\",proto=\"tcp\",type=\"AAAA\"} 1",
        "coredns_dns_requests_total{server=\"dns://[::1]:53\",view=\"\",zone=\".\",family=\"2\",proto=\"udp\",type=\"A\"} 1",
        "coredns_dns_requests_total{server=\"dns://127.0.0.1:53\",view=\"\",zone=\"dropped\",family=\"1\",proto=\"udp\",type=\"TXT\"} 1",
        "coredns_dns_responses_total{server=\"dns://127.0.0.1:53\",view=\"\",zone=\"cluster.local.\",plugin=\"kubernetes\",rcode=\"NXDOMAIN\"} 1",
        "coredns_dns_responses_total{server=\"dns://[::1]:53\",view=\"\",zone=\".\",plugin=\"\",rcode=\"REFUSED\"} 1",
        "coredns_dns_do_requests_total{server=\"dns://127.0.0.1:53\",view=\"\",zone=\"cluster.local.\"} 1",
        "coredns_dns_request_duration_seconds_count{server=\"dns://127.0.0.1:53\",view=\"\",zone=\"cluster.local.\"} 2",
        "coredns_dns_response_size_bytes_sum{server=\"dns://127.0.0.1:53\",view=\"\",zone=\"cluster.local.\",proto=\"udp\"} 60",
        "cluster_dns_zone_synced 1",
    ] {
        assert!(page.lines().any(|each| each == line), "{line}\n{page}");
    }
}
