//! The conntrack table: its maximum size, and many flows of UDP Services.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::{fs, mem};

use vipline_conntrack::{Flow, Protocol, Status, Tuple};

/// The sysctl with the maximum number of flows of all network namespaces.
const SYSCTL: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// Restores the sysctl at the end of its input, which is also the end of the benchmark.
/// Signals of the terminal also reach the benchmark, so the script ignores them.
const RESTORE: &str = r#"trap '' HUP INT TERM; read -r _; echo "$1" > "$2""#;

/// Maximum number of flows while the value exists. Afterwards a child process restores the
/// former maximum, even if the benchmark was killed.
#[derive(Debug)]
pub struct TableSize {
    maximum: u32,
    restore: Option<Child>,
}

impl TableSize {
    /// Raises the maximum to `flows`, if it is lower and the sysctl is writable.
    ///
    /// # Errors
    ///
    /// If the sysctl cannot be read, or `sh` does not start.
    pub fn at_least(flows: u32) -> io::Result<Self> {
        let before = fs::read_to_string(SYSCTL)?;
        let maximum = before.trim().parse().map_err(io::Error::other)?;
        if maximum >= flows {
            return Ok(Self {
                maximum,
                restore: None,
            });
        }
        let mut restore = Command::new("sh");
        let arguments = ["-c", RESTORE, "sh", before.trim(), SYSCTL];
        let restore = restore.args(arguments).stdin(Stdio::piped()).spawn()?;
        let mut size = Self {
            maximum,
            restore: Some(restore),
        };
        if fs::write(SYSCTL, flows.to_string()).is_ok() {
            size.maximum = flows;
        }
        Ok(size)
    }

    /// Returns the maximum number of flows.
    pub fn maximum(&self) -> u32 {
        self.maximum
    }
}

impl Drop for TableSize {
    fn drop(&mut self) {
        let Some(restore) = &mut self.restore else {
            return;
        };
        drop(mem::take(&mut restore.stdin));
        if let Err(error) = restore.wait() {
            let _ = writeln!(io::stderr(), "{SYSCTL} is not restored: {error}");
        }
    }
}

/// Returns the flow of a client to a UDP Service at `frontend`, by the endpoint `server`.
///
/// Flows of different numbers have different clients.
pub fn flow(number: u32, frontend: (IpAddr, u16), server: (IpAddr, u16)) -> Flow {
    const HOSTS: u32 = 50_000;
    let host = Ipv4Addr::from_bits(Ipv4Addr::new(10, 8, 0, 0).to_bits() + number % HOSTS);
    let port = u16::try_from(number / HOSTS).unwrap_or(u16::MAX);
    let client = (host.into(), 20_000_u16.saturating_add(port));
    let mut flow = Flow::new(
        Tuple::ports(Protocol::UDP, client, frontend),
        Tuple::ports(Protocol::UDP, server, client),
    );
    flow.status |= Status::DST_NAT | Status::SEEN_REPLY;
    flow.timeout = Some(3600);
    flow
}
