//! Tests of the example `ipam` with a cluster.

use clap::Parser;

use crate::cluster::{Cluster, address, service};
use crate::ipam::{Arguments, run};

impl Cluster {
    /// Runs a command. Returns its output and its error.
    fn ipam(&self, line: &str) -> (String, String) {
        let kubeconfig = self.kubeconfig();
        let line = format!(
            "ipam --kubernetes --kubeconfig {} {line}",
            kubeconfig.display()
        );
        let mut output = Vec::new();
        let outcome = match Arguments::try_parse_from(line.split_whitespace()) {
            Ok(arguments) => run(arguments, &mut output, || 0),
            Err(error) => Err(error.into()),
        };
        let error = outcome.err().map(|error| format!("{error:#}"));
        (
            String::from_utf8(output).unwrap(),
            error.unwrap_or_default(),
        )
    }
}

#[test]
fn addresses_are_allocated_shown_and_released() {
    let cluster = Cluster::with(&["10.0.0.0/27", "fd00::/124"]);
    let printed = |text: &str| (text.to_owned(), String::new());
    let reserved = cluster.ipam("reserve 10.0.0.1 --for default/kubernetes");
    assert_eq!(reserved, printed("10.0.0.1\n"));
    let allocated = cluster.ipam("allocate --for default/web");
    assert_eq!(allocated, printed("10.0.0.17\n"));
    let allocated = cluster.ipam("--ipv6 allocate --for default/web");
    assert_eq!(allocated, printed("fd00::1\n"));
    assert_eq!(
        cluster.ipam("show --limit 1"),
        printed(
            "RANGE                     BAND   FROM       TO         ITEMS  USED  FREE  %\n\
             10.0.0.0/27 (kubernetes)  lower  10.0.0.1   10.0.0.16  16     1     15    6.2\n\
             10.0.0.0/27 (kubernetes)  upper  10.0.0.17  10.0.0.30  14     1     13    7.1\n\
             \n\
             ITEM      SERVICE\n\
             10.0.0.1  default/kubernetes\n\
             and 1 more\n"
        )
    );
    let taken = cluster.ipam("release 10.0.0.1 --for default/web");
    assert_eq!(taken.1, "10.0.0.1 belongs to default/kubernetes");
    let freed = cluster.ipam("release 10.0.0.17 --for default/web");
    assert_eq!(freed, printed(""));
    let missing = cluster.ipam("release 10.0.0.17 --for default/web");
    assert_eq!(missing.1, "10.0.0.17 is not allocated");
    assert!(
        cluster
            .ipam("allocate --for web")
            .1
            .contains("NAMESPACE/NAME")
    );
}

#[test]
fn findings_of_repair_are_printed() {
    let cluster = Cluster::with(&["10.0.0.0/27"]);
    cluster.server.apply(service("web", &["10.0.0.1"]));
    let (printed, error) = cluster.ipam("repair");
    assert_eq!(
        printed,
        "ClusterIPNotAllocated: Service default/web: 10.0.0.1 is not allocated; allocating it\n"
    );
    assert_eq!(error, "");
    cluster.server.apply(address("web", "web"));
    let (printed, error) = cluster.ipam("repair");
    assert_eq!(error, "");
    assert_eq!(
        printed,
        "Unreadable: IPAddress web cannot be read: missing an address as name; ignored\n"
    );
    let (printed, error) = cluster.ipam("show");
    assert_eq!(error, "");
    assert!(printed.ends_with("10.0.0.1  default/web\n"), "{printed}");
}
