//! Parser for the text format of `ipvsadm -S` and `-R`.
//!
//! Names of hosts and ports are not resolved: addresses and ports are numeric.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::str::SplitAsciiWhitespace;

use thiserror::Error;

use crate::{
    Checksum, Command, Commands, Family, Flags, Forwarding, Netmask, Object, Persistence,
    PersistenceEngine, Protocol, RealServer, Scheduler, ServiceKey, Table, Tunnel, VirtualServer,
};

/// A line that could not be parsed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("line {line}: {reason}: {text}")]
#[non_exhaustive]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// Description of the problem.
    pub reason: &'static str,
    /// The first 80 characters of the line.
    pub text: Box<str>,
}

/// Maximum number of characters of a line in an error.
const SHOWN: usize = 80;

/// Result with a description of the problem.
type Result<T> = std::result::Result<T, &'static str>;

impl FromStr for Command {
    type Err = ParseError;

    /// Parses one line of `ipvsadm -R` input.
    fn from_str(line: &str) -> std::result::Result<Self, ParseError> {
        parse(line, 1)
    }
}

impl FromStr for Commands {
    type Err = ParseError;

    /// Parses one command per line and skips blank lines.
    fn from_str(text: &str) -> std::result::Result<Self, ParseError> {
        let lines = text.lines().enumerate();
        lines
            .filter(|(_, line)| !line.trim_ascii().is_empty())
            .map(|(place, line)| parse(line, place + 1))
            .collect()
    }
}

impl FromStr for Table {
    type Err = ParseError;

    /// Parses the output of `ipvsadm -Sn`: lines with `-A` and `-a` only, each virtual
    /// server before its real servers.
    fn from_str(text: &str) -> std::result::Result<Self, ParseError> {
        let mut table = Self::default();
        for (place, line) in text.lines().enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let reason = match parse(line, place + 1)? {
                Command::Add(server) if table.server(&server.service).is_some() => {
                    "the virtual server already exists"
                }
                Command::Add(server) => {
                    table.insert(server);
                    continue;
                }
                Command::AddDestination(service, real) => {
                    match table.insert_destination(&service, real) {
                        true => continue,
                        false => "missing virtual server",
                    }
                }
                _ => "a table consists of -A and -a only",
            };
            return Err(error(line, place + 1, reason));
        }
        Ok(table)
    }
}

impl FromIterator<Object> for Table {
    /// Collects entries. Drops real servers without a preceding virtual server.
    fn from_iter<I: IntoIterator<Item = Object>>(objects: I) -> Self {
        let mut table = Self::default();
        for object in objects {
            match object {
                Object::VirtualServer(server) => table.insert(server),
                Object::Destination(service, real) => {
                    table.insert_destination(&service, real);
                }
            }
        }
        table
    }
}

fn parse(line: &str, number: usize) -> std::result::Result<Command, ParseError> {
    let command = Options::read(line).and_then(Options::into_command);
    command.map_err(|reason| error(line, number, reason))
}

fn error(line: &str, number: usize, reason: &'static str) -> ParseError {
    ParseError {
        line: number,
        reason,
        text: line.chars().take(SHOWN).collect::<String>().into(),
    }
}

/// The unparsed options of a line.
#[derive(Default)]
struct Options<'a> {
    action: Option<Action>,
    service: Option<(Kind, &'a str)>,
    is_v6: bool,
    scheduler: Option<&'a str>,
    /// `Some` if the option is given, with its optional timeout.
    persistent: Option<Option<&'a str>>,
    netmask: Option<&'a str>,
    engine: Option<&'a str>,
    is_one_packet: bool,
    flags: Option<&'a str>,
    real: Option<&'a str>,
    method: Option<Method>,
    weight: Option<&'a str>,
    upper: Option<&'a str>,
    lower: Option<&'a str>,
    tunnel: Option<&'a str>,
    tunnel_port: Option<&'a str>,
    checksum: Checksum,
}

#[derive(Clone, Copy)]
enum Action {
    Add,
    Edit,
    Remove,
    AddDestination,
    EditDestination,
    RemoveDestination,
}

#[derive(Clone, Copy)]
enum Kind {
    Address(Protocol),
    Mark,
}

#[derive(Clone, Copy)]
enum Method {
    Masquerade,
    Tunnel,
    Direct,
}

impl<'a> Options<'a> {
    fn read(line: &'a str) -> Result<Self> {
        let mut options = Self::default();
        let mut words = line.split_ascii_whitespace();
        while let Some(word) = words.next() {
            if !(options.take_action(word) || options.take_switch(word, &mut words)) {
                options.take_value(word, &mut words)?;
            }
        }
        Ok(options)
    }

    /// Parses an option that selects the command.
    fn take_action(&mut self, word: &str) -> bool {
        self.action = Some(match word {
            "-A" | "--add-service" => Action::Add,
            "-E" | "--edit-service" => Action::Edit,
            "-D" | "--delete-service" => Action::Remove,
            "-a" | "--add-server" => Action::AddDestination,
            "-e" | "--edit-server" => Action::EditDestination,
            "-d" | "--delete-server" => Action::RemoveDestination,
            _ => return false,
        });
        true
    }

    /// Parses an option without a value, or with an optional value.
    fn take_switch(&mut self, word: &str, words: &mut SplitAsciiWhitespace<'a>) -> bool {
        match word {
            "-6" | "--ipv6" => self.is_v6 = true,
            "-o" | "--ops" => self.is_one_packet = true,
            "-m" | "--masquerading" => self.method = Some(Method::Masquerade),
            "-i" | "--ipip" => self.method = Some(Method::Tunnel),
            "-g" | "--gatewaying" => self.method = Some(Method::Direct),
            "--tun-nocsum" => self.checksum = Checksum::None,
            "--tun-csum" => self.checksum = Checksum::Full,
            "--tun-remcsum" => self.checksum = Checksum::Remote,
            "-p" | "--persistent" => {
                let next = words.clone().next();
                let timeout = next.filter(|next| !next.starts_with('-'));
                if timeout.is_some() {
                    words.next();
                }
                self.persistent = Some(timeout);
            }
            _ => return false,
        }
        true
    }

    /// Parses an option with a value.
    fn take_value(&mut self, word: &str, words: &mut SplitAsciiWhitespace<'a>) -> Result<()> {
        let known = match word {
            "-t" | "--tcp-service" | "-u" | "--udp-service" | "--sctp-service" | "-f"
            | "--fwmark-service" => None,
            "-s" | "--scheduler" => Some(&mut self.scheduler),
            "-M" | "--netmask" => Some(&mut self.netmask),
            "--pe" => Some(&mut self.engine),
            "-b" | "--sched-flags" => Some(&mut self.flags),
            "-r" | "--real-server" => Some(&mut self.real),
            "-w" | "--weight" => Some(&mut self.weight),
            "-x" | "--u-threshold" => Some(&mut self.upper),
            "-y" | "--l-threshold" => Some(&mut self.lower),
            "--tun-type" => Some(&mut self.tunnel),
            "--tun-port" => Some(&mut self.tunnel_port),
            _ => return Err("unknown option"),
        };
        let value = words.next().ok_or("missing value of an option")?;
        match known {
            Some(option) => *option = Some(value),
            None => {
                let kind = match word {
                    "-t" | "--tcp-service" => Kind::Address(Protocol::Tcp),
                    "-u" | "--udp-service" => Kind::Address(Protocol::Udp),
                    "--sctp-service" => Kind::Address(Protocol::Sctp),
                    _ => Kind::Mark,
                };
                self.service = Some((kind, value));
            }
        }
        Ok(())
    }

    fn into_command(self) -> Result<Command> {
        let service = self.service()?;
        match self.action.ok_or("missing command")? {
            Action::Add => self.server(service).map(Command::Add),
            Action::Edit => self.server(service).map(Command::Edit),
            Action::Remove => Ok(Command::Remove(service)),
            Action::AddDestination => Ok(Command::AddDestination(service, self.real(&service)?)),
            Action::EditDestination => Ok(Command::EditDestination(service, self.real(&service)?)),
            Action::RemoveDestination => Ok(Command::RemoveDestination(
                service,
                self.endpoint(&service)?,
            )),
        }
    }

    fn service(&self) -> Result<ServiceKey> {
        let (kind, value) = self.service.ok_or("missing service")?;
        match kind {
            Kind::Address(protocol) => {
                let (address, port) = split_port(value)?;
                Ok(ServiceKey::new(protocol, address, port.unwrap_or(0)))
            }
            Kind::Mark => {
                let mark: NonZeroU32 = value.parse().map_err(|_| "invalid firewall mark")?;
                let family = match self.is_v6 {
                    true => Family::V6,
                    false => Family::V4,
                };
                Ok(ServiceKey::Mark { mark, family })
            }
        }
    }

    fn server(&self, service: ServiceKey) -> Result<VirtualServer> {
        let scheduler = match self.scheduler {
            None => Scheduler::default(),
            Some(name) => Scheduler::new(name).ok_or("invalid scheduler name")?,
        };
        let persistence_engine = match self.engine {
            None => None,
            Some(name) => {
                Some(PersistenceEngine::new(name).ok_or("invalid persistence engine name")?)
            }
        };
        let mut flags = Flags::empty();
        flags.set(Flags::ONE_PACKET, self.is_one_packet);
        for name in self.flags.iter().flat_map(|flags| flags.split(',')) {
            flags |= flag(&scheduler, name)?;
        }
        Ok(VirtualServer {
            service,
            scheduler,
            flags,
            persistence: self.persistence(service.family())?,
            persistence_engine,
        })
    }

    fn persistence(&self, family: Family) -> Result<Option<Persistence>> {
        let Some(timeout) = self.persistent else {
            return match self.netmask {
                None => Ok(None),
                Some(_) => Err("a netmask requires a persistent server"),
            };
        };
        let netmask = match (family, self.netmask) {
            (family, None) => Netmask::host(family),
            (Family::V4, Some(mask)) => {
                let mask: Ipv4Addr = mask.parse().map_err(|_| "invalid IPv4 netmask")?;
                Netmask::V4(mask)
            }
            (Family::V6, Some(bits)) => {
                let bits: u8 = bits.parse().map_err(|_| "invalid IPv6 prefix length")?;
                Netmask::V6(bits)
            }
        };
        Ok(Some(Persistence {
            timeout: number(timeout, Persistence::TIMEOUT)?,
            netmask,
        }))
    }

    fn endpoint(&self, service: &ServiceKey) -> Result<SocketAddr> {
        let (address, port) = split_port(self.real.ok_or("missing real server")?)?;
        Ok(SocketAddr::new(
            address,
            port.unwrap_or_else(|| service.port()),
        ))
    }

    fn real(&self, service: &ServiceKey) -> Result<RealServer> {
        let endpoint = self.endpoint(service)?;
        let forwarding = match self.method {
            Some(Method::Masquerade) => Forwarding::Masquerade,
            Some(Method::Tunnel) => Forwarding::Tunnel(self.tunnel()?),
            Some(Method::Direct) | None => Forwarding::Direct,
        };
        Ok(RealServer {
            address: endpoint.ip(),
            port: endpoint.port(),
            forwarding,
            weight: number(self.weight, 1)?,
            upper_threshold: number(self.upper, 0)?,
            lower_threshold: number(self.lower, 0)?,
        })
    }

    fn tunnel(&self) -> Result<Tunnel> {
        let checksum = self.checksum;
        match self.tunnel {
            None | Some("ipip") => Ok(Tunnel::Ipip),
            Some("gre") => Ok(Tunnel::Gre { checksum }),
            Some("gue") => {
                let port = self.tunnel_port.ok_or("missing tunnel port")?;
                let port = port.parse().map_err(|_| "invalid tunnel port")?;
                Ok(Tunnel::Gue { port, checksum })
            }
            Some(_) => Err("unknown tunnel type"),
        }
    }
}

/// Returns the flag with this name, or with this number.
fn flag(scheduler: &Scheduler, name: &str) -> Result<Flags> {
    let unnamed = Scheduler::default();
    let mut all = scheduler.flags().iter().chain(unnamed.flags());
    let found = all.find(|(_, known)| *known == name);
    found.map(|(flag, _)| *flag).ok_or("unknown scheduler flag")
}

fn number(text: Option<&str>, default: u32) -> Result<u32> {
    let number = text.map(str::parse);
    number.unwrap_or(Ok(default)).map_err(|_| "invalid number")
}

/// Splits an address and an optional port.
fn split_port(text: &str) -> Result<(IpAddr, Option<u16>)> {
    if let Ok(both) = text.parse::<SocketAddr>() {
        return match both {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => Err("an address has a zone"),
            both => Ok((both.ip(), Some(both.port()))),
        };
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let address = bare.unwrap_or(text).parse();
    address
        .map(|address| (address, None))
        .map_err(|_| "invalid address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipvsadm_output_is_parsed_and_printed_unchanged() {
        let text = "\
-A -t 10.0.0.9:0 -s rr -p 360
-A -u 10.0.0.1:53 -s sh -o -b sh-fallback,sh-port
-a -u 10.0.0.1:53 -r 10.1.0.2:80 -g -w 1
-a -u 10.0.0.1:53 -r 10.1.0.3:80 -i -w 1 --tun-type ipip
-a -u 10.0.0.1:53 -r 10.1.0.4:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-a -u 10.0.0.1:53 -r 10.1.0.6:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-remcsum
-a -u 10.0.0.1:53 -r 10.1.0.8:80 -i -w 1 --tun-type gre --tun-csum
-a -u 10.0.0.1:53 -r [fd00::1]:80 -i -w 1 --tun-type ipip
-A -u 10.0.0.2:5060 -s rr -p 100 --pe sip -o
-A --sctp-service 10.0.0.1:99 -s mh -p 300 -M 255.255.0.0 -b mh-fallback,mh-port
-A -t [fd00::10]:80 -s wlc -p 360 -M 64
-a -t [fd00::10]:80 -r [fd00::11]:80 -m -w 0
-A -f 7 -s rr -b flag-1,flag-3
-a -f 7 -r 10.1.0.1:0 -g -w 1
-A -f 8 -6 -s new
";
        let commands: Commands = text.parse().unwrap();
        assert_eq!(commands.to_string(), text);
        let table: Table = text.parse().unwrap();
        assert_eq!(table.to_string().parse::<Table>(), Ok(table));
    }

    #[test]
    fn omitted_options_have_the_defaults_of_ipvsadm() {
        for (short, long) in [
            ("-A -t 10.0.0.1:80", "-A -t 10.0.0.1:80 -s wlc"),
            ("-A -t 10.0.0.1 -p", "-A -t 10.0.0.1:0 -s wlc -p 360"),
            ("-p -A -t 10.0.0.1", "-A -t 10.0.0.1:0 -s wlc -p 360"),
            (
                "--add-server --udp-service 10.0.0.1:53 --real-server 10.1.0.1",
                "-a -u 10.0.0.1:53 -r 10.1.0.1:53 -g -w 1",
            ),
            (
                "-a -f 3 -6 -r [::1] -m -x 9 -y 8",
                "-a -f 3 -6 -r [::1]:0 -m -w 1 -x 9 -y 8",
            ),
        ] {
            let command: Command = short.parse().unwrap();
            assert_eq!(command.to_string(), long);
        }
    }

    #[test]
    fn errors_have_the_line_number_and_the_problem() {
        for (text, wrong) in [
            ("-A -t 10.0.0.1:80 -s rr -q", "unknown option"),
            ("-A -t host:80 -s rr", "invalid address"),
            ("-A -f 0 -s rr", "invalid firewall mark"),
            (
                "-A -t 10.0.0.1:80 -s rr -M 255.0.0.0",
                "a netmask requires a persistent server",
            ),
            (
                "-A -t 10.0.0.1:80 -s rr -b sh-port",
                "unknown scheduler flag",
            ),
            ("-a -t 10.0.0.1:80", "missing real server"),
            (
                "-a -t 10.0.0.1:80 -r 10.0.0.2 -w",
                "missing value of an option",
            ),
            ("-t 10.0.0.1:80", "missing command"),
        ] {
            let error = format!("\n{text}").parse::<Commands>().unwrap_err();
            assert_eq!(error.to_string(), format!("line 2: {wrong}: {text}"));
        }
        let orphan = "-a -t 10.0.0.1:80 -r 10.0.0.2"
            .parse::<Table>()
            .unwrap_err();
        assert_eq!(orphan.reason, "missing virtual server");
    }
}
