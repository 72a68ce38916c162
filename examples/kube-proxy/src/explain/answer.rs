//! The answer to a question, in the form of its JSON document.

use std::net::SocketAddr;

use proxy_core::evaluator::ipvs::Template;
use serde::Serialize;

use super::effect::Effect;

/// The answer about one connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The connection.
    pub question: Question,
    /// Proxy mode.
    pub mode: String,
    /// Name of the node.
    pub node: String,
    /// Service port that owns the destination.
    pub service: Option<ServicePort>,
    /// Result: that of the kernel if its rules were read, otherwise that of the plan.
    /// Unknown if kernel or plan cannot be evaluated.
    pub outcome: Outcome,
    /// Endpoints that receive the connection, with their probabilities: by the kernel, or by
    /// the plan if the kernel was not evaluated.
    pub endpoints: Vec<Endpoint>,
    /// Other endpoints of the service port, which do not receive the connection.
    pub other_endpoints: Vec<Endpoint>,
    /// Whether the source address is translated.
    pub masquerade: Masquerade,
    /// Reason for the result.
    pub reason: String,
    /// Field of the API, or flag, that is the reason.
    pub field: Option<String>,
    /// Other service ports that claim the destination and do not get it.
    pub rivals: Vec<String>,
    /// Recorded endpoints of the client that apply, and those that the connection records.
    pub affinity: Vec<String>,
    /// Matching entries of connection tracking.
    pub conntrack: Vec<String>,
    /// What was assumed because no flag states it.
    pub assumed: Vec<String>,
    /// Connections from this node that were tried.
    pub probes: Vec<Probe>,
    /// Evaluation of the plan.
    pub plan: Side,
    /// Evaluation of the kernel's rules. `None`: they were not read.
    pub kernel: Option<Side>,
    /// Reason why the kernel's rules were not read, or only some of them.
    pub kernel_note: Option<String>,
    /// Whether kernel and plan give the same result. `None`: a side was not evaluated.
    pub agrees: Option<bool>,
    /// One sentence that answers the question.
    pub sentence: String,
}

/// A connection that was tried from this node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Probe {
    /// Address and port.
    pub address: String,
    /// Whether the address is an endpoint, otherwise it is the destination.
    #[serde(rename = "endpoint")]
    pub is_endpoint: bool,
    /// Result: `accepts`, `refuses`, `times out`, `is not probed` or an error.
    pub result: String,
}

/// A connection attempt.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Question {
    /// Protocol in lower case.
    pub protocol: String,
    /// Destination address and port.
    pub destination: String,
    /// Source address.
    pub source: String,
    /// Origin: `pod`, `node` or `outside`, as the rules distinguish it.
    pub from: String,
}

/// A service port.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Name of the port, empty for an unnamed port.
    pub port: String,
    /// Kind of the destination, such as `cluster IP`.
    pub address: String,
    /// Internal traffic policy.
    pub internal_traffic_policy: &'static str,
    /// External traffic policy.
    pub external_traffic_policy: &'static str,
    /// Timeout of session affinity in seconds.
    pub affinity_seconds: Option<u32>,
    /// Networks that may use the load balancer IPs.
    pub source_ranges: Vec<String>,
}

/// Result of a connection attempt. The worst is the last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// An endpoint receives the connection.
    Reachable,
    /// The connection leads to an address that is no endpoint of the service port.
    Elsewhere,
    /// The client gets an error at once.
    Refused,
    /// The client gets no response.
    Dropped,
    /// The rules cannot be evaluated.
    Unknown,
}

/// Whether connections are masqueraded.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Masquerade {
    /// No connection.
    Never,
    /// All connections.
    Always,
    /// It depends on the endpoint.
    Mixed,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Endpoint {
    /// Address and port.
    pub address: String,
    /// Probability, 0 for endpoints that do not receive the connection.
    pub probability: f64,
    /// Probability as a fraction, if its denominator has at most six digits.
    pub fraction: Option<String>,
    /// Whether the endpoint is ready.
    pub ready: Option<bool>,
    /// Whether the endpoint serves.
    pub serving: Option<bool>,
    /// Whether the endpoint is terminating.
    pub terminating: Option<bool>,
    /// Name of its node.
    pub node: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// Whether the endpoint is on this node.
    pub local: bool,
}

/// Evaluation of the rules of one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Result. The worst one if several are possible.
    pub outcome: Outcome,
    /// Endpoints with their probabilities.
    pub endpoints: Vec<Reached>,
    /// Addresses to which the connection leads, and which are no endpoints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Reached>,
    /// Whether connections are masqueraded.
    pub masquerade: Masquerade,
    /// Possible paths, the most probable first, at most one per endpoint.
    pub paths: Vec<Path>,
    /// Reason why the rules cannot be evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Rate or amount on which the result depends. The other fields hold within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// A rate or amount that a rule limits.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Limit {
    /// The rule.
    pub rule: String,
    /// Result beyond the limit.
    pub beyond: Outcome,
}

impl Side {
    /// Returns what happens to replies of endpoints, the worst first: those that are lost, and
    /// those that cannot be evaluated.
    pub(super) fn reply(&self) -> Option<(&Path, &Reply)> {
        let replies = || {
            let paths = self.paths.iter();
            paths.filter_map(|path| Some((path, path.reply.as_ref()?)))
        };
        let is_lost = |(_, reply): &(&Path, &Reply)| matches!(reply, Reply::Lost { .. });
        let is_unknown = |(_, reply): &(&Path, &Reply)| matches!(reply, Reply::Unknown { .. });
        replies()
            .find(is_lost)
            .or_else(|| replies().find(is_unknown))
    }
}

/// An endpoint or another address, with its probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reached {
    /// Address and port.
    pub address: String,
    /// Probability.
    pub probability: f64,
    /// Probability as a fraction, if its denominator has at most six digits.
    pub fraction: Option<String>,
}

impl Reached {
    /// Returns the probability as a person reads it.
    pub(super) fn short(&self) -> String {
        short(self.probability, self.fraction.as_deref())
    }
}

/// Returns a probability for a person: the fraction, or a decimal number that is rounded to
/// six digits.
pub(super) fn short(probability: f64, fraction: Option<&str>) -> String {
    match fraction {
        Some(fraction) => fraction.to_owned(),
        None if probability < 0.000_001 => format!("{probability:.1e}"),
        None => format!("{probability:.6}").trim_end_matches('0').to_owned(),
    }
}

/// A possible path of the packet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Path {
    /// Probability.
    pub probability: f64,
    /// End of the path, such as `to endpoint 10.244.1.11:8080`.
    pub end: String,
    /// Whether the connection is masqueraded.
    pub masqueraded: bool,
    /// Rules that matched, and other events, in order.
    pub steps: Vec<Step>,
    /// Updates of sets.
    pub updates: Vec<String>,
    /// Whether a rule of another program ended the path or led it elsewhere.
    pub foreign: bool,
    /// Result.
    #[serde(skip)]
    pub outcome: Outcome,
    /// Index of the step that ended the path or led it elsewhere.
    #[serde(skip)]
    pub decided: Option<usize>,
    /// Strongest effect of a rule of another program, and the index of its step.
    #[serde(skip)]
    pub(super) influence: Option<(Effect, usize)>,
    /// What ended the path besides rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// Where the packet was on its way to then, and whether there is no route.
    #[serde(skip)]
    pub(super) stopped: Option<(SocketAddr, bool)>,
    /// The first reply of the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
}

/// The way of the first reply of an endpoint.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Reply {
    /// The client receives it from the address that it connected to.
    Passes,
    /// The client does not get it, or discards it.
    Lost {
        /// Reason.
        reason: String,
        /// Field of the API that is the reason.
        field: Option<&'static str>,
        /// Whether a rule of another program is the reason.
        foreign: bool,
    },
    /// It cannot be evaluated.
    Unknown {
        /// Reason.
        reason: String,
    },
}

impl Path {
    /// Returns the step that ended the path or led it elsewhere.
    pub(super) fn deciding(&self) -> Option<&Step> {
        self.steps.get(self.decided?)
    }

    /// Returns the rule of another program with the strongest effect.
    pub(super) fn influence(&self) -> Option<(Effect, &Step)> {
        let (effect, index) = self.influence?;
        Some((effect, self.steps.get(index)?))
    }
}

/// A step on a path.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Step {
    /// Hook, table and chain of a rule, or hook of IPVS. Empty for other events.
    pub place: String,
    /// Handle of a rule in the kernel.
    pub handle: Option<u64>,
    /// Rule or event in native syntax.
    pub text: String,
    /// Elements of sets that matched.
    pub elements: Vec<String>,
    /// Counter of a rule in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter: Option<Counter>,
    /// Persistence template of IPVS that the packet found. The text has it, too.
    #[serde(skip)]
    pub template: Option<Template>,
}

/// Counter of a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Counter {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The answers about all addresses of a Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAnswer {
    /// Namespace and name.
    pub service: String,
    /// IP families in which the Service is served.
    pub families: Vec<String>,
    /// Result of the deciding answer: the first that does not work, otherwise the first that is
    /// unknown, otherwise the first.
    pub outcome: Outcome,
    /// Endpoints of the deciding answer.
    pub endpoints: Vec<Endpoint>,
    /// Masquerading of the deciding answer.
    pub masquerade: Masquerade,
    /// Reason of the deciding answer.
    pub reason: String,
    /// Field of the deciding answer.
    pub field: Option<String>,
    /// One sentence.
    pub sentence: String,
    /// One answer per address, port and origin.
    pub answers: Vec<Answer>,
    /// Why connections are left out.
    #[serde(skip)]
    pub(super) left_out: Option<String>,
}

/// An explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Explanation {
    /// About one connection.
    Connection(Box<Answer>),
    /// About a Service.
    Service(Box<ServiceAnswer>),
}

impl Explanation {
    /// Returns the result.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Connection(answer) => answer.outcome,
            Self::Service(answer) => answer.outcome,
        }
    }

    /// Returns the answers about single connections.
    pub(super) fn answers_mut(&mut self) -> &mut [Answer] {
        match self {
            Self::Connection(answer) => std::slice::from_mut(answer),
            Self::Service(answer) => &mut answer.answers,
        }
    }

    /// Returns the answers about single connections.
    pub fn answers(&self) -> &[Answer] {
        match self {
            Self::Connection(answer) => std::slice::from_ref(answer),
            Self::Service(answer) => &answer.answers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn probabilities_have_few_digits() {
        for (probability, fraction, expected) in [
            (0.5, Some("1/2"), "1/2"),
            (0.333_333_333_488_551_7, None, "0.333333"),
            (0.000_999_999_947, None, "0.001"),
            (0.000_000_123, None, "1.2e-7"),
        ] {
            assert_eq!(short(probability, fraction), expected);
        }
    }
}
