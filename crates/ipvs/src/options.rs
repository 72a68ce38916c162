//! Conversion of options to command lines.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use crate::arguments::{Arguments, Result};
use crate::check::MAX_TIMEOUT;
use crate::endpoint::{ipv4, split_port};
use crate::{
    Checksum, Command, CommandLine, Family, Flags, Forwarding, Listed, Listing, Netmask,
    Persistence, PersistenceEngine, RealServer, Role, Scheduler, ServiceKey, SyncDaemon, Timeouts,
    Transport, Tunnel, VirtualServer,
};

/// `DEF_SCHED`: the scheduler of `ipvsadm -A` without `-s`.
const DEFAULT_SCHEDULER: Scheduler = Scheduler::WeightedLeastConnections;

/// Options of the format of `-L`.
const FORMAT: [&str; 8] = [
    "exact",
    "nosort",
    "numeric",
    "persistent-conn",
    "rate",
    "stats",
    "thresholds",
    "tun-info",
];

/// How exactly a line is read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Mode {
    /// Reads everything that a command prints, with the command anywhere in the line.
    #[default]
    Text,
    /// Reads what `ipvsadm` reads.
    Program,
}

/// Reads a line.
pub(crate) fn read(line: &str, mode: Mode) -> Result<CommandLine> {
    let arguments = Arguments::read(line)?;
    let mut options = Options {
        mode,
        ..Options::default()
    };
    for (name, value) in arguments.options {
        options.take(name, value.unwrap_or_default(), value.is_some())?;
    }
    options.into_line(&arguments.rest)
}

/// The options of a line, read in order.
#[derive(Default)]
struct Options<'a> {
    mode: Mode,
    action: Option<&'static str>,
    /// Groups of the options, each of which is allowed once.
    given: Vec<&'static str>,
    service: Option<ServiceKey>,
    scheduler: Option<Scheduler>,
    /// `Some` if the option is given, with its optional timeout.
    persistent: Option<Option<&'a str>>,
    netmask: Option<Netmask>,
    engine: Option<PersistenceEngine>,
    flags: Flags,
    /// Comma-separated flags of the scheduler.
    flag_names: &'a str,
    real: Option<SocketAddr>,
    method: Option<Method>,
    weight: Option<u32>,
    upper: u32,
    lower: u32,
    tunnel: Option<&'a str>,
    tunnel_port: Option<u16>,
    checksum: Option<Checksum>,
    role: Option<Role>,
    daemon: Option<SyncDaemon>,
    listed: Option<Listed>,
    format: Vec<&'static str>,
}

#[derive(Clone, Copy)]
enum Method {
    Masquerade,
    Tunnel,
    Direct,
}

impl<'a> Options<'a> {
    /// Reads an option.
    fn take(&mut self, name: &'static str, value: &'a str, has_value: bool) -> Result<()> {
        match name {
            "add-service" | "edit-service" | "delete-service" | "add-server" | "edit-server"
            | "delete-server" | "clear" | "list" | "restore" | "save" | "zero" | "set" => {
                return self.take_action(name);
            }
            "start-daemon" | "stop-daemon" => {
                self.role = Some(match value {
                    "master" => Role::Master,
                    "backup" => Role::Backup,
                    _ => return Err("invalid role of a sync daemon"),
                });
                return self.take_action(name);
            }
            "ipv6" => return self.set_v6(),
            "sort" => return Ok(()),
            _ => {}
        }
        if self.action.is_none() && self.mode == Mode::Program {
            return Err("missing command");
        }
        let group = group(name);
        if self.given.contains(&group) {
            return Err("an option is given twice");
        }
        self.given.push(group);
        match name {
            "tcp-service" | "udp-service" | "sctp-service" | "fwmark-service" => {
                self.set_service(name, value)
            }
            "scheduler" | "persistent" | "netmask" | "pe" | "ops" | "sched-flags" => {
                self.set_server(name, value, has_value)
            }
            "mcast-interface" | "mcast-group" | "mcast-port" | "mcast-ttl" | "syncid"
            | "sync-maxlen" => self.set_daemon(name, value),
            "connection" | "daemon" | "timeout" => {
                self.listed = Some(match name {
                    "connection" => Listed::Connections,
                    "daemon" => Listed::SyncDaemons,
                    _ => Listed::Timeouts,
                });
                Ok(())
            }
            name if FORMAT.contains(&name) => {
                self.format.push(name);
                Ok(())
            }
            _ => self.set_real(name, value),
        }
    }

    fn take_action(&mut self, name: &'static str) -> Result<()> {
        match self.action.replace(name) {
            None => Ok(()),
            Some(_) => Err("two commands"),
        }
    }

    fn set_v6(&mut self) -> Result<()> {
        let Some(ServiceKey::Mark { family, .. }) = &mut self.service else {
            return Err("-6 without -f before it");
        };
        *family = Family::V6;
        self.netmask = None;
        Ok(())
    }

    fn set_service(&mut self, name: &str, value: &str) -> Result<()> {
        let protocol = match name {
            "tcp-service" => Transport::Tcp,
            "udp-service" => Transport::Udp,
            "sctp-service" => Transport::Sctp,
            _ => {
                let mark: NonZeroU32 = value.parse().map_err(|_| "invalid firewall mark")?;
                let family = Family::V4;
                self.service = Some(ServiceKey::Mark { mark, family });
                return Ok(());
            }
        };
        let (address, port) = self.split_port(value, protocol)?;
        if address.is_ipv6() {
            // An earlier mask was for IPv4.
            self.netmask = None;
        }
        self.service = Some(ServiceKey::new(protocol, address, port.unwrap_or(0)));
        Ok(())
    }

    fn split_port(&self, text: &str, protocol: Transport) -> Result<(IpAddr, Option<u16>)> {
        match split_port(text, protocol)? {
            (_, None) if text.starts_with('[') && self.mode == Mode::Program => Err("missing port"),
            both => Ok(both),
        }
    }

    fn set_server(&mut self, name: &str, value: &'a str, has_value: bool) -> Result<()> {
        match name {
            "scheduler" => {
                // The program cuts names.
                let cut = value.get(..15).filter(|_| self.mode == Mode::Program);
                let scheduler = Scheduler::new(cut.unwrap_or(value));
                self.scheduler = Some(scheduler.map_err(|_| "invalid scheduler name")?);
            }
            "persistent" => self.persistent = Some(has_value.then_some(value)),
            "netmask" => self.netmask = Some(self.parse_netmask(value)?),
            "pe" => {
                let engine = PersistenceEngine::new(value);
                self.engine = Some(engine.map_err(|_| "invalid persistence engine name")?);
            }
            "ops" => self.flags |= Flags::ONE_PACKET,
            _ => self.flag_names = value,
        }
        Ok(())
    }

    fn parse_netmask(&self, value: &str) -> Result<Netmask> {
        match self.service.map(|service| service.family()) {
            Some(Family::V6) => {
                let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit());
                let bits = digits.parse().map_err(|_| "invalid IPv6 prefix length")?;
                Ok(Netmask::V6(bits))
            }
            _ => ipv4(value).map(Netmask::V4).ok_or("invalid IPv4 netmask"),
        }
    }

    fn set_real(&mut self, name: &str, value: &'a str) -> Result<()> {
        match name {
            "real-server" => {
                let protocol = match self.service {
                    Some(ServiceKey::Address { protocol, .. }) => protocol,
                    _ => Transport::Tcp,
                };
                let (address, port) = self.split_port(value, protocol)?;
                let port = port.or_else(|| self.service.map(|service| service.port()));
                self.real = Some(SocketAddr::new(address, port.unwrap_or(0)));
            }
            "masquerading" => self.method = Some(Method::Masquerade),
            "ipip" => self.method = Some(Method::Tunnel),
            "gatewaying" => self.method = Some(Method::Direct),
            "weight" => self.weight = Some(number(value)?),
            "u-threshold" => self.upper = number(value)?,
            "l-threshold" => self.lower = number(value)?,
            "tun-type" => self.tunnel = Some(value),
            "tun-port" => {
                self.tunnel_port = Some(value.parse().map_err(|_| "invalid tunnel port")?);
            }
            name => {
                let checksum = match name {
                    "tun-nocsum" => Checksum::None,
                    "tun-csum" => Checksum::Full,
                    _ => Checksum::Remote,
                };
                if self.checksum.replace(checksum).is_some() {
                    return Err("two options of checksums");
                }
            }
        }
        Ok(())
    }

    fn set_daemon(&mut self, name: &str, value: &str) -> Result<()> {
        let new = || SyncDaemon::new(Role::Master, "eth0", 0);
        let daemon = self.daemon.get_or_insert_with(new);
        match name {
            "mcast-interface" if value.is_empty() => {}
            "mcast-interface" => daemon.interface = value.to_owned(),
            "mcast-group" => {
                let group: IpAddr = value.parse().map_err(|_| "invalid multicast group")?;
                if !group.is_multicast() {
                    return Err("invalid multicast group");
                }
                daemon.multicast_group = Some(group);
            }
            "mcast-port" => daemon.port = positive(value)?,
            "mcast-ttl" => daemon.ttl = positive(value)?,
            "syncid" => {
                let id = value.parse::<u8>().map_err(|_| "invalid sync ID")?;
                daemon.sync_id = id.into();
            }
            _ => {
                daemon.max_len = positive(value)?;
                // The kernel limits the length by that of a UDP datagram.
                if daemon.max_len > 65_507 {
                    return Err("invalid number");
                }
            }
        }
        Ok(())
    }

    fn into_line(self, rest: &[&str]) -> Result<CommandLine> {
        let action = self.action.ok_or("missing command")?;
        let allowed = allowed(action);
        if self.given.iter().any(|group| !allowed.contains(group)) {
            return Err("an option is not allowed with the command");
        }
        if action == "set" {
            return timeouts(rest).map(CommandLine::SetTimeouts);
        }
        if !rest.is_empty() {
            return Err("unexpected argument");
        }
        Ok(match action {
            "clear" => CommandLine::Flush,
            "list" => CommandLine::List(self.listing()?),
            "restore" => CommandLine::Restore,
            "save" => CommandLine::Save {
                numeric: !self.format.is_empty(),
            },
            "zero" => CommandLine::Zero(self.service),
            "start-daemon" => {
                let daemon = self.daemon;
                let mut daemon = daemon.unwrap_or_else(|| SyncDaemon::new(Role::Master, "eth0", 0));
                daemon.role = self.role.ok_or("missing command")?;
                CommandLine::StartSyncDaemon(daemon)
            }
            "stop-daemon" => CommandLine::StopSyncDaemon(self.role.ok_or("missing command")?),
            action => CommandLine::Change(self.command(action)?),
        })
    }

    fn command(&self, action: &str) -> Result<Command> {
        let service = self.service.ok_or("missing service")?;
        let real = || self.real.ok_or("missing real server");
        Ok(match action {
            "add-service" => Command::Add(self.server(service)?),
            "edit-service" => Command::Edit(self.server(service)?),
            "delete-service" => Command::Remove(service),
            "add-server" => Command::AddDestination(service, self.destination(real()?)?),
            "edit-server" => Command::EditDestination(service, self.destination(real()?)?),
            _ => Command::RemoveDestination(service, real()?),
        })
    }

    fn server(&self, service: ServiceKey) -> Result<VirtualServer> {
        let persistence = match (self.persistent, self.netmask) {
            (None, None) => None,
            // The kernel ignores the netmask.
            (None, Some(_)) if self.mode == Mode::Program => None,
            (None, Some(_)) => return Err("a netmask requires a persistent server"),
            (Some(timeout), netmask) => Some(Persistence {
                timeout: timeout.map_or(Ok(Persistence::TIMEOUT), number)?,
                netmask: netmask.unwrap_or_else(|| Netmask::host(service.family())),
            }),
        };
        let scheduler = self.scheduler.unwrap_or(DEFAULT_SCHEDULER);
        let mut flags = self.flags;
        for name in self.flag_names.split(',').filter(|name| !name.is_empty()) {
            flags |= flag(&scheduler, name)?;
        }
        Ok(VirtualServer {
            service,
            scheduler,
            flags,
            persistence,
            persistence_engine: self.engine,
        })
    }

    fn destination(&self, endpoint: SocketAddr) -> Result<RealServer> {
        let has_tunnel =
            self.tunnel.is_some() || self.tunnel_port.is_some() || self.checksum.is_some();
        let forwarding = match self.method {
            Some(Method::Tunnel) => Forwarding::Tunnel(self.tunnel()?),
            _ if has_tunnel => return Err("tunnel options require -i"),
            Some(Method::Masquerade) => Forwarding::Masquerade,
            Some(Method::Direct) | None => Forwarding::Direct,
        };
        Ok(RealServer {
            address: endpoint.ip(),
            port: endpoint.port(),
            forwarding,
            weight: self.weight.unwrap_or(1),
            upper_threshold: self.upper,
            lower_threshold: self.lower,
        })
    }

    fn tunnel(&self) -> Result<Tunnel> {
        let checksum = self.checksum.unwrap_or(Checksum::None);
        match (self.tunnel.unwrap_or("ipip"), self.tunnel_port) {
            ("ipip", None) if self.checksum.is_none() => Ok(Tunnel::Ipip),
            ("gre", None) => Ok(Tunnel::Gre { checksum }),
            ("gue", Some(port)) => Ok(Tunnel::Gue { port, checksum }),
            ("gue", None) => Err("missing tunnel port"),
            ("ipip" | "gre", _) => Err("the tunnel type has no such option"),
            _ => Err("unknown tunnel type"),
        }
    }

    fn listing(self) -> Result<Listing> {
        let objects = ["service", "connection", "daemon", "timeout"];
        let objects = self.given.iter().filter(|group| objects.contains(group));
        let listed = match (self.service, self.listed) {
            (None, None) => Listed::Servers,
            (Some(service), None) => Listed::Server(service),
            (_, Some(listed)) => listed,
        };
        let has = |names: &[&str]| self.format.iter().any(|name| names.contains(name));
        let conflicts = match listed {
            Listed::Servers | Listed::Server(_) => false,
            Listed::Connections => has(&["stats", "rate", "thresholds"]),
            _ => has(&["stats", "rate", "thresholds", "persistent-conn"]),
        };
        if objects.count() > 1 || conflicts {
            return Err("options of the list conflict");
        }
        Ok(Listing {
            objects: listed,
            format: self.format,
        })
    }
}

/// Returns the name that options of one group share.
fn group(option: &'static str) -> &'static str {
    match option {
        "tcp-service" | "udp-service" | "sctp-service" | "fwmark-service" => "service",
        "masquerading" | "ipip" | "gatewaying" => "method",
        option => option,
    }
}

/// Returns the groups of options that a command allows.
fn allowed(action: &str) -> &'static [&'static str] {
    match action {
        "add-service" | "edit-service" => &[
            "service",
            "scheduler",
            "persistent",
            "netmask",
            "pe",
            "ops",
            "sched-flags",
        ],
        "add-server" | "edit-server" => &[
            "service",
            "real-server",
            "method",
            "weight",
            "u-threshold",
            "l-threshold",
            "tun-type",
            "tun-port",
            "tun-nocsum",
            "tun-csum",
            "tun-remcsum",
        ],
        "delete-server" => &["service", "real-server"],
        "delete-service" | "zero" => &["service"],
        "list" => &[
            "service",
            "connection",
            "daemon",
            "timeout",
            "exact",
            "nosort",
            "numeric",
            "persistent-conn",
            "rate",
            "stats",
            "thresholds",
            "tun-info",
        ],
        "save" => &["numeric"],
        "start-daemon" => &[
            "mcast-interface",
            "mcast-group",
            "mcast-port",
            "mcast-ttl",
            "syncid",
            "sync-maxlen",
        ],
        "stop-daemon" => &["syncid"],
        _ => &[],
    }
}

/// Returns the flag with this name, or with this number.
fn flag(scheduler: &Scheduler, name: &str) -> Result<Flags> {
    // A scheduler whose flags are numbered.
    let numbered = Flags::of_scheduler(&Scheduler::RoundRobin);
    let mut all = Flags::of_scheduler(scheduler).iter().chain(numbered);
    let found = all.find(|(_, known)| *known == name);
    found.map(|(flag, _)| *flag).ok_or("unknown scheduler flag")
}

fn timeouts(rest: &[&str]) -> Result<Timeouts> {
    let &[tcp, tcp_fin, udp] = rest else {
        return Err("--set requires three timeouts");
    };
    let seconds = |text: &str| match number(text)? {
        seconds if seconds <= MAX_TIMEOUT => Ok(Duration::from_secs(seconds.into())),
        _ => Err("invalid number"),
    };
    Ok(Timeouts {
        tcp: seconds(tcp)?,
        tcp_fin: seconds(tcp_fin)?,
        udp: seconds(udp)?,
    })
}

fn number(text: &str) -> Result<u32> {
    text.parse().map_err(|_| "invalid number")
}

/// Parses a number that is not 0.
fn positive<T: std::str::FromStr + Default + PartialEq>(text: &str) -> Result<T> {
    let number = text.parse().ok().filter(|number| *number != T::default());
    number.ok_or("invalid number")
}
