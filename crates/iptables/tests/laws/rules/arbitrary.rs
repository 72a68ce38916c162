//! Strategies for rules that iptables would accept.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use vipline_iptables::matches::{
    AddrType, AddressTypes, Chunk, Chunks, ChunksMode, Comment, Connection, Conntrack,
    CounterMatch, CtDirection, CtState, CtStatus, Flags, FlagsMatch, Icmp, Icmp6, IcmpType, Ipvs,
    IpvsMethod, Limit, Mark, Match, Multiport, MultiportKind, Nfacct, Owner, Physdev, Probability,
    Rate, Recent, RecentAction, Sctp, Set, State, Statistic, Tcp, Udp,
};
use vipline_iptables::targets::Target;
use vipline_iptables::{
    Direction, Family, Masked, Negatable, Network, Ports, Protocol, Range, Rule, RuleProblem,
    SetDirections,
};

use super::suite;
use super::targets::target;

fn negatable<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Negatable<T>> {
    prop_oneof![
        3 => Just(false),
        1 => Just(true)
    ]
    .prop_flat_map({
        let value = value.boxed();
        move |negated| {
            let value = value.clone();
            value.prop_map(move |value| {
                if negated {
                    Negatable::Not(value)
                } else {
                    Negatable::Is(value)
                }
            })
        }
    })
    .boxed()
}

fn opt<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<Negatable<T>>> {
    of(negatable(value)).boxed()
}

pub(crate) fn range<T: Arbitrary + Ord + Copy + 'static>() -> BoxedStrategy<Range<T>> {
    let range = any::<(T, T)>().prop_map(|(a, b)| Range::from(a.min(b)..=a.max(b)));
    prop_oneof![any::<T>().prop_map(Range::from), range].boxed()
}

fn some_ports() -> BoxedStrategy<Ports> {
    range::<u16>()
        .prop_filter("every port is no condition", |ports| *ports != Ports::ALL)
        .boxed()
}

pub(crate) fn address() -> BoxedStrategy<IpAddr> {
    let low = any::<(u16, u16)>().prop_map(|(a, b)| IpAddr::from([0, 0, 0, 0, 0, 0, a, b]));
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u16; 8]>().prop_map(IpAddr::from),
        vec(select(&[0_u16, 0, 1, 0xffff][..]), 8)
            .prop_map(|parts| IpAddr::from(<[u16; 8]>::try_from(parts).unwrap())),
        low,
    ]
    .boxed()
}

fn prefix() -> BoxedStrategy<IpNet> {
    (address(), 1..=128_u8)
        .prop_map(|(address, len)| {
            let most = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, len.min(most)).unwrap()
        })
        .boxed()
}

fn network() -> BoxedStrategy<Network> {
    let holes = any::<([u8; 4], [u8; 4])>().prop_filter_map("no mask at all", |(address, mask)| {
        Network::masked(address.into(), mask.into()).filter(|_| mask != [0; 4])
    });
    prop_oneof![3 => prefix().prop_map(Network::from), 1 => holes].boxed()
}

/// A name that needs no quotes.
pub(crate) fn name() -> BoxedStrategy<Cow<'static, str>> {
    "[!-~äß&&[^\"]]{1,12}".prop_map(Cow::Owned).boxed()
}

fn interface() -> BoxedStrategy<Cow<'static, str>> {
    "[a-z0-9.@-]{1,14}\\+?".prop_map(Cow::Owned).boxed()
}

pub(crate) fn text() -> BoxedStrategy<Cow<'static, str>> {
    prop_oneof!["[^\n]{0,20}", "[-_a-z0-9]{1,9}", "[a \"'\\\\-]{0,9}"]
        .prop_map(Cow::Owned)
        .boxed()
}

pub(crate) fn masked() -> BoxedStrategy<Masked> {
    let pair = any::<(u32, u32)>().prop_map(|(value, mask)| Masked { value, mask });
    prop_oneof![any::<u32>().prop_map(Masked::from), pair].boxed()
}

pub(crate) fn directions() -> BoxedStrategy<SetDirections> {
    vec(
        select(&[Direction::Source, Direction::Destination][..]),
        1..=6,
    )
    .prop_map(|directions| SetDirections::new(directions).unwrap())
    .boxed()
}

pub(crate) fn bits<T: Arbitrary + Copy + 'static, F: Clone + std::fmt::Debug + 'static>(
    make: fn(T) -> F,
    empty: fn(&F) -> bool,
) -> BoxedStrategy<F> {
    any::<T>()
        .prop_map(make)
        .prop_filter("some of them", move |flags| !empty(flags))
        .boxed()
}

fn ct_state() -> BoxedStrategy<CtState> {
    bits(CtState::from_bits_truncate, CtState::is_empty)
}

fn addrtype() -> BoxedStrategy<AddrType> {
    let kinds = || bits(AddressTypes::from_bits_truncate, AddressTypes::is_empty);
    (opt(kinds()), negatable(kinds()), 0..3)
        .prop_map(|(source, destination, limit)| AddrType {
            source,
            destination: Some(destination),
            limit_in: limit == 1,
            limit_out: limit == 2,
        })
        .boxed()
}

fn connection() -> BoxedStrategy<Option<Box<Connection>>> {
    let nets = (opt(prefix()), opt(prefix()), opt(prefix()), opt(prefix()));
    let ports = || opt(range());
    let ports = (ports(), ports(), ports(), ports());
    let some = (negatable((1_u8..).prop_map(Protocol)), nets, ports).prop_map(
        |(protocol, nets, ports)| {
            Box::new(Connection {
                protocol: Some(protocol),
                original_source: nets.0,
                original_destination: nets.1,
                reply_source: nets.2,
                reply_destination: nets.3,
                original_sport: ports.0,
                original_dport: ports.1,
                reply_sport: ports.2,
                reply_dport: ports.3,
            })
        },
    );
    of(some).boxed()
}

fn conntrack() -> BoxedStrategy<Conntrack> {
    let status = any::<u8>().prop_map(CtStatus::from_bits_truncate);
    let direction = of(select(&[CtDirection::Original, CtDirection::Reply][..]));
    (
        negatable(ct_state()),
        connection(),
        opt(status),
        opt(range()),
        direction,
    )
        .prop_map(|(state, connection, status, expire, direction)| Conntrack {
            state: Some(state),
            connection,
            status,
            expire,
            direction,
        })
        .boxed()
}

fn icmp_type(greatest: u8) -> BoxedStrategy<IcmpType> {
    (0..=greatest, of(any::<u8>()))
        .prop_map(|(ty, code)| IcmpType { ty, code })
        .boxed()
}

fn rate() -> BoxedStrategy<Rate> {
    prop_oneof![
        (1..=10_000_u32).prop_map(Rate::per_second),
        (1..=600_000_u32).prop_map(Rate::per_minute),
        (1..=36_000_000_u32).prop_map(Rate::per_hour),
        (1..=864_000_000_u32).prop_map(Rate::per_day),
    ]
    .prop_map(Option::unwrap)
    .boxed()
}

fn multiport() -> BoxedStrategy<Multiport> {
    use MultiportKind::{Destination, Either, Source};
    (
        select(&[Destination, Either, Source][..]),
        negatable(vec(range(), 1..8)),
    )
        .prop_map(|(kind, ports)| Multiport { kind, ports })
        .boxed()
}

fn owner() -> BoxedStrategy<Owner> {
    (
        opt(Just(())),
        negatable(range()),
        opt(range()),
        any::<bool>(),
    )
        .prop_map(|(socket_exists, uid, gid, suppl_groups)| Owner {
            socket_exists,
            uid: Some(uid),
            gid,
            suppl_groups,
        })
        .boxed()
}

fn ipvs() -> BoxedStrategy<Ipvs> {
    let property = negatable(Just(())).prop_map(|property| Ipvs {
        property: Some(property),
        ..Ipvs::default()
    });
    let method = select(&[IpvsMethod::Gate, IpvsMethod::Ipip, IpvsMethod::Masq][..]);
    let direction = select(&[CtDirection::Original, CtDirection::Reply][..]);
    let server = (
        opt(any::<u8>().prop_map(Protocol)),
        opt(prefix().prop_map(|network| network.trunc())),
        negatable(any::<u16>()),
    );
    let connection = (of(direction), opt(method), opt(any::<u16>()));
    let others = (server, connection).prop_map(
        |((protocol, address, port), (direction, method, control_port))| Ipvs {
            property: None,
            protocol,
            address,
            port: Some(port),
            direction,
            method,
            control_port,
        },
    );
    prop_oneof![1 => property, 3 => others].boxed()
}

fn physdev() -> BoxedStrategy<Physdev<'static>> {
    let flag = || opt(Just(()));
    (
        flag(),
        opt(name()),
        flag(),
        opt(name()),
        negatable(Just(())),
    )
        .prop_map(|(is_in, input, is_out, output, is_bridged)| Physdev {
            is_in,
            input,
            is_out,
            output,
            is_bridged: Some(is_bridged),
        })
        .boxed()
}

fn recent() -> BoxedStrategy<Recent<'static>> {
    use RecentAction::{Check, Remove, Set, Update};
    let action = negatable(select(&[Set, Check, Update, Remove][..]));
    let direction = select(&[Direction::Source, Direction::Destination][..]);
    let limits = (
        of(any::<u32>()),
        any::<bool>(),
        of(1..u32::MAX),
        any::<bool>(),
    );
    (action, limits, name(), of(address()), direction)
        .prop_map(
            |(action, (seconds, reap, hitcount, rttl), name, mask, direction)| Recent {
                action: Some(action),
                seconds,
                reap,
                hitcount,
                rttl,
                name,
                mask,
                direction,
            },
        )
        .boxed()
}

fn sctp() -> BoxedStrategy<Sctp> {
    let letters = |name: &'static str| match name {
        "DATA" => select(&["", ":IUBE", ":b", ":iE"][..]),
        "ABORT" | "SHUTDOWN_COMPLETE" => select(&["", ":T", ":t"][..]),
        _ => select(&[""][..]),
    };
    let chunk = (0..Chunk::NAMES.len()).prop_flat_map(move |at| {
        let name = Chunk::NAMES[at];
        letters(name).prop_map(move |bits| (at, Chunk::parse(&format!("{name}{bits}")).unwrap()))
    });
    let mode = select(&[ChunksMode::All, ChunksMode::Any, ChunksMode::Only][..]);
    // A map has each type at most once, in order.
    let chunks = (mode, vec(chunk, 0..30)).prop_map(|(mode, chunks)| Chunks {
        mode,
        chunks: std::collections::BTreeMap::from_iter(chunks)
            .into_values()
            .collect(),
    });
    (opt(range()), opt(range()), opt(chunks))
        .prop_map(|(sport, dport, chunks)| Sctp {
            sport,
            dport,
            chunks,
        })
        .boxed()
}

fn set() -> BoxedStrategy<Set<'static>> {
    let count = || {
        let kinds = [
            CounterMatch::Equal,
            CounterMatch::NotEqual,
            CounterMatch::Less,
            CounterMatch::Greater,
        ];
        of((select(kinds.to_vec()), any::<u64>()).prop_map(|(kind, value)| kind(value)))
    };
    (
        negatable(name()),
        directions(),
        any::<[bool; 3]>(),
        count(),
        count(),
    )
        .prop_map(|(name, directions, flags, packets, bytes)| Set {
            name,
            directions,
            return_nomatch: flags[0],
            keep_counters: flags[1],
            keep_subcounters: flags[2],
            packets,
            bytes,
        })
        .boxed()
}

fn statistic() -> BoxedStrategy<Statistic> {
    let probability = (0.0..=1.0).prop_map(|p: f64| p.to_string().parse::<Probability>().unwrap());
    let count = (1..u32::MAX).prop_map(Probability::one_in);
    let nth = (negatable(any::<u32>()), any::<u32>());
    prop_oneof![
        negatable(prop_oneof![probability, count]).prop_map(Statistic::Random),
        nth.prop_map(|(every, packet)| Statistic::Nth { every, packet }),
    ]
    .boxed()
}

fn tcp() -> BoxedStrategy<Tcp> {
    let flags = || any::<u8>().prop_map(Flags::from_bits_truncate);
    let flags = (flags(), flags()).prop_map(|(mask, set)| FlagsMatch { mask, set });
    (
        opt(some_ports()),
        opt(some_ports()),
        opt(any::<u8>()),
        opt(flags),
    )
        .prop_map(|(sport, dport, option, flags)| Tcp {
            sport,
            dport,
            option,
            flags,
        })
        .boxed()
}

/// Typed rules of iptables' extension tests.
pub(crate) fn suite_rules() -> Vec<Rule<'static>> {
    let rules = suite()
        .into_iter()
        .filter_map(|text| Rule::parse(text).ok());
    rules.collect()
}

/// A typed match of iptables' extension tests.
fn suite_match() -> BoxedStrategy<Match<'static>> {
    let matches = suite_rules().into_iter().flat_map(|rule| rule.matches);
    let is_typed = |one: &Match<'_>| !matches!(one, Match::Other(_));
    select(matches.filter(is_typed).collect::<Vec<_>>()).boxed()
}

fn one_match() -> BoxedStrategy<Match<'static>> {
    let icmp = prop_oneof![icmp_type(254), Just(Icmp::ANY)];
    let state = bits(
        |bits: u8| CtState::from_bits_truncate(bits & 31),
        CtState::is_empty,
    );
    let udp =
        (opt(some_ports()), opt(some_ports())).prop_map(|(sport, dport)| Udp { sport, dport });
    prop_oneof![
        8 => suite_match(),
        1 => addrtype().prop_map(Match::from),
        1 => text().prop_map(|text| Comment(text).into()),
        1 => conntrack().prop_map(Match::from),
        1 => negatable(icmp).prop_map(|it| Icmp(it).into()),
        1 => negatable(icmp_type(255)).prop_map(|it| Icmp6(it).into()),
        1 => ipvs().prop_map(Match::from),
        1 => (rate(), any::<u32>()).prop_map(|(rate, burst)| Limit { rate, burst }.into()),
        1 => negatable(masked()).prop_map(|mark| Mark { mark }.into()),
        1 => multiport().prop_map(Match::from),
        1 => text().prop_map(|name| Nfacct { name }.into()),
        1 => owner().prop_map(Match::from),
        1 => physdev().prop_map(Match::from),
        1 => recent().prop_map(Match::from),
        1 => sctp().prop_map(Match::from),
        1 => set().prop_map(Match::from),
        1 => negatable(state).prop_map(|state| State(state).into()),
        1 => statistic().prop_map(Match::from),
        1 => tcp().prop_map(Match::from),
        1 => udp.prop_map(Match::from),
        1 => "-m other --[a-z]{1,5}( [a-z]{1,5})?".prop_map(|text| Match::Other(text.into())),
    ]
    .boxed()
}

/// Returns whether iptables accepts a part in a rule of a protocol.
fn is_allowed(
    protocol: Option<Negatable<Protocol>>,
    add: impl FnOnce(Rule<'static>) -> Rule<'static>,
) -> bool {
    let mut rule = Rule::new();
    rule.protocol = protocol;
    let rule = add(rule);
    let error = rule.check(Family::V4).err();
    error.is_none_or(|error| error.problem() == Some(RuleProblem::WrongFamily))
}

/// A rule that iptables would accept.
pub(crate) fn rule() -> BoxedStrategy<Rule<'static>> {
    let networks = (opt(network()), opt(network()));
    let interfaces = (opt(interface()), opt(interface()));
    let protocol = prop_oneof![
        opt((1..=255_u8).prop_map(Protocol)),
        select(&[1, 6, 17, 58, 132][..]).prop_map(|it| Some(Negatable::Is(Protocol(it)))),
    ];
    (
        networks,
        interfaces,
        protocol,
        opt(Just(())),
        vec(one_match(), 0..4),
        of(target()),
    )
        .prop_map(
            |(networks, interfaces, protocol, fragment, mut matches, target)| {
                matches.retain(|one| is_allowed(protocol, |rule| rule.with_match(one.clone())));
                let target: Option<Target<'_>> = target;
                let target =
                    target.filter(|it| is_allowed(protocol, |rule| rule.with_target(it.clone())));
                let mut rule = Rule::new();
                rule.source = networks.0;
                rule.destination = networks.1;
                rule.in_interface = interfaces.0;
                rule.out_interface = interfaces.1;
                rule.protocol = protocol;
                rule.fragment = fragment;
                rule.matches = matches;
                rule.target = target;
                rule
            },
        )
        .boxed()
}
