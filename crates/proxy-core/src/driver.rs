//! One family of one mode: a ledger of who wants what, over a kernel.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use vipline_reconcile::{Edit, Kernel, Keyed, Ledger, Pending, Reconciler};
use vipline_service_model::{Family, PortName, ServicePort};

use crate::entry::{Entry, Key, edits};
use crate::{Address, Contested, Context, Difference, Error, Outcome, Planner, Rules, Wants};

/// What the engine does with a family, whatever the mode.
pub(crate) trait Drive: Send {
    /// Returns the family.
    fn family(&self) -> Family;

    /// Takes in what rules depend on besides Services.
    ///
    /// Tells whether ports planned before have to be planned again.
    fn enter(&mut self, cx: Context) -> Replan;

    /// Makes room for service ports.
    fn reserve(&mut self, ports: usize);

    /// Plans one service port as it is now.
    fn plan(&mut self, port: &ServicePort);

    /// Plans that a service port is gone.
    fn unplan(&mut self, name: &Arc<PortName>);

    /// Declares the kernel's state unknown.
    fn forget(&mut self);

    /// Tells whether the kernel's state is known.
    fn is_known(&self) -> bool;

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

/// Who wants objects, by precedence.
///
/// Those who want the same object want it alike; of those who want an address
/// the port of the older Service has it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Owner {
    /// Whatever Services there are.
    Base,
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
        ledger: Ledger::new(),
        objects: 0,
        rules: Vec::new(),
        passed: Pending::new(),
        lasting: Vec::new(),
        contested: BTreeMap::new(),
        newly_contested: Vec::new(),
        reconciler: Reconciler::new(kernel),
    })
}

/// One family of one mode.
struct Driver<P: Planner, K: Kernel<Object = P::Object>> {
    family: Family,
    cx: Option<Context>,
    ledger: Ledger<Owner, Entry<P::Object>>,
    /// How many objects there are in the ledger, while the kernel's state is known.
    objects: usize,
    /// How many rules they are, by table, and how many the last commit wrote.
    rules: Vec<Rules>,
    /// Room for the edits of entries.
    passed: Pending<Entry<P::Object>>,
    /// What the owner `Lasting` wants.
    lasting: Vec<P::Object>,
    /// Who does without an address that somebody else has.
    contested: BTreeMap<Address, Vec<Contested>>,
    newly_contested: Vec<Contested>,
    reconciler: Reconciler<K>,
}

impl<P: Planner, K: Kernel<Object = P::Object>> Driver<P, K> {
    /// Replaces what a service port wants, and notes whether an address is contested.
    fn replace_port(&mut self, name: &Arc<PortName>, wants: Wants<P::Object>) {
        let owner = Owner::Port(Arc::clone(name));
        let mut addresses = match self.contested.is_empty() {
            true => Vec::new(),
            false => self.addresses(&owner),
        };
        let is_shared = self.replace(owner.clone(), wants);
        if is_shared || !self.contested.is_empty() {
            addresses.extend(self.addresses(&owner));
            addresses.sort_unstable();
            addresses.dedup();
            for address in addresses {
                self.note_contested(address);
            }
        }
    }

    /// Returns the addresses that an owner wants.
    fn addresses(&self, owner: &Owner) -> Vec<Address> {
        let entries = self.ledger.wanted(owner);
        entries.filter_map(Entry::address).collect()
    }

    /// Notes who does without an address that somebody else has.
    fn note_contested(&mut self, address: Address) {
        let key = Key::Address(address);
        let claimants = self.ledger.claimants(&key);
        let mut ports = claimants.filter_map(|owner| match owner {
            Owner::Port(name) => Some(name),
            Owner::Base | Owner::Lasting => None,
        });
        let winner = ports.next().cloned();
        let lost = |loser: &Arc<PortName>| Contested {
            address,
            winner: Arc::clone(winner.as_ref().expect("who comes second has a first")),
            loser: Arc::clone(loser),
        };
        let contested: Vec<_> = ports.map(lost).collect();
        let known = match contested.is_empty() {
            true => self.contested.remove(&address),
            false => self.contested.insert(address, contested.clone()),
        };
        let known = known.unwrap_or_default();
        let news = contested.into_iter().filter(|each| !known.contains(each));
        self.newly_contested.extend(news);
    }

    /// Replaces what an owner wants; tells whether it shares any of that.
    fn replace(&mut self, owner: Owner, wants: Wants<P::Object>) -> bool {
        let Wants { mut own, claims } = wants;
        self.split_lasting(&mut own);
        let mut entries = Vec::with_capacity(own.len() + claims.len());
        entries.extend(own.into_iter().map(Entry::Object));
        for mut claim in claims {
            self.split_lasting(&mut claim.objects);
            entries.push(Entry::Address(claim.address, claim.objects.into()));
        }
        self.enter_wanted(owner, entries)
    }

    /// Takes out what lingers: it is not the owner's, and nobody lets go of it.
    fn split_lasting(&mut self, objects: &mut Vec<P::Object>) {
        if !objects.iter().any(P::lingers) {
            return;
        }
        let known = self.lasting.len();
        objects.retain(|object| {
            let lingers = P::lingers(object);
            if lingers && self.ledger.get(&Key::Object(object.key())).is_none() {
                self.lasting.push(object.clone());
            }
            !lingers
        });
        if self.lasting.len() > known {
            let lasting = self.lasting.iter().cloned().map(Entry::Object).collect();
            self.enter_wanted(Owner::Lasting, lasting);
        }
    }

    /// Enters entries into the ledger; tells whether others want any of them.
    fn enter_wanted(&mut self, owner: Owner, entries: Vec<Entry<P::Object>>) -> bool {
        let Some(pending) = self.reconciler.pending() else {
            return self.ledger.replace(owner, entries, None);
        };
        let passed = &mut self.passed;
        let is_shared = self.ledger.replace(owner, entries, Some(passed));
        for edit in passed.take().into_iter().flat_map(edits) {
            pending.push(edit);
        }
        is_shared
    }

    /// Counts objects and rules after a step from a known state was taken.
    fn count(&mut self, edits: &[Edit<P::Object>]) {
        for edit in edits.iter().cloned() {
            let (before, after) = edit.into_sides();
            self.objects += usize::from(after.is_some());
            self.objects -= usize::from(before.is_some());
            if let Some(object) = after {
                of_table::<P>(&mut self.rules, &object, |it, count| it.total += count);
            }
            if let Some(object) = before {
                of_table::<P>(&mut self.rules, &object, |it, count| it.total -= count);
            }
        }
    }

    /// Returns the desired state.
    fn desired_objects(&self) -> impl Iterator<Item = &P::Object> {
        self.ledger.objects().flat_map(Entry::objects)
    }
}

/// Changes the count of the table that an object is in, if its rules count.
fn of_table<P: Planner>(
    tables: &mut Vec<Rules>,
    object: &P::Object,
    change: impl FnOnce(&mut Rules, usize),
) {
    let Some((table, count)) = P::rules(object) else {
        return;
    };
    let at = tables.iter().position(|each| each.table == table);
    let at = at.unwrap_or_else(|| {
        tables.push(Rules {
            table,
            total: 0,
            written: 0,
        });
        tables.len() - 1
    });
    change(&mut tables[at], count);
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
        self.replace(Owner::Base, P::base(&cx).into());
        let before = self.cx.replace(cx);
        match (before, &self.cx) {
            (Some(before), Some(cx)) if P::concerns_ports(&before, cx) => Replan::All,
            _ => Replan::Nothing,
        }
    }

    fn reserve(&mut self, ports: usize) {
        // Most have a cluster IP, which is an entry, and what they want for it.
        self.ledger.reserve(ports, 2 * ports);
    }

    fn plan(&mut self, port: &ServicePort) {
        let cx = self.cx.as_ref().expect("a context is entered before ports");
        let wants = P::port(cx, port);
        self.replace_port(&port.name, wants);
    }

    fn unplan(&mut self, name: &Arc<PortName>) {
        self.replace_port(name, Vec::new().into());
    }

    fn forget(&mut self) {
        self.reconciler.forget();
    }

    fn is_known(&self) -> bool {
        self.reconciler.is_known()
    }

    fn reconcile(&mut self) -> Result<Outcome, Error> {
        let desired = self.ledger.objects().flat_map(Entry::objects);
        let (mut objects, mut rules) = (0, Vec::new());
        let step = self.reconciler.next(desired.inspect(|object| {
            objects += 1;
            of_table::<P>(&mut rules, object, |it, count| it.total += count);
        }))?;
        let done = self.reconciler.take(&step)?;
        match step.dumped {
            true => (self.objects, self.rules) = (objects, rules),
            false => self.count(&step.edits),
        }
        self.rules.iter_mut().for_each(|it| it.written = 0);
        for edit in &step.edits {
            if !matches!(edit, Edit::Remove(_)) {
                let written = |it: &mut Rules, count| it.written += count;
                of_table::<P>(&mut self.rules, edit.object(), written);
            }
        }
        Ok(Outcome {
            edits: done.edits,
            dumped: done.dumped,
            objects: self.objects,
            took_over: done.took_over,
            rules: self.rules.clone(),
        })
    }

    fn difference(&mut self) -> Result<Difference, Error> {
        let desired = self.ledger.objects().flat_map(Entry::objects);
        let edits = self.reconciler.difference(desired)?;
        Ok(Difference {
            edits: edits.len(),
            script: match edits.is_empty() {
                true => String::new(),
                false => P::script(self.family, edits, self.desired_objects()),
            },
            stale_flows: Vec::new(),
        })
    }

    fn desired(&self) -> String {
        P::listing(self.family, self.desired_objects())
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
    not(any(feature = "iptables", feature = "nftables")),
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
mod tests;
