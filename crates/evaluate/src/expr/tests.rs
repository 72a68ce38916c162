//! Each expression in a rule of hook `output` or `prerouting`.

use std::net::SocketAddr;

use vipline_nftables::expr::{
    Access, Bitwise, BitwiseOp, Byteorder, ByteorderOp, Cmp, CmpOp, Connlimit, Ct, CtKey, CtState,
    Expr, Exthdr, ExthdrAccess, ExthdrOp, Fib, FibFlags, FibResult, Immediate, Limit, Meta,
    MetaKey, Notrack, Numgen, NumgenMode, Payload, PayloadAccess, PayloadBase, Quota, Range,
    Register, Rt, RtKey,
};
use vipline_nftables::expression::{
    ct_state, ip_daddr, ip_saddr, mark, tcp_dport, tcp_flags, udp_dport,
};
use vipline_nftables::statement::{Statement, drop};
use vipline_nftables::{
    BaseChain, Bytes, Chain, ChainType, Data, Family, Hook, Name, Object, Rule, Ruleset, TableId,
    Verdict,
};

use crate::{
    Cause, Disposition, Environment, Evaluator, Host, Interface, Outcome, Packet, Tracking,
};

const WORD: Register = Register::word(0);

fn table() -> TableId {
    TableId::new(Family::Inet, Name::new("t").unwrap())
}

fn base(kind: ChainType, hook: Hook, priority: i32) -> Chain {
    let name = Name::new(&format!("{hook}-{priority}")).unwrap();
    Chain::new(table(), name).with_base(BaseChain::new(kind, hook, priority))
}

fn ruleset(objects: impl IntoIterator<Item = Object>) -> Ruleset {
    objects.into_iter().collect()
}

fn host() -> Host {
    let eth0 = Interface::new("eth0").with_index(2);
    Host::new()
        .with_addr(eth0, "10.0.0.1/24".parse().unwrap())
        .with_addr("eth1", "10.0.1.1/24".parse().unwrap())
}

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn udp() -> Packet {
    Packet::udp(end("10.0.0.9:1000"), end("10.0.0.1:53"))
        .with_input(Interface::new("eth0").with_index(2))
}

fn outcomes_of(rule: Rule, packet: &Packet, host: &dyn Environment) -> Result<Vec<Outcome>, Cause> {
    let chain = base(ChainType::Filter, Hook::Prerouting, 0).with_rules([rule]);
    let evaluator = Evaluator::new(&ruleset([chain.into()]));
    evaluator.evaluate(packet, host).map_err(|error| {
        assert!(
            error.rule.is_some() && error.expression.is_some(),
            "{error}"
        );
        error.cause
    })
}

/// Returns whether a rule matches the packet.
fn is_match(rule: Rule, packet: &Packet) -> Result<bool, Cause> {
    let outcomes = outcomes_of(rule, packet, &host())?;
    assert_eq!(outcomes.len(), 1);
    let dispositions = [Disposition::Delivered, Disposition::Dropped];
    assert!(dispositions.contains(&outcomes[0].disposition));
    Ok(outcomes[0].disposition == Disposition::Dropped)
}

fn matches(
    statements: impl IntoIterator<Item = Statement>,
    packet: &Packet,
) -> Result<bool, Cause> {
    let statements: Vec<_> = statements.into_iter().chain([drop()]).collect();
    is_match(Rule::new(Family::Inet, statements).unwrap(), packet)
}

/// Returns whether expressions match the packet.
fn raw(exprs: impl IntoIterator<Item = Expr>, packet: &Packet) -> Result<bool, Cause> {
    let verdict = Expr::from(Immediate::from(Verdict::Drop));
    let exprs: Vec<_> = exprs.into_iter().chain([verdict]).collect();
    is_match(Rule::from_exprs(exprs), packet)
}

fn constant(value: &[u8]) -> Expr {
    Immediate {
        destination: WORD,
        data: Data::Value(value.into()),
    }
    .into()
}

fn cmp(op: CmpOp, data: &[u8]) -> Expr {
    let (source, data) = (WORD, data.into());
    Cmp { source, op, data }.into()
}

fn meta(key: MetaKey) -> Expr {
    let access = Access::Load(WORD);
    Meta { key, access }.into()
}

#[test]
fn header_fields_are_compared() {
    let packet = udp();
    let addr = end("10.0.0.9:1").ip();
    assert_eq!(matches([ip_saddr().is(addr)], &packet), Ok(true));
    assert_eq!(matches([ip_daddr().is(addr)], &packet), Ok(false));
    assert_eq!(matches([udp_dport().is(53_u16)], &packet), Ok(true));
    assert_eq!(matches([tcp_dport().is(53_u16)], &packet), Ok(false));
    let net: ipnet::IpNet = "10.0.0.8/29".parse().unwrap();
    assert_eq!(matches([ip_saddr().is(net)], &packet), Ok(true));
    assert_eq!(matches([udp_dport().is(50..=53)], &packet), Ok(true));
}

#[test]
fn an_unknown_byte_is_an_error_and_not_a_mismatch() {
    let syn = Packet::tcp(end("10.0.0.9:1"), end("10.0.0.1:2")).with_input("eth0");
    assert_eq!(matches([tcp_flags().is(2_u8)], &syn), Ok(true));
    let ttl = || {
        let load = Payload {
            base: PayloadBase::Network,
            offset: 8,
            len: 1,
            access: PayloadAccess::Load(WORD),
        };
        [load.into(), cmp(CmpOp::Eq, &[64])]
    };
    let unknown = Cause::unknown("byte 8 of the network header");
    assert_eq!(raw(ttl(), &syn), Err(unknown));
    assert_eq!(raw(ttl(), &syn.with_ttl(64)), Ok(true));
}

#[test]
fn comparisons_are_bytewise() {
    let table = [
        (CmpOp::Eq, [false, true, false]),
        (CmpOp::Ne, [true, false, true]),
        (CmpOp::Lt, [false, false, true]),
        (CmpOp::Le, [false, true, true]),
        (CmpOp::Gt, [true, false, false]),
        (CmpOp::Ge, [true, true, false]),
    ];
    for (op, expected) in table {
        let actual = [[1, 0], [1, 9], [2, 0]].map(|data| {
            let exprs = [constant(&[1, 9]), cmp(op, &data)];
            raw(exprs, &udp()).unwrap()
        });
        assert_eq!(actual, expected, "{op:?}");
    }
    let range = |invert| Range {
        source: WORD,
        invert,
        from: [1, 0].into(),
        to: [1, 9].into(),
    };
    for (value, inside) in [([1, 0], true), ([1, 9], true), ([1, 10], false)] {
        let of = |invert| raw([constant(&value), range(invert).into()], &udp());
        assert_eq!((of(false), of(true)), (Ok(inside), Ok(!inside)));
    }
}

#[test]
fn bits_are_masked_and_shifted_as_words() {
    let op = |op, len| Bitwise {
        source: WORD,
        destination: WORD,
        len,
        op,
    };
    let mask = BitwiseOp::MaskXor {
        mask: [0xf0, 0xff].into(),
        xor: [1, 0].into(),
    };
    let exprs = |bits: Expr, from: &[u8], to: &[u8]| [constant(from), bits, cmp(CmpOp::Eq, to)];
    let masked = exprs(op(mask, 2).into(), &[0xab, 0xcd], &[0xa1, 0xcd]);
    assert_eq!(raw(masked, &udp()), Ok(true));
    let words = |high: u32, low: u32| [high.to_ne_bytes(), low.to_ne_bytes()].concat();
    let by = |bits: u32| Bytes::from(bits.to_ne_bytes());
    let left = op(BitwiseOp::ShiftLeft(by(4)), 8).into();
    let left = exprs(left, &words(1, 0xf000_0001), &words(0x1f, 0x10));
    assert_eq!(raw(left, &udp()), Ok(true));
    let right = op(BitwiseOp::ShiftRight(by(4)), 8).into();
    let right = exprs(right, &words(0x1f, 0x10), &words(1, 0xf000_0001));
    assert_eq!(raw(right, &udp()), Ok(true));
}

#[test]
fn byte_orders_are_converted() {
    let order = |len, size| {
        Expr::from(Byteorder {
            source: WORD,
            destination: WORD,
            op: ByteorderOp::ToNetwork,
            len,
            size,
        })
    };
    let swapped = if cfg!(target_endian = "little") {
        [2, 1, 4, 3]
    } else {
        [1, 2, 3, 4]
    };
    let exprs = [
        constant(&[1, 2, 3, 4]),
        order(4, 2),
        cmp(CmpOp::Eq, &swapped),
    ];
    assert_eq!(raw(exprs, &udp()), Ok(true));
    let twice = [
        constant(&[1, 2, 3, 4]),
        order(4, 4),
        order(4, 4),
        cmp(CmpOp::Eq, &[1, 2, 3, 4]),
    ];
    assert_eq!(raw(twice, &udp()), Ok(true));
    assert_eq!(
        raw([constant(&[1, 2, 3]), order(3, 3)], &udp()),
        Err(Cause::Operand)
    );
}

#[test]
fn metadata_is_that_of_the_hook() {
    let name = |text: &str| [text.as_bytes(), &[0; 16][text.len()..]].concat();
    let is = |key, data: &[u8]| raw([meta(key), cmp(CmpOp::Eq, data)], &udp().with_mark(7));
    assert_eq!(is(MetaKey::Mark, &7_u32.to_ne_bytes()), Ok(true));
    assert_eq!(is(MetaKey::Iifname, &name("eth0")), Ok(true));
    assert_eq!(is(MetaKey::Oifname, &name("")), Ok(true), "not routed yet");
    assert_eq!(is(MetaKey::Iif, &2_u32.to_ne_bytes()), Ok(true));
    assert_eq!(is(MetaKey::NfProto, &[2]), Ok(true));
    assert_eq!(is(MetaKey::L4Proto, &[17]), Ok(true));
    assert_eq!(is(MetaKey::Protocol, &[8, 0]), Ok(true));
    assert!(matches!(
        is(MetaKey::Iifgroup, &[0; 4]),
        Err(Cause::Unknown(_))
    ));
    assert!(matches!(
        is(MetaKey::Length, &[0; 4]),
        Err(Cause::Unknown(_))
    ));
    assert!(matches!(
        is(MetaKey::Cpu, &[0; 4]),
        Err(Cause::Unsupported(_))
    ));
    // 24 November 2026, 03:00:01 UTC, a Tuesday.
    let timed = udp().with_time(1_795_489_201_000_000_000);
    let at = |key, data: &[u8]| raw([meta(key), cmp(CmpOp::Eq, data)], &timed);
    assert_eq!(at(MetaKey::TimeDay, &[2]), Ok(true));
    assert_eq!(at(MetaKey::TimeHour, &10_801_u32.to_ne_bytes()), Ok(true));
}

#[test]
fn a_mark_that_a_rule_sets_is_seen_by_the_next_expression() {
    let five = mark().set_to(5_u32);
    assert_eq!(matches([five, mark().is(5_u32)], &udp()), Ok(true));
    assert_eq!(matches([mark().is(5_u32)], &udp()), Ok(false));
}

#[test]
fn an_untracked_packet_has_a_state_only() {
    let direction = Ct {
        key: CtKey::Direction,
        direction: None,
        access: Access::Load(WORD),
    };
    let of = |tracking| udp().with_tracking(tracking);
    for (packet, state) in [
        (of(Tracking::New), CtState::NEW),
        (of(Tracking::Invalid), CtState::INVALID),
        (of(Tracking::Untracked), CtState::UNTRACKED),
    ] {
        assert_eq!(matches([ct_state().is(state)], &packet), Ok(true));
        let is_tracked = state == CtState::NEW;
        assert_eq!(raw([direction.into()], &packet), Ok(is_tracked));
    }
}

#[test]
fn notrack_acts_before_connection_tracking_only() {
    for (priority, expected) in [(-300, Disposition::Dropped), (-100, Disposition::Delivered)] {
        let notrack = Rule::from_exprs([Expr::from(Notrack)]);
        let raw = base(ChainType::Filter, Hook::Prerouting, priority).with_rules([notrack]);
        let untracked =
            Rule::new(Family::Inet, [ct_state().is(CtState::UNTRACKED), drop()]).unwrap();
        let input = base(ChainType::Filter, Hook::Input, 0).with_rules([untracked]);
        let evaluator = Evaluator::new(&ruleset([raw.into(), input.into()]));
        let outcomes = evaluator.evaluate(&udp(), &host()).unwrap();
        assert_eq!(outcomes[0].disposition, expected, "priority {priority}");
    }
}

#[test]
fn fib_answers_come_from_the_environment() {
    let fib = |flags, result| {
        let destination = WORD;
        Expr::from(Fib {
            flags,
            result,
            destination,
        })
    };
    let word = |number: u32| cmp(CmpOp::Eq, &number.to_ne_bytes());
    let kind = |flags| [fib(flags, FibResult::AddrType), word(2)];
    assert_eq!(raw(kind(FibFlags::DADDR), &udp()), Ok(true));
    assert_eq!(raw(kind(FibFlags::SADDR), &udp()), Ok(false));
    let reverse = |packet: &Packet| {
        let flags = FibFlags::SADDR | FibFlags::IIF;
        raw([fib(flags, FibResult::Oif), word(2)], packet)
    };
    assert_eq!(reverse(&udp()), Ok(true));
    let spoofed = Packet::udp(end("10.0.1.9:1"), end("10.0.0.1:2")).with_input("eth0");
    assert_eq!(reverse(&spoofed), Ok(false), "the route leads through eth1");
}

#[test]
fn numbers_that_a_rule_treats_alike_are_one_choice() {
    let numgen = |modulus, rest: Vec<Expr>| {
        let numgen = Expr::from(Numgen {
            mode: NumgenMode::Random,
            modulus,
            offset: 10,
            destination: WORD,
        });
        let verdict = Expr::from(Immediate::from(Verdict::Drop));
        let exprs = [vec![numgen], rest, vec![verdict]].concat();
        let outcomes = outcomes_of(Rule::from_exprs(exprs), &udp(), &host())?;
        let shares = outcomes
            .iter()
            .map(|it| (it.probability.to_string(), it.disposition.clone()));
        Ok::<_, Cause>(shares.collect::<Vec<_>>())
    };
    let order = Expr::from(Byteorder {
        source: WORD,
        destination: WORD,
        op: ByteorderOp::ToNetwork,
        len: 4,
        size: 4,
    });
    let below = cmp(CmpOp::Lt, &310_u32.to_be_bytes());
    let shares = numgen(1_000_000_000, vec![order, below]).unwrap();
    let expected = [
        ("3/10000000".to_owned(), Disposition::Dropped),
        ("9999997/10000000".to_owned(), Disposition::Delivered),
    ];
    assert_eq!(shares, expected);
    // A mask is no comparison: all numbers are evaluated.
    let mask = Expr::from(Bitwise {
        source: WORD,
        destination: WORD,
        len: 4,
        op: BitwiseOp::MaskXor {
            mask: 1_u32.to_ne_bytes().into(),
            xor: [0; 4].into(),
        },
    });
    let odd = vec![mask, cmp(CmpOp::Eq, &1_u32.to_ne_bytes())];
    let shares = numgen(4, odd.clone()).unwrap();
    assert_eq!(shares.len(), 4);
    assert_eq!(
        shares
            .iter()
            .filter(|it| it.1 == Disposition::Dropped)
            .count(),
        2
    );
    assert_eq!(numgen(1_000_000, odd), Err(Cause::Outcomes));
    assert_eq!(numgen(0, Vec::new()), Err(Cause::Operand));
}

#[test]
fn limits_are_assumptions_of_the_caller() {
    let limit = Rule::new(Family::Inet, [Limit::per_second(1).into(), drop()]).unwrap();
    let over = Rule::new(Family::Inet, [Limit::per_second(1).over().into(), drop()]).unwrap();
    let unknown = Cause::unknown("whether the packet exceeds the limit");
    assert_eq!(is_match(limit.clone(), &udp()), Err(unknown));
    for is_over in [false, true] {
        let host = host().with_limits_exceeded(is_over);
        let is_dropped = |rule| {
            let outcomes = outcomes_of(rule, &udp(), &host).unwrap();
            outcomes[0].disposition == Disposition::Dropped
        };
        assert_eq!(is_dropped(limit.clone()), !is_over);
        assert_eq!(is_dropped(over.clone()), is_over);
    }
    let quota = |consumed| Quota {
        bytes: 100,
        consumed,
        over: true,
    };
    let packet = udp().with_payload(b"");
    assert_eq!(matches([quota(72).into()], &packet), Ok(false));
    assert_eq!(matches([quota(73).into()], &packet), Ok(true));
}

#[test]
fn an_exhausted_limit_needs_no_assumption() {
    let quota = |consumed, over| {
        let bytes = 100;
        let quota = Quota {
            bytes,
            consumed,
            over,
        };
        matches([quota.into()], &udp())
    };
    assert_eq!(quota(100, true), Ok(true));
    assert_eq!(quota(100, false), Ok(false));
    let unknown = Cause::unknown("whether the packet exceeds the quota");
    assert_eq!(quota(99, true), Err(unknown));
    let connections = |count, over| {
        let rule = Rule::new(Family::Inet, [Connlimit { count, over }.into(), drop()]).unwrap();
        let chain = base(ChainType::Filter, Hook::Input, 0).with_rules([rule]);
        let evaluator = Evaluator::new(&ruleset([chain.into()]));
        let outcomes = evaluator.evaluate(&udp(), &host().with_limits_exceeded(false));
        outcomes.unwrap()[0].disposition == Disposition::Dropped
    };
    assert!(connections(0, true), "the connection itself counts");
    assert!(!connections(0, false));
    assert!(!connections(1, true));
}

#[test]
fn an_expression_that_is_not_supported_is_an_error_that_names_it() {
    let unknown = Expr::Other {
        name: Name::new("novel").unwrap(),
        bytes: Bytes::new(),
    };
    let chain = base(ChainType::Filter, Hook::Prerouting, 0);
    let chain = chain.with_rules([Rule::from_exprs([unknown])]);
    let error = Evaluator::new(&ruleset([chain.into()])).evaluate(&udp(), &host());
    let text = "prerouting inet t prerouting-0 rule 1: /* novel  */: expression novel: \
                cannot evaluate expression novel";
    assert_eq!(error.unwrap_err().to_string(), text);
}

#[test]
fn changes_of_tcp_options_do_not_affect_the_path() {
    let syn = Packet::tcp(end("10.0.0.9:1000"), end("10.0.0.1:80"))
        .with_input(Interface::new("eth0").with_index(2));
    let store = Exthdr {
        op: ExthdrOp::TcpOption,
        kind: 2,
        access: ExthdrAccess::Store {
            source: WORD,
            offset: 2,
            len: 2,
        },
    };
    let size = Rt {
        key: RtKey::Tcpmss,
        destination: WORD,
    };
    let swap = Byteorder {
        source: WORD,
        destination: WORD,
        op: ByteorderOp::ToNetwork,
        len: 2,
        size: 2,
    };
    let set = [constant(&[5, 80]), store.into()];
    assert_eq!(raw(set.clone(), &syn), Ok(true));
    assert_eq!(raw(set, &udp()), Ok(false));
    assert_eq!(
        raw([size.into(), swap.into(), store.into()], &syn),
        Ok(true)
    );
    assert_eq!(raw([size.into(), store.into()], &syn), Ok(true));
    // The size is unknown to a comparison.
    let unsupported = Err(Cause::unsupported("expression rt"));
    assert_eq!(raw([size.into(), swap.into()], &syn), unsupported);
    let load = Exthdr {
        access: ExthdrAccess::Load {
            destination: WORD,
            offset: 2,
            len: 2,
            present: false,
        },
        ..store
    };
    let unsupported = Err(Cause::unsupported("expression exthdr"));
    assert_eq!(raw([load.into()], &syn), unsupported);
}
