//! Tests of the selection and order of upstreams.

use super::*;
use crate::forward::options::StubDomain;

const NAME: &[u8] = b"\x03www\x04corp\x07example\0";

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 53))
}

fn options(upstreams: &[u8], policy: Policy) -> ForwardOptions {
    let addresses = upstreams.iter().copied().map(address).collect();
    ForwardOptions {
        upstreams: Upstreams::Addresses(addresses),
        policy,
        ..Default::default()
    }
}

fn file(path: &str) -> ForwardOptions {
    ForwardOptions {
        upstreams: Upstreams::ResolvConf(path.into()),
        ..Default::default()
    }
}

fn source(text: &str) -> Source {
    Source { text: text.into() }
}

fn routes(options: &ForwardOptions) -> Routes {
    Routes::new(options, &Source::default(), None).unwrap()
}

/// Returns the last bytes of the addresses in the order of a query.
fn order(routes: &Routes, name: &[u8], turn: &AtomicUsize) -> Vec<u8> {
    let last = |upstream: &Arc<Upstream>| match upstream.address() {
        SocketAddr::V4(address) => address.ip().octets()[3],
        SocketAddr::V6(address) => address.ip().octets()[15],
    };
    routes.order(name, turn).iter().map(last).collect()
}

#[test]
fn the_longest_stub_domain_applies() {
    let mut options = options(&[1], Policy::Sequential);
    for (domain, last) in [
        ("example.", 2),
        ("Corp.Example.", 3),
        ("w.corp.example.", 4),
    ] {
        let domain = Name::from_ascii(domain).unwrap();
        options.stub_domains.push(StubDomain {
            domain,
            upstreams: vec![address(last)],
        });
    }
    let routes = routes(&options);
    let turn = AtomicUsize::new(0);
    assert_eq!(order(&routes, NAME, &turn), [3]);
    assert_eq!(order(&routes, b"\x04corp\x07example\0", &turn), [3]);
    assert_eq!(order(&routes, b"\x05xcorp\x07example\0", &turn), [2]);
    assert_eq!(order(&routes, b"\x08xexample\0", &turn), [1]);
    assert_eq!(order(&routes, b"\0", &turn), [1]);
    assert_eq!(routes.upstreams().count(), 4);
}

#[test]
fn a_policy_determines_the_order() {
    let turn = AtomicUsize::new(0);
    let sequential = routes(&options(&[1, 2, 3], Policy::Sequential));
    for _ in 0..5 {
        assert_eq!(order(&sequential, NAME, &turn), [1, 2, 3]);
    }
    let rotating = routes(&options(&[1, 2, 3], Policy::RoundRobin));
    let firsts = (0..6)
        .map(|_| order(&rotating, NAME, &turn)[0])
        .collect::<Vec<_>>();
    assert_eq!(firsts, [1, 2, 3, 1, 2, 3]);
    let random = routes(&options(&[1, 2, 3], Policy::Random));
    let mut firsts = [0; 4];
    for _ in 0..3_000 {
        firsts[usize::from(order(&random, NAME, &turn)[0])] += 1;
    }
    assert!(firsts[1..].iter().all(|&count| count > 800), "{firsts:?}");
}

#[test]
fn the_options_of_the_file_apply_unless_an_option_replaces_them() {
    let text =
        source("nameserver 192.0.2.1\nnameserver 192.0.2.2\noptions timeout:3 attempts:4 rotate");
    let mut options = file("/etc/resolv.conf");
    let routes = Routes::new(&options, &text, None).unwrap();
    assert_eq!(
        (routes.try_timeout, routes.attempts),
        (Duration::from_secs(3), 4)
    );
    assert_eq!(routes.policy, Policy::RoundRobin);
    options.try_timeout = Some(Duration::from_millis(100));
    options.attempts = Some(1);
    options.policy = Policy::Sequential;
    let routes = Routes::new(&options, &text, None).unwrap();
    assert_eq!(
        (routes.try_timeout, routes.attempts),
        (Duration::from_millis(100), 1)
    );
    assert_eq!(routes.policy, Policy::Sequential);
}

#[test]
fn upstreams_keep_their_state_when_the_file_changes() {
    let options = file("/etc/resolv.conf");
    let before = Routes::new(&options, &source("nameserver 192.0.2.1"), None).unwrap();
    let text = source("nameserver 192.0.2.2\nnameserver 192.0.2.1");
    let after = Routes::new(&options, &text, Some(&before)).unwrap();
    assert!(Arc::ptr_eq(
        &before.default.upstreams[0],
        &after.default.upstreams[1]
    ));
    assert_eq!(after.upstreams().count(), 2);
}

#[test]
fn our_own_addresses_are_never_upstreams() {
    let mut options = file("/etc/resolv.conf");
    options.listen = vec![
        "192.0.2.1:53".parse().unwrap(),
        "[::ffff:192.0.2.3]:53".parse().unwrap(),
    ];
    let text = source("nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3");
    let routes = Routes::new(&options, &text, None).unwrap();
    assert_eq!(routes.default.upstreams[0].address(), address(2));
    assert_eq!(routes.default.upstreams.len(), 1);
    let error = Routes::new(&options, &source("nameserver 192.0.2.1"), None).unwrap_err();
    assert!(matches!(error, ForwardError::NoUpstream { ref skipped, .. } if skipped.len() == 1));
    assert_eq!(
        error.to_string(),
        "/etc/resolv.conf names no usable name server; \
         skipped addresses of this process: 192.0.2.1:53"
    );
    options.upstreams = Upstreams::Addresses(vec![address(2), address(1)]);
    let error = Routes::new(&options, &Source::default(), None).unwrap_err();
    assert!(matches!(error, ForwardError::Loop { address, .. } if address.port() == 53));
    options.upstreams = Upstreams::Addresses(vec!["192.0.2.1:5353".parse().unwrap()]);
    assert!(
        Routes::new(&options, &Source::default(), None).is_ok(),
        "another port"
    );
}

#[test]
fn a_server_on_all_addresses_is_at_every_local_address() {
    let listen = ["0.0.0.0:53".parse().unwrap()];
    assert!(is_served_here("127.0.0.53:53".parse().unwrap(), &listen));
    assert!(!is_served_here("127.0.0.53:54".parse().unwrap(), &listen));
    assert!(!is_served_here(address(1), &listen));
    let v6 = ["[::]:53".parse().unwrap()];
    for (address, is_v4, is_v6) in [
        ("127.0.0.1:53", true, false),
        ("[::ffff:127.0.0.1]:53", true, false),
        ("[::1]:53", false, true),
    ] {
        let address = address.parse().unwrap();
        assert_eq!(is_served_here(address, &listen), is_v4, "{address}");
        assert_eq!(is_served_here(address, &v6), is_v6, "{address}");
    }
}

#[test]
fn an_empty_file_is_an_error() {
    let error = Routes::new(&file("/etc/resolv.conf"), &source("search x"), None).unwrap_err();
    let text = error.to_string();
    assert_eq!(text, "/etc/resolv.conf names no usable name server");
    let error = Source::read(&file("/nonexistent/resolv.conf")).unwrap_err();
    assert!(matches!(error, ForwardError::ResolvConf { .. }), "{error}");
}
