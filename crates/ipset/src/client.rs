//! Netlink client: dumps sets and sends commands.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fmt;
use std::ops::RangeInclusive;

use vipline_netlink::{Errno, KernelError, Protocol, Requester};

use crate::commands::copies;
use crate::error::{command_error, query_error, rejected};
use crate::uapi::*;
use crate::wire::{self, DumpDecoder, Request};
use crate::{
    Command, CommandAt, Commands, Entry, Error, Name, Reason, RejectedCommand, Set, SetDump,
    SetFamily, SetType, Sets, Strictness,
};

/// Number of attempts to complete a dump while sets change concurrently.
const ATTEMPTS: usize = 10;

/// A client for the sets of one network namespace.
///
/// The client stays in the network namespace in which it was opened.
/// All methods require `CAP_NET_ADMIN`, and block until the kernel replies, at most 10 s
/// for each datagram.
#[derive(Debug)]
pub struct Client {
    requester: Requester<CommandAt>,
    protocol: u8,
}

impl Client {
    /// Opens a client in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// - [`Error::Unsupported`]: the kernel lacks ip_set, or supports neither protocol 6
    ///   nor 7.
    /// - [`Error::Denied`]: `CAP_NET_ADMIN` is missing.
    /// - Any other [`Error`] except [`Error::Rejected`]: the socket cannot be opened, or
    ///   its first request failed.
    pub fn open() -> Result<Self, Error> {
        let mut requester = Requester::open(Protocol::NETFILTER)?;
        let request = Request::protocol();
        let supported = requester.get(
            words(&request, "get the protocol of", &"ip_set"),
            |payload| payload.extend_from_slice(&request.payload),
            |message| Ok(Some(wire::protocols(message.payload)?)),
        );
        let supported = supported.map_err(|error| match error {
            Error::Kernel { error, .. } => Error::unsupported(Some(error.errno)),
            other => other,
        })?;
        let protocol = *supported.end().min(wire::PROTOCOLS.end());
        if !supported.contains(&protocol) || !wire::PROTOCOLS.contains(&protocol) {
            return Err(Error::unsupported(None));
        }
        Ok(Self {
            requester,
            protocol,
        })
    }

    /// Returns the negotiated protocol version, 6 or 7.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Dumps the named sets with their entries. Omits names that do not exist.
    ///
    /// # Errors
    ///
    /// - [`Error::Interrupted`]: sets changed during each of ten attempts.
    /// - Any other [`Error`] except [`Error::Rejected`]: the kernel rejected the request,
    ///   or the reply was lost or malformed.
    pub fn dump(&mut self, names: &[Name]) -> Result<Sets, Error> {
        let mut sets = Sets::default();
        for name in names {
            match self.list(name) {
                Ok(listed) => sets.insert(listed),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sets)
    }

    /// Dumps all sets with their entries.
    ///
    /// # Errors
    ///
    /// - [`Error::Interrupted`]: sets changed during each of ten attempts.
    /// - Any other [`Error`] except [`Error::Rejected`]: the kernel rejected the request,
    ///   or the reply was lost or malformed.
    pub fn dump_all(&mut self) -> Result<Sets, Error> {
        self.read("list", None, false)
    }

    /// Dumps all sets without their entries.
    ///
    /// # Errors
    ///
    /// - [`Error::Interrupted`]: sets changed during each of ten attempts.
    /// - Any other [`Error`] except [`Error::Rejected`]: the kernel rejected the request,
    ///   or the reply was lost or malformed.
    pub fn headers(&mut self) -> Result<Sets, Error> {
        self.read("list headers of", None, true)
    }

    /// Dumps one set with its entries.
    ///
    /// # Errors
    ///
    /// - [`Error::Kernel`] with [`Reason::Missing`]: the set does not exist.
    /// - [`Error::Interrupted`]: sets changed during each of ten attempts.
    /// - Any other [`Error`] except [`Error::Rejected`]: the kernel rejected the request,
    ///   or the reply was lost or malformed.
    pub fn list(&mut self, name: &Name) -> Result<SetDump, Error> {
        let sets = self.read("list", Some(name), false)?;
        let listed = sets.into_iter().next();
        listed.ok_or_else(|| query_error("list", name, Errno::NOENT))
    }

    /// Returns the header of a set: name, type, family and revision only.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with [`Reason::Missing`] if the set does not exist.
    pub fn header(&mut self, name: &Name) -> Result<Set, Error> {
        let mut decoder = DumpDecoder::new();
        let request = Request::header(self.protocol, name);
        self.request(&request, "header of", name, |payload| decoder.push(payload))?;
        let first = decoder.finish().into_iter().next();
        first
            .map(|listed| listed.set)
            .ok_or_else(|| query_error("header of", name, Errno::NOENT))
    }

    /// Returns the revisions of a set type that the kernel supports.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with [`Reason::UnknownType`] if the kernel lacks the type.
    pub fn revisions(
        &mut self,
        set_type: &SetType,
        family: SetFamily,
    ) -> Result<RangeInclusive<u8>, Error> {
        let request = Request::revisions(self.protocol, set_type, family);
        self.requester.get(
            words(&request, "revisions of", set_type),
            |payload| payload.extend_from_slice(&request.payload),
            |message| Ok(Some(wire::revisions(message.payload)?)),
        )
    }

    /// Returns whether a set contains an entry, like `ipset test`.
    ///
    /// A network of full prefix length also matches if a network of the set contains the
    /// address. A shorter network matches only an equal network.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] if the set does not exist or cannot contain such an entry.
    pub fn test(&mut self, entry: &Entry) -> Result<bool, Error> {
        let request = Request::test(self.protocol, entry);
        match self.request(&request, "test", entry, |_| Ok(())) {
            Ok(()) => Ok(true),
            Err(Error::Kernel { error, .. }) => {
                match self.reason(&error, Some(&entry.set), Some(entry), true)? {
                    Reason::Missing if error.errno != Errno::NOENT => Ok(false),
                    reason => {
                        let command = Command::Test(Box::new(entry.clone()));
                        Err(rejected(CommandAt::new(0, command, reason), *error))
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Sends commands to the kernel, with many entries in one message, and stops at the
    /// first rejected command.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the kernel rejected this command. The commands before it
    ///   are applied, those after it are not.
    /// - Any other [`Error`]: it is unknown how many commands are applied.
    pub fn commit(&mut self, commands: &Commands) -> Result<(), Error> {
        self.run(commands.as_slice(), 0)
    }

    /// Sends all commands to the kernel and continues after a rejection.
    /// Returns the rejected commands.
    ///
    /// # Errors
    ///
    /// Any [`Error`] except [`Error::Rejected`], such as [`Error::Denied`]. It is unknown
    /// how many commands are applied.
    pub fn commit_each(&mut self, commands: &Commands) -> Result<Vec<RejectedCommand>, Error> {
        let (all, mut done, mut rejections) = (commands.as_slice(), 0, Vec::new());
        while done < all.len() {
            match self.run(all, done) {
                Ok(()) => break,
                Err(Error::Rejected { rejected, .. }) => {
                    // The kernel stops at the first one.
                    let last = rejected.iter().map(|one| one.request.index).max();
                    done = last.map_or(all.len(), |last| last + 1);
                    rejections.extend(rejected);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rejections)
    }

    /// Sends the commands from an index on, up to the first rejected one.
    fn run(&mut self, all: &[Command], mut done: usize) -> Result<(), Error> {
        while let Some(rest) = all.get(done..).filter(|rest| !rest.is_empty()) {
            done += self.send_first(rest, done)?;
        }
        Ok(())
    }

    /// Sends the first message of the remaining commands, or copies entries.
    ///
    /// Returns the number of commands that were applied; `done` precede them.
    fn send_first(&mut self, rest: &[Command], done: usize) -> Result<usize, Error> {
        let newest = self.newest(rest.first());
        let newest = newest.map_err(|error| command_error(error, done, rest.first()))?;
        let commands = newest.as_ref().map_or(rest, std::slice::from_ref);
        // Line numbers start at 1 in each message: the kernel takes 0 as no line.
        let (request, count) = wire::encode(commands, 1, self.protocol);
        match (request, rest.first()) {
            (Some(request), _) => match self.request(&request, "send", &"commands", |_| Ok(())) {
                Err(Error::Kernel { error, .. }) => {
                    self.check_rejection(*error, rest, done, count)?;
                }
                sent => sent?,
            },
            (None, Some(Command::Copy { from, to })) => {
                self.copy(from, to)
                    .map_err(|error| command_error(error, done, rest.first()))?;
            }
            (None, _) => {}
        }
        Ok(count)
    }

    /// Returns an error for the command that the kernel rejected in a message of
    /// `count` commands.
    ///
    /// With `-exist`, destroying a missing set is no error.
    fn check_rejection(
        &mut self,
        rejection: KernelError,
        rest: &[Command],
        done: usize,
        count: usize,
    ) -> Result<(), Error> {
        let line =
            wire::rejected_line(&rejection.request).and_then(|line| usize::try_from(line).ok());
        let index = line.map_or(0, |line| line.saturating_sub(1));
        let Some(command) = rest.get(index.min(count.saturating_sub(1))) else {
            return Ok(());
        };
        let reason = self.command_reason(&rejection, command)?;
        if reason == Reason::Missing && matches!(command, Command::Destroy(_, Strictness::Exist)) {
            return Ok(());
        }
        let command = CommandAt::new(done + index, command.clone(), reason);
        Err(rejected(command, rejection))
    }

    /// Returns the reason for the rejection of a command.
    fn command_reason(
        &mut self,
        rejection: &KernelError,
        command: &Command,
    ) -> Result<Reason, Error> {
        let removes = !matches!(command, Command::Create(..) | Command::Add(..));
        let entry = match command {
            Command::Add(entry, _) | Command::Delete(entry, _) | Command::Test(entry) => {
                Some(&**entry)
            }
            _ => None,
        };
        match command {
            // The set does not exist, so its header cannot be read.
            Command::Create(set, _) => Ok(Reason::from_errno(
                rejection.errno,
                Some(&set.set_type),
                false,
            )),
            _ => self.reason(rejection, command.set(), entry, removes),
        }
    }

    /// Converts an error number to a reason. Reads the header of the set if the
    /// meaning depends on its type.
    fn reason(
        &mut self,
        rejection: &KernelError,
        set: Option<&Name>,
        entry: Option<&Entry>,
        removes: bool,
    ) -> Result<Reason, Error> {
        let depends = Reason::depends_on_set(rejection.errno);
        let set = set.filter(|_| depends);
        let set = set.and_then(|set| self.header(set).ok());
        let reason = Reason::from_errno(
            rejection.errno,
            set.as_ref().map(|set| &set.set_type),
            removes,
        );
        Ok(set.map_or(reason, |set| reason.in_set(entry, &set)))
    }

    /// Returns a copy of a `create` command with the newest revision if its options
    /// need that revision.
    fn newest(&mut self, command: Option<&Command>) -> Result<Option<Command>, Error> {
        let Some(Command::Create(set, strictness)) = command else {
            return Ok(None);
        };
        if !set.needs_newest_revision() {
            return Ok(None);
        }
        let mut set = set.clone();
        let newest = *self.revisions(&set.set_type, set.family)?.end();
        // The kernel ignores options that its revision lacks.
        if newest < set.required_revision() {
            return Err(query_error("create", set, Errno(IPSET_ERR_FIND_TYPE)));
        }
        set.revision = Some(newest);
        Ok(Some(Command::Create(set, *strictness)))
    }

    /// Adds those entries of one set to another that the other set can hold.
    fn copy(&mut self, from: &Name, to: &Set) -> Result<(), Error> {
        let listed = self.list(from)?;
        let adds: Vec<Command> = copies(listed.entries.into_iter(), to).collect();
        self.commit(&adds.into())
    }

    fn read(
        &mut self,
        operation: &'static str,
        name: Option<&Name>,
        headers: bool,
    ) -> Result<Sets, Error> {
        let request = Request::list(self.protocol, name, headers);
        let object = name.map_or("all sets", Name::as_str);
        let decoder = self.requester.list(
            words(&request, operation, &object),
            ATTEMPTS,
            |payload| payload.extend_from_slice(&request.payload),
            DumpDecoder::new,
            |decoder, message| Ok(decoder.push(message.payload)?),
        )?;
        Ok(decoder.finish())
    }

    fn request(
        &mut self,
        request: &Request,
        operation: &'static str,
        object: &dyn fmt::Display,
        mut each: impl FnMut(&[u8]) -> Result<(), vipline_netlink::DecodeError>,
    ) -> Result<(), Error> {
        self.requester.request(
            words(request, operation, object),
            |payload| payload.extend_from_slice(&request.payload),
            |message| Ok(each(message.payload)?),
        )
    }
}

vipline_netlink::impl_client!(Client, requester);

/// Returns a request with its words in errors.
fn words<'a>(
    request: &Request,
    operation: &'static str,
    object: &'a dyn fmt::Display,
) -> vipline_netlink::Request<'a> {
    vipline_netlink::Request::new(request.ty, operation, object).with_flags(request.flags)
}
