//! The nf_tables table and its sets.
//!
//! An element is encoded by the key fields of its set, and a rule refers to a set by its name. Both
//! take the set from here, so they cannot disagree. There is one table for each family, made once.
//!
//! The sets that lead from an address to an endpoint are a [`LookupPath`]. In path `ips`, an
//! address with at most [`MAX_DIRECT`] slots is in one map. Any other, and each one in other
//! paths, is in two:
//!
//! ```text
//! backends-2    { 10.96.0.10 . tcp . 80 . 0 : 10.1.0.1 . 8080, 10.96.0.10 . tcp . 80 . 1 : … }
//!
//! dispatch-ips  { 10.96.0.11 . tcp . 80 : goto lb-8 }
//! backends      { 10.96.0.11 . tcp . 80 . 0 : 10.1.0.9 . 8080, … eight slots }
//! ```
//!
//! What must stay true: a set never gets another type, flag or size under its name. The kernel
//! cannot change them, so a start after an upgrade would have to write all rules again
//! (`takeover.rs`); a new name is cheaper. And an address is in the maps of one number of slots
//! only: packets take the first that has it.

use std::net::IpAddr;
use std::sync::{LazyLock, OnceLock};

use ipnet::IpNet;
use vipline_nftables::expr::CtKey;
use vipline_nftables::expression::{
    Expression, concat, ct_original, ct_original_daddr, daddr, l4proto, numgen_random, priority,
    saddr, th_dport,
};
use vipline_nftables::statement::{Statement, dnat, jump};
use vipline_nftables::{
    Chain, Datatype, Family, Field, Name, Object, Rule, Set, SetFlags, TableId, Value,
};
use vipline_service_model::{self as service_model, Transport};

use super::affinity::SHARDS;
use super::names::{self, comment, name};

/// Maximum number of slots of an address whose endpoints are found directly, in a map for
/// its number of slots. Other addresses have more slots.
///
/// Packets to such an address cost lookups in the maps for fewer slots. In return, they
/// need no lookup in a verdict map, and a change of the number of endpoints does not make
/// the kernel validate one. Few addresses have more slots.
pub(super) const MAX_DIRECT: u32 = 6;

/// Number of low bits of an address that its [network](Table::network) does not contain: a network
/// has 4,096 addresses.
const HOST_BITS: u8 = 12;

/// The table of a family and its sets. Created once and shared.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) id: TableId,
    /// Path to the endpoints that the traffic policies select.
    pub(super) ips: LookupPath,
    /// Path to all endpoints, for clients inside the cluster.
    pub(super) short_ips: LookupPath,
    /// Same as `ips`, for node ports.
    pub(super) nodeports: LookupPath,
    /// Same as `nodeports`, with the same sets, for traffic that is masqueraded.
    pub(super) masquerade_nodeports: LookupPath,
    /// Same as `short_ips`, for node ports.
    pub(super) short_nodeports: LookupPath,
    /// `VIP . protocol . port` of Services without endpoints.
    pub(super) no_endpoints: Set,
    /// `VIP . protocol . port` of Services with endpoints, of which the policy allows
    /// none.
    pub(super) no_local_endpoints: Set,
    /// `protocol . port` of Services without endpoints.
    pub(super) no_endpoints_nodeports: Set,
    /// `protocol . port` of Services with endpoints, of which the policy allows none.
    pub(super) no_local_endpoints_nodeports: Set,
    /// `VIP . protocol . port` whose traffic is masqueraded.
    pub(super) masquerade_ips: Set,
    /// `VIP . protocol . port` with external traffic policy Local.
    pub(super) local_policy_ips: Set,
    /// `protocol . port` with external traffic policy Local.
    pub(super) local_policy_nodeports: Set,
    /// Networks of the addresses of Services, see [`Table::network`].
    pub(super) service_networks: Set,
    /// Networks of the external addresses of Services, see [`Table::network`].
    pub(super) external_networks: Set,
    /// Protocols of service ports with session affinity.
    pub(super) sticky_protocols: Set,
    /// Protocols of node ports with session affinity.
    pub(super) sticky_nodeport_protocols: Set,
    /// Cluster IPs in use.
    pub(super) cluster_ips: Set,
    /// Networks from which cluster IPs are allocated.
    pub(super) service_cidrs: Set,
    /// Networks of the addresses on which node ports are served.
    pub(super) nodeport_networks: Set,
    /// `endpoint . endpoint . protocol . port` of endpoints on this node.
    pub(super) hairpin_endpoints: Set,
    /// `VIP . protocol . port` with source ranges.
    pub(super) restricted_ips: Set,
    /// `VIP . protocol . port . network` of allowed sources.
    pub(super) source_ranges: Set,
    /// Verdict map of a shard to the chain that looks up its clients.
    pub(super) recalls: Set,
    /// Verdict map of a shard to the chain that deletes a client.
    pub(super) forgets: Set,
    /// Verdict map of a shard to the chain that records clients in the usual way.
    pub(super) usual_learners: Set,
    /// Verdict map of the number of a learner to the chain that records clients.
    pub(super) of_learners: Set,
    /// Same as `of_learners`, for node ports.
    pub(super) of_nodeport_learners: Set,
    /// The map of clients of each shard with its chains and verdicts, created on first use.
    pub(super) shards: [OnceLock<[Object; 5]>; SHARDS as usize],
    /// The chain that records clients in the usual way, and the verdict that leads to it, by
    /// shard, created on first use.
    pub(super) of_usual_learners: [OnceLock<[Object; 2]>; SHARDS as usize],
}

/// A lookup path from the address that clients connect to, to an endpoint.
#[derive(Debug)]
pub(super) struct LookupPath {
    /// The table.
    pub(super) id: TableId,
    /// Infix of chain names, such as `""` or `"short-nodeport-"`.
    pub(super) infix: &'static str,
    /// Whether the chains mark packets for masquerading.
    pub(super) marks: bool,
    /// Whether the path leads clients inside the cluster to all endpoints.
    pub(super) is_short: bool,
    /// Fields by which Services are looked up.
    pub(super) key: Vec<Expression>,
    /// Map of key and slot to endpoint and port, for keys in `dispatch`.
    pub(super) backends: Set,
    /// Verdict map of the key to the chain for its number of slots.
    pub(super) dispatch: Set,
    /// Maps of key and slot to endpoint and port, for keys with one slot, two slots, and
    /// so on. These keys are not in `dispatch`.
    pub(super) direct: Vec<Set>,
    /// Map of the key to the pool of a service port with session affinity.
    pub(super) pools: Set,
    /// Map of the key to the number of a [`Learner`](names::Learner).
    pub(super) learners: Set,
    /// Map of the key and the token of an endpoint to the endpoint and its port.
    pub(super) recorded: Set,
    /// Load-balancing chains by number of slots, created on first use. Chains for 128 and more
    /// slots are created at each use: few addresses have so many, and the number may come from
    /// the name of an installed chain.
    lbs: [OnceLock<Chain>; 128],
}

impl Table {
    /// Returns the table of a family.
    pub(crate) fn of(family: service_model::Family) -> &'static Self {
        static V4: LazyLock<Table> = LazyLock::new(|| Table::new(Family::Ip, Datatype::Ipv4Addr));
        static V6: LazyLock<Table> = LazyLock::new(|| Table::new(Family::Ip6, Datatype::Ipv6Addr));
        match family {
            service_model::Family::V4 => &V4,
            service_model::Family::V6 => &V6,
        }
    }

    /// Returns the table with an ID, if it is the table of a family.
    pub(super) fn of_id(id: &TableId) -> Option<&'static Self> {
        service_model::Family::ALL
            .map(Self::of)
            .into_iter()
            .find(|table| table.id == *id)
    }

    fn new(family: Family, addr: Datatype) -> Self {
        let id = TableId::new(family, name(names::TABLE));
        let nodeport = [Datatype::InetProto, Datatype::InetService];
        let vip = [addr, Datatype::InetProto, Datatype::InetService];
        let set = |text, key: &[Datatype], words| {
            Set::new(id.clone(), name(text), key).with_comment(comment(words))
        };
        let no_endpoints = "services without endpoints";
        let no_local_endpoints = "services without endpoints that their policy allows";
        let masquerade = "traffic that gets the address of the node";
        let local = "traffic from outside that stays on the node";
        let networks = "networks with external addresses of Services";
        let protocol = [Datatype::InetProto];
        let sticky = "protocols with session affinity";
        let of_node = "protocols of node ports with session affinity";
        let restricted = "destinations that are subject to LoadBalancerSourceRanges";
        let numbers = |text, key: &[Datatype], words| {
            Set::map(id.clone(), name(text), key, Datatype::Classid).with_comment(comment(words))
        };
        let pools = "numbers of service ports with session affinity";
        let learners = "for how long clients stay with their endpoints";
        let of_ips = [
            numbers(names::POOL_IPS, &vip, pools),
            numbers(names::LEARNER_IPS, &vip, learners),
        ];
        let of_nodeports = [
            numbers(names::POOL_NODEPORTS, &nodeport, pools),
            numbers(names::LEARNER_NODEPORTS, &nodeport, learners),
        ];
        let verdicts = |text, words| {
            Set::verdict_map(id.clone(), name(text), Datatype::Classid).with_comment(comment(words))
        };
        // The kernel has a hash table for a known number of keys of 32 bits, which costs a packet
        // 50 ns less than that for any number (6.18).
        let of_shards = |text, words| verdicts(text, words).with_size(SHARDS);
        let external = |infix| {
            let maps = [
                names::NODEPORT_BACKENDS,
                names::DISPATCH_NODEPORTS,
                names::NODEPORT_RECORDED,
            ];
            LookupPath::of_nodeports(&id, infix, maps, &of_nodeports)
        };
        Self {
            ips: LookupPath::of_ips(
                &id,
                "",
                [names::BACKENDS, names::DISPATCH_IPS, names::RECORDED],
                &of_ips,
            )
            .with_direct(),
            short_ips: LookupPath::of_ips(
                &id,
                "short-",
                [
                    names::SHORT_BACKENDS,
                    names::SHORT_IPS,
                    names::SHORT_RECORDED,
                ],
                &of_ips,
            ),
            nodeports: external("nodeport-"),
            masquerade_nodeports: external("masquerade-nodeport-").with_marks(),
            short_nodeports: LookupPath::of_nodeports(
                &id,
                "short-nodeport-",
                [
                    names::SHORT_NODEPORT_BACKENDS,
                    names::SHORT_NODEPORTS,
                    names::SHORT_NODEPORT_RECORDED,
                ],
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
            local_policy_ips: set(names::LOCAL_POLICY_IPS, &vip, local),
            local_policy_nodeports: set(names::LOCAL_POLICY_NODEPORTS, &nodeport, local),
            service_networks: set(names::SERVICE_NETWORKS, &[addr], "networks with Services"),
            external_networks: set(names::EXTERNAL_NETWORKS, &[addr], networks),
            sticky_protocols: set(names::STICKY_PROTOCOLS, &protocol, sticky),
            sticky_nodeport_protocols: set(names::STICKY_NODEPORT_PROTOCOLS, &protocol, of_node),
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
            restricted_ips: set(names::RESTRICTED_IPS, &vip, restricted),
            source_ranges: set(
                names::SOURCE_RANGES,
                &[addr, Datatype::InetProto, Datatype::InetService, addr],
                "LoadBalancerSourceRanges",
            )
            .with_flags(SetFlags::INTERVAL),
            recalls: of_shards(names::RECALLS, "where clients are looked up"),
            forgets: of_shards(names::FORGETS, "where clients are deleted"),
            usual_learners: of_shards(names::USUAL_LEARNERS, "where clients are recorded"),
            of_learners: verdicts(
                names::LEARNERS,
                "where clients are recorded for another time",
            ),
            of_nodeport_learners: verdicts(
                names::NODEPORT_LEARNERS,
                "where clients of node ports are recorded",
            ),
            shards: [const { OnceLock::new() }; SHARDS as usize],
            of_usual_learners: [const { OnceLock::new() }; SHARDS as usize],
            id,
        }
    }

    /// Returns all lookup paths.
    pub(super) fn paths(&self) -> [&LookupPath; 5] {
        let [ips, short_ips, nodeports, short_nodeports] = self.paths_with_own_sets();
        [
            ips,
            short_ips,
            nodeports,
            &self.masquerade_nodeports,
            short_nodeports,
        ]
    }

    /// Returns the lookup paths without those that use the sets of another path, to have each set
    /// once.
    pub(super) fn paths_with_own_sets(&self) -> [&LookupPath; 4] {
        [
            &self.ips,
            &self.short_ips,
            &self.nodeports,
            &self.short_nodeports,
        ]
    }

    /// Returns the table and its sets as objects.
    pub(super) fn objects(&self) -> impl Iterator<Item = Object> {
        let table = vipline_nftables::Table::new(self.id.clone())
            .with_comment(comment("rules for kube-proxy"));
        let of_paths = self
            .paths_with_own_sets()
            .into_iter()
            .flat_map(|path| [&path.backends, &path.dispatch, &path.recorded]);
        // Short paths have the same of these: a client is recorded alike for both.
        let of_affinity = [&self.ips, &self.nodeports]
            .into_iter()
            .flat_map(|path| [&path.pools, &path.learners]);
        let plain = [
            &self.no_endpoints,
            &self.no_local_endpoints,
            &self.no_endpoints_nodeports,
            &self.no_local_endpoints_nodeports,
            &self.masquerade_ips,
            &self.local_policy_ips,
            &self.local_policy_nodeports,
            &self.service_networks,
            &self.external_networks,
            &self.sticky_protocols,
            &self.sticky_nodeport_protocols,
            &self.cluster_ips,
            &self.service_cidrs,
            &self.nodeport_networks,
            &self.hairpin_endpoints,
            &self.restricted_ips,
            &self.source_ranges,
            &self.recalls,
            &self.forgets,
            &self.usual_learners,
            &self.of_learners,
            &self.of_nodeport_learners,
        ];
        let sets = self.ips.direct.iter().chain(of_paths);
        let sets = sets.chain(of_affinity).chain(plain);
        let sets: Vec<_> = sets.cloned().map(Object::from).collect();
        [Object::from(table)].into_iter().chain(sets)
    }

    pub(super) fn family(&self) -> Family {
        self.id.family
    }

    /// Returns the network of an address by which packets are preselected.
    ///
    /// A network has 4,096 addresses. Service addresses are close to each other, so they
    /// have few networks. The networks of most other packets contain no Service.
    pub(super) fn network(addr: IpAddr) -> IpAddr {
        let width = if addr.is_ipv4() { 32 } else { 128 };
        let network = IpNet::new(addr, width - HOST_BITS);
        network
            .expect("the length is that of an address")
            .trunc()
            .addr()
    }

    /// Returns the match for destinations in one of the `networks`:
    /// `ip daddr & 255.255.240.0 == @service-networks`.
    pub(super) fn to_network(&self, networks: &Set) -> Statement {
        let daddr = daddr(self.family());
        let width = if self.family() == Family::Ip6 {
            128
        } else {
            32
        };
        daddr.prefix(width - HOST_BITS).in_set(networks)
    }

    /// Returns the data type of addresses.
    pub(super) fn addr(&self) -> Datatype {
        match self.id.family {
            Family::Ip6 => Datatype::Ipv6Addr,
            // IPv4: there are no other tables.
            _ => Datatype::Ipv4Addr,
        }
    }
}

impl LookupPath {
    fn of_ips(id: &TableId, infix: &'static str, maps: [&'static str; 3], of: &[Set; 2]) -> Self {
        Self::new(id, infix, vip_port(id.family), maps, of)
    }

    fn of_nodeports(
        id: &TableId,
        infix: &'static str,
        maps: [&'static str; 3],
        of: &[Set; 2],
    ) -> Self {
        Self::new(id, infix, nodeport(), maps, of)
    }

    /// Creates the maps of a lookup path.
    ///
    /// The port of the endpoint is a `th dport`. From `tcp dport` nft concludes that
    /// rules with the map are for TCP only. As a consequence, nft 1.0.6 loads rules only
    /// together with the map, and refuses to add a rule for an existing map. Netlink has
    /// no such restriction.
    fn new(
        id: &TableId,
        infix: &'static str,
        key: Vec<Expression>,
        [backends, dispatch, recorded]: [&'static str; 3],
        [pools, learners]: &[Set; 2],
    ) -> Self {
        let types: Vec<_> = key.iter().map(Expression::datatype).collect();
        Self {
            id: id.clone(),
            infix,
            marks: false,
            is_short: infix.starts_with("short-"),
            // The last field gets the type of this expression. Rules have their own modulus, see
            // `to_slot`.
            backends: endpoints_of(id, name(backends), &key, Some(numgen_random(2)))
                .with_comment(comment("endpoints by slot")),
            recorded: endpoints_of(id, name(recorded), &key, Some(priority()))
                .with_comment(comment("endpoints by token")),
            pools: pools.clone(),
            dispatch: Set::verdict_map(id.clone(), name(dispatch), types.clone())
                .with_comment(comment("how to choose among so many endpoints")),
            learners: learners.clone(),
            direct: Vec::new(),
            lbs: [const { OnceLock::new() }; 128],
            key,
        }
    }

    /// Makes the chains mark packets for masquerading.
    fn with_marks(self) -> Self {
        Self {
            marks: true,
            ..self
        }
    }

    /// Returns the first rule of the path's chains, if they mark packets.
    pub(super) fn mark(&self) -> Option<Rule> {
        let mark = || jump(&name(names::MARK_FOR_MASQUERADE));
        self.marks.then(|| rule(self.id.family, [mark()]))
    }

    /// Adds the maps of keys that are not in `dispatch`.
    fn with_direct(mut self) -> Self {
        let maps = (1..=MAX_DIRECT).map(|slots| {
            let slot = (slots > 1).then(|| numgen_random(2));
            let words = match slots {
                1 => "single endpoints",
                _ => "endpoints by slot",
            };
            endpoints_of(&self.id, names::direct(slots), &self.key, slot)
                .with_comment(comment(words))
        });
        self.direct = maps.collect();
        self
    }

    /// Returns the map of keys with `slots` slots that are not in `dispatch`, if it exists.
    pub(super) fn direct(&self, slots: u32) -> Option<&Set> {
        let place = slots.checked_sub(1)?;
        self.direct.get(usize::try_from(place).ok()?)
    }

    /// Returns the table of the lookup path.
    pub(super) fn table(&self) -> &'static Table {
        Table::of_id(&self.id).expect("a path belongs to one of the two tables")
    }

    /// Returns the chain that selects one of `slots` slots.
    pub(super) fn lb(&self, slots: u32) -> Chain {
        let make = || lb(self, slots);
        // A clone shares the rules.
        match self.lbs.get(slots as usize) {
            Some(lb) => lb.get_or_init(make).clone(),
            None => make(),
        }
    }

    /// Returns the lookup key of Services: `ip daddr . meta l4proto . th dport`.
    pub(super) fn key(&self) -> Expression {
        concat(self.key.clone())
    }

    /// Returns the lookup key, followed by another field.
    pub(super) fn key_and<T>(&self, field: Expression<T>) -> Expression {
        let key = self.key.iter().cloned();
        concat(key.chain([field.untyped()]).collect::<Vec<_>>())
    }

    /// Returns the client's address, followed by the lookup key.
    pub(super) fn client_and_key(&self) -> Expression {
        let client = [saddr(self.id.family).untyped()].into_iter();
        concat(client.chain(self.key.iter().cloned()).collect::<Vec<_>>())
    }

    /// Returns the statement that sends a key in the map `backends` to one of its `slots` slots.
    /// Other keys continue with the next rule.
    ///
    /// The map for one slot has no slot in its key: every packet to a Service with few endpoints
    /// looks there first, and without the random number a new flow to one endpoint costs 1.5 to
    /// 3 % less (6.18).
    pub(super) fn to_slot(&self, slots: u32, backends: &Set) -> Statement {
        let has_slots = backends.key.len() > self.key.len();
        let key = if has_slots {
            self.key_and(numgen_random(slots))
        } else {
            self.key()
        };
        dnat(key.map(backends))
    }

    /// Returns whether Services are looked up by node port.
    pub(super) fn is_of_nodeports(&self) -> bool {
        // Protocol and port, without an address.
        self.key.len() == 2
    }

    /// Returns the statement that looks up a number of the Service and keeps it in the
    /// priority of the packet: `meta priority set ip daddr . meta l4proto . th dport map
    /// @pool-ips`. Packets to other destinations continue with the next rule.
    pub(super) fn to_number(&self, numbers: &Set) -> Statement {
        priority().set(&self.key().map(numbers))
    }

    /// Returns the same for a translated packet, by its original destination.
    pub(super) fn to_number_of_original(&self, numbers: &Set) -> [Statement; 2] {
        let addr = (!self.is_of_nodeports()).then(|| ct_original_daddr(self.id.family).untyped());
        let port = [l4proto().untyped(), ct_original(CtKey::ProtoDst)];
        let key = concat(addr.into_iter().chain(port).collect::<Vec<_>>());
        [has_ports(), priority().set(&key.map(numbers))]
    }
}

/// Returns the protocol match that nft requires before `proto-dst`.
fn has_ports() -> Statement {
    l4proto().is_in(Transport::ALL.map(Transport::number))
}

/// ```nft
/// dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @backends
/// jump mark-for-masquerade
/// dnat ip to meta l4proto . th dport . numgen random mod 2 map @nodeport-backends
/// ```
///
/// Selects a random slot and maps it to an endpoint. All addresses with the same number
/// of endpoints share the chain, and all node ports that are masqueraded, and all others.
fn lb(path: &LookupPath, slots: u32) -> Chain {
    let rule = rule(path.id.family, [path.to_slot(slots, &path.backends)]);
    let rules = path.mark().into_iter().chain([rule]);
    Chain::new(path.id.clone(), names::lb(path.infix, slots)).with_rules(rules)
}

/// Returns a map of a key, and a slot or the token of an endpoint, to the endpoint and its port.
fn endpoints_of(
    id: &TableId,
    name: Name,
    key: &[Expression],
    last: Option<Expression<u32>>,
) -> Set {
    let key = key.iter().cloned().map(Field::from);
    let key: Vec<_> = key.chain(last.map(Field::from)).collect();
    let endpoint = concat((daddr(id.family), th_dport())).into_fields();
    Set::map(id.clone(), name, key, endpoint)
}

/// Returns a rule. All statements of a plan compare expressions with values of their types:
/// a context has the addresses of its family only.
pub(super) fn rule(family: Family, statements: impl IntoIterator<Item = Statement>) -> Rule {
    Rule::new(family, statements).expect("expressions are compared with values of their types")
}

/// Returns an element with this key.
pub(super) fn element(set: &Set, key: &[Value]) -> Object {
    let element = set.element(key);
    element
        .expect("the values have the types of the set")
        .into()
}

/// Returns the lookup key of addresses: `ip daddr . meta l4proto . th dport`.
fn vip_port(family: Family) -> Vec<Expression> {
    let [proto, port] = [l4proto().untyped(), th_dport().untyped()];
    vec![daddr(family).untyped(), proto, port]
}

/// Returns the lookup key of node ports: `meta l4proto . th dport`.
fn nodeport() -> Vec<Expression> {
    vec![l4proto().untyped(), th_dport().untyped()]
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_documented;
    use super::*;

    #[test]
    fn a_load_balancing_chain_matches_its_documentation() {
        let table = Table::of(service_model::Family::V4);
        let paths = [&table.ips, &table.masquerade_nodeports];
        let chains = paths.map(|path| path.lb(2));
        let rules = chains.iter().flat_map(|lb| lb.rules.iter());
        let rules = rules.map(Rule::to_string).collect();
        assert_documented(include_str!("table.rs"), &[("lb", rules)]);
    }
}
