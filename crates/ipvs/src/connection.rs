//! Entries of the connection table.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use crate::{IpvsName, ParseError};

/// An entry of the connection table, a line of `/proc/net/ip_vs_conn`.
///
/// `Display` prints the line without trailing newline. Reasons of a [`ParseError`] name the
/// malformed column.
///
/// ```
/// use vipline_ipvs::Connection;
///
/// let line = "TCP C0000201 D2F0 0A000001 0050 0A010005 1F90 ESTABLISHED     889";
/// let connection: Connection = line.parse()?;
/// assert_eq!(connection.client.to_string(), "192.0.2.1:54000");
/// assert_eq!(connection.destination.to_string(), "10.1.0.5:8080");
/// assert_eq!((&*connection.state, connection.expires.as_secs()), ("ESTABLISHED", 889));
/// assert_eq!(connection.to_string(), line);
/// # Ok::<(), vipline_ipvs::ParseError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Connection {
    /// Protocol: `TCP`, `UDP`, `SCTP`; `IP` for the template of a persistent firewall mark.
    pub protocol: IpvsName,
    /// Address and port of the client. The port of a template is 0.
    pub client: SocketAddr,
    /// Address and port of the virtual server. The address of the template of a
    /// persistent firewall mark is the mark.
    pub service: SocketAddr,
    /// Address and port of the real server.
    pub destination: SocketAddr,
    /// State of the protocol, such as `ESTABLISHED`, `FIN_WAIT` or `UDP`; `NONE` or
    /// `ASSURED` for a template.
    pub state: Box<str>,
    /// Time until the entry expires, in seconds.
    pub expires: Duration,
    /// Name and data of the persistence engine, such as `sip` and a Call-ID.
    pub persistence: Option<(IpvsName, Box<str>)>,
}

impl Connection {
    /// Parses the contents of `/proc/net/ip_vs_conn`.
    ///
    /// # Errors
    ///
    /// [`ParseError`] names the first malformed line and its column.
    pub fn parse_table(text: &str) -> Result<Vec<Self>, ParseError> {
        let lines = (1..).zip(text.lines());
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with("Pro "));
        lines
            .map(|(number, line)| {
                parse(line).map_err(|reason| ParseError::new(line, number, reason))
            })
            .collect()
    }
}

impl FromStr for Connection {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Self, ParseError> {
        parse(line).map_err(|reason| ParseError::new(line, 1, reason))
    }
}

fn parse(line: &str) -> Result<Connection, &'static str> {
    let mut rest = line.trim_ascii_end();
    let mut word = || {
        rest = rest.trim_ascii_start();
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let protocol = IpvsName::new(word()).map_err(|_| "protocol")?;
    let client = endpoint(word(), word()).ok_or("client")?;
    let service = endpoint(word(), word()).ok_or("service")?;
    let destination = endpoint(word(), word()).ok_or("destination")?;
    let state = word();
    if state.is_empty() {
        return Err("state");
    }
    let expires = word().parse().map_err(|_| "expiry")?;
    let persistence = match word() {
        "" => None,
        engine => {
            let engine = IpvsName::new(engine).map_err(|_| "persistence engine")?;
            Some((engine, rest.into()))
        }
    };
    Ok(Connection {
        protocol,
        client,
        service,
        destination,
        state: state.into(),
        expires: Duration::from_secs(expires),
        persistence,
    })
}

/// Parses a hexadecimal IPv4 address or an IPv6 address, and a hexadecimal port.
fn endpoint(address: &str, port: &str) -> Option<SocketAddr> {
    let address = match address.len() {
        8 => Ipv4Addr::from_bits(u32::from_str_radix(address, 16).ok()?).into(),
        _ => IpAddr::V6(address.parse().ok()?),
    };
    let port = u16::from_str_radix(port, 16)
        .ok()
        .filter(|_| port.len() == 4);
    Some(SocketAddr::new(address, port?))
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<3}", self.protocol.as_str())?;
        for endpoint in [self.client, self.service, self.destination] {
            match endpoint.ip() {
                IpAddr::V4(address) => write!(f, " {:08X}", address.to_bits())?,
                IpAddr::V6(address) => write!(f, " {}", Full(address))?,
            }
            write!(f, " {:04X}", endpoint.port())?;
        }
        write!(f, " {:<11} {:>7}", self.state, self.expires.as_secs())?;
        match &self.persistence {
            Some((engine, data)) => write!(f, " {} {data}", engine.as_str()),
            None => Ok(()),
        }
    }
}

/// Prints an IPv6 address without abbreviation.
struct Full(Ipv6Addr);

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for segment in self.0.segments() {
            write!(f, "{separator}{segment:04x}")?;
            separator = ":";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP C0000201 D2F0 0A000001 0050 0A010005 1F90 ESTABLISHED     889
UDP C0000201 13C4 0A000001 13C4 0A010005 13C4 UDP             299 sip 8cb2 7 call
UDP C0000201 0000 0A000001 13C4 0A010005 13C4 NONE            359
IP  C0000201 0000 00000007 0000 0A010005 0000 NONE            359
TCP fd00:0000:0000:0000:0000:0000:0000:0001 D2F0 fd00:0000:0000:0000:0000:0000:0000:0002 0050 0A010005 0050 SYN_RECV         59
SCTP C0000201 D2F0 0A000001 0063 0A010005 0063 SHUTDOWN_RECEIVED       9
";

    #[test]
    fn the_table_of_the_kernel_is_parsed_and_printed_unchanged() {
        let connections = Connection::parse_table(TABLE).unwrap();
        let printed: Vec<_> = connections.iter().map(ToString::to_string).collect();
        assert_eq!(printed, TABLE.lines().skip(1).collect::<Vec<_>>());
        let (engine, data) = connections[1].persistence.as_ref().unwrap();
        assert_eq!((engine.as_str(), &**data), ("sip", "8cb2 7 call"));
        assert_eq!(connections[4].client.to_string(), "[fd00::1]:54000");
        assert_eq!(connections[4].destination.to_string(), "10.1.0.5:80");
    }

    #[test]
    fn errors_name_line_and_column() {
        let line = TABLE.lines().nth(1).unwrap();
        for (from, to, reason) in [
            ("C0000201", "C000020", "client"),
            ("D2F0", "D2F", "client"),
            ("0050", "00500", "service"),
            ("1F90", "XXXX", "destination"),
            ("889", "x", "expiry"),
            ("     889", "", "expiry"),
        ] {
            let error = Connection::parse_table(&format!("\n{}\n", line.replace(from, to)));
            let error = error.unwrap_err();
            assert_eq!((error.line, error.reason), (2, reason));
        }
        assert_eq!("TCP".parse::<Connection>().unwrap_err().reason, "client");
    }
}
