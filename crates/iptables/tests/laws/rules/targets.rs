//! Strategies for targets that iptables would accept.

use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use vipline_iptables::ChainName;
use vipline_iptables::targets::{
    AddressRange, Connmark, ConnmarkAction, Ct, CtEvents, Dnat, Log, Mark, Masks, Masquerade,
    NatPorts, Redirect, Reject, Set, SetReference, Shift, Snat, Target, Tproxy, Zone,
    ZoneDirection,
};

use super::arbitrary::{address, bits, directions, masked, name, range, suite_rules, text};

fn chain() -> BoxedStrategy<ChainName> {
    "[a-z][a-z-]{0,20}"
        .prop_map(|name| ChainName::new(&name).unwrap())
        .boxed()
}

fn nat_ports() -> BoxedStrategy<NatPorts> {
    range().prop_map(NatPorts).boxed()
}

fn connmark() -> BoxedStrategy<Connmark> {
    let masks = any::<(u32, u32)>().prop_map(|(packet, connection)| Masks { packet, connection });
    let masks = prop_oneof![Just(Masks::ALL), masks].boxed();
    let action = prop_oneof![
        masked().prop_map(ConnmarkAction::Set),
        masks.clone().prop_map(ConnmarkAction::Save),
        masks.prop_map(ConnmarkAction::Restore),
    ];
    let shift = (1..32_u8, any::<bool>());
    let shift = shift.prop_map(|(bits, left)| {
        if left {
            Shift::Left(bits)
        } else {
            Shift::Right(bits)
        }
    });
    (action, of(shift))
        .prop_map(|(action, shift)| Connmark {
            action: Some(action),
            shift,
        })
        .boxed()
}

fn ct() -> BoxedStrategy<Ct<'static>> {
    let direction = select(
        &[
            ZoneDirection::Both,
            ZoneDirection::Original,
            ZoneDirection::Reply,
        ][..],
    );
    let zone = (of(1..u16::MAX), direction).prop_map(|(id, direction)| Zone { id, direction });
    let events = bits(CtEvents::from_bits_truncate, CtEvents::is_empty);
    (
        any::<[bool; 2]>(),
        of(name()),
        of(name()),
        of(events),
        of(zone),
    )
        .prop_map(|(flags, helper, timeout, events, zone)| Ct {
            notrack: flags[0],
            helper,
            timeout,
            events,
            expect_new: flags[1],
            zone,
        })
        .boxed()
}

/// AddressRange of one family, and ports; one of the two at least.
fn goal() -> BoxedStrategy<(Option<AddressRange>, Option<NatPorts>)> {
    let range = any::<([u16; 8], [u16; 8])>();
    let range = range.prop_map(|(first, last)| AddressRange {
        first: first.into(),
        last: last.into(),
    });
    let addresses = prop_oneof![address().prop_map(AddressRange::from), range];
    (of(addresses), of(nat_ports()))
        .prop_filter("some of it", |(addresses, ports)| {
            addresses.is_some() || ports.is_some()
        })
        .boxed()
}

fn dnat() -> BoxedStrategy<Dnat> {
    (goal(), of(1..=u16::MAX), any::<[bool; 2]>())
        .prop_map(|((addresses, ports), base_port, flags)| Dnat {
            addresses,
            ports,
            base_port: base_port.filter(|_| ports.is_some()),
            random: flags[0],
            persistent: flags[1],
        })
        .boxed()
}

fn snat() -> BoxedStrategy<Snat> {
    (goal(), any::<[bool; 3]>())
        .prop_map(|((addresses, ports), flags)| Snat {
            addresses,
            ports,
            random: flags[0],
            random_fully: flags[1],
            persistent: flags[2],
        })
        .boxed()
}

fn log() -> BoxedStrategy<Log<'static>> {
    (of(text()), 0..8_u8, any::<[bool; 5]>())
        .prop_map(|(prefix, level, flags)| Log {
            prefix,
            level,
            tcp_sequence: flags[0],
            tcp_options: flags[1],
            ip_options: flags[2],
            uid: flags[3],
            macdecode: flags[4],
        })
        .boxed()
}

fn set_target() -> BoxedStrategy<Set<'static>> {
    let place =
        || (name(), directions()).prop_map(|(name, directions)| SetReference { name, directions });
    let timeout = of(0..u32::MAX);
    (
        place(),
        timeout,
        of(place()),
        of(place()),
        any::<[bool; 3]>(),
    )
        .prop_map(|(add, timeout, del, map, flags)| Set {
            add: Some(add),
            exist: flags[0],
            timeout,
            del,
            map_mark: map.is_some(),
            map_prio: map.is_some() && flags[1],
            map_queue: map.is_some() && flags[2],
            map,
        })
        .boxed()
}

/// A target.
pub(crate) fn target() -> BoxedStrategy<Target<'static>> {
    use Target::{Accept, Drop, Notrack, Return};
    let rejects = [
        Reject::Default,
        Reject::PortUnreachable,
        Reject::TcpReset,
        Reject::Icmp6NoRoute,
    ];
    let masquerade = (of(nat_ports()), any::<[bool; 2]>());
    let masquerade = masquerade.prop_map(|(ports, [random, random_fully])| Masquerade {
        ports,
        random,
        random_fully,
    });
    let redirect = (of(nat_ports()), any::<bool>());
    let tproxy = (any::<u16>(), of(address()), masked());
    let suite = suite_rules().into_iter().filter_map(|rule| rule.target);
    let is_typed = |target: &Target<'_>| !matches!(target, Target::Other(_));
    let suite: Vec<_> = suite.filter(is_typed).collect();
    prop_oneof![
        8 => select(suite),
        1 => select(vec![Accept, Drop, Notrack, Return]),
        1 => chain().prop_map(Target::Jump),
        1 => chain().prop_map(Target::Goto),
        1 => connmark().prop_map(Target::from),
        1 => ct().prop_map(Target::from),
        1 => dnat().prop_map(Target::from),
        1 => log().prop_map(Target::from),
        1 => masked().prop_map(|it| Mark(it).into()),
        1 => masquerade.prop_map(Target::from),
        1 => redirect.prop_map(|(ports, random)| Redirect { ports, random }.into()),
        1 => select(rejects.to_vec()).prop_map(Target::from),
        1 => set_target().prop_map(Target::from),
        1 => snat().prop_map(Target::from),
        1 => tproxy.prop_map(|(port, address, mark)| Tproxy {
            port: Some(port),
            address,
            mark
        }
        .into()),
        1 => "-j OTHER --[a-z]{1,5}( [a-z]{1,5})?".prop_map(|text| Target::Other(text.into())),
    ]
    .boxed()
}
