//! Counts of answers and failures.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::Answer;

/// Results of several requests.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Number of answers by server.
    pub servers: BTreeMap<String, usize>,
    /// Number of answers by client address as seen by the servers.
    pub clients: BTreeMap<IpAddr, usize>,
    /// Failed requests.
    pub failures: Vec<Failure>,
}

/// A failed request.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Time since the first request.
    pub at: Duration,
    /// Kind of the error.
    pub kind: io::ErrorKind,
    /// Error message.
    pub reason: String,
}

impl Answers {
    /// Returns the number of requests.
    pub fn requests(&self) -> usize {
        self.succeeded() + self.failures.len()
    }

    /// Returns the number of answers.
    pub fn succeeded(&self) -> usize {
        self.servers.values().sum()
    }

    /// Returns the number of answers from a server.
    pub fn count(&self, server: &str) -> usize {
        self.servers.get(server).copied().unwrap_or(0)
    }

    /// Returns the share of a server in all answers, from 0 to 1.
    pub fn share(&self, server: &str) -> f64 {
        self.count(server) as f64 / self.succeeded().max(1) as f64
    }

    /// Adds the result of a request sent at `at`.
    pub(super) fn add(&mut self, at: Duration, result: io::Result<Answer>) {
        match result {
            Ok(answer) => {
                *self.servers.entry(answer.server).or_default() += 1;
                *self.clients.entry(answer.client).or_default() += 1;
            }
            Err(error) => self.failures.push(Failure {
                at,
                kind: error.kind(),
                reason: error.to_string(),
            }),
        }
    }

    /// Returns the sum of both, with failures sorted by time.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        for (server, count) in other.servers {
            *self.servers.entry(server).or_default() += count;
        }
        for (client, count) in other.clients {
            *self.clients.entry(client).or_default() += count;
        }
        self.failures.extend(other.failures);
        self.failures.sort_by_key(|failure| failure.at);
        self
    }
}

impl fmt::Display for Answers {
    /// Formats as `backend-1 34, backend-2 31, backend-3 35; 0 failed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (server, count) in &self.servers {
            write!(f, "{separator}{server} {count}")?;
            separator = ", ";
        }
        if self.servers.is_empty() {
            f.write_str("no answers")?;
        }
        write!(f, "; {} failed", self.failures.len())?;
        if let Some(first) = self.failures.first() {
            write!(f, ", first after {:?}: {}", first.at, first.reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(server: &str) -> io::Result<Answer> {
        Ok(Answer {
            server: server.to_owned(),
            client: IpAddr::from([192, 0, 2, 10]),
            local: IpAddr::from([192, 0, 2, 10]),
        })
    }

    #[test]
    fn answers_are_counted_by_server_and_by_client() {
        let mut answers = Answers::default();
        for server in ["b", "a", "b", "b"] {
            answers.add(Duration::ZERO, answer(server));
        }
        assert_eq!(
            (answers.count("a"), answers.count("b"), answers.count("c")),
            (1, 3, 0)
        );
        assert_eq!(answers.clients[&IpAddr::from([192, 0, 2, 10])], 4);
        assert!((answers.share("b") - 0.75).abs() < 1e-9);
        assert_eq!(answers.to_string(), "a 1, b 3; 0 failed");
    }

    #[test]
    fn failures_are_counted_and_the_earliest_is_shown() {
        let refused = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        let (mut early, mut late) = (Answers::default(), Answers::default());
        early.add(Duration::from_secs(1), refused());
        late.add(Duration::from_secs(2), answer("a"));
        late.add(Duration::from_secs(3), refused());
        let answers = late.merge(early);
        assert_eq!((answers.requests(), answers.succeeded()), (3, 1));
        assert_eq!(
            answers.to_string(),
            "a 1; 2 failed, first after 1s: connection refused"
        );
    }
}
