//! Properties: encoding round-trips, filters select by their conditions, and decoding
//! never panics.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use vipline_conntrack::{
    AddressRange, Counters, CpuStatistics, Dccp, DccpState, Event, Expectation, Extension, Family,
    Filter, Flow, FlowCounters, Labels, Layer4, Network, Other, PortRange, Protocol, Sctp,
    SctpState, SeqAdj, State, Status, Synproxy, Tcp, TcpDirection, TcpFlags, TcpState, Timestamps,
    Tuple, TupleFilter, Usage,
};
use vipline_netlink::attr::nest;
use vipline_netlink::message::Message;

fn protocol() -> impl Strategy<Value = Protocol> {
    let known = [1, 6, 17, 33, 47, 58, 132, 136].map(Protocol);
    prop_oneof![select(known.to_vec()), any::<u8>().prop_map(Protocol)]
}

fn layer4() -> impl Strategy<Value = Layer4> {
    prop_oneof![
        Just(Layer4::None),
        any::<(u16, u16)>().prop_map(|(source, destination)| Layer4::Ports {
            source,
            destination,
        }),
        any::<(u8, u8, u16)>().prop_map(|(kind, code, id)| Layer4::Icmp { kind, code, id }),
    ]
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = any::<[u32; 2]>().prop_map(|bits| bits.map(|bits| Ipv4Addr::from(bits).into()));
    let v6 = any::<[u128; 2]>().prop_map(|bits| bits.map(|bits| Ipv6Addr::from(bits).into()));
    prop_oneof![v4, v6].prop_map(|[source, destination]| (source, destination))
}

fn tuple() -> impl Strategy<Value = Tuple> {
    let zone = option::of(any::<u16>());
    (addresses(), protocol(), layer4(), zone).prop_map(
        |((source, destination), protocol, layer4, zone)| Tuple {
            source,
            destination,
            protocol,
            layer4,
            zone,
        },
    )
}

fn side() -> impl Strategy<Value = TcpDirection> {
    let flags = any::<(u8, u8)>().prop_map(|(flags, mask)| TcpFlags { flags, mask });
    (option::of(any::<u8>()), option::of(flags)).prop_map(|(window_scale, flags)| TcpDirection {
        window_scale,
        flags,
    })
}

fn state() -> impl Strategy<Value = State> {
    let tcp = (option::of(any::<u8>().prop_map(TcpState)), side(), side());
    let tag = || option::of(any::<u32>());
    let sctp = (option::of(any::<u8>().prop_map(SctpState)), tag(), tag());
    prop_oneof![
        tcp.prop_map(|(state, original, reply)| State::Tcp(Tcp {
            state,
            original,
            reply,
        })),
        sctp.prop_map(|(state, vtag_original, vtag_reply)| State::Sctp(Sctp {
            state,
            vtag_original,
            vtag_reply,
        })),
        (
            option::of(0_u8..12),
            option::of(0_u8..3),
            option::of(any::<u64>())
        )
            .prop_map(|(state, role, handshake_seq)| State::Dccp(Box::new(Dccp {
                state: state.map(DccpState),
                role,
                handshake_seq,
            }))),
        // Unknown protocols.
        (select(vec![4_u16, 300]), bytes())
            .prop_map(|(kind, value)| State::Other(Box::new(Other { kind, value }))),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn text() -> impl Strategy<Value = Option<Box<str>>> {
    option::of("[^\0]{0,20}".prop_map(Into::into))
}

fn adjustment() -> impl Strategy<Value = Option<SeqAdj>> {
    option::of(
        any::<[u32; 3]>().prop_map(|[correction_pos, offset_before, offset_after]| SeqAdj {
            correction_pos,
            offset_before,
            offset_after,
        }),
    )
}

/// Returns an extension with one generated field.
fn with<T>(value: T, set: impl FnOnce(&mut Extension, T)) -> Extension {
    let mut extension = Extension::default();
    set(&mut extension, value);
    extension
}

prop_compose! {
    fn extension()(
        master in option::of(tuple()),
        times in option::of(any::<(u64, Option<u64>)>()),
        (helper, security) in (text(), text()),
        helper_info in option::of(bytes()),
        labels in option::of(bytes().prop_map(Labels)),
        (original_seq_adj, reply_seq_adj) in (adjustment(), adjustment()),
        synproxy in option::of(any::<[u32; 3]>()),
        other in vec((select(vec![6_u16, 13, 17, 27, 4000]), bytes()), 0..3),
    ) -> Option<Box<Extension>> {
        let extension = with(master, |extension, master| {
            extension.master = master;
            extension.timestamps = times.map(|(start, stop)| Timestamps { start, stop });
            extension.helper = helper;
            extension.security = security;
            extension.helper_info = helper_info;
            extension.labels = labels;
            extension.original_seq_adj = original_seq_adj;
            extension.reply_seq_adj = reply_seq_adj;
            let synproxy = synproxy.filter(|numbers| *numbers != [0; 3]);
            extension.synproxy = synproxy.map(|[isn, its, tsoff]| Synproxy { isn, its, tsoff });
            let other = other.into_iter();
            extension.other = other.map(|(kind, value)| Other { kind, value }).collect();
        });
        Some(extension).filter(|extension| *extension != Extension::default()).map(Box::new)
    }
}

prop_compose! {
    fn flow()(
        (original, reply) in (tuple(), tuple()),
        zone in option::of(any::<u16>()),
        status in any::<u32>(),
        state in option::of(state()),
        numbers in any::<[Option<u32>; 4]>(),
        counters in any::<Option<[(u64, u64); 2]>>(),
        extension in prop_oneof![Just(None), extension()],
    ) -> Flow {
        let mut flow = Flow::new(original, reply);
        (flow.zone, flow.state, flow.extension) = (zone, state, extension);
        flow.status = Status::from_bits_retain(status);
        [flow.timeout, flow.mark, flow.id, flow.use_count] = numbers;
        let counted = |(packets, bytes)| Counters { packets, bytes };
        flow.counters = counters.map(|both| {
            let [original, reply] = both.map(counted);
            Box::new(FlowCounters { original, reply })
        });
        flow
    }
}

/// Generates few different addresses, so filters match often.
fn near(is_v6: bool) -> impl Strategy<Value = IpAddr> {
    (0_u8..2).prop_map(move |host| match is_v6 {
        true => Ipv6Addr::from(u128::from(host)).into(),
        false => Ipv4Addr::new(10, 0, 0, host).into(),
    })
}

prop_compose! {
    fn near_tuple(is_v6: bool)(
        (source, destination) in (near(is_v6), near(is_v6)),
        protocol in select(vec![Protocol::TCP, Protocol::SCTP, Protocol::ICMP]),
        ports in (0_u16..2, 0_u16..2),
        zone in option::weighted(0.2, 0_u16..2),
    ) -> Tuple {
        let (source, destination) = ((source, ports.0), (destination, ports.1));
        let mut tuple = Tuple::ports(protocol, source, destination);
        if protocol == Protocol::ICMP {
            tuple.layer4 = Layer4::Icmp { kind: 8, code: 0, id: ports.0 };
        }
        tuple.zone = zone;
        tuple
    }
}

prop_compose! {
    fn near_flow()(is_v6 in any::<bool>())(
        original in near_tuple(is_v6),
        reply in near_tuple(is_v6),
        zone in option::weighted(0.2, 0_u16..2),
        status in 0_u32..8,
        mark in option::of(0_u32..8),
        labels in option::of(0_u128..8),
    ) -> Flow {
        let mut flow = Flow::new(original, reply);
        if let Some(labels) = labels {
            flow.extension_mut().labels = Some(Labels::from_bits(labels));
        }
        (flow.zone, flow.mark) = (zone, mark);
        flow.status = Status::from_bits_retain(status);
        flow
    }
}

fn near_network() -> impl Strategy<Value = Network> {
    let address = any::<bool>().prop_flat_map(near);
    let prefixes = select(vec![0_u8, 8, 30, 31, 32, 127, 128]);
    let masks = option::of(any::<bool>().prop_flat_map(near));
    (address, prefixes, masks).prop_map(|(address, prefix, mask)| {
        let masked = mask.and_then(|mask| Network::with_mask(address, mask));
        let network = masked.or_else(|| Network::new(address, prefix));
        network.unwrap_or_else(|| Network::from(address))
    })
}

fn near_range() -> impl Strategy<Value = AddressRange> {
    let ends = any::<bool>().prop_flat_map(|is_v6| (near(is_v6), near(is_v6)));
    ends.prop_filter_map("ordered ends", |(first, last)| {
        AddressRange::new(first, last)
    })
}

fn near_ports() -> impl Strategy<Value = PortRange> {
    (0_u16..2, 0_u16..2).prop_map(|(first, last)| PortRange::new(first, last))
}

prop_compose! {
    fn near_side()(
        source in option::weighted(0.2, near_network()),
        destination in option::weighted(0.2, near_network()),
        ranges in (
            option::weighted(0.2, near_range()),
            option::weighted(0.2, near_range()),
        ),
        source_port in option::weighted(0.2, near_ports()),
        destination_port in option::weighted(0.2, near_ports()),
        zone in option::weighted(0.2, 0_u16..2),
    ) -> TupleFilter {
        let mut side = TupleFilter::new();
        (side.source, side.destination) = (source, destination);
        (side.source_range, side.destination_range) = ranges;
        (side.source_port, side.destination_port) = (source_port, destination_port);
        side.zone = zone;
        side
    }
}

prop_compose! {
    fn filter()(
        family in option::weighted(0.2, select(vec![Family::V4, Family::V6])),
        protocol in option::weighted(0.2, select(vec![Protocol::TCP, Protocol::ICMP])),
        (original, reply) in (near_side(), near_side()),
        status in option::weighted(0.2, (0_u32..4, 0_u32..8)),
        mark in option::weighted(0.2, (0_u32..4, 0_u32..8)),
        zone in option::weighted(0.2, 0_u16..2),
        labels in select(vec![0, 0, 0, 1, 6]),
    ) -> Filter {
        let mut filter = Filter::new().with_original(original).with_reply(reply);
        (filter.family, filter.protocol, filter.zone) = (family, protocol, zone);
        let flags = Status::from_bits_retain;
        filter.status = status.map(|(value, mask)| (flags(value), flags(mask)));
        filter.mark = mark;
        filter.labels = labels;
        filter
    }
}

/// Compares masked bits one by one.
fn has_bits(number: u32, mask: u32, value: u32) -> bool {
    let bit = |number: u32, place: u32| number >> place & 1;
    let mut of_mask = (0..32).filter(|place| bit(mask, *place) == 1);
    of_mask.all(|place| bit(number, place) == bit(value, place))
}

/// Compares the bits of a mask one by one.
fn is_in(network: Network, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(ip) => format!("4{:032b}", u32::from(ip)),
        IpAddr::V6(ip) => format!("6{:0128b}", u128::from(ip)),
    };
    let (address, wanted) = (bits(address), bits(network.address()));
    let mask = bits(network.mask());
    let mut compared = mask.chars().zip(address.chars().zip(wanted.chars()));
    address.len() == wanted.len()
        && compared.all(|(mask, (one, other))| mask == '0' || one == other)
}

/// Compares the bytes of the addresses.
fn is_between(range: AddressRange, address: IpAddr) -> bool {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (first, last) = (bytes(range.first()), bytes(range.last()));
    let address = bytes(address);
    address.len() == first.len() && first <= address && address <= last
}

/// Returns the conditions of a filter that a flow does not match.
fn reasons(filter: &Filter, flow: &Flow) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    let mut unless = |is: bool, reason| reasons.extend((!is).then_some(reason));
    let is_v6 = flow.original.source.is_ipv6();
    if let Some(family) = filter.family {
        unless(is_v6 == (family == Family::V6), "family");
    }
    if let Some(Protocol(number)) = filter.protocol {
        unless(number == flow.original.protocol.0, "protocol");
    }
    for (side, tuple) in [(filter.original, flow.original), (filter.reply, flow.reply)] {
        if let Some(network) = side.source {
            unless(is_in(network, tuple.source), "source");
        }
        if let Some(network) = side.destination {
            unless(is_in(network, tuple.destination), "destination");
        }
        if let Some(range) = side.source_range {
            unless(is_between(range, tuple.source), "source range");
        }
        if let Some(range) = side.destination_range {
            unless(is_between(range, tuple.destination), "destination range");
        }
        if let Some(zone) = side.zone {
            unless(tuple.zone.unwrap_or(0) == zone, "zone of a direction");
        }
        let ports = match tuple.layer4 {
            Layer4::Ports {
                source,
                destination,
            } => [i32::from(source), i32::from(destination)],
            _ => [-1, -1],
        };
        for (wanted, port) in [side.source_port, side.destination_port].iter().zip(ports) {
            if let Some(wanted) = wanted {
                let (first, last) = (i32::from(wanted.first), i32::from(wanted.last));
                unless(first <= port && port <= last, "port");
            }
        }
    }
    if let Some((value, mask)) = filter.status {
        let bits = [flow.status, mask, value].map(|status| status.bits());
        unless(has_bits(bits[0], bits[1], bits[2]), "status");
    }
    if let Some((value, mask)) = filter.mark {
        unless(has_bits(flow.mark.unwrap_or(0), mask, value), "mark");
    }
    if let Some(zone) = filter.zone {
        unless(flow.zone.unwrap_or(0) == zone, "zone");
    }
    let labels = flow.extension.as_ref().and_then(|it| it.labels.as_ref());
    for label in (0..128).filter(|label| filter.labels >> label & 1 == 1) {
        unless(labels.is_some_and(|labels| labels.contains(label)), "label");
    }
    reasons
}

/// Generates a few attributes; some are nested.
fn attributes() -> impl Strategy<Value = Vec<u8>> {
    let leaf = bytes().boxed();
    let nested = leaf.prop_recursive(3, 40, 5, |inner| {
        vec((0_u16..28, inner), 0..5).prop_map(|attrs| {
            let mut out = Vec::new();
            for (kind, value) in attrs {
                nest(&mut out, kind, |out| out.extend_from_slice(&value));
            }
            out
        })
    });
    nested.prop_map(|attrs| [vec![2, 0, 0, 0], attrs].concat())
}

/// Generates an encoded flow with some changed bytes.
fn changed() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (flow(), changes).prop_map(|(flow, changes)| {
        let mut out = Vec::new();
        flow.encode(&mut out);
        for (place, byte) in changes {
            let place = place.index(out.len());
            out[place] = byte;
        }
        out
    })
}

#[test]
fn empty_attributes_create_no_extension() {
    let addresses = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)));
    let tuple = Tuple::ports(Protocol::UDP, (addresses[0], 1), (addresses[1], 53));
    let flow = Flow::new(tuple, tuple.inverted());
    let mut out = Vec::new();
    flow.encode(&mut out);
    // `CTA_HELP` without a name.
    nest(&mut out, 5, |_| {});
    assert_eq!(Flow::decode(&out).unwrap(), flow);
}

proptest! {
    #[test]
    fn a_flow_round_trips(flow in flow()) {
        let mut out = Vec::new();
        flow.encode(&mut out);
        prop_assert_eq!(Flow::decode(&out).unwrap(), flow);
    }

    #[test]
    fn a_tuple_inverted_twice_equals_itself_except_for_its_zone(tuple in tuple()) {
        let mut plain = tuple;
        plain.zone = None;
        prop_assert_eq!(tuple.inverted().inverted(), plain);
        prop_assert!(!Flow::new(tuple, tuple.inverted()).is_translated());
    }

    #[test]
    fn a_filter_matches_if_all_conditions_match(filter in filter(), flow in near_flow()) {
        let reasons = reasons(&filter, &flow);
        prop_assert_eq!(filter.matches(&flow), reasons.is_empty(), "{:?}", reasons);
    }

    #[test]
    fn decoding_any_bytes_does_not_panic(payload in prop_oneof![bytes(), attributes(), changed()]) {
        if let Ok(flow) = Flow::decode(&payload) {
            let mut out = Vec::new();
            flow.encode(&mut out);
            prop_assert_eq!(&Flow::decode(&out).unwrap(), &flow);
            let _ = (flow.to_string(), flow.key().to_string());
        }
        let _ = (Expectation::decode(&payload), CpuStatistics::decode(&payload));
        let _ = Usage::decode(&payload);
        for ty in [0x100, 0x101, 0x102, 0x200] {
            let _ = Event::decode(&Message { ty, flags: 0, seq: 0, port_id: 0, payload: &payload });
        }
    }
}
