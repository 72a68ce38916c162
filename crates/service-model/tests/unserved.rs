//! Tests of Services and addresses that are not served.

mod objects;

use objects::{HERE, synced, web};
use vipline_service_model::{
    Config, ExternalIps, SkipReason, Store, Transport, UnservedReason, api,
};

/// Returns a store with the changed Service `default/web`.
fn changed(change: impl FnOnce(&mut api::Service)) -> Store {
    let mut service = web();
    change(&mut service);
    synced([service.into()])
}

#[test]
fn a_service_without_ports_has_a_reason_with_its_field() {
    type Change = fn(&mut api::Service);
    let other = "service.kubernetes.io/service-proxy-name";
    let table: [(Change, SkipReason, &str); 5] = [
        (
            |s| {
                let label = "service.kubernetes.io/service-proxy-name".to_owned();
                s.metadata.labels.insert(label, "cilium".into());
                s.spec.cluster_ip = "None".into();
            },
            SkipReason::OtherProxy("cilium".into()),
            &format!("metadata.labels[{other}]"),
        ),
        (
            |s| {
                s.spec.kind = api::ServiceType::ExternalName;
                s.spec.external_name = "db.example".into();
                s.spec.cluster_ip = String::new();
            },
            SkipReason::ExternalName("db.example".into()),
            "spec.type",
        ),
        (
            |s| s.spec.cluster_ip = "None".into(),
            SkipReason::Headless,
            "spec.clusterIP",
        ),
        (
            |s| s.spec.cluster_ip = String::new(),
            SkipReason::NoClusterIp,
            "spec.clusterIP",
        ),
        (
            |s| s.spec.cluster_ip = "10.96.0".into(),
            SkipReason::InvalidClusterIp,
            "spec.clusterIPs",
        ),
    ];
    for (change, reason, field) in table {
        let store = changed(change);
        let skipped: Vec<_> = store.skipped().collect();
        let [(name, skipped)] = &*skipped else {
            panic!("{skipped:?}");
        };
        assert_eq!(name.to_string(), "default/web");
        assert_eq!((&skipped.reason, skipped.reason.field()), (&reason, field));
        assert_eq!(skipped.ports, [(Transport::Tcp, 80)]);
    }
    let store = changed(|_| {});
    assert_eq!(store.skipped().count(), 0);
}

#[test]
fn external_addresses_that_are_not_served_have_reasons() {
    let add = |s: &mut api::Service| {
        s.spec.external_ips = vec!["192.0.2.1".into(), "2001:db8::1".into()];
        s.status.load_balancer.ingress = ["203.0.113.1", "203.0.113.2"]
            .map(|ip| api::Ingress {
                ip: ip.into(),
                ..api::Ingress::default()
            })
            .into();
        s.status.load_balancer.ingress[1].ip_mode = api::IpMode::Proxy;
    };
    let unserved = |serve: ExternalIps| {
        let mut config = Config::new(HERE);
        config.external_ips = serve;
        let mut store = Store::new(config);
        let mut service = web();
        add(&mut service);
        store.apply(service.into());
        let unserved = store.unserved().map(|(name, it)| {
            assert_eq!(name.to_string(), "default/web");
            (it.addr.to_string(), it.reason)
        });
        unserved.collect::<Vec<_>>()
    };
    let of = |addr: &str, reason| (addr.to_owned(), reason);
    let always = [
        of("2001:db8::1", UnservedReason::Family),
        of("203.0.113.2", UnservedReason::ProxyMode),
    ];
    assert_eq!(unserved(ExternalIps::Serve), always);
    let ignored = of("192.0.2.1", UnservedReason::ExternalIpsIgnored);
    let [family, proxy] = always;
    assert_eq!(unserved(ExternalIps::Ignore), [ignored, family, proxy]);
}
