//! The client for counters.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use vipline_netlink::message::{CREATE, EXCL, Message};
use vipline_netlink::{Dump, Protocol, Socket};

use super::wire::{self, Kind};
use super::{Counter, Error, Name};

/// How often a list is begun again when the counters change under it.
const ATTEMPTS: usize = 10;

/// A connection to the counters of one network namespace.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
}

impl Client {
    /// Opens a connection in the network namespace of the calling thread, and
    /// asks whether the kernel has counters at all.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] when it has none.
    pub fn open() -> Result<Self, Error> {
        let open = Socket::open(Protocol::Netfilter);
        let socket = open.map_err(|error| Error::asking("open", None, error))?;
        let mut client = Self { socket };
        let anything = Name::new("vipline").expect("a name of seven bytes is one");
        match client.get(&anything) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(client),
        }
    }

    /// Makes a counter, at zero.
    ///
    /// # Errors
    ///
    /// [`Error::is_already_exists`] when there is one of the name.
    pub fn create(&mut self, name: &Name) -> Result<(), Error> {
        let payload = wire::new(name);
        self.ask("create counter", Kind::New, CREATE | EXCL, name, &payload)?;
        Ok(())
    }

    /// Makes a counter unless there is one of the name.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn ensure(&mut self, name: &Name) -> Result<(), Error> {
        match self.create(name) {
            Err(error) if error.is_already_exists() => Ok(()),
            result => result,
        }
    }

    /// Reads a counter.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when there is none of the name.
    pub fn get(&mut self, name: &Name) -> Result<Counter, Error> {
        let payload = wire::named(name);
        let counter = self.ask("get counter", Kind::Get, 0, name, &payload)?;
        counter.ok_or(Error::Timeout)
    }

    /// Deletes a counter.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when there is none of the name, and
    /// [`Error::is_busy`] while rules count in it.
    pub fn delete(&mut self, name: &Name) -> Result<(), Error> {
        let payload = wire::named(name);
        self.ask("delete counter", Kind::Del, 0, name, &payload)?;
        Ok(())
    }

    /// Reads all counters.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] when they changed under every attempt.
    pub fn dump(&mut self) -> Result<Vec<Counter>, Error> {
        let take = |counters: &mut Vec<Counter>, message: Message<'_>| {
            counters.push(wire::decode(message.payload)?);
            Ok::<(), vipline_netlink::Error>(())
        };
        let ty = Kind::Get.message_type();
        let dump = self.socket.dump(ty, &wire::all(), ATTEMPTS, Vec::new, take);
        match dump.map_err(|error| Error::asking("list", None, error))? {
            Dump::Complete(counters) => Ok(counters),
            Dump::Interrupted(_) => Err(Error::Interrupted { attempts: ATTEMPTS }),
        }
    }

    /// Sends a message about one counter, and returns that of the answer.
    fn ask(
        &mut self,
        operation: &'static str,
        kind: Kind,
        flags: u16,
        name: &Name,
        payload: &[u8],
    ) -> Result<Option<Counter>, Error> {
        let mut counter = None;
        let answer = self
            .socket
            .request(kind.message_type(), flags, payload, |message| {
                counter = Some(wire::decode(message.payload)?);
                Ok::<(), vipline_netlink::Error>(())
            });
        answer.map_err(|error| Error::asking(operation, Some(name), error))?;
        Ok(counter)
    }
}
