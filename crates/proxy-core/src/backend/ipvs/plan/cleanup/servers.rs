//! Selection of the virtual servers of kube-proxy.
//!
//! Upstream removes all virtual servers. Here a virtual server belongs to kube-proxy if
//! its address is on the link of mode ipvs, or its address and port are in an ipset of the
//! mode. Others stay.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use vipline_ipset::{Member, Port, SetDump, Sets};
use vipline_ipvs::{Family, Protocol, ServiceKey};

/// Criteria for virtual servers of kube-proxy.
struct Ownership {
    addresses: HashSet<IpAddr>,
    endpoints: HashSet<(IpAddr, Port)>,
    node_ports: HashSet<(Family, Port)>,
}

impl Ownership {
    fn new(sets: &Sets, link: &[IpAddr]) -> Self {
        let mut owned = Self {
            addresses: link.iter().copied().collect(),
            endpoints: HashSet::new(),
            node_ports: HashSet::new(),
        };
        for listed in sets.iter() {
            let ports = node_ports(listed);
            for entry in &listed.entries {
                match (&entry.member, ports) {
                    (Member::Ip(ip), _) => drop(owned.addresses.insert(*ip)),
                    (Member::IpPort(ip, port), _) => drop(owned.endpoints.insert((*ip, *port))),
                    (Member::Port(number), Some((family, port))) => {
                        owned.node_ports.insert((family, port(*number)));
                    }
                    _ => {}
                }
            }
        }
        owned
    }

    fn owns(&self, service: &ServiceKey) -> bool {
        let ServiceKey::Address {
            protocol,
            address,
            port,
        } = *service
        else {
            return false;
        };
        let port = match protocol {
            Protocol::Tcp => Port::tcp(port),
            Protocol::Udp => Port::udp(port),
            Protocol::Sctp => Port::sctp(port),
        };
        self.addresses.contains(&address)
            || self.endpoints.contains(&(address, port))
            || self.node_ports.contains(&(Family::of(address), port))
    }
}

/// Creates a port of a protocol from its number.
type PortFromNumber = fn(u16) -> Port;

/// Returns family and protocol of the ports in a set, if it is a set of node
/// ports.
fn node_ports(listed: &SetDump) -> Option<(Family, PortFromNumber)> {
    let name = listed.set.name.as_str();
    let family = match name.starts_with("KUBE-6-") {
        true => Family::V6,
        false => Family::V4,
    };
    let protocols: [(&str, PortFromNumber); 3] = [
        ("-TCP", Port::tcp),
        ("-UDP", Port::udp),
        ("-SCTP", Port::sctp),
    ];
    let mut protocols = protocols.into_iter();
    let found = protocols.find(|(end, _)| name.ends_with(end));
    found.map(|(_, port)| (family, port))
}

/// Returns the virtual servers to remove, and messages about those that stay.
///
/// `link` are the addresses on the link. Virtual servers within `excluded`
/// networks stay.
pub(super) fn plan(
    servers: &[ServiceKey],
    sets: &Sets,
    link: &[IpAddr],
    excluded: &[IpNet],
) -> (Vec<ServiceKey>, Vec<String>) {
    let owned = Ownership::new(sets, link);
    let is_excluded = |service: &&ServiceKey| match service {
        ServiceKey::Address { address, .. } => excluded.iter().any(|net| net.contains(address)),
        ServiceKey::Mark { .. } => false,
    };
    let servers = servers.iter().filter(|service| !is_excluded(service));
    let (owned, others): (Vec<_>, Vec<_>) = servers.partition(|service| owned.owns(service));
    let stays = others
        .iter()
        .map(|service| format!("virtual server {service} stays, because its origin is unknown"));
    (owned.into_iter().copied().collect(), stays.collect())
}

#[cfg(test)]
pub(super) mod tests {
    use std::str::FromStr as _;

    use vipline_ipvs::Table;

    use super::super::Object;
    use super::super::tests::sets as found;
    use super::*;

    /// Parses the output of `ipvsadm -Sn`.
    pub(in crate::backend::ipvs::plan::cleanup) fn services(saved: &str) -> Vec<ServiceKey> {
        let table = Table::from_str(saved).unwrap();
        table.servers().map(|server| server.service).collect()
    }

    #[test]
    fn virtual_servers_on_the_link_or_in_sets_are_removed() {
        let saved = "-A -t 10.96.0.20:80 -s rr\n-a -t 10.96.0.20:80 -r 10.1.0.5:8080 -m -w 1\n\
                     -A -t 192.0.2.10:30080 -s rr\n-A -u 192.0.2.10:30080 -s rr\n\
                     -A -t [2001:db8::1]:30080 -s rr\n-A -u [2001:db8::1]:30090 -s rr\n\
                     -A -t [fd00:96::1]:80 -s rr\n-A -t 203.0.113.9:80 -s rr\n\
                     -A -u 203.0.113.9:80 -s rr\n-A -t 203.0.113.20:80 -s rr\n-A -f 7 -s rr\n";
        let sets = "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\n\
                    add KUBE-NODE-PORT-TCP 30080\n\
                    create KUBE-6-NODE-PORT-UDP bitmap:port range 0-65535\n\
                    add KUBE-6-NODE-PORT-UDP 30090\n\
                    create MINE hash:ip,port family inet\nadd MINE 192.0.2.10,udp:30080\n\
                    create KUBE-IPVS-IPS hash:ip family inet\nadd KUBE-IPVS-IPS 203.0.113.20\n\
                    create KUBE-LOAD-BALANCER hash:ip,port family inet\n\
                    add KUBE-LOAD-BALANCER 203.0.113.9,tcp:80\n";
        let link = ["10.96.0.20", "fd00:96::1"].map(|text| text.parse().unwrap());
        let shown = |excluded: &[IpNet]| {
            let (servers, stays) = plan(&services(saved), &found(sets), &link, excluded);
            let mut shown: Vec<_> = servers
                .into_iter()
                .map(|one| Object::Server(one).to_string())
                .collect();
            shown.sort_unstable();
            (shown, stays)
        };
        let (all, stays) = shown(&[]);
        let expected = [
            "ipvsadm -D -t 10.96.0.20:80",
            "ipvsadm -D -t 192.0.2.10:30080",
            "ipvsadm -D -t 203.0.113.20:80",
            "ipvsadm -D -t 203.0.113.9:80",
            "ipvsadm -D -t [fd00:96::1]:80",
            "ipvsadm -D -u [2001:db8::1]:30090",
        ];
        assert_eq!(all, expected);
        let stay = |service: &str| {
            let start = format!("virtual server {service} stays, ");
            stays.iter().any(|words| words.starts_with(&start))
        };
        assert_eq!(stays.len(), 4, "{stays:?}");
        for service in [
            "-u 192.0.2.10:30080",
            "-t [2001:db8::1]:30080",
            "-u 203.0.113.9:80",
            "-f 7",
        ] {
            assert!(stay(service), "{service}: {stays:?}");
        }
        let excluded = ["203.0.113.0/24", "fd00:96::/64"].map(|text| text.parse().unwrap());
        let (others, stays) = shown(&excluded);
        assert_eq!(others, [&expected[..2], &expected[5..]].concat());
        assert_eq!(stays.len(), 3, "{stays:?}");
    }
}
