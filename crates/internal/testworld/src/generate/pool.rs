//! Pools of names, addresses and numbers.

use vipline_service_model::arbitrary::NODE;

/// A name of the maximal length, 63.
pub const LONG: &str = "a23456789-123456789-123456789-123456789-123456789-123456789-123";

/// Namespaces.
pub const NAMESPACES: [&str; 5] = ["default", "default", "default", "kube-system", LONG];

/// Names of Services.
pub const SERVICES: [&str; 6] = ["web", "dns", "db", "0-old", "webhook", LONG];

/// Names of Nodes, mostly of the node of the tests.
pub const NODES: [&str; 4] = [NODE, NODE, NODE, "node-2.example"];

/// Names of ports.
pub const PORT_NAMES: [&str; 5] = ["http", "https", "dns", "dns-tcp", LONG];

/// IPv4 cluster IPs.
pub const CLUSTER_V4: [&str; 8] = [
    "10.96.0.2",
    "10.96.0.10",
    "10.96.0.50",
    "10.96.1.0",
    "10.96.255.255",
    "10.100.7.7",
    "10.111.255.253",
    "10.111.255.254",
];

/// IPv6 cluster IPs, including a non-canonical one.
pub const CLUSTER_V6: [&str; 6] = [
    "fd00:10:96::2",
    "fd00:10:96::a",
    "FD00:10:96:0::B",
    "fd00:10:96::ffff",
    "fd00:10:96::f:fffe",
    "fd00:10:96::f:ffff",
];

/// IPv4 addresses that are valid external IPs and endpoints: of Services, of the node
/// and its networks, broadcast, multicast, reserved.
pub const HOSTILE_V4: [&str; 16] = [
    "10.96.0.10",
    "10.96.0.50",
    "10.100.7.7",
    "192.168.55.4",
    "192.168.55.255",
    "192.168.55.0",
    "10.244.1.5",
    "203.0.113.1",
    "203.0.113.2",
    "198.51.100.255",
    "255.255.255.255",
    "239.1.2.3",
    "224.0.1.1",
    "240.0.0.1",
    "0.1.2.3",
    "100.64.0.1",
];

/// IPv6 addresses that are valid external IPs and endpoints, in canonical form.
pub const HOSTILE_V6: [&str; 10] = [
    "fd00:10:96::a",
    "fd00:10:96::2",
    "fd00:55::4",
    "fd00:55::",
    "2001:db8::1",
    "2001:db8::2",
    "ff0e::1",
    "ff05::1:3",
    "64:ff9b::a00:1",
    "fec0::1",
];

/// Additional addresses that are valid in the status of a load balancer.
pub const HOSTILE_INGRESS: [&str; 8] = [
    "127.0.0.1",
    "0.0.0.0",
    "169.254.169.254",
    "224.0.0.1",
    "::1",
    "::",
    "fe80::1",
    "ff02::1",
];

/// Addresses that only older servers admit.
pub const LEGACY: [&str; 4] = [
    "010.096.000.010",
    "::ffff:10.96.0.50",
    "203.0.113.001",
    "::ffff:203.0.113.2",
];

/// Cluster IPs in forms that only older servers admit.
pub const LEGACY_CLUSTER: [&str; 3] = ["010.096.000.020", "::ffff:10.96.0.21", "10.96.0.0022"];

/// IPv4 addresses of pods.
pub const PODS_V4: [&str; 6] = [
    "10.244.1.5",
    "10.244.1.6",
    "10.244.1.7",
    "10.244.2.5",
    "10.244.2.6",
    "10.244.2.7",
];

/// IPv6 addresses of pods.
pub const PODS_V6: [&str; 4] = [
    "fd00:244:1::5",
    "fd00:244:1::6",
    "fd00:244:2::5",
    "fd00:244:2::6",
];

/// Networks, including overlapping ones.
pub const NETWORKS: [&str; 13] = [
    "10.0.0.0/8",
    "10.0.0.0/9",
    "10.128.0.0/9",
    "10.244.0.0/16",
    "192.168.55.0/24",
    "192.168.55.4/32",
    "0.0.0.0/0",
    "0.0.0.0/1",
    "255.255.255.255/32",
    "fd00::/8",
    "fd00:244::/32",
    "::/0",
    "2001:db8::1/128",
];

/// Networks that only older servers admit.
pub const LEGACY_NETWORKS: [&str; 4] = [
    "10.1.2.3/8",
    "010.0.0.0/08",
    "::ffff:10.0.0.0/104",
    "fd00::1/64",
];

/// Timeouts of session affinity, in seconds.
pub const TIMEOUTS: [i64; 8] = [1, 2, 59, 60, 600, 10_800, 86_399, 86_400];

/// Ports of endpoints.
pub const TARGETS: [i64; 6] = [8080, 8080, 8081, 53, 1, 65_535];

/// Invalid port numbers of endpoints. Validation accepts any number.
pub const ODD_TARGETS: [i64; 5] = [0, 65_536, 70_000, -1, 2_147_483_647];

/// Strings that are rarely valid.
pub const ODD_TEXTS: [&str; 22] = [
    "",
    " ",
    "x",
    "None",
    "IPv4",
    "Local",
    "10.0.0.1",
    "10.96.0.10",
    "127.0.0.1",
    "010.0.0.1",
    "10.0.0.0/8",
    "10.0.0.1/8",
    "fd00::1",
    "FD00::1",
    "::ffff:10.0.0.1",
    "fe80::1%eth0",
    "ff02::1",
    "a.b",
    "-",
    "TCP",
    "LoadBalancer",
    "ü\n\"$(reboot)\"",
];
