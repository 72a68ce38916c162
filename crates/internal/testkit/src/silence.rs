//! Connections that die silently: packets vanish, and nothing closes the connection.
//!
//! So does a connection end whose peer loses power, or that a load balancer or a firewall
//! forgets.

use std::fs;

use crate::nft;

/// State `TCP_ESTABLISHED` in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// Drops the packets of all established TCP connections over IPv4 to a port, in the network
/// namespace of the calling thread. New connections to the port work. Returns the number of
/// silenced connections.
///
/// # Panics
///
/// If the connections cannot be read, or the rules cannot be written.
pub fn silence_connections(port: u16) -> usize {
    let table = fs::read_to_string("/proc/thread-self/net/tcp").expect("/proc is mounted");
    let clients: Vec<_> = table
        .lines()
        .skip(1)
        .filter_map(|line| client(line, port))
        .map(|client| client.to_string())
        .collect();
    if !clients.is_empty() {
        // At the input, because a packet that is dropped at the output is an error for its
        // sender.
        let ports = clients.join(", ");
        let rules = format!(
            "table ip silence {{\n chain input {{\n type filter hook input priority -300\n\
             tcp sport {{ {ports} }} tcp dport {port} drop\n\
             tcp sport {port} tcp dport {{ {ports} }} drop\n}}\n}}\n"
        );
        nft::succeeds(&["-f", "-"], &rules);
    }
    clients.len()
}

/// Returns the client port of a line of `/proc/net/tcp`, if it is the client's end of an
/// established connection to `port`.
fn client(line: &str, port: u16) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
    let port_of = |address: &str| {
        let (_, port) = address.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok()
    };
    (state == ESTABLISHED && port_of(remote)? == port).then(|| port_of(local))?
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::netns::Netns;

    #[test]
    fn only_present_connections_are_silenced() {
        Netns::new().unwrap().run(|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            assert_eq!(silence_connections(address.port()), 0);
            let old = (TcpStream::connect(address).unwrap(), listener.accept());
            assert_eq!(silence_connections(address.port()), 1);
            let new = (TcpStream::connect(address).unwrap(), listener.accept());
            for ((mut client, accepted), expected) in [(old, None), (new, Some(1))] {
                let (mut server, _) = accepted.unwrap();
                client.write_all(b"x").unwrap();
                server
                    .set_read_timeout(Some(Duration::from_millis(300)))
                    .unwrap();
                assert_eq!(server.read(&mut [0; 2]).ok(), expected);
            }
        });
    }
}
