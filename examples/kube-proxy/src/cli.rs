//! The command line, as upstream's: names, defaults and spelling.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::duration;

/// Programs the kernel so that Services are reached.
#[derive(Debug, Parser)]
#[command(
    name = "kube-proxy",
    version,
    args_override_self = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The flags of all commands.
    #[command(flatten)]
    pub flags: Flags,
    /// Sync once, print a report, and end: 0 if the kernel equals the plan
    #[arg(long, value_parser = switch, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_value = "false",
        default_missing_value = "true",
        hide_default_value = true
    )]
    pub oneshot: bool,
    /// The format of the report
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// What to do instead of running.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Subcommand)]
pub enum Command {
    /// Print what would be programmed, in the syntax that `nft -f` reads
    Render,
    /// Print what the kernel lacks, in the same syntax: exit 0 for nothing, 1 for something
    Diff,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// The flags of all commands.
#[derive(Args, Debug)]
pub struct Flags {
    /// File or directory of Services, EndpointSlices, Nodes and ServiceCIDRs in YAML or JSON
    #[arg(long, global = true, value_name = "PATH")]
    pub manifests: Option<PathBuf>,
    /// Kubeconfig of an API server, which this build has no client for
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "",
        hide = true
    )]
    pub kubeconfig: String,
    /// Address of an API server, which this build has no client for
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "",
        hide = true
    )]
    pub master: String,
    /// How Services are programmed; empty is iptables
    #[arg(
        long,
        global = true,
        value_name = "MODE",
        default_value = "",
        hide_default_value = true
    )]
    pub proxy_mode: String,
    /// Name of this node instead of the machine's host name
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub hostname_override: String,
    /// Address of this node instead of what its Node object says; nothing is bound to it
    #[arg(long, global = true, value_name = "IP", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Networks of the cluster's pods, at most one per family, separated by a comma
    #[arg(
        long,
        global = true,
        value_name = "CIDR",
        default_value = "",
        hide_default_value = true
    )]
    pub cluster_cidr: String,
    /// How traffic of pods is told from other: ClusterCIDR, NodeCIDR, BridgeInterface or
    /// InterfaceNamePrefix; empty is ClusterCIDR
    #[arg(
        long,
        global = true,
        value_name = "MODE",
        default_value = "",
        hide_default_value = true
    )]
    pub detect_local_mode: String,
    /// Bridge of the pods, for BridgeInterface
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub pod_bridge_interface: String,
    /// How the names of the pods' interfaces begin, for InterfaceNamePrefix
    #[arg(
        long,
        global = true,
        value_name = "PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    pub pod_interface_name_prefix: String,
    /// Give the node's address to all traffic to cluster IPs
    #[arg(long, global = true, value_parser = switch, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_value = "false",
        default_missing_value = "true",
        hide_default_value = true
    )]
    pub masquerade_all: bool,
    /// Networks of the node's addresses that node ports are served on, or primary
    #[arg(long, global = true, value_name = "CIDR", value_delimiter = ',')]
    pub nodeport_addresses: Vec<String>,
    /// When a failed sync is tried again, in modes iptables and nftables
    #[arg(long, global = true, value_name = "TIME", value_parser = duration::parse)]
    #[arg(default_value = "30s")]
    pub iptables_sync_period: Duration,
    /// The least time between two syncs, in modes iptables and nftables
    #[arg(long, global = true, value_name = "TIME", value_parser = duration::parse)]
    #[arg(default_value = "1s")]
    pub iptables_min_sync_period: Duration,
    /// The format of the log
    #[arg(long, global = true, value_enum, default_value_t)]
    pub logging_format: LogFormat,
    /// How much is logged: 0 is what matters, 4 more, 6 most of all
    #[arg(
        short,
        long = "v",
        global = true,
        value_name = "LEVEL",
        default_value_t = 0
    )]
    pub v: u8,
}

/// Reads a switch as Go does.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("neither true nor false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["kube-proxy"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn the_flags_agree_with_one_another() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_upstreams() {
        let Cli {
            command,
            flags,
            oneshot,
            output,
        } = parse("").unwrap();
        assert_eq!((command, oneshot, output), (None, false, Output::Text));
        assert_eq!(flags.proxy_mode, "");
        assert_eq!(flags.bind_address.to_string(), "0.0.0.0");
        assert_eq!(flags.iptables_sync_period, Duration::from_secs(30));
        assert_eq!(flags.iptables_min_sync_period, Duration::from_secs(1));
        assert!(!flags.masquerade_all);
        assert!(flags.nodeport_addresses.is_empty());
    }

    #[test]
    fn flags_are_spelled_as_go_spells_them() {
        let cli = parse(
            "--masquerade-all --nodeport-addresses=10.0.0.0/8,fd00::/8 --v=2 \
             --nodeport-addresses 192.0.2.0/24 --cluster-cidr a --cluster-cidr=b",
        );
        let flags = cli.unwrap().flags;
        assert!(flags.masquerade_all);
        assert_eq!(
            flags.nodeport_addresses,
            ["10.0.0.0/8", "fd00::/8", "192.0.2.0/24"]
        );
        assert_eq!((flags.v, &*flags.cluster_cidr), (2, "b"));
        assert!(!parse("--masquerade-all=F").unwrap().flags.masquerade_all);
        assert_eq!(parse("-v 4").unwrap().flags.v, 4);
        assert!(parse("--masquerade-all=yes").is_err());
        assert!(parse("--iptables-sync-period 30").is_err());
    }

    #[test]
    fn commands_take_flags_on_both_sides() {
        for line in ["render --manifests m --v 4", "--manifests m -v4 render"] {
            let cli = parse(line).unwrap();
            assert_eq!(cli.command, Some(Command::Render));
            assert_eq!(cli.flags.manifests, Some(PathBuf::from("m")));
            assert_eq!(cli.flags.v, 4);
        }
        assert!(parse("render --oneshot").is_err());
        assert!(parse("serve").is_err());
    }
}
