//! The table and the sets in it.

use std::sync::{LazyLock, OnceLock};

use vipline_nftables::selector::{
    Selector, concat, daddr, l4proto, numgen_random, saddr, th_dport,
};
use vipline_nftables::{Chain, Datatype, Family, Field, Object, Set, SetFlags, TableId};
use vipline_service_model as service_model;

use super::names::{self, comment, name};
use super::port;

/// Up to how many slots there is a set for the addresses with so many.
///
/// Such an address costs the packet a look at the sets for fewer slots, but
/// its number of endpoints changes without the kernel checking a verdict map.
/// Addresses with more slots are few.
pub(super) const FEW_SLOTS: u32 = 8;

/// How many clients are remembered at most, in all Services.
const CLIENTS: u32 = 1 << 20;

/// The table of a family and the sets in it, made once and shared.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) id: TableId,
    /// To the endpoints that the policies choose.
    pub(super) ips: Way,
    /// To the endpoints of the cluster, for who is in it.
    pub(super) short_ips: Way,
    /// As `ips`, for ports of the node.
    pub(super) nodeports: Way,
    /// As `short_ips`, for ports of the node.
    pub(super) short_nodeports: Way,
    /// `VIP . protocol . port` of Services without endpoints.
    pub(super) no_endpoints: Set,
    /// `VIP . protocol . port` of Services with endpoints, but none allowed.
    pub(super) no_local_endpoints: Set,
    /// `protocol . port` of Services without endpoints.
    pub(super) no_endpoints_nodeports: Set,
    /// `protocol . port` of Services with endpoints, but none allowed.
    pub(super) no_local_endpoints_nodeports: Set,
    /// `VIP . protocol . port` whose traffic gets the node's address.
    pub(super) masquerade_ips: Set,
    /// `protocol . port` whose traffic gets the node's address.
    pub(super) masquerade_nodeports: Set,
    /// `VIP . protocol . port` that outsiders reach local endpoints by.
    pub(super) local_policy_ips: Set,
    /// `protocol . port` that outsiders reach local endpoints by.
    pub(super) local_policy_nodeports: Set,
    /// The cluster IPs in use.
    pub(super) cluster_ips: Set,
    /// The networks that cluster IPs are taken from.
    pub(super) service_cidrs: Set,
    /// The networks of the addresses that node ports are served on.
    pub(super) nodeport_ips: Set,
    /// `endpoint . endpoint . protocol . port` of the endpoints on this node.
    pub(super) hairpin_connections: Set,
    /// `VIP . protocol . port` that not everybody may use.
    pub(super) firewall_ips: Set,
    /// `VIP . protocol . port . network`: who may.
    pub(super) source_ranges: Set,
}

/// A way from where clients connect to, to endpoints.
#[derive(Debug)]
pub(super) struct Way {
    /// The table it is in.
    pub(super) id: TableId,
    /// What tells it from others in the names of chains.
    pub(super) word: &'static str,
    /// What Services are found by.
    pub(super) key: Vec<Selector>,
    /// The key and a slot, to an endpoint and its port.
    pub(super) backends: Set,
    /// The key, to the chain for so many slots.
    pub(super) dispatch: Set,
    /// The keys of addresses with one slot, with two, and so on, which are not
    /// in the map.
    pub(super) few: Vec<Set>,
    /// What clients that stay with their endpoints need.
    pub(super) affinity: Affinity,
    /// The chains for few slots, by their number, once they are asked for.
    lbs: [OnceLock<Chain>; 128],
}

/// What clients that stay with their endpoints need.
#[derive(Clone, Debug)]
pub(super) struct Affinity {
    /// What tells the way from others in the names of chains.
    pub(super) word: &'static str,
    /// Whether the key begins with an address.
    pub(super) of_ips: bool,
    /// The client and the key, to the endpoint it was sent to.
    pub(super) clients: Set,
    /// The key and an endpoint: only these are remembered.
    pub(super) endpoints: Set,
    /// The key, to the chain that remembers for so long.
    pub(super) learners: Set,
}

impl Table {
    /// Returns the table of a family.
    pub(super) fn of(family: service_model::Family) -> &'static Self {
        static V4: LazyLock<Table> = LazyLock::new(|| Table::new(Family::Ip, Datatype::Ipv4Addr));
        static V6: LazyLock<Table> = LazyLock::new(|| Table::new(Family::Ip6, Datatype::Ipv6Addr));
        match family {
            service_model::Family::V4 => &V4,
            service_model::Family::V6 => &V6,
        }
    }

    fn new(family: Family, addr: Datatype) -> Self {
        let id = TableId::new(family, name(names::TABLE));
        let nodeport = [Datatype::InetProto, Datatype::InetService];
        let vip = [addr, Datatype::InetProto, Datatype::InetService];
        let set = |text, key: &[Datatype], words| {
            Set::set(id.clone(), name(text), fields(key)).with_comment(comment(words))
        };
        let few =
            (1..=FEW_SLOTS).map(|slots| Set::set(id.clone(), names::slots(slots), fields(&vip)));
        let no_endpoints = "services without endpoints";
        let no_local_endpoints = "services without endpoints that their policy allows";
        let masquerade = "traffic that gets the address of the node";
        let local = "traffic from outside that stays on the node";
        let of_ips = Affinity::of_ips(&id, addr);
        let of_nodeports = Affinity::of_nodeports(&id, addr);
        Self {
            ips: Way {
                few: few.collect(),
                ..Way::of_ips(&id, "", [names::BACKENDS, names::SERVICE_IPS], &of_ips)
            },
            short_ips: Way::of_ips(
                &id,
                "short-",
                [names::SHORT_BACKENDS, names::SHORT_IPS],
                &of_ips,
            ),
            nodeports: Way::of_nodeports(
                &id,
                "nodeport-",
                [names::NODEPORT_BACKENDS, names::SERVICE_NODEPORTS],
                &of_nodeports,
            ),
            short_nodeports: Way::of_nodeports(
                &id,
                "short-nodeport-",
                [names::SHORT_NODEPORT_BACKENDS, names::SHORT_NODEPORTS],
                &of_nodeports,
            ),
            no_endpoints: set(names::NO_ENDPOINTS, &vip, no_endpoints),
            no_local_endpoints: set(names::NO_LOCAL_ENDPOINTS, &vip, no_local_endpoints),
            no_endpoints_nodeports: set(names::NO_ENDPOINTS_NODEPORTS, &nodeport, no_endpoints),
            no_local_endpoints_nodeports: set(
                names::NO_LOCAL_ENDPOINTS_NODEPORTS,
                &nodeport,
                no_local_endpoints,
            ),
            masquerade_ips: set(names::MASQUERADE_IPS, &vip, masquerade),
            masquerade_nodeports: set(names::MASQUERADE_NODEPORTS, &nodeport, masquerade),
            local_policy_ips: set(names::LOCAL_POLICY_IPS, &vip, local),
            local_policy_nodeports: set(names::LOCAL_POLICY_NODEPORTS, &nodeport, local),
            cluster_ips: set(names::CLUSTER_IPS, &[addr], "Active ClusterIPs"),
            service_cidrs: set(names::SERVICE_CIDRS, &[addr], "networks of ClusterIPs")
                .with_flags(SetFlags::INTERVAL),
            nodeport_ips: set(
                names::NODEPORT_IPS,
                &[addr],
                "IPs that accept NodePort traffic",
            )
            .with_flags(SetFlags::INTERVAL),
            hairpin_connections: set(
                names::HAIRPIN_CONNECTIONS,
                &[addr, addr, Datatype::InetProto, Datatype::InetService],
                "service hairpin connections",
            ),
            firewall_ips: set(
                names::FIREWALL_IPS,
                &vip,
                "destinations that are subject to LoadBalancerSourceRanges",
            ),
            source_ranges: set(
                names::SOURCE_RANGES,
                &[addr, Datatype::InetProto, Datatype::InetService, addr],
                "LoadBalancerSourceRanges",
            )
            .with_flags(SetFlags::INTERVAL),
            id,
        }
    }

    /// Returns the ways that clients are sent to endpoints by.
    pub(super) fn ways(&self) -> [&Way; 4] {
        [
            &self.ips,
            &self.short_ips,
            &self.nodeports,
            &self.short_nodeports,
        ]
    }

    /// Returns the objects of the table itself and of its sets.
    pub(super) fn objects(&self) -> impl Iterator<Item = Object> {
        let table = vipline_nftables::Table {
            comment: Some(comment("rules for kube-proxy")),
            ..vipline_nftables::Table::new(self.id.clone())
        };
        let of_ways = self
            .ways()
            .into_iter()
            .flat_map(|way| [&way.backends, &way.dispatch]);
        let of_affinity = [&self.ips.affinity, &self.nodeports.affinity].map(Affinity::sets);
        let plain = [
            &self.no_endpoints,
            &self.no_local_endpoints,
            &self.no_endpoints_nodeports,
            &self.no_local_endpoints_nodeports,
            &self.masquerade_ips,
            &self.masquerade_nodeports,
            &self.local_policy_ips,
            &self.local_policy_nodeports,
            &self.cluster_ips,
            &self.service_cidrs,
            &self.nodeport_ips,
            &self.hairpin_connections,
            &self.firewall_ips,
            &self.source_ranges,
        ];
        let sets = self.ips.few.iter().chain(of_ways);
        let sets = sets.chain(of_affinity.into_iter().flatten()).chain(plain);
        let sets: Vec<_> = sets.cloned().map(Object::from).collect();
        [Object::from(table)].into_iter().chain(sets)
    }

    pub(super) fn family(&self) -> Family {
        self.id.family
    }
}

impl Way {
    fn of_ips(id: &TableId, word: &'static str, maps: [&'static str; 2], of: &Affinity) -> Self {
        Self::new(id, word, vip_port(id.family).to_vec(), maps, of)
    }

    fn of_nodeports(
        id: &TableId,
        word: &'static str,
        maps: [&'static str; 2],
        of: &Affinity,
    ) -> Self {
        Self::new(id, word, nodeport().to_vec(), maps, of)
    }

    /// Makes the maps of a way.
    ///
    /// The port of the endpoint is a `th dport`: of a `tcp dport` nft concludes
    /// that rules which use the map are for TCP alone.
    /// The price is that nft 1.0.6 loads rules together with the map only, and
    /// refuses to add one to a map that is there; netlink has no such scruples.
    fn new(
        id: &TableId,
        word: &'static str,
        key: Vec<Selector>,
        [backends, dispatch]: [&'static str; 2],
        affinity: &Affinity,
    ) -> Self {
        let types: Vec<_> = key.iter().map(Selector::datatype).collect();
        let slot = key.iter().cloned().chain([numgen_random(2)]);
        let slot: Vec<_> = slot.map(Field::from).collect();
        let endpoint = [daddr(id.family), th_dport()].map(Field::from);
        Self {
            id: id.clone(),
            word,
            backends: Set::map(id.clone(), name(backends), slot, endpoint)
                .with_comment(comment("endpoints by slot")),
            dispatch: Set::verdict_map(id.clone(), name(dispatch), fields(&types))
                .with_comment(comment("how to choose among so many endpoints")),
            affinity: affinity.clone(),
            few: Vec::new(),
            lbs: [const { OnceLock::new() }; 128],
            key,
        }
    }

    /// Returns the set of the addresses with so many slots, if there is one.
    pub(super) fn few_slots(&self, slots: u32) -> Option<&Set> {
        let place = slots.checked_sub(1)?;
        self.few.get(usize::try_from(place).ok()?)
    }

    /// Returns the chain that chooses among so many slots.
    pub(super) fn lb(&self, slots: u32) -> Chain {
        let make = || port::lb(self, slots);
        match self.lbs.get(slots as usize) {
            Some(lb) => lb.get_or_init(make).clone(),
            None => make(),
        }
    }

    /// Returns what Services are found by: `ip daddr . meta l4proto . th dport`.
    pub(super) fn key(&self) -> Selector {
        concat(self.key.iter().cloned())
    }

    /// Returns the key and another field after it.
    pub(super) fn key_and(&self, field: Selector) -> Selector {
        concat(self.key.iter().cloned().chain([field]))
    }

    /// Returns the client's address and the key.
    pub(super) fn client_and_key(&self) -> Selector {
        let client = [saddr(self.id.family)].into_iter();
        concat(client.chain(self.key.iter().cloned()))
    }
}

impl Affinity {
    fn of_ips(id: &TableId, addr: Datatype) -> Self {
        let key = [addr, Datatype::InetProto, Datatype::InetService];
        let names = [
            names::AFFINITY,
            names::AFFINITY_ENDPOINTS,
            names::AFFINITY_IPS,
        ];
        Self::new(id, "", addr, &key, names)
    }

    fn of_nodeports(id: &TableId, addr: Datatype) -> Self {
        let key = [Datatype::InetProto, Datatype::InetService];
        let names = [
            names::AFFINITY_NODEPORTS,
            names::AFFINITY_NODEPORT_ENDPOINTS,
            names::AFFINITY_NODEPORT_PORTS,
        ];
        Self::new(id, "nodeport-", addr, &key, names)
    }

    fn new(
        id: &TableId,
        word: &'static str,
        addr: Datatype,
        key: &[Datatype],
        [clients, endpoints, learners]: [&'static str; 3],
    ) -> Self {
        let endpoint = [addr, Datatype::InetService];
        let client = [&[addr][..], key].concat();
        let flags = SetFlags::DYNAMIC | SetFlags::TIMEOUT;
        Self {
            word,
            of_ips: key.len() > 2,
            clients: Set::map(
                id.clone(),
                name(clients),
                fields(&client),
                fields(&endpoint),
            )
            .with_flags(flags)
            .with_size(CLIENTS)
            .with_comment(comment("endpoints that clients stay with")),
            endpoints: Set::set(
                id.clone(),
                name(endpoints),
                fields(&[key, &endpoint].concat()),
            )
            .with_comment(comment("endpoints that may be remembered")),
            learners: Set::verdict_map(id.clone(), name(learners), fields(key))
                .with_comment(comment("for how long clients stay with their endpoints")),
        }
    }

    fn sets(&self) -> [&Set; 3] {
        [&self.clients, &self.endpoints, &self.learners]
    }
}

fn fields(types: &[Datatype]) -> Vec<Field> {
    types.iter().map(|&datatype| datatype.into()).collect()
}

/// Returns what Services are found by: `ip daddr . meta l4proto . th dport`.
fn vip_port(family: Family) -> [Selector; 3] {
    [daddr(family), l4proto(), th_dport()]
}

/// Returns what node ports are found by: `meta l4proto . th dport`.
fn nodeport() -> [Selector; 2] {
    [l4proto(), th_dport()]
}
