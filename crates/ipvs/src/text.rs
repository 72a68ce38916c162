//! Parser for the text format of `ipvsadm -S` and `-R`.
//!
//! Names of hosts are not resolved.

use std::str::FromStr;

use thiserror::Error;

use crate::options::{self, Mode};
use crate::{Command, CommandLine, Commands, Forwarding, Object, ServiceKey, Table};

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

impl FromStr for Command {
    type Err = ParseError;

    /// Parses one line that changes a server, as [`Display`](std::fmt::Display), `ipvsadm
    /// -S` or this crate wrote it.
    ///
    /// Values are not checked, so that every command prints and parses:
    /// [`check`](Self::check) does. The port of a real server is kept.
    /// For lines that a person wrote, use [`CommandLine`], which accepts and rejects the
    /// same lines as `ipvsadm`.
    fn from_str(line: &str) -> Result<Self, ParseError> {
        parse(line, 1)
    }
}

impl FromStr for Commands {
    type Err = ParseError;

    /// Parses one command per line, as `ipvsadm -S` or this crate wrote it, and skips blank
    /// lines.
    ///
    /// For lines that a person wrote, use [`CommandLine`].
    fn from_str(text: &str) -> Result<Self, ParseError> {
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
    fn from_str(text: &str) -> Result<Self, ParseError> {
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

impl FromStr for CommandLine {
    type Err = ParseError;

    /// Parses a command line of `ipvsadm`.
    fn from_str(line: &str) -> Result<Self, ParseError> {
        let fail = |reason| error(line, 1, reason);
        let mut parsed = options::read(line, Mode::Program).map_err(fail)?;
        if let Self::Change(command) = &mut parsed {
            command.replace_port();
            command.check().map_err(fail)?;
        }
        Ok(parsed)
    }
}

impl Command {
    /// Sets the port of a real server to that of the service, except with masquerading
    /// and firewall marks.
    fn replace_port(&mut self) {
        let (Self::AddDestination(service, real) | Self::EditDestination(service, real)) = self
        else {
            return;
        };
        let is_replaced = matches!(real.forwarding, Forwarding::Direct | Forwarding::Tunnel(_));
        if let (ServiceKey::Address { port, .. }, true) = (service, is_replaced) {
            real.port = *port;
        }
    }
}

fn parse(line: &str, number: usize) -> Result<Command, ParseError> {
    let command = options::read(line, Mode::Text).and_then(|parsed| match parsed {
        CommandLine::Change(command) => Ok(command),
        _ => Err("the command changes no server"),
    });
    command.map_err(|reason| error(line, number, reason))
}

fn error(line: &str, number: usize, reason: &'static str) -> ParseError {
    ParseError::new(line, number, reason)
}

impl ParseError {
    pub(crate) fn new(line: &str, number: usize, reason: &'static str) -> Self {
        Self {
            line: number,
            reason,
            text: line.chars().take(SHOWN).collect::<String>().into(),
        }
    }
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
