//! Samples: objects and rules of every kind.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use vipline_nftables::expr::{
    AddrType, CmpOp, CtKey, CtState, CtStatus, Direction, Expr, Immediate, Limit, Log, LogLevel,
    NatFlags, Objref, ObjrefSource, Quota, Register, Tproxy,
};
use vipline_nftables::expression::*;
use vipline_nftables::statement::*;
use vipline_nftables::{
    BaseChain, Bytes, Chain, ChainType, Comment, Data, Datatype, Element, Family, Hook, Name,
    Object, Policy, Rule, Set, SetFlags, Statement, Table, TableId, Value, Verdict,
};

/// Expressions without a sample: kernels without flowtable support reject the first.
/// `xt.rs` tests the next two, which `nft` does not load, and `expressions.rs` the others.
pub(crate) const EXCLUDED: [&str; 14] = [
    "flow_offload",
    "match",
    "target",
    "connlimit",
    "dup",
    "exthdr",
    "fwd",
    "last",
    "osf",
    "queue",
    "rt",
    "socket",
    "synproxy",
    "xfrm",
];

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The table of most tests.
pub(crate) fn table() -> TableId {
    TableId::new(Family::Ip, name("samples"))
}

/// A table of each family with IP addresses.
pub(crate) fn tables() -> [TableId; 3] {
    let of = |family| TableId::new(family, name("samples"));
    [of(Family::Ip), of(Family::Ip6), of(Family::Inet)]
}

/// Returns objects of every kind; the first is the table.
pub(crate) fn objects(table: &TableId) -> Vec<Object> {
    let mut objects = vec![Object::from(
        Table::new(table.clone()).with_comment(Comment::new("made by a test").unwrap()),
    )];
    objects.extend(sets(table));
    let leaf = Chain::new(table.clone(), name("leaf"))
        .with_comment(Comment::new("where packets end").unwrap())
        .with_rules([Rule::new(table.family, [counter(), drop()]).unwrap()]);
    let input = Chain::new(table.clone(), name("input"))
        .with_base(BaseChain::new(ChainType::Filter, Hook::Input, -150).with_policy(Policy::Drop))
        .with_rules([
            Rule::new(table.family, [iifname().is("lo"), accept()])
                .unwrap()
                .with_comment(Comment::new("ourselves").unwrap()),
            Rule::new(table.family, [jump(&name("leaf"))]).unwrap(),
        ]);
    objects.extend([input.into(), leaf.into()]);
    objects
}

/// Returns the address type of a family and a function for the nth address.
fn addresses(family: Family) -> (Datatype, fn(u32) -> IpAddr) {
    match family {
        Family::Ip6 => (Datatype::Ipv6Addr, |n| {
            Ipv6Addr::from(0xfd00 << 112 | u128::from(n)).into()
        }),
        _ => (Datatype::Ipv4Addr, |n| Ipv4Addr::from(10 << 24 | n).into()),
    }
}

/// Sets and maps of every kind, with elements.
fn sets(table: &TableId) -> Vec<Object> {
    let (datatype, addr) = addresses(table.family);
    let net = |n: u32, bits: u8| Value::from(IpNet::new(addr(n << 8), bits).unwrap().trunc());
    let bits = if table.family == Family::Ip6 { 120 } else { 24 };
    let key = [datatype, Datatype::InetProto, Datatype::InetService];
    let set = |text: &str, key: &[Datatype]| Set::new(table.clone(), name(text), key);

    let plain = set("plain", &[datatype]).with_comment(Comment::new("a few").unwrap());
    let ports = set("ports", &[Datatype::InetService]).with_flags(SetFlags::INTERVAL);
    let nets = set("nets", &[datatype]).with_flags(SetFlags::INTERVAL);
    let concat = set("concat", &key);
    let ranges = set("ranges", &[key[0], key[0]]).with_flags(SetFlags::INTERVAL);
    let timed = set("timed", &[Datatype::Mark]).with_timeout(Duration::from_secs(3600));
    let names = set("names", &[Datatype::Ifname]);
    let map = Set::map(
        table.clone(),
        name("map"),
        key,
        [datatype, Datatype::InetService],
    );
    let vmap = Set::verdict_map(table.clone(), name("vmap"), key);
    let learned = Set::map(table.clone(), name("learned"), datatype, Datatype::Mark)
        .with_flags(SetFlags::DYNAMIC)
        .with_size(4096)
        .with_timeout(Duration::from_secs(60));

    let service = |n: u32, port: u16| [addr(n).into(), 6_u8.into(), port.into()];
    let comment = Comment::new("number one").unwrap();
    let elements: Vec<Element> = vec![
        plain
            .element(&[addr(1).into()])
            .unwrap()
            .with_comment(comment),
        plain.element(&[addr(2).into()]).unwrap(),
        ports.element(&[Value::integer_range(1, 1023)]).unwrap(),
        ports.element(&[8080_u16.into()]).unwrap(),
        ports
            .element(&[Value::integer_range(60_000, 65_535)])
            .unwrap(),
        nets.element(&[net(1, bits)]).unwrap(),
        nets.element(&[net(2, bits)]).unwrap(),
        nets.element(&[addr(9).into()]).unwrap(),
        concat.element(&service(1, 80)).unwrap(),
        ranges.element(&[net(1, bits), net(4, bits)]).unwrap(),
        ranges.element(&[addr(1).into(), net(4, bits)]).unwrap(),
        timed.element(&[7_u32.into()]).unwrap(),
        timed
            .element(&[8_u32.into()])
            .unwrap()
            .with_timeout(Duration::from_secs(7200)),
        names.element(&["eth0".into()]).unwrap(),
        map.element(&service(1, 80))
            .and_then(|one| one.with_data(&[addr(7).into(), 8080_u16.into()]))
            .unwrap(),
        vmap.element(&service(1, 80))
            .and_then(|one| one.with_verdict(Verdict::Goto(name("leaf"))))
            .unwrap(),
        vmap.element(&service(2, 80))
            .and_then(|one| one.with_verdict(Verdict::Drop))
            .unwrap(),
    ];
    let sets = [
        plain, ports, nets, concat, ranges, timed, names, map, vmap, learned,
    ];
    let elements = elements.into_iter().map(Object::from);
    sets.map(Object::from).into_iter().chain(elements).collect()
}

/// Returns rules with every expression; the first object is the table.
///
/// The rules refer to the counter `hits`, which the caller must create.
pub(crate) fn expressions(table: &TableId) -> Vec<Object> {
    let learned = Set::new(table.clone(), name("learned"), [Datatype::Ipv4Addr])
        .with_flags(SetFlags::DYNAMIC)
        .with_timeout(Duration::from_secs(60));
    let chain = |text: &str, kind, hook, priority, rules: Vec<Vec<Statement>>| {
        let rules = rules
            .into_iter()
            .map(|statements| Rule::new(table.family, statements).unwrap());
        Chain::new(table.clone(), name(text))
            .with_base(BaseChain::new(kind, hook, priority))
            .with_rules(rules)
            .into()
    };
    vec![
        Table::new(table.clone()).into(),
        learned.clone().into(),
        chain("tests", ChainType::Filter, Hook::Prerouting, -150, tests()),
        chain(
            "actions",
            ChainType::Filter,
            Hook::Prerouting,
            -140,
            actions(&learned),
        ),
        chain(
            "numbers",
            ChainType::Filter,
            Hook::Prerouting,
            -130,
            numbers(),
        ),
        chain(
            "answers",
            ChainType::Filter,
            Hook::Input,
            0,
            vec![
                vec![tcp_dport().is(1_u16), reject_with_tcp_reset()],
                vec![reject()],
            ],
        ),
        chain(
            "to",
            ChainType::Nat,
            Hook::Prerouting,
            -100,
            vec![
                vec![tcp_dport().is(80_u16), redirect(8080)],
                vec![
                    tcp_dport().is(81_u16),
                    dnat(SocketAddr::from(([10, 0, 0, 1], 80))),
                ],
            ],
        ),
        chain(
            "from",
            ChainType::Nat,
            Hook::Postrouting,
            100,
            vec![
                vec![
                    mark().and(0x4000).is_not(0_u32),
                    masquerade(NatFlags::FULLY_RANDOM),
                ],
                vec![snat(IpAddr::from([10, 0, 0, 2]))],
            ],
        ),
    ]
}

/// Returns match statements.
fn tests() -> Vec<Vec<Statement>> {
    let protocols = l4proto().is_in([6, 17]);
    vec![
        vec![ip_daddr().is(IpAddr::from([10, 0, 0, 1])), accept()],
        vec![
            ip_saddr().is_not("10.0.0.0/8".parse::<IpNet>().unwrap()),
            accept(),
        ],
        vec![protocols.clone(), th_dport().is(53_u16), accept()],
        vec![tcp_dport().is(Value::integer_range(1, 5)), accept()],
        vec![tcp_dport().is_not(Value::integer_range(1, 5)), accept()],
        vec![mark().is(Value::integer_range(1, 5)), accept()],
        vec![mark().compares(CmpOp::Lt, 9_u32), accept()],
        vec![iifname().is("cni0"), accept()],
        vec![iifname().is_not("veth*"), accept()],
        vec![ct_state().is(CtState::NEW), accept()],
        vec![ct_direction().is(Direction::Original), accept()],
        vec![ct_status().is(CtStatus::DNAT), accept()],
        vec![protocols, ct_original(CtKey::ProtoDst).is(80_u16), accept()],
        vec![fib_daddr_type().is(AddrType::Local), accept()],
    ]
}

/// Returns action statements.
fn actions(learned: &Set) -> Vec<Vec<Statement>> {
    let address = Immediate {
        destination: Register::word(0),
        data: Data::Value(Bytes::from([127, 0, 0, 1])),
    };
    let port = Immediate {
        destination: Register::word(4),
        data: Data::Value(Bytes::from(8080_u16.to_be_bytes())),
    };
    let tproxy = Tproxy {
        family: Some(Family::Ip),
        addr: Some(Register::word(0)),
        port: Some(Register::word(4)),
    };
    let hits = Objref {
        source: ObjrefSource::Named {
            kind: 1,
            name: name("hits"),
        },
    };
    let raw = |expr: Expr| Statement::from(expr);
    vec![
        vec![
            l4proto().is(6_u8),
            raw(address.into()),
            raw(port.into()),
            raw(tproxy.into()),
        ],
        vec![notrack()],
        vec![counter(), raw(hits.into())],
        vec![
            Quota {
                bytes: 1 << 20,
                consumed: 0,
                over: true,
            }
            .into(),
            drop(),
        ],
        vec![
            Limit::per_second(10).with_burst(20).into(),
            log(&name("seen: ")),
        ],
        vec![
            Log {
                level: Some(LogLevel::Debug),
                ..Log::default()
            }
            .into(),
        ],
        vec![
            Log {
                group: Some(3),
                snaplen: Some(64),
                ..Log::default()
            }
            .into(),
        ],
        vec![add(learned, &ip_saddr())],
        vec![ip_daddr().set_to(IpAddr::from([10, 0, 0, 1]))],
        vec![ct_mark().set(&mark())],
        vec![mark().set(&mark().or(0x4000))],
        vec![mark().set(&mark().xor(0x4000))],
        vec![return_()],
    ]
}

/// Returns rules with number generators and hashes.
fn numbers() -> Vec<Vec<Statement>> {
    vec![
        vec![mark().set(&numgen_random(3))],
        vec![mark().set(&numgen_inc(3))],
        vec![mark().set(&symhash(2))],
        vec![mark().set(&jhash(ip_saddr(), 251, Some(1)))],
        vec![mark().set(&jhash(concat((ip_saddr(), th_sport())), 251, Some(1)))],
    ]
}

/// Returns a verdict map, and the objects that use it: table, chain and rule.
pub(crate) fn dispatch(table: &TableId) -> (Set, Vec<Object>) {
    let set = Set::verdict_map(
        table.clone(),
        name("service-ips"),
        [
            Datatype::Ipv4Addr,
            Datatype::InetProto,
            Datatype::InetService,
        ],
    );
    let key = concat((ip_daddr(), l4proto(), th_dport()));
    let chain = Chain::new(table.clone(), name("services")).with_rules([Rule::new(
        table.family,
        [key.vmap(&set)],
    )
    .unwrap()]);
    let objects = vec![
        Table::new(table.clone()).into(),
        set.clone().into(),
        chain.into(),
    ];
    (set, objects)
}

/// Returns `count` elements of the verdict map.
pub(crate) fn dispatch_elements(set: &Set, count: usize) -> Vec<Object> {
    (0..u32::try_from(count).unwrap())
        .map(|n| {
            let addr = Ipv4Addr::from(10 << 24 | n);
            let element = set.element(&[addr.into(), 6_u8.into(), 80_u16.into()]);
            element
                .unwrap()
                .with_verdict(Verdict::Accept)
                .unwrap()
                .into()
        })
        .collect()
}

/// Returns an element with a goto verdict.
pub(crate) fn goto(set: &Set, chain: &str) -> Object {
    let addr = Ipv4Addr::new(10, 96, 0, 1);
    let element = set.element(&[addr.into(), 6_u8.into(), 80_u16.into()]);
    element
        .unwrap()
        .with_verdict(Verdict::Goto(name(chain)))
        .unwrap()
        .into()
}

/// Returns the same key with another verdict.
pub(crate) fn dropped(object: &Object) -> Object {
    match object {
        Object::Element(element) => element.clone().with_verdict(Verdict::Drop).unwrap().into(),
        other => panic!("{other:?} is no element"),
    }
}

/// Returns a regular chain.
pub(crate) fn empty_chain(table: &TableId, text: &str) -> Object {
    Chain::new(table.clone(), name(text)).into()
}

/// Returns two sets of addresses, and the objects with their table.
pub(crate) fn two_sets(table: &TableId) -> ([Set; 2], Vec<Object>) {
    let set = |text| Set::new(table.clone(), name(text), [Datatype::Ipv4Addr]);
    let sets = [set("left"), set("right")];
    let [left, right] = sets.clone();
    (
        sets,
        vec![Table::new(table.clone()).into(), left.into(), right.into()],
    )
}

/// Returns the same addresses as elements of each set.
pub(crate) fn hops(sets: &[Set; 2], count: u32) -> [Vec<Object>; 2] {
    sets.each_ref().map(|set| {
        (0..count)
            .map(|n| {
                set.element(&[Ipv4Addr::from(10 << 24 | n).into()])
                    .unwrap()
                    .into()
            })
            .collect()
    })
}
