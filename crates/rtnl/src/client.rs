//! The client: links and addresses read from the kernel, and commands given to it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use vipline_netlink::message::{ACK, REQUEST, begin, end};
use vipline_netlink::{Counters, Dump, Errno, Protocol, Socket};

use crate::error::Refused;
use crate::wire::{Answer, Numbered, Request};
use crate::{Addresses, Command, Commands, Error, Link, Name};

/// How many commands are sent at once; the answers to all have room.
const AT_ONCE: usize = 128;
/// How often a dump is tried.
const ATTEMPTS: usize = 10;

/// A client of rtnetlink in one network namespace.
///
/// It stays in the namespace in which it was opened.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    payload: Vec<u8>,
}

impl Client {
    /// Opens a client in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the system has no room.
    pub fn open() -> Result<Self, Error> {
        let mut socket = Socket::open(Protocol::Route)?;
        // Kernels without this tell more than is asked for, which is left out.
        let _ = socket.set_strict_check();
        Ok(Self {
            socket,
            payload: Vec::new(),
        })
    }

    /// Reads all links and the addresses on them.
    ///
    /// Links are asked for first: when other programs change them meanwhile,
    /// parts may be older than others.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] when they changed under every attempt.
    pub fn dump(&mut self) -> Result<Addresses, Error> {
        let links = self.list(&Request::Links, "links", |answer| match answer {
            Answer::Link(link) => Some(link),
            _ => None,
        })?;
        let mut links: BTreeMap<u32, Link> =
            links.into_iter().map(|link| (link.index, link)).collect();
        let found = self.addresses(&Request::Addresses)?;
        let mut all = Addresses::default();
        for address in found {
            // Of a link that came since, the name is asked for.
            if !links.contains_key(&address.index) {
                let Some(link) = self.ask(&Request::LinkAt(address.index), &address.index)? else {
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

    /// Reads one link and the addresses on it, nothing if it is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] when they changed under every attempt.
    pub fn dump_of(&mut self, name: &Name) -> Result<Addresses, Error> {
        let mut all = Addresses::default();
        let Some(link) = self.link(name)? else {
            return Ok(all);
        };
        let found = match self.addresses(&Request::AddressesOf(link.index)) {
            // It went since.
            Err(error) if error.is_not_found() => return Ok(all),
            found => found?,
        };
        for address in found {
            if address.index == link.index {
                all.insert(address.on(link.name));
            }
        }
        all.insert_link(link);
        Ok(all)
    }

    /// Reads the link of this name, without its addresses.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn link(&mut self, name: &Name) -> Result<Option<Link>, Error> {
        self.ask(&Request::Link(*name), name)
    }

    /// Does commands, each on its own, whatever becomes of the others.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] names every command the kernel refused; all others
    /// are done.
    /// After any other error it is not known which of them are.
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
                        // What was not sent yet is refused before this, if it is.
                        self.send(&mut round)?;
                        let refused = Refused::without_link(command.clone());
                        round.refused.push(refused);
                        continue;
                    }
                },
            };
            round.unsent.push((command, index));
            if round.unsent.len() == AT_ONCE {
                self.send(&mut round)?;
            }
        }
        self.send(&mut round)?;
        match round.refused.is_empty() {
            true => Ok(()),
            false => Err(Error::Refused {
                refused: round.refused,
            }),
        }
    }

    /// Returns the port by which the kernel tells this client from others.
    ///
    /// Who listens to changes of links and addresses ignores its own by it.
    pub fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    /// Returns what the socket has done so far.
    pub fn counters(&self) -> Counters {
        self.socket.counters()
    }

    /// Finds the number of a link, once for all commands about its addresses.
    fn index(&mut self, name: &Name, round: &mut Round<'_>) -> Result<Option<u32>, Error> {
        if let Some(index) = round.indexes.get(name) {
            return Ok(*index);
        }
        // Links that come or go must have done so.
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

    /// Sends the commands of a round that are not sent, and gathers those that
    /// are refused.
    fn send(&mut self, round: &mut Round<'_>) -> Result<(), Error> {
        if round.unsent.is_empty() {
            return Ok(());
        }
        let first = self.socket.sequence();
        self.payload.clear();
        let mut seq = first;
        for (place, (command, index)) in round.unsent.iter().enumerate() {
            let last = place + 1 == round.unsent.len();
            let ack = if last { ACK } else { 0 };
            let flags = REQUEST | command.flags() | ack;
            let start = begin(&mut self.payload, command.ty(), flags, seq);
            command.encode(*index, &mut self.payload);
            end(&mut self.payload, start);
            seq = seq.wrapping_add(1);
        }
        for refusal in self.socket.request_many(&self.payload)? {
            if refusal.errno == Errno::PERM {
                return Err(Error::Denied);
            }
            let place = usize::try_from(refusal.seq.wrapping_sub(first)).unwrap_or(usize::MAX);
            if let Some((command, _)) = round.unsent.get(place) {
                let refused = Refused::new((*command).clone(), refusal);
                round.refused.push(refused);
            }
        }
        round.unsent.clear();
        Ok(())
    }

    /// Asks for one link; none if it is not there.
    fn ask(&mut self, request: &Request, object: &dyn fmt::Display) -> Result<Option<Link>, Error> {
        self.payload.clear();
        request.encode(&mut self.payload);
        let mut found = None;
        let asked = self
            .socket
            .request(request.ty(), 0, &self.payload, |message| {
                if let Answer::Link(link) = Answer::decode(message.ty, message.payload)? {
                    found = Some(link);
                }
                Ok::<(), vipline_netlink::Error>(())
            });
        match asked {
            Err(error) if error.errno() == Some(Errno::NODEV) => Ok(None),
            Err(error) => Err(Error::asking(format_args!("link {object}"), error)),
            Ok(()) => Ok(found),
        }
    }

    /// Asks for addresses.
    fn addresses(&mut self, request: &Request) -> Result<Vec<Numbered>, Error> {
        self.list(request, "addresses", |answer| match answer {
            Answer::Address(address) => Some(address),
            _ => None,
        })
    }

    /// Asks for all objects of a kind.
    fn list<T>(
        &mut self,
        request: &Request,
        what: &'static str,
        pick: impl Fn(Answer) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        self.payload.clear();
        request.encode(&mut self.payload);
        let dump = self
            .socket
            .dump(
                request.ty(),
                &self.payload,
                ATTEMPTS,
                Vec::new,
                |all, message| {
                    all.extend(pick(Answer::decode(message.ty, message.payload)?));
                    Ok::<(), vipline_netlink::Error>(())
                },
            )
            .map_err(|error| Error::asking(what, error))?;
        match dump {
            Dump::Complete(all) => Ok(all),
            Dump::Interrupted(_) => Err(Error::Interrupted { what }),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A commit on its way.
#[derive(Default)]
struct Round<'a> {
    /// The numbers of links, as far as they were asked for; none of a link that
    /// is not there.
    indexes: HashMap<Name, Option<u32>>,
    /// Commands that are not sent yet, with the number of the link.
    unsent: Vec<(&'a Command, u32)>,
    /// Commands that were refused.
    refused: Vec<Refused>,
}
