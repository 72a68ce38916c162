//! Errors of commits, and options of the client.

use std::time::Duration;

use testkit::netns::Netns;
use vipline_netlink::Errno;
use vipline_netlink::message::Ack;
use vipline_reconcile::Edit;

use super::*;
use crate::{Name, Table};

const FIRST: u32 = 7;

/// Returns the error of a commit that adds a table, for a rejected message.
fn commit_error(seq: u32, errno: Errno) -> Error {
    let table = TableId::new(Family::Ip, Name::new("filter").unwrap());
    let transaction = Transaction::from_edits(&[Edit::Add(Table::new(table).into())]);
    let batch = transaction.encode(FIRST, None);
    let error = KernelError::new(seq, errno, Ack::default());
    rejected_operations(&batch, vec![error], Some(0))
}

#[test]
fn a_rejected_batch_reports_a_missing_capability_or_nf_tables() {
    assert!(matches!(commit_error(FIRST, Errno::PERM), Error::Denied));
    let unsupported = commit_error(FIRST, Errno::OPNOTSUPP);
    assert!(unsupported.to_string().contains("CONFIG_NF_TABLES"));
    assert!(matches!(
        commit_error(FIRST, Errno::RESTART),
        Error::Outdated
    ));
}

#[test]
fn a_rejected_message_names_its_operation_for_any_errno() {
    assert_eq!(
        commit_error(FIRST + 1, Errno::PERM).to_string(),
        "add table ip filter: operation not permitted"
    );
    assert_eq!(
        commit_error(FIRST + 1, Errno::OPNOTSUPP).to_string(),
        "add table ip filter: operation not supported"
    );
}

#[test]
fn a_reply_timeout_of_zero_is_rejected() {
    let client = Netns::new().unwrap().run(Client::open).unwrap();
    client.set_timeout(Duration::from_secs(1)).unwrap();
    let zero = client.set_timeout(Duration::ZERO).unwrap_err();
    assert!(matches!(zero, Error::Netlink(_)), "{zero:?}");
}
