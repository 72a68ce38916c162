//! The configuration file.

use std::path::{Path, PathBuf};

use daemon::duration::GoDuration;
use serde::Deserialize;
use vipline_kube_source::manifests::fault::Fault;
use vipline_kube_source::manifests::{tree, typed};

use crate::cli::Cli;
use crate::failure::Failure;

/// The fields of the configuration file. Omitted fields have defaults.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Configuration {
    /// File or directory with objects. Empty: an API server.
    pub manifests: Option<PathBuf>,
    /// Access to the API server.
    pub client_connection: ClientConnection,
    /// Domain of the cluster. Commas separate further domains.
    pub zone: String,
    /// Time to live of records in seconds, at most 3600.
    pub ttl: u32,
    /// Records of pods.
    pub pods: Pods,
    /// Addresses to serve DNS on.
    pub listen: Vec<String>,
    /// EDNS buffer size: limit of responses over UDP in bytes, from 512 to 4096.
    pub udp_payload_size: u16,
    /// Number of threads that answer over UDP, at most 256. 0: one per processor.
    pub threads: u16,
    /// Limits of TCP.
    pub tcp: Tcp,
    /// Upstreams of names outside of the zone.
    pub forward: Forward,
    /// Domains with upstreams of their own.
    pub stubs: Vec<Stub>,
    /// The cache of upstreams' answers.
    pub cache: Cache,
    /// Use on a node, beside kube-proxy.
    pub node_local: NodeLocal,
    /// Address of `/metrics`, `/health` and `/ready`. Empty: none.
    pub metrics: String,
    /// Another address of the same pages. Empty: none.
    pub health: String,
    /// Another address of the same pages. Empty: none.
    pub ready: String,
    /// Time from SIGTERM to the end.
    pub lame_duck: GoDuration,
    /// Whether every query is logged.
    pub log_queries: bool,
    /// The log.
    pub logging: Logging,
}

/// Access to the API server.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ClientConnection {
    /// Kubeconfig. Empty: the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// Address of the API server, which replaces that of the kubeconfig.
    pub server: Option<String>,
}

/// Records of pods.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum Pods {
    /// No pod has a record.
    #[default]
    Disabled,
    /// Every address has a record.
    Insecure,
}

/// Limits of TCP.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Tcp {
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum number of connections of one client: of an IPv4 address, or of the /64 network
    /// of an IPv6 address.
    pub max_connections_per_client: usize,
    /// Time after which a connection without a request is closed.
    pub idle_timeout: GoDuration,
}

/// Upstreams of names outside of the zone.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Forward {
    /// Addresses, the path of a file like `resolv.conf`, or `none`. Empty:
    /// `/etc/resolv.conf`.
    pub to: Vec<String>,
    /// Order of the upstreams: `random`, `round_robin` or `sequential`.
    pub policy: Option<String>,
    /// Time to wait for one answer of one upstream.
    pub try_timeout: Option<GoDuration>,
    /// Rounds over all upstreams.
    pub attempts: Option<u32>,
    /// Maximum number of upstream queries at the same time. 0: unlimited.
    pub max_concurrent: Option<usize>,
    /// Consecutive failures after which an upstream counts as down. 0: never.
    pub max_fails: Option<u32>,
    /// Interval of health checks of a failed upstream.
    pub health_check: Option<GoDuration>,
    /// Whether queries use TCP only.
    pub force_tcp: bool,
}

/// A domain with upstreams of its own.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Stub {
    /// The domain.
    pub domain: String,
    /// Addresses of name servers.
    pub to: Vec<String>,
}

/// The cache of upstreams' answers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Cache {
    /// Maximum number of positive answers.
    pub success_capacity: Option<usize>,
    /// Maximum number of negative answers.
    pub denial_capacity: Option<usize>,
    /// Longest time to cache a positive answer.
    pub max_success_ttl: Option<GoDuration>,
    /// Longest time to cache a negative answer.
    pub max_denial_ttl: Option<GoDuration>,
    /// Hits that make a prefetch worthwhile. 0: none.
    pub prefetch_hits: Option<u32>,
    /// Time after the end of its TTL in which an answer serves if the upstreams fail. 0s:
    /// none.
    pub stale: Option<GoDuration>,
}

/// Use on a node, beside kube-proxy.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeLocal {
    /// Addresses of the interface. Empty: none.
    pub addresses: Vec<String>,
    /// Name of the interface.
    pub interface: Option<String>,
    /// Whether interface, addresses and rules stay at the end.
    pub keep: bool,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The log.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Logging {
    /// Format.
    pub format: LogFormat,
    /// Verbosity: 4 adds details, 6 adds those of libraries.
    pub verbosity: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            manifests: None,
            client_connection: ClientConnection::default(),
            zone: "cluster.local".to_owned(),
            ttl: 5,
            pods: Pods::default(),
            listen: Vec::new(),
            udp_payload_size: 1232,
            threads: 0,
            tcp: Tcp::default(),
            forward: Forward::default(),
            stubs: Vec::new(),
            cache: Cache::default(),
            node_local: NodeLocal::default(),
            metrics: "0.0.0.0:9153".to_owned(),
            health: String::new(),
            ready: String::new(),
            lame_duck: GoDuration::from_secs(5),
            log_queries: false,
            logging: Logging::default(),
        }
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_client: 1_000,
            idle_timeout: GoDuration::from_secs(10),
        }
    }
}

impl Configuration {
    /// Reads the file of a command line, and applies the flags.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] if the file or a flag is invalid, with file and line.
    pub fn load(cli: &Cli) -> Result<Self, Failure> {
        let mut configuration = match &cli.config {
            Some(path) => Self::read(path)?,
            None => Self::default(),
        };
        configuration.apply(cli)?;
        Ok(configuration)
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let file = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::input(format_args!("{file}: {error}")))?;
        Self::parse(&text).map_err(|fault| {
            let at = match fault.at.line {
                0 => String::new(),
                line => format!("{line}:{}: ", fault.at.column),
            };
            let field = match &*fault.path {
                "" => String::new(),
                path => format!("{path}: "),
            };
            Failure::input(format_args!("{file}:{at}{field}{}", fault.reason))
        })
    }

    /// Parses a file.
    ///
    /// # Errors
    ///
    /// The position and the reason if the text is not YAML, or a field is unknown or has
    /// the wrong type.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let documents = tree::read(text)?;
        match &documents[..] {
            [] => Ok(Self::default()),
            [document] => typed::read(document),
            [_, second, ..] => Err(Fault::new(second.at, "", "expected a single document")),
        }
    }

    /// Replaces fields by flags that are set.
    fn apply(&mut self, cli: &Cli) -> Result<(), Failure> {
        if cli.manifests.is_some() {
            self.manifests.clone_from(&cli.manifests);
        } else if cli.kubeconfig.is_some() || cli.master.is_some() {
            self.manifests = None;
        }
        set_option(&mut self.client_connection.kubeconfig, &cli.kubeconfig);
        set_option(&mut self.client_connection.server, &cli.master);
        set_option(&mut self.node_local.interface, &cli.node_local_interface);
        set(&mut self.zone, &cli.zone);
        set(&mut self.ttl, &cli.ttl);
        set(&mut self.metrics, &cli.metrics);
        set(&mut self.health, &cli.health);
        set(&mut self.ready, &cli.ready);
        set(&mut self.lame_duck, &cli.lame_duck);
        set(&mut self.threads, &cli.threads);
        set(&mut self.logging.verbosity, &cli.v);
        self.log_queries |= cli.log_queries;
        for (field, flag) in [
            (&mut self.listen, &cli.listen),
            (&mut self.forward.to, &cli.forward),
            (&mut self.node_local.addresses, &cli.node_local),
        ] {
            if !flag.is_empty() {
                field.clone_from(flag);
            }
        }
        for stub in &cli.stub {
            let (domain, to) = stub.split_once('=').ok_or_else(|| {
                Failure::input(format_args!("--stub {stub}: must be DOMAIN=ADDRESS"))
            })?;
            self.stubs.push(Stub {
                domain: domain.to_owned(),
                to: to.split(',').map(str::to_owned).collect(),
            });
        }
        match cli.pods.as_deref() {
            None => {}
            Some("disabled") => self.pods = Pods::Disabled,
            Some("insecure") => self.pods = Pods::Insecure,
            Some(other) => {
                let reason = "must be disabled or insecure";
                return Err(Failure::input(format_args!("--pods {other}: {reason}")));
            }
        }
        match cli.logging_format.as_deref() {
            None => {}
            Some("text") => self.logging.format = LogFormat::Text,
            Some("json") => self.logging.format = LogFormat::Json,
            Some(other) => {
                let reason = "must be text or json";
                return Err(Failure::input(format_args!(
                    "--logging-format {other}: {reason}"
                )));
            }
        }
        Ok(())
    }
}

fn set<T: Clone>(field: &mut T, flag: &Option<T>) {
    if let Some(value) = flag {
        field.clone_from(value);
    }
}

fn set_option<T: Clone>(field: &mut Option<T>, flag: &Option<T>) {
    if flag.is_some() {
        field.clone_from(flag);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn flags_replace_fields_of_the_file() {
        let text = "zone: a.example\nttl: 30\nlisten: ['127.0.0.1:53']\nlameDuck: 1m\n\
                    stubs:\n- {domain: x.example, to: [192.0.2.1]}\n";
        let mut configuration = Configuration::parse(text).unwrap();
        let line = "cluster-dns --ttl 7 --listen 127.0.0.2:53 --stub y.example=192.0.2.2";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        configuration.apply(&cli).unwrap();
        assert_eq!(configuration.zone, "a.example");
        assert_eq!(configuration.ttl, 7);
        assert_eq!(configuration.listen, ["127.0.0.2:53"]);
        assert_eq!(configuration.lame_duck, GoDuration::from_secs(60));
        let domains: Vec<_> = configuration
            .stubs
            .iter()
            .map(|stub| &*stub.domain)
            .collect();
        assert_eq!(domains, ["x.example", "y.example"]);
    }

    #[test]
    fn an_empty_file_has_the_defaults() {
        assert_eq!(Configuration::parse("").unwrap(), Configuration::default());
    }

    #[test]
    fn every_field_of_the_file_is_read() {
        let text = "manifests: /m\nclientConnection: {kubeconfig: /k, server: 'https://a'}\n\
                    zone: a.example\nttl: 7\npods: insecure\nlisten: ['127.0.0.1:53']\n\
                    udpPayloadSize: 1400\nthreads: 3\ntcp: {maxConnections: 9, maxConnectionsPerClient: 8, idleTimeout: 4s}\n\
                    forward: {to: [192.0.2.1], policy: sequential, tryTimeout: 1s, attempts: 3, \
                    maxConcurrent: 5, maxFails: 6, healthCheck: 2s, forceTcp: true}\n\
                    stubs: [{domain: x.example, to: [192.0.2.2]}]\n\
                    cache: {successCapacity: 1, denialCapacity: 2, maxSuccessTtl: 3s, \
                    maxDenialTtl: 4s, prefetchHits: 5, stale: 6s}\n\
                    nodeLocal: {addresses: [169.254.20.10], interface: lo, keep: true}\n\
                    metrics: ''\nhealth: '127.0.0.1:1'\nready: '127.0.0.1:2'\nlameDuck: 3s\n\
                    logQueries: true\nlogging: {format: json, verbosity: 4}\n";
        let configuration = Configuration::parse(text).unwrap();
        let shown = format!("{configuration:#?}");
        let default = format!("{:#?}", Configuration::default());
        let same: Vec<_> = default
            .lines()
            .filter(|line| line.starts_with("    ") && line.ends_with(',') && line.contains(": "))
            .filter(|line| shown.lines().any(|other| other == *line))
            .collect();
        assert_eq!(same, [""; 0], "fields with their defaults");
        assert_eq!(configuration.pods, Pods::Insecure);
        assert_eq!(configuration.logging.format, LogFormat::Json);
    }

    #[test]
    fn the_file_in_the_readme_has_the_defaults() {
        let readme = include_str!("../../README.md");
        let (_, file) = readme.split_once("```yaml\n").unwrap();
        let (file, _) = file.split_once("```").unwrap();
        assert_eq!(
            Configuration::parse(file).unwrap(),
            Configuration::default()
        );
    }

    #[test]
    fn errors_have_a_position() {
        for (text, line, words) in [
            ("zone: a\nttl: long\n", 2, "ttl"),
            ("zone: a\ncache:\n  sucess: 1\n", 3, "sucess"),
            ("lameDuck: 5\n", 1, "lameDuck"),
            ("pods: verified\n", 1, "expected `disabled` or `insecure`"),
            ("logging:\n  format: xml\n", 2, "expected `text` or `json`"),
            ("zone: [\n", 1, ""),
        ] {
            let fault = Configuration::parse(text).unwrap_err();
            let shown = format!("{}: {}", fault.path, fault.reason);
            assert_eq!(fault.at.line, line, "{text:?}: {shown}");
            assert!(shown.contains(words), "{shown}");
        }
    }
}
