//! Recorded messages of nft, compared with the encoder.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use testkit::netns::Netns;
use vipline_netlink::attr::Attrs;
use vipline_netlink::message::Messages;
use vipline_nftables::expr::Expr;
use vipline_nftables::{
    Assembler, Chain, Family, Name, Object, Rule, Ruleset, TableId, Transaction,
};
use vipline_reconcile::Edit;

/// A table for all recorded rules.
const TABLE: &str = "table ip t {
    counter hits { }
    set addrs { type ipv4_addr; }
    set learned { type ipv4_addr; flags dynamic,timeout; timeout 1m; }
    map backends { type ipv4_addr . inet_service : ipv4_addr . inet_service; }
    chain target { }
    chain c { }
}";

/// The recorded rules per expression. The capture file has the expression's name.
const RULES: [(&str, &[&str]); 34] = [
    (
        "bitwise",
        &[
            "meta mark & 0x4000 != 0 drop",
            "meta mark set meta mark | 0x4000",
        ],
    ),
    ("byteorder", &["meta mark 1-5 drop"]),
    (
        "cmp",
        &[
            "ip saddr 10.0.0.1 drop",
            "iifname != \"veth*\" drop",
            "tcp dport >= 1024 drop",
        ],
    ),
    ("connlimit", &["ct count 20", "ct count over 20"]),
    ("counter", &["counter", "counter packets 5 bytes 300"]),
    (
        "ct",
        &[
            "ct state new",
            "ct original ip daddr 10.0.0.1",
            "ct mark set 5",
        ],
    ),
    ("dup", &["dup to 10.0.0.1", "dup to 10.0.0.1 device \"lo\""]),
    (
        "dynset",
        &[
            "update @learned { ip saddr timeout 10s }",
            "add @learned { ip saddr }",
        ],
    ),
    (
        "exthdr",
        &[
            "tcp option sack-perm exists",
            "tcp option mptcp subtype 1",
            "tcp option maxseg size set rt mtu",
            "reset tcp option sack-perm",
            "ip option rr ptr 4",
            "sctp chunk data flags 3",
        ],
    ),
    (
        "fib",
        &["fib daddr type local", "fib saddr . iif type local"],
    ),
    ("flow_offload", &["flow add @f"]),
    (
        "hash",
        &[
            "meta mark set jhash ip saddr . ip daddr mod 16 seed 0xbeef",
            "meta mark set symhash mod 2",
        ],
    ),
    ("immediate", &["jump target", "accept", "meta mark set 16"]),
    (
        "limit",
        &[
            "limit rate 10/second",
            "limit rate over 512 bytes/minute burst 100 bytes",
        ],
    ),
    (
        "log",
        &[
            "log",
            "log prefix \"x\" level debug",
            "log group 5 snaplen 10 queue-threshold 4",
        ],
    ),
    (
        "lookup",
        &["ip saddr @addrs drop", "ip saddr != @addrs drop"],
    ),
    ("masq", &["masquerade", "masquerade fully-random"]),
    (
        "meta",
        &[
            "iifname \"cni0\"",
            "meta l4proto tcp",
            "meta mark set ct mark",
        ],
    ),
    (
        "nat",
        &[
            "dnat to 10.0.0.1",
            "snat to 10.0.0.1-10.0.0.9",
            "dnat ip to ip daddr . tcp dport map @backends",
        ],
    ),
    ("notrack", &["notrack"]),
    (
        "numgen",
        &[
            "numgen random mod 3 0",
            "meta mark set numgen inc mod 7 offset 2",
        ],
    ),
    ("objref", &["counter name hits"]),
    (
        "osf",
        &["osf name \"Linux\"", "osf ttl skip version \"Linux:4.20\""],
    ),
    (
        "payload",
        &[
            "tcp dport 80",
            "ip saddr 10.0.0.0/8",
            "udp dport 53 comment \"names\"",
        ],
    ),
    (
        "queue",
        &[
            "queue",
            "queue flags bypass,fanout to 2-7",
            "queue to symhash mod 4",
        ],
    ),
    ("quota", &["quota over 5 mbytes", "quota 5 bytes"]),
    ("range", &["tcp dport != 1-5"]),
    ("redir", &["redirect", "tcp dport 80 redirect to :8080"]),
    (
        "reject",
        &[
            "reject",
            "reject with tcp reset",
            "reject with icmp type host-unreachable",
        ],
    ),
    (
        "rt",
        &["rt classid 5", "rt ip nexthop 10.0.0.1", "rt mtu 1400"],
    ),
    (
        "socket",
        &["socket transparent 1", "socket mark 5", "socket wildcard 1"],
    ),
    (
        "synproxy",
        &["synproxy", "synproxy mss 1460 wscale 7 timestamp sack-perm"],
    ),
    (
        "tproxy",
        &[
            "tcp dport 80 tproxy to 127.0.0.1:8080",
            "tcp dport 80 tproxy to :8080",
        ],
    ),
    (
        "xfrm",
        &[
            "ipsec in reqid 1",
            "ipsec out spnum 2 ip saddr 10.0.0.1",
            "ipsec in spi 7",
        ],
    ),
];

/// Expressions that nft encodes differently, with the same meaning.
const DIFFERENT: [(&str, &str); 6] = [
    ("bitwise", "the operation is left out of some"),
    ("dynset", "the number of a set stands beside its name"),
    ("lookup", "the number of a set stands beside its name"),
    (
        "objref",
        "the name of the object has no NUL byte at its end",
    ),
    ("nat", "flags tell what the registers tell, too"),
    ("socket", "a level of zero is left out"),
];

/// A recorded rule.
struct Capture {
    command: String,
    message: Vec<u8>,
}

fn path(expr: &str) -> PathBuf {
    [
        env!("CARGO_MANIFEST_DIR"),
        "tests/captures",
        &format!("{expr}.hex"),
    ]
    .iter()
    .collect()
}

/// Reads a capture file: alternating lines with command and bytes.
fn captures(expr: &str) -> Vec<Capture> {
    let text = std::fs::read_to_string(path(expr)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    lines
        .chunks(2)
        .map(|pair| Capture {
            command: pair[0].strip_prefix("# ").unwrap().to_string(),
            message: bytes(pair[1]),
        })
        .collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap())
        .collect()
}

/// Records the messages of nft for the rules of an expression.
///
/// To update a capture, write the result to the file of the expression.
fn record(rules: &[&str]) -> String {
    let mut text = String::new();
    for rule in rules {
        let message = sent(&format!("add rule ip t c {rule}"))
            .pop()
            .unwrap_or_else(|| panic!("nft sends no rule for {rule}"));
        writeln!(text, "# nft --debug=mnl add rule ip t c {rule}").unwrap();
        let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{hex}").unwrap();
    }
    text
}

/// Returns the rule messages that nft sends for a script.
///
/// The kernel may reject the messages, for example if a module is missing.
fn sent(script: &str) -> Vec<Vec<u8>> {
    let netns = Netns::new().unwrap();
    let output = netns.run(|| {
        let nft = |args: &[&str]| {
            Command::new("nft")
                .args(args)
                .output()
                .expect("nft is installed")
        };
        assert!(nft(&[TABLE]).status.success());
        nft(&["--debug=mnl", script])
    });
    let text = String::from_utf8(output.stdout).unwrap();
    let mut messages: Vec<Vec<u8>> = Vec::new();
    let mut lines = text.lines().map(plain);
    while let Some(line) = lines.next() {
        if line.contains("message length") {
            let kind = lines.next().unwrap();
            messages.push(Vec::new());
            let message = messages.last_mut().unwrap();
            let kind: u16 = kind.split('|').nth(1).unwrap().trim().parse().unwrap();
            message.extend(kind.to_ne_bytes());
        } else if let Some(message) = messages.last_mut() {
            message.extend(line_bytes(&line));
        }
    }
    const NFT_MSG_NEWRULE: u16 = 10 << 8 | 6;
    messages.retain(|message| message.get(..2) == Some(&NFT_MSG_NEWRULE.to_ne_bytes()));
    messages
        .into_iter()
        .map(|message| message[2..].to_vec())
        .collect()
}

/// Strips color codes from a line.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_string();
    for part in parts {
        plain += part.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain
}

/// Returns the bytes of a line of nft's debug output.
fn line_bytes(line: &str) -> Vec<u8> {
    let columns: Vec<&str> = line.split('|').collect();
    if line.contains("|len |flags| type|") {
        let (len, flags, kind) = (columns[1], columns[2], columns[3]);
        let nested = if flags.contains('N') { 1 << 15 } else { 0 };
        let kind: u16 = kind.parse::<u16>().unwrap() | nested;
        let len: u16 = len.parse().unwrap();
        return [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    }
    if line.contains("extra header") || line.contains("|      data      |") {
        return bytes(columns[1]);
    }
    Vec::new()
}

/// Decodes a rule message.
fn decoded(message: &[u8]) -> Rule {
    let table = TableId::new(Family::Ip, Name::new("t").unwrap());
    let mut assembler = Assembler::new(&table);
    let chain = Chain::new(table.clone(), Name::new("c").unwrap());
    for message in Messages::new(transaction(&chain).encode(1, None).bytes()) {
        let message = message.unwrap();
        assembler.push(message.ty, message.payload).unwrap();
    }
    assembler.push(10 << 8 | 6, message).unwrap();
    let ruleset: Ruleset = assembler.finish();
    ruleset.chain(&table, "c").unwrap().rules[0].clone()
}

fn transaction(chain: &Chain) -> Transaction {
    Transaction::from_edits(&[Edit::Add(Object::from(chain.clone()))])
}

/// Returns the encoded expressions of a rule message.
fn expressions(message: &[u8]) -> Vec<&[u8]> {
    const HEADER: usize = 4;
    const NFTA_RULE_EXPRESSIONS: u16 = 4;
    let attrs = Attrs::new(&message[HEADER..]).map(Result::unwrap);
    attrs
        .filter(|attr| attr.kind == NFTA_RULE_EXPRESSIONS)
        .flat_map(|attr| attr.attrs().map(|expr| expr.unwrap().value))
        .collect()
}

#[test]
fn the_messages_of_nft_equal_the_captures() {
    for (expr, rules) in RULES {
        let recorded = std::fs::read_to_string(path(expr)).unwrap_or_default();
        let now = record(rules);
        let path = path(expr);
        assert!(
            recorded == now,
            "to record it anew, write this to {}:
{now}",
            path.display()
        );
    }
}

#[test]
fn a_captured_expression_round_trips_byte_by_byte() {
    for (file, _) in RULES {
        for Capture { command, message } in captures(file) {
            for bytes in expressions(&message) {
                let expr = Expr::decode(bytes).unwrap();
                let mut ours = Vec::new();
                expr.encode(&mut ours);
                assert_eq!(Expr::decode(&ours), Ok(expr.clone()), "{command}");
                if DIFFERENT.iter().any(|(name, _)| *name == expr.name()) {
                    continue;
                }
                assert_eq!(ours, bytes, "{command}: {expr:?}");
            }
        }
    }
}

#[test]
fn a_captured_rule_has_no_unknown_expression() {
    for (expr, _) in RULES {
        for Capture { command, message } in captures(expr) {
            let rule = decoded(&message);
            let names: BTreeSet<&str> = rule.exprs.iter().map(Expr::name).collect();
            assert!(names.contains(expr), "{command}: {names:?}");
            let other = rule
                .exprs
                .iter()
                .find(|expr| matches!(expr, Expr::Other { .. }));
            assert_eq!(other, None, "{command}");
        }
    }
}

#[test]
fn every_expression_of_nft_has_a_capture() {
    let recorded: BTreeSet<&str> = RULES.into_iter().map(|(expr, _)| expr).collect();
    let mut known: BTreeSet<&str> = Expr::NAMES.iter().copied().collect();
    // nft writes the first only in family netdev, and nft 1.0.6 does not write the others.
    let without = ["fwd", "last", "match", "target"];
    known.retain(|name| !without.contains(name));
    assert_eq!(recorded, known);
}
