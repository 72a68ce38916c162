//! Tests of the client and of its errors.
//!
//! Each failure is provoked, and the previous rules must still exist after it.

use std::fs;

use rustix::fs::{FlockOperation, flock};
use testkit::nft;
use vipline_iptables::{Client, Committed, Error, Family, TableName, Variant, program_name};
use vipline_netlink::{Event, Listener, Protocol};

use crate::lab::{BEFORE, Lab, Many};

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
        let prefix = format!("{}-{}", program_name(lab.family), lab.variant);
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
        let table = TableName::FILTER;
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
fn many_rules_are_restored_and_saved_line_by_line() {
    const RULES: usize = 20_000;
    for variant in Variant::ALL {
        let mut lab = Lab::new(Family::V4, variant);
        lab.restore(Many(RULES)).unwrap();
        let (mut rules, mut longest, mut total) = (0, 0, 0);
        let Lab { netns, client, .. } = &mut lab;
        let table = TableName::FILTER;
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
fn notifications_about_a_restore_carry_its_process_id_as_port_id() {
    const NFNLGRP_NFTABLES: u32 = 7;
    for family in Family::ALL {
        let mut lab = Lab::new(family, Variant::Nft);
        let mut listener = lab
            .netns
            .run(|| Listener::open(Protocol::NETFILTER))
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
