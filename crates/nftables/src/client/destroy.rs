//! Deletion of objects that may not exist.
//!
//! The kernel applies a batch as a whole. Before Linux 6.3 it has only deletions, so one object
//! that does not exist keeps all others. There the client learns from the rejection what is
//! missing:
//!
//! ```text
//! delete set a, set b, element { 1 } of c   rejected: ENOENT for a and for the element
//! dump the elements of c                    at generation 7, without 1
//! delete set b, if the generation is 7      committed
//! ```
//!
//! What must stay true: the loop ends. Each round leaves out at least one object, or counts as an
//! attempt. And elements that a dump lacked are left out only of a commit that requires the
//! generation of the dump: otherwise an element that was added meanwhile would stay.

use std::collections::HashSet;

use vipline_netlink::message::NLM_F_ACK;
use vipline_netlink::{Errno, Outcome};
use vipline_reconcile::Keyed;

use super::{ATTEMPTS, Client, interrupted};
use crate::wire;
use crate::wire::encoder::{
    NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, put_batch_message, put_message,
};
use crate::wire::message_types::*;
use crate::{
    Element, Error, Generation, Name, Object, RejectedOperation, RuleHandle, Subject, TableId,
    Transaction,
};

impl Client {
    /// Returns whether the kernel can delete objects that may not exist
    /// ([`Transaction::destroy`]), which Linux 6.3 and later can.
    ///
    /// Asks the kernel at the first call. Nothing is deleted.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`], [`Error::Unsupported`] and others: the request failed.
    pub fn has_destroy(&mut self) -> Result<bool, Error> {
        if let Some(known) = self.has_destroy {
            return Ok(known);
        }
        let first = self.requester.socket().sequence();
        let mut batch = Vec::new();
        put_batch_message(&mut batch, NFNL_MSG_BATCH_BEGIN, first, None);
        let kind = message_type(NFT_MSG_DESTROYTABLE);
        put_message(&mut batch, kind, NLM_F_ACK, first.wrapping_add(1), |out| {
            // Without a family, or with neither name nor handle, this message would delete all
            // tables (`nf_tables_deltable`).
            wire::put_header(out, crate::Family::Ip.number(), 0);
            // A handle that no table has: the kernel counts them from 1.
            vipline_netlink::attr::put_be64(out, wire::NFTA_TABLE_HANDLE, u64::MAX);
        });
        put_batch_message(&mut batch, NFNL_MSG_BATCH_END, first.wrapping_add(2), None);
        let has_destroy = match self.requester.socket_mut().batch(&batch)? {
            Outcome::Committed => true,
            Outcome::Rejected { errors, .. } => match errors.first().map(|first| first.errno) {
                Some(Errno::PERM) => return Err(Error::Denied),
                // An unknown message of a batch.
                Some(Errno::INVAL) => false,
                errno @ Some(_) => return Err(Error::unsupported(errno)),
                // Rejected without a reason. Deletions work on every kernel.
                None => false,
            },
            Outcome::Unknown(error) => return Err(error.into()),
        };
        self.has_destroy = Some(has_destroy);
        Ok(has_destroy)
    }

    /// Deletes one object if it exists: a table with its content, a chain with its rules, a set
    /// with its elements, an element, a stateful object or a flowtable.
    ///
    /// ```no_run
    /// use vipline_nftables::{Client, Family, Name, Table, TableId};
    ///
    /// let table = TableId::new(Family::Inet, Name::new("firewall")?);
    /// Client::open()?.destroy(Table::new(table))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`destroy_all`](Self::destroy_all).
    pub fn destroy(&mut self, object: impl Into<Object>) -> Result<(), Error> {
        self.destroy_all(&[object.into()])
    }

    /// Deletes the objects that exist, in one transaction. None of them exists afterwards,
    /// whether or not it existed before, and whether or not its table exists.
    ///
    /// On a kernel that [cannot](Self::has_destroy) destroy, objects that the kernel does not
    /// know are left out of the transaction, and elements that a dump of their set lacks. It is
    /// repeated if another process commits meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::is_busy`]: a rule or an element that remains uses an object.
    /// [`Error::Interrupted`]: the ruleset changed during every attempt. Others as
    /// [`commit`](Self::commit).
    pub fn destroy_all(&mut self, objects: &[Object]) -> Result<(), Error> {
        let has_destroy = self.has_destroy()?;
        let mut rest: Vec<&Object> = objects.iter().collect();
        let mut generation = None;
        let mut attempts = 0;
        while !rest.is_empty() {
            let all = rest.iter().copied();
            let transaction = if has_destroy {
                Transaction::destroy(all)
            } else {
                Transaction::delete(all)
            };
            let rejected = match self.commit_with(&transaction, generation) {
                Ok(()) => return Ok(()),
                // Also with destroy: a missing table or set of an object is ENOENT there, too.
                // Objects that are in use are rejected again, without those that do not exist:
                // the error is then the same on all kernels.
                Err(Error::Rejected { mut rejected, .. })
                    if rejected.iter().any(|one| one.errno == Errno::NOENT) =>
                {
                    rejected.retain(|one| one.errno == Errno::NOENT);
                    rejected
                }
                // Nothing is known to be missing at the new generation, so `rest` stays, and the
                // attempt begins anew below.
                Err(Error::Outdated) => Vec::new(),
                Err(error) => return Err(error),
            };
            let before = rest.len();
            if !rejected.is_empty() {
                generation = self.drop_absent(&mut rest, &rejected, generation)?;
            }
            // Another process committed between the commit and the dump, or since the dump. What
            // was left out may exist by now, so the list is complete again.
            if rest.len() == before {
                attempts += 1;
                if attempts == ATTEMPTS {
                    return Err(interrupted());
                }
                rest = objects.iter().collect();
                generation = None;
            }
        }
        Ok(())
    }

    /// Removes objects that do not exist from a list, by the operations that the kernel
    /// rejected. Returns the generation in which they do not exist, if elements were read.
    fn drop_absent(
        &mut self,
        rest: &mut Vec<&Object>,
        rejected: &[RejectedOperation],
        generation: Option<Generation>,
    ) -> Result<Option<Generation>, Error> {
        let (mut absent, mut sets) = (HashSet::new(), Vec::new());
        for one in rejected {
            match &one.request.subject {
                // The kernel reports the first missing element of each message only. With one
                // round for each of thousands of elements this would not end soon: the whole set
                // is read instead.
                Subject::Object(object) => match &**object {
                    Object::Element(element) => sets.push(element.set()),
                    object => {
                        absent.insert(object.key());
                    }
                },
                Subject::Elements { first, .. } => sets.push(first.set()),
                // `Transaction::delete` names only objects. Whatever else is ENOENT, nothing can be
                // left out because of it, and the round counts as an attempt.
                _ => {}
            }
        }
        // One dump for each set, although each of its messages may have been rejected.
        sets.sort_unstable_by_key(|set| (&set.table, &set.name));
        sets.dedup_by(|one, other| one.is_same_set(other));
        // Without elements the generation of an earlier round stays required.
        let mut read = generation;
        if !sets.is_empty() {
            // Before the dumps, so that a commit by another process during them is noticed: it
            // makes the next deletion outdated.
            read = Some(self.generation()?);
            for set in sets {
                let present = match self.elements(set) {
                    Ok(elements) => elements,
                    // A set that does not exist has no elements.
                    Err(error) if error.is_not_found() => Vec::new(),
                    Err(error) => return Err(error),
                };
                let present: HashSet<_> = present.iter().map(Element::key_bytes).collect();
                rest.retain(|object| match object {
                    Object::Element(element) if element.set().is_same_set(set) => {
                        present.contains(element.key_bytes())
                    }
                    _ => true,
                });
            }
        }
        rest.retain(|object| !absent.contains(&object.key()));
        Ok(read)
    }

    /// Deletes a rule if it exists.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn destroy_rule(
        &mut self,
        table: &TableId,
        chain: &Name,
        rule: RuleHandle,
    ) -> Result<(), Error> {
        match self.delete_rule(table, chain, rule) {
            Err(error) if error.is_not_found() => Ok(()),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::netns::Netns;
    use testkit::nft;

    use super::*;
    use vipline_reconcile::Edit;

    use crate::expr::Counter;
    use crate::{Chain, Datatype, Set, SetFlags, StatefulObject, Table};

    /// Objects of every kind that can be destroyed without a device.
    const RULESET: &str = "table ip t {
        counter n { }
        map m { type inet_service : verdict; elements = { 80 : jump c, 81 : jump c }; }
        map objects { type inet_service : counter; elements = { 80 : \"n\" }; }
        set s { type ipv4_addr; flags interval; elements = { 192.0.2.0/24 }; }
        chain c { counter name n; }
        chain d { jump c; tcp dport vmap @m; }
    }
    table ip other { chain c { }; }";

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn table() -> TableId {
        TableId::new(crate::Family::Ip, name("t"))
    }

    /// Returns the objects of the ruleset, without the table and without contents.
    fn objects() -> Vec<Object> {
        let verdicts = Set::verdict_map(table(), name("m"), [Datatype::InetService]);
        let set = Set::new(table(), name("s"), [Datatype::Ipv4Addr]);
        let set = set.with_flags(SetFlags::INTERVAL);
        let counts = Set::new(table(), name("objects"), [Datatype::InetService]);
        vec![
            StatefulObject::new(table(), name("n"), Counter::default()).into(),
            Chain::new(table(), name("c")).into(),
            Chain::new(table(), name("d")).into(),
            verdicts.into(),
            counts.into(),
            set.into(),
        ]
    }

    /// Calls a function with a client of a namespace with the ruleset, and one that acts as on
    /// an old kernel.
    fn with_clients(test: impl Fn(&mut Client)) {
        for is_old in [false, true] {
            let netns = Netns::new().unwrap();
            netns.run(|| nft::succeeds(&["-f", "-"], RULESET));
            let mut client = netns.run(Client::open).unwrap();
            if is_old {
                client.has_destroy = Some(false);
            }
            test(&mut client);
        }
    }

    #[test]
    fn objects_are_destroyed_in_any_order_and_more_than_once() {
        with_clients(|client| {
            let mut all = objects();
            for _ in 0..2 {
                client.destroy_all(&all).unwrap();
                let left = client.dump(&[table()]).unwrap();
                assert_eq!(left.objects().count(), 1, "{left}");
                all.reverse();
            }
            client.destroy(Table::new(table())).unwrap();
            client.destroy(Table::new(table())).unwrap();
            // The table of the objects is missing.
            client.destroy_all(&all).unwrap();
            assert_eq!(client.tables().unwrap().len(), 1);
        });
    }

    #[test]
    fn elements_are_destroyed_if_they_exist() {
        with_clients(|client| {
            let set = Set::new(table(), name("many"), [Datatype::InetService]);
            let element = |port: u16| Object::from(set.element(&[port.into()]).unwrap());
            let even = (0..9000).step_by(2).map(element).map(Edit::Add);
            let edits: Vec<_> = [Edit::Add(set.clone().into())]
                .into_iter()
                .chain(even)
                .collect();
            client.commit(&Transaction::from_edits(&edits)).unwrap();
            let all: Vec<_> = (10..9000).map(element).collect();
            client.destroy_all(&all).unwrap();
            assert_eq!(client.elements(&set).unwrap().len(), 5);
            client.destroy(element(0)).unwrap();
            client.destroy(element(0)).unwrap();
            assert_eq!(client.elements(&set).unwrap().len(), 4);
            client.destroy(set.clone()).unwrap();
            client.destroy_all(&all).unwrap();
        });
    }

    #[test]
    fn an_object_in_use_is_not_destroyed() {
        with_clients(|client| {
            let chains = ["c", "none"].map(|chain| Chain::new(table(), name(chain)).into());
            let error = client.destroy_all(&chains).unwrap_err();
            assert!(error.is_busy(), "{error}");
            let rules = client.dump(&[table()]).unwrap().to_string();
            assert!(rules.contains("counter name \"n\""), "{rules}");
        });
    }

    #[test]
    fn a_rule_is_destroyed_if_it_exists() {
        with_clients(|client| {
            let (mut handle, c) = (None, name("c"));
            client
                .rules(&table(), Some(&c), |rule| handle = Some(rule.handle))
                .unwrap()
                .into_inner();
            for _ in 0..2 {
                client.destroy_rule(&table(), &c, handle.unwrap()).unwrap();
            }
            client
                .destroy_rule(&table(), &name("none"), handle.unwrap())
                .unwrap();
        });
    }

    #[test]
    fn a_question_deletes_nothing() {
        with_clients(|client| {
            let before = client.generation().unwrap();
            client.has_destroy = None;
            assert!(
                client.has_destroy().unwrap(),
                "this kernel is Linux 6.3 or later"
            );
            assert_eq!(client.generation().unwrap(), before);
        });
    }

    #[test]
    fn destruction_displays_as_a_script() {
        let script = Transaction::destroy(&objects()).to_string();
        let expected = "# destroy rules of chain ip t c
# destroy rules of chain ip t d
destroy map ip t m
destroy set ip t objects
destroy set ip t s
destroy chain ip t c
destroy chain ip t d
destroy counter ip t n
";
        assert_eq!(script, expected);
    }
}
