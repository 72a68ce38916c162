//! Health of the proxy and the responses of its health endpoints.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use vipline_service_model::{Family, ObjectName, Timestamp};

/// The time in responses if no time is known.
const NEVER: Timestamp = Timestamp {
    seconds: -62_135_596_800,
    nanos: 0,
};

/// Health of the proxy.
///
/// A family is healthy unless a change has waited too long for its sync. The age of the
/// objects from the API server does not matter: old rules are better than load balancers
/// without targets.
///
/// Nothing here reads a clock. Times are durations since any fixed point, except for the
/// timestamps in responses.
#[derive(Clone, Debug)]
pub struct Health {
    limit: Duration,
    families: BTreeMap<Family, State>,
    eligible: bool,
    services: BTreeMap<Family, BTreeMap<ObjectName, LocalEndpoints>>,
}

/// State of one family.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Time since which a change waits for a sync.
    queued: Option<Duration>,
    /// Last time at which the kernel was known to be in sync.
    updated: Option<Timestamp>,
}

/// Local endpoints of a Service in one family, as reported to load balancers.
///
/// Exhaustive: these are the facts that a health check reports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LocalEndpoints {
    /// The health check node port.
    pub node_port: u16,
    /// Number of ready addresses on this node.
    pub count: usize,
}

/// An HTTP response.
///
/// Exhaustive: a response has three parts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpResponse {
    /// Status code.
    pub code: u16,
    /// Headers that depend on the response, as names and values.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: String,
}

impl Health {
    /// Creates the health of a proxy that has not synced and does not know its node.
    ///
    /// A family is unhealthy if a change has waited for `limit` or longer.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            families: BTreeMap::new(),
            eligible: false,
            services: BTreeMap::new(),
        }
    }

    /// Records that a change waits for a sync of a family since `now`.
    ///
    /// An earlier time of a waiting change is kept.
    pub fn queued(&mut self, family: Family, now: Duration) {
        let state = self.families.entry(family).or_default();
        state.queued.get_or_insert(now);
    }

    /// Records that no change waits for a sync of a family.
    ///
    /// A family counts as healthy until the first call for it.
    pub fn updated(&mut self, family: Family, at: Timestamp) {
        let state = State {
            queued: None,
            updated: Some(at),
        };
        self.families.insert(family, state);
    }

    /// Returns the time since which a change waits for a sync of a family.
    pub fn pending_since(&self, family: Family) -> Option<Duration> {
        self.families.get(&family)?.queued
    }

    /// Sets whether load balancers may send new traffic to the node.
    pub fn set_eligible(&mut self, eligible: bool) {
        self.eligible = eligible;
    }

    /// Sets the Services of a family that have a health check node port, with their local
    /// endpoints.
    pub fn set_services(&mut self, family: Family, services: BTreeMap<ObjectName, LocalEndpoints>) {
        self.services.insert(family, services);
    }

    /// Returns the Services that have a health check node port, with that port.
    pub fn services(&self) -> impl Iterator<Item = (Family, &ObjectName, u16)> {
        self.services.iter().flat_map(|(&family, services)| {
            let services = services.iter();
            services.map(move |(name, local)| (family, name, local.node_port))
        })
    }

    /// Returns whether all families are healthy.
    pub fn is_healthy(&self, now: Duration) -> bool {
        self.families
            .values()
            .all(|state| self.is_family_healthy(state, now))
    }

    /// Returns the response of `/healthz`, for load balancers. It fails if the node is
    /// about to be removed, so that load balancers send no new traffic.
    pub fn healthz(&self, now: Duration, clock: Timestamp) -> HttpResponse {
        let is_good = self.is_healthy(now) && self.eligible;
        self.response(is_good, Some(self.eligible), now, clock)
    }

    /// Returns the response of `/livez`, for supervisors that restart the proxy. It does
    /// not depend on the node.
    pub fn livez(&self, now: Duration, clock: Timestamp) -> HttpResponse {
        self.response(self.is_healthy(now), None, now, clock)
    }

    /// Returns the response of the health check node port of a Service.
    ///
    /// The eligibility of the node does not affect it. `is_healthy` is the health of the
    /// proxy; without a health server, pass `true`. A Service that was deleted in the
    /// meantime gets an empty response.
    pub fn service(&self, family: Family, name: &ObjectName, is_healthy: bool) -> HttpResponse {
        let local = self.services.get(&family);
        let Some(local) = local.and_then(|services| services.get(name)) else {
            return HttpResponse {
                code: 200,
                headers: Vec::new(),
                body: String::new(),
            };
        };
        let LocalEndpoints { count, .. } = *local;
        let ObjectName { namespace, name } = name;
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace:?},\n\t\t\"name\": {name:?}\n\t}},\n\
             \t\"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": {is_healthy}\n}}"
        );
        let mut answer = HttpResponse::json(is_healthy && count > 0, body);
        let weight = ("X-Load-Balancing-Endpoint-Weight", count.to_string());
        answer.headers.push(weight);
        answer
    }

    fn is_family_healthy(&self, state: &State, now: Duration) -> bool {
        let waits = |since| now.saturating_sub(since) >= self.limit;
        state.updated.is_none() || !state.queued.is_some_and(waits)
    }

    fn response(
        &self,
        is_good: bool,
        eligible: Option<bool>,
        now: Duration,
        clock: Timestamp,
    ) -> HttpResponse {
        // Clients expect `lastUpdated` of a healthy response to advance.
        let updated = match is_good {
            true => clock,
            false => self.last_updated().unwrap_or(NEVER),
        };
        let mut body = format!(r#"{{"lastUpdated":"{updated}","currentTime":"{clock}""#);
        let mut add = |text: std::fmt::Arguments<'_>| {
            body.write_fmt(text)
                .expect("writing to a String cannot fail");
        };
        if let Some(eligible) = eligible {
            add(format_args!(r#","nodeEligible":{eligible}"#));
        }
        add(format_args!(r#","healthy":{}"#, self.is_healthy(now)));
        let started = self.families.iter();
        let started = started.filter_map(|(family, state)| Some((family, state, state.updated?)));
        for (index, (family, state, updated)) in started.clone().enumerate() {
            let before = if index == 0 { r#","status":{"# } else { "," };
            let healthy = self.is_family_healthy(state, now);
            add(format_args!(
                r#"{before}"{family}":{{"lastUpdated":"{updated}","healthy":{healthy}}}"#
            ));
        }
        body += if started.count() == 0 { "}" } else { "}}" };
        HttpResponse::json(is_good, body)
    }

    fn last_updated(&self) -> Option<Timestamp> {
        self.families
            .values()
            .filter_map(|state| state.updated)
            .max()
    }
}

impl HttpResponse {
    fn json(is_good: bool, body: String) -> Self {
        let headers = [
            ("Content-Type", "application/json"),
            ("X-Content-Type-Options", "nosniff"),
        ];
        Self {
            code: if is_good { 200 } else { 503 },
            headers: headers.map(|(name, value)| (name, value.into())).into(),
            body,
        }
    }
}

#[cfg(test)]
mod tests;
