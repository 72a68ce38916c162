//! Prints virtual and real servers like `ipvsadm -Ln`.
//!
//! Run it as root with `cargo run --example ipvsadm-ln`.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

use std::net::SocketAddr;

use vipline_ipvs::{Client, Destination, Error, Family, Flags, Forwarding, Netmask};
use vipline_ipvs::{ServiceKey, Transport, VirtualServer};

fn main() -> Result<(), Error> {
    print!("{}", list(&mut Client::open()?)?);
    Ok(())
}

/// Returns the text of all servers of a network namespace.
pub(crate) fn list(client: &mut Client) -> Result<String, Error> {
    let info = client.info()?;
    let [major, minor, patch] = info.version;
    let size = info.table_size;
    let mut text = format!("IP Virtual Server version {major}.{minor}.{patch} (size={size})\n");
    text += "Prot LocalAddress:Port Scheduler Flags\n";
    text += "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n";
    for (server, _) in client.servers()? {
        text += &server_line(&server);
        for destination in client.destinations(&server.service)? {
            text += &destination_line(&destination);
        }
    }
    Ok(text)
}

pub(crate) fn server_line(server: &VirtualServer) -> String {
    let service = match server.service {
        ServiceKey::Address {
            protocol,
            address,
            port,
        } => {
            let name = match protocol {
                Transport::Tcp => "TCP",
                Transport::Udp => "UDP",
                Transport::Sctp => "SCTP",
            };
            format!("{name:<4} {}", SocketAddr::new(address, port))
        }
        ServiceKey::Mark { mark, family } => match family {
            Family::V4 => format!("FWM  {mark}"),
            Family::V6 => format!("FWM  {mark} IPv6"),
        },
    };
    let flags = Flags::of_scheduler(&server.scheduler).iter();
    let flags = flags.filter(|(flag, _)| server.flags.contains(*flag));
    let flags: Vec<_> = flags.map(|(_, name)| *name).collect();
    let mut line = format!("{service} {}", server.scheduler);
    if !flags.is_empty() {
        line += &format!(" ({})", flags.join(","));
    }
    if let Some(persistence) = server.persistence {
        line += &format!(" persistent {}", persistence.timeout);
        if persistence.netmask != Netmask::host(server.service.family()) {
            line += &format!(" mask {}", persistence.netmask);
        }
    }
    if let Some(engine) = &server.persistence_engine {
        line += &format!(" pe {}", engine.as_str());
    }
    if server.flags.contains(Flags::ONE_PACKET) {
        line += " ops";
    }
    line + "\n"
}

pub(crate) fn destination_line(destination: &Destination) -> String {
    let (server, connections) = (&destination.server, destination.connections);
    let forward = match server.forwarding {
        Forwarding::Masquerade => "Masq",
        Forwarding::Tunnel(_) => "Tunnel",
        Forwarding::Local => "Local",
        _ => "Route",
    };
    format!(
        "  -> {:<28} {forward:<7} {:<6} {:<10} {:<10}\n",
        server.endpoint().to_string(),
        server.weight,
        connections.active,
        connections.inactive,
    )
}
