//! Tests of drivers with in-memory kernels.

use std::net::IpAddr;

use vipline_reconcile::Memory;
use vipline_service_model::{NodeView, Timestamp, Transport};

use super::*;
use crate::{Address, Claim, Config};

/// A planner that plans the numbers up to the port number. Removal of odd numbers is
/// delayed.
#[derive(Clone, PartialEq)]
struct Numbers;

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

    fn base(&self, cx: &Context) -> Vec<Number> {
        let first = if cx.masquerade_all { 200 } else { 100 };
        vec![Number(first)]
    }

    fn requires_replan(&self, before: &Context, after: &Context) -> bool {
        before.masquerade_all != after.masquerade_all
    }

    fn port(&self, _: &Context, port: &ServicePort) -> PortObjects<Number> {
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
        protocol: Transport::Tcp,
        created: None,
    });
    ServicePort::new(name, IpAddr::from([10, 96, 0, 1]), port)
}

#[test]
fn objects_with_delayed_removal_stay_after_their_last_use() {
    let mut driver = driver(Family::V4, Numbers, Memory::new());
    driver.set_context(context(false));
    driver.plan(&port("a", 4));
    assert_eq!(driver.reconcile(None, Duration::ZERO).unwrap().edits, 5);
    driver.plan(&port("a", 1));
    assert_eq!(driver.desired(), "[1, 3, 100]");
    assert_eq!(driver.reconcile(None, Duration::ZERO).unwrap().edits, 2);
    driver.plan_removal(&port("a", 1).name);
    assert_eq!(driver.desired(), "[1, 3, 100]");
    assert_eq!(driver.reconcile(None, Duration::ZERO).unwrap().edits, 0);
    driver.plan(&port("b", 3));
    assert_eq!(driver.reconcile(None, Duration::ZERO).unwrap().edits, 1);
}

#[test]
fn an_unused_object_is_removed_after_half_a_minute_unless_it_is_used_again() {
    let secs = Duration::from_secs;
    let mut driver = driver(Family::V4, Numbers, Memory::new());
    driver.set_context(context(false));
    driver.plan(&port("a", 5));
    driver.plan(&port("b", 3));
    driver.reconcile(None, secs(100)).unwrap();
    assert_eq!(driver.deadline(), None);
    driver.plan(&port("a", 1));
    driver.reconcile(None, secs(200)).unwrap();
    assert_eq!(driver.desired(), "[1, 2, 3, 5, 100]");
    assert_eq!(driver.deadline(), Some(secs(230)));
    driver.plan_removal(&port("b", 3).name);
    driver.reconcile(None, secs(210)).unwrap();
    assert_eq!(driver.desired(), "[1, 3, 5, 100]");
    driver.plan(&port("b", 5));
    driver.plan(&port("b", 3));
    assert_eq!(
        driver.reconcile(None, secs(230)).unwrap().edits,
        1,
        "5 is unused again"
    );
    assert_eq!(driver.deadline(), Some(secs(260)));
    assert_eq!(driver.reconcile(None, secs(259)).unwrap().edits, 0);
    assert_eq!(driver.reconcile(None, secs(260)).unwrap().edits, 1);
    assert_eq!(driver.desired(), "[1, 2, 3, 100]");
    assert_eq!(driver.deadline(), None);
}

#[test]
fn at_most_64_unused_objects_stay_and_a_dump_removes_none_of_them() {
    let mut driver = driver(Family::V4, Numbers, Memory::new());
    driver.set_context(context(false));
    driver.plan(&port("a", 1000));
    driver.reconcile(None, Duration::ZERO).unwrap();
    driver.plan_removal(&port("a", 1000).name);
    let done = driver.reconcile(None, Duration::ZERO).unwrap();
    // Number 100 is also a base object.
    assert_eq!((done.objects, done.edits), (1 + 64, 1000 - 64 - 1));
    driver.forget();
    let done = driver.reconcile(None, Duration::from_secs(29)).unwrap();
    assert_eq!((done.dumped, done.edits), (true, 0));
    driver.reconcile(None, Duration::from_secs(30)).unwrap();
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
    let mut driver = driver(Family::V4, Numbers, Memory::new());
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
    let mut driver = driver(Family::V4, Numbers, Memory::new());
    assert_eq!(driver.set_context(context(false)), Replan::Nothing);
    assert_eq!(driver.set_context(context(false)), Replan::Nothing);
    assert_eq!(driver.set_context(context(true)), Replan::All);
    assert_eq!(driver.desired(), "[200]");
}

#[test]
fn the_sync_after_a_failure_dumps() {
    let mut memory = Memory::new();
    memory.fail_after(1);
    let mut driver = driver(Family::V4, Numbers, memory);
    driver.set_context(context(false));
    driver.plan(&port("a", 2));
    assert!(matches!(
        driver.reconcile(None, Duration::ZERO),
        Err(Error::Temporary(source)) if source.to_string().contains("injected failure")
    ));
    let done = driver.reconcile(None, Duration::ZERO).unwrap();
    assert_eq!((done.edits, done.dumped, done.objects), (2, true, 3));
    let difference = driver.difference(&KnownRejections::default()).unwrap();
    assert_eq!((difference.edits, &*difference.script), (0, ""));
}

#[test]
fn a_driver_without_a_kernel_only_plans() {
    let mut driver = driver(Family::V4, Numbers, Absent::default());
    driver.set_context(context(false));
    assert_eq!(driver.desired(), "[100]");
    assert!(matches!(
        driver.reconcile(None, Duration::ZERO),
        Err(Error::NoKernel)
    ));
    assert!(matches!(
        driver.difference(&KnownRejections::default()),
        Err(Error::NoKernel)
    ));
}

/// A kernel that another program shares.
#[derive(Clone, Default)]
struct SharedMemory(Arc<std::sync::Mutex<Memory<Number>>>);

impl SharedMemory {
    fn memory(&self) -> std::sync::MutexGuard<'_, Memory<Number>> {
        self.0.lock().unwrap()
    }

    /// Removes objects as the other program does.
    fn undo(&self, numbers: &[u16]) {
        let mut memory = self.memory();
        for &number in numbers {
            if memory.get(&Number(number)).is_some() {
                memory.commit(&[Edit::Remove(Number(number))]).unwrap();
            }
        }
    }

    fn has(&self, number: u16) -> bool {
        self.memory().get(&Number(number)).is_some()
    }
}

impl Target for SharedMemory {
    type Object = Number;
    type Error = vipline_reconcile::MemoryError;

    fn dump(&mut self) -> Result<Vec<Number>, Self::Error> {
        self.memory().dump()
    }

    fn commit(&mut self, edits: &[Edit<Number>]) -> Result<Vec<Rejection>, Self::Error> {
        self.memory().commit(edits)
    }
}

fn foreign(process: &str) -> Drift {
    Drift {
        changes: 1,
        processes: vec![process.into()],
        is_incomplete: false,
    }
}

/// Returns a driver that has synced the numbers up to 4.
fn synced() -> (SharedMemory, Box<dyn Drive>) {
    let kernel = SharedMemory::default();
    let mut driver = driver(Family::V4, Numbers, kernel.clone());
    driver.set_context(context(false));
    driver.plan(&port("a", 4));
    driver.reconcile(None, Duration::ZERO).unwrap();
    (kernel, driver)
}

/// Lets another program remove `undone` whenever they are there, for 120 s. Calls `also`
/// after each step. Returns the number of repairs.
fn repairs_of(
    undone: &[u16],
    mut also: impl FnMut(&mut dyn Drive, &SharedMemory, Duration),
) -> usize {
    let (kernel, mut driver) = synced();
    let mut repairs = 0;
    for step in 1..120 * 50 {
        let now = Duration::from_millis(20 * step);
        driver.expire_repairs(now);
        let was_there = kernel.has(undone[0]);
        if was_there {
            kernel.undo(undone);
            driver.forget();
            let drift = foreign("kube-proxy (7)");
            driver.reconcile(Some(&drift), now).unwrap();
            repairs += usize::from(kernel.has(undone[0]));
        } else if driver.next_retry().is_some_and(|at| at <= now) {
            driver.reconcile(None, now).unwrap();
            repairs += usize::from(kernel.has(undone[0]));
        }
        also(&mut *driver, &kernel, now);
    }
    repairs
}

#[test]
fn repairs_that_another_program_undoes_become_rare() {
    // Without waits there are 6,000: three at once, then after 1, 2, 4, 8, 16, 32 s and so on.
    assert_eq!(repairs_of(&[2, 4], |_, _, _| {}), 3 + 6);
}

#[test]
fn other_objects_are_repaired_at_once_while_one_waits() {
    let mut others = 0;
    repairs_of(&[2], |driver, kernel, now| {
        // So rarely that this object never waits.
        if now.as_millis() % 5000 == 0 {
            kernel.undo(&[4]);
            driver.forget();
            driver.reconcile(Some(&foreign("nft (8)")), now).unwrap();
            assert!(kernel.has(4), "{now:?}");
            others += 1;
        }
    });
    assert_eq!(others, 23);
}

#[test]
fn a_conflict_is_reported_once_and_ends_when_the_other_program_stops() {
    let (kernel, mut driver) = synced();
    let undo = |driver: &mut dyn Drive, millis| {
        kernel.undo(&[2, 4]);
        driver.forget();
        let now = Duration::from_millis(millis);
        driver
            .reconcile(Some(&foreign("kube-proxy (7)")), now)
            .unwrap()
    };
    for millis in [20, 40, 60] {
        let done = undo(&mut *driver, millis);
        assert_eq!((done.edits, done.waiting), (2, 0));
        assert_eq!(driver.take_repair_conflict(), None);
    }
    let done = undo(&mut *driver, 80);
    assert_eq!((done.edits, done.waiting, done.objects), (0, 2, 3));
    assert_eq!(driver.repair_conflicts(), 2);
    let Some(RepairConflictChange::Began(conflict)) = driver.take_repair_conflict() else {
        panic!("the conflict began");
    };
    let text = conflict.to_string();
    let begin = "kube-proxy (7) undoes each repair of ";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.ends_with(" and of 1 more object"), "{text}");
    assert_eq!(driver.next_retry(), Some(Duration::from_millis(1060)));
    let done = driver.reconcile(None, Duration::from_millis(1060)).unwrap();
    assert_eq!((done.edits, done.waiting, done.dumped), (2, 0, false));
    // This repair lasts.
    let end = Duration::from_millis(11_060);
    assert_eq!(driver.next_retry(), Some(end));
    driver.expire_repairs(end);
    assert!(matches!(
        driver.take_repair_conflict(),
        Some(RepairConflictChange::Ended { processes }) if *processes == ["kube-proxy (7)".into()]
    ));
    assert_eq!((driver.repair_conflicts(), driver.next_retry()), (0, None));
    assert_eq!(undo(&mut *driver, 11_080).edits, 2, "at once again");
}

#[test]
fn a_change_of_a_service_does_not_wait_for_a_conflict() {
    let (kernel, mut driver) = synced();
    for millis in [20, 40, 60, 80] {
        kernel.undo(&[4]);
        driver.forget();
        let now = Duration::from_millis(millis);
        driver.reconcile(Some(&foreign("nft (7)")), now).unwrap();
    }
    assert!(!kernel.has(4));
    driver.plan(&port("a", 2));
    let done = driver.reconcile(None, Duration::from_millis(100)).unwrap();
    assert_eq!((done.edits, done.waiting), (0, 0));
    driver.plan(&port("a", 6));
    let done = driver.reconcile(None, Duration::from_millis(120)).unwrap();
    assert!(kernel.has(4) && kernel.has(6), "{done:?}");
}

#[test]
fn failed_repairs_do_not_count() {
    let (kernel, mut driver) = synced();
    let drift = foreign("nft (7)");
    kernel.undo(&[4]);
    driver.forget();
    for millis in 1..=20 {
        kernel.memory().fail_after(0);
        let now = Duration::from_millis(millis);
        assert!(driver.reconcile(Some(&drift), now).is_err());
    }
    driver.reconcile(None, Duration::from_millis(21)).unwrap();
    assert!(kernel.has(4));
}
