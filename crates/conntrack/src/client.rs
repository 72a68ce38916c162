//! A client of ctnetlink.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fmt;

use vipline_netlink::{Applied, Dump, Errno, Protocol, Requester};

use crate::error::Change;
use crate::wire::Request;
use crate::{CpuStatistics, Error, Filter, Flow, Key, Update, Usage};

/// Maximum number of attempts of a dump into memory.
pub(crate) const ATTEMPTS: usize = 3;

/// The operation for which a missing object is an error.
const CREATE: &str = "create";

/// Result of deleting several flows.
///
/// Exhaustive: a flow is deleted or missing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Deleted {
    /// Number of deleted flows.
    pub deleted: usize,
    /// Number of flows that did not exist, or had the same tuple but another ID.
    pub missing: usize,
}

/// Result of a flush.
///
/// Exhaustive: the kernel deletes the flows, or the client deletes each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flushed {
    /// The client dumped and deleted the flows, because the kernel cannot apply the
    /// filter.
    Individually(Deleted),
    /// The kernel flushed the flows; it does not report their number.
    ByKernel,
}

/// A client of ctnetlink in one network namespace.
///
/// The client stays in the network namespace in which it was opened.
/// All methods block until the kernel replies, at most 10 s for each datagram.
#[derive(Debug)]
pub struct Client {
    requester: Requester<Change>,
    /// Whether the kernel flushes by tuple; `None` before the first probe.
    can_flush_by_tuple: Option<bool>,
}

impl Client {
    /// Opens a client in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// - [`Error::Unsupported`]: the kernel has no ctnetlink, or its module is not
    ///   loaded.
    /// - [`Error::Denied`]: `CAP_NET_ADMIN` is missing.
    /// - Any other [`Error`]: the socket cannot be opened, or its first request failed.
    pub fn open() -> Result<Self, Error> {
        let mut client = Self {
            requester: Requester::open(Protocol::NETFILTER)?,
            can_flush_by_tuple: None,
        };
        match client.usage() {
            // After `open`, EPERM concerns a single flow, such as a fixed timeout.
            Err(error) if error.errno() == Some(Errno::PERM) => Err(Error::Denied),
            Err(error) => Err(error.into_unsupported()),
            Ok(_) => Ok(client),
        }
    }

    /// Calls `each` for every flow that matches the filter, like `conntrack -L`.
    ///
    /// The client buffers only one datagram, and does not repeat an interrupted dump.
    /// The dump may include or omit flows that are created or deleted meanwhile. If the
    /// kernel resizes its hash table meanwhile, the dump may omit or repeat flows;
    /// current kernels do not report that.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the dump; any other [`Error`] if the
    /// reply was lost or malformed. `each` may have been called before the error.
    pub fn dump(&mut self, filter: &Filter, mut each: impl FnMut(Flow)) -> Result<Dump<()>, Error> {
        self.list_flows(filter, 1, || (), |(), flow| each(flow))
    }

    /// Returns all flows that match the filter.
    ///
    /// An interrupted dump is repeated, up to three attempts in total.
    ///
    /// # Errors
    ///
    /// The errors of [`dump`](Self::dump).
    pub fn flows(&mut self, filter: &Filter) -> Result<Dump<Vec<Flow>>, Error> {
        self.list_flows(filter, ATTEMPTS, Vec::new, Vec::push)
    }

    /// Returns a flow, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request; any other [`Error`] if the
    /// reply was lost or malformed.
    pub fn flow(&mut self, key: &Key) -> Result<Option<Flow>, Error> {
        let mut found = None;
        let result = self.request(&Request::Flow(key), "find", key, |payload| {
            found = Some(Flow::decode(payload)?);
            Ok(())
        });
        match result {
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
            // The kernel ignores the ID of the request.
            Ok(()) => Ok(found.filter(|flow| key.id.is_none() || flow.id == key.id)),
        }
    }

    /// Deletes a flow, and returns whether it existed.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request, with
    /// [`is_busy`](Error::is_busy) if a flowtable offloads the flow. Any other [`Error`]
    /// if the reply was lost or malformed.
    pub fn delete(&mut self, key: &Key) -> Result<bool, Error> {
        match self.request(&Request::Delete(key), "delete", key, |_| Ok(())) {
            Err(error) if error.is_not_found() => Ok(false),
            deleted => deleted.map(|()| true),
        }
    }

    /// Deletes flows, 128 per system call.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the kernel rejected some deletions; all other flows are
    ///   deleted. A flow that does not exist is not an error.
    /// - Any other [`Error`]: it is unknown which flows are deleted.
    pub fn delete_all(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<Deleted, Error> {
        self.change_all("delete", keys, |key| *key, |key| Request::Delete(key))
    }

    /// Deletes all flows that match the filter, including flows of other programs.
    ///
    /// The kernel flushes the flows if it can apply the filter. Every kernel flushes all
    /// flows. Linux 6.12 and later also apply family, protocol, IPv4 addresses, TCP and
    /// UDP ports, and mark; a protocol requires a family or an address.
    /// Otherwise the client dumps the flows and deletes each; flows that are created
    /// meanwhile may remain.
    ///
    /// # Errors
    ///
    /// The errors of [`dump`](Self::dump) and [`delete_all`](Self::delete_all).
    pub fn flush(&mut self, filter: &Filter) -> Result<Flushed, Error> {
        if self.is_flushed_by_kernel(filter)? {
            self.request(&Request::Flush(filter), "flush", &"flows", |_| Ok(()))?;
            return Ok(Flushed::ByKernel);
        }
        let mut flushed = Deleted::default();
        for _ in 0..ATTEMPTS {
            let mut keys = Vec::new();
            let dump = self.dump(filter, |flow| keys.push(flow.key()))?;
            let Deleted { deleted, missing } = self.delete_all(keys)?;
            flushed.deleted += deleted;
            flushed.missing += missing;
            // The next dump includes flows that an interrupted dump omitted.
            if matches!(dump, Dump::Complete(())) {
                break;
            }
        }
        Ok(Flushed::Individually(flushed))
    }

    /// Updates a flow. The kernel finds the flow by its tuple and ignores the ID.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request, with
    /// [`is_not_found`](Error::is_not_found) if the flow does not exist, or `EPERM` for a
    /// timeout if [`FIXED_TIMEOUT`](crate::Status::FIXED_TIMEOUT) is set. Any other
    /// [`Error`] if the reply was lost or malformed.
    pub fn update(&mut self, key: &Key, update: Update) -> Result<(), Error> {
        let request = Request::Update(key, update);
        self.request(&request, "update", key, |_| Ok(()))
    }

    /// Applies the same update to several flows, 128 per system call.
    ///
    /// Returns the number of updated flows, without flows that do not exist. The kernel
    /// ignores IDs.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the kernel rejected some updates; all others are applied.
    /// - Any other [`Error`]: it is unknown which flows are updated.
    pub fn update_all(
        &mut self,
        keys: impl IntoIterator<Item = Key>,
        update: Update,
    ) -> Result<usize, Error> {
        let updated = self.change_all(
            "update",
            keys,
            |key| *key,
            |key| Request::Update(key, update),
        )?;
        Ok(updated.deleted)
    }

    /// Creates a flow, which must have a timeout.
    ///
    /// With [`SRC_NAT`](crate::Status::SRC_NAT) or [`DST_NAT`](crate::Status::DST_NAT)
    /// the kernel translates addresses and ports to those of the reply tuple.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request, with
    /// [`is_already_exists`](Error::is_already_exists) if a flow with one of the tuples
    /// exists. Any other [`Error`] if the reply was lost or malformed.
    pub fn create(&mut self, flow: &Flow) -> Result<(), Error> {
        self.request(&Request::Create(flow), CREATE, &flow.key(), |_| Ok(()))
    }

    /// Creates flows, 128 per system call, and returns their number.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the kernel rejected some flows; all others are created.
    /// - Any other [`Error`]: it is unknown which flows are created.
    pub fn create_all(&mut self, flows: impl IntoIterator<Item = Flow>) -> Result<usize, Error> {
        let created = self.change_all(CREATE, flows, Flow::key, |flow| Request::Create(flow))?;
        Ok(created.deleted)
    }

    /// Returns the statistics of each CPU, like `conntrack -S`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request; any other [`Error`] if the
    /// reply was lost or malformed.
    pub fn statistics(&mut self) -> Result<Vec<CpuStatistics>, Error> {
        let dump = self.list(
            &Request::Statistics,
            ATTEMPTS,
            Vec::new,
            |all: &mut Vec<_>, payload| {
                all.push(CpuStatistics::decode(payload)?);
                Ok(())
            },
        )?;
        Ok(dump.into_inner())
    }

    /// Returns the number of entries in the conntrack table and its maximum size.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request; any other [`Error`] if the
    /// reply was lost or malformed.
    pub fn usage(&mut self) -> Result<Usage, Error> {
        let request = Request::Usage;
        self.requester.get(
            words(&request, "list", &"usage"),
            |payload| request.encode(payload),
            |message| Ok(Some(Usage::decode(message.payload)?)),
        )
    }

    /// Returns whether a flush by the kernel deletes exactly the matching flows.
    fn is_flushed_by_kernel(&mut self, filter: &Filter) -> Result<bool, Error> {
        if *filter == Filter::new() {
            return Ok(true);
        }
        if !filter.is_exact_in_kernel() {
            return Ok(false);
        }
        if let Some(is) = self.can_flush_by_tuple {
            return Ok(is);
        }
        let is = match self.request(&Request::ProbeFlush, "flush", &"nothing", |_| Ok(())) {
            Ok(()) => true,
            Err(Error::Kernel { .. }) => false,
            Err(error) => return Err(error),
        };
        self.can_flush_by_tuple = Some(is);
        Ok(is)
    }

    /// Dumps flows, without a filter in the kernel if the kernel rejects the filter.
    fn list_flows<T>(
        &mut self,
        filter: &Filter,
        attempts: usize,
        mut start: impl FnMut() -> T,
        mut each: impl FnMut(&mut T, Flow),
    ) -> Result<Dump<T>, Error> {
        // The kernel lists one family, or both.
        let matches_all = filter.compares_only_family();
        let mut take = |value: &mut T, payload: &[u8]| {
            let flow = Flow::decode(payload)?;
            if matches_all || filter.matches(&flow) {
                each(value, flow);
            }
            Ok(())
        };
        let filtered = self.list(&Request::Flows(filter), attempts, &mut start, &mut take);
        match filtered {
            Err(Error::Kernel { error, .. })
                if matches!(error.errno, Errno::INVAL | Errno::OPNOTSUPP) =>
            {
                let request = Request::FlowsOfFamily(filter.only_family());
                self.list(&request, attempts, start, take)
            }
            flows => flows,
        }
    }

    /// Sends one request per change, 128 per system call. A flow that does not exist counts as
    /// missing, except for creations.
    fn change_all<T>(
        &mut self,
        operation: &'static str,
        changes: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> Key,
        request: impl Fn(&T) -> Request<'_>,
    ) -> Result<Deleted, Error> {
        let (mut missing, mut applied) = (0, Applied::new());
        self.requester.request_each(
            changes,
            |change, payload| {
                let request = request(change);
                request.encode(payload);
                (request.ty(), request.flags())
            },
            |rejected| {
                if rejected.errno == Errno::NOENT && operation != CREATE {
                    missing += 1;
                    return None;
                }
                Some(rejected.map(|change| Change::new(operation, key(&change))))
            },
            &mut applied,
        )?;
        let deleted = applied.into_result()?;
        Ok(Deleted { deleted, missing })
    }

    /// Sends a request, and calls `each` for the payload of every reply.
    pub(crate) fn request(
        &mut self,
        request: &Request<'_>,
        operation: &'static str,
        object: &dyn fmt::Display,
        mut each: impl FnMut(&[u8]) -> Result<(), vipline_netlink::Error>,
    ) -> Result<(), Error> {
        self.requester.request(
            words(request, operation, object).with_flags(request.flags()),
            |payload| request.encode(payload),
            |message| each(message.payload),
        )
    }

    /// Dumps all objects of one kind.
    pub(crate) fn list<T>(
        &mut self,
        request: &Request<'_>,
        attempts: usize,
        start: impl FnMut() -> T,
        mut each: impl FnMut(&mut T, &[u8]) -> Result<(), vipline_netlink::Error>,
    ) -> Result<Dump<T>, Error> {
        self.requester.dump(
            words(request, "list", &"flows"),
            attempts,
            |payload| request.encode(payload),
            start,
            |value, message| each(value, message.payload),
        )
    }
}

vipline_netlink::impl_client!(Client, requester);

/// Returns a request with its words in errors.
fn words<'a>(
    request: &Request<'_>,
    operation: &'static str,
    object: &'a dyn fmt::Display,
) -> vipline_netlink::Request<'a> {
    vipline_netlink::Request::new(request.ty(), operation, object)
}

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
