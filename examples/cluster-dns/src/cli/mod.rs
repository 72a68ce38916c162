//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use daemon::duration::GoDuration;

/// Examples in the help text.
const EXAMPLES: &str = "\
Examples:
  Serve the names of a cluster, and forward all others to the resolvers of this host:
    cluster-dns --kubeconfig /etc/kubernetes/admin.conf --listen 127.0.0.1:5353
  Try the names of Services in a folder, without a cluster:
    cluster-dns --manifests examples/kube-proxy/demo --listen 127.0.0.1:5353 --forward none
    dig @127.0.0.1 -p 5353 front.shop.svc.cluster.local
  Serve the pods of this node at an address of its own, with another server for one domain:
    cluster-dns --node-local 169.254.20.10 --stub corp.example=10.0.0.53
  Remove what a killed process with --node-local left:
    cluster-dns cleanup";

/// Answer DNS queries for Kubernetes Services, and forward all others
///
/// Objects come from manifests, from the API server of a kubeconfig or of --master, or
/// otherwise from the API server of the pod's service account. Flags replace the fields of
/// the configuration file. SIGUSR1 switches the query log on and off,
/// and SIGUSR2 empties the cache of the upstreams' answers.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "cluster-dns", version, after_help = EXAMPLES)]
pub struct Cli {
    /// Configuration file, in YAML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// File or directory with Services and EndpointSlices, which is watched
    #[arg(long, value_name = "PATH", conflicts_with_all = ["kubeconfig", "master"])]
    pub manifests: Option<PathBuf>,
    /// Kubeconfig with address and credentials of the API server
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of the API server; replaces that of the kubeconfig
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,
    /// Domain of the cluster; several are separated by commas, and the first one is the name
    /// that addresses lead to [default: cluster.local]
    #[arg(long, value_name = "DOMAIN[,DOMAIN]")]
    pub zone: Option<String>,
    /// Time to live of records in seconds [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=3600))]
    pub ttl: Option<u32>,
    /// Records of pods by their dashed addresses: disabled, insecure [default: disabled]
    #[arg(long, value_name = "MODE")]
    pub pods: Option<String>,
    /// Addresses to serve DNS on, over UDP and TCP [default: port 53 of 0.0.0.0 and ::]
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',')]
    pub listen: Vec<String>,
    /// Upstreams of all other names: addresses, a file like resolv.conf, or none
    /// [default: /etc/resolv.conf]
    #[arg(long, value_name = "ADDRESS[:PORT]|FILE|none", value_delimiter = ',')]
    pub forward: Vec<String>,
    /// Upstreams of a domain of their own
    #[arg(long, value_name = "DOMAIN=ADDRESS[,ADDRESS]")]
    pub stub: Vec<String>,
    /// Addresses of an interface of this node to serve on, without connection tracking
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub node_local: Vec<String>,
    /// Interface of the node-local addresses, created if it does not exist
    /// [default: nodelocaldns]
    #[arg(long, value_name = "NAME", requires = "node_local")]
    pub node_local_interface: Option<String>,
    /// Address of /metrics, /health and /ready; empty: none [default: 0.0.0.0:9153]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<String>,
    /// Another address of /health, /ready and /metrics, such as 0.0.0.0:8080
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub health: Option<String>,
    /// Another address of /ready, /health and /metrics, such as 0.0.0.0:8181
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub ready: Option<String>,
    /// Time from SIGTERM to the end, in which /ready fails and queries are answered
    /// [default: 5s]
    #[arg(long, value_name = "DURATION")]
    pub lame_duck: Option<GoDuration>,
    /// Log every query, in CoreDNS' format
    #[arg(long)]
    pub log_queries: bool,
    /// Format of the log: text, json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub logging_format: Option<String>,
    /// Verbosity of the log: 4 adds details, 6 adds those of libraries [default: 0]
    #[arg(short, long, value_name = "LEVEL")]
    pub v: Option<u32>,
    /// Threads that answer over UDP [default: one per processor]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// A task other than to answer queries
    #[command(subcommand)]
    pub task: Option<Task>,
}

/// A task other than to answer queries.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Subcommand)]
pub enum Task {
    /// Remove the node-local interface, addresses and rules that a killed process left
    Cleanup,
}

impl Cli {
    /// Parses the command line of this process. Ends the process if it is
    /// invalid.
    pub fn read() -> Self {
        Self::parse()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_examples_of_the_help_are_valid() {
        let text = Cli::command().render_help().to_string();
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| line.starts_with("cluster-dns "));
        let examples: Vec<_> = lines.map(str::split_whitespace).collect();
        assert_eq!(examples.len(), 4);
        for words in examples {
            Cli::try_parse_from(words).unwrap();
        }
    }

    #[test]
    fn flag_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_are_repeated_or_separated_by_commas() {
        let line = "cluster-dns --listen 127.0.0.1:53,[::1]:53 --listen 10.0.0.1:53 \
                    --forward 192.0.2.1,192.0.2.2:5353 --stub a.example=192.0.2.3,192.0.2.4 \
                    --stub b.example=192.0.2.5 --lame-duck 1m --v=4";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!(cli.listen, ["127.0.0.1:53", "[::1]:53", "10.0.0.1:53"]);
        assert_eq!(cli.forward, ["192.0.2.1", "192.0.2.2:5353"]);
        assert_eq!(
            cli.stub,
            ["a.example=192.0.2.3,192.0.2.4", "b.example=192.0.2.5"]
        );
        assert_eq!(cli.lame_duck, Some(GoDuration::from_secs(60)));
    }

    #[test]
    fn manifests_exclude_an_api_server() {
        for line in [
            "cluster-dns --manifests a --kubeconfig b",
            "cluster-dns --manifests a --master b",
            "cluster-dns --ttl 3601",
            "cluster-dns --threads 0",
            "cluster-dns --lame-duck 5",
            "cluster-dns word",
        ] {
            let read = Cli::try_parse_from(line.split_whitespace());
            assert!(read.is_err(), "{line}");
        }
    }
}
