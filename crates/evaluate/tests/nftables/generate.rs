//! Random rulesets and packets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use vipline_evaluate::Packet;
use vipline_nftables::expr::{CtState, NatFlags};
use vipline_nftables::expression::{
    concat, ct_mark, ct_original_daddr, ct_state, fib_daddr_type, iifname, ip_daddr, ip_saddr,
    jhash, l4proto, mark, numgen_inc, numgen_random, oifname, symhash, udp_dport, udp_sport,
};
use vipline_nftables::statement::{
    Statement, accept, counter, dnat, drop, goto, jump, masquerade, redirect, return_, snat, update,
};
use vipline_nftables::{
    BaseChain, Chain, ChainType, Datatype, Element, Family, Hook, Name, Object, Policy, Rule, Set,
    SetFlags, Table, Value, Verdict, expr,
};

use crate::lab::table;

/// Destination ports. Some rules translate to others.
const PORTS: std::ops::Range<u64> = 5000..5008;

/// Random numbers of a seed: xorshift.
pub(crate) struct Random {
    state: u64,
    /// Random conditions that the ruleset may still have: they multiply its outcomes.
    budget: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            budget: 3,
        };
        for _ in 0..8 {
            random.below(2);
        }
        random
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % limit
    }

    fn one_of<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len() as u64) as usize]
    }

    fn port(&mut self) -> u64 {
        PORTS.start + self.below(PORTS.end - PORTS.start)
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const SOURCES: [&str; 3] = ["10.0.0.2", "10.0.0.3", "10.0.0.9"];
const SERVERS: [&str; 3] = ["10.1.0.2", "10.1.0.3", "10.1.0.4"];
const SERVICES: [&str; 3] = ["10.9.0.1", "10.9.0.2", "10.9.0.3"];
const ROUTER: [&str; 2] = ["10.0.0.1", "10.1.0.1"];

/// Returns a packet with its own source port.
pub(crate) fn packet(random: &mut Random, port: u16) -> Packet {
    let destination = match random.below(4) {
        0 => random.one_of(&ROUTER),
        1 => random.one_of(&SERVERS),
        _ => random.one_of(&SERVICES),
    };
    let is_local = random.below(3) == 0;
    let source = match is_local {
        true => random.one_of(&ROUTER),
        false => random.one_of(&SOURCES),
    };
    let to = SocketAddr::new(addr(destination), random.port() as u16);
    let packet = Packet::udp(SocketAddr::new(addr(source), port), to);
    let packet = packet.with_payload(b"x").with_traffic_class(0);
    match is_local {
        true => packet,
        false => packet.with_input("left"),
    }
}

/// The sets and maps of a ruleset.
struct Sets {
    ports: Set,
    networks: Set,
    pairs: Set,
    verdicts: Set,
    endpoints: Set,
    seen: Set,
}

impl Sets {
    fn new() -> Self {
        let of = |text: &str, key: Vec<Datatype>| Set::new(table(), name(text), key);
        let (port, v4) = (Datatype::InetService, Datatype::Ipv4Addr);
        let endpoint = [v4, port];
        Self {
            ports: of("ports", vec![port]),
            networks: of("networks", vec![v4]).with_flags(SetFlags::INTERVAL),
            pairs: of("pairs", vec![v4, port]).with_flags(SetFlags::INTERVAL),
            verdicts: Set::verdict_map(table(), name("verdicts"), [port]),
            endpoints: Set::map(table(), name("endpoints"), [v4, Datatype::Mark], endpoint),
            seen: of("seen", vec![v4, port]).with_flags(SetFlags::DYNAMIC),
        }
    }

    fn objects(&self, random: &mut Random) -> Vec<Object> {
        let sets = [
            &self.ports,
            &self.networks,
            &self.pairs,
            &self.verdicts,
            &self.endpoints,
            &self.seen,
        ];
        let mut objects: Vec<Object> = sets.map(|set| set.clone().into()).into();
        let mut add = |element: Element| objects.push(element.into());
        for port in PORTS {
            if random.below(3) == 0 {
                add(self.ports.element(&[Value::Integer(port)]).unwrap());
            }
            let verdict = match random.below(6) {
                0 => Verdict::Accept,
                1 => Verdict::Jump(name("second")),
                2 => Verdict::Goto(name("second")),
                3 => Verdict::Continue,
                _ => continue,
            };
            let element = self.verdicts.element(&[Value::Integer(port)]).unwrap();
            add(element.with_verdict(verdict).unwrap());
        }
        for network in ["10.0.0.2/31", "10.9.0.0/30", "10.1.0.4/30"] {
            let network: ipnet::IpNet = network.parse().unwrap();
            if random.below(2) == 0 {
                add(self.networks.element(&[network.into()]).unwrap());
            }
            let first = random.port();
            let ports = Value::integer_range(first, first + 2);
            add(self.pairs.element(&[network.into(), ports]).unwrap());
        }
        for service in SERVICES {
            for slot in 0..3_u64 {
                let key = [addr(service).into(), Value::Integer(slot)];
                let data = [
                    addr(random.one_of(&SERVERS)).into(),
                    Value::Integer(random.port() + 100),
                ];
                let element = self.endpoints.element(&key).unwrap();
                add(element.with_data(&data).unwrap());
            }
        }
        objects
    }
}

/// Returns all objects of a random ruleset.
pub(crate) fn ruleset(random: &mut Random) -> Vec<Object> {
    let sets = Sets::new();
    let mut objects = vec![Object::from(Table::new(table()))];
    objects.extend(sets.objects(random));
    for (text, depth) in [("first", 1), ("second", 2)] {
        let rules = rules(random, &sets, None, depth);
        objects.push(Chain::new(table(), name(text)).with_rules(rules).into());
    }
    let filters = [
        (Hook::Prerouting, -150),
        (Hook::Prerouting, -50),
        (Hook::Input, 0),
        (Hook::Forward, 0),
        (Hook::Forward, 5),
        (Hook::Output, -150),
        (Hook::Output, -50),
        (Hook::Postrouting, 0),
        (Hook::Postrouting, 150),
    ];
    for (hook, priority) in filters {
        let rules = rules(random, &sets, Some(hook), 0);
        let kind = match hook {
            Hook::Output if priority < -100 && random.below(2) == 0 => ChainType::Route,
            _ => ChainType::Filter,
        };
        let base = BaseChain::new(kind, hook, priority);
        let policy = if random.below(40) == 0 {
            Policy::Drop
        } else {
            Policy::Accept
        };
        let text = name(&format!("{hook}{}", priority + 200));
        let chain = Chain::new(table(), text).with_base(base.with_policy(policy));
        objects.push(chain.with_rules(rules).into());
    }
    for hook in [Hook::Prerouting, Hook::Output, Hook::Postrouting] {
        let translations = (0..3).map(|_| translation(random, &sets, hook));
        let rules: Vec<Rule> = translations.collect();
        let priority = if hook == Hook::Postrouting { 100 } else { -100 };
        let chain = Chain::new(table(), name(&format!("nat-{hook}")));
        let base = BaseChain::new(ChainType::Nat, hook, priority);
        objects.push(chain.with_base(base).with_rules(rules).into());
    }
    objects
}

fn rules(random: &mut Random, sets: &Sets, hook: Option<Hook>, depth: usize) -> Vec<Rule> {
    let count = 2 + random.below(4);
    (0..count)
        .map(|_| {
            let mut statements = vec![l4proto().is(17_u8)];
            for _ in 0..1 + random.below(2) {
                statements.push(condition(random, sets, hook));
            }
            statements.push(counter());
            statements.extend(action(random, sets, depth));
            Rule::new(Family::Ip, statements).unwrap()
        })
        .collect()
}

fn condition(random: &mut Random, sets: &Sets, hook: Option<Hook>) -> Statement {
    let port = random.port();
    match random.below(16) {
        0 => ip_saddr().is(addr(random.one_of(&SOURCES))),
        1 => ip_daddr().is(addr(random.one_of(&SERVICES))),
        2 => ip_daddr().is(random
            .one_of(&["10.9.0.0/24", "10.1.0.0/29"])
            .parse::<ipnet::IpNet>()
            .unwrap()),
        3 => udp_dport().is(Value::integer_range(port, port + 3)),
        4 => udp_dport().is_not(Value::Integer(port)),
        5 => udp_sport().in_set(&sets.ports),
        6 => udp_dport().in_set(&sets.ports),
        7 => ip_saddr().in_set(&sets.networks),
        8 => ip_daddr().not_in_set(&sets.networks),
        9 => concat((ip_daddr(), udp_dport())).in_set(&sets.pairs),
        10 => mark().is(Value::Integer(random.below(3))),
        11 => ct_state().is(random.one_of(&[CtState::NEW, CtState::ESTABLISHED])),
        12 => {
            jhash(concat((ip_saddr(), udp_sport())), 3, Some(7)).is(Value::Integer(random.below(3)))
        }
        13 if random.budget > 0 => {
            random.budget -= 1;
            match random.below(2) {
                0 => numgen_random(3).is(Value::Integer(random.below(3))),
                _ => symhash(2).is(Value::Integer(random.below(2))),
            }
        }
        14 => ct_original_daddr(Family::Ip).is(addr(random.one_of(&SERVICES))),
        _ => match hook {
            Some(Hook::Prerouting) => fib_daddr_type().is(expr::AddrType::Local),
            Some(Hook::Forward | Hook::Postrouting) => oifname().is("right"),
            _ => iifname().is(random.one_of(&["left", "lo", "ri*"])),
        },
    }
}

fn action(random: &mut Random, sets: &Sets, depth: usize) -> Option<Statement> {
    Some(match random.below(14) {
        0 | 1 => mark().set_to(Value::Integer(random.below(3))),
        2 => ct_mark().set_to(Value::Integer(random.below(3))),
        3 => ct_mark().set(&mark()),
        4 => accept(),
        5 if random.below(3) == 0 => drop(),
        6 if depth == 0 => jump(&name("first")),
        7 if depth == 0 => goto(&name("first")),
        6 | 8 if depth < 2 => jump(&name("second")),
        9 if depth < 2 => udp_dport().vmap(&sets.verdicts),
        10 => update(&sets.seen, &concat((ip_saddr(), udp_dport())), None),
        11 => return_(),
        _ => return None,
    })
}

fn translation(random: &mut Random, sets: &Sets, hook: Hook) -> Rule {
    let matched = match random.below(3) {
        0 => ip_daddr().is(addr(random.one_of(&SERVICES))),
        1 => udp_dport().in_set(&sets.ports),
        _ => ip_daddr().in_set(&sets.networks),
    };
    let action = match (hook, random.below(3)) {
        (Hook::Postrouting, 0) => masquerade(NatFlags::empty()),
        (Hook::Postrouting, _) => snat(IpAddr::from(Ipv4Addr::new(10, 1, 0, 1))),
        (_, 0) => dnat(SocketAddr::new(addr(random.one_of(&SERVERS)), 5100)),
        (Hook::Prerouting, 1) => redirect(5200),
        (_, _) => {
            let slot = match random.below(2) {
                0 => numgen_random(3),
                _ => numgen_inc(3),
            };
            dnat(concat((ip_daddr(), slot)).map(&sets.endpoints))
        }
    };
    let statements = [l4proto().is(17_u8), matched, counter(), action];
    Rule::new(Family::Ip, statements).unwrap()
}
