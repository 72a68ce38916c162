//! Tests of the examples `ipam` and `three-processes`.

use std::env;
use std::process::Command;

use clap::Parser;

use crate::ipam::{Arguments, run};
use crate::server::{ADDRESS, Server, random};
use crate::three_processes;

/// Runs a command. Returns its output and its error.
fn ipam(line: &str) -> (String, String) {
    let line = ["ipam"].into_iter().chain(line.split_whitespace());
    let mut output = Vec::new();
    let outcome = match Arguments::try_parse_from(line) {
        Ok(arguments) => {
            run(arguments, &mut output, random(1)).map_err(|error| format!("{error:#}"))
        }
        Err(error) => Err(error.to_string()),
    };
    let output = String::from_utf8(output).unwrap();
    (output, outcome.err().unwrap_or_default())
}

#[test]
fn the_demonstration_shows_bands_and_owners() {
    let (output, error) = ipam("demo");
    assert_eq!(error, "");
    for part in [
        "allocate --for default/web\n10.0.0.23\n",
        "error: 10.0.0.10 is already allocated\n",
        "error: 10.0.0.10 belongs to kube-system/dns\n",
        "error: 10.0.0.0/27: range is full\n",
        "\nRANGE        BAND   FROM       TO         ITEMS  USED  FREE  %\n\
         10.0.0.0/27  lower  10.0.0.1   10.0.0.16  16     2     14    12.5\n\
         10.0.0.0/27  upper  10.0.0.17  10.0.0.30  14     13    1     92.9\n\
         \n\
         ITEM       SERVICE\n\
         10.0.0.1   default/kubernetes\n",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(output.ends_with("and 11 more\n"), "{output}");
}

#[test]
fn allocations_in_etcd_are_visible_to_later_commands() {
    let server = Server::start();
    let ports = |line: &str| {
        let line = format!("--etcd http://{ADDRESS} --range 30000-32767 {line}");
        server.inside(|| ipam(&line))
    };
    let is_empty = "RANGE        BAND   FROM   TO     ITEMS  USED  FREE  %\n\
         30000-32767  lower  30000  30085  86     0     86    0.0\n\
         30000-32767  upper  30086  32767  2682   0     2682  0.0\n";
    assert_eq!(ports("show"), (is_empty.into(), String::new()));
    let key = "/registry/ranges/servicenodeports";
    let refused = format!("{key} is not initialized: a repair pass is required first");
    assert_eq!(ports("reserve 30001 --for default/web").1, refused);
    let written = format!("{key} is not initialized; written by repair\n");
    assert_eq!(ports("initialize"), (written, String::new()));
    let error = ports("initialize").1;
    assert_eq!(error, "30000-32767 is initialized already");
    let reserved = ports("reserve 30001 --for default/web");
    assert_eq!(reserved, ("30001\n".into(), String::new()));
    let (allocated, error) = ports("allocate --for default/web --count 2");
    assert_eq!((allocated.lines().count(), &*error), (2, ""));
    let (shown, _) = ports("show --limit 1");
    assert!(
        shown.ends_with("\nITEM   SERVICE\n30001  ?\nand 2 more\n"),
        "{shown}"
    );
    assert!(
        server.get("/registry/ranges/servicenodeports").is_some(),
        "that is where Kubernetes has them"
    );
    assert_eq!(ports("release 30001 --for default/web").1, "");
    assert_eq!(ports("release 30001").1, "30001 is not allocated");
    let line = format!("--etcd http://{ADDRESS} --range 30000-30999 --key {key} initialize");
    let (_, error) = server.inside(|| ipam(&line));
    assert!(error.contains("has the range 30000-32767"), "{error}");
    let error = ports("--key /registry/ranges/servicenodeports --range 30000-30999 show").1;
    assert_eq!(error, "a key of etcd has exactly one range");
}

#[test]
fn errors_are_reported() {
    for (line, words) in [
        ("", "Usage: ipam"),
        ("allocate", "--for <SERVICE>"),
        ("allocate --for web", "a Service is NAMESPACE/NAME"),
        ("--range 10.0.0.5/24 show", "the network is 10.0.0.0/24"),
        ("--range 10.0.0.0/33 show", "is not a network"),
        ("--range 32767-30000 show", "ports 32767-30000"),
        ("--range 1-2 --range 3-4 show", "must be one range of ports"),
        ("release 10.0.0.1", "10.0.0.1 is not allocated"),
        ("repair", "only a cluster of Kubernetes"),
        ("initialize", "10.0.0.0/24 is initialized already"),
        (
            "--kubernetes --range 10.0.0.0/24 show",
            "cannot be used with",
        ),
        ("reserve web --for a/b", "\"web\" is not a valid item"),
        ("reserve 10.1.0.1 --for a/b", "is not in the valid range"),
        ("--etcd http://127.0.0.1:1 show", "io: Connection refused"),
        (
            "--etcd https://127.0.0.1:1 show",
            "https requires a CA certificate",
        ),
        ("--etcd a --cert b show", "--cert-key"),
        (
            "--etcd http://a --range fd00::/64 show",
            "must be /108 or longer",
        ),
        ("--etcd http://a --ca /no/such.pem show", "/no/such.pem: "),
    ] {
        let (output, error) = ipam(line);
        assert!(error.contains(words), "{line}: {error}");
        assert_eq!(output, "", "{line}");
    }
    let (output, _) = ipam("--range 10.0.0.0/28 --range 10.0.0.0/24 show");
    let bands: Vec<&str> = output.lines().skip(1).collect();
    assert_eq!(bands.len(), 3, "the smaller has one: {output}");
}

#[test]
fn three_processes_allocate_different_addresses() {
    /// Environment variable of a process that allocates.
    const ENDPOINT: &str = "VIPLINE_TEST_ENDPOINT";
    if let Ok(endpoint) = env::var(ENDPOINT) {
        // The name of the test may be on the same line.
        println!();
        return three_processes::allocate(&endpoint).unwrap();
    }
    let server = Server::start();
    let endpoint = format!("http://{ADDRESS}");
    let start = || {
        let mut command = Command::new(env::current_exe().unwrap());
        let test = "shell::three_processes_allocate_different_addresses";
        command.args(["--exact", test, "--nocapture"]);
        command.env(ENDPOINT, &endpoint);
        command
    };
    let summary = server.inside(|| three_processes::allocate_in_processes(&endpoint, start));
    assert_eq!(
        summary.unwrap(),
        "3 processes allocated 30 addresses, 30 of them different; repair released 30"
    );
}
