//! The client: rules read from the kernel, and transactions given to it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};

use vipline_netlink::message::Message;
use vipline_netlink::{Counters, Dump, Errno, Outcome, Protocol, Refusal, Socket};

#[cfg(feature = "nftnl")]
use crate::nftnl;
use crate::wire::{self, Query};
use crate::{
    Action, Assembler, Batch, Element, Error, Family, Operation, RejectedOperation, Ruleset, Set,
    Subject, TableId, Transaction,
};

/// How often a dump is begun again when the rules change under it.
const ATTEMPTS: usize = 10;

/// A connection to the nf_tables of one network namespace.
///
/// It stays in the namespace in which it was opened, and reads and writes the
/// rules there with one system call each way.
/// Keep it: on a new socket even a small transaction takes milliseconds.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    payload: Vec<u8>,
    /// What transactions are sent by if libnftnl encodes them.
    #[cfg(feature = "nftnl")]
    sender: Option<nftnl::Sender>,
}

/// Who makes messages of transactions; the kernel hears the same from each.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Encoder {
    /// This crate.
    #[default]
    Native,
    /// libnftnl, and libmnl sends them.
    #[cfg(feature = "nftnl")]
    Nftnl,
}

/// The number of a state of all tables; each commit makes the next one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Generation(pub u32);

impl Generation {
    /// Returns the number of the state after one more commit.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl Client {
    /// Opens a connection in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] when the kernel has no nfnetlink; whether it has
    /// nf_tables and lets us use them shows with the first dump or commit.
    pub fn open() -> Result<Self, Error> {
        Self::open_with(Encoder::Native)
    }

    /// Opens a connection whose transactions are encoded by who is named.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn open_with(encoder: Encoder) -> Result<Self, Error> {
        let socket = Socket::open(Protocol::Netfilter)?;
        #[cfg(feature = "nftnl")]
        let sender = match encoder {
            Encoder::Native => None,
            Encoder::Nftnl => Some(nftnl::Sender::new(socket.as_fd())?),
        };
        #[cfg(not(feature = "nftnl"))]
        let Encoder::Native = encoder;
        Ok(Self {
            socket,
            payload: Vec::new(),
            #[cfg(feature = "nftnl")]
            sender,
        })
    }

    /// Reads all objects of these tables; a table that does not exist has none.
    ///
    /// What is returned is one state of the kernel: when the rules change
    /// meanwhile, reading begins again.
    /// Elements of [dynamic](Set::is_dynamic) sets come and go with packets and
    /// time, so they are left out: [`elements`](Self::elements) reads them.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] when they changed under every attempt.
    pub fn dump(&mut self, tables: &[TableId]) -> Result<Ruleset, Error> {
        for _ in 0..ATTEMPTS {
            let before = self.generation()?;
            match self.read(tables) {
                Ok(Some(ruleset)) if self.generation()? == before && is_whole(&ruleset) => {
                    return Ok(ruleset);
                }
                Ok(_) => {}
                // What was there a moment ago is gone.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Interrupted { attempts: ATTEMPTS })
    }

    /// Reads the elements of a set, which is in the kernel as it is here.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when there is no such set, and
    /// [`Error::Interrupted`] when it changed under every attempt.
    pub fn elements(&mut self, set: &Set) -> Result<Vec<Element>, Error> {
        for _ in 0..ATTEMPTS {
            let mut assembler = Assembler::of(set);
            if self.list(Query::Elements(set), &mut assembler)? {
                let ruleset = assembler.finish();
                if is_whole(&ruleset) {
                    return Ok(ruleset.into_elements().collect());
                }
            }
        }
        Err(Error::Interrupted { attempts: ATTEMPTS })
    }

    /// Makes the changes of a transaction: all of them, or none.
    ///
    /// However long it is, it is given to the kernel by one system call; a
    /// transaction without operations is not.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] names every operation the kernel refused;
    /// [`Error::committed`] tells what each error means for the rules.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), Error> {
        if transaction.is_empty() {
            return Ok(());
        }
        let first = self.socket.sequence();
        let batch = self.encode(transaction, first)?;
        match self.send(batch.bytes())? {
            Outcome::Committed => Ok(()),
            Outcome::Refused { refusals, more } => Err(refused(&batch, first, refusals, more)),
            Outcome::Unknown(error) => Err(error.into()),
        }
    }

    fn encode<'t>(&self, transaction: &'t Transaction, first: u32) -> Result<Batch<'t>, Error> {
        #[cfg(feature = "nftnl")]
        if self.sender.is_some() {
            return nftnl::encode(transaction, first, None);
        }
        Ok(transaction.encode(first, None))
    }

    fn send(&mut self, batch: &[u8]) -> Result<Outcome, Error> {
        #[cfg(feature = "nftnl")]
        if let Some(sender) = &self.sender {
            return Ok(self.socket.batch_by(batch, |_, batch| sender.send(batch))?);
        }
        Ok(self.socket.batch(batch)?)
    }

    /// Returns the number of the present state of all tables.
    ///
    /// Who knows the number of the state that was read or written last learns
    /// from it whether anybody has changed rules since.
    pub fn generation(&mut self) -> Result<Generation, Error> {
        let mut generation = None;
        let answer = self.ask(Query::Generation, |message| {
            generation = Some(wire::generation(message.payload)?);
            Ok(())
        });
        answer.map_err(Error::of_subsystem)?;
        generation.map(Generation).ok_or(Error::Timeout)
    }

    /// Returns the port by which the kernel tells this client from others.
    pub fn port_id(&self) -> u32 {
        self.socket.port()
    }

    /// Returns what the socket has done so far.
    pub fn counters(&self) -> Counters {
        self.socket.counters()
    }

    /// Reads tables; none when the kernel says that they changed meanwhile.
    fn read(&mut self, tables: &[TableId]) -> Result<Option<Ruleset>, Error> {
        let mut assembler = Assembler::new(tables);
        let mut present: Vec<&TableId> = Vec::new();
        for table in tables {
            let answer = self.ask(Query::Table(table), |message| {
                Ok(assembler.push(message.ty, message.payload)?)
            });
            match answer {
                Ok(()) => present.push(table),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let mut families: Vec<Family> = present.iter().map(|table| table.family).collect();
        families.sort_unstable();
        families.dedup();
        let chains = families.into_iter().map(Query::Chains);
        let parts = present
            .into_iter()
            .flat_map(|table| [Query::Rules(table), Query::Sets(table)]);
        for query in chains.chain(parts) {
            if !self.list(query, &mut assembler)? {
                return Ok(None);
            }
        }
        let sets = assembler.sets().iter().filter(|set| !set.is_dynamic());
        for set in sets.cloned().collect::<Vec<_>>() {
            if !self.list(Query::Elements(&set), &mut assembler)? {
                return Ok(None);
            }
        }
        Ok(Some(assembler.finish()))
    }

    /// Asks for one object, or what there is once.
    fn ask(
        &mut self,
        query: Query<'_>,
        each: impl FnMut(Message<'_>) -> Result<(), vipline_netlink::Error>,
    ) -> Result<(), Error> {
        self.payload.clear();
        query.encode(&mut self.payload);
        self.socket
            .request(query.message_type(), 0, &self.payload, each)
            .map_err(|error| unanswered(&query, error))
    }

    /// Asks for all objects of a kind; false when they changed meanwhile.
    fn list(&mut self, query: Query<'_>, assembler: &mut Assembler) -> Result<bool, Error> {
        self.payload.clear();
        query.encode(&mut self.payload);
        let dump: Result<_, vipline_netlink::Error> = self.socket.dump(
            query.message_type(),
            &self.payload,
            1,
            || (),
            |(), message| Ok(assembler.push(message.ty, message.payload)?),
        );
        match dump {
            Ok(Dump::Complete(())) => Ok(true),
            Ok(Dump::Interrupted(())) => Ok(false),
            Err(error) => Err(unanswered(&query, error)),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Tells whether no element was read twice.
///
/// The kernel resizes the hash table of a set after the commit that made it
/// grow or shrink, and begins to walk it anew when it does so during a dump.
/// An element that is missing then has left its place to one that was read
/// already.
fn is_whole(ruleset: &Ruleset) -> bool {
    let mut keys = HashSet::new();
    let mut sets = ruleset
        .tables
        .values()
        .flat_map(|content| content.sets.values());
    sets.all(|(_, elements)| {
        keys.clear();
        keys.reserve(elements.len());
        elements
            .iter()
            .all(|element| keys.insert(element.key_bytes()))
    })
}

/// Asks for what, in words, and of which object.
fn words(query: &Query<'_>) -> (&'static str, String) {
    match query {
        Query::Table(table) => ("list table", table.to_string()),
        Query::Chains(family) => ("list chains", family.to_string()),
        Query::Rules(table) => ("list rules of table", table.to_string()),
        Query::Sets(table) => ("list sets of table", table.to_string()),
        Query::Elements(set) => ("list set", format!("{} {}", set.table, set.name)),
        Query::Generation => ("ask for the generation of", "the ruleset".to_owned()),
    }
}

/// Names what the kernel refused to tell.
fn unanswered(query: &Query<'_>, error: vipline_netlink::Error) -> Error {
    let (operation, object) = words(query);
    Error::asking(operation, object, error)
}

/// Names the operations of a batch that the kernel refused.
fn refused(batch: &Batch<'_>, first: u32, refusals: Vec<Refusal>, more: usize) -> Error {
    if let [whole] = &*refusals {
        match whole.errno {
            Errno::PERM if whole.seq == first => return Error::Denied,
            errno @ (Errno::INVAL | Errno::OPNOTSUPP) if whole.seq == first => {
                return Error::unsupported(errno);
            }
            _ => {}
        }
    }
    let rejected = refusals
        .into_iter()
        .map(|refusal| RejectedOperation {
            operation: batch
                .operation(refusal.seq, refusal.offset)
                .unwrap_or(Operation {
                    action: Action::Commit,
                    subject: Subject::Transaction,
                }),
            errno: refusal.errno,
            message: refusal.text,
        })
        .collect();
    Error::Rejected { rejected, more }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::message::Answer;
    use vipline_reconcile::Edit;

    use super::*;
    use crate::{Name, Table};

    const FIRST: u32 = 7;

    /// What a commit says that adds a table, when the kernel refuses a message.
    fn told(seq: u32, errno: Errno) -> Error {
        let table = TableId::new(Family::Ip, Name::new("filter").unwrap());
        let transaction = Transaction::from_edits(&[Edit::Add(Table::new(table).into())]);
        let batch = transaction.encode(FIRST, None);
        let refusal = Refusal::new(seq, errno, Answer::default());
        refused(&batch, FIRST, vec![refusal], 0)
    }

    #[test]
    fn the_refusal_of_a_whole_batch_tells_what_the_kernel_or_the_program_lacks() {
        assert!(matches!(told(FIRST, Errno::PERM), Error::Denied));
        let unsupported = told(FIRST, Errno::OPNOTSUPP);
        assert!(unsupported.to_string().contains("CONFIG_NF_TABLES"));
        assert_eq!(
            told(FIRST, Errno::RESTART).to_string(),
            "commit transaction: interrupted system call should be restarted"
        );
    }

    #[test]
    fn the_refusal_of_one_message_names_its_operation_whatever_the_errno() {
        assert_eq!(
            told(FIRST + 1, Errno::PERM).to_string(),
            "add table ip filter: operation not permitted"
        );
        assert_eq!(
            told(FIRST + 1, Errno::OPNOTSUPP).to_string(),
            "add table ip filter: operation not supported"
        );
    }
}
