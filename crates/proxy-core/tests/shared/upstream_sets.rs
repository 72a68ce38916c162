//! The ipsets of upstream's kube-proxy in mode ipvs, as recorded from 1.36.2.

use std::process::Command;

use proxy_core::Family;

const HASH_IP: &str = "hash:ip";
const HASH_PORT: &str = "hash:ip,port";
const HASH_PORT_IP: &str = "hash:ip,port,ip";
const HASH_PORT_NET: &str = "hash:ip,port,net";
const BITMAP: &str = "bitmap:port";

/// IPv4 names and types of the sets.
const SETS: [(&str, &str); 17] = [
    ("KUBE-LOOP-BACK", HASH_PORT_IP),
    ("KUBE-CLUSTER-IP", HASH_PORT),
    ("KUBE-EXTERNAL-IP", HASH_PORT),
    ("KUBE-EXTERNAL-IP-LOCAL", HASH_PORT),
    ("KUBE-LOAD-BALANCER", HASH_PORT),
    ("KUBE-LOAD-BALANCER-FW", HASH_PORT),
    ("KUBE-LOAD-BALANCER-LOCAL", HASH_PORT),
    ("KUBE-LOAD-BALANCER-SOURCE-IP", HASH_PORT_IP),
    ("KUBE-LOAD-BALANCER-SOURCE-CIDR", HASH_PORT_NET),
    ("KUBE-NODE-PORT-TCP", BITMAP),
    ("KUBE-NODE-PORT-LOCAL-TCP", BITMAP),
    ("KUBE-NODE-PORT-UDP", BITMAP),
    ("KUBE-NODE-PORT-LOCAL-UDP", BITMAP),
    ("KUBE-NODE-PORT-SCTP-HASH", HASH_PORT),
    ("KUBE-NODE-PORT-LOCAL-SCTP-HASH", HASH_PORT),
    ("KUBE-HEALTH-CHECK-NODE-PORT", BITMAP),
    ("KUBE-IPVS-IPS", HASH_IP),
];

/// Returns the names of all sets of a family.
pub(crate) fn names(family: Family) -> Vec<String> {
    let of_family = |set: &str| match family {
        Family::V4 => set.to_owned(),
        Family::V6 => {
            let mut name = set.replacen("KUBE-", "KUBE-6-", 1);
            name.truncate(31);
            name
        }
    };
    SETS.iter().map(|(set, _)| of_family(set)).collect()
}

/// Creates all sets, as upstream does at the start of each sync. Each command must
/// succeed.
pub(crate) fn create_all(family: Family) {
    let inet = match family {
        Family::V4 => "inet",
        Family::V6 => "inet6",
    };
    for (name, (_, kind)) in names(family).iter().zip(SETS) {
        let mut words = vec!["create", name, kind];
        match kind {
            BITMAP => words.extend(["range", "0-65535"]),
            _ => words.extend(["family", inet, "hashsize", "1024", "maxelem", "65536"]),
        }
        words.push("-exist");
        let output = Command::new("ipset").args(&words).output();
        let output = output.expect("ipset is installed");
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}
