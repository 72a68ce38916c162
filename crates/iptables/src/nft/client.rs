//! Client that reads and changes the tables of the nft variant over netlink.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::cell::RefCell;
use std::time::Duration;

use vipline_netlink::{Counters, Dump, Errno, Protocol, Request, Requester};
use vipline_nftables::{self as nftables, Generation, InstalledRule};
use vipline_reconcile::Edit;

use super::batch::{Plan, State};
use super::error::{Error, Operation, from_nftables};
use super::saved::{Saved, SavedChain, SavedRule};
use super::sets::{self, SetIndexes, SetNames};
use super::{Lack, compat, table_id};
use crate::{ChainName, Family, Object, Rule, TableName};

/// Maximum number of attempts while other programs change the ruleset.
pub(super) const ATTEMPTS: usize = 10;

/// Reads and changes the tables of one address family like `iptables-nft-save` and
/// `iptables-nft-restore`, without a process.
///
/// The client stays in the network namespace in which it was opened. Methods block until
/// the kernel has replied.
///
/// ```no_run
/// use vipline_iptables::{Chain, ChainName, Edit, Family, Object, TableName, nft};
///
/// let mut client = nft::Client::open(Family::V4)?;
/// let rules = ["-p tcp -m tcp --dport 22 -j ACCEPT"].into_iter().collect();
/// let chain = Chain::new(TableName::FILTER, ChainName::new("MINE")?).with_rules(rules);
/// client.commit(&[Edit::Add(Object::from(chain))])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client {
    pub(super) family: Family,
    pub(super) nftables: nftables::Client,
    /// Socket for requests during a dump.
    pub(super) sets: RefCell<SetReader>,
}

/// What a kernel lacks.
enum Absent {
    Compat,
    Extension,
}

/// The IP sets of a network namespace, read when a rule names one.
#[derive(Debug)]
pub(super) struct SetReader {
    requester: Requester<Operation>,
    pub(super) indexes: SetIndexes,
    is_read: bool,
}

impl SetReader {
    /// Reads the sets, unless they are already known.
    pub(super) fn read(&mut self) -> Result<(), Error> {
        if self.is_read {
            return Ok(());
        }
        let dump = self.requester.dump(
            Request::new(sets::LIST, "list", &"IP sets"),
            ATTEMPTS,
            |payload| payload.extend_from_slice(&sets::request()),
            SetIndexes::default,
            |indexes, message| {
                indexes.push(message.payload)?;
                Ok(())
            },
        )?;
        self.indexes = dump.into_inner();
        self.is_read = true;
        Ok(())
    }
}

impl Client {
    /// Opens a client in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: the kernel has no nfnetlink. Missing nf_tables or a missing
    /// capability is reported by the first request.
    pub fn open(family: Family) -> Result<Self, Error> {
        let requester = Requester::open(Protocol::NETFILTER)?;
        Ok(Self {
            family,
            nftables: nftables::Client::open().map_err(from_nftables)?,
            sets: RefCell::new(SetReader {
                requester,
                indexes: SetIndexes::default(),
                is_read: false,
            }),
        })
    }

    /// Returns the names of all IP sets, to evaluate rules that refer to them.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`], [`Error::Kernel`] and others: the request failed.
    pub fn set_names(&mut self) -> Result<SetNames, Error> {
        let reader = self.sets.get_mut();
        reader.is_read = false;
        reader.read()?;
        Ok(SetNames::from_indexes(reader.indexes.clone()))
    }

    /// Returns the address family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns whether the kernel evaluates matches and targets of xtables in rules of
    /// nf_tables (`CONFIG_NFT_COMPAT`), with the revisions of this crate.
    ///
    /// The kernel loads missing modules.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] and others: a request failed.
    pub fn has_compat(&mut self) -> Result<bool, Error> {
        for extension in compat::REQUIRED {
            let payload = compat::request(self.family, extension);
            if self.query(&payload)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns what the kernel lacks to evaluate a rule, with the revisions of this crate.
    /// `None`: it has all matches and targets. A part of the rule that has no encoding here counts
    /// as an extension that the kernel lacks.
    ///
    /// The kernel loads missing modules. It cannot tell whether it would accept the
    /// values of the rule.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] and others: a request failed.
    pub fn lack(&mut self, rule: &Rule<'_>) -> Result<Option<Lack>, Error> {
        let encoded = match super::encode(rule, self.family) {
            Ok(encoded) => encoded,
            Err(unsupported) => return Ok(Some(Lack::Extension(unsupported.part))),
        };
        for expr in &encoded.exprs {
            let Some((name, payload)) = compat::request_of(self.family, expr) else {
                continue;
            };
            match self.query(&payload)? {
                None => {}
                Some(Absent::Compat) => return Ok(Some(Lack::Compat)),
                Some(Absent::Extension) => return Ok(Some(Lack::Extension(name.into()))),
            }
        }
        Ok(None)
    }

    /// Asks for an extension. Returns what is absent.
    ///
    /// Without `CONFIG_NFT_COMPAT` there is no such subsystem of nfnetlink, which is EINVAL.
    /// With it, ENOENT means no such extension, and EPROTONOSUPPORT no such revision.
    fn query(&mut self, payload: &[u8]) -> Result<Option<Absent>, Error> {
        let reply = self.sets.get_mut().requester.request(
            Request::new(compat::GET, "ask for", &"an extension of xtables"),
            |out| out.extend_from_slice(payload),
            |_| Ok(()),
        );
        match reply.map_err(|error| (error.errno(), error)) {
            Ok(()) => Ok(None),
            Err((Some(Errno::INVAL | Errno::OPNOTSUPP), _)) => Ok(Some(Absent::Compat)),
            Err((Some(Errno::NOENT | Errno::PROTONOSUPPORT), _)) => Ok(Some(Absent::Extension)),
            Err((_, error)) => Err(error),
        }
    }

    /// Returns whether a chain exists.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`], [`Error::Kernel`] and others: the request failed.
    pub fn has_chain(&mut self, table: TableName, chain: ChainName) -> Result<bool, Error> {
        let table = table_id(self.family, table);
        let name = nftables::Name::new(chain.as_str()).expect("chain names are short");
        let found = self.nftables.chain(&table, &name);
        Ok(found.map_err(from_nftables)?.is_some())
    }

    /// Returns the current generation of the ruleset, which every commit increments.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: the kernel has no nf_tables. [`Error::Denied`]:
    /// `CAP_NET_ADMIN` is missing.
    pub fn generation(&mut self) -> Result<Generation, Error> {
        self.nftables.generation().map_err(from_nftables)
    }

    /// Returns the netlink port ID of the socket, which notifications about commits
    /// contain.
    pub fn port_id(&self) -> u32 {
        self.nftables.port_id()
    }

    /// Returns the counters of the socket for nf_tables.
    pub fn counters(&self) -> Counters {
        self.nftables.counters()
    }

    /// Sets the reply timeout. Default: 10 s.
    ///
    /// The timeout applies to each datagram of a reply.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`] if the timeout is zero.
    pub fn set_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.sets.borrow().requester.set_timeout(timeout)?;
        self.nftables.set_timeout(timeout).map_err(from_nftables)
    }

    /// Reads tables, and calls `each` for every chain and rule.
    ///
    /// All chains come before all rules. The rules of a chain come in order.
    /// Missing tables and missing built-in chains are skipped.
    ///
    /// The result is a consistent snapshot, with its generation. If the ruleset changes
    /// during the dump, the dump begins again with a new value of `start`, up to ten
    /// times.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`]: the ruleset changed during every attempt.
    /// [`Error::Denied`], [`Error::Kernel`] and others: a request failed.
    pub fn dump<T>(
        &mut self,
        tables: &[TableName],
        mut start: impl FnMut() -> T,
        mut each: impl FnMut(&mut T, Saved<'_>),
    ) -> Result<(T, Generation), Error> {
        for _ in 0..ATTEMPTS {
            let generation = self.generation()?;
            let mut value = start();
            let dump = self.dump_once(tables, &mut |saved| each(&mut value, saved))?;
            if matches!(dump, Dump::Complete(())) && self.generation()? == generation {
                return Ok((value, generation));
            }
        }
        Err(interrupted())
    }

    fn dump_once(
        &mut self,
        tables: &[TableName],
        each: &mut dyn FnMut(Saved<'_>),
    ) -> Result<Dump<()>, Error> {
        let Self {
            family,
            nftables,
            sets,
        } = self;
        sets.get_mut().is_read = false;
        let ids: Vec<_> = tables.iter().map(|it| table_id(*family, *it)).collect();
        let Some(first) = ids.first() else {
            return Ok(Dump::Complete(()));
        };
        let mut chains = Vec::new();
        let dump = nftables.chains(first.family, |chain| {
            let table = ids.iter().position(|id| *id == chain.table);
            if let Some((index, table)) = table.and_then(|at| Some((at, tables.get(at)?))) {
                each(Saved::Chain(SavedChain::new(*table, &chain)));
                chains.push((index, *table, chain.name));
            }
        });
        let dump = dump.map_err(from_nftables)?;
        if dump == Dump::Interrupted(()) {
            return Ok(dump);
        }
        // The kernel continues a dump by counting from its first rule, so the time of one
        // dump is quadratic in the number of rules.
        for (index, table, chain) in chains {
            let Some(id) = ids.get(index) else { continue };
            let dump = nftables.rules(id, Some(&chain), |rule: InstalledRule<'_>| {
                each(Saved::Rule(SavedRule::new(table, rule, *family, sets)));
            });
            let dump = dump.map_err(from_nftables)?;
            if dump == Dump::Interrupted(()) {
                return Ok(dump);
            }
        }
        Ok(Dump::Complete(()))
    }

    /// Applies edits atomically, and returns the generation that the commit made.
    ///
    /// The rules become those that `iptables-nft-restore --noflush` makes of
    /// [`Restore::from_edits`](crate::Restore::from_edits): missing tables are created,
    /// and missing built-in chains, if rules are added to them. All tables change in one
    /// transaction. Rules that the edits do not name remain as they are.
    ///
    /// If another program commits meanwhile, the commit is repeated, up to ten times.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] names the rejected operations. `ENOENT` is the error number of a
    /// rule to delete that does not exist, and of a rule with a missing chain or nfacct object.
    /// [`Error::NotEncoded`]: a rule has no encoding, or names an IP set that does not exist
    /// ([`Unsupported::missing_set`](super::Unsupported::missing_set)).
    /// [`Error::Interrupted`]: the ruleset changed during every attempt.
    /// [`Error::Denied`], [`Error::Kernel`] and others: a request failed.
    /// [`Error::may_be_applied`] returns for each error whether the edits may have been
    /// applied.
    pub fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Generation, Error> {
        if edits.is_empty() {
            return self.generation();
        }
        let plan = Plan::new(edits, self.family);
        self.read_sets(&plan)?;
        for _ in 0..ATTEMPTS {
            if let Some(generation) = self.commit_once(&plan)? {
                return Ok(generation);
            }
        }
        Err(interrupted())
    }

    /// Reads the IP sets that a plan depends on.
    pub(super) fn read_sets(&mut self, plan: &Plan<'_>) -> Result<(), Error> {
        let sets = self.sets.get_mut();
        sets.is_read = false;
        if plan.uses_sets() {
            sets.read()?;
        }
        Ok(())
    }

    /// Commits a plan. Returns `None` if another program committed meanwhile.
    fn commit_once(&mut self, plan: &Plan<'_>) -> Result<Option<Generation>, Error> {
        let generation = self.generation()?;
        let Some(state) = self.state(plan, generation)? else {
            return Ok(None);
        };
        let mut batch = self.nftables.batch(Some(generation));
        let origins = plan.fill(&state, &self.sets.get_mut().indexes, &mut batch)?;
        match self.nftables.commit_batch(batch) {
            Ok(()) => Ok(Some(generation.next())),
            Err(error) if error.is_outdated() => Ok(None),
            Err(error) => Err(plan.name(&origins, error)),
        }
    }

    /// Reads the state of the kernel that a plan depends on. Returns `None` if it changed
    /// meanwhile.
    pub(super) fn state(
        &mut self,
        plan: &Plan<'_>,
        before: Generation,
    ) -> Result<Option<State>, Error> {
        let mut state = State::default();
        for (table, chain) in plan.built_in() {
            let id = table_id(self.family, table);
            let found = self.nftables.chain(&id, &chain);
            if found.map_err(from_nftables)?.is_some() {
                state.built_in.insert((table, chain));
            }
        }
        let deletions = plan.chains_with_deletions(&self.sets.get_mut().indexes)?;
        for mut chain in deletions {
            let (table, name) = (chain.table.clone(), chain.chain.clone());
            let each = |rule: InstalledRule<'_>| chain.take(&rule);
            let dump = self.nftables.rules(&table, Some(&name), each);
            let dump = dump.map_err(from_nftables)?;
            if dump == Dump::Interrupted(()) || self.generation()? != before {
                return Ok(None);
            }
            plan.found(chain, &mut state)?;
        }
        Ok(Some(state))
    }
}

vipline_netlink::impl_as_fd!(Client, nftables);

/// Returns the error if other programs committed during every attempt.
pub(super) fn interrupted() -> Error {
    Error::Interrupted {
        operation: "read",
        object: "the ruleset".into(),
        attempts: ATTEMPTS,
    }
}
