//! The commands of upstream's kube-proxy in mode ipvs, as recorded from 1.36.2.

use std::net::{IpAddr, SocketAddr};

use proxy_core::Family;

use crate::upstream_sets as sets;
use crate::upstream_tools::{Jump, Tool, declare, succeeds};

pub(crate) const LINK: &str = "kube-ipvs0";

#[rustfmt::skip]
const JUMPS: [Jump; 9] = [
    Jump::new(["nat", "OUTPUT", "KUBE-SERVICES"], "", "kubernetes service portals"),
    Jump::new(["nat", "PREROUTING", "KUBE-SERVICES"], "", "kubernetes service portals"),
    Jump::new(["nat", "POSTROUTING", "KUBE-POSTROUTING"], "", "kubernetes postrouting rules"),
    Jump::new(["filter", "FORWARD", "KUBE-FORWARD"], "", "kubernetes forwarding rules"),
    Jump::new(["filter", "INPUT", "KUBE-NODE-PORT"], "", "kubernetes health check rules"),
    Jump::new(["filter", "INPUT", "KUBE-PROXY-FIREWALL"], "", "kube-proxy firewall rules"),
    Jump::new(["filter", "FORWARD", "KUBE-PROXY-FIREWALL"], "", "kube-proxy firewall rules"),
    Jump::new(["filter", "INPUT", "KUBE-IPVS-FILTER"], "", "kubernetes ipvs access filter"),
    Jump::new(["filter", "OUTPUT", "KUBE-IPVS-OUT-FILTER"], "", "kubernetes ipvs access filter"),
];

const NAT: [&str; 5] = [
    "KUBE-SERVICES",
    "KUBE-POSTROUTING",
    "KUBE-NODE-PORT",
    "KUBE-LOAD-BALANCER",
    "KUBE-MARK-MASQ",
];

const FILTER: [&str; 6] = [
    "KUBE-FORWARD",
    "KUBE-NODE-PORT",
    "KUBE-PROXY-FIREWALL",
    "KUBE-SOURCE-RANGES-FIREWALL",
    "KUBE-IPVS-FILTER",
    "KUBE-IPVS-OUT-FILTER",
];

/// Upstream's kube-proxy for one family, with one TCP Service port 80.
pub(crate) struct Upstream {
    pub(crate) family: Family,
    pub(crate) vip: IpAddr,
    pub(crate) endpoints: [IpAddr; 2],
}

impl Upstream {
    /// Returns the iptables programs of the default variant.
    pub(crate) fn tool(&self) -> Tool {
        let base = match self.family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        };
        Tool::new(base.to_owned())
    }

    /// Syncs for the first time. Each command must succeed.
    pub(crate) fn sync(&self) {
        let tool = self.tool();
        for (table, chain) in chains() {
            tool.create_chain(table, chain);
        }
        for jump in &JUMPS {
            tool.ensure(jump);
        }
        let links = succeeds("ip", &["-o", "link", "show"]);
        if !links.contains(LINK) {
            succeeds("ip", &["link", "add", LINK, "type", "dummy"]);
        }
        sets::create_all(self.family);
        self.serve();
        self.fill_sets();
        tool.restore(&self.document());
        for addr in self.bound() {
            if addr != self.vip.to_string() {
                succeeds("ip", &["addr", "del", &addr, "dev", LINK]);
            }
        }
        for service in self.services() {
            if service != self.service() {
                succeeds("ipvsadm", &["-D", "-t", &service]);
            }
        }
    }

    /// Removes the objects of mode ipvs, as upstream does when it starts in mode
    /// nftables.
    ///
    /// Upstream leaves the sets of IPv6.
    pub(crate) fn cleanup(&self) {
        let tool = self.tool();
        succeeds("ipvsadm", &["-C"]);
        succeeds("ip", &["link", "del", LINK]);
        for jump in &JUMPS {
            tool.remove(jump);
        }
        for verb in ["-F", "-X"] {
            for (table, chain) in chains() {
                assert_eq!(tool.code(&[verb, chain, "-t", table]), 0, "{verb} {chain}");
            }
        }
        if self.family == Family::V4 {
            for name in sets::names(self.family) {
                succeeds("ipset", &["destroy", &name]);
            }
        }
    }

    fn service(&self) -> String {
        SocketAddr::from((self.vip, 80)).to_string()
    }

    /// Returns the virtual servers of the family. The test has TCP only.
    fn services(&self) -> Vec<String> {
        let saved = succeeds("ipvsadm", &["-S", "-n"]);
        let added = saved.lines().filter_map(|line| line.strip_prefix("-A -t "));
        let services = added.filter_map(|rest| rest.split(' ').next());
        let is_v6 = self.family == Family::V6;
        let of_family = services.filter(|service| service.starts_with('[') == is_v6);
        of_family.map(str::to_owned).collect()
    }

    /// Returns the addresses of the family on the link.
    pub(crate) fn bound(&self) -> Vec<String> {
        let option = match self.family {
            Family::V4 => "-4",
            Family::V6 => "-6",
        };
        let shown = succeeds("ip", &["-o", option, "addr", "show", "dev", LINK]);
        let words = shown
            .lines()
            .filter_map(|line| line.split_whitespace().nth(3));
        let addresses = words.filter_map(|word| word.split('/').next());
        let is_ours = |addr: &&str| !addr.starts_with("fe80:");
        addresses.filter(is_ours).map(str::to_owned).collect()
    }

    /// Adds the virtual server, its address and its real servers.
    fn serve(&self) {
        let service = self.service();
        if !self.services().contains(&service) {
            succeeds("ipvsadm", &["-A", "-t", &service, "-s", "rr"]);
        }
        let vip = self.vip.to_string();
        if !self.bound().contains(&vip) {
            succeeds("ip", &["addr", "add", &vip, "dev", LINK]);
        }
        let saved = succeeds("ipvsadm", &["-S", "-n"]);
        let start = format!("-a -t {service} -r ");
        let present = saved.lines().filter_map(|line| line.strip_prefix(&*start));
        let present: Vec<_> = present.filter_map(|rest| rest.split(' ').next()).collect();
        let wanted = self.endpoints.map(|addr| SocketAddr::from((addr, 8080)));
        let wanted = wanted.map(|endpoint| endpoint.to_string());
        for endpoint in &wanted {
            if !present.contains(&&**endpoint) {
                succeeds("ipvsadm", &["-a", "-t", &service, "-r", endpoint, "-m"]);
            }
        }
        for endpoint in present {
            if !wanted.iter().any(|it| it == endpoint) {
                succeeds("ipvsadm", &["-d", "-t", &service, "-r", endpoint]);
            }
        }
    }

    /// Adds the wanted entries of all sets and deletes all others.
    fn fill_sets(&self) {
        for name in sets::names(self.family) {
            let wanted = match name.trim_start_matches("KUBE-").trim_start_matches("6-") {
                "CLUSTER-IP" => Some(format!("{},tcp:80", self.vip)),
                "IPVS-IPS" => Some(self.vip.to_string()),
                _ => None,
            };
            let listed = succeeds("ipset", &["list", &name]);
            let (_, members) = listed.split_once("Members:\n").expect("members are last");
            for member in members.lines().filter(|it| wanted.as_deref() != Some(it)) {
                succeeds("ipset", &["del", &name, member]);
            }
            if let Some(entry) = wanted {
                succeeds("ipset", &["add", &name, &entry, "-exist"]);
            }
        }
    }

    /// Returns the restore document, which matches only sets that have entries.
    fn document(&self) -> String {
        let loopback = match self.family {
            Family::V4 => "127.0.0.0/8",
            Family::V6 => "::1/128",
        };
        let set = |name: &str| match self.family {
            Family::V4 => format!("KUBE-{name}"),
            Family::V6 => format!("KUBE-6-{name}"),
        };
        let (cluster, health) = (set("CLUSTER-IP"), set("HEALTH-CHECK-NODE-PORT"));
        let mark = "0x00004000";
        let mut document = String::from("*nat\n");
        declare(NAT, &mut document);
        document += &format!(
            "-A KUBE-SERVICES -s {loopback} -j RETURN\n\
             -A KUBE-SERVICES -m comment \
             --comment \"Kubernetes service cluster ip + port for masquerade purpose\" \
             -m set --match-set {cluster} dst,dst -j KUBE-MARK-MASQ\n\
             -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT\n\
             -A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ\n\
             -A KUBE-SERVICES -m set --match-set {cluster} dst,dst -j ACCEPT\n\
             -A KUBE-POSTROUTING -m mark ! --mark {mark}/{mark} -j RETURN\n\
             -A KUBE-POSTROUTING -j MARK --xor-mark {mark}\n\
             -A KUBE-POSTROUTING -m comment \
             --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully\n\
             -A KUBE-MARK-MASQ -j MARK --or-mark {mark}\nCOMMIT\n*filter\n"
        );
        declare(FILTER, &mut document);
        document += &format!(
            "-A KUBE-SOURCE-RANGES-FIREWALL -j DROP\n\
             -A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" \
             -m mark --mark {mark}/{mark} -j ACCEPT\n\
             -A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" \
             -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
             -A KUBE-NODE-PORT -m comment --comment \"Kubernetes health check node port\" \
             -m set --match-set {health} dst -j ACCEPT\n"
        );
        for served in [
            "LOAD-BALANCER",
            "CLUSTER-IP",
            "EXTERNAL-IP",
            "EXTERNAL-IP-LOCAL",
        ] {
            let served = set(served);
            document +=
                &format!("-A KUBE-IPVS-FILTER -m set --match-set {served} dst,dst -j RETURN\n");
        }
        document
            + &format!(
                "-A KUBE-IPVS-FILTER -m set --match-set {health} dst -j RETURN\n\
                 -A KUBE-IPVS-FILTER -m conntrack --ctstate NEW \
                 -m set --match-set {} dst -j REJECT\nCOMMIT\n",
                set("IPVS-IPS")
            )
    }
}

/// Returns the chains with their tables.
pub(crate) fn chains() -> impl Iterator<Item = (&'static str, &'static str)> {
    let nat = NAT.map(|chain| ("nat", chain)).into_iter();
    nat.chain(FILTER.map(|chain| ("filter", chain)))
}
