//! Selection of the virtual servers to remove.
//!
//! Upstream removes all virtual servers. Here those stay that do not belong to
//! kube-proxy.

use std::net::IpAddr;

use ipnet::IpNet;
use vipline_ipset::Sets;
use vipline_ipvs::ServiceKey;

use crate::backend::ipvs::plan::ownership::{Ownership, is_excluded};

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
    let owned = Ownership::new(sets, link.iter().copied());
    let servers = servers.iter();
    let servers = servers.filter(|service| !is_excluded(service, excluded));
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
