//! A node of Kubernetes 1.23 in mode ipvs, which had run in mode iptables before.

use crate::site::{Site, contains, wait_until};

/// Rules of release 1.23. Those of mode iptables are beside rules of the kubelet and of another
/// program.
const IPTABLES: &str = include_str!("../binary/releases/1.23-iptables.txt");
const IPVS: &str = include_str!("../binary/releases/1.23-ipvs.txt");

/// IP sets of release 1.23 with entries of a Service that was deleted meanwhile, its virtual
/// server and its address, and sets that releases before 1.20 left. `KUBE-IPVS-IPS` did not exist
/// yet. Another program has a set and a virtual server.
const OBJECTS: &str = "
for name in KUBE-CLUSTER-IP KUBE-EXTERNAL-IP KUBE-EXTERNAL-IP-LOCAL KUBE-LOAD-BALANCER \
  KUBE-LOAD-BALANCER-FW KUBE-LOAD-BALANCER-LOCAL KUBE-NODE-PORT-SCTP-HASH \
  KUBE-NODE-PORT-LOCAL-SCTP-HASH; do ipset create $name hash:ip,port; done
for name in KUBE-LOOP-BACK KUBE-LOAD-BALANCER-SOURCE-IP; do
  ipset create $name hash:ip,port,ip; done
ipset create KUBE-LOAD-BALANCER-SOURCE-CIDR hash:ip,port,net
for name in KUBE-NODE-PORT-TCP KUBE-NODE-PORT-LOCAL-TCP KUBE-NODE-PORT-UDP \
  KUBE-NODE-PORT-LOCAL-UDP KUBE-HEALTH-CHECK-NODE-PORT KUBE-NODE-PORT-SCTP \
  KUBE-NODE-PORT-LOCAL-SCTP; do ipset create $name bitmap:port range 0-65535; done
ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6
ipset create MINE hash:ip
ipset add KUBE-CLUSTER-IP 10.96.0.99,tcp:80
ipset add KUBE-LOAD-BALANCER 203.0.113.9,tcp:80
ipset add KUBE-LOAD-BALANCER-FW 203.0.113.9,tcp:80
ipset add KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.9,tcp:80,192.0.2.0/24
ipset add KUBE-LOOP-BACK 10.1.0.5,tcp:8080,10.1.0.5
ipset add KUBE-NODE-PORT-TCP 30099
ipset add KUBE-6-CLUSTER-IP fd00:10:96::99,tcp:80
ip link add kube-ipvs0 type dummy
for address in 10.96.0.99/32 203.0.113.9/32 fd00:10:96::99/128; do
  ip address add $address dev kube-ipvs0; done
for server in 10.96.0.99:80 203.0.113.9:80; do
  ipvsadm -A -t $server -s rr; ipvsadm -a -t $server -r 10.1.0.5:8080 -m; done
ipvsadm -A -t 198.51.100.200:80 -s wrr
";

/// Returns whether a line belongs to the other program, or to the kubelet.
fn is_of_others(line: &str) -> bool {
    let words = [
        "MINE",
        "--dport 22 ",
        "KUBE-MARK-DROP",
        "KUBE-KUBELET-CANARY",
        "198.51.100.200:80",
    ];
    // The chains of load balancers were kube-proxy's, although they lead to the kubelet's chain.
    words.iter().any(|word| line.contains(word)) && !line.contains("-A KUBE-FW-")
}

#[test]
fn a_node_of_1_23_in_mode_ipvs_is_taken_over_without_a_remainder() {
    let site = Site::new();
    site.set_backends(&[0, 1]);
    let alone = {
        let proxy = site.start("ipvs", "");
        site.assert_served_by(&[0, 1]);
        proxy.stop().unwrap();
        site.state()
    };
    site.run("ipvs", "--cleanup");
    assert_eq!(site.state(), [""; 0]);

    let restore = |rules| format!("iptables-restore --noflush <<'END'\n{rules}END\n");
    // Jumps that both modes have exist twice then.
    site.shell(&(OBJECTS.to_owned() + &restore(IPTABLES) + &restore(IPVS)));
    let before = site.state();
    for left in ["KUBE-XLB-", "10.96.0.99", "KUBE-NODE-PORT-LOCAL-SCTP "] {
        let has = |line: &String| line.contains(left);
        assert!(before.iter().any(has), "{left}: {before:#?}");
    }
    let others: Vec<_> = before.iter().filter(|line| is_of_others(line)).collect();
    assert!(others.len() > 6, "{others:#?}");

    let proxy = site.start("ipvs", "");
    let message = "removed leftovers of other modes: ";
    wait_until(message, || contains(proxy.process().output(), message));
    site.assert_served_by(&[0, 1]);
    println!("{}", proxy.process().output());
    proxy.stop().unwrap();
    let after = site.state();
    let (kept, own): (Vec<_>, Vec<_>) = after.iter().partition(|line| is_of_others(line));
    assert_eq!(own, alone.iter().collect::<Vec<_>>());
    assert_eq!(kept, others);
    // `state` leaves out what has the name of a chain of the kubelet in another table.
    let nat = site.shell("iptables-save -t nat");
    assert!(!nat.contains("KUBE-FIREWALL"), "{nat}");
}
