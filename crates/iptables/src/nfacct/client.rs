//! Netlink client for nfacct counters.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use vipline_netlink::message::{NLM_F_CREATE, NLM_F_EXCL};
use vipline_netlink::{Protocol, Request, Requester};

use super::wire::{self, NFNL_MSG_ACCT_DEL, NFNL_MSG_ACCT_GET, NFNL_MSG_ACCT_NEW, message_type};
use super::{Counter, Error, Name};

/// Number of attempts to complete a dump while counters change concurrently.
const ATTEMPTS: usize = 10;

/// A client for the counters of one network namespace.
///
/// Methods block until the kernel has replied, at most 10 s ([`Error::Netlink`]).
#[derive(Debug)]
pub struct Client {
    requester: Requester<Name>,
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
        let requester = Requester::open(Protocol::NETFILTER)?;
        let mut client = Self { requester };
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
        self.request(
            "create counter",
            NFNL_MSG_ACCT_NEW,
            NLM_F_CREATE | NLM_F_EXCL,
            name,
            &payload,
        )?;
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
        let counter = self.request("get counter", NFNL_MSG_ACCT_GET, 0, name, &payload)?;
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
        self.request("delete counter", NFNL_MSG_ACCT_DEL, 0, name, &payload)?;
        Ok(())
    }

    /// Dumps all counters: `nfacct list`.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] if counters changed during every attempt.
    pub fn dump(&mut self) -> Result<Vec<Counter>, Error> {
        let listed = self.requester.list(
            Request::new(message_type(NFNL_MSG_ACCT_GET), "list", &"counters"),
            ATTEMPTS,
            |payload| payload.extend_from_slice(&wire::all()),
            Vec::new,
            |counters, message| {
                counters.push(wire::decode(message.payload)?);
                Ok(())
            },
        );
        listed.map_err(Error::into_unsupported)
    }

    /// Sends a request about one counter and returns the counter of the reply.
    fn request(
        &mut self,
        operation: &'static str,
        kind: u8,
        flags: u16,
        name: &Name,
        payload: &[u8],
    ) -> Result<Option<Counter>, Error> {
        let mut counter = None;
        let answer = self.requester.request(
            Request::new(message_type(kind), operation, name).with_flags(flags),
            |out| out.extend_from_slice(payload),
            |message| {
                counter = Some(wire::decode(message.payload)?);
                Ok(())
            },
        );
        // The kernel rejects messages of an unknown subsystem as invalid; messages of this
        // crate are valid.
        answer.map_err(Error::into_unsupported)?;
        Ok(counter)
    }
}

vipline_netlink::impl_client!(Client, requester);

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
