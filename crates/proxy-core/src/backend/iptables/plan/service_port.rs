//! A service port and the parts that its rules have in common.

use std::borrow::Cow;
use std::net::IpAddr;

use vipline_iptables::matches::Match;
use vipline_iptables::{ChainName, Object, Position, Rule};
use vipline_service_model::{Route, ServicePort};

use super::names::{NAT, Names};
use super::rules::{chain, entry};
use crate::{Context, Iptables};

/// A service port with the inputs of its rules.
#[derive(Debug)]
pub(super) struct Port<'a> {
    pub(super) cx: &'a Context,
    pub(super) settings: &'a Iptables,
    pub(super) of: &'a ServicePort,
    pub(super) names: Names,
}

impl Port<'_> {
    /// Returns the match for a destination port.
    pub(super) fn dport(&self, number: u16) -> Match<'static> {
        Match::dport(self.of.protocol, number)
    }

    /// Returns a comment with the name of the service port.
    pub(super) fn comment(&self, words: &str) -> String {
        format!("{} {words}", self.names.port)
    }

    /// Returns a rule for traffic to the service port at an address.
    pub(super) fn at<'a>(&self, addr: IpAddr, comment: impl Into<Cow<'a, str>>) -> Rule<'a> {
        Rule::new()
            .with_destination(addr)
            .with_protocol(self.of.protocol)
            .with_comment(comment)
            .with_match(self.dport(self.of.port))
    }

    /// Adds a comment, except in large clusters.
    pub(super) fn remark<'a>(&self, rule: Rule<'a>, comment: impl Fn() -> String) -> Rule<'a> {
        match self.cx.is_large {
            true => rule,
            false => rule.with_comment(comment()),
        }
    }

    /// Returns the chain that selects one of the endpoints of a route.
    pub(super) fn chain_of(&self, route: Route) -> Option<ChainName> {
        match route {
            Route::Cluster => Some(self.names.cluster()),
            Route::Local => Some(self.names.local()),
            Route::Drop | Route::Reject => None,
        }
    }

    /// Returns a chain of the service port.
    pub(super) fn chain<'a>(
        &self,
        name: ChainName,
        rules: impl IntoIterator<Item = Rule<'a>>,
    ) -> Object {
        chain(self.cx.family, NAT, name, rules)
    }

    /// Returns a rule of a chain that several service ports share.
    pub(super) fn entry(&self, table: &str, chain: &str, rule: Rule<'_>) -> Object {
        entry(self.cx.family, table, chain, Position::Head, rule)
    }

    /// Returns a rule of a shared chain that must follow the other rules of the service
    /// port.
    pub(super) fn last_entry(&self, table: &str, chain: &str, rule: Rule<'_>) -> Object {
        entry(self.cx.family, table, chain, Position::Tail, rule)
    }
}
