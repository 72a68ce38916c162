//! A table per family with rules for load balancing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use vipline_nftables::expr::{
    AddrType, CmpOp, CtKey, CtState, CtStatus, Direction, FibFlags, FibResult, NatFlags,
};
use vipline_nftables::expression::*;
use vipline_nftables::statement::*;
use vipline_nftables::{
    BaseChain, Chain, ChainType, Comment, Datatype, Family, Hook, Name, Object, Rule, Set,
    SetFlags, Statement, Table, TableId, Value, Verdict,
};

const THREE_HOURS: Duration = Duration::from_secs(3 * 60 * 60);

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A rule, its text in nft syntax, and a base chain for it.
pub(crate) struct Case {
    pub(crate) text: String,
    pub(crate) rule: Rule,
    pub(crate) hook: Hook,
    /// Whether nft 1.0.6 can load the text; it aborts on some.
    pub(crate) loads: bool,
}

/// A table with sets, and one chain per case.
pub(crate) struct Samples {
    pub(crate) family: Family,
    pub(crate) table: TableId,
    pub(crate) service_ips: Set,
    pub(crate) backends: Set,
    pub(crate) hairpin: Set,
    pub(crate) cluster_ips: Set,
    pub(crate) cidrs: Set,
    pub(crate) ranges: Set,
    pub(crate) affinity: Set,
    pub(crate) affinity_endpoints: Set,
    pub(crate) marks: Set,
}

impl Samples {
    pub(crate) fn new(family: Family) -> Self {
        let table = TableId::new(family, name("agreement"));
        let addr = match family {
            Family::Ip6 => Datatype::Ipv6Addr,
            _ => Datatype::Ipv4Addr,
        };
        let port = Datatype::InetService;
        let three = [addr, Datatype::InetProto, port];
        let set = |text: &str, key: &[Datatype]| Set::new(table.clone(), name(text), key);
        let slots = concat((daddr(family), l4proto(), th_dport(), numgen_random(2))).into_fields();
        let endpoint = concat((daddr(family), th_dport())).into_fields();
        let client = concat((saddr(family), daddr(family), l4proto(), th_dport())).into_fields();
        Self {
            family,
            service_ips: Set::verdict_map(table.clone(), name("service-ips"), three)
                .with_comment(Comment::new("where to go").unwrap()),
            backends: Set::map(table.clone(), name("backends"), slots, endpoint.clone()),
            hairpin: set("hairpin", &[&three[..1], &three[..]].concat()),
            cluster_ips: set("cluster-ips", &three[..1]),
            cidrs: set("cidrs", &three[..1]).with_flags(SetFlags::INTERVAL),
            ranges: set("ranges", &[&three[..], &three[..1]].concat())
                .with_flags(SetFlags::INTERVAL),
            affinity: Set::map(table.clone(), name("affinity"), client, endpoint)
                .with_flags(SetFlags::DYNAMIC)
                .with_timeout(THREE_HOURS)
                .with_size(1 << 20),
            affinity_endpoints: set("affinity-endpoints", &[&three[..], &[addr, port]].concat()),
            marks: set("marks", &[Datatype::Mark]).with_flags(SetFlags::INTERVAL),
            table,
        }
    }

    pub(crate) fn addr(&self, n: u32) -> IpAddr {
        match self.family {
            Family::Ip6 => Ipv6Addr::from(0xfd00 << 112 | u128::from(n)).into(),
            _ => Ipv4Addr::from(10 << 24 | n).into(),
        }
    }

    fn net(&self, n: u32, host_bits: u8) -> IpNet {
        let addr = self.addr(n);
        let bits = if addr.is_ipv6() { 128 } else { 32 };
        IpNet::new(addr, bits - host_bits).unwrap().trunc()
    }

    /// Returns all objects, with a chain per case.
    pub(crate) fn objects(&self, cases: &[Case]) -> Vec<Object> {
        let mut objects = vec![Object::from(Table::new(self.table.clone()))];
        objects.extend(self.sets().into_iter().map(Object::from));
        objects.push(Chain::new(self.table.clone(), name("target")).into());
        for (number, case) in cases.iter().enumerate() {
            let kind = match case.hook {
                Hook::Prerouting | Hook::Postrouting => ChainType::Nat,
                _ => ChainType::Filter,
            };
            let priority = 100 + i32::try_from(number).unwrap();
            let chain = Chain::new(self.table.clone(), name(&format!("case-{number:02}")))
                .with_base(BaseChain::new(kind, case.hook, priority))
                .with_rules([case.rule.clone()]);
            objects.push(chain.into());
        }
        objects.extend(self.elements());
        objects
    }

    fn sets(&self) -> Vec<Set> {
        [
            &self.service_ips,
            &self.backends,
            &self.hairpin,
            &self.cluster_ips,
            &self.cidrs,
            &self.ranges,
            &self.affinity,
            &self.affinity_endpoints,
            &self.marks,
        ]
        .map(Set::clone)
        .into()
    }

    fn elements(&self) -> Vec<Object> {
        let vip = Value::from(self.addr(0x6000a));
        let (tcp, http) = (Value::from(6_u8), Value::from(80_u16));
        let mut objects = Vec::new();
        for slot in 0..3_u32 {
            let key = [vip.clone(), tcp.clone(), http.clone(), slot.into()];
            let endpoint = [self.addr(slot + 1).into(), Value::from(8080_u16)];
            objects.push(
                self.backends
                    .element(&key)
                    .unwrap()
                    .with_data(&endpoint)
                    .unwrap(),
            );
        }
        let service = self
            .service_ips
            .element(&[vip.clone(), tcp.clone(), http.clone()])
            .unwrap();
        let service = service.with_verdict(Verdict::Goto(name("target"))).unwrap();
        objects.push(service.with_comment(Comment::new("a Service").unwrap()));
        for net in [self.net(0, 8), self.net(0x100, 8), self.net(0x500, 0)] {
            objects.push(self.cidrs.element(&[net.into()]).unwrap());
        }
        let some = Value::addr_range(self.addr(0x703), self.addr(0x709));
        objects.push(self.cidrs.element(&[some]).unwrap());
        let last = match self.family {
            Family::Ip6 => "ff00::/8",
            _ => "255.0.0.0/8",
        };
        let last: IpNet = last.parse().unwrap();
        objects.push(self.cidrs.element(&[last.into()]).unwrap());
        for client in [
            self.net(0, 16).into(),
            self.addr(0x2_0001).into(),
            self.addr(0x3_0001).into(),
        ] {
            let range = [vip.clone(), tcp.clone(), http.clone(), client];
            objects.push(self.ranges.element(&range).unwrap());
        }
        objects.push(
            self.marks
                .element(&[Value::integer_range(0x10, 0x1f)])
                .unwrap(),
        );
        objects.into_iter().map(Object::from).collect()
    }

    /// Returns one case per rule. `IP` in a text stands for `ip` or `ip6`.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = self.dispatch();
        cases.extend(self.tests());
        cases.extend(self.actions());
        cases.extend(self.forwards());
        cases.extend(self.loads());
        cases
    }

    pub(crate) fn case(
        &self,
        hook: Hook,
        text: &str,
        statements: impl IntoIterator<Item = Statement>,
    ) -> Case {
        let word = self.family.as_str();
        Case {
            text: text.replace("IP", word),
            rule: Rule::new(self.family, statements).unwrap(),
            hook,
            loads: true,
        }
    }

    /// `IP daddr . meta l4proto . th dport`
    fn destination(&self) -> Expression<(IpAddr, u8, u16)> {
        concat((daddr(self.family), l4proto(), th_dport()))
    }

    fn learned_key(&self) -> Expression<(IpAddr, IpAddr, u8, Value)> {
        concat((
            ct_original_saddr(self.family),
            ct_original_daddr(self.family),
            l4proto(),
            ct_original(CtKey::ProtoDst),
        ))
    }

    fn dispatch(&self) -> Vec<Case> {
        let family = self.family;
        let slot = |slot: Expression<u32>| {
            let key = concat((daddr(family), l4proto(), th_dport(), slot));
            dnat(key.map(&self.backends))
        };
        let original = concat((
            ct_original_daddr(family),
            l4proto(),
            ct_original(CtKey::ProtoDst),
            daddr(family),
            th_dport(),
        ));
        let endpoint = concat((daddr(family), th_dport()));
        let affine = concat((saddr(family), daddr(family), l4proto(), th_dport()));
        let hairpin = affine.clone();
        let mut cases = vec![
            self.case(
                Hook::Prerouting,
                "IP daddr . meta l4proto . th dport vmap @service-ips",
                [self.destination().vmap(&self.service_ips)],
            ),
            self.case(
                Hook::Prerouting,
                "dnat IP to IP daddr . meta l4proto . th dport . numgen random mod 3 map @backends",
                [slot(numgen_random(3))],
            ),
            self.case(
                Hook::Prerouting,
                "dnat IP to IP daddr . meta l4proto . th dport . numgen random mod 1 map @backends",
                [slot(numgen_random(1))],
            ),
            self.case(
                Hook::Prerouting,
                "dnat IP to IP daddr . meta l4proto . th dport . jhash IP saddr . th sport mod 251 seed 0x7 map @backends",
                [slot(jhash(concat((saddr(family), th_sport())), 251, Some(7)))],
            ),
            self.case(
                Hook::Prerouting,
                "dnat IP to IP daddr . meta l4proto . th dport . jhash IP saddr mod 251 seed 0x7 map @backends",
                [slot(jhash(saddr(family), 251, Some(7)))],
            ),
            self.case(
                Hook::Prerouting,
                "dnat IP to IP saddr . IP daddr . meta l4proto . th dport map @affinity",
                [dnat(affine.map(&self.affinity))],
            ),
            self.case(
                Hook::Postrouting,
                "ct status dnat IP saddr . IP daddr . meta l4proto . th dport @hairpin masquerade fully-random",
                [
                    ct_status().is(CtStatus::DNAT),
                    hairpin.in_set(&self.hairpin),
                    masquerade(NatFlags::FULLY_RANDOM),
                ],
            ),
        ];
        cases.push(Case {
            loads: family != Family::Ip6,
            ..self.case(
                Hook::Input,
                "meta l4proto { tcp, udp, sctp } ct state new ct direction original ct status dnat \
                 ct original IP daddr . meta l4proto . ct original proto-dst . IP daddr . th dport @affinity-endpoints \
                 update @affinity { ct original IP saddr . ct original IP daddr . meta l4proto . ct original proto-dst timeout 3h : IP daddr . th dport }",
                [
                    l4proto().is_in([6, 17, 132]),
                    ct_state().is(CtState::NEW),
                    ct_direction().is(Direction::Original),
                    ct_status().is(CtStatus::DNAT),
                    original.in_set(&self.affinity_endpoints),
                    update_map(&self.affinity, &self.learned_key(), Some(THREE_HOURS), &endpoint),
                ],
            )
        });
        cases
    }

    fn tests(&self) -> Vec<Case> {
        let family = self.family;
        let near = self.net(0, 24);
        let odd = self.net(0, 23);
        let here: IpAddr = match family {
            Family::Ip6 => Ipv6Addr::LOCALHOST.into(),
            _ => Ipv4Addr::LOCALHOST.into(),
        };
        let (bits, mask) = match family {
            Family::Ip6 => (116, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:f000"),
            _ => (20, "255.255.240.0"),
        };
        let (first, last) = (self.addr(1), self.addr(5));
        let guarded = concat((daddr(family), l4proto(), th_dport(), saddr(family)));
        vec![
            self.case(
                Hook::Forward,
                "ct state new jump target",
                [ct_state().is(CtState::NEW), jump(&name("target"))],
            ),
            self.case(
                Hook::Forward,
                "ct state established,related accept",
                [ct_state().is(CtState::ESTABLISHED | CtState::RELATED), accept()],
            ),
            self.case(
                Hook::Forward,
                &format!("IP daddr & {mask} == @cluster-ips accept"),
                [daddr(family).prefix(bits).in_set(&self.cluster_ips), accept()],
            ),
            self.case(
                Hook::Forward,
                "ct state != new accept",
                [ct_state().is_not(CtState::NEW), accept()],
            ),
            self.case(
                Hook::Postrouting,
                "meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random",
                [
                    mark().and(0x4000).is_not(0),
                    mark().set(&mark().xor(0x4000)),
                    masquerade(NatFlags::FULLY_RANDOM),
                ],
            ),
            self.case(
                Hook::Forward,
                "meta mark & 0x0000ff00 == 0x00001200 accept",
                [mark().and(0xff00).is(0x1200), accept()],
            ),
            self.case(
                Hook::Forward,
                &format!("IP daddr @cluster-ips IP saddr != {near} meta mark set meta mark | 0x00004000"),
                [
                    daddr(family).in_set(&self.cluster_ips),
                    saddr(family).is_not(near),
                    mark().set(&mark().or(0x4000)),
                ],
            ),
            self.case(
                Hook::Forward,
                &format!("IP saddr {odd} drop"),
                [saddr(family).is(odd), drop()],
            ),
            self.case(
                Hook::Forward,
                &format!("fib daddr type local IP daddr != {here} accept"),
                [fib_daddr_type().is(AddrType::Local), daddr(family).is_not(here), accept()],
            ),
            self.case(
                Hook::Forward,
                "fib daddr . mark type unicast accept",
                [
                    fib(FibFlags::DADDR | FibFlags::MARK, FibResult::AddrType).is(AddrType::Unicast),
                    accept(),
                ],
            ),
            self.case(Hook::Forward, "iifname \"cni0\" accept", [iifname().is("cni0"), accept()]),
            self.case(
                Hook::Forward,
                "iifname != \"veth*\" accept",
                [iifname().is_not("veth*"), accept()],
            ),
            self.case(
                Hook::Forward,
                "IP daddr . meta l4proto . th dport . IP saddr != @ranges drop",
                [guarded.not_in_set(&self.ranges), drop()],
            ),
            self.case(
                Hook::Forward,
                "IP daddr @cidrs drop",
                [daddr(family).in_set(&self.cidrs), drop()],
            ),
            self.case(
                Hook::Forward,
                "meta mark @marks accept",
                [mark().in_set(&self.marks), accept()],
            ),
            self.case(
                Hook::Forward,
                "meta mark 0x00000001-0x00000005 accept",
                [mark().is(1..=5), accept()],
            ),
            self.case(
                Hook::Forward,
                &format!("IP saddr {first}-{last} accept"),
                [saddr(family).is(first..=last), accept()],
            ),
            self.case(
                Hook::Forward,
                "tcp dport != 1-5 accept",
                [tcp_dport().is_not(1..=5), accept()],
            ),
            self.case(
                Hook::Forward,
                "tcp dport >= 1024 accept",
                [tcp_dport().compares(CmpOp::Ge, 1024), accept()],
            ),
            self.case(
                Hook::Forward,
                "udp dport { 53, 1000-2000 } accept",
                [
                    udp_dport().is_in([53..=53, 1000..=2000]),
                    accept(),
                ],
            ),
        ]
    }
}
