//! Tests of drivers with in-memory kernels.

use std::net::IpAddr;

use vipline_reconcile::Memory;
use vipline_service_model::{NodeView, Protocol, Timestamp};

use super::*;
use crate::{Address, Claim, Config};

/// A planner that plans the numbers up to the port number. Removal of odd numbers is
/// delayed.
enum Numbers {}

#[derive(Clone, Debug, PartialEq)]
struct Number(u16);

impl Keyed for Number {
    type Key<'a> = u16;

    fn key(&self) -> u16 {
        self.0
    }

    fn is_equivalent(&self, _: &Self) -> bool {
        true
    }
}

impl Planner for Numbers {
    type Object = Number;

    fn base(cx: &Context) -> Vec<Number> {
        let first = if cx.masquerade_all { 200 } else { 100 };
        vec![Number(first)]
    }

    fn requires_replan(before: &Context, after: &Context) -> bool {
        before.masquerade_all != after.masquerade_all
    }

    fn port(_: &Context, port: &ServicePort) -> PortObjects<Number> {
        let own = (1..=port.port).map(Number).collect();
        let of_node = |number| {
            let address = Address::NodePort(port.protocol, number);
            let objects = vec![Number(1000 + 2 * port.port)];
            Claim {
                address,
                kind: AddressKind::NodePort,
                objects,
            }
        };
        let claims = port.node_port.map(of_node).into_iter().collect();
        PortObjects { own, claims }
    }

    fn is_removal_delayed(number: &Number) -> bool {
        number.0 % 2 == 1
    }

    fn script<'a>(
        _: Family,
        edits: Vec<Edit<Number>>,
        _: impl Iterator<Item = &'a Number>,
    ) -> String {
        format!("{edits:?}")
    }

    fn listing<'a>(_: Family, objects: impl Iterator<Item = &'a Number>) -> String {
        let mut numbers: Vec<_> = objects.map(|number| number.0).collect();
        numbers.sort_unstable();
        format!("{numbers:?}")
    }
}

fn context(masquerade_all: bool) -> Context {
    let config = Config {
        masquerade_all,
        ..Config::default()
    };
    Context::new(&config, &NodeView::new("n1"), [], Family::V4)
}

fn port(service: &str, port: u16) -> ServicePort {
    let name = Arc::new(PortName {
        namespace: "default".into(),
        service: service.into(),
        port: "".into(),
        protocol: Protocol::Tcp,
        created: None,
    });
    ServicePort::new(name, IpAddr::from([10, 96, 0, 1]), port)
}

#[test]
fn objects_with_delayed_removal_stay_after_their_last_use() {
    let mut driver = driver::<Numbers, _>(Family::V4, Memory::new());
    driver.set_context(context(false));
    driver.plan(&port("a", 4));
    assert_eq!(driver.reconcile(Duration::ZERO).unwrap().edits, 5);
    driver.plan(&port("a", 1));
    assert_eq!(driver.desired(), "[1, 3, 100]");
    assert_eq!(driver.reconcile(Duration::ZERO).unwrap().edits, 2);
    driver.plan_removal(&port("a", 1).name);
    assert_eq!(driver.desired(), "[1, 3, 100]");
    assert_eq!(driver.reconcile(Duration::ZERO).unwrap().edits, 0);
    driver.plan(&port("b", 3));
    assert_eq!(driver.reconcile(Duration::ZERO).unwrap().edits, 1);
}

#[test]
fn an_unused_object_is_removed_after_half_a_minute_unless_it_is_used_again() {
    let secs = Duration::from_secs;
    let mut driver = driver::<Numbers, _>(Family::V4, Memory::new());
    driver.set_context(context(false));
    driver.plan(&port("a", 5));
    driver.plan(&port("b", 3));
    driver.reconcile(secs(100)).unwrap();
    assert_eq!(driver.deadline(), None);
    driver.plan(&port("a", 1));
    driver.reconcile(secs(200)).unwrap();
    assert_eq!(driver.desired(), "[1, 2, 3, 5, 100]");
    assert_eq!(driver.deadline(), Some(secs(230)));
    driver.plan_removal(&port("b", 3).name);
    driver.reconcile(secs(210)).unwrap();
    assert_eq!(driver.desired(), "[1, 3, 5, 100]");
    driver.plan(&port("b", 5));
    driver.plan(&port("b", 3));
    assert_eq!(
        driver.reconcile(secs(230)).unwrap().edits,
        1,
        "5 is unused again"
    );
    assert_eq!(driver.deadline(), Some(secs(260)));
    assert_eq!(driver.reconcile(secs(259)).unwrap().edits, 0);
    assert_eq!(driver.reconcile(secs(260)).unwrap().edits, 1);
    assert_eq!(driver.desired(), "[1, 2, 3, 100]");
    assert_eq!(driver.deadline(), None);
}

#[test]
fn at_most_64_unused_objects_stay_and_a_dump_removes_none_of_them() {
    let mut driver = driver::<Numbers, _>(Family::V4, Memory::new());
    driver.set_context(context(false));
    driver.plan(&port("a", 1000));
    driver.reconcile(Duration::ZERO).unwrap();
    driver.plan_removal(&port("a", 1000).name);
    let done = driver.reconcile(Duration::ZERO).unwrap();
    // Number 100 is also a base object.
    assert_eq!((done.objects, done.edits), (1 + 64, 1000 - 64 - 1));
    driver.forget();
    let done = driver.reconcile(Duration::from_secs(29)).unwrap();
    assert_eq!((done.dumped, done.edits), (true, 0));
    driver.reconcile(Duration::from_secs(30)).unwrap();
    assert_eq!(driver.desired(), "[100]");
}

#[test]
fn an_address_belongs_to_the_oldest_service_and_then_to_the_next() {
    let of_age = |service: &str, age, number| {
        let mut port = port(service, number);
        let created = Timestamp::parse(&format!("2026-01-0{age}T00:00:00Z"));
        let name = PortName::clone(&port.name);
        port.name = Arc::new(PortName { created, ..name });
        port.node_port = Some(30_080);
        port
    };
    let [young, old] = [of_age("young", 2, 1), of_age("old", 1, 3)];
    let mut driver = driver::<Numbers, _>(Family::V4, Memory::new());
    driver.set_context(context(false));
    driver.plan(&young);
    assert_eq!(driver.desired(), "[1, 100, 1002]");
    assert_eq!(driver.take_contested(), []);
    driver.plan(&old);
    assert_eq!(driver.desired(), "[1, 2, 3, 100, 1006]");
    let contested = driver.take_contested();
    let texts: Vec<_> = contested.iter().map(ContestedAddress::to_string).collect();
    assert_eq!(
        texts,
        ["node port 30080/TCP: 2 service ports claim this address; \
          default/old gets it as its node port"]
    );
    let lost = driver.take_lost();
    let texts: Vec<_> = lost.iter().map(LostAddresses::to_string).collect();
    assert_eq!(
        texts,
        ["default/young does not get node port 30080/TCP: default/old has it as its node port"]
    );
    driver.plan(&young);
    assert_eq!(driver.take_contested(), [], "that is known");
    assert_eq!(driver.take_lost(), []);
    assert_eq!(driver.desired(), "[1, 2, 3, 100, 1006]");
    driver.plan_removal(&old.name);
    assert_eq!(driver.desired(), "[1, 3, 100, 1002]");
    driver.plan(&old);
    assert_eq!(driver.take_contested().len(), 1);
    assert_eq!(driver.take_lost().len(), 1);
}

#[test]
fn another_context_changes_the_base_and_requires_a_replan() {
    let mut driver = driver::<Numbers, _>(Family::V4, Memory::new());
    assert_eq!(driver.set_context(context(false)), Replan::Nothing);
    assert_eq!(driver.set_context(context(false)), Replan::Nothing);
    assert_eq!(driver.set_context(context(true)), Replan::All);
    assert_eq!(driver.desired(), "[200]");
}

#[test]
fn the_sync_after_a_failure_dumps() {
    let mut memory = Memory::new();
    memory.fail_after(1);
    let mut driver = driver::<Numbers, _>(Family::V4, memory);
    driver.set_context(context(false));
    driver.plan(&port("a", 2));
    assert!(matches!(
        driver.reconcile(Duration::ZERO),
        Err(Error::Custom { source, .. }) if source.to_string().contains("injected failure")
    ));
    let done = driver.reconcile(Duration::ZERO).unwrap();
    assert_eq!((done.edits, done.dumped, done.objects), (2, true, 3));
    let difference = driver.difference(&KnownRejections::default()).unwrap();
    assert_eq!((difference.edits, &*difference.script), (0, ""));
}

#[test]
fn a_driver_without_a_kernel_only_plans() {
    let mut driver = driver::<Numbers, _>(Family::V4, Absent::default());
    driver.set_context(context(false));
    assert_eq!(driver.desired(), "[100]");
    assert!(matches!(
        driver.reconcile(Duration::ZERO),
        Err(Error::NoKernel)
    ));
    assert!(matches!(
        driver.difference(&KnownRejections::default()),
        Err(Error::NoKernel)
    ));
}
