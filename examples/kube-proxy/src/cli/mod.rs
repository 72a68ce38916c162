//! The command line, compatible with upstream's.

mod explain;

mod flags;

mod value;

use std::ffi::OsString;

use clap::{Parser, Subcommand, ValueEnum};

pub use explain::{ExplainArgs, Format, Subject, What, subject};
pub use flags::{Flags, KernelspaceFlags, LogFlags, UnusedFlags};
pub(crate) use value::split_port;

use crate::version::Version;

/// Examples in the help text.
const EXAMPLES: &str = "\
Examples:
  Serve the Services of a cluster, in mode nftables:
    kube-proxy --kubeconfig /etc/kubernetes/kube-proxy.conf --proxy-mode nftables
  Print the rules for the Services in a folder, without privileges:
    kube-proxy render --manifests examples/kube-proxy/demo --proxy-mode nftables
  Compare the rules of this node with the objects of the cluster:
    kube-proxy diff --config /var/lib/kube-proxy/config.conf
  Explain why a pod does not reach an address:
    kube-proxy explain tcp 10.96.0.10:80 --from 10.244.1.11 --config /var/lib/kube-proxy/config.conf
  Show what a removal of all rules would do, then remove them:
    kube-proxy --cleanup --dry-run
    kube-proxy --cleanup";

/// Program the kernel so that Services are reachable
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kube-proxy",
    args_override_self = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES
)]
pub struct Cli {
    /// Command to run instead of the proxy.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of all commands.
    #[command(flatten)]
    pub flags: Flags,
    /// Remove the rules of all modes, then exit
    #[arg(long, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_value = "false",
        default_missing_value = "true",
        hide_default_value = true
    )]
    pub cleanup: bool,
    /// With --cleanup: print the commands that would remove the rules
    #[arg(long, requires = "cleanup", value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_value = "false",
        default_missing_value = "true",
        hide_default_value = true
    )]
    pub dry_run: bool,
    /// Do the steps that need more privileges than CAP_NET_ADMIN, then exit
    #[arg(long, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_value = "false",
        default_missing_value = "true",
        hide_default_value = true
    )]
    pub init_only: bool,
    /// Sync once, print a report, then exit: code 0 if the kernel equals the
    /// plan
    #[arg(long, value_parser = value::switch, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_value = "false",
        default_missing_value = "true",
        hide_default_value = true
    )]
    pub oneshot: bool,
    /// Format of the report
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Print the version, then exit; raw: print all build information;
    /// vX.Y.Z...: report this version
    #[arg(short = 'V', long, value_parser = value::version, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_value = "false",
        default_missing_value = "true",
        hide_default_value = true
    )]
    pub version: Version,
}

/// A command to run instead of the proxy.
#[derive(Clone, Debug, Eq, PartialEq, Subcommand)]
pub enum Command {
    /// Print the plan as input of `nft -f`, `iptables-restore --noflush` or the
    /// programs of mode ipvs, or as HNS documents of mode kernelspace
    Render,
    /// Print the differences between kernel and plan: exit code 0 if none, 1
    /// if any, 2 after an error, 3 if only rejected objects differ
    Diff,
    /// Explain why a connection or a Service works or does not: exit code 0 if
    /// reachable, 1 if not, 2 after an error or if rules cannot be evaluated
    Explain(ExplainArgs),
    /// Print addresses, routes and the state of all modes on this node, for explain
    /// --kernel-dump
    SaveKernel,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// Human-readable lines.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

impl Cli {
    /// Parses the command line of this process. Ends the process if it is
    /// invalid.
    pub fn read() -> Self {
        Self::parse_from(std::env::args_os().map(dashed))
    }

    /// Returns an error message if exclusive flags are combined.
    pub fn conflict(&self) -> Option<String> {
        let exclusive = [
            ("--cleanup", self.cleanup),
            ("--init-only", self.init_only),
            ("--oneshot", self.oneshot),
            ("--write-config-to", self.flags.write_config_to.is_some()),
        ];
        let mut exclusive = exclusive.iter().filter(|(_, is_set)| *is_set);
        let (first, _) = exclusive.next()?;
        match (&self.command, exclusive.next()) {
            (Some(_), _) => Some(format!("{first} cannot be used with a command")),
            (None, Some((second, _))) => Some(format!("{first} cannot be used with {second}")),
            (None, None) => None,
        }
    }
}

/// Replaces underscores in the name of a flag by dashes.
fn dashed(argument: OsString) -> OsString {
    let Some(flag) = argument.to_str().filter(|text| text.starts_with("--")) else {
        return argument;
    };
    match flag.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
        None => flag.replace('_', "-").into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use proxy_core::IptablesBackend;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["kube-proxy"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn flag_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_examples_of_the_help_are_valid() {
        let mut command = Cli::command();
        let explain = command.find_subcommand_mut("explain").unwrap();
        let texts = [explain.render_help(), Cli::command().render_help()];
        let mut count = 0;
        for text in texts.map(|text| text.to_string()) {
            let lines = text.lines().map(str::trim);
            for line in lines.filter_map(|line| line.strip_prefix("kube-proxy ")) {
                let arguments = line.split(" > ").next().unwrap();
                let cli = parse(arguments).unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(cli.conflict(), None, "{line}");
                if let Some(Command::Explain(explain)) = cli.command {
                    explain.subject().unwrap();
                }
                count += 1;
            }
        }
        assert_eq!(count, 11);
    }

    #[test]
    fn omitted_flags_have_no_value() {
        let cli = parse("").unwrap();
        assert_eq!(
            (cli.command, cli.oneshot, cli.output),
            (None, false, Output::Text)
        );
        assert!(!cli.cleanup && !cli.dry_run && !cli.init_only);
        assert_eq!(cli.version, Version::Off);
        let flags = cli.flags;
        assert_eq!((flags.proxy_mode, flags.masquerade_all), (None, None));
        assert!(flags.nodeport_addresses.is_empty());
    }

    #[test]
    fn flags_are_parsed_as_in_go() {
        let cli = parse(
            "--masquerade-all --nodeport-addresses=10.0.0.0/8,fd00::/8 --v=2 \
             --nodeport-addresses 192.0.2.0/24 --cluster-cidr a --cluster-cidr=b \
             --oom-score-adj -5 --config-sync-period -1s --feature-gates A=true,B=0",
        );
        let flags = cli.unwrap().flags;
        assert_eq!(flags.masquerade_all, Some(true));
        assert_eq!(
            flags.nodeport_addresses,
            ["10.0.0.0/8", "fd00::/8", "192.0.2.0/24"]
        );
        assert_eq!(
            (flags.log.v, flags.cluster_cidr.as_deref()),
            (Some(2), Some("b"))
        );
        assert_eq!(flags.oom_score_adj, Some(-5));
        assert_eq!(
            flags.feature_gates,
            [Some(("A".into(), true)), Some(("B".into(), false))]
        );
        let off = parse("--masquerade-all=F").unwrap().flags;
        assert_eq!(off.masquerade_all, Some(false));
        assert_eq!(parse("-v 4").unwrap().flags.log.v, Some(4));
        let netlink = parse("--iptables-backend=netlink").unwrap().flags;
        assert_eq!(netlink.iptables_backend, Some(IptablesBackend::Netlink));
        for wrong in [
            "--masquerade-all=yes",
            "--iptables-sync-period 30",
            "--bind-address here",
            "--healthz-bind-address 1.2.3.4:http",
            "--feature-gates A",
            "--iptables-backend=nft",
            "--dry-run",
            "--version=1.36.2",
            "--version=v1.35.0",
            "words",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn exclusive_flags_cannot_be_combined() {
        for (line, expected) in [
            ("", None),
            ("render", None),
            ("--cleanup --dry-run", None),
            (
                "--cleanup render",
                Some("--cleanup cannot be used with a command"),
            ),
            (
                "diff --write-config-to x",
                Some("--write-config-to cannot be used with a command"),
            ),
            (
                "--oneshot --init-only",
                Some("--init-only cannot be used with --oneshot"),
            ),
        ] {
            assert_eq!(
                parse(line).unwrap().conflict().as_deref(),
                expected,
                "{line}"
            );
        }
    }

    #[test]
    fn underscores_in_flag_names_are_dashes() {
        for (argument, expected) in [
            ("--proxy_mode=a_b", "--proxy-mode=a_b"),
            ("--proxy_mode", "--proxy-mode"),
            ("a_b", "a_b"),
        ] {
            assert_eq!(dashed(argument.into()), expected);
        }
    }

    #[test]
    fn flags_may_precede_or_follow_a_command() {
        for line in ["render --manifests m --v 4", "--manifests m -v4 render"] {
            let cli = parse(line).unwrap();
            assert_eq!(cli.command, Some(Command::Render));
            assert_eq!(cli.flags.manifests, Some("m".into()));
            assert_eq!(cli.flags.log.v, Some(4));
        }
        assert!(parse("render --oneshot").is_err());
        assert!(parse("serve").is_err());
    }
}
