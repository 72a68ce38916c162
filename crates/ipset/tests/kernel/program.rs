//! Compares each operation with the `ipset` program.

use std::time::Duration;

use vipline_ipset::{Command, Commands, Entry, Error, SetFamily, SetType};

use crate::lab::{Lab, name, sorted};
use crate::supported_documents;

/// A sequence of commands, some of which are rejected.
const COMMANDS: &[&str] = &[
    "create a hash:ip,port",
    "create a hash:ip,port",
    "create a hash:ip,port -exist",
    "create a hash:ip -exist",
    "create b hash:ip,port maxelem 2 timeout 0",
    "create six hash:ip,port,net family inet6 comment counters",
    "create p bitmap:port range 1-9",
    "create l list:set",
    "add a 10.0.0.1,tcp:80",
    "add a 10.0.0.1,tcp:80",
    "add a 10.0.0.1,tcp:80 -exist",
    "add a 10.0.0.1-10.0.0.4,udp:7-8",
    "add b 10.0.0.9,sctp:1 timeout 0",
    "add b 10.0.0.9,sctp:2",
    "add b 10.0.0.9,sctp:3",
    "add six fd00::1,tcp:80,fd00::/64 packets 4 bytes 5 comment \"one\"",
    "add six fd00::1,tcp:80,fd00:1::/64 nomatch",
    "add six fd00::1,tcp:80,fd00::/64 comment \"two\" -exist",
    "add p 3",
    "add p 10",
    "add p 4-6",
    "del p 5",
    "del p 5",
    "del p 5 -exist",
    "add l a",
    "add l b",
    "add l none",
    "destroy a",
    "swap a b",
    "swap a six",
    "swap a none",
    "rename p q",
    "rename q a",
    "rename none c",
    "rename a c",
    "del l a",
    "del l b",
    "rename a c",
    "del c 10.0.0.9,sctp:1",
    "flush c",
    "flush none",
    "destroy none",
    "destroy none -exist",
    "destroy b",
    "destroy l",
    "flush six",
    "destroy six",
];

#[test]
fn each_command_has_the_same_effect_as_with_ipset() {
    let (mut ours, theirs) = (Lab::new(), Lab::new());
    for line in COMMANDS {
        let done = ours.load(line).is_ok();
        let wanted = theirs.run("ipset", &["restore"], &format!("{line}\n"));
        assert_eq!(done, wanted.status.success(), "{line}: {wanted:?}");
        assert_eq!(sorted(&ours.save()), sorted(&theirs.save()), "{line}");
    }
    assert_eq!(ours.client.headers().unwrap().len(), 2);
}

/// Commands with the name of a host, which `/etc/hosts` has on every machine.
const HOSTS: &str = "create a hash:ip\nadd a localhost\n\
    create b hash:ip,port\nadd b [localhost],tcp:80\n\
    create c hash:net\nadd c localhost/8\n\
    create d hash:ip,port,net\nadd d 10.0.0.1,53,localhost\n";

#[test]
fn names_of_hosts_are_resolved_like_by_ipset() {
    let (mut ours, theirs) = (Lab::new(), Lab::new());
    let commands = Commands::parse_with_hosts(HOSTS, &[], |name, family| match family {
        _ if name != "localhost" => None,
        SetFamily::V4 => Some("127.0.0.1".parse().unwrap()),
        _ => None,
    });
    ours.client.commit(&commands.unwrap()).unwrap();
    theirs.succeeds("ipset", &["restore"], HOSTS);
    assert_eq!(sorted(&ours.save()), sorted(&theirs.save()));
}

/// Sets and the elements to test for.
const QUESTIONS: &[(&str, &[&str])] = &[
    (
        "create a hash:ip netmask 24\nadd a 10.1.2.0\n",
        &["10.1.2.7", "10.1.3.7"],
    ),
    (
        "create a hash:ip,port family inet6\nadd a fd00::1,tcp:80\n",
        &["fd00::1,tcp:80", "fd00::1,udp:80", "fd00::2,tcp:80"],
    ),
    (
        "create a hash:ip,port,ip\nadd a 10.0.0.1,udp:7,10.0.0.2\n",
        &["10.0.0.1,udp:7,10.0.0.2", "10.0.0.1,udp:7,10.0.0.3"],
    ),
    (
        "create a hash:ip,port,net\nadd a 10.0.0.1,tcp:80,10.0.0.0/8\n\
         add a 10.0.0.1,tcp:80,10.1.0.0/16 nomatch\n",
        &[
            "10.0.0.1,tcp:80,10.2.3.4",
            "10.0.0.1,tcp:80,10.1.3.4",
            "10.0.0.1,tcp:80,11.2.3.4",
        ],
    ),
    (
        "create a hash:net family inet6\nadd a fd00::/64\nadd a fd00::5 nomatch\n",
        &["fd00::1", "fd00::5", "fd00:1::1", "fd00::/64", "fd00::/65"],
    ),
    (
        "create a hash:net,port\nadd a 10.0.0.0/8,tcp:53\n",
        &["10.0.0.1,tcp:53", "10.0.0.1,udp:53", "11.0.0.1,tcp:53"],
    ),
    (
        "create a bitmap:ip range 10.0.0.0/24\nadd a 10.0.0.7\n",
        &["10.0.0.7", "10.0.0.8"],
    ),
    ("create a bitmap:port range 0-99\nadd a 7\n", &["7", "8"]),
    (
        "create b hash:ip\ncreate c hash:ip\ncreate a list:set\nadd a b\n",
        &["b", "c"],
    ),
];

#[test]
fn entry_tests_agree_with_ipset() {
    for (document, questions) in QUESTIONS {
        let mut lab = Lab::new();
        lab.load(document).unwrap();
        let known = lab.headers();
        let mut answers = [0, 0];
        for question in *questions {
            let wanted = lab.run("ipset", &["test", "a", question], "");
            let command = Commands::parse(&format!("add a {question}"), &known).unwrap();
            let found = lab.client.test(&tested_entry(&command)).unwrap();
            assert_eq!(found, wanted.status.success(), "{question}: {wanted:?}");
            answers[usize::from(found)] += 1;
        }
        assert!(!answers.contains(&0), "{document}: all answers are equal");
    }
}

fn tested_entry(commands: &Commands) -> Entry {
    match commands.as_slice() {
        [Command::Add(entry, _)] => (**entry).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn headers_and_usage_equal_the_listing_of_ipset() {
    for document in supported_documents() {
        let mut lab = Lab::new();
        lab.succeeds("ipset", &["restore"], document);
        let listing = lab.succeeds("ipset", &["list", "-terse"], "");
        for block in listing.split("\n\n") {
            let line = |word: &str| {
                let mut lines = block.lines();
                lines.find_map(|line| line.strip_prefix(word)?.strip_prefix(": "))
            };
            let name = name(line("Name").unwrap());
            let listed = lab.client.list(&name).unwrap();
            let header = lab.client.header(&name).unwrap();
            for set in [&header, &listed.set] {
                assert_eq!(Some(set.set_type.as_str()), line("Type"));
                let revision = set.revision.unwrap();
                assert_eq!(revision.to_string(), line("Revision").unwrap(), "{block}");
            }
            assert_eq!(header.family, listed.set.family);
            let usage = listed.usage;
            for (number, word) in [
                (usage.memory, "Size in memory"),
                (usage.references, "References"),
                (usage.entries, "Number of entries"),
            ] {
                assert_eq!(number.to_string(), line(word).unwrap(), "{word}: {block}");
            }
        }
        let names = lab.succeeds("ipset", &["list", "-name"], "");
        let mut names: Vec<&str> = names.lines().collect();
        names.sort_unstable();
        let headers = lab.headers();
        let ours: Vec<&str> = headers.iter().map(|set| set.name.as_str()).collect();
        assert_eq!(ours, names);
    }
}

#[test]
fn ipset_creates_sets_with_a_supported_revision() {
    for set_type in Lab::new().supported() {
        let mut lab = Lab::new();
        let range = match set_type {
            SetType::BitmapIp | SetType::BitmapIpMac => &["range", "10.0.0.0/24"][..],
            SetType::BitmapPort => &["range", "0-9"],
            _ => &[],
        };
        let create = [&["create", "a", set_type.as_str()], range].concat();
        lab.succeeds("ipset", &create, "");
        let revision = lab.client.header(&name("a")).unwrap().revision.unwrap();
        let revisions = lab.client.revisions(&set_type, SetFamily::V4).unwrap();
        assert!(revisions.contains(&revision), "{set_type}: {revisions:?}");
    }
}

#[test]
fn a_reply_timeout_of_zero_is_rejected() {
    let client = Lab::new().client;
    client.set_timeout(Duration::from_secs(1)).unwrap();
    let zero = client.set_timeout(Duration::ZERO).unwrap_err();
    assert!(matches!(zero, Error::Netlink(_)), "{zero:?}");
}
