//! Session affinity: the clients of all Services in a few maps, and the rules that read and
//! write these maps.
//!
//! A service port has a number, its [pool](names::pool). Its clients are recorded under their
//! address and this number, whatever address of the Service they connected to. An endpoint
//! is recorded as a [token], a hash that a rule computes from the packet:
//!
//! ```text
//! pool-ips    { 10.96.0.10 . tcp . 80 : pool }                      of the Service
//! clients-12  { 192.0.2.7 . pool : token }                          learned from packets
//! recorded    { 10.96.0.10 . tcp . 80 . token : 10.1.0.1 . 8080 }   of the Service
//! ```
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

use std::net::IpAddr;
use std::time::Duration;

use vipline_nftables::expr::jenkins_number;
use vipline_nftables::expression::{
    Expression, concat, ct_original_saddr, daddr, jhash, priority, saddr, th_dport,
};
use vipline_nftables::statement::{delete_from_map, return_, update_map};
use vipline_nftables::{Chain, Datatype, Name, Rule, Set, SetFlags, Statement, TableId};
use vipline_service_model::Endpoint;

use super::names::{self, Learner, Lists, comment};
use super::table::{LookupPath, Table, fields};

/// Number of maps of clients. A Service with so many clients that its map is full keeps
/// one Service in 64 from recording new clients. A larger number would make the table
/// confusing: each map has three chains. Must be a power of two: rules mask the pool.
pub(super) const SHARDS: u32 = 64;

/// Maximum number of clients in a map. A client takes about 100 bytes of the kernel's memory.
const MAX_CLIENTS: u32 = 131_072;

/// Bit of a pool that is set for the clients of local endpoints only.
///
/// A client has a record for all endpoints and one for local endpoints: otherwise it would
/// lose the former when it uses an address with traffic policy Local.
pub(super) const LOCAL: u32 = 1 << 31;

/// Longest timeout in seconds that fits into the number of a [`Learner`]; Kubernetes allows
/// one day.
pub(super) const MAX_TIMEOUT: u32 = (1 << 24) - 1;

/// Seed of the hash of endpoints. Any number would do, but a change invalidates all records.
const SEED: u32 = 1;

/// Returns the shard of a pool.
pub(super) fn shard(pool: u32) -> u32 {
    pool % SHARDS
}

impl Learner {
    /// Returns the number by which `learners` finds the chain.
    pub(super) fn number(self) -> u32 {
        self.seconds << 8 | (self.lists as u32) << 6 | self.shard
    }
}

/// Returns the number under which an endpoint is recorded: `jhash ip daddr . th dport mod
/// 4294967295 seed 0x1 offset 1`, which is never 0.
///
/// Two endpoints of a Service have the same token with a probability of one in four thousand
/// million. Then only the first one is recorded, and clients of the other one change to it.
pub(super) fn token(endpoint: &Endpoint) -> u32 {
    let (mut bytes, mut len) = ([0; 20], 4);
    match endpoint.addr {
        IpAddr::V4(addr) => bytes[..4].copy_from_slice(&addr.octets()),
        IpAddr::V6(addr) => {
            len = 16;
            bytes[..16].copy_from_slice(&addr.octets());
        }
    }
    bytes[len..len + 2].copy_from_slice(&endpoint.port.to_be_bytes());
    // The port takes a whole register.
    jenkins_number(&bytes[..len + 4], SEED, u32::MAX, 1)
}

/// Returns the token of the endpoint to which a packet was translated.
fn token_of_packet(table: &Table) -> Expression {
    let endpoint = concat([daddr(table.family()), th_dport()]);
    jhash(endpoint, u32::MAX, Some(SEED)).with_offset(1)
}

/// Returns the statement `meta priority set none`.
pub(super) fn reset() -> Statement {
    priority().set_to(0_u32)
}

/// Returns the map of the clients in a shard.
pub(super) fn clients(table: &Table, shard: u32) -> Set {
    let key = fields(&[table.addr(), Datatype::Classid]);
    let token = fields(&[Datatype::Classid]);
    Set::map(table.id.clone(), names::clients(shard), key, token)
        .with_flags(SetFlags::DYNAMIC | SetFlags::TIMEOUT)
        .with_size(MAX_CLIENTS)
        .with_comment(comment("endpoints that clients stay with"))
}

/// Returns the on-demand set with this name.
pub(super) fn set_on_demand(id: &TableId, name: &Name) -> Option<Set> {
    let table = Table::of_id(id)?;
    let shard = names::shard_of_clients(name).filter(|shard| *shard < SHARDS)?;
    let clients = clients(table, shard);
    (clients.name == *name).then_some(clients)
}

/// ```nft
/// meta priority set ip saddr . meta priority map @clients-12 return
/// meta priority set none
/// ```
///
/// Replaces the pool by the token of the client's endpoint, or by 0 for an unknown client.
pub(super) fn recall(table: &Table, shard: u32) -> Chain {
    let client = concat([saddr(table.family()), priority()]);
    let rules = [
        vec![
            priority().set(&client.map(&clients(table, shard))),
            return_(),
        ],
        vec![reset()],
    ];
    chain(table, names::recall(shard), rules)
}

/// ```nft
/// delete @clients-12 { ip saddr . meta priority : meta priority }
/// meta priority set none
/// ```
///
/// Deletes a client whose endpoint was removed. Without that, the next update would only
/// prolong the record of the removed endpoint.
pub(super) fn forget(table: &Table, shard: u32) -> Chain {
    let client = concat([saddr(table.family()), priority()]);
    let delete = delete_from_map(&clients(table, shard), &client, &priority());
    chain(table, names::forget(shard), [vec![delete], vec![reset()]])
}

/// ```nft
/// meta l4proto { tcp, udp, sctp } meta priority set ct original ip daddr . meta l4proto . ct original proto-dst map @pool-ips meta priority set meta priority & 7fff:ffff update @clients-12 { ct original ip saddr . meta priority timeout 3h : jhash ip daddr . th dport mod 4294967295 seed 0x1 offset 1 }
/// meta priority set meta priority | 8000:0 update @clients-12 { ct original ip saddr . meta priority timeout 3h : jhash ip daddr . th dport mod 4294967295 seed 0x1 offset 1 }
/// meta priority set none
/// ```
///
/// Records the endpoint of the client. The timeout restarts with each new connection. A
/// client keeps the first endpoint of each list. A Service with one list has one rule, without
/// a change of the pool. If the map is full, an update ends its rule; so the priority is reset
/// by another one.
pub(super) fn learn(path: &LookupPath, learner: Learner) -> Chain {
    let table = path.table();
    let timeout = Duration::from_secs(learner.seconds.into());
    let client = concat([ct_original_saddr(table.family()), priority()]);
    let clients = clients(table, learner.shard);
    let record = || update_map(&clients, &client, Some(timeout), &token_of_packet(table));
    let mut first = Vec::from(path.to_number_of_original(&path.pools));
    let mut rules = Vec::new();
    if learner.lists == Lists::Both {
        first.push(priority().set(&priority().and(!LOCAL)));
        rules.push(vec![priority().set(&priority().or(LOCAL)), record()]);
    }
    first.push(record());
    rules.insert(0, first);
    rules.push(vec![reset()]);
    chain(table, names::learn(path.is_of_nodeports(), learner), rules)
}

fn chain(table: &Table, name: Name, rules: impl IntoIterator<Item = Vec<Statement>>) -> Chain {
    let rules = rules.into_iter();
    let rules = rules.map(|statements| Rule::new(table.family(), statements));
    Chain::new(table.id.clone(), name).with_rules(rules)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use vipline_service_model::Family;

    use super::super::tests::assert_documented;
    use super::*;

    fn text(chain: &Chain) -> Vec<String> {
        chain.rules.iter().map(Rule::to_string).collect()
    }

    #[test]
    fn rules_match_their_documentation() {
        let table = Table::of(Family::V4);
        let learner = |lists| Learner {
            lists,
            seconds: 10_800,
            shard: 12,
        };
        assert_documented(
            include_str!("affinity.rs"),
            &[
                ("recall", text(&recall(table, 12))),
                ("forget", text(&forget(table, 12))),
                ("learn", text(&learn(&table.ips, learner(Lists::Both)))),
            ],
        );
        for lists in [Lists::Cluster, Lists::Local] {
            let rules = text(&learn(&table.nodeports, learner(lists)));
            assert_eq!(rules.len(), 2);
            assert!(rules[0].contains("map @pool-nodeports update @clients-12"));
        }
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
