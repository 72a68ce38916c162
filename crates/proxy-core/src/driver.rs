//! One family of one mode: a ledger of who wants what, over a kernel.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use vipline_reconcile::{Edit, Kernel, Keyed, Ledger, Pending, Reconciler};
use vipline_service_model::{Family, PortName, ServicePort};

use crate::claim::Claimed;
use crate::{Address, Claim, Contested, Context, Difference, Error, Outcome, Planner};

/// What the engine does with a family, whatever the mode.
pub(crate) trait Drive: Send {
    /// Returns the family.
    fn family(&self) -> Family;

    /// Takes in what rules depend on besides Services.
    ///
    /// Tells whether ports planned before have to be planned again.
    fn enter(&mut self, cx: Context) -> Replan;

    /// Makes room for service ports, in which there are so many endpoints.
    fn reserve(&mut self, ports: usize, endpoints: usize);

    /// Plans one service port as it is now.
    fn plan(&mut self, port: &ServicePort);

    /// Plans that a service port is gone.
    fn unplan(&mut self, name: &Arc<PortName>);

    /// Declares the kernel's state unknown.
    fn forget(&mut self);

    /// Makes the kernel equal to the plan.
    fn reconcile(&mut self) -> Result<Outcome, Error>;

    /// Compares kernel and plan, and changes nothing.
    fn difference(&mut self) -> Result<Difference, Error>;

    /// Returns the plan as text.
    fn desired(&self) -> String;

    /// Takes out which addresses were found to be contested since the last time.
    fn take_contested(&mut self) -> Vec<Contested>;

    /// Returns how many addresses are contested.
    fn contested(&self) -> usize;
}

/// Whether ports planned before have to be planned again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Replan {
    All,
    Nothing,
}

/// Who wants objects; those who want the same key want the same object.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Owner {
    /// Whatever Services there are.
    Base,
    /// Whoever has the address.
    Address(Address),
    /// A service port.
    Port(Arc<PortName>),
    /// Nobody in particular: the objects stay until the next start.
    Lasting,
}

/// Returns a driver that wants nothing yet, over a kernel in any state.
pub(crate) fn driver<P, K>(family: Family, kernel: K) -> Box<dyn Drive>
where
    P: Planner + 'static,
    P::Object: Send + Sync,
    K: Kernel<Object = P::Object> + Send + 'static,
    Error: From<K::Error>,
{
    Box::new(Driver::<P, K> {
        family,
        cx: None,
        claims: Ledger::new(),
        waiting: HashMap::new(),
        contested: BTreeMap::new(),
        passed: Pending::new(),
        newly_contested: Vec::new(),
        ledger: Ledger::new(),
        lasting: Vec::new(),
        reconciler: Reconciler::new(kernel),
    })
}

/// One family of one mode.
struct Driver<P: Planner, K: Kernel<Object = P::Object>> {
    family: Family,
    cx: Option<Context>,
    /// Who wants which addresses: the port of the older Service gets it.
    claims: Ledger<Arc<PortName>, Claimed>,
    /// What those want who do without the address.
    waiting: HashMap<(Address, Arc<PortName>), Vec<P::Object>>,
    /// Who does without an address that somebody else has.
    contested: BTreeMap<Address, Vec<Contested>>,
    /// Room for the addresses that pass from one to another.
    passed: Pending<Claimed>,
    newly_contested: Vec<Contested>,
    ledger: Ledger<Owner, P::Object>,
    /// What the owner `Lasting` wants.
    lasting: Vec<P::Object>,
    reconciler: Reconciler<K>,
}

impl<P: Planner, K: Kernel<Object = P::Object>> Driver<P, K> {
    /// Replaces the addresses that a service port claims, and what follows.
    fn claim(&mut self, name: &Arc<PortName>, claims: Vec<Claim<P::Object>>) {
        let former = self.claims.wanted(name).map(|claimed| claimed.address);
        let former: Vec<_> = former.collect();
        let claimed = claims.iter().map(|claim| Claimed {
            address: claim.address,
            by: Arc::clone(name),
        });
        let passed = &mut self.passed;
        self.claims.replace(Arc::clone(name), claimed, Some(passed));
        for edit in self.passed.take() {
            let address = edit.key();
            if let (Some(before), after) = edit.into_sides() {
                self.pass(address, before, after);
            }
        }
        for address in former {
            if claims.iter().all(|claim| claim.address != address) {
                self.waiting.remove(&(address, Arc::clone(name)));
                self.note_contested(address);
            }
        }
        for Claim { address, objects } in claims {
            let mut claimants = self.claims.claimants(&address);
            let is_won = claimants.next() == Some(name);
            let is_contested = claimants.next().is_some();
            drop(claimants);
            if is_contested || !self.contested.is_empty() {
                self.note_contested(address);
            }
            match is_won {
                true => self.replace(Owner::Address(address), objects),
                false => drop(self.waiting.insert((address, Arc::clone(name)), objects)),
            }
        }
    }

    /// Takes an address from a service port, and gives it to who waits for it.
    fn pass(&mut self, address: Address, before: Claimed, after: Option<Claimed>) {
        let owner = Owner::Address(address);
        if self
            .claims
            .claimants(&address)
            .any(|name| *name == before.by)
        {
            let objects = self.ledger.wanted(&owner).cloned().collect();
            self.waiting.insert((address, before.by), objects);
        }
        let next = after.and_then(|next| self.waiting.remove(&(address, next.by)));
        self.replace(owner, next.unwrap_or_default());
    }

    /// Notes who does without an address that somebody else has.
    fn note_contested(&mut self, address: Address) {
        let mut claimants = self.claims.claimants(&address);
        let winner = claimants.next().cloned();
        let lost = |loser: &Arc<PortName>| Contested {
            address,
            winner: Arc::clone(winner.as_ref().expect("who comes second has a first")),
            loser: Arc::clone(loser),
        };
        let contested: Vec<_> = claimants.map(lost).collect();
        let known = match contested.is_empty() {
            true => self.contested.remove(&address),
            false => self.contested.insert(address, contested.clone()),
        };
        let known = known.unwrap_or_default();
        let news = contested.into_iter().filter(|each| !known.contains(each));
        self.newly_contested.extend(news);
    }

    /// Replaces what an owner wants.
    ///
    /// What lingers is not the owner's: nobody has to let go of it.
    fn replace(&mut self, owner: Owner, mut objects: Vec<P::Object>) {
        let known = self.lasting.len();
        objects.retain(|object| {
            let lingers = P::lingers(object);
            if lingers && self.ledger.get(&object.key()).is_none() {
                self.lasting.push(object.clone());
            }
            !lingers
        });
        if self.lasting.len() > known {
            let lasting = self.lasting.iter().cloned();
            let pending = self.reconciler.pending();
            self.ledger.replace(Owner::Lasting, lasting, pending);
        }
        let pending = self.reconciler.pending();
        self.ledger.replace(owner, objects, pending);
    }
}

impl<P, K> Drive for Driver<P, K>
where
    P: Planner,
    P::Object: Send + Sync,
    K: Kernel<Object = P::Object> + Send,
    Error: From<K::Error>,
{
    fn family(&self) -> Family {
        self.family
    }

    fn enter(&mut self, cx: Context) -> Replan {
        if self.cx.as_ref() == Some(&cx) {
            return Replan::Nothing;
        }
        self.replace(Owner::Base, P::base(&cx));
        let before = self.cx.replace(cx);
        match (before, &self.cx) {
            (Some(before), Some(cx)) if P::concerns_ports(&before, cx) => Replan::All,
            _ => Replan::Nothing,
        }
    }

    fn reserve(&mut self, ports: usize, endpoints: usize) {
        self.claims.reserve(ports, ports);
        // A cluster IP is in two sets, and each endpoint in one.
        self.ledger.reserve(ports, 2 * ports + endpoints);
    }

    fn plan(&mut self, port: &ServicePort) {
        let cx = self.cx.as_ref().expect("a context is entered before ports");
        let wants = P::port(cx, port);
        self.claim(&port.name, wants.claims);
        self.replace(Owner::Port(Arc::clone(&port.name)), wants.own);
    }

    fn unplan(&mut self, name: &Arc<PortName>) {
        self.claim(name, Vec::new());
        self.replace(Owner::Port(Arc::clone(name)), Vec::new());
    }

    fn forget(&mut self) {
        self.reconciler.forget();
    }

    fn reconcile(&mut self) -> Result<Outcome, Error> {
        let done = self.reconciler.reconcile(self.ledger.objects())?;
        Ok(Outcome {
            edits: done.edits,
            dumped: done.dumped,
            objects: self.ledger.len(),
            took_over: done.took_over,
        })
    }

    fn difference(&mut self) -> Result<Difference, Error> {
        let edits = self.reconciler.difference(self.ledger.objects())?;
        Ok(Difference {
            edits: edits.len(),
            script: match edits.is_empty() {
                true => String::new(),
                false => P::script(edits, self.ledger.objects()),
            },
        })
    }

    fn desired(&self) -> String {
        P::listing(self.ledger.objects())
    }

    fn take_contested(&mut self) -> Vec<Contested> {
        mem::take(&mut self.newly_contested)
    }

    fn contested(&self) -> usize {
        self.contested.len()
    }
}

/// The kernel of an engine that only plans: it does nothing.
#[cfg_attr(
    not(feature = "nftables"),
    allow(dead_code, reason = "no mode is built in")
)]
pub(crate) struct Absent<T>(PhantomData<fn() -> T>);

impl<T> Default for Absent<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Keyed> Kernel for Absent<T> {
    type Object = T;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<T>, Error> {
        Err(Error::NoKernel)
    }

    fn commit(&mut self, _edits: &[Edit<T>]) -> Result<(), Error> {
        Err(Error::NoKernel)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use vipline_reconcile::Memory;
    use vipline_service_model::{NodeView, Protocol, Route, Timestamp};

    use super::*;
    use crate::{Config, Wants};

    /// A planner that wants the numbers up to the port's, odd ones for long.
    enum Numbers {}

    #[derive(Clone, Debug, PartialEq)]
    struct Number(u16);

    impl Keyed for Number {
        type Key<'a> = u16;

        fn key(&self) -> u16 {
            self.0
        }

        fn same(&self, _: &Self) -> bool {
            true
        }
    }

    impl Planner for Numbers {
        type Object = Number;

        fn base(cx: &Context) -> Vec<Number> {
            let first = if cx.masquerade_all { 200 } else { 100 };
            vec![Number(first)]
        }

        fn concerns_ports(before: &Context, after: &Context) -> bool {
            before.masquerade_all != after.masquerade_all
        }

        fn port(_: &Context, port: &ServicePort) -> Wants<Number> {
            let own = (1..=port.port).map(Number).collect();
            let of_node = |number| {
                let address = Address::NodePort(port.protocol, number);
                let objects = vec![Number(1000 + 2 * port.port)];
                Claim { address, objects }
            };
            let claims = port.node_port.map(of_node).into_iter().collect();
            Wants { own, claims }
        }

        fn lingers(number: &Number) -> bool {
            number.0 % 2 == 1
        }

        fn script<'a>(edits: Vec<Edit<Number>>, _: impl Iterator<Item = &'a Number>) -> String {
            format!("{edits:?}")
        }

        fn listing<'a>(objects: impl Iterator<Item = &'a Number>) -> String {
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
        ServicePort {
            name: Arc::new(PortName {
                namespace: "default".into(),
                service: service.into(),
                port: "".into(),
                protocol: Protocol::Tcp,
                created: None,
            }),
            family: Family::V4,
            protocol: Protocol::Tcp,
            cluster_ip: IpAddr::from([10, 96, 0, 1]),
            port,
            node_port: None,
            external_ips: Arc::new([]),
            load_balancer_ips: Arc::new([]),
            source_ranges: Arc::new([]),
            affinity: None,
            internal: Route::Reject,
            external: Route::Reject,
            internal_policy_local: false,
            external_policy_local: false,
            health_check_node_port: None,
            cluster: Arc::new([]),
            local: Arc::new([]),
            serving: Arc::new([]),
        }
    }

    #[test]
    fn what_lingers_stays_when_nobody_wants_it_any_more() {
        let mut driver = driver::<Numbers, _>(Family::V4, Memory::new());
        driver.enter(context(false));
        driver.plan(&port("a", 4));
        assert_eq!(driver.reconcile().unwrap().edits, 5);
        driver.plan(&port("a", 1));
        assert_eq!(driver.desired(), "[1, 3, 100]");
        assert_eq!(driver.reconcile().unwrap().edits, 2);
        driver.unplan(&port("a", 1).name);
        assert_eq!(driver.desired(), "[1, 3, 100]");
        assert_eq!(driver.reconcile().unwrap().edits, 0);
        driver.plan(&port("b", 3));
        assert_eq!(driver.reconcile().unwrap().edits, 1);
    }

    #[test]
    fn an_address_goes_to_the_older_and_from_it_to_the_next() {
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
        driver.enter(context(false));
        driver.plan(&young);
        assert_eq!(driver.desired(), "[1, 100, 1002]");
        assert_eq!(driver.take_contested(), []);
        driver.plan(&old);
        assert_eq!(driver.desired(), "[1, 2, 3, 100, 1006]");
        let contested = driver.take_contested();
        let texts: Vec<_> = contested.iter().map(Contested::to_string).collect();
        assert_eq!(
            texts,
            ["default/young does not get node port 30080/TCP: the older default/old has it"]
        );
        driver.plan(&young);
        assert_eq!(driver.take_contested(), [], "that is known");
        assert_eq!(driver.desired(), "[1, 2, 3, 100, 1006]");
        driver.unplan(&old.name);
        assert_eq!(driver.desired(), "[1, 3, 100, 1002]");
        driver.plan(&old);
        assert_eq!(driver.take_contested().len(), 1);
    }

    #[test]
    fn another_context_changes_the_base_and_asks_for_all_ports_again() {
        let mut driver = driver::<Numbers, _>(Family::V4, Memory::new());
        assert_eq!(driver.enter(context(false)), Replan::Nothing);
        assert_eq!(driver.enter(context(false)), Replan::Nothing);
        assert_eq!(driver.enter(context(true)), Replan::All);
        assert_eq!(driver.desired(), "[200]");
    }

    #[test]
    fn a_failure_is_forgotten_and_the_next_sync_dumps() {
        let mut memory = Memory::new();
        memory.fail_after(1);
        let mut driver = driver::<Numbers, _>(Family::V4, memory);
        driver.enter(context(false));
        driver.plan(&port("a", 2));
        assert!(matches!(driver.reconcile(), Err(Error::Memory(_))));
        let done = driver.reconcile().unwrap();
        assert_eq!((done.edits, done.dumped, done.objects), (2, true, 3));
        let difference = driver.difference().unwrap();
        assert_eq!((difference.edits, &*difference.script), (0, ""));
    }

    #[test]
    fn without_a_kernel_there_is_a_plan_and_nothing_else() {
        let mut driver = driver::<Numbers, _>(Family::V4, Absent::default());
        driver.enter(context(false));
        assert_eq!(driver.desired(), "[100]");
        assert!(matches!(driver.reconcile(), Err(Error::NoKernel)));
        assert!(matches!(driver.difference(), Err(Error::NoKernel)));
    }
}
