//! The virtual servers of mode ipvs, by the program `ipvsadm`.
//!
//! Upstream removes all there are.
//! Here one is a kube-proxy's if its address is on the link of mode ipvs, or
//! its address and port are in one of the sets of that mode; others stay.

use std::fmt;
use std::fs;

use anyhow::{Context, Result};

use super::{sets, tool};

/// A virtual server that is to be removed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// The flag of its protocol, such as `-t`.
    flag: String,
    /// Its address with port, as `ipvsadm` has it.
    address: String,
}

/// Displays as a shell command.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ipvsadm -D {} {}", self.flag, self.address)
    }
}

impl Server {
    /// Removes it.
    ///
    /// # Errors
    ///
    /// What the program says.
    pub fn apply(&self) -> Result<()> {
        let program = tool::find("ipvsadm").context("ipvsadm")?;
        tool::run(&program, &["-D", &self.flag, &self.address], "").map(drop)
    }

    /// Tells whether the server is in a set or its address is on the link.
    fn is_ours(&self, sets: &str, addresses: &[&str]) -> bool {
        let Some((ip, port)) = self.address.rsplit_once(':') else {
            return false;
        };
        let ip = ip.trim_start_matches('[').trim_end_matches(']');
        let protocol = match self.flag.as_str() {
            "-t" => "tcp",
            "-u" => "udp",
            _ => "sctp",
        };
        let of_address = format!("{ip},{protocol}:{port}");
        let ports = format!("NODE-PORT-{}", protocol.to_uppercase());
        addresses.contains(&ip)
            || sets::members(sets).any(|(set, member)| {
                member == of_address || member == port && set.ends_with(&ports)
            })
    }
}

/// Returns the servers that are to be removed, and what stays and why.
///
/// `saved` is what `ipvsadm -Sn` says, `sets` what `ipset save` does, and
/// `addresses` are those of the link.
pub fn plan(saved: &str, sets: &str, addresses: &[&str]) -> (Vec<Server>, Vec<String>) {
    let servers = saved.lines().filter_map(|line| {
        let mut words = line.strip_prefix("-A ")?.split(' ');
        let (flag, address) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(Server { flag, address })
    });
    let (ours, others): (Vec<_>, Vec<_>) =
        servers.partition(|server| server.is_ours(sets, addresses));
    let stays = others.iter().map(|Server { flag, address }| {
        format!(
            "virtual server {flag} {address} stays, for nothing tells that a kube-proxy made it"
        )
    });
    (ours, stays.collect())
}

/// Returns what `ipvsadm -Sn` says; nothing if there are no virtual servers.
///
/// # Errors
///
/// There are virtual servers, and they cannot be listed.
pub fn look() -> Result<String> {
    let text = fs::read_to_string("/proc/thread-self/net/ip_vs").unwrap_or_default();
    if !text.lines().any(is_server) {
        return Ok(String::new());
    }
    let lack = "virtual servers of ipvs: not checked, for ipvsadm is not installed";
    tool::run(&tool::find("ipvsadm").context(lack)?, &["-Sn"], "")
}

/// Tells whether a line of `/proc/net/ip_vs` is a virtual server.
fn is_server(line: &str) -> bool {
    ["TCP ", "UDP ", "SCTP ", "FWM "]
        .iter()
        .any(|protocol| line.starts_with(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_go_that_link_or_sets_know() {
        let saved = "-A -t 10.96.0.20:80 -s rr\n-a -t 10.96.0.20:80 -r 10.1.0.5:8080 -m -w 1\n\
                     -A -t 192.0.2.10:30080 -s rr\n-A -u 192.0.2.10:30080 -s rr\n\
                     -A -t [fd00:96::1]:80 -s rr\n-A -t 203.0.113.9:80 -s rr\n\
                     -A -f 7 -s rr\n";
        let sets = "add KUBE-NODE-PORT-TCP 30080\nadd MINE 192.0.2.10,udp:30080\n\
                    add KUBE-LOAD-BALANCER 203.0.113.9,tcp:80\n";
        let (servers, stays) = plan(saved, sets, &["10.96.0.20", "fd00:96::1"]);
        let shown: Vec<_> = servers.iter().map(ToString::to_string).collect();
        let expected = [
            "ipvsadm -D -t 10.96.0.20:80",
            "ipvsadm -D -t 192.0.2.10:30080",
            "ipvsadm -D -t [fd00:96::1]:80",
            "ipvsadm -D -t 203.0.113.9:80",
        ];
        assert_eq!(shown, expected);
        assert_eq!(stays.len(), 2, "{stays:?}");
        assert!(stays[0].starts_with("virtual server -u 192.0.2.10:30080 stays"));
        assert!(stays[1].starts_with("virtual server -f 7 stays"));
    }
}
