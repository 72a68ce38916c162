//! Runs the examples and compares their output.
#![allow(clippy::unwrap_used, reason = "a test")]

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/nftables.rs"]
mod nftables;

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../examples/iptables.rs"]
mod iptables;

#[test]
fn outcomes_have_the_rules_and_elements_that_decide() {
    let mut out = Vec::new();
    nftables::run(&mut out).unwrap();
    let output = String::from_utf8(out).unwrap();
    assert_eq!(output, include_str!("examples/nftables.txt"));
}

#[test]
fn the_rules_of_a_save_decide_about_packets() {
    let saved = "\
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:WEB - [0:0]
-A PREROUTING -i eth0 -p tcp -m tcp --dport 80 -j WEB
-A POSTROUTING -o eth0 -j MASQUERADE
-A WEB -p tcp -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.8:8080
-A WEB -p tcp -j DNAT --to-destination 10.0.0.9:8080
COMMIT
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -m set ! --match-set banned src -j ACCEPT
COMMIT
";
    let mut out = Vec::new();
    iptables::run(saved, &mut out).unwrap();
    let output = String::from_utf8(out).unwrap();
    assert_eq!(output, include_str!("examples/iptables.txt"));
}
