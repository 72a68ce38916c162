//! Expected results of requests.
//!
//! Implements the routing rules of Kubernetes independently of the proxy, so that the
//! demo can check its results.

use std::io::ErrorKind;
use std::net::IpAddr;

use testkit::traffic::Answers;
use vipline_service_model::parse_network;

use super::manifests::{Endpoint, Frontend, Kind};

/// Location of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// Outside the cluster.
    Outside,
    /// A pod on the node.
    Pod,
    /// The node itself.
    Node,
}

/// Expected result of requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Expected {
    /// Exactly these servers answer.
    All(Vec<String>),
    /// A single server from this list answers all requests.
    One(Vec<String>),
    /// Requests are rejected immediately.
    Refused,
    /// Requests get no response.
    Dropped,
}

impl Frontend {
    /// Returns whether the result of requests from `place` is defined.
    ///
    /// Routes determine the source address of a request from the node, so its result is
    /// undefined if the Service has source ranges.
    pub(super) fn is_for(&self, place: Place) -> bool {
        place != Place::Node || self.ranges.is_empty()
    }

    /// Returns the expected result of requests from `from`, an address at `place`.
    pub(super) fn expected(
        &self,
        place: Place,
        from: IpAddr,
        name: impl Fn(&Endpoint) -> String,
    ) -> Expected {
        let local_only = self.is_local_for(place);
        let by: Vec<_> = self
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.local || !local_only)
            .map(name)
            .collect();
        if self.endpoints.is_empty() {
            Expected::Refused
        } else if by.is_empty() || !self.admits(from) {
            Expected::Dropped
        } else if self.sticky {
            Expected::One(by)
        } else {
            Expected::All(by)
        }
    }

    /// Returns whether endpoints see the client's own address, or [`None`] for the node,
    /// which has several addresses.
    ///
    /// Traffic from pods to cluster IPs is not masqueraded.
    /// Other traffic is, unless the external traffic policy `Local` preserves the address.
    pub(super) fn shows_client(&self, place: Place) -> Option<bool> {
        match (self.kind, place) {
            (_, Place::Node) => None,
            (Kind::ClusterIp, _) => Some(place == Place::Pod),
            _ => Some(self.local_policy),
        }
    }

    /// Returns whether only endpoints on this node may answer.
    ///
    /// The external traffic policy does not apply to pods and the node.
    fn is_local_for(&self, place: Place) -> bool {
        self.local_policy && (self.kind == Kind::ClusterIp || place == Place::Outside)
    }

    fn admits(&self, from: IpAddr) -> bool {
        let range = |text: &String| parse_network(text).is_some_and(|it| it.contains(&from));
        self.ranges.is_empty() || self.ranges.iter().any(range)
    }
}

impl Expected {
    /// Compares answers with the expected result. The error describes the difference.
    pub(super) fn judge(&self, answers: &Answers) -> Result<(), String> {
        let only_from = |by: &[String]| {
            let mut servers = answers.servers.keys();
            servers
                .find(|server| !by.contains(server))
                .map_or(Ok(()), |server| Err(format!("{server} should not answer")))
        };
        match self {
            Self::All(by) => all_answer(answers, by).and_then(|()| only_from(by)),
            Self::One(by) => {
                all_answer(answers, &[]).and_then(|()| only_from(by))?;
                match answers.servers.len() {
                    1 => Ok(()),
                    count => Err(format!("sent to {count} endpoints, not to one")),
                }
            }
            Self::Refused => fails(answers, "refused", &[ErrorKind::ConnectionRefused]),
            // A process gets EPERM if its own node drops the packet.
            Self::Dropped => fails(
                answers,
                "dropped",
                &[ErrorKind::TimedOut, ErrorKind::PermissionDenied],
            ),
        }
    }
}

/// Checks that no request failed and that each server of `by` answered.
pub(super) fn all_answer(answers: &Answers, by: &[String]) -> Result<(), String> {
    let silent: Vec<&str> = by
        .iter()
        .map(|server| &**server)
        .filter(|server| answers.count(server) == 0)
        .collect();
    if let Some(first) = answers.failures.first() {
        let (at, reason) = (first.at, &first.reason);
        Err(format!("first failure after {at:.1?}: {reason}"))
    } else if !silent.is_empty() {
        Err(format!("no answer from {}", silent.join(", ")))
    } else {
        Ok(())
    }
}

/// Checks that all requests failed, with errors in `kinds` only.
fn fails(answers: &Answers, word: &str, kinds: &[ErrorKind]) -> Result<(), String> {
    let mut failures = answers.failures.iter();
    match failures.find(|failure| !kinds.contains(&failure.kind)) {
        _ if answers.succeeded() > 0 => Err(format!("should be {word}")),
        Some(other) => Err(format!("should be {word}, not {}", other.reason)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testkit::traffic::{Failure, Protocol};

    use super::*;

    const NEAR: &str = "10.244.1.13:8080";
    const FAR: &str = "10.244.2.11:8080";

    fn frontend(kind: Kind) -> Frontend {
        let endpoint = |at: &str, local| Endpoint {
            at: at.parse().unwrap(),
            local,
        };
        Frontend {
            service: "web".to_owned(),
            namespace: "shop".to_owned(),
            kind,
            protocol: Protocol::Tcp,
            address: "203.0.113.10:80".parse().unwrap(),
            endpoints: vec![endpoint(NEAR, true), endpoint(FAR, false)],
            local_policy: false,
            sticky: false,
            ranges: Vec::new(),
        }
    }

    fn expected(frontend: &Frontend, place: Place) -> Expected {
        let from = "192.0.2.10".parse().unwrap();
        frontend.expected(place, from, |endpoint| endpoint.at.to_string())
    }

    fn all(by: &[&str]) -> Expected {
        Expected::All(by.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn traffic_policies_select_endpoints_as_kubernetes_does() {
        for kind in [Kind::ClusterIp, Kind::NodePort, Kind::LoadBalancer] {
            let mut frontend = frontend(kind);
            for place in [Place::Outside, Place::Pod, Place::Node] {
                assert_eq!(expected(&frontend, place), all(&[NEAR, FAR]));
            }
            frontend.local_policy = true;
            let outside = expected(&frontend, Place::Outside);
            assert_eq!(outside, all(&[NEAR]), "{kind:?}");
            let pod = expected(&frontend, Place::Pod);
            let internal = kind == Kind::ClusterIp;
            assert_eq!(pod == all(&[NEAR]), internal, "{kind:?}");
            frontend.endpoints.remove(0);
            assert_eq!(expected(&frontend, Place::Outside), Expected::Dropped);
            frontend.endpoints.clear();
            assert_eq!(expected(&frontend, Place::Outside), Expected::Refused);
        }
    }

    #[test]
    fn source_ranges_admit_only_their_clients() {
        let mut frontend = frontend(Kind::LoadBalancer);
        frontend.ranges = vec!["192.0.2.0/28".to_owned()];
        assert_eq!(expected(&frontend, Place::Outside), all(&[NEAR, FAR]));
        frontend.ranges = vec!["192.0.2.0/29".to_owned()];
        assert_eq!(expected(&frontend, Place::Outside), Expected::Dropped);
        assert!(frontend.is_for(Place::Pod) && !frontend.is_for(Place::Node));
    }

    fn answers(servers: &[&str], failures: &[ErrorKind]) -> Answers {
        Answers {
            servers: servers
                .iter()
                .map(|&server| (server.to_owned(), 3))
                .collect(),
            failures: failures
                .iter()
                .map(|&kind| Failure {
                    at: Duration::ZERO,
                    kind,
                    reason: "late".to_owned(),
                })
                .collect(),
            ..Answers::default()
        }
    }

    #[test]
    fn differences_from_the_expected_result_are_described() {
        let both = all(&["a", "b"]);
        let one = Expected::One(vec!["a".to_owned(), "b".to_owned()]);
        let late = &[ErrorKind::TimedOut];
        let no = &[ErrorKind::ConnectionRefused];
        let cases = [
            (&both, answers(&["a", "b"], &[]), Ok(())),
            (&both, answers(&["a"], &[]), Err("no answer from b")),
            (&both, answers(&["a", "b"], late), Err("late")),
            (&both, answers(&["a", "b", "c"], &[]), Err("c should not")),
            (&one, answers(&["b"], &[]), Ok(())),
            (&one, answers(&["a", "b"], &[]), Err("2 endpoints")),
            (&one, answers(&["c"], &[]), Err("c should not")),
            (&Expected::Refused, answers(&[], no), Ok(())),
            (&Expected::Refused, answers(&[], late), Err("not late")),
            (
                &Expected::Refused,
                answers(&["a"], no),
                Err("should be refused"),
            ),
            (&Expected::Dropped, answers(&[], late), Ok(())),
            (
                &Expected::Dropped,
                answers(&[], no),
                Err("should be dropped"),
            ),
        ];
        for (expected, answers, verdict) in cases {
            let found = expected.judge(&answers);
            let matches = match (&found, verdict) {
                (Ok(()), Ok(())) => true,
                (Err(words), Err(part)) => words.contains(part),
                _ => false,
            };
            assert!(matches, "{expected:?}: {found:?}, not {verdict:?}");
        }
    }
}
