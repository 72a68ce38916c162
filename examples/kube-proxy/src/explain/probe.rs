//! `--probe`: connections from this node.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use vipline_service_model::Counted;

use super::answer::{Answer, Explanation, Outcome, Probe};

/// Time until an address must accept a connection.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of addresses in an explanation, and of those that are tried at once. So all
/// probes together take at most four seconds.
const MAX_ADDRESSES: usize = 64;
const AT_ONCE: usize = 16;

/// Results in words.
const ACCEPTS: &str = "accepts";
const REFUSES: &str = "refuses";
const TIMES_OUT: &str = "times out";
const NOT_PROBED: &str = "is not probed";

/// Field whose error an endpoint that does not accept shows.
const FIELD: &str = "spec.ports[].targetPort";

/// Connects to the TCP endpoints and destinations of all answers, and closes the connections
/// at once.
pub(super) fn run(explanation: &mut Explanation) {
    let answers = explanation.answers_mut();
    let mut results = BTreeMap::new();
    for address in answers.iter().flat_map(addresses) {
        if results.len() < MAX_ADDRESSES {
            results.insert(address, None);
        }
    }
    let known: Vec<SocketAddr> = results.keys().copied().collect();
    for some in known.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let tried = some
                .iter()
                .map(|&address| (address, scope.spawn(move || connect(address))));
            let tried: Vec<_> = tried.collect();
            for (address, handle) in tried {
                results.insert(address, handle.join().ok());
            }
        });
    }
    for answer in answers {
        add(answer, &results);
    }
    if let Explanation::Service(answer) = explanation {
        answer.summarize();
    }
}

/// Returns the addresses to connect to: the destination, which the question is about, and those
/// of all endpoints.
fn addresses(answer: &Answer) -> Vec<SocketAddr> {
    if answer.question.protocol != "tcp" {
        return Vec::new();
    }
    let endpoints = answer.endpoints.iter().chain(&answer.other_endpoints);
    let endpoints = endpoints.map(|it| &it.address);
    let all = [&answer.question.destination].into_iter().chain(endpoints);
    all.filter_map(|it| it.parse().ok()).collect()
}

/// Connects to an address, and returns the result in words.
fn connect(address: SocketAddr) -> String {
    match TcpStream::connect_timeout(&address, TIMEOUT) {
        Ok(_) => ACCEPTS.to_owned(),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => REFUSES.to_owned(),
        Err(error) if error.kind() == ErrorKind::TimedOut => TIMES_OUT.to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Adds the results to an answer, and to its sentence.
fn add(answer: &mut Answer, results: &BTreeMap<SocketAddr, Option<String>>) {
    let result = |text: &str| {
        let address: SocketAddr = text.parse().ok()?;
        let result = results.get(&address).cloned().flatten();
        Some(result.unwrap_or_else(|| NOT_PROBED.to_owned()))
    };
    let is_tcp = answer.question.protocol == "tcp";
    let probe = |address: &String, is_endpoint| Probe {
        address: address.clone(),
        is_endpoint,
        result: result(address)
            .filter(|_| is_tcp)
            .unwrap_or_else(|| NOT_PROBED.to_owned()),
    };
    let reached: Vec<Probe> = answer
        .endpoints
        .iter()
        .map(|it| probe(&it.address, true))
        .collect();
    let others = answer
        .other_endpoints
        .iter()
        .map(|it| probe(&it.address, true));
    let destination = probe(&answer.question.destination, false);
    let all = reached.iter().cloned().chain(others);
    answer.probes = all.chain([destination.clone()]).collect();
    if !is_tcp {
        let protocol = answer.question.protocol.to_uppercase();
        answer.sentence += &format!(
            " {protocol} is not probed: without a request that the server knows, silence says \
             nothing."
        );
        return;
    }
    let failed: Vec<&Probe> = reached.iter().filter(|it| is_failed(it)).collect();
    let probed = reached.iter().filter(|it| is_probed(it)).count();
    // Silence about an endpoint would read as success.
    let kind = match probed == reached.len() {
        true => "endpoint",
        false => "probed endpoint",
    };
    if answer.outcome == Outcome::Reachable && !failed.is_empty() {
        let refused = failed.iter().any(|it| it.result == REFUSES);
        let list = by_result(&failed);
        let reason = match refused {
            true => {
                "nothing listens on that port there: compare targetPort with the port of \
                     the container"
            }
            false => "the pod or the network between does not answer",
        };
        answer.outcome = match failed.iter().all(|it| it.result == REFUSES) {
            true => Outcome::Refused,
            false => Outcome::Dropped,
        };
        answer.reason = format!("{list}: {reason}");
        answer.field = Some(FIELD.to_owned());
        let (count, all) = (failed.len(), Counted(probed, kind));
        let way = answer
            .sentence
            .trim_start_matches("Works for the first packet: ");
        answer.sentence = format!(
            "Does not work for {count} of {all}: from this node, {list}; {reason} ({FIELD}). The \
             rules are right: {way}"
        );
    } else if answer.outcome == Outcome::Reachable && is_failed(&destination) {
        answer.sentence += &format!(
            " From this node, all {kind}s accept connections, but {}.",
            by_result(&[&destination])
        );
    } else if is_failed(&destination) {
        answer.sentence += &format!(" From this node, {}.", by_result(&[&destination]));
    } else if is_probed(&destination) {
        answer.sentence += &format!(
            " The probe from this node: {} accepts.",
            destination.address
        );
    }
    let left = answer.probes.iter().filter(|it| !is_probed(it)).count();
    if left > 0 {
        let (all, are) = (answer.probes.len(), if left == 1 { "is" } else { "are" });
        answer.sentence +=
            &format!(" {left} of {all} addresses {are} not probed: at most {MAX_ADDRESSES} are.");
    }
}

/// Returns addresses with the same result together: `A and B refuse connections`.
fn by_result(probes: &[&Probe]) -> String {
    let mut results: Vec<&str> = probes.iter().map(|it| &*it.result).collect();
    results.sort_unstable();
    results.dedup();
    let each = results.into_iter().map(|result| {
        let of_result = probes.iter().filter(|it| it.result == result);
        let addresses: Vec<&str> = of_result.map(|it| &*it.address).collect();
        let words = match (result, addresses.len()) {
            (REFUSES, 1) => "refuses connections",
            (REFUSES, _) => "refuse connections",
            (TIMES_OUT, 1) => "does not answer",
            (TIMES_OUT, _) => "do not answer",
            (error, _) => return format!("connections to {} fail: {error}", list(&addresses)),
        };
        format!("{} {words}", list(&addresses))
    });
    each.collect::<Vec<_>>().join("; ")
}

/// Returns `A`, `A and B`, or `A, B and C`.
fn list(words: &[&str]) -> String {
    match words {
        [first @ .., second, last] => {
            let before: String = first.iter().map(|word| format!("{word}, ")).collect();
            format!("{before}{second} and {last}")
        }
        words => words.concat(),
    }
}

fn is_failed(probe: &Probe) -> bool {
    is_probed(probe) && probe.result != ACCEPTS
}

fn is_probed(probe: &Probe) -> bool {
    probe.result != NOT_PROBED
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_verb_agrees_with_its_addresses() {
        let probe = |address: &str, result: &str| Probe {
            address: address.to_owned(),
            is_endpoint: true,
            result: result.to_owned(),
        };
        let probes = [
            probe("a", REFUSES),
            probe("b", TIMES_OUT),
            probe("c", REFUSES),
            probe("d", "Network is unreachable (os error 101)"),
            probe("e", REFUSES),
        ];
        let all: Vec<&Probe> = probes.iter().collect();
        assert_eq!(
            by_result(&all),
            "connections to d fail: Network is unreachable (os error 101); a, c and e refuse \
             connections; b does not answer"
        );
        assert_eq!(by_result(&all[..1]), "a refuses connections");
    }

    #[test]
    fn an_address_accepts_or_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(connect(address), ACCEPTS);
        drop(listener);
        assert_eq!(connect(address), REFUSES);
    }
}
