//! Prints what a save of `iptables-save` does with packets, and which rules decide. Without
//! a kernel, privileges or traffic.
//!
//! Run it with `cargo run --example iptables SAVE`.
//! Change host and packets below to those of your own test.
#![allow(clippy::disallowed_methods, reason = "the program reads a file")]

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::{env, fs};

use vipline_evaluate::iptables::Rules;
use vipline_evaluate::{Host, Packet};
use vipline_iptables::{Family, Tables};

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: iptables SAVE")?;
    run(&fs::read_to_string(path)?, &mut io::stdout().lock())
}

/// Evaluates packets against an IPv4 save. Writes their outcomes to `out`.
pub(crate) fn run(saved: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let rules = Rules::new().with_save(&Tables::parse(saved)?, Family::V4)?;
    let evaluator = rules.evaluator();
    let host = Host::new()
        .with_addr("eth0", "192.0.2.1/24".parse()?)
        .with_addr("eth1", "10.0.0.1/24".parse()?)
        .with_route("0.0.0.0/0".parse()?, "eth0")
        .with_limits_exceeded(false);
    let end = |text: &str| text.parse::<SocketAddr>();
    let client = end("198.51.100.7:40000")?;
    let packets = [
        (
            "SSH from outside",
            Packet::tcp(client, end("192.0.2.1:22")?).with_input("eth0"),
        ),
        (
            "HTTP from outside",
            Packet::tcp(client, end("192.0.2.1:80")?).with_input("eth0"),
        ),
        ("a guest to the internet", {
            let packet = Packet::udp(end("10.0.0.5:5353")?, end("203.0.113.9:53")?);
            packet.with_input("eth1")
        }),
    ];
    for (question, packet) in packets {
        writeln!(out, "# {question}:")?;
        match evaluator.evaluate(&packet, &host) {
            Ok(outcomes) => outcomes
                .iter()
                .try_for_each(|outcome| writeln!(out, "{outcome}"))?,
            // The save or the host does not determine the outcome.
            Err(error) => writeln!(out, "{error}\n")?,
        }
    }
    Ok(())
}
