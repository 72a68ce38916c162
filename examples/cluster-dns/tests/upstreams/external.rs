//! Real upstream name servers.

use std::process::Command;

use testkit::netns::Netns;
use testkit::scoped::Process;

/// Starts dnsmasq at 127.0.0.21 with records below `example`, and with further arguments.
pub(crate) fn dnsmasq(netns: &Netns, addresses: &[String]) -> Process {
    let mut command = Command::new("dnsmasq");
    command
        .args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
        ])
        .args([
            "--user=root",
            "--group=root",
            "--pid-file=",
            "--log-facility=-",
        ])
        .args([
            "--bind-interfaces",
            "--listen-address=127.0.0.21",
            "--local=/example/",
        ])
        .args(["--edns-packet-max=4096", "--local-ttl=60", "--auth-ttl=60"])
        .arg("--host-record=a.example,192.0.2.1,2001:db8::1")
        .arg("--cname=alias.example,a.example")
        .arg("--srv-host=_http._tcp.example,a.example,80,1,2")
        .arg("--mx-host=example,a.example,10")
        .arg("--ptr-record=1.2.0.192.in-addr.arpa,a.example")
        .arg(format!(
            "--txt-record=large.example,{}",
            vec!["x".repeat(250); 12].join(",")
        ))
        .args(addresses);
    Process::start(netns, &mut command).unwrap()
}
