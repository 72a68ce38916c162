//! Commands, and the order in which edits become commands.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, nest};
use vipline_netlink::generic::{put_header, split};
use vipline_reconcile::Edit;

use crate::uapi::*;
use crate::{Object, RealServer, ServiceKey, VirtualServer};

/// A change that is sent as one message.
///
/// `Display` prints a line of `ipvsadm` arguments, without a newline.
///
/// Exhaustive: virtual and real servers are added, edited and removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// `-A`: adds a virtual server.
    Add(VirtualServer),
    /// `-E`: changes a virtual server, which keeps its real servers.
    Edit(VirtualServer),
    /// `-D`: removes a virtual server with its real servers.
    Remove(ServiceKey),
    /// `-a`: adds a real server.
    AddDestination(ServiceKey, RealServer),
    /// `-e`: changes a real server, which keeps its connections.
    EditDestination(ServiceKey, RealServer),
    /// `-d`: removes a real server.
    RemoveDestination(ServiceKey, SocketAddr),
}

impl Command {
    /// Appends the payload of the netlink message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, self.number(), IPVS_GENL_VERSION);
        match self {
            Self::Add(server) | Self::Edit(server) => {
                nest(out, IPVS_CMD_ATTR_SERVICE, |out| server.encode(out));
            }
            Self::Remove(service) => nest(out, IPVS_CMD_ATTR_SERVICE, |out| service.encode(out)),
            Self::AddDestination(service, real) | Self::EditDestination(service, real) => {
                nest(out, IPVS_CMD_ATTR_SERVICE, |out| service.encode(out));
                nest(out, IPVS_CMD_ATTR_DEST, |out| real.encode(out));
            }
            Self::RemoveDestination(service, endpoint) => {
                nest(out, IPVS_CMD_ATTR_SERVICE, |out| service.encode(out));
                nest(out, IPVS_CMD_ATTR_DEST, |out| {
                    RealServer::encode_endpoint(*endpoint, out);
                });
            }
        }
    }

    /// Decodes the payload of a netlink message with a command.
    ///
    /// # Errors
    ///
    /// The message has another command, or an attribute is missing or malformed.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let (number, attrs) = split(payload)?;
        let (mut service, mut real) = (None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                IPVS_CMD_ATTR_SERVICE => service = Some(attr),
                IPVS_CMD_ATTR_DEST => real = Some(attr),
                _ => {}
            }
        }
        let missing = || DecodeError::new("command", u16::from(number), payload.len());
        let server: Attr<'_> = service.ok_or_else(missing)?;
        if matches!(number, IPVS_CMD_NEW_SERVICE | IPVS_CMD_SET_SERVICE) {
            let (server, _) = VirtualServer::decode(server.attrs())?;
            return Ok(match number {
                IPVS_CMD_NEW_SERVICE => Self::Add(server),
                _ => Self::Edit(server),
            });
        }
        let service = ServiceKey::decode(server.attrs())?;
        if number == IPVS_CMD_DEL_SERVICE {
            return Ok(Self::Remove(service));
        }
        let attrs = real.ok_or_else(missing)?.attrs();
        let real = RealServer::decode(service.family(), attrs)?.server;
        match number {
            IPVS_CMD_NEW_DEST => Ok(Self::AddDestination(service, real)),
            IPVS_CMD_SET_DEST => Ok(Self::EditDestination(service, real)),
            IPVS_CMD_DEL_DEST => Ok(Self::RemoveDestination(service, real.endpoint())),
            _ => Err(missing()),
        }
    }

    fn number(&self) -> u8 {
        match self {
            Self::Add(_) => IPVS_CMD_NEW_SERVICE,
            Self::Edit(_) => IPVS_CMD_SET_SERVICE,
            Self::Remove(_) => IPVS_CMD_DEL_SERVICE,
            Self::AddDestination(..) => IPVS_CMD_NEW_DEST,
            Self::EditDestination(..) => IPVS_CMD_SET_DEST,
            Self::RemoveDestination(..) => IPVS_CMD_DEL_DEST,
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(server) => write!(f, "-A {server}"),
            Self::Edit(server) => write!(f, "-E {server}"),
            Self::Remove(service) => write!(f, "-D {service}"),
            Self::AddDestination(service, real) => write!(f, "-a {service} {real}"),
            Self::EditDestination(service, real) => write!(f, "-e {service} {real}"),
            Self::RemoveDestination(service, endpoint) => write!(f, "-d {service} -r {endpoint}"),
        }
    }
}

/// An ordered list of commands, each of which the kernel applies separately.
///
/// `Display` prints the input of `ipvsadm -R`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Commands {
    commands: Vec<Command>,
}

impl Commands {
    /// Returns the commands that apply these edits.
    ///
    /// Virtual servers are added and changed before real servers, and real servers
    /// are removed before virtual servers.
    /// Real servers are added before others are removed, so a service always has a real
    /// server while its real servers are replaced.
    /// Within each group, edits keep their order.
    /// Real servers of a removed virtual server need no command of their own.
    pub fn from_edits<'a, E>(edits: E) -> Self
    where
        E: IntoIterator<Item = &'a Edit<Object>, IntoIter: Clone>,
    {
        let edits = edits.into_iter();
        let removed_services: HashSet<ServiceKey> = edits
            .clone()
            .filter_map(|edit| match edit {
                Edit::Remove(Object::VirtualServer(server)) => Some(server.service),
                _ => None,
            })
            .collect();
        let (mut commands, mut destinations) = (Vec::new(), Vec::new());
        let (mut removed_destinations, mut removed_servers) = (Vec::new(), Vec::new());
        for edit in edits {
            match edit {
                Edit::Add(Object::VirtualServer(server)) => commands.push(Command::Add(*server)),
                Edit::Add(Object::Destination(service, real)) => {
                    destinations.push(Command::AddDestination(*service, *real));
                }
                Edit::Change { new, .. } => match new {
                    Object::VirtualServer(server) => commands.push(Command::Edit(*server)),
                    Object::Destination(service, real) => {
                        destinations.push(Command::EditDestination(*service, *real))
                    }
                },
                Edit::Remove(Object::VirtualServer(server)) => {
                    removed_servers.push(Command::Remove(server.service))
                }
                Edit::Remove(Object::Destination(service, _))
                    if removed_services.contains(service) => {}
                Edit::Remove(Object::Destination(service, real)) => {
                    removed_destinations
                        .push(Command::RemoveDestination(*service, real.endpoint()));
                }
            }
        }
        for part in [destinations, removed_destinations, removed_servers] {
            commands.extend(part);
        }
        Self { commands }
    }

    /// Creates an empty list.
    ///
    /// ```
    /// use vipline_ipvs::{Commands, RealServer, Scheduler, ServiceKey, Transport, VirtualServer};
    ///
    /// let web = ServiceKey::new(Transport::Tcp, "10.0.0.1".parse()?, 80);
    /// let commands = Commands::new()
    ///     .add_service(VirtualServer::new(web, Scheduler::RoundRobin))
    ///     .add_destination(web, RealServer::new("10.1.0.5".parse()?, 8080))
    ///     .add_destination(web, RealServer::new("10.1.0.6".parse()?, 8080));
    /// assert_eq!(commands.as_slice().len(), 3);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a command.
    pub fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Appends a command and returns the list.
    #[must_use]
    fn with(mut self, command: Command) -> Self {
        self.push(command);
        self
    }

    /// Adds a virtual server: `-A`.
    #[must_use]
    pub fn add_service(self, server: VirtualServer) -> Self {
        self.with(Command::Add(server))
    }

    /// Changes a virtual server: `-E`.
    #[must_use]
    pub fn edit_service(self, server: VirtualServer) -> Self {
        self.with(Command::Edit(server))
    }

    /// Removes a virtual server with its real servers: `-D`.
    #[must_use]
    pub fn remove_service(self, service: ServiceKey) -> Self {
        self.with(Command::Remove(service))
    }

    /// Adds a real server: `-a`.
    #[must_use]
    pub fn add_destination(self, service: ServiceKey, real: RealServer) -> Self {
        self.with(Command::AddDestination(service, real))
    }

    /// Changes a real server: `-e`.
    #[must_use]
    pub fn edit_destination(self, service: ServiceKey, real: RealServer) -> Self {
        self.with(Command::EditDestination(service, real))
    }

    /// Removes a real server: `-d`.
    #[must_use]
    pub fn remove_destination(self, service: ServiceKey, endpoint: SocketAddr) -> Self {
        self.with(Command::RemoveDestination(service, endpoint))
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns the commands in their order.
    pub fn as_slice(&self) -> &[Command] {
        &self.commands
    }
}

impl FromIterator<Command> for Commands {
    fn from_iter<I: IntoIterator<Item = Command>>(commands: I) -> Self {
        Self {
            commands: commands.into_iter().collect(),
        }
    }
}

impl From<Vec<Command>> for Commands {
    fn from(commands: Vec<Command>) -> Self {
        Self { commands }
    }
}

impl Extend<Command> for Commands {
    fn extend<I: IntoIterator<Item = Command>>(&mut self, commands: I) {
        self.commands.extend(commands);
    }
}

impl fmt::Display for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.commands
            .iter()
            .try_for_each(|command| writeln!(f, "{command}"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::{Scheduler, Transport};

    fn service(last: u8) -> ServiceKey {
        ServiceKey::new(Transport::Tcp, IpAddr::from([10, 0, 0, last]), 80)
    }

    fn server(last: u8) -> Object {
        VirtualServer::new(service(last), Scheduler::RoundRobin).into()
    }

    fn real(last: u8, real: u8) -> Object {
        let address = IpAddr::from([10, 1, 0, real]);
        Object::Destination(service(last), RealServer::new(address, 8080))
    }

    #[test]
    fn virtual_servers_are_added_before_and_removed_after_their_real_servers() {
        let edits = [
            Edit::Remove(server(1)),
            Edit::Remove(real(1, 1)),
            Edit::Remove(real(2, 1)),
            Edit::Add(real(3, 1)),
            Edit::Add(server(3)),
        ];
        let text = Commands::from_edits(&edits).to_string();
        assert_eq!(
            text,
            "-A -t 10.0.0.3:80 -s rr\n\
             -a -t 10.0.0.3:80 -r 10.1.0.1:8080 -m -w 1\n\
             -d -t 10.0.0.2:80 -r 10.1.0.1:8080\n\
             -D -t 10.0.0.1:80\n"
        );
    }
}
