//! `-m conntrack`: what connection tracking knows.

use std::fmt;

use bitflags::bitflags;
use ipnet::IpNet;

use crate::address::{self, Bare};
use crate::list;
use crate::negatable::Negatable;
use crate::number::{Ports, Range};
use crate::options::{Extension, Parsed, Unsupported, Values, set_once};
use crate::protocol::Protocol;

/// What connection tracking knows: `-m conntrack --ctstate NEW`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conntrack {
    /// The state of the connection for the packet.
    pub state: Option<Negatable<CtState>>,
    /// Protocol, addresses and ports of the connection.
    pub connection: Option<Box<Connection>>,
    /// What happened to the connection.
    pub status: Option<Negatable<CtStatus>>,
    /// After how many seconds it expires.
    pub expire: Option<Negatable<Range<u32>>>,
    /// Which way the packet goes.
    pub direction: Option<CtDirection>,
}

/// Protocol, addresses and ports of a connection.
///
/// Addresses are kept with the bits that do not count, as the kernel keeps them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Connection {
    /// The protocol.
    pub protocol: Option<Negatable<Protocol>>,
    /// The source address of the first packet.
    pub original_source: Option<Negatable<IpNet>>,
    /// The destination address of the first packet.
    pub original_destination: Option<Negatable<IpNet>>,
    /// The source address of replies.
    pub reply_source: Option<Negatable<IpNet>>,
    /// The destination address of replies.
    pub reply_destination: Option<Negatable<IpNet>>,
    /// The source port of the first packet.
    pub original_sport: Option<Negatable<Ports>>,
    /// The destination port of the first packet.
    pub original_dport: Option<Negatable<Ports>>,
    /// The source port of replies.
    pub reply_sport: Option<Negatable<Ports>>,
    /// The destination port of replies.
    pub reply_dport: Option<Negatable<Ports>>,
}

bitflags! {
    /// States of a connection for a packet.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct CtState: u8 {
        /// It belongs to no connection and cannot begin one.
        const INVALID = 1;
        /// It begins one.
        const NEW = 2;
        /// It begins one that another made known.
        const RELATED = 4;
        /// It belongs to one.
        const ESTABLISHED = 8;
        /// It is not tracked.
        const UNTRACKED = 16;
        /// The source address is translated.
        const SNAT = 32;
        /// The destination address is translated.
        const DNAT = 64;
    }
}

bitflags! {
    /// What happened to a connection.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct CtStatus: u8 {
        /// Another connection made it known.
        const EXPECTED = 1;
        /// Packets went both ways.
        const SEEN_REPLY = 2;
        /// It is never dropped early.
        const ASSURED = 4;
        /// Its first packet left the host.
        const CONFIRMED = 8;
    }
}

impl fmt::Display for CtState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list::write(*self, "", f)
    }
}

impl fmt::Display for CtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list::write(*self, "NONE", f)
    }
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CtDirection {
    /// As the first packet of the connection.
    Original,
    /// As the replies.
    Reply,
}

impl Conntrack {
    /// Wants one of these states.
    pub fn state(state: CtState) -> Self {
        Self {
            state: Some(Negatable::Is(state)),
            ..Self::default()
        }
    }

    /// Wants none of these states.
    pub fn not_state(state: CtState) -> Self {
        Self {
            state: Some(Negatable::Not(state)),
            ..Self::default()
        }
    }
}

impl<'a> Extension<'a> for Conntrack {
    fn open() -> Self {
        Self::default()
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--ctstate" => set_once(&mut self.state, values.negatable(list::parse)?),
            "--ctstatus" => set_once(&mut self.status, values.negatable(status)?),
            "--ctexpire" => set_once(
                &mut self.expire,
                values.negatable(|text| Range::parse(text, ':', Range::<u32>::ALL))?,
            ),
            "--ctdir" => {
                let direction = values.parse(direction)?;
                set_once(&mut self.direction, direction)
            }
            _ if option.starts_with("--ct") => self
                .connection
                .get_or_insert_default()
                .parse_option(option, values),
            _ => Ok(false),
        }
    }
}

fn direction(text: &str) -> Option<CtDirection> {
    if text.eq_ignore_ascii_case("ORIGINAL") {
        return Some(CtDirection::Original);
    }
    text.eq_ignore_ascii_case("REPLY")
        .then_some(CtDirection::Reply)
}

fn status(text: &str) -> Option<CtStatus> {
    if text == "NONE" {
        return Some(CtStatus::empty());
    }
    list::parse(text)
}

impl Connection {
    fn parse_option(&mut self, option: &str, values: &mut Values<'_, '_>) -> Parsed {
        if option == "--ctproto" {
            let protocol = values.negatable(Protocol::parse)?;
            return set_once(&mut self.protocol, protocol);
        }
        let networks = match option {
            "--ctorigsrc" => &mut self.original_source,
            "--ctorigdst" => &mut self.original_destination,
            "--ctreplsrc" => &mut self.reply_source,
            "--ctrepldst" => &mut self.reply_destination,
            _ => {
                let ports = match option {
                    "--ctorigsrcport" => &mut self.original_sport,
                    "--ctorigdstport" => &mut self.original_dport,
                    "--ctreplsrcport" => &mut self.reply_sport,
                    "--ctrepldstport" => &mut self.reply_dport,
                    // A connection was made for it that nothing is known of.
                    _ => return Err(Unsupported),
                };
                return set_once(ports, values.negatable(parse_ports)?);
            }
        };
        // iptables prints masks with holes as no masks.
        set_once(networks, values.negatable(address::parse_prefix)?)
    }
}

/// Reads ports; these are decimal even where they begin with 0.
fn parse_ports(text: &str) -> Option<Ports> {
    let odd = |end: &str| end.len() > 1 && end.starts_with('0');
    Ports::parse(text, ':', Ports::ALL).filter(|_| !text.split(':').any(odd))
}

impl fmt::Display for Conntrack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m conntrack")?;
        if let Some(state) = &self.state {
            state.write(f, "--ctstate")?;
        }
        if let Some(connection) = &self.connection {
            connection.fmt(f)?;
        }
        if let Some(status) = &self.status {
            status.write(f, "--ctstatus")?;
        }
        if let Some(expire) = &self.expire {
            expire.write(f, "--ctexpire")?;
        }
        match self.direction {
            Some(CtDirection::Original) => f.write_str(" --ctdir ORIGINAL"),
            Some(CtDirection::Reply) => f.write_str(" --ctdir REPLY"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Connection {
    /// Writes the options, each with a blank in front.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(protocol) = self.protocol {
            protocol.map(|protocol| protocol.0).write(f, "--ctproto")?;
        }
        let networks = [
            ("--ctorigsrc", &self.original_source),
            ("--ctorigdst", &self.original_destination),
            ("--ctreplsrc", &self.reply_source),
            ("--ctrepldst", &self.reply_destination),
        ];
        for (option, network) in networks {
            if let Some(network) = network {
                network.map(Bare).write(f, option)?;
            }
        }
        let ports = [
            ("--ctorigsrcport", &self.original_sport),
            ("--ctorigdstport", &self.original_dport),
            ("--ctreplsrcport", &self.reply_sport),
            ("--ctrepldstport", &self.reply_dport),
        ];
        for (option, ports) in ports {
            if let Some(ports) = ports {
                ports.write(f, option)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn it_is_read_and_printed() {
        let connection = Connection {
            protocol: Some(Negatable::Is(Protocol::TCP)),
            original_source: Some(Negatable::Is("10.1.2.3/16".parse().unwrap())),
            original_destination: Some(Negatable::Not("10.0.0.1/32".parse().unwrap())),
            reply_source: Some(Negatable::Is("0.0.0.0/0".parse().unwrap())),
            reply_destination: None,
            original_sport: Some(Negatable::Not(1.into())),
            original_dport: Some(Negatable::Is((2..=3).into())),
            reply_sport: None,
            reply_dport: Some(Negatable::Is(Ports::ALL)),
        };
        let all = Conntrack {
            connection: Some(Box::new(connection)),
            status: Some(Negatable::Not(CtStatus::empty())),
            expire: Some(Negatable::Is((5..=10).into())),
            direction: Some(CtDirection::Reply),
            ..Conntrack::state(CtState::INVALID)
        };
        let not_tracked = CtState::RELATED | CtState::ESTABLISHED | CtState::DNAT;
        let table = [
            ("-m conntrack --ctstate NEW", Conntrack::state(CtState::NEW)),
            (
                "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT",
                Conntrack::not_state(not_tracked),
            ),
            (
                "-m conntrack --ctstate INVALID --ctproto 6 --ctorigsrc 10.1.2.3/16 ! --ctorigdst 10.0.0.1 --ctreplsrc 0.0.0.0/0 ! --ctorigsrcport 1 --ctorigdstport 2:3 --ctrepldstport 0:65535 ! --ctstatus NONE --ctexpire 5:10 --ctdir REPLY",
                all,
            ),
        ];
        for (text, conntrack) in table {
            let rule = Rule::new().matching(conntrack);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn looser_forms_are_read_and_odd_ones_kept() {
        let table = [
            ("--ctstate dnat,NEW", "--ctstate NEW,DNAT"),
            (
                "--ctdir original --ctproto udp",
                "--ctproto 17 --ctdir ORIGINAL",
            ),
            ("--ctexpire :7", "--ctexpire 0:7"),
            ("--ctorigsrcport 010", "--ctorigsrcport 010"),
            (
                "--ctorigsrc 10.0.0.1/255.0.255.0",
                "--ctorigsrc 10.0.0.1/255.0.255.0",
            ),
            ("--ctlabel 5", "--ctlabel 5"),
            ("--ctstate NEW --ctstate NEW", "--ctstate NEW --ctstate NEW"),
        ];
        for (options, printed) in table {
            let text = format!("-m conntrack {options}");
            let rule = Rule::parse(&text).unwrap();
            assert_eq!(rule.to_string(), format!("-m conntrack {printed}"));
        }
    }
}
