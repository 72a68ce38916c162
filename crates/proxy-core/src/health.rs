//! Whether the proxy does its work, and what it answers to those who ask.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use vipline_service_model::{Family, ObjectName, Timestamp};

/// What is written where no time is known.
const NEVER: Timestamp = Timestamp {
    seconds: -62_135_596_800,
    nanos: 0,
};

/// Whether the proxy does its work.
///
/// A family is healthy unless something has waited too long for the sync that
/// does it.
/// Where objects come from does not matter: rules of yesterday are better than
/// load balancers that send nothing.
///
/// Nothing here reads a clock: times are counted from any fixed point, except
/// for those that are written into answers.
#[derive(Clone, Debug)]
pub struct Health {
    limit: Duration,
    families: BTreeMap<Family, State>,
    eligible: bool,
    services: BTreeMap<Family, BTreeMap<ObjectName, LocalEndpoints>>,
}

/// What is known of one family.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Since when something waits for a sync.
    queued: Option<Duration>,
    /// When the kernel was last known to be in step.
    updated: Option<Timestamp>,
}

/// What load balancers are told of a Service in one family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LocalEndpoints {
    /// The port of the node on which they ask.
    pub node_port: u16,
    /// How many addresses on this node are ready.
    pub count: usize,
}

/// An HTTP answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpResponse {
    /// The status code.
    pub code: u16,
    /// Names and values of headers that depend on the answer.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

impl Health {
    /// Returns the health of a proxy that has done nothing and knows no node.
    ///
    /// Unhealthy is what something has waited for at least as long as `limit`.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            families: BTreeMap::new(),
            eligible: false,
            services: BTreeMap::new(),
        }
    }

    /// Takes note that something waits for a sync of a family since `now`.
    ///
    /// What has waited for longer counts.
    pub fn queued(&mut self, family: Family, now: Duration) {
        let state = self.families.entry(family).or_default();
        state.queued.get_or_insert(now);
    }

    /// Takes note that nothing waits for a sync of a family any more.
    ///
    /// A family is judged only after this has been told once: when it begins.
    pub fn updated(&mut self, family: Family, at: Timestamp) {
        let state = State {
            queued: None,
            updated: Some(at),
        };
        self.families.insert(family, state);
    }

    /// Returns since when something waits for a sync of a family.
    pub fn pending_since(&self, family: Family) -> Option<Duration> {
        self.families.get(&family)?.queued
    }

    /// Takes note of whether load balancers should send new traffic to the node.
    pub fn set_eligible(&mut self, eligible: bool) {
        self.eligible = eligible;
    }

    /// Takes note of what a family's Services that load balancers ask about
    /// have on this node.
    pub fn set_services(&mut self, family: Family, services: BTreeMap<ObjectName, LocalEndpoints>) {
        self.services.insert(family, services);
    }

    /// Returns the Services that load balancers ask about, and on which port.
    pub fn services(&self) -> impl Iterator<Item = (Family, &ObjectName, u16)> {
        self.services.iter().flat_map(|(&family, services)| {
            let services = services.iter();
            services.map(move |(name, local)| (family, name, local.node_port))
        })
    }

    /// Tells whether all families are healthy.
    pub fn is_healthy(&self, now: Duration) -> bool {
        self.families.values().all(|state| self.judge(state, now))
    }

    /// Returns what `/healthz` answers at a time: for load balancers, which
    /// should not send new traffic to a node that goes away.
    pub fn healthz(&self, now: Duration, clock: Timestamp) -> HttpResponse {
        let is_good = self.is_healthy(now) && self.eligible;
        self.answer(is_good, Some(self.eligible), now, clock)
    }

    /// Returns what `/livez` answers at a time: for those who would restart the
    /// proxy, whatever becomes of the node.
    pub fn livez(&self, now: Duration, clock: Timestamp) -> HttpResponse {
        self.answer(self.is_healthy(now), None, now, clock)
    }

    /// Returns what the health check node port of a Service answers in a family.
    ///
    /// The node's eligibility is no matter of a single Service, and who asks for
    /// nobody's health takes the proxy to be healthy.
    /// A Service that is gone since the question was read has an empty answer.
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

    fn judge(&self, state: &State, now: Duration) -> bool {
        let waits = |since| now.saturating_sub(since) >= self.limit;
        state.updated.is_none() || !state.queued.is_some_and(waits)
    }

    fn answer(
        &self,
        is_good: bool,
        eligible: Option<bool>,
        now: Duration,
        clock: Timestamp,
    ) -> HttpResponse {
        // Who watches the time of a good answer expects it to go on.
        let updated = match is_good {
            true => clock,
            false => self.last_updated().unwrap_or(NEVER),
        };
        let mut body = format!(r#"{{"lastUpdated":"{updated}","currentTime":"{clock}""#);
        let mut add = |text: std::fmt::Arguments<'_>| {
            body.write_fmt(text).expect("a text takes what is written");
        };
        if let Some(eligible) = eligible {
            add(format_args!(r#","nodeEligible":{eligible}"#));
        }
        add(format_args!(r#","healthy":{}"#, self.is_healthy(now)));
        let judged = self.families.iter();
        let judged = judged.filter_map(|(family, state)| Some((family, state, state.updated?)));
        for (index, (family, state, updated)) in judged.clone().enumerate() {
            let before = if index == 0 { r#","status":{"# } else { "," };
            let healthy = self.judge(state, now);
            add(format_args!(
                r#"{before}"{family}":{{"lastUpdated":"{updated}","healthy":{healthy}}}"#
            ));
        }
        body += if judged.count() == 0 { "}" } else { "}}" };
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
