//! Arguments of `explain`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use vipline_service_model::{ObjectName, Transport};

/// Examples in the help text.
const EXAMPLES: &str = "\
Examples:
  Why does this pod not reach the cluster IP?
    kube-proxy explain tcp 10.96.0.10:80 --from 10.244.1.11 --kubeconfig /etc/kubernetes/kube-proxy.conf
  Which addresses of a Service work, from where?
    kube-proxy explain service shop/front --kubeconfig /etc/kubernetes/kube-proxy.conf
  The same from a process of this node, as JSON:
    kube-proxy explain tcp 10.96.0.10:80 --from-node --output json --config /var/lib/kube-proxy/config.conf
  Away from the node, with its rules in a file:
    kube-proxy save-kernel > node-1.json
    kube-proxy explain udp 10.96.0.10:53 --kernel-dump node-1.json --manifests cluster.yaml";

/// Arguments of `explain`.
#[derive(Args, Clone, Debug, Eq, PartialEq)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// Protocol of the connection, or service
    #[arg(value_enum, ignore_case = true)]
    pub what: What,
    /// Destination as ADDRESS:PORT, or NAMESPACE/NAME of a Service
    #[arg(value_name = "DESTINATION")]
    pub destination: String,
    /// Source address: that of a pod, of this node or of another host
    #[arg(long, value_name = "ADDRESS", conflicts_with = "from_node")]
    pub from: Option<IpAddr>,
    /// The connection comes from a process of this node
    #[arg(long)]
    pub from_node: bool,
    /// Interface that receives the packet. Default: that to which the route to the source leads
    #[arg(long, value_name = "NAME", conflicts_with = "from_node")]
    pub interface: Option<String>,
    /// Also connect from this node to the TCP endpoints and to the address itself
    #[arg(long, conflicts_with_all = ["plan_only", "kernel_dump"])]
    pub probe: bool,
    /// Evaluate the plan alone, and do not read the kernel
    #[arg(long, conflicts_with = "kernel_dump")]
    pub plan_only: bool,
    /// File that save-kernel wrote, instead of the kernel of this node
    #[arg(long, value_name = "FILE")]
    pub kernel_dump: Option<PathBuf>,
    /// Format of the explanation
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Subject of an explanation.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum What {
    /// A TCP connection.
    Tcp,
    /// A UDP datagram.
    Udp,
    /// An SCTP association.
    Sctp,
    /// All addresses of a Service.
    Service,
}

/// Format of an explanation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// Human-readable lines, with color on a terminal.
    #[default]
    Text,
    /// One JSON object.
    Json,
    /// A graph in the language of Graphviz.
    Dot,
}

/// A parsed subject.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Subject {
    /// A connection to an address.
    Connection(Transport, SocketAddr),
    /// All addresses of a Service.
    Service(ObjectName),
}

impl ExplainArgs {
    /// Parses the subject.
    ///
    /// # Errors
    ///
    /// A sentence about the invalid argument.
    pub fn subject(&self) -> Result<Subject, String> {
        subject(self.what, &self.destination)
    }
}

/// Parses a subject from its two words.
///
/// # Errors
///
/// A sentence about the invalid word.
pub fn subject(what: What, destination: &str) -> Result<Subject, String> {
    let protocol = match what {
        What::Tcp => Transport::Tcp,
        What::Udp => Transport::Udp,
        What::Sctp => Transport::Sctp,
        What::Service => return service(destination).map(Subject::Service),
    };
    let destination: SocketAddr = destination.parse().map_err(|_| {
        format!("invalid destination {destination:?}: expected ADDRESS:PORT, such as 10.96.0.10:80 or [fd00::10]:80")
    })?;
    match destination.port() {
        0 => Err("invalid destination: port 0".to_owned()),
        _ => Ok(Subject::Connection(protocol, destination)),
    }
}

fn service(text: &str) -> Result<ObjectName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(ObjectName::new(namespace, name))
        }
        _ => Err(format!("invalid Service {text:?}: expected NAMESPACE/NAME")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_addresses_with_ports_or_names_of_services() {
        let web = ObjectName::new("shop", "web");
        assert_eq!(
            subject(What::Service, "shop/web"),
            Ok(Subject::Service(web))
        );
        let v6 = Subject::Connection(Transport::Udp, "[fd00::10]:53".parse().unwrap());
        assert_eq!(subject(What::Udp, "[fd00::10]:53"), Ok(v6));
        for (what, wrong) in [
            (What::Service, "web"),
            (What::Service, "/web"),
            (What::Tcp, "10.96.0.10"),
            (What::Tcp, "10.96.0.10:0"),
            (What::Sctp, "web:80"),
        ] {
            assert!(subject(what, wrong).is_err(), "{wrong}");
        }
    }
}
