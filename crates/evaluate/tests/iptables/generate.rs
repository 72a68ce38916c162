//! Random rules and packets.

use std::net::SocketAddr;

use vipline_evaluate::Packet;

/// Destination ports. Some rules translate to others.
const PORTS: std::ops::Range<u64> = 5000..5004;
const SOURCES: [&str; 3] = ["10.0.0.2", "10.0.0.3", "10.0.0.9"];
const SERVERS: [&str; 3] = ["10.1.0.2", "10.1.0.3", "10.1.0.4"];
const SERVICES: [&str; 3] = ["10.9.0.1", "10.9.0.2", "10.9.0.3"];
const ROUTER: [&str; 2] = ["10.0.0.1", "10.1.0.1"];

/// Tables with their chains.
const TABLES: [(&str, &[&str]); 4] = [
    ("raw", &["PREROUTING", "OUTPUT"]),
    (
        "mangle",
        &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
    ),
    ("nat", &["PREROUTING", "OUTPUT", "POSTROUTING"]),
    ("filter", &["INPUT", "FORWARD", "OUTPUT"]),
];

/// Random numbers of a seed: xorshift.
pub(crate) struct Random {
    state: u64,
    /// Random conditions that the rules may still have: they multiply the outcomes.
    budget: u64,
    seed: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            budget: 3,
            seed,
        };
        for _ in 0..8 {
            random.below(2);
        }
        random
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % limit
    }

    fn one_of<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len() as u64) as usize]
    }

    fn port(&mut self) -> u64 {
        PORTS.start + self.below(PORTS.end - PORTS.start)
    }
}

/// Returns a packet with its own source port.
pub(crate) fn packet(random: &mut Random, port: u16) -> Packet {
    let destination = match random.below(4) {
        0 => random.one_of(&ROUTER),
        1 => random.one_of(&SERVERS),
        _ => random.one_of(&SERVICES),
    };
    let is_local = random.below(3) == 0;
    let source = match is_local {
        true => random.one_of(&ROUTER),
        false => random.one_of(&SOURCES),
    };
    let end = |addr: &str, port| SocketAddr::new(addr.parse().unwrap(), port);
    let to = end(destination, random.port() as u16);
    let packet = Packet::udp(end(source, port), to);
    let packet = packet.with_payload(b"x").with_traffic_class(0);
    match is_local {
        true => packet,
        false => packet.with_input("left"),
    }
}

/// Returns a document for `iptables-restore`.
pub(crate) fn document(random: &mut Random, seed: u64) -> String {
    let mut text = format!("# seed {seed}\n");
    for (table, chains) in TABLES {
        text += &format!("*{table}\n");
        for chain in chains {
            let policy = match random.below(40) {
                0 if table == "filter" => "DROP",
                _ => "ACCEPT",
            };
            text += &format!(":{chain} {policy} [0:0]\n");
        }
        text += ":first - [0:0]\n:second - [0:0]\n";
        for (depth, chain) in (1..).zip(["first", "second"]) {
            let count = 1 + random.below(3);
            text += &rules(random, table, chain, (depth, count));
        }
        for chain in chains {
            let count = match table {
                "nat" => 3,
                "raw" => 2,
                _ => 1 + random.below(3),
            };
            text += &rules(random, table, chain, (0, count));
        }
        text += "COMMIT\n";
    }
    text
}

fn rules(random: &mut Random, table: &str, chain: &str, (depth, count): (usize, u64)) -> String {
    let mut text = String::new();
    for _ in 0..count {
        let mut rule = format!("-A {chain} -p udp");
        for _ in 0..1 + random.below(2) {
            // iptables-nft 1.8.9 prints only the last of two matches `udp` or `mark`.
            let condition = condition(random, table, chain);
            let name = condition.split_whitespace().nth(1).unwrap_or_default();
            if !rule.contains(&format!(" -m {name} ")) {
                rule += &condition;
            }
        }
        if random.below(8) == 0 {
            rule += &recent(random);
        }
        let target = match table {
            "nat" if depth == 0 => translation(random, chain),
            _ => action(random, table, chain, depth),
        };
        text += &format!("{rule}{target}\n");
    }
    text
}

/// Returns a match, or nothing if the chain allows none of its kind.
fn condition(random: &mut Random, table: &str, chain: &str) -> String {
    let port = random.port();
    let (mark, source) = (random.below(4), random.one_of(&SOURCES));
    let service = random.one_of(&SERVICES);
    match random.below(22) {
        0 => format!(" -m iprange --src-range 10.0.0.1-{source}"),
        1 => format!(" -m iprange ! --dst-range {service}-10.9.0.9"),
        2 => format!(" -m udp --dport {port}:{}", port + 1),
        3 => format!(" -m udp ! --dport {port}"),
        4 => format!(" -m multiport --dports 5100,{port}:5004"),
        5 => format!(" -m multiport ! --ports {port}"),
        6 => format!(" -m mark --mark {mark:#x}/0x3"),
        7 => format!(" -m mark ! --mark {mark:#x}"),
        8 => " -m conntrack --ctstate NEW".to_owned(),
        9 => " -m conntrack ! --ctstate RELATED,ESTABLISHED,UNTRACKED".to_owned(),
        10 => format!(" -m conntrack --ctorigdst {service}"),
        11 => " -m conntrack --ctstate DNAT".to_owned(),
        12 => format!(" -m conntrack --ctreplsrc 10.1.0.0/29 --ctorigdstport {port}"),
        13 => " -m addrtype --dst-type LOCAL".to_owned(),
        14 => " -m addrtype ! --src-type LOCAL".to_owned(),
        15 if random.budget > 0 => {
            random.budget -= 1;
            match random.below(2) {
                0 => " -m statistic --mode random --probability 0.3".to_owned(),
                _ => " -m statistic --mode nth --every 3 --packet 0".to_owned(),
            }
        }
        16 => format!(" -m set{} --match-set sources src", negation(random)),
        17 => format!(" -m set{} --match-set services dst,dst", negation(random)),
        18 => format!(" -m set{} --match-set flows dst,dst,src", negation(random)),
        19 => format!(" -m connmark --mark {mark:#x}/0x3"),
        20 => " -m length --length 20:29 -m dscp --dscp 0x00".to_owned(),
        21 if chain == "PREROUTING" && table != "nat" => " -m rpfilter".to_owned(),
        _ => String::new(),
    }
}

fn negation(random: &mut Random) -> &'static str {
    random.one_of(&["", " !"])
}

/// Returns a match of a list, which is the last match of its rule.
fn recent(random: &mut Random) -> String {
    let action = random.one_of(&["--set", "--set", "--rcheck", "--update", "--remove"]);
    let seed = random.seed;
    format!(" -m recent {action} --name list{seed}")
}

/// Returns a target of a table other than nat, or of a chain that is called.
fn action(random: &mut Random, table: &str, chain: &str, depth: usize) -> String {
    let mark = random.below(4);
    match random.below(16) {
        0 => " -j ACCEPT".to_owned(),
        1 if table != "nat" => " -j DROP".to_owned(),
        2 => " -j RETURN".to_owned(),
        3 | 4 if depth < 2 => {
            let chain = if depth == 0 { "first" } else { "second" };
            format!(" -{} {chain}", random.one_of(&["j", "g"]))
        }
        5 | 6 => format!(" -j MARK --set-xmark {mark:#x}/0x3"),
        7 => format!(" -j MARK --or-mark {mark:#x}"),
        8 => format!(" -j CONNMARK --set-mark {mark:#x}/0x3"),
        9 => " -j CONNMARK --save-mark".to_owned(),
        10 => " -j CONNMARK --restore-mark".to_owned(),
        11 => " -j SET --add-set seen src --exist".to_owned(),
        12 => " -j SET --del-set sources src".to_owned(),
        13 if table == "filter" && depth == 0 => " -j REJECT".to_owned(),
        14 if table == "raw" && chain != "first" && random.below(2) == 0 => {
            " -j CT --notrack".to_owned()
        }
        15 if table == "mangle" => " -j DSCP --set-dscp 0x01".to_owned(),
        _ => String::new(),
    }
}

/// Returns a target of a chain of table nat.
fn translation(random: &mut Random, chain: &str) -> String {
    let server = random.one_of(&SERVERS);
    match (chain, random.below(6)) {
        (_, 0) => " -j first".to_owned(),
        ("POSTROUTING", 1 | 2) => " -j MASQUERADE".to_owned(),
        ("POSTROUTING", 3) => " -j SNAT --to-source 10.1.0.7".to_owned(),
        ("POSTROUTING", 4) => " -j NETMAP --to 10.1.0.0/24".to_owned(),
        ("POSTROUTING", _) => " -j RETURN".to_owned(),
        (_, 1) => format!(" -j DNAT --to-destination {server}"),
        (_, 2) => " -j DNAT --to-destination 10.1.0.2-10.1.0.4:5100".to_owned(),
        (_, 3) => " -j REDIRECT --to-ports 5200".to_owned(),
        (_, 4) => " -j NETMAP --to 10.1.0.0/24".to_owned(),
        (_, _) => format!(" -j DNAT --to-destination {server}:5100"),
    }
}
