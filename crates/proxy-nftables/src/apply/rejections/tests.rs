//! Tests of every kind of rejection, for one of several objects.

use std::net::IpAddr;

use vipline_nftables::{Action, Chain, Element, Family, Operation, Set, Table, TableId, Verdict};
use vipline_reconcile::{Atomic, MAX_REJECTED_BATCHES, Rejection, isolate};

use super::*;

/// `ENOENT`, `E2BIG`, `ENOMEM`, `EBUSY`, `EEXIST`, `EINVAL` and `ENOSPC`.
const ERRNOS: [i32; 7] = [2, 7, 12, 16, 17, 22, 28];

fn table() -> TableId {
    TableId::new(Family::Ip, Name::new("kube-proxy").unwrap())
}

fn map() -> Set {
    let key = vipline_nftables::Datatype::Ipv4Addr;
    Set::verdict_map(table(), Name::new("vips").unwrap(), key)
}

fn element(last: u8, chain: &str) -> Element {
    let address = vipline_nftables::Value::from(IpAddr::from([10, 96, 0, last]));
    let element = map().element(&[address]).unwrap();
    let goto = Verdict::Goto(Name::new(chain).unwrap());
    element.with_verdict(goto).unwrap()
}

fn chain(name: &str) -> Chain {
    Chain::new(table(), Name::new(name).unwrap())
}

/// Returns edits that add two chains, and addresses that go to them.
fn edits() -> Vec<Edit<Object>> {
    let mut edits = vec![
        Edit::Add(chain("lb-11").into()),
        Edit::Add(chain("lb-12").into()),
    ];
    for last in 0..20 {
        let name = if last < 10 { "lb-11" } else { "lb-12" };
        edits.push(Edit::Add(element(last, name).into()));
    }
    edits
}

/// A kernel that rejects one edit with the errors of nf_tables.
struct Refusing<'a> {
    edits: &'a [&'a Edit<Object>],
    bad: usize,
    errno: i32,
    /// Whether the error names the rejected element of a message.
    names_elements: bool,
    attempts: usize,
}

impl Refusing<'_> {
    fn refused(&self, batch: &[usize]) -> Vec<RejectedOperation> {
        if !batch.contains(&self.bad) {
            return Vec::new();
        }
        let subject = match self.edits[self.bad].object() {
            Object::Element(_) if !self.names_elements => Subject::Elements {
                first: Box::new(element(0, "lb-11")),
                last: Box::new(element(19, "lb-12")),
                count: 20,
            },
            object => Subject::Object(Box::new(object.clone())),
        };
        let operation = Operation::new(Action::Add, subject);
        vec![RejectedOperation::new(operation, Errno(self.errno)).with_message("why")]
    }
}

impl Atomic for Refusing<'_> {
    type Error = ();

    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, ()> {
        self.attempts += 1;
        match &*self.refused(batch) {
            [] => Ok(Attempt::Applied),
            refused => attempt(self.edits, batch, refused).ok_or(()),
        }
    }

    fn dependents(&self, rejected: &[usize]) -> Vec<usize> {
        dependents(self.edits, rejected)
    }
}

/// Returns the rejections if a kernel rejects one edit, and the number of batches needed.
fn rejections(bad: usize, errno: i32, names_elements: bool) -> (Vec<Rejection>, usize) {
    let edits = edits();
    let edits: Vec<_> = edits.iter().collect();
    let mut kernel = Refusing {
        edits: &edits,
        bad,
        errno,
        names_elements,
        attempts: 0,
    };
    let all = (0..edits.len()).collect();
    let rejections = isolate(&mut kernel, all, &mut MAX_REJECTED_BATCHES.clone()).unwrap();
    (rejections, kernel.attempts)
}

#[test]
fn one_rejected_element_is_one_rejection_for_every_errno() {
    for errno in ERRNOS {
        let (rejections, attempts) = rejections(7, errno, true);
        let [
            Rejection {
                index: 7, reason, ..
            },
        ] = &*rejections
        else {
            panic!("one rejection: {rejections:?}");
        };
        assert_eq!(reason.errno, Some(errno));
        assert!(reason.message.ends_with(" (why)"), "{reason}");
        assert_eq!(reason.cause == Cause::Conflict, matches!(errno, 2 | 17));
        assert_eq!(attempts, 2, "it is named, so all others are sent once more");
    }
}

#[test]
fn an_element_that_is_not_named_is_found_by_halving() {
    for bad in 2..22 {
        let (rejections, attempts) = rejections(bad, 22, false);
        let indexes: Vec<_> = rejections.iter().map(|it| it.index).collect();
        assert_eq!(indexes, [bad]);
        assert!(attempts <= 2 * 5 + 1, "{attempts}");
    }
}

#[test]
fn elements_depend_on_their_target_chain() {
    let (rejections, attempts) = rejections(1, 12, true);
    let of = |cause| {
        let of_cause = rejections.iter().filter(move |it| it.reason.cause == cause);
        of_cause.map(|it| it.index).collect::<Vec<_>>()
    };
    assert_eq!(of(Cause::Rejected), [1]);
    assert_eq!(of(Cause::Dependent), (12..22).collect::<Vec<_>>());
    assert_eq!(attempts, 2);
}

#[test]
fn a_rejected_base_object_is_an_error() {
    let edits = [
        Edit::Add(Object::from(Table::new(table()))),
        Edit::Add(map().into()),
        Edit::Add(chain("services").into()),
    ];
    let edits: Vec<_> = edits.iter().collect();
    for edit in &edits {
        let subject = Subject::Object(Box::new(edit.object().clone()));
        let operation = Operation::new(Action::Add, subject);
        let refused = [RejectedOperation::new(operation, Errno::INVAL)];
        assert!(attempt(&edits, &[0, 1, 2], &refused).is_none(), "{edit:?}");
    }
    let whole = Operation::new(Action::Commit, Subject::Transaction);
    let refused = [RejectedOperation::new(whole, Errno(12))];
    assert!(attempt(&edits, &[0, 1, 2], &refused).is_none());
}

#[test]
fn rejected_removals_of_sets_and_chains_are_isolated() {
    let edits = [
        Edit::Remove(Object::from(map())),
        Edit::Remove(chain("services").into()),
    ];
    let edits: Vec<_> = edits.iter().collect();
    for (index, edit) in edits.iter().enumerate() {
        let subject = Subject::Object(Box::new(edit.object().clone()));
        let operation = Operation::new(Action::Delete, subject);
        let refused = [RejectedOperation::new(operation, Errno::BUSY)];
        let Some(Attempt::Rejected { named, .. }) = attempt(&edits, &[0, 1], &refused) else {
            panic!("a rejection: {edit:?}");
        };
        assert_eq!(named.len(), 1);
        assert_eq!((named[0].0, named[0].1.cause), (index, Cause::Rejected));
    }
}
