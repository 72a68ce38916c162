//! Tests of the health rules.

use super::*;

const LIMIT: Duration = secs(60);

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn clock(seconds: u8) -> Timestamp {
    Timestamp::parse(&format!("2026-01-02T03:04:{seconds:02}.25Z")).unwrap()
}

/// Health of a dual-stack proxy on an eligible node.
fn started() -> Health {
    let mut health = Health::new(LIMIT);
    health.set_eligible(true);
    for family in Family::ALL {
        health.updated(family, clock(1));
    }
    health
}

fn codes(health: &Health, now: Duration) -> (u16, u16) {
    (
        health.healthz(now, clock(2)).code,
        health.livez(now, clock(2)).code,
    )
}

#[test]
fn a_new_proxy_is_live_but_its_node_is_not_eligible() {
    let mut health = Health::new(LIMIT);
    let answer = health.healthz(secs(0), clock(2));
    let never = r#"{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-01-02T03:04:02.25Z","nodeEligible":false,"healthy":true}"#;
    assert_eq!((answer.code, &*answer.body), (503, never));
    let live = r#"{"lastUpdated":"2026-01-02T03:04:02.25Z","currentTime":"2026-01-02T03:04:02.25Z","healthy":true}"#;
    let answer = health.livez(secs(0), clock(2));
    assert_eq!((answer.code, &*answer.body), (200, live));
    // A family without a first sync is not unhealthy.
    health.queued(Family::V4, secs(0));
    assert_eq!(codes(&health, secs(1000)), (503, 200));
}

#[test]
fn a_response_contains_the_health_of_each_family() {
    let health = started();
    let headers = [
        ("Content-Type", "application/json".to_owned()),
        ("X-Content-Type-Options", "nosniff".to_owned()),
    ];
    let status = r#""status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:01.25Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-02T03:04:01.25Z","healthy":true}}}"#;
    let now = "2026-01-02T03:04:02.25Z";
    let expected = format!(
        r#"{{"lastUpdated":"{now}","currentTime":"{now}","nodeEligible":true,"healthy":true,{status}"#
    );
    let answer = health.healthz(secs(9), clock(2));
    assert_eq!((answer.code, answer.body), (200, expected));
    assert_eq!(answer.headers, headers);
    let expected =
        format!(r#"{{"lastUpdated":"{now}","currentTime":"{now}","healthy":true,{status}"#);
    let answer = health.livez(secs(9), clock(2));
    assert_eq!((answer.code, answer.body), (200, expected));
    assert_eq!(answer.headers, headers);
}

#[test]
fn a_proxy_without_waiting_changes_stays_healthy() {
    assert_eq!(codes(&started(), secs(1_000_000)), (200, 200));
}

#[test]
fn a_family_is_unhealthy_while_a_change_waits_for_the_limit_or_longer() {
    let mut health = started();
    health.queued(Family::V4, secs(100));
    health.queued(Family::V4, secs(150));
    assert_eq!(
        health.pending_since(Family::V4),
        Some(secs(100)),
        "the oldest"
    );
    assert_eq!(codes(&health, secs(159)), (200, 200));
    assert_eq!(codes(&health, secs(160)), (503, 503));
    health.updated(Family::V4, clock(5));
    assert_eq!(health.pending_since(Family::V4), None);
    assert_eq!(codes(&health, secs(160)), (200, 200));
    health.queued(Family::V4, secs(170));
    assert_eq!(codes(&health, secs(229)), (200, 200));
}

#[test]
fn one_unhealthy_family_makes_the_proxy_unhealthy() {
    let mut health = started();
    for family in Family::ALL {
        health.queued(family, secs(100));
    }
    health.updated(Family::V6, clock(7));
    let answer = health.healthz(secs(200), clock(9));
    let expected = r#"{"lastUpdated":"2026-01-02T03:04:07.25Z","currentTime":"2026-01-02T03:04:09.25Z","nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:01.25Z","healthy":false},"IPv6":{"lastUpdated":"2026-01-02T03:04:07.25Z","healthy":true}}}"#;
    assert_eq!((answer.code, &*answer.body), (503, expected));
    assert!(!health.is_healthy(secs(200)));
}

#[test]
fn a_node_that_goes_away_is_live_but_gets_no_new_traffic() {
    let mut health = started();
    health.set_eligible(false);
    assert_eq!(codes(&health, secs(9)), (503, 200));
    let body = health.healthz(secs(9), clock(2)).body;
    assert!(
        body.contains(r#""lastUpdated":"2026-01-02T03:04:01.25Z","#),
        "{body}"
    );
    assert!(
        body.contains(r#""nodeEligible":false,"healthy":true,"#),
        "{body}"
    );
    health.set_eligible(true);
    assert_eq!(codes(&health, secs(9)), (200, 200));
}

fn local(node_port: u16, count: usize) -> LocalEndpoints {
    LocalEndpoints { node_port, count }
}

#[test]
fn a_health_check_returns_the_local_endpoints_of_a_service() {
    let mut health = started();
    let name = ObjectName::new("shop", "front");
    health.set_services(Family::V4, [(name.clone(), local(31_000, 2))].into());
    let answer = health.service(Family::V4, &name, true);
    let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"front\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!((answer.code, &*answer.body), (200, body));
    let headers = [
        ("Content-Type", "application/json".to_owned()),
        ("X-Content-Type-Options", "nosniff".to_owned()),
        ("X-Load-Balancing-Endpoint-Weight", "2".to_owned()),
    ];
    assert_eq!(answer.headers, headers);
    let answer = health.service(Family::V4, &name, false);
    assert_eq!(answer.code, 503);
    assert!(answer.body.ends_with("\"serviceProxyHealthy\": false\n}"));
    health.set_services(Family::V4, [(name.clone(), local(31_000, 0))].into());
    let answer = health.service(Family::V4, &name, true);
    assert_eq!((answer.code, &*answer.headers[2].1), (503, "0"));
    assert!(answer.body.contains("\"localEndpoints\": 0,"));
}

#[test]
fn a_deleted_service_has_an_empty_response() {
    let mut health = started();
    let name = ObjectName::new("shop", "front");
    health.set_services(Family::V4, [(name.clone(), local(31_000, 2))].into());
    let gone = HttpResponse {
        code: 200,
        headers: Vec::new(),
        body: String::new(),
    };
    assert_eq!(health.service(Family::V6, &name, true), gone);
    health.set_services(Family::V4, BTreeMap::new());
    assert_eq!(health.service(Family::V4, &name, true), gone);
}

#[test]
fn health_check_node_ports_are_listed_by_family() {
    let mut health = started();
    let (front, back) = (
        ObjectName::new("shop", "front"),
        ObjectName::new("shop", "back"),
    );
    let both = [
        (front.clone(), local(31_000, 2)),
        (back.clone(), local(31_001, 0)),
    ];
    health.set_services(Family::V6, [(front.clone(), local(31_000, 0))].into());
    health.set_services(Family::V4, both.into());
    let asked: Vec<_> = health.services().collect();
    let expected = [
        (Family::V4, &back, 31_001),
        (Family::V4, &front, 31_000),
        (Family::V6, &front, 31_000),
    ];
    assert_eq!(asked, expected);
}
