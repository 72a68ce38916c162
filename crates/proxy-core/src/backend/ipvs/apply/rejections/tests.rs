//! Tests of every kind of rejection, for one of several objects.

use std::net::IpAddr;

use vipline_ipset::{Entry, Member, Name, Port};
use vipline_ipvs::{RealServer, Scheduler, ServiceKey, Transport, VirtualServer};

use super::*;

/// `ENOENT`, `E2BIG`, `ENOMEM`, `EBUSY`, `EEXIST`, `EINVAL` and `ENOSPC`.
const ERRNOS: [i32; 7] = [2, 7, 12, 16, 17, 22, 28];

fn service() -> ServiceKey {
    ServiceKey::new(Transport::Tcp, [10, 96, 0, 1].into(), 80)
}

fn server() -> VirtualServer {
    VirtualServer::new(service(), Scheduler::RoundRobin)
}

fn real(last: u8) -> RealServer {
    RealServer::new([10, 1, 0, last].into(), 8080)
}

fn real_object(last: u8) -> Object {
    ipvs::Object::Destination(service(), real(last)).into()
}

fn entry(last: u8) -> Entry {
    let member = Member::IpPort(IpAddr::from([10, 96, 0, last]), Port::tcp(80));
    Entry::new(Name::new("KUBE-CLUSTER-IP").unwrap(), member)
}

fn entry_object(last: u8) -> Object {
    ipset::Object::from(entry(last)).into()
}

fn address(last: u8) -> rtnl::Address {
    let name = rtnl::Name::new("kube-ipvs0").unwrap();
    rtnl::Address::new(name, format!("10.96.0.{last}/32").parse().unwrap())
}

fn refusal(errno: i32) -> vipline_netlink::KernelError {
    let answer = vipline_netlink::message::Ack::default();
    vipline_netlink::KernelError::new(1, Errno(errno), answer)
}

/// Returns a rejected command about sets. `EPERM`: the reason decides, not the number.
fn refused_set(
    index: usize,
    command: ipset::Command,
    reason: ipset::Reason,
) -> ipset::RejectedCommand {
    ipset::RejectedCommand::new(ipset::CommandAt::new(index, command, reason), Errno::PERM)
}

/// Returns the rejections as indices, causes and error numbers.
fn rejected(rejections: Rejections, edits: &[Edit<Object>]) -> Vec<(usize, Cause, Option<i32>)> {
    let rejections = rejections.into_rejections(edits).into_iter();
    let rejected = rejections.map(|it| (it.index, it.reason.cause, it.reason.errno));
    rejected.collect()
}

#[test]
fn one_rejected_real_server_is_one_rejection_for_every_errno() {
    let edits = [1, 2, 3].map(|last| Edit::Add(real_object(last)));
    for errno in ERRNOS {
        let mut rejections = Rejections::default();
        let command = ipvs::Command::AddDestination(service(), real(2));
        rejections.add_servers(vec![ipvs::RejectedCommand::new(command, Errno(errno))]);
        let accepted = rejections.accepted(&edits);
        let accepted: Vec<_> = accepted.iter().map(Edit::key).collect();
        assert_eq!(accepted, [edits[0].key(), edits[2].key()]);
        let cause = match errno {
            2 | 17 => Cause::Conflict,
            _ => Cause::Rejected,
        };
        assert_eq!(rejected(rejections, &edits), [(1, cause, Some(errno))]);
    }
}

#[test]
fn real_servers_depend_on_their_rejected_virtual_server() {
    let mut rejections = Rejections::default();
    let refused = |command, errno| ipvs::RejectedCommand::new(command, errno);
    rejections.add_servers(vec![
        refused(ipvs::Command::Add(server()), Errno::INVAL),
        refused(
            ipvs::Command::AddDestination(service(), real(1)),
            Errno::SRCH,
        ),
    ]);
    let edits = [
        Edit::Add(real_object(1)),
        Edit::Add(ipvs::Object::from(server()).into()),
    ];
    let expected = [
        (1, Cause::Rejected, Some(22)),
        (0, Cause::Dependent, Some(3)),
    ];
    assert_eq!(rejected(rejections, &edits), expected);
}

#[test]
fn the_removal_of_a_missing_object_is_a_conflict() {
    let mut rejections = Rejections::default();
    let endpoint = real(1).endpoint();
    rejections.add_servers(vec![
        ipvs::RejectedCommand::new(
            ipvs::Command::RemoveDestination(service(), endpoint),
            Errno::NOENT,
        ),
        ipvs::RejectedCommand::new(ipvs::Command::Remove(service()), Errno::SRCH),
    ]);
    let edits = [
        Edit::Remove(real_object(1)),
        Edit::Remove(ipvs::Object::from(server()).into()),
    ];
    let causes = rejected(rejections, &edits)
        .into_iter()
        .map(|(_, cause, _)| cause);
    assert_eq!(causes.collect::<Vec<_>>(), [Cause::Conflict; 2]);
}

#[test]
fn one_rejected_set_entry_is_one_rejection_for_every_errno() {
    let edits = [1, 2, 3].map(|last| Edit::Add(entry_object(last)));
    for (reason, cause) in [
        (ipset::Reason::Full, Cause::Rejected),
        (ipset::Reason::Exists, Cause::Conflict),
        (ipset::Reason::Missing, Cause::Conflict),
        (ipset::Reason::Errno(Errno(12)), Cause::Rejected),
    ] {
        let command = ipset::Command::Add(Box::new(entry(3)), ipset::Strictness::Strict);
        let mut rejections = Rejections::default();
        rejections
            .add_sets(vec![refused_set(2, command, reason)])
            .unwrap();
        let [(2, found, _)] = rejected(rejections, &edits)[..] else {
            panic!("one rejection: {reason:?}");
        };
        assert_eq!(found, cause);
    }
}

#[test]
fn a_rejected_set_is_an_error() {
    let name = Name::new("KUBE-CLUSTER-IP").unwrap();
    let set = ipset::Set::new(name, ipset::SetType::HashIpPort, ipset::SetFamily::V4);
    let command = ipset::Command::Create(Box::new(set), ipset::Strictness::Strict);
    let refused = refused_set(0, command, ipset::Reason::UnknownType);
    let error = Rejections::default().add_sets(vec![refused]).unwrap_err();
    assert!(error.to_string().contains("KUBE-CLUSTER-IP"), "{error}");
}

#[test]
fn one_rejected_address_is_one_rejection_and_a_rejected_link_is_an_error() {
    let object = |last| Object::from(rtnl::Object::from(address(last)));
    let edits = [1, 2].map(|last| Edit::Add(object(last)));
    for errno in ERRNOS {
        let mut rejections = Rejections::default();
        let command = rtnl::Command::AddAddress(address(1));
        let refused = vec![rtnl::RejectedCommand::from_kernel(command, refusal(errno))];
        rejections.add_addresses(refused).unwrap();
        let [(0, cause, Some(found))] = rejected(rejections, &edits)[..] else {
            panic!("one rejection: {errno}");
        };
        assert_eq!((cause == Cause::Conflict, found), (errno == 17, errno));
    }
    let name = rtnl::Name::new("kube-ipvs0").unwrap();
    let command = rtnl::Command::AddLink(rtnl::Link::dummy(name));
    let refused = vec![rtnl::RejectedCommand::from_kernel(command, refusal(95))];
    assert!(Rejections::default().add_addresses(refused).is_err());
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test measures time")]
fn thousands_of_rejected_real_servers_cost_time_in_proportion_to_their_number() {
    let at = |number: u16| RealServer::new([10, 1, 0, 255].into(), number);
    let numbers = 1..=30_000;
    let edits: Vec<_> = numbers
        .clone()
        .map(|number| Edit::Add(ipvs::Object::Destination(service(), at(number))))
        .collect();
    let refused = numbers.map(|number| {
        let command = ipvs::Command::AddDestination(service(), at(number));
        ipvs::RejectedCommand::new(command, Errno::INVAL)
    });
    let mut rejections = Rejections::default();
    rejections.add_servers(refused.collect());
    // Comparing each edit with each rejection would take minutes.
    let start = std::time::Instant::now();
    assert_eq!(rejections.accepted(&edits).len(), 0);
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
}
