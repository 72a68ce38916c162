//! Mode nftables: constant rules, and Services as elements of shared maps.
//!
//! One table per family: `ip kube-proxy` and `ip6 kube-proxy`. Its base rules do not
//! depend on Services, which exist only as elements. So a change of an endpoint is a
//! change of an element.
//!
//! Path of a packet:
//!
//! ```text
//! from outside ─► filter-prerouting-pre-dnat     filter-output-pre-dnat ◄─ from a process of this node
//!                   └ @external-networks ─► firewall-check ◄─┘               new connections only
//!                                @restricted-ips … != @source-ranges drop      source_ranges
//!                            (these base chains exist while a Service has source ranges)
//!                 nat-prerouting ─┐                    ┌─ nat-output
//!                                 ├─► services, for @service-networks            to_services
//!                                 │     mark for masquerading               masquerade_cluster_ips
//!                                 │     ├─► external-ips, for @external-networks   to_external_ips
//!                                 │     │     mark for masquerading         masquerade_external
//!                                 │     │     └─► short-circuit, for @local-policy-ips   to_short_circuit
//!                                 │     │           from pods: vmap @short-ips         short_circuit
//!                                 │     │           from the node: mark, vmap @short-ips ──► lb-short-N
//!                                 │     ├► affinity, for @pool-ips               to_affinity
//!                                 │     │    vmap @recalls ─► recall-K: map @clients-K    recall
//!                                 │     │    dnat to … map @recorded             recorded_endpoint
//!                                 │     │    vmap @forgets ─► forget-K, for removed endpoints    forget
//!                                 │     │    dnat to … map @backends-N, N up to 6, for new clients
//!                                 │     │ vmap @dispatch-ips                     dispatch
//!                                 │     │ dnat to … map @backends-N, N up to 6     direct
//!                                 └─► nodeports, for addresses of the node       to_nodeports
//!                                       the same, by port only ──► lb-nodeport-N, lb-short-nodeport-N
//!                                       mark for masquerading ───► lb-masquerade-nodeport-N
//!                                 ▼
//!                               lb-N      one chain per higher number of slots
//!                                 │ dnat to … numgen random mod N map @backends      lb
//!                                 ▼
//!                    routing to the endpoint
//!                                 │
//!        ┌────────────────────────┼───────────────────────┐
//!        ▼                        ▼                       ▼
//!   filter-input           filter-forward           filter-output     new connections only
//!        ├► nodeport-endpoints-check (for addresses of the node)
//!        │    @no-endpoints-nodeports reject             no_endpoints
//!        │    @no-local-endpoints-nodeports drop         no_local_endpoints
//!        ├► service-endpoints-check, for @service-networks
//!        │                        │
//!        │   not translated: cluster-ips-check (forward and output)
//!        │          ├► service-ips-check, for @service-networks
//!        │          │    ├► service-endpoints-check
//!        │          │    │    @no-endpoints reject          no_endpoints
//!        │          │    │    @no-local-endpoints drop      no_local_endpoints
//!        │          │    @active-cluster-ips reject         unused_ports
//!        │          @service-cidrs drop                     unused_cluster_ips
//!        │                        │
//!        │   translated: translated (forward and output)
//!        │          ├► cluster-ips-check, for @service-cidrs   cluster_ip_endpoints
//!        ├──────────┴► affinity-learning                    learners
//!        │               @sticky-protocols, @pool-ips; the same for node ports
//!        │               └─► learning: vmap @usual-learners, vmap @learners    to_chain_of_learner
//!        │                     learn-T-K: update @clients-K     learn
//!        └────────────────────────┐
//!                                 ▼
//!                    nat-postrouting ─► masquerading
//!                                         marked: masquerade          masquerade_marked
//!                                         @hairpin-endpoints          hairpin
//! ```
//!
//! Elements of a Service. V is `VIP . proto . port`. Node ports have separate sets with
//! keys `proto . port`.
//!
//! | Part of a Service | Element | Function |
//! |---|---|---|
//! | cluster IP | `active-cluster-ips { VIP }` | `active` |
//! | | by the internal traffic policy | `cluster_ip` |
//! | external IP, load balancer IP | like the cluster IP, by the external traffic policy | `external_ip` |
//! | node port | `dispatch-nodeports { proto . port : goto lb-masquerade-nodeport-N }` | `node_port` |
//! | each address | `service-networks { network }` | `networks` |
//! | external IP, load balancer IP | `external-networks { network }` | `networks` |
//! | each of N endpoints | `backends-N { V . slot : endpoint . port }`, a single one `single-backends { V : endpoint . port }` | `backends` |
//! | more than 6 endpoints | `dispatch-ips { V : goto lb-N }`, `backends` for `backends-N` | `balance` |
//! | external policy Cluster | `masquerade-ips { V }`; not for node ports | `masquerade` |
//! | external policy Local | `local-policy-ips { V }`, `short-ips`, `short-backends` | `short_circuit` |
//! | source ranges | `restricted-ips { V }`, `source-ranges { V . network }` | `source_ranges` |
//! | | base chains before DNAT | `chains_before_dnat` |
//! | session affinity | `pool-ips { V : pool and more }`, unless usual `learner-ips { V : learner }` | `number` |
//! | each endpoint, with session affinity | `recorded { V . token : endpoint . port }` | `recorded` |
//! | session affinity, for all Services | `recalls { K : jump recall-K }`, `forgets { K : jump forget-K }`, `usual-learners { K : goto learn-10800-K }`, `learners { learner : goto learn-T-K }` | `verdict` |
//! | | `sticky-protocols { proto }`, `sticky-nodeport-protocols { proto }` | `protocol` |
//! | each local endpoint | `hairpin-endpoints { ip . ip . proto . port }` | `hairpin` |
//! | no endpoints | `no-endpoints { V }` | `no_endpoints` |
//! | no local endpoints | `no-local-endpoints { V }` | `no_local_endpoints` |
//!
//! # Session affinity
//!
//! The clients of all Services are in 64 maps, `clients-0` to `clients-63`. The pool of a
//! service port, a hash of its name, selects the map, and is a part of the key. So all
//! addresses and the node port share the clients, and a Service with so many clients that its
//! map is full affects one other Service in 64. Addresses that use local endpoints only have
//! clients of their own. Timeouts belong to chains: `learn-10800-12` records clients in
//! `clients-12` for three hours.
//!
//! What must not grow with the number of Services is the number of sets, chains and verdicts.
//! The kernel (6.18) walks the list of all sets of a table for each message that names a set,
//! and validates all verdicts of all maps at each commit that adds one. With two sets, two
//! chains and two verdicts per Service, as before, 10,000 Services took 51 s of system time,
//! and their removal 82 s. With elements of plain maps only, they take 0.5 s and 0.3 s; twice
//! the time of Services without affinity, because they have twice as many elements.
//!
//! Such an element cannot choose a chain, so its data must become a part of the next key. The
//! kernel does that in registers, but nft 1.0.6 of Debian 12 aborts when it lists a lookup
//! whose key contains the result of another one. Its language has only one way to write that:
//! a statement stores the result, and an expression loads it. `plan/affinity.rs` says why the
//! place is the priority of the packet, and why a record can be wrong without harm.
//!
//! These were tried as well: `jhash … map @m` has a syntax, but nft 1.0.6 computes a length of
//! 0 for the map, which the kernel refuses; and it cannot load constants in the key of a
//! lookup, which a chain per Service would need.
//!
//! # Costs
//!
//! The expensive part of the path is a lookup in a large set, which is rarely in a cache of
//! the processor. So packets are preselected by small sets: a network in
//! `service-networks` has 4,096 addresses, and contains an address of a Service. Packets
//! to other networks skip all lookups of Services. The elements belong to the Services,
//! so the sets are complete regardless of the ServiceCIDRs.
//!
//! `goto` elements are expensive, because the kernel validates their whole map. So most
//! Services are in maps of endpoints only. A packet to a Service with few endpoints
//! needs one lookup that finds an element.
//!
//! A new flow to a Service with session affinity costs no more than with a map and chains of its
//! own: one number in `pool-ips` says all that its packets need to know of the Service, so that
//! they search neither the maps for fewer slots nor the learner. Without that, flows of
//! known clients cost 4 to 7 % more, and those of new clients 7 to 10 % (6.18, 10,000 Services).
//!
//! If several Services claim one address, the claim with the highest precedence gets all
//! elements of the address.
//!
//! Upstream kube-proxy takes the table over without a manual step. Its first transaction
//! deletes all base chains of this mode. No set has a name that upstream declares.
//! Packets reach none of the remaining objects.
//!
//! Chains `lb-N` and the maps and chains of clients exist while Services use them and for 30 s
//! after, because kernels before 6.2 release references to a chain late. At most 64
//! unused objects stay. A start removes unused chains after its first commit. The same
//! holds for the base chains before DNAT: a base chain costs every packet, even without a
//! match.
//!
//! Large changes are committed in batches; the rules are consistent after each batch.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod plan;

mod apply;

pub use self::apply::cleanup::leftovers;
pub use self::apply::kernel::Kernel;
pub use self::apply::probe::{missing_extensions, probe};
use self::apply::watch::Watch;
pub use self::plan::Planner;
pub use self::plan::batches::transactions;
pub use self::plan::names::TABLE;
use proxy_engine::{Config, Engine, Error};

/// Opens nf_tables for each configured family, in the network namespace of the calling thread.
/// Writes nothing.
///
/// # Errors
///
/// The kernel lacks nfnetlink. The first sync reports a kernel without nf_tables and a missing
/// privilege.
pub fn open(config: Config) -> Result<Engine, Error> {
    let mut watch = Watch::default();
    let families = config.families.iter();
    let kernels = families.map(|&family| watch.open(family));
    let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
    Ok(Engine::over(config, Planner, kernels).with_watch(watch))
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
