//! Documents of `ipset save` with all set types.

use vipline_ipset::{SetFamily, SetType};

use crate::lab::Lab;

/// Every set type with each of its options, in `ipset save` format.
pub(crate) const DOCUMENTS: &[&str] = &[
    "create a bitmap:ip,mac range 10.0.0.0-10.0.0.255 counters\n\
     add a 10.0.0.1 packets 0 bytes 0\nadd a 10.0.0.2,01:02:03:04:05:AB packets 3 bytes 4\n",
    "create a hash:ip,mac family inet hashsize 1024 maxelem 65536\n\
     add a 10.0.0.1,01:02:03:04:05:AB\n",
    "create a hash:ip,mark family inet markmask 0x0000ffff hashsize 1024 maxelem 65536 timeout 0\n\
     add a 10.0.0.1,0x00000063 timeout 0\n",
    "create a hash:mac hashsize 1024 maxelem 65536 comment\n\
     add a 01:02:03:04:05:AB comment \"x\"\n",
    "create a hash:net,iface family inet hashsize 1024 maxelem 65536 skbinfo\n\
     add a 10.0.0.0/8,eth0 skbmark 0x3/0xff00 skbprio 1:10 skbqueue 3\n\
     add a 10.0.0.0/8,physdev:eth0 nomatch\nadd a 10.0.0.7,veth wildcard skbmark 0x5\n",
    "create a hash:net,iface family inet6 hashsize 1024 maxelem 65536\nadd a fd00::/64,eth0\n",
    "create a hash:net,net family inet hashsize 1024 maxelem 65536\n\
     add a 10.0.0.0/8,192.168.0.0/16\nadd a 10.0.0.1,192.168.0.1 nomatch\n",
    "create a hash:net,port,net family inet6 hashsize 1024 maxelem 65536\n\
     add a fd00::/64,tcp:80,fd01::/64\n",
    "create a hash:ip family inet hashsize 1024 maxelem 65536 bitmask 255.255.0.255\n\
     add a 10.0.0.7\n",
    "create a hash:ip,port family inet6 hashsize 1024 maxelem 65536 \
     bucketsize 12 initval 0x00000007 bitmask ffff::ffff\nadd a fd00::1,ospf:0\n",
    "create a hash:ip family inet hashsize 1024 maxelem 65536\nadd a 10.0.0.1\nadd a 10.0.0.2\n",
    "create a hash:ip family inet6 hashsize 64 maxelem 7 timeout 0 counters comment\n\
     add a fd00::1 timeout 0 packets 0 bytes 0\n\
     add a fd00::2 timeout 0 packets 3 bytes 9 comment \"two words\"\n",
    "create a hash:ip family inet hashsize 1024 maxelem 65536 netmask 24\nadd a 10.1.2.0\n",
    "create a hash:ip,port family inet hashsize 1024 maxelem 65536\n\
     add a 10.0.0.1,tcp:80\nadd a 10.0.0.1,udp:80\nadd a 10.0.0.1,sctp:80\n\
     add a 10.0.0.1,udplite:80\nadd a 10.0.0.1,gre:0\nadd a 10.0.0.1,77:0\n",
    "create a hash:ip,port family inet6 hashsize 1024 maxelem 65536 comment\n\
     add a fd00::1,tcp:80 comment \"default/web:http\"\n",
    "create a hash:ip,port,ip family inet hashsize 1024 maxelem 65536\n\
     add a 10.0.0.1,tcp:80,10.0.0.1\nadd a 10.0.0.1,tcp:80,10.0.0.2\n",
    "create a hash:ip,port,ip family inet6 hashsize 1024 maxelem 65536 timeout 0\n\
     add a fd00::1,sctp:80,fd00::1 timeout 0\n",
    "create a hash:ip,port,net family inet hashsize 1024 maxelem 65536\n\
     add a 10.0.0.1,tcp:80,10.0.0.0/8\nadd a 10.0.0.1,tcp:80,10.2.3.4\n\
     add a 10.0.0.1,tcp:80,10.1.0.0/16 nomatch\n",
    "create a hash:ip,port,net family inet6 hashsize 1024 maxelem 65536 counters\n\
     add a fd00::1,udp:53,fd00::/64 packets 0 bytes 0\n",
    "create a hash:net family inet hashsize 1024 maxelem 65536 timeout 0 counters comment\n\
     add a 10.0.0.0/8 timeout 0 packets 0 bytes 0\n\
     add a 10.1.0.0/16 timeout 0 nomatch packets 1 bytes 2 comment \"x\"\n",
    "create a hash:net family inet6 hashsize 1024 maxelem 65536\n\
     add a fd00::/64\nadd a fd00::1 nomatch\n",
    "create a hash:net,port family inet hashsize 1024 maxelem 65536\n\
     add a 10.0.0.0/8,udp:53\nadd a 10.0.0.7,tcp:53 nomatch\n",
    "create a hash:net,port family inet6 hashsize 1024 maxelem 65536\nadd a fd00::/64,tcp:443\n",
    "create a bitmap:port range 0-65535\nadd a 1\nadd a 65535\n",
    "create a bitmap:port range 30000-32767 timeout 0 counters comment\n\
     add a 30080 timeout 0 packets 0 bytes 0 comment \"node port\"\n",
    "create a bitmap:ip range 10.0.0.0-10.0.0.255 comment\nadd a 10.0.0.7 comment \"seven\"\n",
    "create a bitmap:ip range 10.0.0.0-10.0.255.255 netmask 24\nadd a 10.0.3.0\n",
    "create a hash:ip family inet hashsize 1024 maxelem 65536\n\
     create b list:set size 5 timeout 0 counters comment\n\
     add b a timeout 0 packets 0 bytes 0 comment \"all\"\n",
    "create a hash:ip family inet hashsize 1024 maxelem 65536 skbinfo\n",
    "create a hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 4 initval 0x00000007\n",
];

/// Types that the kernel of the host lacks. Guests have all types.
pub(crate) const MISSING: [SetType; 5] = [
    SetType::HashIpMac,
    SetType::HashIpMark,
    SetType::HashMac,
    SetType::HashNetNet,
    SetType::HashNetPortNet,
];

/// The documents whose types the kernel supports.
pub(crate) fn supported_documents() -> Vec<&'static str> {
    let mut lab = Lab::new();
    let types = lab.supported();
    let revisions = lab
        .client
        .revisions(&SetType::HashIp, SetFamily::V4)
        .unwrap();
    // Linux 6.1 has no masks.
    let has_masks = *revisions.end() >= 6;
    let is_supported = |text: &&str| {
        let mut creates = text.lines().filter(|line| line.starts_with("create"));
        (has_masks || !text.contains(" bitmask "))
            && creates.all(|line| {
                let name = line.split(' ').nth(2).unwrap();
                types.contains(&SetType::from_name(name))
            })
    };
    let documents: Vec<_> = DOCUMENTS.iter().copied().filter(is_supported).collect();
    assert!(documents.len() >= DOCUMENTS.len() - MISSING.len());
    documents
}
