//! Rejected commands, and commands that ignore rejections.

use vipline_ipset::{
    Command, Commands, Entry, Member, Name, Port, Protocol, Reason, Set, SetFamily, SetType, diff,
};

use crate::lab::{Lab, add, name, objects, rejected, sorted};

#[test]
fn the_rejected_entry_of_a_batch_is_named() {
    let mut lab = Lab::new();
    lab.load("create a hash:ip maxelem 100000\n").unwrap();
    let entry = |n: u32| {
        add(Entry::new(
            name("a"),
            Member::Ip(std::net::Ipv4Addr::from(n).into()),
        ))
    };
    let commands: Vec<Command> = (1..=10_000).map(entry).collect();
    lab.client.commit(&commands.into()).unwrap();

    let commands: Vec<Command> = (20_000..27_000)
        .chain([5])
        .chain(30_000..31_000)
        .map(entry)
        .collect();
    let (index, command, reason) = rejected(lab.client.commit(&commands.into()));
    assert_eq!((index, command.as_str()), (7_000, "add a 0.0.0.5"));
    assert_eq!(reason, Reason::Exists);
    let entries = lab.client.list(&name("a")).unwrap().entries;
    assert_eq!(
        entries.len(),
        17_000,
        "entries before the rejected one are added, those after are not"
    );
}

#[test]
fn rejections_name_the_command_and_the_reason() {
    let base = "create a hash:ip,port\nadd a 10.0.0.1,tcp:80\ncreate small hash:ip maxelem 1\n\
                add small 10.0.0.1\ncreate p bitmap:port range 10-20\ncreate six hash:ip family inet6\n\
                create l list:set size 1\ncreate l2 list:set\nadd l a\ncreate n hash:net\n\
                create i bitmap:ip range 10.0.0.0/24\n";
    let cases = [
        ("create a hash:ip,port", Reason::Exists),
        ("add a 10.0.0.1,tcp:80", Reason::Exists),
        ("del a 10.0.0.9,tcp:80", Reason::Missing),
        ("destroy none", Reason::Missing),
        ("flush none", Reason::Missing),
        ("swap none a", Reason::Missing),
        ("swap a none", Reason::OtherName),
        ("swap a small", Reason::TypeMismatch),
        ("rename small a", Reason::OtherName),
        ("destroy a", Reason::InUse),
        ("rename a other", Reason::InUse),
        ("add small 0.0.0.0", Reason::NullEntry),
        ("add six fd00::1-fd00::4", Reason::RangeUnsupported),
        ("create u hash:ip family unspec", Reason::InvalidFamily),
        ("add small 10.0.0.2", Reason::Full),
        ("add p 9", Reason::OutOfRange),
        ("add i 10.0.1.1", Reason::OutOfRange),
        ("add six 10.0.0.1", Reason::ExpectedIpv6),
        ("add small fd00::1", Reason::ExpectedIpv4),
        ("add a 10.0.0.1,tcp:81 timeout 9", Reason::NoTimeouts),
        ("add a 10.0.0.1,tcp:81 packets 9", Reason::NoCounters),
        ("add a 10.0.0.1,tcp:81 comment \"x\"", Reason::NoComments),
        ("add l2 none", Reason::NoSuchSet),
        ("add l2 l", Reason::Loop),
        ("create m hash:ip netmask 33", Reason::InvalidNetmask),
        (
            "create i2 bitmap:ip range 10.0.0.0-10.9.0.0",
            Reason::RangeTooLarge,
        ),
    ];
    let mut lab = Lab::new();
    lab.load(base).unwrap();
    let before = sorted(&lab.save());
    for (line, reason) in cases {
        let result = lab.load(line);
        assert!(result.is_err(), "{line}");
        let (index, command, found) = rejected(result);
        assert_eq!((found, index), (reason, 0), "{line}");
        assert!(command.starts_with(&line[..line.len().min(8)]), "{command}");
        let theirs = lab.run("ipset", &["restore"], line);
        assert!(!theirs.status.success(), "{line}");
    }
    assert_eq!(sorted(&lab.save()), before);
}

#[test]
fn exist_commands_update_entries_and_ignore_missing_ones() {
    let mut lab = Lab::new();
    let text = "create a hash:ip comment\nadd a 10.0.0.1 comment \"old\"\n";
    lab.load(text).unwrap();
    lab.load("create a hash:ip comment -exist\nadd a 10.0.0.1 comment \"new\" -exist\ndel a 10.0.0.9 -exist\n")
        .unwrap();
    assert!(lab.save().contains("add a 10.0.0.1 comment \"new\""));
}

#[test]
fn objects_that_the_parser_refuses_are_rejected_by_the_kernel_too() {
    let mut lab = Lab::new();
    lab.load("create a hash:ip,port\n").unwrap();
    let parsed = |text: &str| Commands::parse(text, &[]).unwrap_err();
    let error = parsed("create x hash:none\n");
    assert_eq!(error.expected, "known type of a set");
    let unknown = Set::new(name("x"), SetType::from_name("hash:none"), SetFamily::V4);
    let error = lab.client.create(unknown).unwrap_err();
    assert_eq!(Reason::of(&error), Some(Reason::UnknownType));
    let errno = error.errno().unwrap();
    assert_eq!(Reason::error_name(errno, None), Some("IPSET_ERR_FIND_TYPE"));

    let port = Port::new(Protocol(0), 5);
    let entry = Entry::new(name("a"), Member::IpPort("10.0.0.1".parse().unwrap(), port));
    assert!(Commands::parse("create a hash:ip,port\nadd a 10.0.0.1,0:5\n", &[]).is_err());
    let error = lab.client.add(entry).unwrap_err();
    assert_eq!(Reason::of(&error), Some(Reason::InvalidProtocol));
    let errno = error.errno().unwrap();
    let known = Reason::error_name(errno, Some(&SetType::HashIpPort));
    assert_eq!(known, Some("IPSET_ERR_INVALID_PROTO"));
}

#[test]
fn each_command_is_a_method() {
    let mut lab = Lab::new();
    let (one, other, third) = (name("one"), name("other"), name("third"));
    let entry = |set: &Name| Entry::new(set.clone(), Member::Ip("10.0.0.1".parse().unwrap()));
    let client = &mut lab.client;
    for set in [&one, &other] {
        let set = Set::new(set.clone(), SetType::HashIp, SetFamily::V4);
        client.create(set).unwrap();
    }
    client.add(entry(&one)).unwrap();
    assert!(client.add(entry(&one)).unwrap_err().is_already_exists());
    assert!(client.test(&entry(&one)).unwrap());
    client.swap(&one, &other).unwrap();
    assert!(!client.test(&entry(&one)).unwrap());
    client.rename(&other, &third).unwrap();
    client.delete(entry(&third)).unwrap();
    assert!(client.delete(entry(&third)).unwrap_err().is_not_found());
    client.add(entry(&third)).unwrap();
    client.flush(&third).unwrap();
    assert!(client.list(&third).unwrap().entries.is_empty());
    client.destroy(&third).unwrap();
    assert!(client.destroy(&third).unwrap_err().is_not_found());
    assert_eq!(client.headers().unwrap().len(), 1);
}

#[test]
fn copies_are_resolved_for_callers_with_their_own_socket() {
    let mut lab = Lab::new();
    lab.load("create a hash:ip\nadd a 10.0.0.1\nadd a 10.0.0.2\n")
        .unwrap();
    let wanted = objects("create a hash:ip comment\nadd a 10.0.0.2\nadd a 10.0.0.3\n");
    let installed = lab.client.dump_all().unwrap();
    let edits = diff(installed.clone().into_objects(), &wanted);
    let commands = Commands::from_edits(&edits);
    let unresolved = commands.requests(7).unwrap_err();
    assert_eq!(unresolved.from, name("a"));
    let commands = commands.resolve_copies(&installed);
    assert!(commands.requests(7).is_ok());
    lab.client.commit(&commands).unwrap();
    assert!(diff(lab.objects(), &wanted).is_empty(), "{}", lab.save());
}
