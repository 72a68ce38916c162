//! A client of rtnetlink.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use vipline_netlink::{Applied, Dump, Errno, Protocol, Rejected, Requester, Socket, SocketOption};

use crate::wire::{IndexedAddress, Reply, Request};
use crate::{Command, Commands, Error, Family, Link, Name, Snapshot};

/// Maximum number of attempts of a dump.
const ATTEMPTS: usize = 10;
/// The operation of all requests but commands, in errors.
const LIST: &str = "list";
/// The addresses, in errors.
const ADDRESSES: &str = "addresses";

/// A client of rtnetlink in one network namespace.
///
/// The client stays in the network namespace in which it was opened.
/// All methods block until the kernel replies, at most 10 s for each datagram.
#[derive(Debug)]
pub struct Client {
    requester: Requester<Command>,
}

impl Client {
    /// Opens a client in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`] if the socket cannot be opened.
    pub fn open() -> Result<Self, Error> {
        let requester = Requester::open(Protocol::ROUTE)?;
        // Kernels without this option ignore filters; the client filters, too.
        let _ = requester
            .socket()
            .set_option(SocketOption::StrictCheck, true);
        Ok(Self { requester })
    }

    /// Dumps all links and their addresses.
    ///
    /// Links are dumped before addresses. The result may be inconsistent if other
    /// programs change both meanwhile.
    /// An interrupted dump is repeated, up to ten attempts in total.
    ///
    /// # Errors
    ///
    /// - [`Error::Interrupted`]: links or addresses changed during every attempt.
    /// - [`Error::Kernel`]: the kernel rejected a request.
    /// - Any other [`Error`] except [`Error::Rejected`]: a reply was lost or malformed.
    pub fn dump(&mut self) -> Result<Snapshot, Error> {
        let links = self.list(&Request::Links, "links", |answer| match answer {
            Reply::Link(link) => Some(link),
            _ => None,
        })?;
        let mut links: BTreeMap<u32, Link> =
            links.into_iter().map(|link| (link.index, link)).collect();
        let found = self.addresses(&Request::Addresses)?;
        let mut all = Snapshot::default();
        for address in found {
            // The link was created after the dump of links.
            if !links.contains_key(&address.index) {
                let Some(link) =
                    self.request(&Request::LinkByIndex(address.index), &address.index)?
                else {
                    continue;
                };
                links.insert(link.index, link);
            }
            if let Some(link) = links.get(&address.index) {
                all.insert(address.on(link.name));
            }
        }
        links.into_values().for_each(|link| all.insert_link(link));
        Ok(all)
    }

    /// Dumps one link and its addresses; the result is empty if the link does not exist.
    ///
    /// # Errors
    ///
    /// The errors of [`dump`](Self::dump).
    pub fn dump_link(&mut self, name: &Name) -> Result<Snapshot, Error> {
        self.dump_link_with(name, Request::AddressesOf, |_| true)
    }

    /// Dumps one link and its addresses of one family; the result is empty if the link
    /// does not exist.
    ///
    /// # Errors
    ///
    /// The errors of [`dump`](Self::dump).
    pub fn dump_link_in(&mut self, name: &Name, family: Family) -> Result<Snapshot, Error> {
        let request = |index| Request::FamilyAddressesOf(family, index);
        self.dump_link_with(name, request, |address| Family::of(address) == family)
    }

    /// Dumps one link and its addresses that are `wanted`. `request` returns the request
    /// for the addresses of the link with an index.
    fn dump_link_with(
        &mut self,
        name: &Name,
        request: impl FnOnce(u32) -> Request,
        is_wanted: impl Fn(IpAddr) -> bool,
    ) -> Result<Snapshot, Error> {
        let mut all = Snapshot::default();
        let Some(link) = self.link(name)? else {
            return Ok(all);
        };
        let found = match self.addresses(&request(link.index)) {
            // The link was deleted meanwhile.
            Err(error) if error.is_not_found() => return Ok(all),
            found => found?,
        };
        for address in found {
            if address.index == link.index && is_wanted(address.net.addr()) {
                all.insert(address.on(link.name));
            }
        }
        all.insert_link(link);
        Ok(all)
    }

    /// Dumps the addresses of all links without the links: one request, like
    /// `ip -numeric address` without names.
    ///
    /// An interrupted dump is repeated, up to ten attempts in total. The result of the
    /// last attempt may lack addresses or contain duplicates.
    ///
    /// # Errors
    ///
    /// The errors of [`dump`](Self::dump) except [`Error::Interrupted`].
    pub fn dump_addresses(&mut self) -> Result<Dump<Vec<IndexedAddress>>, Error> {
        self.try_list(&Request::Addresses, ADDRESSES, Reply::into_address)
    }

    /// Returns a link by its name, or `None` if the link does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request; any other [`Error`] except
    /// [`Error::Rejected`] if the reply was lost or malformed.
    pub fn link(&mut self, name: &Name) -> Result<Option<Link>, Error> {
        self.request(&Request::Link(*name), name)
    }

    /// Executes commands in their order, 128 per system call, and continues after a
    /// rejected one, like `ip -force -batch`.
    ///
    /// Requires `CAP_NET_ADMIN`.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the kernel rejected the listed commands; all others were
    ///   executed.
    /// - Any other [`Error`], such as [`Error::Denied`]: it is unknown which commands
    ///   were executed.
    pub fn commit(&mut self, commands: &Commands) -> Result<(), Error> {
        let mut round = Round::default();
        for command in commands.as_slice() {
            let name = command.interface();
            let index = match command.needs_index() {
                false => {
                    round.indexes.remove(&name);
                    0
                }
                true => match self.index(&name, &mut round)? {
                    Some(index) => index,
                    None => {
                        // Rejected commands are listed in the order of the commands.
                        self.send(&mut round)?;
                        let rejected = Rejected::new(command.clone(), Errno::NODEV);
                        round.applied.rejected.push(rejected);
                        continue;
                    }
                },
            };
            round.unsent.push((command, index));
            if round.unsent.len() == Socket::MAX_REQUESTS {
                self.send(&mut round)?;
            }
        }
        self.send(&mut round)?;
        round.applied.into_result().map(drop)
    }

    /// Returns the index of a link, with one request per link and commit.
    fn index(&mut self, name: &Name, round: &mut Round<'_>) -> Result<Option<u32>, Error> {
        if let Some(index) = round.indexes.get(name) {
            return Ok(*index);
        }
        // Pending commands may create or delete the link.
        if round
            .unsent
            .iter()
            .any(|(command, _)| !command.needs_index())
        {
            self.send(round)?;
        }
        let index = self.link(name)?.map(|link| link.index);
        round.indexes.insert(*name, index);
        Ok(index)
    }

    /// Sends the pending commands of a commit, and records the rejected ones.
    fn send(&mut self, round: &mut Round<'_>) -> Result<(), Error> {
        self.requester.request_each(
            round.unsent.drain(..),
            |(command, index), payload| {
                command.encode(*index, payload);
                (command.ty(), command.flags())
            },
            |one| Some(one.map(|(command, _)| command.clone())),
            &mut round.applied,
        )
    }

    /// Returns one link, or `None` if the link does not exist.
    fn request(
        &mut self,
        request: &Request,
        object: &dyn fmt::Display,
    ) -> Result<Option<Link>, Error> {
        let mut found = None;
        let result = self.requester.request(
            vipline_netlink::Request::new(request.ty(), LIST, &format_args!("link {object}")),
            |payload| request.encode(payload),
            |message| {
                if let Reply::Link(link) = Reply::decode(message.ty, message.payload)? {
                    found = Some(link);
                }
                Ok(())
            },
        );
        match result {
            Err(error) if error.errno() == Some(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(found),
        }
    }

    /// Dumps addresses.
    fn addresses(&mut self, request: &Request) -> Result<Vec<IndexedAddress>, Error> {
        self.list(request, ADDRESSES, Reply::into_address)
    }

    /// Dumps all objects of one kind. Fails if every attempt was interrupted.
    fn list<T>(
        &mut self,
        request: &Request,
        what: &'static str,
        pick: impl Fn(Reply) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let dump = self.try_list(request, what, pick)?;
        dump.complete().ok_or_else(|| Error::Interrupted {
            operation: LIST,
            object: what.into(),
            attempts: ATTEMPTS,
        })
    }

    /// Dumps all objects of one kind.
    fn try_list<T>(
        &mut self,
        request: &Request,
        what: &'static str,
        pick: impl Fn(Reply) -> Option<T>,
    ) -> Result<Dump<Vec<T>>, Error> {
        self.requester.dump(
            vipline_netlink::Request::new(request.ty(), LIST, &what),
            ATTEMPTS,
            |payload| request.encode(payload),
            Vec::new,
            |all, message| {
                all.extend(pick(Reply::decode(message.ty, message.payload)?));
                Ok(())
            },
        )
    }
}

vipline_netlink::impl_client!(Client, requester);

/// A commit in progress.
#[derive(Default)]
struct Round<'a> {
    /// Indexes of links; `None` if a link does not exist.
    indexes: HashMap<Name, Option<u32>>,
    /// Pending commands with the index of the link.
    unsent: Vec<(&'a Command, u32)>,
    /// Results of the sent commands.
    applied: Applied<Command>,
}
