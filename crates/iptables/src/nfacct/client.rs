//! Netlink client for nfacct counters.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use vipline_netlink::message::{CREATE, EXCL, Message};
use vipline_netlink::{Counters, Protocol, Socket};

use super::wire::{self, Kind};
use super::{Counter, Error, Name};

/// Number of attempts to complete a dump while counters change concurrently.
const ATTEMPTS: usize = 10;

/// A client for the counters of one network namespace.
///
/// Methods block until the kernel has replied, at most 10 s ([`Error::Netlink`]).
#[derive(Debug)]
pub struct Client {
    socket: Socket,
}

impl Client {
    /// Opens a client in the network namespace of the calling thread and checks that
    /// the kernel supports nfacct.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the kernel does not support nfacct.
    /// [`Error::Denied`] if `CAP_NET_ADMIN` is missing.
    pub fn open() -> Result<Self, Error> {
        let socket = Socket::open(Protocol::NETFILTER)?;
        let mut client = Self { socket };
        let anything = Name::new("vipline").expect("the name is valid");
        match client.get(&anything) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(client),
        }
    }

    /// Creates a counter with value zero: `nfacct add NAME`.
    ///
    /// # Errors
    ///
    /// [`Error::is_already_exists`] if the counter already exists.
    pub fn create(&mut self, name: &Name) -> Result<(), Error> {
        let payload = wire::new(name);
        self.request("create counter", Kind::New, CREATE | EXCL, name, &payload)?;
        Ok(())
    }

    /// Creates a counter if it does not exist.
    ///
    /// # Errors
    ///
    /// Errors of [`create`](Self::create), except that the counter already exists.
    pub fn ensure(&mut self, name: &Name) -> Result<(), Error> {
        match self.create(name) {
            Err(error) if error.is_already_exists() => Ok(()),
            result => result,
        }
    }

    /// Returns a counter: `nfacct get NAME`.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if the counter does not exist.
    pub fn get(&mut self, name: &Name) -> Result<Counter, Error> {
        let payload = wire::named(name);
        let counter = self.request("get counter", Kind::Get, 0, name, &payload)?;
        Ok(counter.ok_or(vipline_netlink::Error::Timeout)?)
    }

    /// Deletes a counter: `nfacct delete NAME`.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if the counter does not exist.
    /// [`Error::is_busy`] while rules use it.
    pub fn delete(&mut self, name: &Name) -> Result<(), Error> {
        let payload = wire::named(name);
        self.request("delete counter", Kind::Del, 0, name, &payload)?;
        Ok(())
    }

    /// Dumps all counters: `nfacct list`.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] if counters changed during every attempt.
    pub fn dump(&mut self) -> Result<Vec<Counter>, Error> {
        let take = |counters: &mut Vec<Counter>, message: Message<'_>| {
            counters.push(wire::decode(message.payload)?);
            Ok::<(), vipline_netlink::Error>(())
        };
        let ty = Kind::Get.message_type();
        let dump = self.socket.dump(ty, &wire::all(), ATTEMPTS, Vec::new, take);
        dump.map_err(|error| Error::from_netlink("list", None, error))?
            .complete()
            .ok_or(Error::Interrupted { attempts: ATTEMPTS })
    }

    /// Sets the reply timeout. Default: 10 s.
    ///
    /// The timeout applies to each datagram of a reply.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`] if the timeout is zero.
    pub fn set_timeout(&self, timeout: Duration) -> Result<(), Error> {
        Ok(self.socket.set_timeout(timeout)?)
    }

    /// Returns the netlink port ID of the client.
    ///
    /// Listeners use the port ID to ignore changes by this client.
    pub fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    /// Returns the counters of the socket.
    pub fn counters(&self) -> Counters {
        self.socket.counters()
    }

    /// Sends a request about one counter and returns the counter of the reply.
    fn request(
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
        answer.map_err(|error| Error::from_netlink(operation, Some(name), error))?;
        Ok(counter)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use testkit::netns::Netns;

    use super::*;

    #[test]
    fn a_reply_timeout_of_zero_is_rejected() {
        let client = Netns::new().unwrap().run(Client::open).unwrap();
        client.set_timeout(Duration::from_secs(1)).unwrap();
        let zero = client.set_timeout(Duration::ZERO).unwrap_err();
        assert!(matches!(zero, Error::Netlink(_)), "{zero:?}");
    }
}
