//! A client of IPVS in the kernel.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use vipline_netlink::message::{ACK, Message, REQUEST, begin, end};
use vipline_netlink::{Counters, DecodeError, Dump, Errno, Protocol, Socket};

use crate::destination::Destination;
use crate::error::RejectedCommand;
use crate::stats::Stats;
use crate::sync_daemon::{Role, SyncDaemon};
use crate::wire::{self, Answer, Info, Request, Timeouts};
use crate::{Command, Commands, Error, Family, ServiceKey, Table, VirtualServer};

/// How many commands are sent at once; the answers to all have room.
const AT_ONCE: usize = 128;
/// How often a dump is tried.
const ATTEMPTS: usize = 3;

/// A client of IPVS in one network namespace.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    /// The number of the family.
    family: u16,
    payload: Vec<u8>,
}

impl Client {
    /// Opens a client in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] when the kernel has no IPVS, or its module is not
    /// loaded.
    pub fn open() -> Result<Self, Error> {
        let mut socket = Socket::open(Protocol::Generic)?;
        let family = socket.resolve_family(wire::FAMILY)?;
        Ok(Self {
            socket,
            family: family.ok_or(Error::Unsupported { module: "ip_vs" })?,
            payload: Vec::new(),
        })
    }

    /// Reads all virtual servers and their real servers.
    ///
    /// Real servers are asked for service by service: when another program
    /// changes the table meanwhile, parts may be older than others.
    /// A table of hundreds of virtual servers comes in several parts, between
    /// which the kernel counts the servers of all network namespaces: when
    /// others change there, too, some may be missing.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn dump(&mut self) -> Result<Table, Error> {
        let mut table = Table::default();
        for (server, _) in self.servers()? {
            table.insert(server);
            for real in self.destinations(&server.service)? {
                table.insert_destination(&server.service, real.server);
            }
        }
        Ok(table)
    }

    /// Does commands, each on its own, whatever becomes of the others.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] names every command the kernel refused; all others
    /// are done.
    /// After any other error it is not known which of them are.
    pub fn commit(&mut self, commands: &Commands) -> Result<(), Error> {
        let mut rejected = Vec::new();
        for commands in commands.as_slice().chunks(AT_ONCE) {
            self.send(commands, &mut rejected)?;
        }
        match rejected.is_empty() {
            true => Ok(()),
            false => Err(Error::Rejected { rejected }),
        }
    }

    /// Returns all virtual servers, and what passed through each.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn servers(&mut self) -> Result<Vec<(VirtualServer, Stats)>, Error> {
        self.list(
            &Request::Servers,
            "list",
            &"servers",
            |answer| match answer {
                Answer::Server(server, stats) => Some((server, stats)),
                _ => None,
            },
        )
    }

    /// Returns the virtual server of a service, and what passed through it.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when there is none.
    pub fn server(&mut self, service: &ServiceKey) -> Result<(VirtualServer, Stats), Error> {
        let mut found = None;
        self.ask(&Request::Server(service), "list", service, |answer| {
            if let Answer::Server(server, stats) = answer {
                found = Some((server, stats));
            }
        })?;
        found.ok_or(Error::Timeout)
    }

    /// Returns the real servers of a service; one that is not there has none.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn destinations(&mut self, service: &ServiceKey) -> Result<Vec<Destination>, Error> {
        let what = "list real servers of";
        self.list(
            &Request::Destinations(service),
            what,
            service,
            |answer| match answer {
                Answer::Destination(real) => Some(real),
                _ => None,
            },
        )
    }

    /// Begins all statistics at zero, or those of a service.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when there is no such service.
    pub fn zero(&mut self, service: Option<&ServiceKey>) -> Result<(), Error> {
        let request = Request::Zero(service);
        match service {
            None => self.ask(&request, "zero", &"statistics", |_| {}),
            Some(service) => self.ask(&request, "zero statistics of", service, |_| {}),
        }
    }

    /// Removes all virtual servers, also those of other programs.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.ask(&Request::Flush, "flush", &"servers", |_| {})
    }

    /// Returns the timeouts.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn timeouts(&mut self) -> Result<Timeouts, Error> {
        let mut found = None;
        self.ask(&Request::Timeouts, "list", &"timeouts", |answer| {
            if let Answer::Timeouts(timeouts) = answer {
                found = Some(timeouts);
            }
        })?;
        found.ok_or(Error::Timeout)
    }

    /// Sets the timeouts that are not zero.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] when the kernel finds one too long.
    pub fn set_timeouts(&mut self, timeouts: &Timeouts) -> Result<(), Error> {
        self.ask(&Request::SetTimeouts(timeouts), "set", &"timeouts", |_| {})
    }

    /// Returns what the kernel says of its IPVS.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn info(&mut self) -> Result<Info, Error> {
        let mut found = None;
        self.ask(&Request::Info, "list", &"version", |answer| {
            if let Answer::Info(info) = answer {
                found = Some(info);
            }
        })?;
        found.ok_or(Error::Timeout)
    }

    /// Returns the sync daemons that run.
    ///
    /// # Errors
    ///
    /// Those of talking to the kernel.
    pub fn sync_daemons(&mut self) -> Result<Vec<SyncDaemon>, Error> {
        self.list(
            &Request::Daemons,
            "list",
            &"daemons",
            |answer| match answer {
                Answer::SyncDaemon(daemon) => Some(daemon),
                _ => None,
            },
        )
    }

    /// Starts a sync daemon.
    ///
    /// # Errors
    ///
    /// [`Error::is_already_exists`] when one of its role runs.
    pub fn start_sync_daemon(&mut self, daemon: &SyncDaemon) -> Result<(), Error> {
        let device = &daemon.interface;
        self.ask(
            &Request::StartDaemon(daemon),
            "start daemon on",
            device,
            |_| {},
        )
    }

    /// Stops the sync daemon of a role.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when none runs.
    pub fn stop_sync_daemon(&mut self, role: Role) -> Result<(), Error> {
        let name = match role {
            Role::Master => "master",
            Role::Backup => "backup",
        };
        self.ask(&Request::StopDaemon(role), "stop daemon", &name, |_| {})
    }

    /// Returns what the socket has done so far.
    pub fn counters(&self) -> Counters {
        self.socket.counters()
    }

    /// Sends commands at once, and gathers those that are refused.
    fn send(
        &mut self,
        commands: &[Command],
        rejected: &mut Vec<RejectedCommand>,
    ) -> Result<(), Error> {
        let first = self.socket.sequence();
        self.payload.clear();
        let mut seq = first;
        for (place, command) in commands.iter().enumerate() {
            let last = place + 1 == commands.len();
            let flags = if last { REQUEST | ACK } else { REQUEST };
            let start = begin(&mut self.payload, self.family, flags, seq);
            command.encode(&mut self.payload);
            end(&mut self.payload, start);
            seq = seq.wrapping_add(1);
        }
        for refusal in self.socket.request_many(&self.payload)? {
            if refusal.errno == Errno::PERM {
                return Err(Error::Denied);
            }
            let place = usize::try_from(refusal.seq.wrapping_sub(first)).unwrap_or(usize::MAX);
            if let Some(command) = commands.get(place) {
                rejected.push(RejectedCommand::new(*command, refusal.errno));
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
        mut each: impl FnMut(Answer),
    ) -> Result<(), Error> {
        self.payload.clear();
        request.encode(&mut self.payload);
        self.socket
            .request(self.family, 0, &self.payload, |message| {
                each(answer(request, message)?);
                Ok(())
            })
            .map_err(|error| Error::asking(operation, object, error))
    }

    /// Asks for all objects of a kind.
    fn list<T>(
        &mut self,
        request: &Request<'_>,
        operation: &'static str,
        object: &dyn fmt::Display,
        pick: impl Fn(Answer) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        self.payload.clear();
        request.encode(&mut self.payload);
        let dump = self
            .socket
            .dump(
                self.family,
                &self.payload,
                ATTEMPTS,
                Vec::new,
                |all, message| {
                    all.extend(pick(answer(request, message)?));
                    Ok::<(), vipline_netlink::Error>(())
                },
            )
            .map_err(|error| Error::asking(operation, object, error))?;
        // Kernels of today never say so of IPVS.
        let (Dump::Complete(all) | Dump::Interrupted(all)) = dump;
        Ok(all)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads the answer to a request.
fn answer(request: &Request<'_>, message: Message<'_>) -> Result<Answer, DecodeError> {
    let family = match request {
        Request::Destinations(service) => service.family(),
        _ => Family::V4,
    };
    Answer::decode(family, message.payload)
}
