//! A client of the IPVS generic netlink family.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::{fmt, fs, io};

use vipline_netlink::message::Message;
use vipline_netlink::{Applied, DecodeError, Errno, Protocol, Requester};

use crate::destination::Destination;
use crate::stats::Stats;
use crate::sync_daemon::{Role, SyncDaemon};
use crate::wire::{self, Info, Reply, Request, Timeouts};
use crate::{Command, Commands, Connection, Error, Family, ServiceKey, Table, VirtualServer};

/// The connection table of the calling thread's network namespace.
const CONNECTIONS: &str = "/proc/thread-self/net/ip_vs_conn";

/// Number of attempts to complete a dump.
const ATTEMPTS: usize = 3;

/// A client for IPVS in one network namespace.
///
/// The client stays in the network namespace in which it was opened.
/// All methods require `CAP_NET_ADMIN`, except [`open`](Self::open), and block until the
/// kernel replies, at most 10 s for each datagram.
#[derive(Debug)]
pub struct Client {
    requester: Requester<Command>,
    /// The generic netlink family ID.
    family: u16,
}

impl Client {
    /// Opens a client in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// - [`Error::Unsupported`]: the kernel lacks IPVS, or the module is not loaded.
    /// - Any other [`Error`] except [`Error::Rejected`]: the socket cannot be opened, or
    ///   the family cannot be resolved.
    pub fn open() -> Result<Self, Error> {
        let mut requester = Requester::open(Protocol::GENERIC)?;
        let family = requester
            .socket_mut()
            .resolve_family(wire::IPVS_GENL_NAME)
            .map_err(|error| Error::from_request("communicate with", "IPVS", error))?;
        Ok(Self {
            requester,
            family: family.ok_or_else(|| Error::unsupported(Some(Errno::NOENT)))?,
        })
    }

    /// Dumps all virtual servers and their real servers.
    ///
    /// The client dumps the real servers of each service separately.
    /// If another process changes the table meanwhile, parts of the result can be
    /// older than others.
    /// The kernel returns a table of hundreds of virtual servers in several parts. The
    /// position between two parts counts the servers of all network namespaces.
    /// If servers change in any namespace meanwhile, some can be missing from the
    /// result.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] or [`Error::Denied`] if the kernel rejected the request; any
    /// other [`Error`] except [`Error::Rejected`] if the reply was lost or malformed.
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

    /// Sends all commands, 128 per system call, and continues after a rejection. The
    /// kernel applies each command separately.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the kernel rejected the contained commands; all others are
    ///   applied.
    /// - Any other [`Error`]: it is unknown which commands are applied.
    pub fn commit(&mut self, commands: &Commands) -> Result<(), Error> {
        let (family, mut applied) = (self.family, Applied::new());
        self.requester.request_each(
            commands.as_slice(),
            |command, payload| {
                command.encode(payload);
                (family, 0)
            },
            |one| Some(one.map(|command| *command)),
            &mut applied,
        )?;
        applied.into_result().map(drop)
    }

    /// Returns all virtual servers with their statistics.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] or [`Error::Denied`] if the kernel rejected the request; any
    /// other [`Error`] except [`Error::Rejected`] if the reply was lost or malformed.
    pub fn servers(&mut self) -> Result<Vec<(VirtualServer, Stats)>, Error> {
        self.list(&Request::Servers, "list", &"servers", |reply| match reply {
            Reply::Server(server, stats) => Some((server, stats)),
            _ => None,
        })
    }

    /// Returns the virtual server of a service with its statistics.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with [`is_not_found`](Error::is_not_found) if the service does
    /// not exist.
    pub fn server(&mut self, service: &ServiceKey) -> Result<(VirtualServer, Stats), Error> {
        self.get(
            &Request::Server(service),
            "list",
            service,
            |reply| match reply {
                Reply::Server(server, stats) => Some((server, stats)),
                _ => None,
            },
        )
    }

    /// Returns the real servers of a service. The list is empty if the service does
    /// not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] or [`Error::Denied`] if the kernel rejected the request; any
    /// other [`Error`] except [`Error::Rejected`] if the reply was lost or malformed.
    pub fn destinations(&mut self, service: &ServiceKey) -> Result<Vec<Destination>, Error> {
        let what = "list real servers of";
        self.list(
            &Request::Destinations(service),
            what,
            service,
            |reply| match reply {
                Reply::Destination(real) => Some(real),
                _ => None,
            },
        )
    }

    /// Resets the statistics of a service, or of all services, like `ipvsadm -Z`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with [`is_not_found`](Error::is_not_found) if the service does
    /// not exist.
    pub fn zero(&mut self, service: Option<&ServiceKey>) -> Result<(), Error> {
        let request = Request::Zero(service);
        match service {
            None => self.request(&request, "zero", &"statistics"),
            Some(service) => self.request(&request, "zero statistics of", service),
        }
    }

    /// Removes all virtual servers, including those of other programs, like `ipvsadm -C`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] or [`Error::Denied`] if the kernel rejected the request; any
    /// other [`Error`] except [`Error::Rejected`] if the reply was lost or malformed.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.request(&Request::Flush, "flush", &"servers")
    }

    /// Returns the connection timeouts.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] or [`Error::Denied`] if the kernel rejected the request; any
    /// other [`Error`] except [`Error::Rejected`] if the reply was lost or malformed.
    pub fn timeouts(&mut self) -> Result<Timeouts, Error> {
        self.get(
            &Request::Timeouts,
            "list",
            &"timeouts",
            |reply| match reply {
                Reply::Timeouts(timeouts) => Some(timeouts),
                _ => None,
            },
        )
    }

    /// Sets the timeouts that are not zero, like `ipvsadm --set`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EINVAL` if a timeout is too long for the kernel.
    pub fn set_timeouts(&mut self, timeouts: &Timeouts) -> Result<(), Error> {
        self.request(&Request::SetTimeouts(timeouts), "set", &"timeouts")
    }

    /// Returns the version and the connection table size of IPVS.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] or [`Error::Denied`] if the kernel rejected the request; any
    /// other [`Error`] except [`Error::Rejected`] if the reply was lost or malformed.
    pub fn info(&mut self) -> Result<Info, Error> {
        self.get(&Request::Info, "list", &"version", |reply| match reply {
            Reply::Info(info) => Some(info),
            _ => None,
        })
    }

    /// Returns the running sync daemons.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] or [`Error::Denied`] if the kernel rejected the request; any
    /// other [`Error`] except [`Error::Rejected`] if the reply was lost or malformed.
    pub fn sync_daemons(&mut self) -> Result<Vec<SyncDaemon>, Error> {
        self.list(&Request::Daemons, "list", &"daemons", |reply| match reply {
            Reply::SyncDaemon(daemon) => Some(daemon),
            _ => None,
        })
    }

    /// Starts a sync daemon.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with [`is_already_exists`](Error::is_already_exists) if a daemon
    /// with this role is running.
    pub fn start_sync_daemon(&mut self, daemon: &SyncDaemon) -> Result<(), Error> {
        let device = &daemon.interface;
        self.request(&Request::StartDaemon(daemon), "start daemon on", device)
    }

    /// Stops the sync daemon with a role.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with [`is_not_found`](Error::is_not_found) if no daemon with
    /// this role is running.
    pub fn stop_sync_daemon(&mut self, role: Role) -> Result<(), Error> {
        let name = match role {
            Role::Master => "master",
            Role::Backup => "backup",
        };
        self.request(&Request::StopDaemon(role), "stop daemon", &name)
    }

    /// Returns the connection table, like `ipvsadm -Lnc`.
    ///
    /// Unlike the other methods, reads the table of the network namespace of the calling
    /// thread, from `/proc/thread-self/net/ip_vs_conn`. Entries that change meanwhile can
    /// be missing or occur twice.
    ///
    /// # Errors
    ///
    /// - [`Error::Unsupported`]: the kernel lacks the table.
    /// - [`Error::Netlink`]: the table could not be read, or a line could not be parsed. The
    ///   source of the contained error is a [`ParseError`](crate::ParseError) then.
    pub fn connections(&self) -> Result<Vec<Connection>, Error> {
        let failed = |source| {
            Error::Netlink(vipline_netlink::Error::Io {
                operation: "read the connection table",
                source,
            })
        };
        let text = fs::read_to_string(CONNECTIONS).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::unsupported(Some(Errno::NOENT)),
            _ => failed(error),
        })?;
        Connection::parse_table(&text)
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    /// Sends a request that changes something.
    fn request(
        &mut self,
        request: &Request<'_>,
        operation: &'static str,
        object: &dyn fmt::Display,
    ) -> Result<(), Error> {
        self.requester.request(
            vipline_netlink::Request::new(self.family, operation, object),
            |payload| request.encode(payload),
            |_| Ok(()),
        )
    }

    /// Sends a request whose reply is the value that `pick` selects.
    fn get<T>(
        &mut self,
        request: &Request<'_>,
        operation: &'static str,
        object: &dyn fmt::Display,
        pick: impl Fn(Reply) -> Option<T>,
    ) -> Result<T, Error> {
        self.requester.get(
            vipline_netlink::Request::new(self.family, operation, object),
            |payload| request.encode(payload),
            |message| Ok(pick(reply(request, message)?)),
        )
    }

    /// Dumps all objects that `pick` selects.
    fn list<T>(
        &mut self,
        request: &Request<'_>,
        operation: &'static str,
        object: &dyn fmt::Display,
        pick: impl Fn(Reply) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let dump = self.requester.dump(
            vipline_netlink::Request::new(self.family, operation, object),
            ATTEMPTS,
            |payload| request.encode(payload),
            Vec::new,
            |all, message| {
                all.extend(pick(reply(request, message)?));
                Ok(())
            },
        )?;
        // Current kernels never set `NLM_F_DUMP_INTR` in dumps of IPVS.
        Ok(dump.into_inner())
    }
}

vipline_netlink::impl_client!(Client, requester);

/// Decodes the reply to a request.
fn reply(request: &Request<'_>, message: Message<'_>) -> Result<Reply, DecodeError> {
    let family = match request {
        Request::Destinations(service) => service.family(),
        _ => Family::V4,
    };
    Reply::decode(family, message.payload)
}
