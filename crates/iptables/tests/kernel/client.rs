//! Tests of the client and of its errors.
//!
//! Each failure is provoked, and the previous rules must still exist after it.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use testkit::iptables::Programs;
use testkit::netns::Netns;
use testkit::nft;
use vipline_iptables::{Client, Committed, Error, Family, TableName, Variant};
use vipline_netlink::{Event, Listener, Protocol};

/// Rules before a failure.
const BEFORE: &str = "\
*filter
:OURS - [0:0]
-A OURS -p tcp -m tcp --dport 80 -m comment --comment \"some words\" -j ACCEPT
-A INPUT -j OURS
COMMIT
";

/// A network namespace with the programs of a variant.
struct Lab {
    netns: Netns,
    programs: Programs,
    family: Family,
    variant: Variant,
    client: Client,
}

impl Lab {
    fn new(family: Family, variant: Variant) -> Self {
        let netns = Netns::new().unwrap();
        let programs = Programs::new().unwrap();
        let [save, restore] = programs.variant(&format!("{family}-{variant}")).unwrap();
        let client = netns.run(|| Client::open_at(save, restore)).unwrap();
        Self {
            netns,
            programs,
            family,
            variant,
            client,
        }
    }

    /// Returns a lab for each family and variant, with rules.
    fn all() -> impl Iterator<Item = Self> {
        let pairs = Family::ALL
            .into_iter()
            .flat_map(|family| Variant::ALL.map(|variant| (family, variant)));
        pairs.map(|(family, variant)| {
            let mut lab = Self::new(family, variant);
            lab.restore(BEFORE).unwrap();
            lab
        })
    }

    fn restore(&mut self, document: impl fmt::Display + Sync) -> Result<(), Error> {
        self.netns.run(|| self.client.restore(&document))
    }

    fn save(&mut self, table: &str) -> Result<String, Error> {
        let table = TableName::new(table).unwrap();
        self.netns.run(|| self.client.save(table))
    }

    /// Returns the rules of `filter` without comments, which contain the time.
    fn rules(&mut self) -> String {
        let text = self.save("filter").unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// Restores a document that must be rejected without changes, and returns the
    /// error.
    #[track_caller]
    fn rejected(&mut self, document: impl fmt::Display + Sync) -> Error {
        let before = self.rules();
        let error = self.restore(document).unwrap_err();
        assert_eq!(self.rules(), before, "{error}");
        error
    }

    /// Returns a client with a script as restore program. `$REAL` is the path of the
    /// real program.
    fn with_script(&self, script: &str) -> Client {
        let prefix = format!("{}-{}", self.family, self.variant);
        let real = self.programs.path(&format!("{prefix}-restore"));
        let script = format!(
            "REAL={}\nif [ \"$1\" = --version ]; then exec \"$REAL\" --version; fi\n{script}",
            real.display()
        );
        let restore = self.programs.script("wrapper", &script).unwrap();
        let save = self.programs.path(&format!("{prefix}-save"));
        self.netns.run(|| Client::open_at(save, restore)).unwrap()
    }
}

/// Returns the number and text of the rejected line, and the message.
fn parts(error: &Error) -> (usize, &str, &str) {
    let Error::Rejected {
        line: Some(line),
        message,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    (line.number, line.text.as_deref().unwrap(), message)
}

/// Waits until a condition is true, at most ten seconds.
fn wait_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition does not become true");
}

/// A document that calls a function in the middle of formatting.
struct Interrupted<F: Fn()> {
    before: String,
    act: F,
    after: String,
}

impl<F: Fn()> fmt::Display for Interrupted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.before)?;
        (self.act)();
        f.write_str(&self.after)
    }
}

/// A document with many rules.
struct Many(usize);

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*filter\n:MANY - [0:0]\n")?;
        for number in 0..self.0 {
            writeln!(
                f,
                "-A MANY -p tcp -m tcp --dport {} -m comment --comment \"rule {number}\" -j DROP",
                number % 65536
            )?;
        }
        f.write_str("COMMIT\n")
    }
}

#[test]
fn programs_of_a_variant_are_found_and_report_the_variant() {
    for family in Family::ALL {
        for variant in Variant::ALL {
            let client = Client::open_variant(family, variant).unwrap();
            assert_eq!(client.variant(), variant);
            assert!(client.version().has_random_fully());
        }
        let default = Client::open(family).unwrap();
        assert!(Variant::ALL.contains(&default.variant()));
    }
}

#[test]
fn restored_chains_are_saved_and_other_chains_remain() {
    for mut lab in Lab::all() {
        lab.restore("*filter\n:MORE - [0:0]\n-A MORE -j DROP\nCOMMIT\n")
            .unwrap();
        let rules = lab.rules();
        for line in BEFORE.lines().skip(1).chain(["-A MORE -j DROP"]) {
            assert!(rules.contains(&format!("{line}\n")), "{line} in\n{rules}");
        }
        lab.restore("*filter\n:MORE - [0:0]\n-X MORE\nCOMMIT\n")
            .unwrap();
        assert!(!lab.rules().contains("MORE"));
    }
}

#[test]
fn a_rejected_line_is_named_with_its_text_and_nothing_changes() {
    let cases = [
        ("-A NEW --blah", "--blah", 3),
        ("-A NEW -m blah", "blah", 3),
        ("-A NEW -p tcp -m tcp --dport blah", "blah", 3),
        ("blah", "blah", 3),
        ("-X NONE", "failed", 3),
        ("-A NONE -j ACCEPT", "failed", 3),
    ];
    for mut lab in Lab::all() {
        for (line, words, number) in cases {
            let error = lab.rejected(format!("*filter\n:NEW - [0:0]\n{line}\nCOMMIT\n"));
            let (at, text, message) = parts(&error);
            assert_eq!((at, text), (number, line), "{error}");
            assert!(message.contains(words), "{error}");
            assert_eq!(error.committed(), Committed::No);
            assert_eq!(error.line().unwrap().commits, 0);
        }
    }
}

#[test]
fn kernel_rejections_name_the_line_or_the_commit() {
    for mut lab in Lab::all() {
        // A loop, and a missing counter.
        for (document, line) in [
            ("-A NEW -j OURS\n-A OURS -j NEW", "-A OURS -j NEW"),
            (
                "-A NEW -m nfacct --nfacct-name none",
                "-A NEW -m nfacct --nfacct-name none",
            ),
        ] {
            let error = lab.rejected(format!("*filter\n:NEW - [0:0]\n{document}\nCOMMIT\n"));
            let (_, text, message) = parts(&error);
            match lab.variant {
                Variant::Legacy => assert_eq!(text, "COMMIT", "{error}"),
                Variant::Nft => {
                    assert_eq!(text, line, "{error}");
                    assert!(message.starts_with("RULE_APPEND failed ("), "{error}");
                }
            }
            assert_eq!(error.committed(), Committed::No);
        }
    }
}

#[test]
fn a_missing_chain_is_named() {
    for mut lab in Lab::all() {
        let error = lab.rejected("*filter\n:NEW - [0:0]\n-A NEW -j NONE\nCOMMIT\n");
        assert!(parts(&error).2.contains("NONE"), "{error}");
        assert!(error.to_string().contains(": line "), "{error}");
    }
}

#[test]
fn tables_before_the_rejected_line_may_be_committed() {
    for mut lab in Lab::all() {
        let document = "*filter\n:MORE - [0:0]\nCOMMIT\n*nat\n-X NONE\nCOMMIT\n";
        let error = lab.restore(document).unwrap_err();
        assert_eq!(parts(&error).0, 5);
        assert_eq!(error.line().unwrap().commits, 1);
        assert_eq!(error.committed(), Committed::Unknown);
        assert!(lab.rules().contains(":MORE "));
    }
}

#[test]
fn a_test_changes_nothing_and_finds_syntax_errors() {
    for mut lab in Lab::all() {
        let before = lab.rules();
        let right = "*filter\n:NEW - [0:0]\n-A NEW -j DROP\n-F OURS\nCOMMIT\n";
        let Lab { netns, client, .. } = &mut lab;
        netns.run(|| client.test(&right)).unwrap();
        let wrong = "*filter\n:NEW - [0:0]\n-A NEW --blah\nCOMMIT\n";
        let error = netns.run(|| client.test(&wrong)).unwrap_err();
        assert_eq!(parts(&error).0, 3);
        assert_eq!(lab.rules(), before);
    }
}

#[test]
fn a_held_lock_stops_only_the_legacy_variant() {
    for mut lab in Lab::all() {
        let lock = fs::File::open(lab.programs.lock()).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        lab.client.set_wait(1);
        let document = "*filter\n:NEW - [0:0]\nCOMMIT\n";
        match lab.variant {
            Variant::Legacy => {
                let error = lab.rejected(document);
                assert!(error.is_locked(), "{error:?}");
                assert_eq!(error.committed(), Committed::Unknown);
                assert!(
                    error.to_string().contains("xtables lock for 1 s"),
                    "{error}"
                );
                flock(&lock, FlockOperation::Unlock).unwrap();
                lab.restore(document).unwrap();
            }
            Variant::Nft => lab.restore(document).unwrap(),
        }
        assert!(lab.rules().contains(":NEW "));
    }
}

#[test]
fn a_missing_capability_is_reported() {
    for mut lab in Lab::all() {
        let prefix = format!("{}-{}", lab.family, lab.variant);
        let [save, restore] = ["save", "restore"].map(|verb| {
            let real = lab.programs.path(&format!("{prefix}-{verb}"));
            let script = format!(
                "exec setpriv --bounding-set=-net_admin {} \"$@\"",
                real.display()
            );
            lab.programs
                .script(&format!("weak-{verb}"), &script)
                .unwrap()
        });
        let before = lab.rules();
        let table = TableName::new("filter").unwrap();
        let (saved, restored) = lab.netns.run(|| {
            let mut client = Client::open_at(save, restore).unwrap();
            let document = "*filter\n:NEW - [0:0]\nCOMMIT\n";
            (client.save(table), client.restore(&document))
        });
        for error in [saved.unwrap_err(), restored.unwrap_err()] {
            assert!(matches!(error, Error::Denied { .. }), "{error:?}");
            assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        }
        assert_eq!(lab.rules(), before);
    }
}

#[test]
fn a_table_missing_in_the_kernel_is_unsupported() {
    for mut lab in Lab::all() {
        let saved = lab.save("none").unwrap_err();
        let restored = lab.rejected("*none\n:NEW - [0:0]\nCOMMIT\n");
        for error in [saved, restored] {
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            assert!(error.to_string().contains("does not exist"), "{error}");
        }
    }
}

#[test]
fn a_table_that_only_nft_can_list_is_incompatible() {
    for family in Family::ALL {
        let mut lab = Lab::new(family, Variant::Nft);
        let table = match family {
            Family::V4 => "ip filter",
            Family::V6 => "ip6 filter",
        };
        let script = format!(
            "add table {table}\nadd chain {table} other\n\
             add rule {table} other numgen random mod 2 0 drop\n"
        );
        lab.netns.run(|| nft::succeeds(&["-f", "-"], &script));
        let error = lab.save("filter").unwrap_err();
        assert!(matches!(error, Error::Incompatible { .. }), "{error:?}");
        assert!(error.to_string().contains("nft"), "{error}");
        assert!(lab.save("nat").is_ok());
    }
}

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
    assert!(error.is_not_found());
    assert_eq!(error.committed(), Committed::No);
    assert_eq!(
        error.to_string(),
        "/none/iptables-restore not found: install iptables"
    );
    let netns = Netns::new().unwrap();
    let mut client = Client::open_at("/none/iptables-save", restore).unwrap();
    let saved = netns.run(|| client.save(TableName::new("nat").unwrap()));
    assert!(saved.unwrap_err().is_not_found());
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
    let error = client.save(TableName::new("nat").unwrap()).unwrap_err();
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
    let table = TableName::new("nat").unwrap();
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
fn many_rules_are_restored_and_saved_line_by_line() {
    const RULES: usize = 20_000;
    for variant in Variant::ALL {
        let mut lab = Lab::new(Family::V4, variant);
        lab.restore(Many(RULES)).unwrap();
        let (mut rules, mut longest, mut total) = (0, 0, 0);
        let Lab { netns, client, .. } = &mut lab;
        let table = TableName::new("filter").unwrap();
        let saved = netns.run(|| {
            client.save_lines(table, |line| {
                rules += usize::from(line.starts_with("-A MANY "));
                longest = longest.max(line.len());
                total += line.len();
                Ok::<(), Error>(())
            })
        });
        saved.unwrap();
        assert_eq!(rules, RULES);
        assert!(longest < 200 && total > 1 << 20, "{longest} of {total}");
    }
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
    let table = TableName::new("nat").unwrap();
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

#[test]
fn notifications_about_a_restore_carry_its_process_id_as_port_id() {
    const NFNLGRP_NFTABLES: u32 = 7;
    for family in Family::ALL {
        let mut lab = Lab::new(family, Variant::Nft);
        let mut listener = lab
            .netns
            .run(|| Listener::open(Protocol::Netfilter))
            .unwrap();
        listener.join(NFNLGRP_NFTABLES).unwrap();
        assert_eq!(lab.client.last_restore_pid(), None);
        lab.restore(BEFORE).unwrap();
        let mut ports = Vec::new();
        listener
            .read(|event| match event {
                Event::Message(message) => ports.push(message.port_id),
                other => panic!("{other:?}"),
            })
            .unwrap();
        ports.dedup();
        assert_eq!(ports, [lab.client.last_restore_pid().unwrap()]);
    }
}
