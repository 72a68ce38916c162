//! Rules with extensions that have an encoding for nf_tables.

use super::Rules;

/// Rules of both families.
pub(crate) const BOTH: &[Rules] = &[
    (
        "filter",
        &[
            "-m connmark --mark 0x1",
            "-m connmark ! --mark 0x1/0xff",
            "-m dscp ! --dscp 0x2e",
            "-m helper --helper ftp-2121",
            "-m length --length 5:10 -m mark --mark 0x1",
            "-m length ! --length 7",
            "-m mac --mac-source 00:11:22:33:44:55 -g OTHER",
            "-m mac ! --mac-source 00:11:22:33:44:55",
            "-m pkttype --pkt-type unicast",
            "-m pkttype ! --pkt-type multicast",
            "-p tcp -m tcpmss --mss 100:200",
            "-m tos --tos 0x10/0x3f",
            "-j RATEEST --rateest-name RE1 --rateest-interval 250.0ms --rateest-ewmalog 500.0ms",
            "-j RATEEST --rateest-name RE2 --rateest-interval 1.0s --rateest-ewmalog 64.0s",
            "-m rateest --rateest RE1 --rateest-lt --rateest-bps 8bit",
            "-m rateest --rateest RE1 ! --rateest-gt --rateest-bps 12583Kbit",
            "-m rateest --rateest RE1 --rateest-gt --rateest-bps 2000Mbit",
            "-m rateest --rateest RE1 --rateest-eq --rateest-pps 0",
            "-m rateest --rateest1 RE1 --rateest-lt --rateest-bps --rateest2 RE2",
            "-m rateest --rateest-delta --rateest RE1 --rateest-bps1 8bit --rateest-lt --rateest-bps2 16bit",
            "-m rateest --rateest-delta --rateest1 RE1 --rateest-pps1 0 --rateest-lt --rateest-pps2 42 --rateest2 RE2",
            "-j NFQUEUE --queue-num 3",
            "-j NFQUEUE --queue-balance 1:4 --queue-bypass --queue-cpu-fanout",
        ],
    ),
    (
        "mangle",
        &[
            "-m rpfilter --validmark --invert",
            "-m rpfilter --loose --accept-local",
            "-m socket --transparent",
            "-m socket --nowildcard --restore-skmark",
            "-j CHECKSUM --checksum-fill",
            "-j CLASSIFY --set-class 0001:ffff",
            "-j DSCP --set-dscp 0x2e",
            "-j TOS --set-tos 0x10/0xff",
            "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
            "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1400",
        ],
    ),
];

/// Rules of IPv4.
pub(crate) const V4: &[Rules] = &[
    (
        "filter",
        &[
            "-m iprange --src-range 10.0.0.1-10.0.0.5 ! --dst-range 10.1.0.0-10.2.0.0 -j ACCEPT",
            "-m ttl --ttl-eq 64",
            "-m ttl ! --ttl-eq 64",
            "-m ttl --ttl-lt 5",
            "-m ttl --ttl-gt 6",
        ],
    ),
    (
        "mangle",
        &[
            "-j TTL --ttl-set 64",
            "-j TTL --ttl-inc 1",
            "-j TTL --ttl-dec 2",
            "-j TEE --gateway 10.0.0.1",
            "-j TEE --gateway 10.0.0.1 --oif eth0",
        ],
    ),
    ("nat", &["-j NETMAP --to 10.0.0.0/24"]),
];

/// Rules of IPv6.
pub(crate) const V6: &[Rules] = &[
    (
        "filter",
        &[
            "-m iprange --src-range fd00::1-fd00::5",
            "-m hl --hl-eq 255",
        ],
    ),
    (
        "mangle",
        &[
            "-j HL --hl-set 64",
            "-j HL --hl-dec 1",
            "-j TEE --gateway fd00::1",
        ],
    ),
    ("nat", &["-j NETMAP --to fd00::/64"]),
];
