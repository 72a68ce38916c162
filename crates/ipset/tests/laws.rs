//! Property tests: encoding and decoding, printing and parsing, no panics on
//! arbitrary input.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use vipline_ipset::{
    Command, Commands, Comment, Counters, DumpDecoder, Entry, EntryFlags, Interface, ListPosition,
    MacAddr, Member, Name, Object, Port, Protocol, Range, Set, SetFamily, SetFlags, SetType,
    SkbInfo, Strictness,
};
use vipline_reconcile::{Edit, diff};

/// `IPSET_MAX_TIMEOUT`, in seconds.
const MAX_TIMEOUT: u32 = 2_147_483;

fn name() -> impl Strategy<Value = Name> {
    "[a-zA-Z0-9_:-]{1,31}".prop_map(|text| Name::new(&text).unwrap())
}

fn ip(family: SetFamily) -> BoxedStrategy<IpAddr> {
    match family {
        SetFamily::V6 => any::<u128>()
            .prop_map(|bits| Ipv6Addr::from(bits).into())
            .boxed(),
        _ => any::<u32>()
            .prop_map(|bits| Ipv4Addr::from(bits).into())
            .boxed(),
    }
}

fn net(family: SetFamily) -> impl Strategy<Value = IpNet> {
    (ip(family), 0..=128_u8).prop_map(|(ip, prefix)| {
        let most = if ip.is_ipv4() { 32 } else { 128 };
        IpNet::new(ip, prefix.min(most)).unwrap().trunc()
    })
}

/// A port as `ipset` writes it: protocols without ports have number 0.
fn port(family: SetFamily) -> impl Strategy<Value = Port> {
    (any::<u8>(), any::<u16>()).prop_map(move |(of, number)| match (of, family) {
        (0, _) => Port::tcp(number),
        (6 | 17 | 132 | 136, _) | (1, SetFamily::V4) | (58, SetFamily::V6) => {
            Port::new(Protocol(of), number)
        }
        (1 | 58, _) => Port::udp(number),
        _ => Port::new(Protocol(of), 0),
    })
}

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn interface() -> impl Strategy<Value = Interface> {
    ("[a-z0-9.@-]{1,15}", any::<bool>()).prop_map(|(name, is_port)| match is_port {
        true => Interface::bridge_port(&name),
        false => Interface::new(&name),
    })
}

fn member(set_type: &SetType, family: SetFamily) -> BoxedStrategy<Member> {
    let (ip, net, port) = (|| ip(family), || net(family), || port(family));
    match set_type {
        SetType::BitmapIp | SetType::HashIp => ip().prop_map(Member::Ip).boxed(),
        SetType::BitmapIpMac => (ip(), option::of(mac()))
            .prop_map(|(ip, mac)| Member::IpMac(ip, mac))
            .boxed(),
        SetType::HashIpMac => (ip(), mac())
            .prop_map(|(ip, mac)| Member::IpMac(ip, Some(mac)))
            .boxed(),
        SetType::HashIpMark => (ip(), any::<u32>())
            .prop_map(|(ip, mark)| Member::IpMark(ip, mark))
            .boxed(),
        SetType::HashMac => mac().prop_map(Member::Mac).boxed(),
        SetType::BitmapPort => any::<u16>().prop_map(Member::Port).boxed(),
        SetType::HashIpPort => (ip(), port())
            .prop_map(|(ip, port)| Member::IpPort(ip, port))
            .boxed(),
        SetType::HashIpPortIp => (ip(), port(), ip())
            .prop_map(|(ip, port, second)| Member::IpPortIp(ip, port, second))
            .boxed(),
        SetType::HashIpPortNet => (ip(), port(), net())
            .prop_map(|(ip, port, net)| Member::IpPortNet(ip, port, net))
            .boxed(),
        SetType::HashNet => net().prop_map(Member::Net).boxed(),
        SetType::HashNetIface => (net(), interface())
            .prop_map(|(net, interface)| Member::NetIface(net, interface))
            .boxed(),
        SetType::HashNetNet => (net(), net())
            .prop_map(|(net, second)| Member::NetNet(net, second))
            .boxed(),
        SetType::HashNetPort => (net(), port())
            .prop_map(|(net, port)| Member::NetPort(net, port))
            .boxed(),
        SetType::HashNetPortNet => (net(), port(), net())
            .prop_map(|(net, port, second)| Member::NetPortNet(net, port, second))
            .boxed(),
        _ => name().prop_map(Member::Set).boxed(),
    }
}

/// Returns a range from an element to parts of another one, if the type supports
/// ranges.
fn through(first: Member, other: Member) -> (Member, Option<Member>) {
    use Member::{Ip, IpPort, IpPortIp, IpPortNet, Net, NetNet, NetPort};
    let end = |from: Port, to: Port| match from.protocol.0 {
        // Other protocols have no ranges.
        6 | 17 | 132 | 136 => Port::new(from.protocol, to.number),
        _ => from,
    };
    let single = |net: IpNet| IpNet::from(net.addr());
    let (first, last) = match (first, other) {
        (IpPort(from, port), IpPort(to, other)) => {
            (IpPort(from, port), IpPort(to, end(port, other)))
        }
        (IpPortIp(from, port, second), IpPortIp(to, other, end_of)) => {
            let last = IpPortIp(to, end(port, other), end_of);
            (IpPortIp(from, port, second), last)
        }
        (IpPortNet(from, port, net), IpPortNet(to, other, _)) => {
            let last = IpPortNet(to, end(port, other), net);
            (IpPortNet(from, port, net), last)
        }
        (Net(from), Net(to)) if from.addr() != to.addr() => (Net(single(from)), Net(single(to))),
        (NetNet(from, second), NetNet(to, end)) if from.addr() != to.addr() => {
            let first = NetNet(single(from), single(second));
            (first, NetNet(single(to), single(end)))
        }
        (NetPort(from, port), NetPort(_, other)) => {
            (NetPort(from, port), NetPort(from, end(port, other)))
        }
        (first @ (Ip(_) | Member::Port(_)), last) => (first, last),
        (first, _) => (first.clone(), first),
    };
    let last = Some(last).filter(|last| *last != first);
    (first, last)
}

fn range(set_type: &SetType) -> BoxedStrategy<Option<Range>> {
    match set_type {
        SetType::BitmapIp | SetType::BitmapIpMac => any::<(u32, u32)>()
            .prop_map(|(from, to)| Some(Range::Addrs(from.into(), to.into())))
            .boxed(),
        SetType::BitmapPort => any::<(u16, u16)>()
            .prop_map(|(from, to)| Some(Range::Ports(from, to)))
            .boxed(),
        _ => Just(None).boxed(),
    }
}

fn flags() -> impl Strategy<Value = SetFlags> {
    (0..16_u32).prop_map(|bits| SetFlags::from_bits_retain(bits << 3))
}

fn set() -> impl Strategy<Value = Set> {
    let set_type = prop::sample::select(SetType::ALL.to_vec());
    let family = prop::sample::select(vec![SetFamily::V4, SetFamily::V6]);
    (name(), set_type, family).prop_flat_map(|(name, set_type, family)| {
        let numbers = vec(option::of(any::<u32>()), 6);
        let bytes = vec(option::of(any::<u8>()), 2);
        let masks = option::of(ip(family));
        (range(&set_type), numbers, bytes, masks, flags()).prop_map(
            move |(range, numbers, bytes, mask, flags)| {
                let mut set = Set::new(name.clone(), set_type.clone(), family);
                set.range = range;
                set.timeout = numbers[3].map(|seconds| seconds % (MAX_TIMEOUT + 1));
                set.flags = flags;
                set.size = numbers[2].filter(|_| set_type == SetType::ListSet);
                set.markmask = numbers[5].filter(|_| set_type == SetType::HashIpMark);
                match set_type {
                    SetType::HashIp | SetType::HashIpPort | SetType::HashNetNet => {
                        set.bitmask = mask;
                        set.netmask = bytes[0].filter(|_| mask.is_none());
                    }
                    SetType::BitmapIp => set.netmask = bytes[0],
                    _ => {}
                }
                if set_type.is_hash() {
                    set.hashsize = numbers[0];
                    set.maxelem = numbers[1];
                    set.initval = numbers[4];
                    set.bucketsize = bytes[1];
                } else {
                    set.flags.remove(SetFlags::FORCEADD);
                }
                set
            },
        )
    })
}

fn skbinfo() -> impl Strategy<Value = SkbInfo> {
    let parts = (
        option::of(any::<(u32, u32)>()),
        option::of(any::<u32>()),
        option::of(any::<u16>()),
    );
    parts.prop_map(|(mark, priority, queue)| {
        let mut info = SkbInfo::default();
        (info.mark, info.priority, info.queue) = (mark, priority, queue);
        info
    })
}

fn position() -> impl Strategy<Value = ListPosition> {
    (any::<bool>(), name()).prop_map(|(before, name)| match before {
        true => ListPosition::Before(name),
        false => ListPosition::After(name),
    })
}

fn entry(set: &Set) -> impl Strategy<Value = Entry> + use<> {
    let name = set.name.clone();
    let counters = option::of(any::<(u64, u64)>());
    let comment = option::of("[ -!#-~]{1,255}");
    let members = || member(&set.set_type, set.family);
    let many = (members(), option::of(members())).prop_map(|(first, other)| match other {
        Some(other) => through(first, other),
        None => (first, None),
    });
    let extensions = (option::of(0..=MAX_TIMEOUT), counters, comment, skbinfo());
    let set_type = set.set_type.clone();
    (
        many,
        extensions,
        any::<(bool, bool)>(),
        option::of(position()),
    )
        .prop_map(
            move |((member, last), (timeout, counters, comment, skbinfo), flags, position)| {
                let mut entry = Entry::new(name.clone(), member);
                entry.range_end = last;
                entry.timeout = timeout;
                entry.counters = counters.map(|(packets, bytes)| Counters { packets, bytes });
                entry.comment = comment.map(|text| Comment::new(&text).unwrap());
                entry.skbinfo = skbinfo;
                entry.position = position.filter(|_| set_type == SetType::ListSet);
                let has_nomatch = set_type.as_str().contains("net");
                entry.flags.set(EntryFlags::NOMATCH, flags.0 && has_nomatch);
                let has_wildcard = set_type == SetType::HashNetIface;
                entry
                    .flags
                    .set(EntryFlags::WILDCARD, flags.1 && has_wildcard);
                entry
            },
        )
}

/// A set and some entries for it.
fn made() -> impl Strategy<Value = (Set, Vec<Entry>)> {
    set().prop_flat_map(|set| {
        let entries = vec(entry(&set), 0..20);
        entries.prop_map(move |entries| (set.clone(), entries))
    })
}

fn commands(set: &Set, entries: &[Entry]) -> Commands {
    let mut commands = Commands::new();
    commands.push(Command::Create(set.clone().into(), Strictness::Strict));
    for entry in entries {
        commands.push(Command::Add(entry.clone().into(), Strictness::Exist));
    }
    commands
}

proptest! {
    #[test]
    fn encoded_sets_decode_to_equal_sets((set, entries) in made()) {
        let mut decoder = DumpDecoder::new();
        for request in commands(&set, &entries).requests(7).unwrap() {
            decoder.push(&request.payload).unwrap();
        }
        let sets = decoder.finish();
        let listed = sets.iter().next().unwrap();
        let mut read = listed.set.clone();
        // Without an explicit revision, the message has the default revision.
        read.revision = None;
        prop_assert_eq!(read, set);
        prop_assert_eq!(&listed.entries, &entries);
    }

    #[test]
    fn printed_commands_parse_to_equal_commands((set, entries) in made()) {
        let commands = commands(&set, &entries);
        let text = commands.to_string();
        let read = Commands::parse(&text, &[]).unwrap();
        prop_assert_eq!(read.to_string(), text);
        if set.range.is_none() || set.family == SetFamily::V4 || set.set_type == SetType::BitmapPort {
            prop_assert_eq!(read, commands);
        }
    }

    #[test]
    fn a_state_does_not_differ_from_itself((set, entries) in made()) {
        let mut objects: Vec<Object> = vec![set.into()];
        for entry in entries {
            let is_same = |object: &Object| matches!(object, Object::Entry(other) if other.member == entry.member);
            if !objects.iter().any(is_same) {
                objects.push(entry.into());
            }
        }
        prop_assert!(diff(objects.clone(), &objects).is_empty());
        let edits: Vec<_> = objects.iter().cloned().map(Edit::Add).collect();
        prop_assert_eq!(Commands::from_edits(&edits).len(), objects.len());
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = DumpDecoder::new().push(&bytes);
    }

    #[test]
    fn no_cut_or_changed_message_panics((set, entries) in made(), at in any::<prop::sample::Index>(), with in any::<u8>()) {
        let mut decoder = DumpDecoder::new();
        for request in commands(&set, &entries).requests(6).unwrap() {
            let mut bytes = request.payload;
            let at = at.index(bytes.len());
            let _ = DumpDecoder::new().push(&bytes[..at]);
            bytes[at] = with;
            let _ = decoder.push(&bytes);
        }
        let _ = decoder.finish().to_string();
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "((create|add|del|swap) a? ?(hash:ip,port|list:set|[0-9a-f.:,/-]{0,20})? ?[ -~]{0,20}\n?){0,4}") {
        let _ = Commands::parse(&text, &[]);
    }
}
