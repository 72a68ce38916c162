//! Explanations of kube-proxy, compared with the answers to requests.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde::Deserialize;
use testkit::netns::Netns;
use testkit::proxy::Options;
use testkit::traffic::{Answers, Protocol};

use super::expect::Expected;

/// The compared part of the document that `kube-proxy explain` prints.
#[derive(Debug, Deserialize)]
pub(super) struct Explanation {
    outcome: Outcome,
    endpoints: Vec<Reached>,
    masquerade: Masquerade,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Reachable,
    Refused,
    Dropped,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Masquerade {
    Never,
    Always,
    Mixed,
}

#[derive(Debug, Deserialize)]
struct Reached {
    address: SocketAddr,
    probability: f64,
}

impl Explanation {
    /// Evaluates a connection from an address, or from the node, with the rules of the
    /// node's kernel.
    pub(super) fn of(
        options: &Options,
        node: &Netns,
        protocol: Protocol,
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> Result<Self> {
        let mut command = options.command();
        command.args(["explain", &protocol.to_string(), &to.to_string()]);
        match from {
            Some(from) => command.args(["--from", &from.to_string()]),
            None => command.arg("--from-node"),
        };
        let output = node.run(|| command.args(["--output", "json"]).output())?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Compares the explanation with answers. The error describes the difference.
    ///
    /// `name` returns the name of an endpoint. `own` is the address of the client, unless
    /// its choice is that of routes.
    pub(super) fn judge(
        &self,
        answers: &Answers,
        is_sticky: bool,
        own: Option<IpAddr>,
        name: impl Fn(SocketAddr) -> String,
    ) -> Result<(), String> {
        let reached = self.endpoints.iter().filter(|it| it.probability > 0.0);
        let names: BTreeSet<String> = reached.map(|it| name(it.address)).collect();
        let names = names.into_iter().collect();
        let expected = match self.outcome {
            Outcome::Reachable if is_sticky => Expected::One(names),
            Outcome::Reachable => Expected::All(names),
            Outcome::Refused => Expected::Refused,
            Outcome::Dropped => Expected::Dropped,
        };
        let verdict = expected.judge(answers).and_then(|()| match own {
            Some(own) => self.judge_clients(answers, own),
            None => Ok(()),
        });
        verdict.map_err(|words| format!("explained otherwise: {words}"))
    }

    /// Compares the source addresses that endpoints saw with the explained translation.
    fn judge_clients(&self, answers: &Answers, own: IpAddr) -> Result<(), String> {
        let is_wrong = |seen: &&IpAddr| match self.masquerade {
            Masquerade::Never => **seen != own,
            Masquerade::Always => **seen == own,
            Masquerade::Mixed => false,
        };
        let wrong = answers.clients.keys().find(is_wrong);
        wrong.map_or(Ok(()), |wrong| Err(format!("seen as {wrong}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str, server: &str, client: &str) -> Result<(), String> {
        let explanation: Explanation = serde_json::from_str(text).unwrap();
        let own: IpAddr = "10.244.1.5".parse().unwrap();
        let answers = Answers {
            servers: [(server.to_owned(), 3)].into(),
            clients: [(client.parse().unwrap(), 3)].into(),
            ..Answers::default()
        };
        explanation.judge(&answers, false, Some(own), |at| at.ip().to_string())
    }

    #[test]
    fn explanations_that_differ_from_answers_are_described() {
        let text = |outcome: &str, masquerade: &str| {
            let endpoints = r#"[{"address": "10.244.1.11:8080", "probability": 1.0},
                {"address": "10.244.1.12:8080", "probability": 0.0}]"#;
            format!(
                r#"{{"outcome": "{outcome}", "endpoints": {endpoints}, "masquerade": "{masquerade}"}}"#
            )
        };
        let reached = text("reachable", "never");
        let (one, other) = ("10.244.1.11", "10.244.1.12");
        assert_eq!(judge(&reached, one, "10.244.1.5"), Ok(()));
        for (text, server, client, words) in [
            (reached.clone(), other, "10.244.1.5", "no answer from"),
            (reached, one, "10.244.1.1", "seen as 10.244.1.1"),
            (text("reachable", "always"), one, "10.244.1.5", "seen as"),
            (text("refused", "never"), one, "10.244.1.5", "refused"),
            (text("dropped", "never"), one, "10.244.1.5", "dropped"),
        ] {
            let found = judge(&text, server, client).unwrap_err();
            assert!(found.contains(words), "{found}");
        }
    }
}
