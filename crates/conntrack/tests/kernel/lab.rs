//! A network namespace with a client, in which programs are run.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command as Program, Output, Stdio};

use testkit::netns::Netns;
use vipline_conntrack::{
    Client, Dump, Error, Filter, Flow, Key, Layer4, Protocol, RejectedChange, Status, Tuple,
};

/// A network namespace and a client in it.
pub(crate) struct Lab {
    pub(crate) netns: Netns,
    pub(crate) client: Client,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(Client::open).unwrap();
        Self { netns, client }
    }

    /// Creates a namespace with the given flows.
    pub(crate) fn with(flows: impl IntoIterator<Item = Flow>) -> Self {
        let mut lab = Self::new();
        lab.client.create_all(flows).unwrap();
        lab
    }

    pub(crate) fn run(&self, program: &str, args: &[&str], input: &str) -> Output {
        self.netns.run(|| {
            let mut child = Program::new(program)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(input.as_bytes()).unwrap();
            drop(stdin);
            child.wait_with_output().unwrap()
        })
    }

    /// Runs a program that must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn succeeds(&self, program: &str, args: &[&str], input: &str) -> String {
        let output = self.run(program, args, input);
        assert!(
            output.status.success(),
            "{program} {args:?}: {output:?}\n{input}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `conntrack` with arguments separated by spaces.
    #[track_caller]
    pub(crate) fn conntrack(&self, words: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.succeeds("conntrack", &words, "")
    }

    /// Returns the [`lines`] that `conntrack` prints.
    #[track_caller]
    pub(crate) fn printed(&self, options: &str) -> Vec<String> {
        lines(self.conntrack(&format!("-L -o extended {options}")).lines())
    }

    pub(crate) fn flows(&mut self, filter: &Filter) -> Vec<Flow> {
        complete(self.client.flows(filter).unwrap())
    }

    pub(crate) fn all(&mut self) -> Vec<Flow> {
        self.flows(&Filter::new())
    }

    /// Returns the only flow of the table.
    pub(crate) fn only(&mut self) -> Flow {
        let mut all = self.all();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

/// Returns the [`lines`] of formatted flows.
pub(crate) fn texts<'a>(flows: impl IntoIterator<Item = &'a Flow>) -> Vec<String> {
    let texts: Vec<String> = flows.into_iter().map(ToString::to_string).collect();
    lines(texts.iter().map(String::as_str))
}

/// Sorts lines, and removes the timeout, which decreases.
fn lines<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let without_timeout = |line: &str| {
        let timeout = line.split_whitespace().nth(4).unwrap_or_default();
        let is_number = timeout.parse::<u32>().is_ok_and(|seconds| seconds > 255);
        assert!(is_number, "no timeout in {line}");
        line.replacen(&format!(" {timeout} "), " ", 1)
    };
    let mut lines: Vec<String> = lines.map(without_timeout).collect();
    lines.sort();
    lines
}

/// Returns the sorted keys.
pub(crate) fn keys<'a>(flows: impl IntoIterator<Item = &'a Flow>) -> Vec<Key> {
    let mut keys: Vec<Key> = flows.into_iter().map(Flow::key).collect();
    keys.sort();
    keys
}

/// Returns an untranslated UDP flow.
pub(crate) fn udp(number: u16) -> Flow {
    let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let tuple = Tuple::ports(Protocol::UDP, (from, number), (to, 53));
    let mut flow = Flow::new(tuple, tuple.inverted());
    flow.timeout = Some(1000);
    flow
}

/// Returns different kinds of flows, each with another tuple.
pub(crate) fn mixed(count: u16) -> Vec<Flow> {
    (0..count).map(one_of_many).collect()
}

/// Returns one of the flows of [`mixed`].
fn one_of_many(number: u16) -> Flow {
    let is_v6 = number.is_multiple_of(3);
    let host = |net: u16, host: u16| -> IpAddr {
        let text = match is_v6 {
            true => format!("fd00:{net}::{host}"),
            false => format!("10.{net}.0.{host}"),
        };
        text.parse().unwrap()
    };
    let every = |count: u16| number.is_multiple_of(count);
    let protocol = match (number / 3 % 4, is_v6) {
        (0, _) => Protocol::TCP,
        (1, _) => Protocol::UDP,
        (2, _) => Protocol::SCTP,
        (_, true) => Protocol::ICMPV6,
        (_, false) => Protocol::ICMP,
    };
    let mut tuple = Tuple::ports(
        protocol,
        (host(1, 1 + number % 5), 1024 + number),
        (
            host(2, 1 + number % 7),
            [53, 80, 443][usize::from(number / 12 % 3)],
        ),
    );
    if matches!(protocol, Protocol::ICMP | Protocol::ICMPV6) {
        let kind = if is_v6 { 128 } else { 8 };
        tuple.layer4 = Layer4::Icmp {
            kind,
            code: 0,
            id: number,
        };
    }
    let mut flow = Flow::new(tuple, tuple.inverted());
    if every(5) && tuple.source_port().is_some() {
        flow.status |= Status::DST_NAT;
        let (client, backend) = ((tuple.source, 1024 + number), (host(3, 9), 8080));
        flow.reply = Tuple::ports(protocol, backend, client);
    }
    flow.timeout = Some(1000 + u32::from(number));
    flow.mark = Some(u32::from(number % 16) << 4 | u32::from(number % 2));
    if every(2) {
        flow.status |= Status::SEEN_REPLY;
    }
    if every(4) {
        flow.status |= Status::ASSURED;
    }
    match number % 11 {
        0 => flow.zone = Some(5),
        1 => flow.original.zone = Some(6),
        _ => {}
    }
    flow
}

/// Returns the number of rejected changes, and the changes.
#[track_caller]
pub(crate) fn rejected<T: std::fmt::Debug>(
    result: Result<T, Error>,
) -> (usize, Vec<RejectedChange>) {
    match result.unwrap_err() {
        Error::Rejected { rejected, .. } => (rejected.len(), rejected),
        other => panic!("{other}"),
    }
}

#[track_caller]
pub(crate) fn complete<T>(dump: Dump<T>) -> T {
    match dump {
        Dump::Complete(value) => value,
        Dump::Interrupted(_) => panic!("an interrupted dump"),
    }
}
