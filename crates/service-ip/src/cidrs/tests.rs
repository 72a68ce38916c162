//! Tests of ServiceCIDRs that are added, removed and overlap.

use super::*;

/// Returns ready IPv4 ServiceCIDRs with the names `a`, `b` and so on.
#[track_caller]
fn cidrs(ranges: &[&str]) -> Cidrs {
    let mut cidrs = Cidrs::ipv4();
    for (name, range) in ["a", "b", "c"].iter().zip(ranges) {
        cidrs.insert(name, range.parse().unwrap(), true).unwrap();
    }
    cidrs
}

#[track_caller]
fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_address_within_two_ranges_is_allocated_once() {
    let mut cidrs = cidrs(&["10.0.0.0/29", "10.0.0.0/28"]);
    cidrs.reserve(ip("10.0.0.3")).unwrap();
    assert!(cidrs.reserve(ip("10.0.0.3")).unwrap_err().is_allocated());
    assert_eq!(
        cidrs.ranges().map(|(_, used)| used).collect::<Vec<_>>(),
        [1, 1]
    );
    let mut zero = || 0;
    for _ in 0..13 {
        cidrs.allocate(&mut zero).unwrap();
    }
    assert!(cidrs.allocate(&mut zero).unwrap_err().is_full());
    assert_eq!(
        cidrs.ranges().map(|(_, used)| used).collect::<Vec<_>>(),
        [14, 6]
    );
    assert_eq!(cidrs.items().count(), 14);
    assert!(cidrs.release(ip("10.0.0.3")));
    assert!(!cidrs.release(ip("10.0.0.3")));
    assert_eq!(cidrs.allocate(&mut zero), Ok(ip("10.0.0.3")));
}

#[test]
fn the_first_address_of_a_range_may_be_allocated_from_another_range() {
    let mut cidrs = cidrs(&["10.0.0.0/28", "10.0.0.8/29"]);
    cidrs.reserve(ip("10.0.0.8")).unwrap();
    assert_eq!(
        cidrs.ranges().map(|(_, used)| used).collect::<Vec<_>>(),
        [1, 0]
    );
}

#[test]
fn a_service_cidr_in_use_cannot_be_removed() {
    let mut cidrs = cidrs(&["10.0.0.0/29", "10.0.0.0/28"]);
    cidrs.reserve(ip("10.0.0.3")).unwrap();
    cidrs.reserve(ip("10.0.0.12")).unwrap();
    let error = cidrs.remove("b").unwrap_err();
    assert_eq!(
        error.to_string(),
        "ServiceCIDR b (10.0.0.0/28): addresses in use that are in no other ServiceCIDR: 1"
    );
    cidrs.remove("a").unwrap();
    assert!(matches!(
        cidrs.remove("b"),
        Err(InvalidValue::CidrInUse { addresses: 2, .. })
    ));
    cidrs
        .insert("again", "10.0.0.0/28".parse().unwrap(), true)
        .unwrap();
    cidrs.remove("b").unwrap();
    assert!(matches!(
        cidrs.remove("b"),
        Err(InvalidValue::UnknownCidr { .. })
    ));
    cidrs.release(ip("10.0.0.3"));
    cidrs.release(ip("10.0.0.12"));
    cidrs.remove("again").unwrap();
    assert_eq!(cidrs.ranges().count(), 0);
}

#[test]
fn a_range_added_later_counts_allocated_addresses() {
    let mut cidrs = cidrs(&["10.0.0.0/28"]);
    cidrs.reserve(ip("10.0.0.3")).unwrap();
    assert!(cidrs.mark_allocated(ip("10.9.0.1")).unwrap());
    for (name, range) in [("part", "10.0.0.0/29"), ("far", "10.9.0.0/24")] {
        let range = range.parse().unwrap();
        cidrs.insert(name, range, true).unwrap();
        assert!(cidrs.ranges().any(|found| found == (range, 1)), "{name}");
    }
    assert!(cidrs.reserve(ip("10.9.0.1")).unwrap_err().is_allocated());
}

#[test]
fn only_ready_ranges_are_used_for_allocation() {
    let mut cidrs = cidrs(&["10.0.0.0/28"]);
    let range = "10.0.0.0/28".parse().unwrap();
    cidrs.insert("a", range, false).unwrap();
    let error = cidrs.reserve(ip("10.0.0.1")).unwrap_err();
    assert_eq!(error.to_string(), "10.0.0.0/28: allocator not ready");
    assert!(matches!(
        cidrs.allocate(&mut || 0),
        Err(AllocationError::NotReady { .. })
    ));
    cidrs.insert("other", range, true).unwrap();
    cidrs.reserve(ip("10.0.0.1")).unwrap();
    assert!(matches!(
        cidrs.insert("a", "10.0.0.0/29".parse().unwrap(), true),
        Err(InvalidValue::ImmutableCidr { .. })
    ));
}

#[test]
fn addresses_outside_of_all_ranges_are_rejected() {
    let mut cidrs = cidrs(&["10.0.0.0/28", "10.1.0.0/28"]);
    assert_eq!(
        cidrs.reserve(ip("10.2.0.1")).unwrap_err().to_string(),
        "10.2.0.1 is not in the valid range 10.0.0.0/28, 10.1.0.0/28"
    );
    assert!(matches!(
        cidrs.reserve(ip("fd00::1")),
        Err(AllocationError::MismatchedFamily { .. })
    ));
    assert!(matches!(
        cidrs.insert("six", "fd00::/64".parse().unwrap(), true),
        Err(InvalidValue::MismatchedCidr { .. })
    ));
}

#[test]
fn the_whole_ipv6_address_space_is_a_range() {
    let mut cidrs = Cidrs::ipv6();
    cidrs.insert("all", "::/0".parse().unwrap(), true).unwrap();
    cidrs.reserve(ip("::1")).unwrap();
    let last = ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    cidrs.reserve(last).unwrap();
    assert_eq!(cidrs.items().collect::<Vec<_>>(), [ip("::1"), last]);
    assert!(!cidrs.contains(ip("::")));
}

#[test]
fn an_address_outside_of_all_ranges_fails_the_check_and_can_be_restored() {
    let mut cidrs = cidrs(&["10.0.0.0/29"]);
    for outside in ["10.1.0.1", "10.0.0.2"] {
        cidrs.mark_allocated(ip(outside)).unwrap();
    }
    assert_eq!(cidrs.check(ip("10.0.0.2")), Ok(()));
    let said = cidrs.check(ip("10.1.0.1")).unwrap_err().to_string();
    assert_eq!(said, "10.1.0.1 is not in the valid range 10.0.0.0/29");
    cidrs
        .insert("a", "10.0.0.0/29".parse().unwrap(), false)
        .unwrap();
    for item in [ip("10.1.0.1"), ip("10.0.0.2")] {
        assert!(cidrs.release(item));
        assert!(cidrs.reserve(item).is_err());
        assert!(cidrs.restore(item));
        assert!(!cidrs.restore(item));
        assert!(cidrs.contains(item));
    }
}
