//! Tests with programs that are missing, end early, hang or print too much.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use testkit::iptables::Programs;
use testkit::netns::Netns;
use vipline_iptables::{Client, Committed, Error, Family, TableName, Variant};

use crate::lab::{Interrupted, Lab, Many, wait_until};

#[test]
fn a_killed_program_leaves_the_tables_unchanged() {
    for mut lab in Lab::all() {
        let pid = lab.programs.path("pid");
        let script = format!("echo $$ >{}\nexec \"$REAL\" \"$@\"", pid.display());
        let mut client = lab.with_script(&script);
        let before = lab.rules();
        // More than the capacity of a pipe, so the program is still reading.
        let many = Many(2000).to_string();
        let (first, second) = many.split_at(many.len() / 2);
        let document = Interrupted {
            before: first.to_owned(),
            act: || {
                let mut text = String::new();
                wait_until(|| {
                    text = fs::read_to_string(&pid).unwrap_or_default();
                    text.ends_with('\n')
                });
                let pid = Pid::from_raw(text.trim().parse().unwrap()).unwrap();
                kill_process(pid, Signal::KILL).unwrap();
            },
            after: second.to_owned(),
        };
        let error = lab.netns.run(|| client.restore(&document)).unwrap_err();
        assert!(
            matches!(error, Error::Killed { signal: 9, .. }),
            "{error:?}"
        );
        assert_eq!(error.committed(), Committed::Unknown);
        assert_eq!(lab.rules(), before);
        lab.restore(many).unwrap();
    }
}

#[test]
fn a_program_that_does_not_end_is_killed_with_its_children() {
    for mut lab in Lab::all() {
        let pid = lab.programs.path("pid");
        let script = format!("sleep 1000 &\necho $! >{}\nwait", pid.display());
        let mut client = lab.with_script(&script);
        client.set_timeout(Duration::from_millis(300));
        let before = lab.rules();
        let error = lab.netns.run(|| client.restore(&Many(20_000))).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "wrapper did not end within 300ms and was killed"
        );
        let pid = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        // The adopting process must reap the child.
        wait_until(|| {
            test_kill_process(pid) == Err(Errno::SRCH)
                || fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| stat.contains(") Z "))
        });
        assert_eq!(lab.rules(), before);
    }
}

#[test]
fn a_missing_program_is_named() {
    let programs = Programs::new().unwrap();
    let [save, restore] = programs.variant("iptables-nft").unwrap();
    let none = PathBuf::from("/none/iptables-restore");
    let error = Client::open_at(&save, &none).unwrap_err();
    assert!(error.is_program_missing());
    assert_eq!(error.committed(), Committed::No);
    assert_eq!(
        error.to_string(),
        "/none/iptables-restore not found: install iptables"
    );
    let netns = Netns::new().unwrap();
    let mut client = Client::open_at("/none/iptables-save", restore).unwrap();
    let saved = netns.run(|| client.save(TableName::NAT));
    assert!(saved.unwrap_err().is_program_missing());
}

#[test]
fn an_outdated_program_is_reported_with_the_required_version() {
    let programs = Programs::new().unwrap();
    for (script, words) in [
        ("echo iptables-restore v1.4.21", "v1.4.21"),
        ("echo what; exit 0", "`what`"),
        (
            "echo >&2 \"unrecognized option '--version'\"; exit 1",
            "1.6.2 or later",
        ),
    ] {
        let restore = programs.script("old", script).unwrap();
        let error = Client::open_at("/none/iptables-save", restore).unwrap_err();
        assert!(matches!(error, Error::Outdated { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_reported() {
    let programs = Programs::new().unwrap();
    let plain = programs.path("plain");
    fs::write(&plain, "no program").unwrap();
    let error = Client::open_at(&plain, &plain).unwrap_err();
    assert!(matches!(error, Error::Spawn { .. }), "{error:?}");
}

#[test]
fn a_program_with_long_error_output_that_does_not_read_does_not_block() {
    let mut lab = Lab::new(Family::V4, Variant::Nft);
    let script =
        "i=0; while [ $i -lt 20000 ]; do echo this is wrong, too >&2; i=$((i+1)); done; exit 3";
    let mut client = lab.with_script(script);
    let error = lab.netns.run(|| client.restore(&Many(20_000))).unwrap_err();
    let Error::Rejected {
        status: 3, message, ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert!(message.len() < 200, "{message}");
    assert!(
        message.starts_with("this is wrong, too; this is"),
        "{message}"
    );
    assert!(lab.save("filter").is_ok());
}

#[test]
fn a_program_that_reads_only_a_part_is_an_error() {
    let lab = Lab::new(Family::V4, Variant::Nft);
    let mut client = lab.with_script("head -c 10 >/dev/null");
    let error = lab.netns.run(|| client.restore(&Many(20_000))).unwrap_err();
    assert!(error.to_string().contains("before it had read"), "{error}");
    let mut client = lab.with_script("exit 7");
    let error = lab.netns.run(|| client.restore(&"")).unwrap_err();
    assert_eq!(error.to_string(), "wrapper: exit status 7");
}

#[test]
fn a_line_that_is_not_utf8_is_an_error() {
    let programs = Programs::new().unwrap();
    let [_, restore] = programs.variant("iptables-nft").unwrap();
    let save = programs.script("save", "printf '*nat\\n\\377\\n'").unwrap();
    let mut client = Client::open_at(save, restore).unwrap();
    let error = client.save(TableName::NAT).unwrap_err();
    assert!(matches!(error, Error::Decode { line: 2, .. }), "{error:?}");
}

#[test]
fn a_document_is_read_while_it_is_formatted() {
    let lab = Lab::new(Family::V4, Variant::Nft);
    let received = lab.programs.path("received");
    let mut client = lab.with_script(&format!("cat >{}", received.display()));
    let piece = "x".repeat(1 << 20);
    let length = || fs::metadata(&received).map_or(0, |file| file.len());
    let document = Interrupted {
        before: piece.clone(),
        // Everything except the contents of the buffer and the pipe.
        act: || wait_until(|| length() >= (1 << 20) - (1 << 17)),
        after: piece.clone(),
    };
    lab.netns.run(|| client.restore(&document)).unwrap();
    assert_eq!(length(), 2 << 20);
}

#[test]
fn saved_lines_are_passed_on_while_they_are_printed() {
    let programs = Programs::new().unwrap();
    let [_, restore] = programs.variant("iptables-nft").unwrap();
    let received = programs.path("received");
    // Prints the last line only after the first one was passed on.
    let script = format!(
        "echo first; i=0; while [ ! -e {0} ] && [ $i -lt 1000 ]; do sleep 0.01; i=$((i+1)); done; \
         test -e {0} && echo last",
        received.display()
    );
    let save = programs.script("save", &script).unwrap();
    let mut client = Client::open_at(save, restore).unwrap();
    let mut lines = Vec::new();
    let table = TableName::NAT;
    client
        .save_lines(table, |line| {
            fs::write(&received, "").unwrap();
            lines.push(line.to_owned());
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!(lines, ["first", "last"]);
}

#[test]
fn an_error_of_the_callback_is_returned_and_the_program_is_killed() {
    #[derive(Debug)]
    enum Enough {
        Line(String),
        Failed(Error),
    }
    impl From<Error> for Enough {
        fn from(error: Error) -> Self {
            Self::Failed(error)
        }
    }
    let programs = Programs::new().unwrap();
    let [_, restore] = programs.variant("iptables-nft").unwrap();
    let pid = programs.path("pid");
    let script = format!("echo $$ >{}\nexec yes", pid.display());
    let save = programs.script("save", &script).unwrap();
    let mut client = Client::open_at(save, restore).unwrap();
    let table = TableName::NAT;
    let saved = client.save_lines(table, |line| Err(Enough::Line(line.to_owned())));
    match saved.unwrap_err() {
        Enough::Line(line) => assert_eq!(line, "y"),
        Enough::Failed(error) => panic!("{error}"),
    }
    let pid = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    assert_eq!(
        test_kill_process(Pid::from_raw(pid).unwrap()),
        Err(Errno::SRCH)
    );
}
