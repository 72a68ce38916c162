//! Tests of every kind of rejection, for a line of one of several Services.

use vipline_iptables::{ChainName, Position, TableName};
use vipline_reconcile::{Atomic, Rejection, isolate};

use super::*;

/// Messages of the programs, with their error numbers.
const MESSAGES: [(&str, i32); 8] = [
    (
        "RULE_APPEND failed (No such file or directory): rule in chain KUBE-SVC-BBBBBBBBBBBBBBBB",
        2,
    ),
    (
        "RULE_APPEND failed (Argument list too long): rule in chain KUBE-SVC-BBBBBBBBBBBBBBBB",
        7,
    ),
    (
        "RULE_APPEND failed (Cannot allocate memory): rule in chain KUBE-SVC-BBBBBBBBBBBBBBBB",
        12,
    ),
    (
        "CHAIN_DEL failed (Device or resource busy): chain KUBE-SVC-BBBBBBBBBBBBBBBB",
        16,
    ),
    (
        "CHAIN_ADD failed (File exists): chain KUBE-SVC-BBBBBBBBBBBBBBBB",
        17,
    ),
    (
        "RULE_APPEND failed (Invalid argument): rule in chain KUBE-SVC-BBBBBBBBBBBBBBBB",
        22,
    ),
    (
        "RULE_APPEND failed (No space left on device): rule in chain KUBE-SVC-BBBBBBBBBBBBBBBB",
        28,
    ),
    ("Bad rule (does a matching rule exist in that chain?).", 2),
];

fn nat() -> TableName {
    TableName::NAT
}

fn chain(name: &str, rules: &[&str]) -> Object {
    let name = ChainName::new(name).unwrap();
    Chain::new(nat(), name)
        .with_rules(rules.iter().collect())
        .into()
}

fn entry(rule: &str) -> Object {
    Object::from(SharedRule {
        table: nat(),
        chain: ChainName::new("KUBE-SERVICES").unwrap(),
        position: Position::Head,
        occurrence: 0,
        rule: rule.into(),
    })
}

/// Returns the objects of a Service: its chain, the chain of an endpoint, and a jump.
fn service(letter: char) -> Vec<Object> {
    let hash = letter.to_string().repeat(16);
    let (all, one) = (format!("KUBE-SVC-{hash}"), format!("KUBE-SEP-{hash}"));
    vec![
        chain(&all, &[&format!("-j {one}")]),
        chain(&one, &["-j KUBE-MARK-MASQ"]),
        entry(&format!("-d 10.96.0.1 -j {all}")),
    ]
}

fn base() -> Vec<Object> {
    vec![
        chain("KUBE-MARK-MASQ", &["-j MARK"]),
        Chain::new(nat(), ChainName::new("KUBE-SERVICES").unwrap())
            .with_contents(Contents::SharedRules)
            .into(),
    ]
}

/// A program that rejects documents with certain lines.
struct Refusing<'a> {
    edits: &'a [Edit<Object>],
    groups: Groups<'a>,
    line: &'a str,
    /// Message about the line. Without a message only `COMMIT` is named.
    message: Option<&'a str>,
    attempts: usize,
}

impl Atomic for Refusing<'_> {
    type Error = ();

    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, ()> {
        self.attempts += 1;
        let part: Vec<_> = batch.iter().map(|&it| self.edits[it].clone()).collect();
        let document = vipline_iptables::Restore::from_edits(&part).to_string();
        if !document.lines().any(|line| line == self.line) {
            return Ok(Attempt::Applied);
        }
        let (line, message) = match self.message {
            Some(message) => (self.line, message),
            None => ("COMMIT", "Invalid argument"),
        };
        attempt(self.edits, batch, Vec::new(), Some(line), reason(message)).ok_or(())
    }

    fn dependents(&self, rejected: &[usize]) -> Vec<usize> {
        self.groups.dependents(rejected)
    }

    fn split(&self, part: &[usize]) -> usize {
        self.groups.split(part)
    }
}

/// Returns the rejections, or `None` if the whole commit fails.
fn rejections(
    edits: &[Edit<Object>],
    line: &str,
    message: Option<&str>,
) -> Option<(Vec<Rejection>, usize)> {
    let groups = Groups::new(edits);
    let mut all: Vec<_> = (0..edits.len()).collect();
    groups.sort(&mut all);
    let mut program = Refusing {
        edits,
        groups,
        line,
        message,
        attempts: 0,
    };
    let rejections = isolate(&mut program, all, &mut 24).ok()?;
    Some((rejections, program.attempts))
}

/// Returns the rejected objects as chains and rules.
fn names(edits: &[Edit<Object>], rejections: &[Rejection]) -> Vec<String> {
    let name = |rejection: &Rejection| match edits[rejection.index].object() {
        Object::Chain(chain) => chain.name.to_string(),
        Object::SharedRule(entry) => entry.rule.to_string(),
    };
    let mut names: Vec<_> = rejections.iter().map(name).collect();
    names.sort();
    names
}

const OF_B: [&str; 3] = [
    "-d 10.96.0.1 -j KUBE-SVC-BBBBBBBBBBBBBBBB",
    "KUBE-SEP-BBBBBBBBBBBBBBBB",
    "KUBE-SVC-BBBBBBBBBBBBBBBB",
];

fn additions() -> Vec<Edit<Object>> {
    let services = "ABCDEFGH".chars().flat_map(service);
    services.chain(base()).map(Edit::Add).collect()
}

#[test]
fn a_rejected_line_is_a_rejection_of_its_service_for_every_errno() {
    let edits = additions();
    for (message, errno) in MESSAGES {
        for line in [
            "-A KUBE-SVC-BBBBBBBBBBBBBBBB -j KUBE-SEP-BBBBBBBBBBBBBBBB",
            "-A KUBE-SEP-BBBBBBBBBBBBBBBB -j KUBE-MARK-MASQ",
            ":KUBE-SEP-BBBBBBBBBBBBBBBB - [0:0]",
            "-A KUBE-SERVICES -d 10.96.0.1 -j KUBE-SVC-BBBBBBBBBBBBBBBB",
        ] {
            let (rejections, attempts) = rejections(&edits, line, Some(message)).unwrap();
            assert_eq!(names(&edits, &rejections), OF_B, "{line}: {message}");
            assert_eq!(attempts, 2);
            let reasons = rejections.iter().map(|it| &it.reason);
            let named: Vec<_> = reasons.filter(|it| it.cause != Cause::Dependent).collect();
            assert_eq!(named.len(), 1, "{line}");
            assert_eq!(named[0].errno, Some(errno), "{message}");
            assert_eq!(named[0].cause == Cause::Conflict, matches!(errno, 2 | 17));
        }
    }
}

#[test]
fn without_a_line_the_service_is_found_by_halving() {
    let edits = additions();
    let (rejections, attempts) = rejections(
        &edits,
        "-A KUBE-SVC-BBBBBBBBBBBBBBBB -j KUBE-SEP-BBBBBBBBBBBBBBBB",
        None,
    )
    .unwrap();
    assert_eq!(names(&edits, &rejections), OF_B);
    assert!(attempts <= 2 * 4 + 1, "{attempts}");
}

#[test]
fn a_rejected_base_line_is_an_error() {
    let edits = additions();
    for line in ["-A KUBE-MARK-MASQ -j MARK", ":KUBE-SERVICES - [0:0]"] {
        assert!(
            rejections(&edits, line, Some("Invalid argument")).is_none(),
            "{line}"
        );
    }
}

#[test]
fn a_chain_that_cannot_be_removed_keeps_only_its_targets() {
    let services = "ABCD".chars().flat_map(service);
    let edits: Vec<_> = services.map(Edit::Remove).collect();
    let line = "-X KUBE-SVC-BBBBBBBBBBBBBBBB";
    let (rejections, attempts) = rejections(&edits, line, Some("Device or resource busy")).unwrap();
    assert_eq!(
        names(&edits, &rejections),
        ["KUBE-SEP-BBBBBBBBBBBBBBBB", "KUBE-SVC-BBBBBBBBBBBBBBBB"]
    );
    assert_eq!(attempts, 2);
}

#[test]
fn edits_of_committed_sections_are_applied() {
    let edits = additions();
    let restore = vipline_iptables::Restore::in_sections(&edits, 4);
    let all: Vec<_> = (0..edits.len()).collect();
    let of = |sections| applied(&edits, &all, restore.objects_of(sections)).len();
    assert_eq!((of(0), of(1), of(2)), (0, 4, 8));
    assert_eq!(of(restore.sections()), edits.len());
}

#[test]
fn an_optional_chain_of_the_base_takes_only_the_jumps_to_it_with_it() {
    let jump = SharedRule {
        table: nat(),
        chain: ChainName::POSTROUTING,
        position: Position::Head,
        occurrence: 0,
        rule: "-j KUBE-POSTROUTING".into(),
    };
    let postrouting = chain("KUBE-POSTROUTING", &["-j MASQUERADE"]);
    let mut objects = vec![postrouting, Object::from(jump)];
    objects.extend(base());
    objects.extend(service('A'));
    let edits: Vec<_> = objects.into_iter().map(Edit::Add).collect();
    let all: Vec<_> = (0..edits.len()).collect();
    let rejected = |line| {
        let reason = Reason::rejected(Some(2), "No such file or directory");
        attempt(&edits, &all, Vec::new(), Some(line), reason)
    };
    let optional = rejected("-A KUBE-POSTROUTING -j MASQUERADE");
    let Some(Attempt::Rejected { named, .. }) = optional else {
        panic!("it is isolated: {optional:?}");
    };
    assert_eq!(named.len(), 1);
    assert_eq!(named[0].0, 0);
    let mut dependents = Groups::new(&edits).dependents(&[0]);
    dependents.sort_unstable();
    dependents.dedup();
    assert_eq!(dependents, [0, 1]);
    // All Services jump to this one.
    assert!(rejected("-A KUBE-MARK-MASQ -j MARK").is_none());
}
