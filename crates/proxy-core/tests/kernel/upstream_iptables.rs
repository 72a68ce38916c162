//! The commands of upstream's kube-proxy in mode iptables, as recorded from 1.36.2.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use data_encoding::BASE32;
use proxy_core::Family;
use sha2::{Digest as _, Sha256};
use vipline_iptables::Variant;

use crate::upstream_tools::{Jump, Tool, declare};

/// The tables of upstream, in the order in which upstream creates its canary chains.
pub(crate) const TABLES: [&str; 3] = ["mangle", "nat", "filter"];

const CANARY: &str = "KUBE-PROXY-CANARY";

#[rustfmt::skip]
const JUMPS: [Jump; 14] = [
    Jump::new(["filter", "INPUT", "KUBE-EXTERNAL-SERVICES"], "NEW", "kubernetes externally-visible service portals"),
    Jump::new(["filter", "FORWARD", "KUBE-EXTERNAL-SERVICES"], "NEW", "kubernetes externally-visible service portals"),
    Jump::new(["filter", "INPUT", "KUBE-NODEPORTS"], "", "kubernetes health check service ports"),
    Jump::new(["filter", "FORWARD", "KUBE-SERVICES"], "NEW", "kubernetes service portals"),
    Jump::new(["filter", "OUTPUT", "KUBE-SERVICES"], "NEW", "kubernetes service portals"),
    Jump::new(["filter", "FORWARD", "KUBE-FORWARD"], "", "kubernetes forwarding rules"),
    Jump::new(["filter", "INPUT", "KUBE-PROXY-FIREWALL"], "NEW", "kubernetes load balancer firewall"),
    Jump::new(["filter", "OUTPUT", "KUBE-PROXY-FIREWALL"], "NEW", "kubernetes load balancer firewall"),
    Jump::new(["filter", "FORWARD", "KUBE-PROXY-FIREWALL"], "NEW", "kubernetes load balancer firewall"),
    Jump::new(["nat", "OUTPUT", "KUBE-SERVICES"], "", "kubernetes service portals"),
    Jump::new(["nat", "PREROUTING", "KUBE-SERVICES"], "", "kubernetes service portals"),
    Jump::new(["nat", "POSTROUTING", "KUBE-POSTROUTING"], "", "kubernetes postrouting rules"),
    Jump::new(["filter", "INPUT", "KUBE-FIREWALL"], "", ""),
    Jump::new(["filter", "OUTPUT", "KUBE-FIREWALL"], "", ""),
];

/// Number of jumps that upstream removes in other modes. The kubelet also uses the last
/// two jumps.
const REMOVED_JUMPS: usize = 12;

const FILTER: [&str; 5] = [
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-FORWARD",
    "KUBE-NODEPORTS",
    "KUBE-PROXY-FIREWALL",
];

const NAT: [&str; 4] = [
    "KUBE-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-POSTROUTING",
    "KUBE-MARK-MASQ",
];

const SERVICE_PREFIXES: [&str; 5] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-SEP-",
];

/// A TCP Service port 80 with a cluster IP only.
pub(crate) struct Service {
    pub(crate) name: &'static str,
    pub(crate) vip: IpAddr,
    pub(crate) endpoints: Vec<IpAddr>,
}

impl Service {
    fn chain(&self) -> String {
        format!("KUBE-SVC-{}", hash(&[self.name, "tcp"]))
    }

    fn endpoints(&self) -> impl Iterator<Item = (SocketAddr, String)> {
        self.endpoints.iter().map(|&addr| {
            let endpoint = SocketAddr::from((addr, 8080));
            let hash = hash(&[self.name, "tcp", &endpoint.to_string()]);
            (endpoint, format!("KUBE-SEP-{hash}"))
        })
    }

    fn filter(&self, to: &mut String) {
        if self.endpoints.is_empty() {
            let Self { name, vip, .. } = self;
            writeln!(
                to,
                "-A KUBE-SERVICES -m comment --comment \"{name} has no endpoints\" \
                 -m tcp -p tcp -d {vip} --dport 80 -j REJECT"
            )
            .expect("writing to a String succeeds");
        }
    }

    fn nat(&self, to: &mut String) {
        let Self { name, vip, .. } = self;
        let (chain, count) = (self.chain(), self.endpoints.len());
        if count == 0 {
            return;
        }
        let cluster_ip =
            format!("-m comment --comment \"{name} cluster IP\" -m tcp -p tcp -d {vip} --dport 80");
        let mut lines = vec![
            format!("KUBE-SERVICES {cluster_ip} -j {chain}"),
            format!("{chain} {cluster_ip} ! -s {} -j KUBE-MARK-MASQ", pods(*vip)),
        ];
        for (number, (endpoint, target)) in self.endpoints().enumerate() {
            let comment = format!("-m comment --comment \"{name} -> {endpoint}\"");
            let rest = count - number;
            let chance = match rest {
                1 => String::new(),
                2 => "-m statistic --mode random --probability 0.5000000000 ".to_owned(),
                _ => unreachable!("two endpoints are enough here"),
            };
            lines.push(format!("{chain} {comment} {chance}-j {target}"));
            let comment = format!("{target} -m comment --comment {name}");
            lines.push(format!("{comment} -s {} -j KUBE-MARK-MASQ", endpoint.ip()));
            lines.push(format!(
                "{comment} -m tcp -p tcp -j DNAT --to-destination {endpoint}"
            ));
        }
        for line in lines {
            writeln!(to, "-A {line}").expect("writing to a String succeeds");
        }
    }
}

fn pods(vip: IpAddr) -> &'static str {
    match vip {
        IpAddr::V4(_) => "10.180.0.0/16",
        IpAddr::V6(_) => "fd00:10:180::/64",
    }
}

/// Returns the first 16 characters of the hash of a chain name.
fn hash(parts: &[&str]) -> String {
    let digest: [u8; 32] = Sha256::digest(parts.concat()).into();
    BASE32.encode(&digest[..10])
}

/// Upstream's kube-proxy for one family.
pub(crate) struct Upstream {
    pub(crate) family: Family,
    pub(crate) variant: Variant,
    pub(crate) services: Vec<Service>,
}

impl Upstream {
    /// Returns the programs of its variant and family.
    pub(crate) fn tool(&self) -> Tool {
        let base = match self.family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        };
        Tool::new(format!("{base}-{}", self.variant))
    }

    /// Returns the saved rules of a table.
    pub(crate) fn save(&self, table: &str) -> String {
        self.tool().save(table)
    }

    /// Starts and syncs for the first time. Each command must succeed.
    pub(crate) fn sync(&self) {
        let tool = self.tool();
        for table in TABLES {
            tool.create_chain(table, CANARY);
        }
        for jump in &JUMPS {
            tool.ensure(jump);
        }
        tool.restore(&self.document());
    }

    /// Removes the objects of mode iptables, as upstream does when it starts in another
    /// mode.
    pub(crate) fn cleanup(&self) {
        let tool = self.tool();
        for jump in &JUMPS[..REMOVED_JUMPS] {
            tool.remove(jump);
        }
        let tables = [("nat", &NAT[..]), ("filter", &FILTER)];
        for (table, fixed) in tables {
            let is_removed = |chain: &&String| {
                let of_service = table == "nat" && is_service_chain(chain);
                *chain == CANARY || fixed.contains(&chain.as_str()) || of_service
            };
            let chains = tool.chains(table);
            let removed: Vec<_> = chains.iter().filter(is_removed).collect();
            let mut document = format!("*{table}\n");
            for chain in &removed {
                document += &format!(":{chain} - [0:0]\n");
            }
            for chain in &removed {
                document += &format!("-X {chain}\n");
            }
            tool.restore(&(document + "COMMIT\n"));
        }
        for verb in ["-F", "-X"] {
            assert_eq!(tool.code(&[verb, CANARY, "-t", "mangle"]), 0);
        }
    }

    /// Returns the document of a full sync, which removes unknown chains of Services.
    fn document(&self) -> String {
        let mark = "0x00004000";
        let mut document = String::from("*filter\n");
        let firewall = (self.family == Family::V4).then_some("KUBE-FIREWALL");
        declare(FILTER.into_iter().chain(firewall), &mut document);
        if firewall.is_some() {
            document += "-A KUBE-FIREWALL -m comment --comment \
                         \"block incoming localnet connections\" -d 127.0.0.0/8 \
                         ! -s 127.0.0.0/8 -m conntrack \
                         ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n";
        }
        for service in &self.services {
            service.filter(&mut document);
        }
        document += &format!(
            "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n\
             -A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" \
             -m mark --mark {mark}/{mark} -j ACCEPT\n\
             -A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" \
             -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n*nat\n"
        );
        let served = self.services.iter().filter(|it| !it.endpoints.is_empty());
        let active: Vec<_> = served
            .flat_map(|it| {
                [it.chain()]
                    .into_iter()
                    .chain(it.endpoints().map(|(_, chain)| chain))
            })
            .collect();
        let stale = self.tool().chains("nat").into_iter();
        let stale: Vec<_> = stale
            .filter(|chain| is_service_chain(chain) && !active.contains(chain))
            .collect();
        let of_services = active.iter().chain(&stale).map(String::as_str);
        declare(NAT.into_iter().chain(of_services), &mut document);
        document += &format!(
            "-A KUBE-POSTROUTING -m mark ! --mark {mark}/{mark} -j RETURN\n\
             -A KUBE-POSTROUTING -j MARK --xor-mark {mark}\n\
             -A KUBE-POSTROUTING -m comment \
             --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully\n\
             -A KUBE-MARK-MASQ -j MARK --or-mark {mark}\n"
        );
        for service in &self.services {
            service.nat(&mut document);
        }
        for chain in stale {
            document += &format!("-X {chain}\n");
        }
        let loopback = match self.family {
            Family::V4 => "",
            Family::V6 => "! -d ::1/128 ",
        };
        document
            + &format!(
                "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; \
                 NOTE: this must be the last rule in this chain\" \
                 -m addrtype --dst-type LOCAL {loopback}-j KUBE-NODEPORTS\nCOMMIT\n"
            )
    }
}

fn is_service_chain(chain: &str) -> bool {
    SERVICE_PREFIXES
        .iter()
        .any(|prefix| chain.starts_with(prefix))
}
