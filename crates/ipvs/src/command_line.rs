//! Command lines of `ipvsadm`.

use std::fmt;

use crate::{Command, Role, ServiceKey, SyncDaemon, Timeouts};

/// A command line of `ipvsadm` 1.31, without the name of the program.
///
/// Use this type for lines that a person wrote. [`Command`] and
/// [`Commands`](crate::Commands) read the lines that `ipvsadm -S` or this crate wrote, and
/// keep values that `ipvsadm` rejects or replaces.
///
/// [`FromStr`](std::str::FromStr) accepts the spellings that `ipvsadm` accepts: short and
/// long options, `--option=value`, `-w5`, several options in one word, names of common
/// services in place of ports, and addresses such as `10.1`. It rejects what `ipvsadm`
/// rejects, such as options of another command. Names of hosts are not resolved.
/// `Display` prints short options.
///
/// ```
/// use vipline_ipvs::CommandLine;
///
/// let line: CommandLine = "--add-server --tcp-service=10.0.0.1:http -r 10.1.0.5 -mw3".parse()?;
/// assert_eq!(line.to_string(), "-a -t 10.0.0.1:80 -r 10.1.0.5:80 -m -w 3");
/// let mixed = "-a -t 10.0.0.1:80 -r [fd00::5]:80 -m".parse::<CommandLine>();
/// assert!(mixed.is_err());
/// # Ok::<(), vipline_ipvs::ParseError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CommandLine {
    /// A change of a virtual or real server.
    ///
    /// Without masquerading, the port of a real server is that of the service.
    Change(Command),
    /// `-C`: removes all virtual servers: [`Client::flush`](crate::Client::flush).
    Flush,
    /// `-L`: prints servers, connections, timeouts or sync daemons.
    List(Listing),
    /// `-R`: reads command lines from standard input.
    Restore,
    /// `-S`: prints all servers as command lines.
    Save {
        /// Whether addresses and ports are numeric: `-n`.
        numeric: bool,
    },
    /// `--set`: sets timeouts, except those of zero:
    /// [`Client::set_timeouts`](crate::Client::set_timeouts).
    SetTimeouts(Timeouts),
    /// `--start-daemon`:
    /// [`Client::start_sync_daemon`](crate::Client::start_sync_daemon).
    StartSyncDaemon(SyncDaemon),
    /// `--stop-daemon`: [`Client::stop_sync_daemon`](crate::Client::stop_sync_daemon).
    StopSyncDaemon(Role),
    /// `-Z`: resets statistics of one service or all: [`Client::zero`](crate::Client::zero).
    Zero(Option<ServiceKey>),
}

/// Objects and format of `ipvsadm -L`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Listing {
    /// Objects to print.
    pub objects: Listed,
    /// Options of the format by long name, in order: `numeric`, `stats`, `rate`,
    /// `thresholds`, `persistent-conn`, `tun-info`, `nosort`, `exact`.
    pub format: Vec<&'static str>,
}

/// Objects that `ipvsadm -L` prints.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Listed {
    /// All virtual servers with their real servers.
    #[default]
    Servers,
    /// One virtual server: `-t`, `-u`, `-f`.
    Server(ServiceKey),
    /// Connections: `-c`.
    Connections,
    /// Sync daemons: `--daemon`.
    SyncDaemons,
    /// Timeouts: `--timeout`.
    Timeouts,
}

impl From<Command> for CommandLine {
    fn from(command: Command) -> Self {
        Self::Change(command)
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(command) => command.fmt(f),
            Self::Flush => f.write_str("-C"),
            Self::List(listing) => listing.fmt(f),
            Self::Restore => f.write_str("-R"),
            Self::Save { numeric: false } => f.write_str("-S"),
            Self::Save { numeric: true } => f.write_str("-S -n"),
            Self::SetTimeouts(Timeouts { tcp, tcp_fin, udp }) => {
                let [tcp, tcp_fin, udp] = [tcp, tcp_fin, udp].map(|it| it.as_secs());
                write!(f, "--set {tcp} {tcp_fin} {udp}")
            }
            Self::StartSyncDaemon(daemon) => start(daemon, f),
            Self::StopSyncDaemon(role) => write!(f, "--stop-daemon {}", name(*role)),
            Self::Zero(None) => f.write_str("-Z"),
            Self::Zero(Some(service)) => write!(f, "-Z {service}"),
        }
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-L")?;
        match self.objects {
            Listed::Servers => {}
            Listed::Server(service) => write!(f, " {service}")?,
            Listed::Connections => f.write_str(" -c")?,
            Listed::SyncDaemons => f.write_str(" --daemon")?,
            Listed::Timeouts => f.write_str(" --timeout")?,
        }
        for option in &self.format {
            match *option {
                "numeric" => f.write_str(" -n")?,
                option => write!(f, " --{option}")?,
            }
        }
        Ok(())
    }
}

fn start(daemon: &SyncDaemon, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let SyncDaemon {
        role,
        interface,
        sync_id,
        max_len,
        multicast_group,
        port,
        ttl,
    } = daemon;
    write!(f, "--start-daemon {}", name(*role))?;
    write!(f, " --mcast-interface {interface} --syncid {sync_id}")?;
    if *max_len != 0 {
        write!(f, " --sync-maxlen {max_len}")?;
    }
    if let Some(group) = multicast_group {
        write!(f, " --mcast-group {group}")?;
    }
    if *port != 0 {
        write!(f, " --mcast-port {port}")?;
    }
    if *ttl != 0 {
        write!(f, " --mcast-ttl {ttl}")?;
    }
    Ok(())
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Master => "master",
        Role::Backup => "backup",
    }
}
