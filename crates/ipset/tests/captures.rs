//! Encoding and decoding of messages recorded with ipset 7.17 on Linux 6.18.
//!
//! To record again, in a separate network namespace (`unshare -n`): run `strace -e
//! trace=sendto,recvmsg -e write=all -e read=all ipset restore` with the lines of
//! `commands.hex`, `ipset save NAME` of each set for `answers.hex`, and the programs
//! named in `questions.hex`.
//! Each line of bytes is a datagram, after the command that was typed or the output
//! that was printed. Sequence numbers and port IDs are zero.
//! The sets `f3` and `h2` existed before the commands.
#![allow(clippy::unwrap_used, reason = "a test")]

use vipline_ipset::{
    Command, Commands, DumpDecoder, Entry, Member, Name, Request, Set, SetFamily, SetType, Sets,
};
use vipline_netlink::attr::{Attr, Attrs};
use vipline_netlink::message::{Message, Messages, NLM_F_ACK, NLM_F_REQUEST};

const COMMANDS: &str = include_str!("captures/commands.hex");
const ANSWERS: &str = include_str!("captures/answers.hex");
const QUESTIONS: &str = include_str!("captures/questions.hex");

/// `struct nfgenmsg`.
const HEADER: usize = 4;

// linux/netfilter/ipset/ip_set.h: attributes of commands
/// Present only in messages about sets.
const IPSET_ATTR_TYPENAME: u16 = 3;
const IPSET_ATTR_REVISION: u16 = 4;
const IPSET_ATTR_DATA: u16 = 7;
const IPSET_ATTR_ADT: u16 = 8;
/// This crate counts lines per message, ipset per document.
const IPSET_ATTR_LINENO: u16 = 9;
/// Index of a set in the kernel.
const IPSET_ATTR_INDEX: u16 = 11;
// Attributes of sets and entries
const IPSET_ATTR_IP: u16 = 1;
const IPSET_ATTR_IP_TO: u16 = 2;
const IPSET_ATTR_CIDR: u16 = 3;
// Attributes of sets
const IPSET_ATTR_ELEMENTS: u16 = 24;
const IPSET_ATTR_REFERENCES: u16 = 25;
const IPSET_ATTR_MEMSIZE: u16 = 26;
// Attributes of entries
const IPSET_ATTR_IP2: u16 = 20;
const IPSET_ATTR_CIDR2: u16 = 21;
const IPSET_ATTR_IP2_TO: u16 = 22;

/// Nested address attributes of sets.
const SET_ADDRESSES: [u16; 2] = [IPSET_ATTR_IP, IPSET_ATTR_IP_TO];
/// Nested address attributes of entries.
const ADDRESSES: [u16; 4] = [
    IPSET_ATTR_IP,
    IPSET_ATTR_IP_TO,
    IPSET_ATTR_IP2,
    IPSET_ATTR_IP2_TO,
];
/// Resource usage of sets.
const USAGE: [u16; 3] = [
    IPSET_ATTR_ELEMENTS,
    IPSET_ATTR_REFERENCES,
    IPSET_ATTR_MEMSIZE,
];
/// Prefix lengths of entries.
const PREFIXES: [u16; 2] = [IPSET_ATTR_CIDR, IPSET_ATTR_CIDR2];

/// Types that are recorded with each of their families.
const RECORDED: [SetType; 9] = [
    SetType::BitmapIp,
    SetType::BitmapPort,
    SetType::HashIp,
    SetType::HashIpPort,
    SetType::HashIpPortIp,
    SetType::HashIpPortNet,
    SetType::HashNet,
    SetType::HashNetPort,
    SetType::ListSet,
];

/// A datagram and the lines of text that correspond to it.
struct Capture {
    lines: Vec<&'static str>,
    datagram: Vec<u8>,
}

impl Capture {
    fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        Messages::new(&self.datagram).map(Result::unwrap)
    }

    fn only_message(&self) -> Message<'_> {
        assert_eq!(self.messages().count(), 1, "{:?}", self.lines);
        self.messages().next().unwrap()
    }

    fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn captures(text: &'static str) -> Vec<Capture> {
    let (mut captures, mut lines) = (Vec::new(), Vec::new());
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(line) => lines.push(line),
            None => captures.push(Capture {
                lines: std::mem::take(&mut lines),
                datagram: bytes(line),
            }),
        }
    }
    captures
}

fn bytes(hex: &str) -> Vec<u8> {
    let bytes = hex.as_bytes().chunks(2);
    bytes
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The content of a message: its attributes, and those of the set and of each entry
/// in it.
///
/// The order of attributes and the padding are ignored.
type Content = (Vec<(u16, Vec<u8>)>, Vec<Vec<(u16, Vec<u8>)>>);

fn content(payload: &[u8]) -> Content {
    let attrs = || Attrs::new(&payload[HEADER..]).map(Result::unwrap);
    let own = attrs().filter(|attr| {
        ![
            IPSET_ATTR_DATA,
            IPSET_ATTR_ADT,
            IPSET_ATTR_LINENO,
            IPSET_ATTR_INDEX,
        ]
        .contains(&attr.kind)
    });
    let mut own: Vec<_> = own.map(|attr| (attr.kind, attr.value.to_vec())).collect();
    own.sort();
    let is_set = attrs().any(|attr| attr.kind == IPSET_ATTR_TYPENAME);
    let mut parts = Vec::new();
    for attr in attrs() {
        match attr.kind {
            IPSET_ATTR_DATA if is_set => parts.push(part(attr.attrs(), &SET_ADDRESSES, &USAGE)),
            IPSET_ATTR_DATA => parts.push(entry_part(attr.attrs())),
            IPSET_ATTR_ADT => {
                let entries = attr.attrs().map(|entry| entry.unwrap().attrs());
                parts.extend(entries.map(entry_part));
            }
            _ => {}
        }
    }
    (own, parts)
}

/// Returns the attributes of an entry.
fn entry_part(attrs: Attrs<'_>) -> Vec<(u16, Vec<u8>)> {
    let mut part = part(attrs, &ADDRESSES, &[IPSET_ATTR_LINENO]);
    // ipset omits a prefix length that is the full length.
    let is_whole =
        |kind: &u16, value: &[u8]| PREFIXES.contains(kind) && matches!(value, [32 | 128]);
    part.retain(|(kind, value)| !is_whole(kind, value));
    part
}

/// Returns the attributes of a set or an entry, except those in `left_out`.
fn part(attrs: Attrs<'_>, addresses: &[u16], left_out: &[u16]) -> Vec<(u16, Vec<u8>)> {
    let attrs = attrs.map(Result::unwrap);
    let selected = attrs.filter(|attr| !left_out.contains(&attr.kind));
    let value = |attr: Attr<'_>| match addresses.contains(&attr.kind) {
        // The kernel does not set the byte order flag on all addresses.
        true => attr.attrs().next().unwrap().unwrap().value.to_vec(),
        false => attr.value.to_vec(),
    };
    let mut part: Vec<_> = selected.map(|attr| (attr.kind, value(attr))).collect();
    part.sort();
    part
}

/// Returns the sets that existed before the commands.
fn before() -> Vec<Set> {
    let name = |text| Name::new(text).unwrap();
    vec![
        Set::new(name("f3"), SetType::HashNetPort, SetFamily::V4),
        Set::new(name("h2"), SetType::BitmapPort, SetFamily::Unspecified),
    ]
}

/// Returns each capture with its commands.
fn commands() -> Vec<(Capture, Vec<Command>)> {
    let captures = captures(COMMANDS);
    let text: String = captures.iter().map(Capture::text).collect();
    let commands = Commands::parse(&text, &before()).unwrap();
    assert_eq!(commands.len(), text.lines().count());
    let mut rest = commands.as_slice();
    let take = |capture: Capture| {
        let (now, later) = rest.split_at(capture.lines.len());
        rest = later;
        (capture, now.to_vec())
    };
    captures.into_iter().map(take).collect()
}

fn entry(command: &Command) -> Option<Entry> {
    match command {
        Command::Add(entry, _) | Command::Delete(entry, _) => Some((**entry).clone()),
        _ => None,
    }
}

/// Returns the requests of commands.
fn requests(commands: Vec<Command>) -> Vec<Request> {
    Commands::from(commands).requests(7).unwrap()
}

#[track_caller]
fn assert_same(request: &Request, message: &Message<'_>, lines: &[&str]) {
    assert_eq!(request.ty, message.ty, "{lines:?}");
    assert_eq!(
        request.flags | NLM_F_REQUEST,
        message.flags & !NLM_F_ACK,
        "{lines:?}"
    );
    assert_eq!(
        content(&request.payload),
        content(message.payload),
        "{lines:?}"
    );
}

#[test]
fn commands_encode_to_the_bytes_of_ipset() {
    for (capture, mut commands) in commands() {
        let message = capture.only_message();
        if let [Command::Create(set, _)] = commands.as_mut_slice() {
            // ipset uses the newest revision of the kernel, this crate an older one.
            set.revision = revision(&message);
        }
        let [request] = requests(commands).try_into().unwrap();
        assert_same(&request, &message, &capture.lines);
    }
}

/// Returns the revision named in a message: `IPSET_ATTR_REVISION`.
fn revision(message: &Message<'_>) -> Option<u8> {
    let attrs = Attrs::new(&message.payload[HEADER..]).map(Result::unwrap);
    let mut revisions = attrs.filter(|attr| attr.kind == IPSET_ATTR_REVISION);
    revisions.next().map(|attr| attr.u8().unwrap())
}

#[test]
fn messages_of_ipset_decode_to_commands_and_encode_to_the_same_bytes() {
    let mut sets: Vec<(Set, Vec<u8>)> = Vec::new();
    let mut entries = 0;
    for (capture, commands) in commands() {
        let message = capture.only_message();
        let mut decoder = DumpDecoder::new();
        match &commands[0] {
            Command::Create(set, strictness) => {
                decoder.push(message.payload).unwrap();
                let listed = decoder.finish().into_iter().next().unwrap();
                let mut wanted = (**set).clone();
                wanted.revision = listed.set.revision;
                assert_eq!(listed.set, wanted, "{:?}", capture.lines);
                let again = Command::Create(listed.set.into(), *strictness);
                assert_same(&requests(vec![again])[0], &message, &capture.lines);
                sets.push(((**set).clone(), message.payload.to_vec()));
            }
            Command::Add(..) | Command::Delete(..) => {
                let mut known = sets
                    .iter()
                    .filter(|(set, _)| Some(&set.name) == commands[0].set());
                decoder.push(&known.next().unwrap().1).unwrap();
                decoder.push(message.payload).unwrap();
                let listed = decoder.finish().into_iter().next().unwrap();
                let wanted: Vec<Entry> = commands.iter().filter_map(entry).collect();
                assert_eq!(listed.entries, wanted, "{:?}", capture.lines);
                entries += wanted.len();
            }
            _ => {}
        }
    }
    assert_eq!((sets.len(), entries), (19, 34));
}

#[test]
fn dumps_print_like_ipset_save() {
    for capture in captures(ANSWERS) {
        let sets = assembled(&capture);
        let listed = sets.iter().next().unwrap();
        let printed = capture.text();
        // ipset does not print `forceadd`.
        let ours = sets.to_string().replace(" forceadd", "");
        assert_eq!(ours, printed);
        let entries = capture.lines.len() - 1;
        let reported = usize::try_from(listed.usage.entries).unwrap();
        assert_eq!((listed.entries.len(), reported), (entries, entries));
        assert!(listed.usage.memory > 0, "{printed}");
    }
}

fn assembled(capture: &Capture) -> Sets {
    let mut decoder = DumpDecoder::new();
    for message in capture.messages() {
        decoder.push(message.payload).unwrap();
    }
    let sets = decoder.finish();
    assert_eq!(sets.len(), 1, "{:?}", capture.lines);
    sets
}

#[test]
fn dumps_encode_to_the_bytes_of_the_kernel() {
    for capture in captures(ANSWERS) {
        let listed = assembled(&capture).into_iter().next().unwrap();
        let mut commands = vec![Command::Create(listed.set.into(), Default::default())];
        let adds = listed.entries.into_iter();
        commands.extend(adds.map(|entry| Command::Add(entry.into(), Default::default())));
        let ours = requests(commands)
            .into_iter()
            .map(|request| content(&request.payload));
        let ours: Vec<_> = ours.flat_map(|(_, parts)| parts).collect();
        let theirs = capture.messages().map(|message| content(message.payload).1);
        let theirs: Vec<_> = theirs.flatten().collect();
        assert_eq!(ours, theirs, "{:?}", capture.lines);
    }
}

#[test]
fn queries_encode_to_the_bytes_of_ipset() {
    let name = |text| Name::new(text).unwrap();
    let port = vipline_ipset::Port::tcp(80);
    let in_port = Entry::new(name("b1"), Member::IpPort("fd00::1".parse().unwrap(), port));
    let in_net = Entry::new(name("n"), Member::Net("10.0.0.0/8".parse().unwrap()));
    let ours = [
        Request::list(7, Some(&name("b1")), false),
        Request::list(7, None, false),
        Request::list(7, None, true),
        Request::test(7, &in_port),
        Request::test(7, &in_net),
        Request::header(7, &name("b1")),
        Request::revisions(7, &SetType::HashNet, SetFamily::V4),
        Request::revisions(7, &SetType::HashIpPort, SetFamily::V4),
        Request::protocol(),
    ];
    let theirs = captures(QUESTIONS);
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_same(ours, &theirs.only_message(), &theirs.lines);
    }
}

#[test]
fn every_type_is_recorded_with_each_of_its_families() {
    let answers: Vec<Sets> = captures(ANSWERS).iter().map(assembled).collect();
    for set_type in RECORDED {
        let families = [SetFamily::V4, SetFamily::V6].map(|family| {
            let name = Name::new("any").unwrap();
            Set::new(name, set_type.clone(), family).family
        });
        for family in families {
            let mut sets = answers.iter().flat_map(Sets::iter);
            let recorded =
                sets.any(|listed| listed.set.set_type == set_type && listed.set.family == family);
            assert!(recorded, "{set_type} {family}");
        }
    }
    let others = answers.iter().flat_map(Sets::iter);
    let others = others.filter(|listed| !RECORDED.contains(&listed.set.set_type));
    let others: Vec<_> = others.map(|listed| listed.set.set_type.clone()).collect();
    assert_eq!(others, [SetType::HashNetIface, SetType::BitmapIpMac]);
}
