//! A client of ctnetlink.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use vipline_netlink::message::{ACK, REQUEST, begin, end};
use vipline_netlink::{Counters, Dump, Errno, Protocol, Socket};

use crate::error::Refused;
use crate::wire::Request;
use crate::{Change, CpuStatistics, Error, Expectation, Filter, Flow, Key, Usage};

/// How many changes are sent at once; the answers to all have room.
const AT_ONCE: usize = 128;
/// How often a dump into memory is tried.
const ATTEMPTS: usize = 3;

/// What became of flows that were to be deleted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Deleted {
    /// How many are deleted.
    pub deleted: usize,
    /// How many were not there, or others of the same tuples in their place.
    pub missing: usize,
}

/// How flows were flushed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flushed {
    /// One by one, as the kernel cannot tell them apart itself.
    OneByOne(Deleted),
    /// By the kernel, which does not tell how many they were.
    Whole,
}

/// A client of connection tracking in one network namespace.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    payload: Vec<u8>,
    /// Whether the kernel deletes by tuples, once that is known.
    is_flushing_by_tuple: Option<bool>,
}

impl Client {
    /// Opens a client in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] when the kernel has no ctnetlink, or its module
    /// is not loaded; [`Error::Denied`] without `CAP_NET_ADMIN`.
    pub fn open() -> Result<Self, Error> {
        let mut client = Self {
            socket: Socket::open(Protocol::Netfilter)?,
            payload: Vec::new(),
            is_flushing_by_tuple: None,
        };
        match client.usage() {
            // This is how nfnetlink says that it does not know a part of it.
            Err(Error::Kernel { errno, .. }) if errno == Errno::INVAL => Err(Error::Unsupported {
                module: "nf_conntrack_netlink",
            }),
            // Later this is about a flow, such as one whose timeout is fixed.
            Err(error) if error.errno() == Some(Errno::PERM) => Err(Error::Denied),
            Err(error) => Err(error),
            Ok(_) => Ok(client),
        }
    }

    /// Gives all flows that are meant to `each`, one after the other.
    ///
    /// No more than a datagram of them is held in memory.
    /// A flow that comes or goes meanwhile may be told or not; when the kernel
    /// rebuilds its table meanwhile, some may be told twice or not at all, and
    /// kernels of today do not say so.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn dump(&mut self, filter: &Filter, mut each: impl FnMut(Flow)) -> Result<Dump<()>, Error> {
        self.list_flows(filter, 1, || (), |(), flow| each(flow))
    }

    /// Returns all flows that are meant.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn flows(&mut self, filter: &Filter) -> Result<Dump<Vec<Flow>>, Error> {
        self.list_flows(filter, ATTEMPTS, Vec::new, Vec::push)
    }

    /// Returns a flow, if it is there.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn flow(&mut self, key: &Key) -> Result<Option<Flow>, Error> {
        let mut found = None;
        let asked = self.ask(&Request::Flow(key), "find", key, |payload| {
            found = Some(Flow::decode(payload)?);
            Ok(())
        });
        match asked {
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
            // A kernel does not heed the id.
            Ok(()) => Ok(found.filter(|flow| key.id.is_none() || flow.id == key.id)),
        }
    }

    /// Deletes a flow; tells whether it was there.
    ///
    /// # Errors
    ///
    /// [`Error::is_busy`] when a flow table carries it, and those of talking to
    /// the kernel.
    pub fn delete(&mut self, key: &Key) -> Result<bool, Error> {
        match self.ask(&Request::Delete(key), "delete", key, |_| Ok(())) {
            Err(error) if error.is_not_found() => Ok(false),
            deleted => deleted.map(|()| true),
        }
    }

    /// Deletes flows, many by one system call, whatever becomes of the others.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] counts those that the kernel refused, and names the
    /// first few; all others are gone.
    /// After any other error it is not known which of them are.
    pub fn delete_all(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<Deleted, Error> {
        let changes = keys.into_iter();
        let outcome = self.change_all("delete", changes, |key| *key, |key| Request::Delete(key))?;
        outcome.into_deleted()
    }

    /// Deletes all flows that are meant, also those of others.
    ///
    /// The kernel does it where it can tell them apart: from Linux 6.11 on by
    /// family, protocol, addresses of IPv4, ports of TCP and UDP, and marks.
    /// Else they are dumped and deleted one by one; a flow that comes meanwhile
    /// may stay.
    ///
    /// # Errors
    ///
    /// Those of [`dump`](Self::dump) and [`delete_all`](Self::delete_all).
    pub fn flush(&mut self, filter: &Filter) -> Result<Flushed, Error> {
        if self.is_flushed_by_kernel(filter)? {
            self.ask(&Request::Flush(filter), "flush", &"flows", |_| Ok(()))?;
            return Ok(Flushed::Whole);
        }
        let mut flushed = Deleted::default();
        for _ in 0..ATTEMPTS {
            let mut keys = Vec::new();
            let dump = self.dump(filter, |flow| keys.push(flow.key()))?;
            let Deleted { deleted, missing } = self.delete_all(keys)?;
            flushed.deleted += deleted;
            flushed.missing += missing;
            // What an interrupted dump lacks is in the next one.
            if matches!(dump, Dump::Complete(())) {
                break;
            }
        }
        Ok(Flushed::OneByOne(flushed))
    }

    /// Changes a flow, whatever its id: the kernel goes by its tuple.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when it is not there; that it is not permitted, for a
    /// timeout where [`FIXED_TIMEOUT`](crate::Status::FIXED_TIMEOUT) is set.
    pub fn update(&mut self, key: &Key, change: Change) -> Result<(), Error> {
        let request = Request::Update(key, change);
        self.ask(&request, "update", key, |_| Ok(()))
    }

    /// Changes flows alike, many by one system call, whatever their ids; returns
    /// how many were there.
    ///
    /// # Errors
    ///
    /// Those of [`delete_all`](Self::delete_all).
    pub fn update_all(
        &mut self,
        keys: impl IntoIterator<Item = Key>,
        change: Change,
    ) -> Result<usize, Error> {
        let keys = keys.into_iter();
        let outcome = self.change_all(
            "update",
            keys,
            |key| *key,
            |key| Request::Update(key, change),
        )?;
        outcome.into_deleted().map(|updated| updated.deleted)
    }

    /// Makes a flow, which needs a timeout.
    ///
    /// Addresses are translated if the status says so, to those of the reply.
    ///
    /// # Errors
    ///
    /// [`Error::is_already_exists`] when there is one of the same tuples.
    pub fn create(&mut self, flow: &Flow) -> Result<(), Error> {
        self.ask(&Request::Create(flow), "create", &flow.key(), |_| Ok(()))
    }

    /// Makes flows, many by one system call, whatever becomes of the others.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] counts those that the kernel refused, and names the
    /// first few; all others are made.
    pub fn create_all(&mut self, flows: impl IntoIterator<Item = Flow>) -> Result<usize, Error> {
        let flows = flows.into_iter();
        let outcome = self.change_all("create", flows, Flow::key, |flow| Request::Create(flow))?;
        outcome.into_deleted().map(|created| created.deleted)
    }

    /// Returns what each processor counted.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn statistics(&mut self) -> Result<Vec<CpuStatistics>, Error> {
        let (Dump::Complete(all) | Dump::Interrupted(all)) = self.list(
            &Request::Statistics,
            ATTEMPTS,
            Vec::new,
            |all: &mut Vec<_>, payload| {
                all.push(CpuStatistics::decode(payload)?);
                Ok(())
            },
        )?;
        Ok(all)
    }

    /// Returns how full the table is.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn usage(&mut self) -> Result<Usage, Error> {
        let mut found = None;
        self.ask(&Request::Usage, "list", &"usage", |payload| {
            found = Some(Usage::decode(payload)?);
            Ok(())
        })?;
        found.ok_or(Error::Timeout)
    }

    /// Returns all flows that helpers wait for.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn expectations(&mut self) -> Result<Dump<Vec<Expectation>>, Error> {
        self.list(
            &Request::Expectations,
            ATTEMPTS,
            Vec::new,
            |all: &mut Vec<_>, payload| {
                all.push(Expectation::decode(payload)?);
                Ok(())
            },
        )
    }

    /// Returns what the socket has done so far.
    pub fn counters(&self) -> Counters {
        self.socket.counters()
    }

    /// Returns the port by which the kernel tells this client from others.
    pub fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    /// Tells whether the kernel deletes the very flows that are meant.
    fn is_flushed_by_kernel(&mut self, filter: &Filter) -> Result<bool, Error> {
        if *filter == Filter::new() {
            return Ok(true);
        }
        if !filter.is_exact_in_kernel() {
            return Ok(false);
        }
        if let Some(is) = self.is_flushing_by_tuple {
            return Ok(is);
        }
        let is = match self.ask(&Request::Probe, "flush", &"nothing", |_| Ok(())) {
            Ok(()) => true,
            Err(Error::Kernel { .. }) => false,
            Err(error) => return Err(error),
        };
        self.is_flushing_by_tuple = Some(is);
        Ok(is)
    }

    /// Asks for flows, and again without a filter that the kernel refuses.
    fn list_flows<T>(
        &mut self,
        filter: &Filter,
        attempts: usize,
        mut start: impl FnMut() -> T,
        mut each: impl FnMut(&mut T, Flow),
    ) -> Result<Dump<T>, Error> {
        let mut take = |value: &mut T, payload: &[u8]| {
            let flow = Flow::decode(payload)?;
            if filter.matches(&flow) {
                each(value, flow);
            }
            Ok(())
        };
        let filtered = self.list(&Request::Flows(filter), attempts, &mut start, &mut take);
        match filtered {
            Err(Error::Kernel {
                errno: Errno::INVAL | Errno::OPNOTSUPP,
                ..
            }) => {
                let request = Request::FlowsOf(filter.only_family());
                self.list(&request, attempts, start, take)
            }
            flows => flows,
        }
    }

    /// Sends changes at once, as many as there is room for, until all are sent.
    fn change_all<T>(
        &mut self,
        operation: &'static str,
        changes: impl Iterator<Item = T>,
        key: impl Fn(&T) -> Key,
        request: impl Fn(&T) -> Request<'_>,
    ) -> Result<Outcome, Error> {
        let mut changes = changes.peekable();
        let mut outcome = Outcome::new(operation);
        let mut at_once = Vec::with_capacity(AT_ONCE);
        while let Some(change) = changes.next() {
            at_once.push(change);
            if at_once.len() < AT_ONCE && changes.peek().is_some() {
                continue;
            }
            self.send(&at_once, &key, &request, &mut outcome)?;
            at_once.clear();
        }
        Ok(outcome)
    }

    /// Sends changes by one system call, and notes what became of them.
    fn send<T>(
        &mut self,
        changes: &[T],
        key: &impl Fn(&T) -> Key,
        request: &impl Fn(&T) -> Request<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let first = self.socket.sequence();
        self.payload.clear();
        let mut seq = first;
        for (place, change) in changes.iter().enumerate() {
            let last = if place + 1 == changes.len() { ACK } else { 0 };
            let request = request(change);
            let flags = REQUEST | request.flags() | last;
            let start = begin(&mut self.payload, request.ty(), flags, seq);
            request.encode(&mut self.payload);
            end(&mut self.payload, start);
            seq = seq.wrapping_add(1);
        }
        let refusals = self.socket.request_many(&self.payload)?;
        outcome.done += changes.len() - refusals.len().min(changes.len());
        for refusal in refusals {
            let place = usize::try_from(refusal.seq.wrapping_sub(first)).unwrap_or(usize::MAX);
            if let Some(change) = changes.get(place) {
                outcome.refuse(refusal.errno, || key(change));
            }
        }
        Ok(())
    }

    /// Makes a request, and hands over what the kernel says.
    fn ask(
        &mut self,
        request: &Request<'_>,
        operation: &'static str,
        object: &dyn fmt::Display,
        mut each: impl FnMut(&[u8]) -> Result<(), vipline_netlink::Error>,
    ) -> Result<(), Error> {
        self.payload.clear();
        request.encode(&mut self.payload);
        self.socket
            .request(request.ty(), request.flags(), &self.payload, |message| {
                each(message.payload)
            })
            .map_err(|error| Error::asking(operation, object, error))
    }

    /// Asks for all objects of a kind.
    fn list<T>(
        &mut self,
        request: &Request<'_>,
        attempts: usize,
        start: impl FnMut() -> T,
        mut each: impl FnMut(&mut T, &[u8]) -> Result<(), vipline_netlink::Error>,
    ) -> Result<Dump<T>, Error> {
        self.payload.clear();
        request.encode(&mut self.payload);
        self.socket
            .dump(
                request.ty(),
                &self.payload,
                attempts,
                start,
                |value, message| each(value, message.payload),
            )
            .map_err(|error| Error::asking("list", "flows", error))
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What became of many changes.
#[derive(Debug)]
struct Outcome {
    operation: &'static str,
    done: usize,
    missing: usize,
    refused: usize,
    first: Vec<Refused>,
}

impl Outcome {
    fn new(operation: &'static str) -> Self {
        Self {
            operation,
            done: 0,
            missing: 0,
            refused: 0,
            first: Vec::new(),
        }
    }

    /// Notes a refusal; that a flow is missing is none, unless it is to be made.
    fn refuse(&mut self, errno: Errno, key: impl FnOnce() -> Key) {
        if errno == Errno::NOENT && self.operation != "create" {
            self.missing += 1;
            return;
        }
        self.refused += 1;
        if self.first.len() < Error::KEPT {
            self.first.push(Refused::new(key(), errno));
        }
    }

    fn into_deleted(self) -> Result<Deleted, Error> {
        match self.refused {
            0 => Ok(Deleted {
                deleted: self.done,
                missing: self.missing,
            }),
            count => Err(Error::Refused {
                operation: self.operation,
                count,
                first: self.first,
                done: self.done,
            }),
        }
    }
}
