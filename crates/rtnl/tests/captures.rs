//! Comparison with messages of `ip` and of the kernel, recorded on Linux 6.1 with iproute2
//! 6.1.
//!
//! To record again: `strace -e trace=sendmsg,recvmsg -e read=4 -e write=4` before
//! the commands in the files, on a kernel with links of type dummy.
#![allow(clippy::unwrap_used, reason = "a test")]

use vipline_netlink::message::{Message, Messages, NLM_F_ACK, NLM_F_REQUEST, begin, end};
use vipline_rtnl::wire::Reply;
use vipline_rtnl::{Address, AddressFlags, Command, Kind, Link, LinkFlags, Name, Scope, Snapshot};

/// Index of the link in the messages.
const INDEX: u32 = 2;

/// Returns the command and the message of each pair of lines in a file.
fn captures(text: &'static str) -> Vec<(&'static str, Vec<u8>)> {
    let lines: Vec<&str> = text.lines().collect();
    let captures = lines.chunks(2).map(|pair| {
        let command = pair[0].strip_prefix("# ip ").unwrap();
        (command, bytes(pair[1]))
    });
    captures.collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let bytes = hex.as_bytes().chunks(2);
    bytes
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn message(bytes: &[u8]) -> Message<'_> {
    Messages::new(bytes).next().unwrap().unwrap()
}

fn name() -> Name {
    Name::new("kube-ipvs0").unwrap()
}

fn address(net: &str) -> Address {
    Address::new(name(), net.parse().unwrap())
}

fn with_peer(net: &str, peer: &str) -> Address {
    address(net).with_peer(peer.parse().unwrap())
}

/// The recorded addresses, in order.
fn addresses() -> [Address; 7] {
    let mut link_wide = address("10.0.0.1/24");
    link_wide.scope = Scope::Link;
    let mut home = address("fd02::1/64");
    home.flags |= AddressFlags::HOME_ADDRESS | AddressFlags::NO_PREFIX_ROUTE;
    let mut without_route = address("10.2.0.1/24");
    without_route.flags |= AddressFlags::NO_PREFIX_ROUTE;
    [
        address("10.96.0.1/32"),
        address("fd00:96::1/128"),
        link_wide,
        with_peer("10.1.0.1/30", "10.1.0.2"),
        with_peer("fd01::1/128", "fd01::2"),
        home,
        without_route,
    ]
}

/// The recorded commands, in order.
fn commands() -> Vec<Command> {
    let added = addresses();
    let removed = [added[0], added[1], added[3]];
    let mut commands = vec![Command::AddLink(Link::dummy(name()))];
    commands.extend(added.map(Command::AddAddress));
    commands.extend(removed.map(Command::RemoveAddress));
    commands.push(Command::RemoveLink(name()));
    commands
}

#[test]
fn commands_have_the_bytes_and_the_text_of_ip() {
    let captures = captures(include_str!("captures/commands.hex"));
    let commands = commands();
    assert_eq!(commands.len(), captures.len());
    for (command, (line, bytes)) in commands.into_iter().zip(captures) {
        // The order of arguments of `ip` is arbitrary.
        let words = |line: &str| {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            words.sort();
            words
        };
        assert_eq!(words(&command.to_string()), words(line));
        let theirs = message(&bytes);
        let mut ours = Vec::new();
        let flags = NLM_F_REQUEST | NLM_F_ACK | command.flags();
        let start = begin(&mut ours, command.ty(), flags, theirs.seq);
        command.encode(INDEX, &mut ours);
        end(&mut ours, start);
        match command {
            Command::AddLink(_) => {
                // This crate sets `NLA_F_NESTED`; `ip` does not.
                let at = ours.iter().rposition(|byte| *byte == 0x80).unwrap();
                assert_eq!(ours[at - 1..=at], [18, 0x80], "IFLA_LINKINFO");
                ours[at] = 0;
                assert_eq!(ours, bytes, "{line}");
            }
            // `ip` sends the index of the link, which the kernel does not need.
            Command::RemoveLink(_) => assert_eq!(message(&ours).ty, theirs.ty),
            _ => assert_eq!(ours, bytes, "{line}"),
        }
    }
}

#[test]
fn replies_of_the_kernel_decode_to_the_created_link_and_addresses() {
    let mut links = Snapshot::default();
    let mut numbered = Vec::new();
    for (line, bytes) in captures(include_str!("captures/answers.hex")) {
        let message = message(&bytes);
        match Reply::decode(message.ty, message.payload).unwrap() {
            Reply::Link(link) => links.insert_link(link),
            Reply::Address(address) => numbered.push(address),
            other => panic!("{line}: {other:?}"),
        }
    }
    let lo = Name::new("lo").unwrap();
    let expected = [
        Link::dummy(name())
            .with_index(INDEX)
            .with_flags(LinkFlags::NO_ARP | LinkFlags::from_bits_retain(0x2)),
        Link::new(lo, Kind::Device).with_index(1).with_flags(
            LinkFlags::UP
                | LinkFlags::RUNNING
                | LinkFlags::LOOPBACK
                | LinkFlags::from_bits_retain(0x1_0000),
        ),
    ];
    assert_eq!(links.links().cloned().collect::<Vec<_>>(), expected);

    let mut made = addresses().to_vec();
    made.push(Address::new(lo, "127.0.0.1/8".parse().unwrap()));
    made.push(Address::new(lo, "::1/128".parse().unwrap()));
    let mut expected = Snapshot::default();
    let mut found = Snapshot::default();
    for mut address in made {
        address.flags |= AddressFlags::PERMANENT;
        if address.interface == lo {
            address.flags -= AddressFlags::NO_DAD;
        }
        expected.insert(address);
    }
    for address in numbered {
        let interface = if address.index == INDEX { name() } else { lo };
        found.insert(address.on(interface));
    }
    assert_eq!(found, expected);
}
