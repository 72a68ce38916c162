//! Tests with a real kernel that compare dumps with `ipset save`.
//!
//! Each test creates a network namespace. A missing program is a failure.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "../examples/atomic-swap.rs"]
mod atomic_swap;

#[path = "kernel/documents.rs"]
mod documents;

#[path = "kernel/lab.rs"]
mod lab;

#[path = "kernel/program.rs"]
mod program;

#[path = "kernel/rejections.rs"]
mod rejections;

#[path = "kernel/suite.rs"]
mod suite;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use vipline_ipset::{
    Command, Commands, Entry, Interface, Member, Object, Port, Reason, Set, SetFamily, SetType,
    Strictness,
};
use vipline_reconcile::{Edit, diff};

use documents::{DOCUMENTS, MISSING, supported_documents};
use lab::{Lab, add, ip, name, objects, rejected, sorted};

#[test]
fn a_kernel_lacks_no_other_types_than_that_of_the_host() {
    let types = Lab::new().supported();
    let missing = SetType::ALL.into_iter().filter(|it| !types.contains(it));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty() || missing == MISSING, "{missing:?}");
}

#[test]
fn documents_are_loaded_and_dumped_like_ipset_saves_them() {
    for text in supported_documents() {
        let mut lab = Lab::new();
        lab.load(text)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(sorted(&lab.save()), sorted(text));
        let ours = lab.client.dump_all().unwrap().to_string();
        assert_eq!(sorted(&ours), sorted(text));
    }
}

#[test]
fn documents_loaded_by_ipset_produce_no_edits() {
    for text in supported_documents() {
        let mut lab = Lab::new();
        lab.succeeds("ipset", &["restore"], text);
        let ours = lab.client.dump_all().unwrap().to_string();
        assert_eq!(sorted(&ours), sorted(text));
        let edits = diff(lab.objects(), &objects(text));
        assert!(edits.is_empty(), "{}", Commands::from_edits(&edits));
    }
}

#[test]
fn every_type_is_in_a_document() {
    for set_type in SetType::ALL {
        let word = format!(" {set_type} ");
        assert!(
            DOCUMENTS.iter().any(|text| text.contains(&word)),
            "{set_type}"
        );
    }
}

#[test]
fn ranges_and_networks_are_expanded_to_single_entries() {
    let cases = [
        ("create a hash:ip", "add a 10.0.0.0/30", 4),
        ("create a hash:ip", "add a 10.0.0.1-10.0.0.9", 9),
        (
            "create a hash:ip,port",
            "add a 10.0.0.1-10.0.0.2,tcp:80-82",
            6,
        ),
        (
            "create a hash:ip,port,ip",
            "add a 10.0.0.1,udp:1-3,10.0.0.1",
            3,
        ),
        (
            "create a hash:ip,port,net",
            "add a 10.0.0.1,udp:1-3,10.0.0.0/8",
            3,
        ),
        ("create a hash:net", "add a 10.0.0.1-10.0.0.4", 3),
        ("create a hash:net,port", "add a 10.0.0.0/8,tcp:5-6", 2),
        ("create a bitmap:port range 0-99", "add a 7-9", 3),
        (
            "create a bitmap:ip range 10.0.0.0/24",
            "add a 10.0.0.4/30",
            4,
        ),
    ];
    for (create, add, count) in cases {
        let mut lab = Lab::new();
        lab.load(&format!("{create}\n{add}\n")).unwrap();
        let ours = lab.save();
        let theirs = Lab::new().succeeds("ipset", &["restore"], &format!("{create}\n{add}\n"));
        assert_eq!(theirs, "");
        assert_eq!(ours.lines().count(), count + 1, "{add}: {ours}");
        let lab = Lab::new();
        lab.succeeds("ipset", &["restore"], &format!("{create}\n{add}\n"));
        assert_eq!(sorted(&lab.save()), sorted(&ours));
    }
}

#[test]
fn icmp_types_have_the_names_of_ipset() {
    let all = |protocol: &str, ip: &str| {
        let lines = (0..=255).flat_map(|ty| {
            (0..=20).map(move |code| format!("add a {ip},{protocol}:{ty}/{code}\n"))
        });
        lines.collect::<String>()
    };
    for (family, protocol, ip) in [("inet", "icmp", "10.0.0.1"), ("inet6", "icmpv6", "fd00::1")] {
        let mut lab = Lab::new();
        // A large set from the start: the moment of growth depends on a random seed.
        let set = format!("create a hash:ip,port family {family} hashsize 65536\n");
        lab.load(&set).unwrap();
        lab.load(&all(protocol, ip)).unwrap();
        let (theirs, ours) = (lab.save(), lab.client.dump_all().unwrap().to_string());
        assert_eq!(ours.lines().count(), 1 + 256 * 21);
        assert_eq!(sorted(&ours), sorted(&theirs));
        assert!(theirs.contains("icmp:echo-request"), "{protocol}");
        let mut again = Lab::new();
        again.load(&theirs).unwrap();
        assert_eq!(sorted(&again.save()), sorted(&theirs));
    }
}

#[test]
fn forceadd_makes_room_in_a_full_set() {
    let full = |options: &str| {
        let mut lab = Lab::new();
        let set = format!("create a hash:ip hashsize 64 maxelem 256 {options}\n");
        lab.load(&set).unwrap();
        let entries: String = (0..256).map(|n| format!("add a 10.0.0.{n}\n")).collect();
        lab.load(&entries).unwrap();
        let more = (0..100).map(|n| lab.load(&format!("add a 10.0.1.{n}\n")));
        more.filter(Result::is_ok).count()
    };
    assert_eq!(full(""), 0);
    assert!(full("forceadd") > 50);
    // ipset does not print the option, so only the dump is checked.
    let mut lab = Lab::new();
    lab.succeeds("ipset", &["create", "a", "hash:ip", "forceadd"], "");
    assert!(
        lab.client
            .dump_all()
            .unwrap()
            .to_string()
            .contains(" forceadd")
    );
}

#[test]
fn time_passes_for_entries_with_a_timeout() {
    let mut lab = Lab::new();
    lab.load("create a hash:ip timeout 1000\nadd a 10.0.0.1\nadd a 10.0.0.2 timeout 50\n")
        .unwrap();
    let listed = lab.client.list(&name("a")).unwrap();
    assert_eq!(listed.set.timeout, Some(1000));
    let mut times: Vec<u32> = listed
        .entries
        .iter()
        .map(|entry| entry.timeout.unwrap())
        .collect();
    times.sort_unstable();
    assert!((40..=50).contains(&times[0]), "{times:?}");
    assert!((990..=1000).contains(&times[1]), "{times:?}");

    lab.load("add a 10.0.0.2 timeout 2000 -exist\nadd a 10.0.0.3 timeout 1\n")
        .unwrap();
    let left = |lab: &mut Lab| lab.client.list(&name("a")).unwrap().entries;
    let renewed = left(&mut lab);
    assert!(renewed.iter().any(|entry| entry.timeout > Some(1000)));
    let deadline = Instant::now() + Duration::from_secs(10);
    while left(&mut lab).len() > 2 {
        assert!(Instant::now() < deadline, "the third entry stays");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn packets_are_counted_for_the_matching_entry() {
    let mut lab = Lab::new();
    lab.load("create a hash:ip,port counters\nadd a 127.0.0.1,udp:9\nadd a 127.0.0.1,udp:10\n")
        .unwrap();
    let rule = "-w -A OUTPUT -m set --match-set a dst,dst -j ACCEPT";
    let rule: Vec<&str> = rule.split(' ').collect();
    lab.succeeds("iptables", &rule, "");
    lab.netns.run(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"twelve bytes", "127.0.0.1:9").unwrap();
    });
    let listed = lab.client.list(&name("a")).unwrap();
    assert_eq!(listed.usage.references, 1);
    for entry in listed.entries {
        let Member::IpPort(_, port) = entry.member else {
            panic!("{entry}")
        };
        // IPv4 header, UDP header and payload.
        let counted = if port == Port::udp(9) {
            (1, 20 + 8 + 12)
        } else {
            (0, 0)
        };
        let counters = entry.counters.unwrap();
        assert_eq!((counters.packets, counters.bytes), counted, "{entry}");
    }
}

#[test]
fn queries_return_entries_headers_revisions_and_usage() {
    let mut lab = Lab::new();
    assert!((6..=7).contains(&lab.client.protocol()));
    lab.load("create a hash:net\nadd a 10.0.0.0/8\n").unwrap();
    let inside = Entry::new(name("a"), Member::Net("10.1.2.3/32".parse().unwrap()));
    let outside = Entry::new(name("a"), Member::Net("11.1.2.3/32".parse().unwrap()));
    assert!(lab.client.test(&inside).unwrap());
    assert!(!lab.client.test(&outside).unwrap());
    let nowhere = Entry::new(name("none"), inside.member.clone());
    assert!(lab.client.test(&nowhere).unwrap_err().is_not_found());

    let header = lab.client.header(&name("a")).unwrap();
    assert_eq!(
        (header.set_type, header.family),
        (SetType::HashNet, SetFamily::V4)
    );
    assert!(lab.client.header(&name("none")).unwrap_err().is_not_found());
    assert!(lab.client.list(&name("none")).unwrap_err().is_not_found());

    for set_type in lab.supported() {
        let revisions = lab.client.revisions(&set_type, SetFamily::V4).unwrap();
        let set = Set::new(name("a"), set_type, SetFamily::V4);
        let requests = Commands::from(vec![Command::Create(set.into(), Strictness::Strict)])
            .requests(7)
            .unwrap();
        let mut decoder = vipline_ipset::DumpDecoder::new();
        decoder.push(&requests[0].payload).unwrap();
        let revision = decoder.finish().get("a").unwrap().set.revision.unwrap();
        assert!(revisions.contains(&revision), "{revision} of {revisions:?}");
    }
    let unknown = lab
        .client
        .revisions(&SetType::from_name("hash:none"), SetFamily::V4);
    assert_eq!(Reason::of(&unknown.unwrap_err()), Some(Reason::UnknownType));

    let usage = lab.client.list(&name("a")).unwrap().usage;
    assert_eq!((usage.entries, usage.references), (1, 0));
    assert!(usage.memory > 0);
    let dump = lab.client.dump(&[name("none"), name("a")]).unwrap();
    assert_eq!(dump.len(), 1);
    assert!(
        lab.client
            .headers()
            .unwrap()
            .get("a")
            .unwrap()
            .entries
            .is_empty()
    );
}

#[test]
fn sets_are_renamed_swapped_flushed_and_destroyed() {
    let mut lab = Lab::new();
    lab.load("create a hash:ip\nadd a 10.0.0.1\ncreate b hash:ip\nswap a b\nrename b c\n")
        .unwrap();
    let sets = lab.client.dump_all().unwrap();
    assert_eq!(sets.get("c").unwrap().entries, [ip("c", "10.0.0.1")]);
    assert!(sets.get("a").unwrap().entries.is_empty());
    lab.load("flush c\n").unwrap();
    assert!(lab.client.list(&name("c")).unwrap().entries.is_empty());
    lab.load("destroy a\ndestroy c\ndestroy a -exist\n")
        .unwrap();
    assert_eq!(lab.save(), "");
}

#[test]
fn ten_thousand_entries_need_few_messages_and_one_needs_one() {
    let cases = [
        ("hash:ip family inet", "10.0.{a}.{b}", 8),
        ("hash:ip,port family inet", "10.0.{a}.{b},tcp:80", 13),
        ("hash:ip,port family inet6", "fd00::{a}:{b},tcp:80", 16),
        (
            "hash:ip,port,ip family inet",
            "10.0.{a}.{b},udp:80,10.0.0.1",
            16,
        ),
        (
            "hash:ip,port,net family inet6 counters comment",
            "fd00::{a}:{b},udp:80,fd00::/64 comment \"x\"",
            29,
        ),
    ];
    for (options, entry, messages) in cases {
        let mut lab = Lab::new();
        lab.load(&format!("create a {options} maxelem 20000\n"))
            .unwrap();
        let lines = |verb: &str, numbers: std::ops::Range<u32>| {
            let line = |number: u32| {
                // `del` has no options.
                let element = entry.split(' ').next().unwrap();
                let entry = if verb == "del" { element } else { entry };
                let entry = entry.replace("{a}", &(number / 200).to_string());
                format!(
                    "{verb} a {}\n",
                    entry.replace("{b}", &(number % 200).to_string())
                )
            };
            numbers.map(line).collect::<String>()
        };
        let known = lab.headers();
        let mut sends = |text: &str| {
            let commands = Commands::parse(text, &known).unwrap();
            let before = lab.client.counters();
            lab.client.commit(&commands).unwrap();
            let after = lab.client.counters();
            assert_eq!(after.receives - before.receives, after.sends - before.sends);
            after.sends - before.sends
        };
        assert_eq!(sends(&lines("add", 0..10_000)), messages, "{options}");
        assert_eq!(sends(&lines("add", 10_000..10_001)), 1, "{options}");
        assert_eq!(sends(&lines("del", 10_000..10_001)), 1, "{options}");
        let count = lab.client.list(&name("a")).unwrap().entries.len();
        assert_eq!(count, 10_000, "{options}");
    }
}

#[test]
fn a_set_in_use_changes_its_properties_by_a_swap() {
    let mut lab = Lab::new();
    let old = "create a hash:ip family inet hashsize 1024 maxelem 100\n\
               add a 10.0.0.1\nadd a 10.0.0.2\nadd a 10.0.0.3\n";
    let new = "create a hash:ip family inet hashsize 1024 maxelem 200 comment\n\
               add a 10.0.0.1\nadd a 10.0.0.3\nadd a 10.0.0.4 comment \"four\"\n";
    lab.reconcile(&objects(old)).unwrap();
    let rule = [
        "-w",
        "-A",
        "INPUT",
        "-m",
        "set",
        "--match-set",
        "a",
        "src",
        "-j",
        "DROP",
    ];
    lab.succeeds("iptables", &rule, "");
    let (_, _, reason) = rejected(lab.load("destroy a\n"));
    assert_eq!(reason, Reason::InUse);

    let commands = lab.reconcile(&objects(new)).unwrap();
    assert!(
        commands.to_string().contains("swap a a~\ndestroy a~\n"),
        "{commands}"
    );
    assert_eq!(sorted(&lab.save()), sorted(new));
    assert!(lab.reconcile(&objects(new)).unwrap().is_empty());

    let other_type = "create a hash:net family inet hashsize 1024 maxelem 200\nadd a 10.0.0.0/8\n";
    let (_, command, reason) = rejected(lab.reconcile(&objects(other_type)).map(drop));
    assert_eq!((command.as_str(), reason), ("destroy a", Reason::InUse));
    lab.succeeds("iptables", &["-w", "-F"], "");
    // The next commit removes the leftovers of the failed one.
    lab.reconcile(&objects(other_type)).unwrap();
    assert_eq!(sorted(&lab.save()), sorted(other_type));
}

#[test]
fn edits_lead_from_each_state_to_every_other() {
    let states = [
        "",
        "create a hash:ip,port\nadd a 10.0.0.1,tcp:80\nadd a 10.0.0.2,tcp:80\n",
        "create a hash:ip,port maxelem 2\nadd a 10.0.0.1,tcp:80\nadd a 10.0.0.3,tcp:80\n",
        "create a hash:ip,port timeout 0\nadd a 10.0.0.1,tcp:80\n\
         create l list:set\nadd l a\ncreate z bitmap:port range 0-9\nadd z 3\n",
        "create l hash:net\nadd l 10.0.0.0/8 nomatch\n",
        "create l hash:net\nadd l 10.0.0.0/8\n",
        "create a list:set\ncreate b hash:ip comment\nadd b 10.0.0.1 comment \"b\"\nadd a b\n",
        "create b hash:ip comment\nadd b 10.0.0.1 comment \"c\"\n",
    ];
    let mut lab = Lab::new();
    for from in states {
        for to in states {
            lab.reconcile(&objects(from)).unwrap();
            let wanted = objects(to);
            let commands = lab
                .reconcile(&wanted)
                .unwrap_or_else(|error| panic!("{error}\n{from}=>\n{to}"));
            let left = diff(lab.objects(), &wanted);
            assert!(left.is_empty(), "{from}=>\n{to}by\n{commands}");
        }
    }
}

#[test]
fn a_set_of_another_program_is_preserved() {
    let mut lab = Lab::new();
    let foreign = "create f hash:net,iface family inet hashsize 1024 maxelem 65536 comment\n\
                   add f 10.0.0.0/8,eth0 comment \"theirs\"\n";
    lab.succeeds("ipset", &["restore"], foreign);
    let dump = lab.client.dump_all().unwrap();
    let listed = dump.get("f").unwrap();
    assert_eq!(listed.set.set_type, SetType::HashNetIface);
    let [entry] = listed.entries.as_slice() else {
        panic!("{listed}")
    };
    let interface = Interface::new("eth0");
    let member = Member::NetIface("10.0.0.0/8".parse().unwrap(), interface);
    assert_eq!(entry.member, member);

    let mut wanted: Vec<Object> = lab.objects();
    wanted.extend(objects("create a hash:ip\nadd a 10.0.0.1\n"));
    let commands = lab.reconcile(&wanted).unwrap();
    let foreign = |command: &Command| command.set().is_some_and(|set| set.as_str() == "f");
    assert!(!commands.as_slice().iter().any(foreign), "{commands}");
    assert!(
        lab.save()
            .contains("add f 10.0.0.0/8,eth0 comment \"theirs\"")
    );
}

#[test]
fn marks_of_skbinfo_are_preserved() {
    let mut lab = Lab::new();
    let text = "create a hash:ip skbinfo\nadd a 10.0.0.1 skbmark 0x1/0xff skbqueue 4\n";
    lab.succeeds("ipset", &["restore"], text);
    let (before, objects) = (sorted(&lab.save()), lab.objects());
    lab.load("destroy a\n").unwrap();
    lab.reconcile(&objects).unwrap();
    assert_eq!(sorted(&lab.save()), before);
}

#[test]
fn a_name_that_ipset_cannot_parse_does_not_hide_other_sets() {
    let mut lab = Lab::new();
    lab.succeeds("ipset", &["create", "two words", "hash:ip"], "");
    lab.load("create a hash:ip,port\n").unwrap();
    let port = Member::IpPort("10.0.0.1".parse().unwrap(), Port::tcp(80));
    lab.client
        .commit(&vec![add(Entry::new(name("a"), port))].into())
        .unwrap();
    let dump = lab.client.dump_all().unwrap();
    assert_eq!(dump.len(), 2);
    assert_eq!(dump.get("a").unwrap().entries.len(), 1);
    assert!(dump.get("two words").is_some());
    let removed: Vec<_> = lab.objects().into_iter().map(Edit::Remove).collect();
    lab.client.commit(&Commands::from_edits(&removed)).unwrap();
    assert_eq!(lab.save(), "");
}

#[test]
fn sets_are_replaced_by_the_example_while_a_rule_uses_them() {
    let mut lab = Lab::new();
    lab.load("create a hash:ip timeout 0 comment\nadd a 10.0.0.1\nadd a 10.0.0.2\n")
        .unwrap();
    lab.load("create user list:set\nadd user a\n").unwrap();
    let addresses = ["10.0.0.7".parse().unwrap()];
    let mut out = Vec::new();
    atomic_swap::replace(&mut lab.client, &name("a"), &addresses, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out, "a: 2 entries replaced by 10.0.0.7\n");
    let saved = lab.save();
    assert!(saved.contains("add a 10.0.0.7 timeout 0\n"), "{saved}");
    assert!(
        saved.contains("add user a\n") && !saved.contains("a-next"),
        "{saved}"
    );
}
