//! Preparation of rules for the evaluation of packets, common to all modes.

use std::fmt;
use std::net::IpAddr;

use vipline_nftables::evaluate::{
    self, Environment, Evaluator, Interface, Limited, Question, Route, RouteQuery,
};
use vipline_nftables::expr::AddrType;
use vipline_nftables::{Object, Ruleset, Set};

use crate::evaluate::{Evaluate, Rules};

/// Wraps rules. Dynamic sets of `ruleset` without elements are empty, and no client is in a
/// list of match `recent`.
pub(super) fn rules(evaluator: Evaluator, ruleset: &Ruleset, has_proxy: bool) -> Rules {
    let sets = empty_dynamic_sets(ruleset).into_iter();
    let evaluator = sets.fold(evaluator, |evaluator, set| {
        evaluator.with_elements(&set, Vec::new())
    });
    Rules::new(Forgetful(evaluator), has_proxy)
}

/// Returns the rules of a dump without a kernel. IP sets have no names.
pub(super) fn saved(ruleset: &Ruleset) -> Rules {
    #[cfg(feature = "iptables")]
    let evaluator = {
        let sets = vipline_iptables::nft::SetNames::default();
        vipline_iptables::evaluate::Rules::from_dump(ruleset.clone(), sets).evaluator()
    };
    #[cfg(not(feature = "iptables"))]
    let evaluator = Evaluator::new(ruleset);
    rules(evaluator, ruleset, true)
}

/// Returns the dynamic sets without elements.
fn empty_dynamic_sets(ruleset: &Ruleset) -> Vec<Set> {
    let sets = ruleset.objects().filter_map(|object| match object {
        Object::Set(set) if set.is_dynamic() => Some(set),
        _ => None,
    });
    let is_empty = |set: &Set| {
        let found = ruleset.set(&set.table, set.name.as_str());
        found.is_none_or(|(_, elements)| elements.is_empty())
    };
    sets.filter(is_empty).collect()
}

/// Rules whose lists of match `recent` are empty.
struct Forgetful(Evaluator);

impl Evaluate for Forgetful {
    fn evaluate(
        &self,
        packet: &evaluate::Packet,
        environment: &dyn Environment,
    ) -> Result<Vec<evaluate::Outcome>, evaluate::Error> {
        self.0.evaluate(packet, &WithoutClients(environment))
    }
}

/// An environment whose lists of match `recent` are empty.
struct WithoutClients<'a>(&'a dyn Environment);

impl fmt::Debug for WithoutClients<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WithoutClients")
    }
}

impl Environment for WithoutClients<'_> {
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route> {
        self.0.route(query)
    }

    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType> {
        self.0.addr_type(addr, interface)
    }

    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
        self.0.interface_addr(interface, destination)
    }

    fn is_over(&self, limited: Limited<'_>) -> Option<bool> {
        self.0.is_over(limited)
    }

    fn answer(&self, question: &Question<'_>) -> Option<bool> {
        let known = self.0.answer(question);
        known.or_else(|| matches!(question, Question::Recent(_)).then_some(false))
    }
}
