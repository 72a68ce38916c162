//! Rules with match `ipvs`, as `iptables-save` prints them.
//!
//! The host's kernel may lack the match, so guests test these rules.

/// Name of the match, whose rules of the suite the guests test, too.
pub(crate) const NAME: &str = "ipvs";

/// Rules for both address families.
pub(crate) const BOTH: &[&str] = &[
    "-m ipvs --ipvs",
    "-m ipvs ! --ipvs -j DROP",
    "-m ipvs --vproto 6",
    "-m ipvs ! --vproto 17 --vport 53",
    "-m ipvs ! --vport 80 --vdir ORIGINAL",
    "-m ipvs --vdir REPLY",
    "-m ipvs --vmethod GATE",
    "-m ipvs ! --vmethod IPIP",
    "-m ipvs --vmethod MASQ --vportctl 21",
    "-m ipvs ! --vportctl 21",
];

/// Rules for IPv4.
pub(crate) const V4: &[&str] = &[
    "-s 203.0.113.9/32 -m ipvs --vproto 6 --vaddr 203.0.113.9 --vport 80 -j DROP",
    "-m ipvs ! --vaddr 10.96.0.0/12",
    "-m ipvs --vproto 132 --vaddr 10.96.0.1 --vport 1 --vdir REPLY --vmethod MASQ --vportctl 2",
];

/// Rules for IPv6.
pub(crate) const V6: &[&str] = &[
    "-s 2001:db8::9/128 -m ipvs --vproto 6 --vaddr 2001:db8::9 --vport 80 -j DROP",
    "-m ipvs ! --vaddr fd00:10:96::/108",
];
