//! Preparation of rules for the evaluation of packets, common to all modes.

use std::net::IpAddr;
use std::sync::OnceLock;

use vipline_evaluate::{
    self as evaluate, Cause, Environment, Evaluator, Interface, Limited, Loss, Question,
    RecentLookup, Route, RouteQuery,
};
#[cfg(feature = "iptables")]
use vipline_iptables::{Jiffies, RecentEntry};
use vipline_nftables::Ruleset;
use vipline_nftables::expr::AddrType;

use crate::evaluate::{Evaluate, Rules};

/// Lists of match `recent`.
pub(super) trait RecentLists: Send + Sync {
    /// Returns whether a list has an address, or why that is unknown.
    fn has(&self, lookup: &RecentLookup<'_>) -> Result<bool, String>;
}

/// Lists of match `recent` during an evaluation. Records why it does not know an answer: the
/// evaluation ends then, and its error has no place for the reason.
pub(super) struct AskedLists<'a> {
    lists: &'a dyn RecentLists,
    doubt: OnceLock<String>,
}

impl<'a> AskedLists<'a> {
    /// Wraps lists.
    pub(super) fn new(lists: &'a dyn RecentLists) -> Self {
        let doubt = OnceLock::new();
        Self { lists, doubt }
    }

    /// Returns whether a list has an address, or `None` if that is unknown.
    pub(super) fn has(&self, lookup: &RecentLookup<'_>) -> Option<bool> {
        let answer = self.lists.has(lookup);
        answer
            .map_err(|reason| self.doubt.get_or_init(|| reason))
            .ok()
    }

    /// Adds the reason to the error of the evaluation that asked.
    pub(super) fn explain(self, mut error: evaluate::Error) -> evaluate::Error {
        if let (Cause::Unknown(subject), Some(reason)) = (&mut error.cause, self.doubt.get()) {
            *subject = format!("{subject}: {reason}");
        }
        error
    }
}

/// Returns whether a list has the address of a lookup with its conditions, or why that is
/// unknown: the time is, or a packet is as old as the limit and the time is inexact.
#[cfg(feature = "iptables")]
pub(super) fn is_listed(
    entries: &[RecentEntry],
    lookup: &RecentLookup<'_>,
    time: &Result<Jiffies, String>,
) -> Result<bool, String> {
    let is_it = |entry: &&RecentEntry| {
        entry.addr == lookup.addr && lookup.ttl.is_none_or(|ttl| ttl == entry.ttl)
    };
    let Some(entry) = entries.iter().find(is_it) else {
        return Ok(false);
    };
    let wanted = lookup.hits.unwrap_or(1).max(1);
    let is_enough = |hits: usize| u32::try_from(hits).is_ok_and(|hits| hits >= wanted);
    let Some(age) = lookup.age else {
        return Ok(lookup.hits.is_none() || is_enough(entry.stamps.len()));
    };
    let time = time.as_ref().map_err(String::clone)?;
    let hits = entry.hits(age, *time);
    match (is_enough(*hits.start()), is_enough(*hits.end())) {
        (true, _) => Ok(true),
        (_, false) => Ok(false),
        _ => Err(match time.frequency {
            None => "the frequency of the kernel's jiffies, in which the list counts, is unknown \
                     until some seconds later"
                .to_owned(),
            Some(_) => format!(
                "the address was recorded about {} s ago, which is the limit, and the time in \
                 jiffies, in which the list counts, is known to 2 s only",
                age.as_secs()
            ),
        }),
    }
}

/// Empty lists.
pub(super) struct NoClients;

impl RecentLists for NoClients {
    fn has(&self, _: &RecentLookup<'_>) -> Result<bool, String> {
        Ok(false)
    }
}

/// Wraps rules. Dynamic sets of `ruleset` without elements are empty.
pub(super) fn rules(
    evaluator: Evaluator,
    ruleset: &Ruleset,
    recent: impl RecentLists + 'static,
    has_proxy: bool,
) -> Rules {
    let evaluator = evaluator.with_empty_dynamic_sets(ruleset);
    Rules::new(WithLists { evaluator, recent }, has_proxy)
}

/// Rules with the lists of match `recent`.
struct WithLists<R> {
    evaluator: Evaluator,
    recent: R,
}

impl<R: RecentLists> Evaluate for WithLists<R> {
    fn evaluate(
        &self,
        packet: &evaluate::Packet,
        environment: &dyn Environment,
    ) -> Result<Vec<evaluate::Outcome>, evaluate::Error> {
        let node = Node {
            environment,
            recent: AskedLists::new(&self.recent),
        };
        let outcomes = self.evaluator.evaluate(packet, &node);
        outcomes.map_err(|error| node.recent.explain(error))
    }
}

/// An environment with lists of match `recent`.
struct Node<'a> {
    environment: &'a dyn Environment,
    recent: AskedLists<'a>,
}

impl Environment for Node<'_> {
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route> {
        self.environment.route(query)
    }

    fn preferred_source(&self, query: &RouteQuery<'_>) -> Option<IpAddr> {
        self.environment.preferred_source(query)
    }

    fn is_bridge(&self, interface: &Interface) -> bool {
        self.environment.is_bridge(interface)
    }

    fn receive_loss(&self, input: &Interface) -> Option<Loss> {
        self.environment.receive_loss(input)
    }

    fn route_loss(&self, query: &RouteQuery<'_>, is_local: bool) -> Option<Loss> {
        self.environment.route_loss(query, is_local)
    }

    fn send_loss(&self, output: &Interface) -> Option<Loss> {
        self.environment.send_loss(output)
    }

    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType> {
        self.environment.addr_type(addr, interface)
    }

    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
        self.environment.interface_addr(interface, destination)
    }

    fn is_over(&self, limited: Limited<'_>) -> Option<bool> {
        self.environment.is_over(limited)
    }

    fn answer(&self, question: &Question<'_>) -> Option<bool> {
        let known = self.environment.answer(question);
        known.or_else(|| match question {
            Question::Recent(lookup) => self.recent.has(lookup),
            Question::Match { text, packet } => assumed(text, packet, self.environment),
            _ => None,
        })
    }
}

/// Returns the assumed result of a match of iptables, or `None` if it is unknown.
///
/// `nfacct` counts packets, and matches all.
pub(super) fn assumed(
    text: &str,
    packet: &evaluate::Packet,
    environment: &dyn Environment,
) -> Option<bool> {
    if text.starts_with("-m nfacct ") {
        return Some(true);
    }
    let conditions = text.strip_prefix("-m physdev")?;
    let is_bridged = packet.input().is_some_and(|it| environment.is_bridge(it));
    physdev(conditions, is_bridged)
}

/// Returns the result of match `physdev`. `is_bridged` is whether a port of a bridge received
/// the packet: which one is unknown, and some hooks do not see it. Routed packets do not leave
/// through a known port.
fn physdev(conditions: &str, is_bridged: bool) -> Option<bool> {
    let (mut is_match, mut is_negated) = (Some(true), false);
    for word in conditions.split_ascii_whitespace() {
        let holds = match word {
            "--physdev-in" | "--physdev-is-in" if is_bridged => None,
            _ => Some(is_negated || !word.starts_with("--physdev-")),
        };
        is_negated = word == "!";
        match holds {
            Some(true) => {}
            Some(false) => return Some(false),
            None => is_match = None,
        }
    }
    is_match
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "iptables")]
    #[test]
    fn a_list_has_an_address_with_enough_young_packets() {
        use std::time::Duration;

        let text = "src=192.0.2.7 ttl: 64 last_seen: 2000 oldest_pkt: 2 1000, 2000\n";
        let entries = RecentEntry::parse_list(text).unwrap();
        let time = Jiffies::new(2500, 100);
        let exact = Ok(time);
        let mut inexact = time;
        inexact.tolerance = 100;
        let inexact = Ok(inexact);
        let unknown = Err("no file".to_owned());
        let edge = "the address was recorded about 5 s ago, which is the limit, and the time in \
                    jiffies, in which the list counts, is known to 2 s only";
        let lookup = RecentLookup::new("a", "192.0.2.7".parse().unwrap());
        let with = |age: Option<u64>, hits, ttl| {
            let mut lookup = lookup;
            lookup.age = age.map(Duration::from_secs);
            (lookup.hits, lookup.ttl) = (hits, ttl);
            lookup
        };
        let other = RecentLookup::new("a", "192.0.2.8".parse().unwrap());
        for (lookup, time, expected) in [
            (lookup, &unknown, Ok(true)),
            (other, &unknown, Ok(false)),
            (with(None, None, Some(64)), &unknown, Ok(true)),
            (with(None, None, Some(63)), &unknown, Ok(false)),
            (with(None, Some(2), None), &unknown, Ok(true)),
            (with(None, Some(3), None), &unknown, Ok(false)),
            (with(Some(5), None, None), &exact, Ok(true)),
            (with(Some(4), None, None), &exact, Ok(false)),
            (with(Some(15), Some(2), None), &exact, Ok(true)),
            (with(Some(14), Some(2), None), &exact, Ok(false)),
            (with(Some(6), None, None), &inexact, Ok(true)),
            (with(Some(5), None, None), &inexact, Err(edge)),
            (with(Some(3), None, None), &inexact, Ok(false)),
            // An old packet on the edge does not matter beside a young one.
            (with(Some(15), None, None), &inexact, Ok(true)),
            (with(Some(5), None, None), &unknown, Err("no file")),
        ] {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(is_listed(&entries, &lookup, time), expected, "{lookup:?}");
        }
    }

    #[test]
    fn the_bridge_port_of_a_packet_is_unknown() {
        let ports = ("192.0.2.7:1000", "192.0.2.1:53");
        let packet = evaluate::Packet::udp(ports.0.parse().unwrap(), ports.1.parse().unwrap());
        let host = evaluate::Host::new().with_bridge("cni0");
        let by = |text, input: &str| assumed(text, &packet.clone().with_input(input), &host);
        for (text, by_bridge, by_other) in [
            (
                "-m nfacct --nfacct-name ct_state_invalid",
                Some(true),
                Some(true),
            ),
            ("-m physdev ! --physdev-is-in", None, Some(true)),
            ("-m physdev --physdev-is-in", None, Some(false)),
            ("-m physdev --physdev-in eth1", None, Some(false)),
            ("-m physdev ! --physdev-in eth1", None, Some(true)),
            ("-m physdev --physdev-out eth1", Some(false), Some(false)),
            (
                "-m physdev ! --physdev-in eth1 --physdev-is-bridged",
                Some(false),
                Some(false),
            ),
            ("-m socket --transparent", None, None),
        ] {
            assert_eq!(by(text, "cni0"), by_bridge, "{text}");
            assert_eq!(by(text, "eth0"), by_other, "{text}");
        }
    }
}
