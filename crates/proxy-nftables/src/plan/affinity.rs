//! Session affinity: the clients of all Services in a few maps, and the rules that read and
//! write these maps.
//!
//! A service port has a number, its [pool](names::pool). Its clients are recorded under their
//! address and this number, whatever address of the Service they connected to. An endpoint
//! is recorded as a [token], a hash that a rule computes from the packet:
//!
//! ```text
//! pool-ips    { 10.96.0.10 . tcp . 80 : pool and more bits }        of the Service
//! clients-12  { pool . 192.0.2.7 : token }                          learned from packets
//! recorded    { 10.96.0.10 . tcp . 80 . token : 10.1.0.1 . 8080 }   of the Service
//! ```
//!
//! The number in `pool-ips` also tells what would cost further lookups: how many endpoints the
//! address has, and whether its clients are recorded in the usual way.
//!
//! | Bits | Content |
//! |---|---|
//! | 31 | [`LOCAL`]: the address uses local endpoints only |
//! | 30 | [`USUAL`]: clients are recorded for three hours, for all endpoints |
//! | 27 to 29 | [number of slots](slots), never 7, as in a token |
//! | 0 to 26 | the [pool](names::pool), whose lowest bits are the [shard] |
//!
//! Three lookups follow each other, and the key of each contains the result of the one
//! before. The kernel can do that in registers, but nft 1.0.6 has no syntax for it, and its
//! listing aborts. So the rules pass the number on in the priority of the packet (`meta
//! priority`, `skb->priority`), and set it to 0 again. Only first packets of connections to
//! Services with session affinity pass these rules. The kernel itself overwrites the priority
//! of a forwarded IPv4 packet with one that it derives from TOS. The mark of the packet would
//! do as well, but it belongs to other programs.
//!
//! The last lookup makes wrong records harmless. If an endpoint is removed, its element in
//! `recorded` goes with it: no client can reach it, no matter who recorded it or when, and
//! nobody has to search the clients. Such a client is deleted when it connects the next time,
//! because an update does not replace the data of an element.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use vipline_nftables::expr::jenkins_number;
use vipline_nftables::expression::{
    Expression, concat, ct_original_saddr, daddr, jhash, priority, saddr, th_dport,
};
use vipline_nftables::statement::{delete_from_map, update_map};
use vipline_nftables::{
    Chain, Datatype, Element, Name, Object, Set, SetFlags, Statement, TableId, Verdict,
};
use vipline_reconcile::Edit;
use vipline_service_model::Endpoint;

use super::names::{self, Learner, Lists, OnDemand, comment};
use super::table::{LookupPath, MAX_DIRECT, Table, rule};

/// Number of maps of clients. A Service with so many clients that its map is full keeps
/// one Service in 64 from recording new clients. A larger number would make the table
/// confusing: each map has three chains. Must be a power of two: rules mask the pool.
pub(super) const SHARDS: u32 = 64;

/// Maximum number of clients in a map. A client takes about 100 bytes of the kernel's memory.
const MAX_CLIENTS: u32 = 131_072;

/// Bits of the number of an address that are its pool.
pub(super) const POOL: u32 = (1 << 27) - 1;

/// Bit of the number of an address that is set for the clients of local endpoints only.
///
/// A client has a record for all endpoints and one for local endpoints: otherwise it would
/// lose the former when it uses an address with traffic policy Local.
pub(super) const LOCAL: u32 = 1 << 31;

/// Bit of the number of an address whose clients are recorded by a
/// [usual learner](Learner::is_usual).
///
/// Nearly all Services leave the timeout at its default. Their packets need two lookups less
/// after the translation: the learner in `learner-ips`, and the pool, which the lookup of the
/// learner would replace in the priority.
pub(super) const USUAL: u32 = 1 << 30;

/// Bits of the number of an address that are its number of slots.
///
/// A client without a record would otherwise look for its Service in the maps for fewer slots
/// first. With five endpoints that costs 0.4 of 6.4 µs (6.18).
pub(super) const SLOTS: u32 = 7 << SLOTS_SHIFT;
const SLOTS_SHIFT: u32 = 27;

/// The number of slots of an address whose endpoints are not found directly.
const MANY: u32 = 0;

/// Bits of the number of an address under which its clients are recorded. The others may
/// change without the loss of clients.
///
/// The masked number is the first field of keys: nft 1.0.6 lists `ip saddr . meta priority &
/// 87ff:ffff` but does not load it, and aborts when it loads the same for IPv6.
const OF_CLIENTS: u32 = LOCAL | POOL;

/// Longest timeout in seconds that fits into the number of a [`Learner`]; Kubernetes allows
/// one day.
pub(super) const MAX_TIMEOUT: u32 = (1 << 24) - 1;

/// Timeout in seconds of a Service that does not set one.
pub(super) const USUAL_TIMEOUT: u32 = 10_800;

/// Seed of the hash of endpoints. Any number would do, but a change invalidates all records.
const SEED: u32 = 1;

/// Number of different tokens, and the lowest one. Tokens have all bits of [`SLOTS`], so rules
/// know the token of a client from the number of an address.
const TOKENS: u32 = POOL;
const FIRST_TOKEN: u32 = SLOTS;

const _: () = assert!(SHARDS.is_power_of_two() && MAX_DIRECT < SLOTS >> SLOTS_SHIFT);
const _: () = assert!(OF_CLIENTS & SLOTS == 0 && (FIRST_TOKEN + TOKENS) & !SLOTS <= POOL);

/// Returns the shard of a pool.
pub(super) fn shard(pool: u32) -> u32 {
    pool % SHARDS
}

/// Returns the bits for the number of slots of an address: those of an address whose endpoints
/// are found directly, or 0.
pub(super) fn slots(path: &LookupPath, slots: u32) -> u32 {
    path.direct(slots).map_or(MANY, |_| slots) << SLOTS_SHIFT
}

impl Learner {
    /// Returns the learner of a Service that does not set a timeout and has no traffic policy.
    pub(super) fn usual(shard: u32) -> Self {
        Self {
            lists: Lists::Cluster,
            seconds: USUAL_TIMEOUT,
            shard,
        }
    }

    /// Returns whether packets find the chain by the number of the address, without another
    /// lookup.
    pub(super) fn is_usual(self) -> bool {
        self == Self::usual(self.shard)
    }

    /// Returns the number by which `learners` finds the chain, or `usual-learners` finds that of
    /// a usual learner.
    pub(super) fn number(self) -> u32 {
        if self.is_usual() {
            USUAL | self.shard
        } else {
            // Bits 8 to 31, 6 and 7, and 0 to 5: see `MAX_TIMEOUT` and `SHARDS`.
            self.seconds << 8 | (self.lists as u32) << 6 | self.shard
        }
    }
}

/// Returns the number under which an endpoint is recorded: `jhash ip daddr . th dport mod
/// 134217727 seed 0x1 offset 939524096`.
///
/// Two endpoints of a Service have the same token with a probability of one in 134 million.
/// Then only the first one is recorded, and clients of the other one change to it.
pub(super) fn token(endpoint: &Endpoint) -> u32 {
    // As the fields stand in registers: the address, and the port in the word after it. Another
    // layout gives another hash than that of the packet, so that no record leads to the endpoint.
    let (mut bytes, mut len) = ([0; 20], 4);
    match endpoint.addr {
        IpAddr::V4(addr) => bytes[..4].copy_from_slice(&addr.octets()),
        IpAddr::V6(addr) => {
            len = 16;
            bytes[..16].copy_from_slice(&addr.octets());
        }
    }
    bytes[len..len + 2].copy_from_slice(&endpoint.port.to_be_bytes());
    // The port takes a whole word, whose rest is zero.
    jenkins_number(&bytes[..len + 4], SEED, TOKENS, FIRST_TOKEN)
}

/// Returns the token of the endpoint to which a packet was translated.
fn token_of_packet(table: &Table) -> Expression<u32> {
    let endpoint = concat((daddr(table.family()), th_dport()));
    jhash(endpoint, TOKENS, Some(SEED)).with_offset(FIRST_TOKEN)
}

/// Returns the statement `meta priority set none`.
pub(super) fn reset() -> Statement {
    priority().set_to(0)
}

/// Returns whether the priority is a token: `meta priority & 3800:0 == 3800:0`.
pub(super) fn is_token() -> Statement {
    priority().and(SLOTS).is(FIRST_TOKEN)
}

/// Returns the number of an address as in the keys of clients: `meta priority & 87ff:ffff`.
fn pool_of_packet(bits: u32) -> Expression<u32> {
    priority().and(bits)
}

/// Returns the map of the clients in a shard.
pub(super) fn clients(table: &Table, shard: u32) -> Set {
    let key = [Datatype::Classid, table.addr()];
    Set::map(
        table.id.clone(),
        names::clients(shard),
        key,
        Datatype::Classid,
    )
    .with_flags(SetFlags::DYNAMIC | SetFlags::TIMEOUT)
    .with_size(MAX_CLIENTS)
    .with_comment(comment("endpoints that clients stay with"))
}

/// Returns the on-demand set with this name.
pub(super) fn set_on_demand(id: &TableId, name: &Name) -> Option<Set> {
    let table = Table::of_id(id)?;
    let shard = names::shard_of_clients(name).filter(|shard| *shard < SHARDS)?;
    let clients = clients(table, shard);
    // `clients-012` has the number of a set of ours, but not its name.
    (clients.name == *name).then_some(clients)
}

/// ```nft
/// meta priority set meta priority & 87ff:ffff . ip saddr map @clients-12
/// ```
///
/// Replaces the number of the address by the token of the client's endpoint, if the client is
/// known.
pub(super) fn recall(table: &Table, shard: u32) -> Chain {
    let client = concat((pool_of_packet(OF_CLIENTS), saddr(table.family())));
    let token = client.map(&clients(table, shard));
    chain(table, names::recall(shard), [vec![priority().set(&token)]])
}

/// ```nft
/// delete @clients-12 { meta priority & 87ff:ffff . ip saddr : meta priority }
/// ```
///
/// Deletes a client whose endpoint was removed. Without that, the next update would only
/// prolong the record of the removed endpoint.
pub(super) fn forget(table: &Table, shard: u32) -> Chain {
    let client = concat((pool_of_packet(OF_CLIENTS), saddr(table.family())));
    let delete = delete_from_map(&clients(table, shard), &client, &priority());
    chain(table, names::forget(shard), [vec![delete]])
}

/// ```nft
/// update @clients-12 { meta priority & 87ff:ffff . ct original ip saddr timeout 3h : jhash ip daddr . th dport mod 134217727 seed 0x1 offset 939524096 }
/// meta priority set none
/// meta l4proto { tcp, udp, sctp } meta priority set ct original ip daddr . meta l4proto . ct original proto-dst map @pool-ips update @clients-12 { meta priority & 7ff:ffff . ct original ip saddr timeout 1h : jhash ip daddr . th dport mod 134217727 seed 0x1 offset 939524096 }
/// meta priority set meta priority | 8000:0 update @clients-12 { meta priority & 87ff:ffff . ct original ip saddr timeout 1h : jhash ip daddr . th dport mod 134217727 seed 0x1 offset 939524096 }
/// meta priority set none
/// ```
///
/// Records the endpoint of the client. The timeout restarts with each new connection. A
/// client keeps the first endpoint of each list. The usual learner, above, has the number of the
/// address in the priority; any other looks it up again. A Service with one list has one
/// such rule. If the map is full, an update ends its rule; so the priority
/// is reset by another one.
pub(super) fn learn(path: &LookupPath, learner: Learner) -> Chain {
    let table = path.table();
    let timeout = Duration::from_secs(learner.seconds.into());
    let clients = clients(table, learner.shard);
    let record = |bits: u32| {
        let client = concat((pool_of_packet(bits), ct_original_saddr(table.family())));
        update_map(&clients, &client, Some(timeout), &token_of_packet(table))
    };
    let mut first = if learner.is_usual() {
        Vec::new()
    } else {
        Vec::from(path.to_number_of_original(&path.pools))
    };
    let mut rules = Vec::new();
    // With both lists the first rule records the client for all endpoints, whatever the number of
    // this address says, and the second one for local endpoints.
    first.push(record(match learner.lists {
        Lists::Both => POOL,
        Lists::Cluster | Lists::Local => OF_CLIENTS,
    }));
    if learner.lists == Lists::Both {
        let is_local = priority().set(&priority().or(LOCAL));
        rules.push(vec![is_local, record(OF_CLIENTS)]);
    }
    rules.insert(0, first);
    rules.push(vec![reset()]);
    chain(table, names::learn(path.is_of_nodeports(), learner), rules)
}

/// The addresses and node ports with session affinity among the added objects of a change.
#[derive(Debug)]
pub(crate) struct StickyAddresses<'a> {
    ips: HashSet<&'a [u8]>,
    nodeports: HashSet<&'a [u8]>,
}

impl<'a> StickyAddresses<'a> {
    pub(crate) fn of(edits: &'a [Edit<Object>]) -> Self {
        let keys_in = |map| {
            let elements = edits.iter().filter_map(added_element);
            let of_map = elements.filter(move |element| element.set().name.as_str() == map);
            of_map.map(Element::key_bytes).collect()
        };
        Self {
            ips: keys_in(names::POOL_IPS),
            nodeports: keys_in(names::POOL_NODEPORTS),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ips.is_empty() && self.nodeports.is_empty()
    }

    /// Returns whether one of the addresses needs an edit, or the chains that record clients do:
    /// the elements that lead to endpoints, the chains, and the verdicts that lead to them.
    ///
    /// Elements of plain sets stay: they drop, reject or mark packets, and need no endpoint.
    ///
    /// On a kernel that cannot record clients the caller refuses these edits: such an address then
    /// has no endpoints, rather than endpoints with which clients do not stay.
    pub(crate) fn need(&self, edit: &Edit<Object>) -> bool {
        if let Edit::Add(Object::Chain(chain)) = edit {
            return is_learner(&chain.name);
        }
        let Some(element) = added_element(edit) else {
            return false;
        };
        if let Some(Verdict::Goto(chain)) = element.verdict()
            && is_learner(chain)
        {
            return true;
        }
        let set = element.set();
        let keys = match set.key.first().map(|field| field.datatype) {
            Some(Datatype::Ipv4Addr | Datatype::Ipv6Addr) => &self.ips,
            _ => &self.nodeports,
        };
        // All keys of a map have one length. Keys of other maps have more fields after it, such as
        // the slot.
        let Some(len) = keys.iter().next().map(|key| key.len()) else {
            return false;
        };
        let key = element.key_bytes().get(..len);
        set.is_map() && key.is_some_and(|key| keys.contains(key))
    }
}

/// Returns the element that an edit adds, or gives other data.
fn added_element(edit: &Edit<Object>) -> Option<&Element> {
    match edit {
        Edit::Add(Object::Element(element))
        | Edit::Change {
            new: Object::Element(element),
            ..
        } => Some(element),
        _ => None,
    }
}

fn is_learner(chain: &Name) -> bool {
    matches!(OnDemand::parse(chain), Some(OnDemand::Learn { .. }))
}

/// Returns a chain of each kind that exists only while Services have session affinity. A kernel
/// that accepts these accepts all of them.
pub(crate) fn chains_of_affinity(table: &Table) -> Vec<Object> {
    let learner = Learner {
        lists: Lists::Both,
        ..Learner::usual(0)
    };
    let learners = [
        learn(&table.ips, Learner::usual(0)),
        learn(&table.ips, learner),
        learn(&table.nodeports, learner),
    ];
    let others = [recall(table, 0), forget(table, 0)];
    others
        .into_iter()
        .chain(learners)
        .map(Object::from)
        .collect()
}

fn chain(table: &Table, name: Name, rules: impl IntoIterator<Item = Vec<Statement>>) -> Chain {
    let rules = rules.into_iter();
    let rules = rules.map(|statements| rule(table.family(), statements));
    Chain::new(table.id.clone(), name).with_rules(rules)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use vipline_nftables::Rule;
    use vipline_service_model::{DetectLocal, Family, Route, ServicePort};

    use super::super::tests::{assert_documented, cx, planned, service_port};
    use super::*;

    fn text(chain: &Chain) -> Vec<String> {
        chain.rules.iter().map(Rule::to_string).collect()
    }

    #[test]
    fn rules_match_their_documentation() {
        let table = Table::of(Family::V4);
        let learner = |lists| Learner {
            lists,
            seconds: 3600,
            shard: 12,
        };
        let learners = [Learner::usual(12), learner(Lists::Both)];
        let learners = learners.map(|learner| text(&learn(&table.ips, learner)));
        assert_documented(
            include_str!("affinity.rs"),
            &[
                ("recall", text(&recall(table, 12))),
                ("forget", text(&forget(table, 12))),
                ("learn", learners.concat()),
            ],
        );
        for lists in [Lists::Cluster, Lists::Local] {
            let rules = text(&learn(&table.nodeports, learner(lists)));
            assert_eq!(rules.len(), 2);
            assert!(rules[0].contains("map @pool-nodeports update @clients-12"));
        }
    }

    #[test]
    fn without_learners_the_addresses_with_affinity_have_no_endpoints_and_others_stay() {
        let plan = |port: &ServicePort| planned(&cx(Family::V4, DetectLocal::NodeCidr), port);
        let mut port = service_port(Route::Cluster);
        port.node_port = Some(30_080);
        port.external = Route::Cluster;
        port.affinity = Some(10_800);
        let sticky: Vec<_> = plan(&port).into_iter().map(Edit::Add).collect();
        let other = ServicePort {
            cluster_ip: [10, 96, 0, 11].into(),
            node_port: Some(30_081),
            affinity: None,
            ..port
        };
        let other: Vec<_> = plan(&other).into_iter().map(Edit::Add).collect();
        let found = StickyAddresses::of(&sticky);
        assert!(!found.is_empty());
        assert!(StickyAddresses::of(&other).is_empty());
        assert_eq!(other.iter().find(|edit| found.need(edit)), None);
        let kept = sticky.iter().filter(|edit| !found.need(edit));
        for object in kept.map(Edit::object) {
            if let Object::Element(element) = object {
                let shared = [names::RECALLS, names::FORGETS];
                let is_shared = shared.contains(&element.set().name.as_str());
                assert!(!element.set().is_map() || is_shared, "{element}");
            }
        }
        let removals = sticky.into_iter().map(|edit| match edit {
            Edit::Add(object) => Edit::Remove(object),
            edit => edit,
        });
        let removals: Vec<_> = removals.collect();
        assert!(StickyAddresses::of(&removals).is_empty());
    }

    #[test]
    fn learners_have_different_numbers() {
        let mut numbers = BTreeSet::new();
        for lists in [Lists::Cluster, Lists::Local, Lists::Both] {
            for seconds in [1, 2, 10_800, 86_400, MAX_TIMEOUT] {
                for shard in 0..SHARDS {
                    let learner = Learner {
                        lists,
                        seconds,
                        shard,
                    };
                    assert!(numbers.insert(learner.number()), "{learner:?}");
                }
            }
        }
    }
}
