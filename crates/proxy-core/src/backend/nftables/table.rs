//! The table and the sets in it.

use std::sync::{LazyLock, OnceLock};

use vipline_nftables::expression::{
    Expression, concat, daddr, l4proto, numgen_random, saddr, th_dport,
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
    pub(super) nodeport_networks: Set,
    /// `endpoint . endpoint . protocol . port` of the endpoints on this node.
    pub(super) hairpin_endpoints: Set,
    /// `VIP . protocol . port` that not everybody may use.
    pub(super) restricted_ips: Set,
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
    pub(super) key: Vec<Expression>,
    /// The key and a slot, to an endpoint and its port.
    pub(super) backends: Set,
    /// The key, to the chain for so many slots.
    pub(super) dispatch: Set,
    /// The keys of addresses with one slot, with two, and so on, which are not
    /// in the map.
    pub(super) few: Vec<Set>,
    /// The key, to the chain that records the endpoints of clients.
    pub(super) learners: Set,
    /// The chains for few slots, by their number, once they are asked for.
    lbs: [OnceLock<Chain>; 128],
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

    /// Returns the table with that ID.
    pub(super) fn of_id(id: &TableId) -> Option<&'static Self> {
        let families = [service_model::Family::V4, service_model::Family::V6];
        families.map(Self::of).into_iter().find(|it| it.id == *id)
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
        let of_ips = learners(&id, names::STICKY_IPS, &vip);
        let of_nodeports = learners(&id, names::STICKY_NODEPORTS, &nodeport);
        Self {
            ips: Way {
                few: few.collect(),
                ..Way::of_ips(&id, "", [names::BACKENDS, names::DISPATCH_IPS], &of_ips)
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
                [names::NODEPORT_BACKENDS, names::DISPATCH_NODEPORTS],
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
            cluster_ips: set(names::ACTIVE_CLUSTER_IPS, &[addr], "Active ClusterIPs"),
            service_cidrs: set(names::SERVICE_CIDRS, &[addr], "networks of ClusterIPs")
                .with_flags(SetFlags::INTERVAL),
            nodeport_networks: set(
                names::NODEPORT_NETWORKS,
                &[addr],
                "IPs that accept NodePort traffic",
            )
            .with_flags(SetFlags::INTERVAL),
            hairpin_endpoints: set(
                names::HAIRPIN_ENDPOINTS,
                &[addr, addr, Datatype::InetProto, Datatype::InetService],
                "service hairpin connections",
            ),
            restricted_ips: set(
                names::RESTRICTED_IPS,
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
        let learners = [&self.ips.learners, &self.nodeports.learners];
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
            &self.nodeport_networks,
            &self.hairpin_endpoints,
            &self.restricted_ips,
            &self.source_ranges,
        ];
        let sets = self.ips.few.iter().chain(of_ways);
        let sets = sets.chain(learners).chain(plain);
        let sets: Vec<_> = sets.cloned().map(Object::from).collect();
        [Object::from(table)].into_iter().chain(sets)
    }

    pub(super) fn family(&self) -> Family {
        self.id.family
    }

    /// Returns the type of addresses.
    pub(super) fn addr(&self) -> Datatype {
        match self.id.family {
            Family::Ip6 => Datatype::Ipv6Addr,
            _ => Datatype::Ipv4Addr,
        }
    }
}

impl Way {
    fn of_ips(id: &TableId, word: &'static str, maps: [&'static str; 2], of: &Set) -> Self {
        Self::new(id, word, vip_port(id.family).to_vec(), maps, of)
    }

    fn of_nodeports(id: &TableId, word: &'static str, maps: [&'static str; 2], of: &Set) -> Self {
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
        key: Vec<Expression>,
        [backends, dispatch]: [&'static str; 2],
        learners: &Set,
    ) -> Self {
        let types: Vec<_> = key.iter().map(Expression::datatype).collect();
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
            learners: learners.clone(),
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

    /// Returns the table of the way.
    pub(super) fn table(&self) -> &'static Table {
        Table::of_id(&self.id).expect("ways are in one of the two tables")
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
    pub(super) fn key(&self) -> Expression {
        concat(self.key.iter().cloned())
    }

    /// Returns the key and another field after it.
    pub(super) fn key_and(&self, field: Expression) -> Expression {
        concat(self.key.iter().cloned().chain([field]))
    }

    /// Returns the client's address and the key.
    pub(super) fn client_and_key(&self) -> Expression {
        let client = [saddr(self.id.family)].into_iter();
        concat(client.chain(self.key.iter().cloned()))
    }
}

pub(super) fn fields(types: &[Datatype]) -> Vec<Field> {
    types.iter().map(|&datatype| datatype.into()).collect()
}

/// Returns the map of addresses whose clients are recorded.
fn learners(id: &TableId, text: &'static str, key: &[Datatype]) -> Set {
    Set::verdict_map(id.clone(), name(text), fields(key))
        .with_comment(comment("for how long clients stay with their endpoints"))
}

/// Returns what Services are found by: `ip daddr . meta l4proto . th dport`.
fn vip_port(family: Family) -> [Expression; 3] {
    [daddr(family), l4proto(), th_dport()]
}

/// Returns what node ports are found by: `meta l4proto . th dport`.
fn nodeport() -> [Expression; 2] {
    [l4proto(), th_dport()]
}
