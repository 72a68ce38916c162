//! Who has to answer whom.
//!
//! The rules of Kubernetes, told once more and apart from the proxy: what the
//! demo sees is compared with them.

use std::io::ErrorKind;
use std::net::IpAddr;

use testkit::traffic::Answers;
use vipline_service_model::parse_network;

use super::manifests::{Endpoint, Frontend, Kind};

/// Where somebody asks from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// Outside of the cluster.
    Outside,
    /// A pod of the node.
    Pod,
    /// The node itself.
    Node,
}

/// What must come of asking.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Expected {
    /// Each of these answers, and nobody else.
    All(Vec<String>),
    /// One of these answers, always the same.
    One(Vec<String>),
    /// The client hears at once that nobody is there.
    Refused,
    /// The client hears nothing.
    Dropped,
}

impl Frontend {
    /// Tells whether the rules say what comes of asking from there.
    ///
    /// What address a process of the node asks from is a matter of its routes,
    /// so no source range is meant for it.
    pub(super) fn is_for(&self, place: Place) -> bool {
        place != Place::Node || self.ranges.is_empty()
    }

    /// Returns what must come of asking from a place, at an address there.
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

    /// Tells whether endpoints see the client's own address; nothing is said of
    /// the node, which has several.
    ///
    /// What comes from outside is masqueraded, unless it stays on this node for
    /// the sake of its address; what pods send leaves as it is, unless the
    /// answer would go another way.
    pub(super) fn shows_client(&self, place: Place) -> Option<bool> {
        match (self.kind, place) {
            (_, Place::Node) => None,
            (Kind::ClusterIp, _) => Some(place == Place::Pod),
            _ => Some(self.local_policy),
        }
    }

    /// Tells whether only endpoints on this node may answer.
    ///
    /// The policy for external traffic does not bind pods and the node, who
    /// could ask the endpoints themselves.
    fn is_local_for(&self, place: Place) -> bool {
        self.local_policy && (self.kind == Kind::ClusterIp || place == Place::Outside)
    }

    fn admits(&self, from: IpAddr) -> bool {
        let range = |text: &String| parse_network(text).is_some_and(|it| it.contains(&from));
        self.ranges.is_empty() || self.ranges.iter().any(range)
    }
}

impl Expected {
    /// Compares answers with what must come; the error says what is wrong.
    pub(super) fn judge(&self, answers: &Answers) -> Result<(), String> {
        let known = |by: &[String]| {
            let mut servers = answers.servers.keys();
            servers
                .find(|server| !by.contains(server))
                .map_or(Ok(()), |server| Err(format!("{server} should not answer")))
        };
        match self {
            Self::All(by) => all_answer(answers, by).and_then(|()| known(by)),
            Self::One(by) => {
                all_answer(answers, &[]).and_then(|()| known(by))?;
                match answers.servers.len() {
                    1 => Ok(()),
                    count => Err(format!("sent to {count} endpoints, not to one")),
                }
            }
            Self::Refused => fails(answers, "refused", &[ErrorKind::ConnectionRefused]),
            // A process hears when its own node drops what it sends.
            Self::Dropped => fails(
                answers,
                "dropped",
                &[ErrorKind::TimedOut, ErrorKind::PermissionDenied],
            ),
        }
    }
}

/// Tells that nothing failed and that each of `by` answered.
pub(super) fn all_answer(answers: &Answers, by: &[String]) -> Result<(), String> {
    let silent: Vec<&str> = by
        .iter()
        .map(|server| &**server)
        .filter(|server| answers.by(server) == 0)
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

/// Tells that everything failed, in one of these ways.
fn fails(answers: &Answers, word: &str, kinds: &[ErrorKind]) -> Result<(), String> {
    let mut failures = answers.failures.iter();
    match failures.find(|failure| !kinds.contains(&failure.kind)) {
        _ if answers.answered() > 0 => Err(format!("should be {word}")),
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
    fn policies_are_as_the_packet_matrix_of_kubernetes() {
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
    fn ranges_admit_only_clients_in_them() {
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
    fn whoever_fails_is_silent_or_should_be_is_told() {
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
            let told = match (&found, verdict) {
                (Ok(()), Ok(())) => true,
                (Err(words), Err(part)) => words.contains(part),
                _ => false,
            };
            assert!(told, "{expected:?}: {found:?}, not {verdict:?}");
        }
    }
}
