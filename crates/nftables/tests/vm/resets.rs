//! Resets of single objects, which old kernels do not know.

use std::fs;

use testkit::netns::Netns;
use testkit::nft;
use vipline_nftables::{
    Chain, Client, Datatype, Error, Family, Name, Object, RuleHandle, Set, Table, TableId,
};

/// Returns version and patch level of the running kernel.
pub(crate) fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|it: char| !it.is_ascii_digit());
    let mut next = || numbers.next().unwrap().parse().unwrap();
    (next(), next())
}

/// Checks the result of a request: its text, or the error of an older kernel.
#[track_caller]
fn check(result: Result<Option<String>, Error>, since: (u32, u32), texts: (&str, &str)) {
    let (expected, error) = texts;
    match result {
        Ok(text) => {
            assert_eq!(text.as_deref(), Some(expected));
            assert!(kernel() >= since);
        }
        Err(old) => {
            assert!(matches!(old, Error::KernelTooOld { .. }), "{old:?}");
            assert_eq!(old.to_string(), error);
            assert!(kernel() < since);
        }
    }
}

#[test]
fn a_reset_of_one_object_succeeds_or_names_the_kernel_that_it_requires() {
    let netns = Netns::new().unwrap();
    let mut client = netns.run(Client::open).unwrap();
    let script = "table ip t {\n\
        set s { type inet_service; counter; }\n\
        chain c {\ncounter packets 1 bytes 2\n}\n\
        }\n\
        add element ip t s { 22 counter packets 3 bytes 4 }";
    netns.run(|| nft::succeeds(&["-f", "-"], script));
    let name = |text| Name::new(text).unwrap();
    let table = TableId::new(Family::Ip, name("t"));
    let set = Set::new(table.clone(), name("s"), [Datatype::InetService]);
    let port = set.element(&[22_u16.into()]).unwrap();

    let mut handle = RuleHandle(0);
    let rules = client.rules(&table, Some(&name("c")), |rule| handle = rule.handle);
    rules.unwrap().complete().unwrap();
    let rule = client.reset_rule(&table, &name("c"), handle);
    let texts = (
        "counter packets 1 bytes 2",
        &*format!(
            "reset rule ip t c handle {}: the kernel is older than Linux 6.2",
            handle.0
        ),
    );
    check(rule.map(|rule| Some(rule?.to_string())), (6, 2), texts);

    let element = client.reset_element(&port);
    let texts = (
        "22 counter packets 3 bytes 4",
        "reset element ip t s { 22 }: the kernel is older than Linux 6.5",
    );
    check(element.map(|it| Some(it?.to_string())), (6, 5), texts);

    let all = client.reset_rules(&table, None, |_| {});
    let all = all.map(|_| Some(String::new()));
    let error = "reset rules of table ip t: the kernel is older than Linux 6.2";
    check(all, (6, 2), ("", error));
}

#[test]
fn objects_are_destroyed_with_and_without_messages_for_that() {
    let netns = Netns::new().unwrap();
    let mut client = netns.run(Client::open).unwrap();
    assert_eq!(client.has_destroy().unwrap(), kernel() >= (6, 3));
    let script = "table ip t {\n\
        set s { type inet_service; elements = { 22, 23 }; }\n\
        chain c {\ntcp dport @s jump d\n}\n\
        chain d {\ncounter\n}\n\
        }";
    netns.run(|| nft::succeeds(&["-f", "-"], script));
    let name = |text| Name::new(text).unwrap();
    let table = TableId::new(Family::Ip, name("t"));
    let set = Set::new(table.clone(), name("s"), [Datatype::InetService]);
    let element = |port: u16| Object::from(set.element(&[port.into()]).unwrap());
    client.destroy_all(&[element(21), element(22)]).unwrap();
    assert_eq!(client.elements(&set).unwrap().len(), 1);
    let chains = ["d", "none", "c"].map(|it| Chain::new(table.clone(), name(it)).into());
    let objects = [&chains[..], &[set.into()]].concat();
    client.destroy_all(&objects).unwrap();
    let left = client.dump(&table).unwrap();
    assert_eq!(left.objects().count(), 1, "{left}");
    for _ in 0..2 {
        client.destroy(Table::new(table.clone())).unwrap();
        client.destroy_all(&objects).unwrap();
    }
    assert_eq!(client.tables().unwrap(), []);
}
