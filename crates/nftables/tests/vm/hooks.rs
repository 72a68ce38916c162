//! Lists of hooks, which kernels without `CONFIG_NETFILTER_NETLINK_HOOK` do not have.

use testkit::netns::Netns;
use testkit::nft;
use vipline_nftables::{Client, Error, Family, Hook};

use crate::resets::kernel;

/// Returns the base chains that a hook runs for packets of a family.
fn chains(client: &mut Client, family: Family) -> Vec<String> {
    let entries = client.hooks(family, Hook::Forward).unwrap();
    let chains = entries.iter().filter_map(|it| it.chain.as_ref());
    chains
        .map(|(table, name)| format!("{table} {name}"))
        .collect()
}

#[test]
fn the_kernel_lists_base_chains_with_equal_priorities_as_it_runs_them() {
    let netns = Netns::new().unwrap();
    let mut client = netns.run(Client::open).unwrap();
    // Debian's kernel 6.1 lacks `CONFIG_NETFILTER_NETLINK_HOOK`.
    if let Err(error) = client.hooks(Family::Ip, Hook::Forward) {
        assert!(matches!(error, Error::KernelTooOld { .. }), "{error:?}");
        let expected = "list hook forward of family ip: the kernel is older than Linux 5.14, or \
                        lacks CONFIG_NETFILTER_NETLINK_HOOK";
        assert_eq!(error.to_string(), expected);
        assert!(kernel() < (6, 12));
        return;
    }
    assert_eq!(chains(&mut client, Family::Ip), [""; 0]);
    let base = "type filter hook forward priority";
    let script = format!(
        "table inet a {{\nchain first {{\n{base} 5\n}}\n}}\n\
         table ip b {{\nchain second {{\n{base} 5\n}}\n}}\n\
         table inet a {{\nchain third {{\n{base} 5\n}}\nchain early {{\n{base} -7\n}}\n}}\n"
    );
    netns.run(|| nft::succeeds(&["-f", "-"], &script));
    let expected = [
        "inet a early",
        "inet a third",
        "ip b second",
        "inet a first",
    ];
    assert_eq!(chains(&mut client, Family::Ip), expected);
    let expected = ["inet a early", "inet a third", "inet a first"];
    assert_eq!(chains(&mut client, Family::Ip6), expected);

    let entries = client.hooks(Family::Ip, Hook::Forward).unwrap();
    let early = entries.first().unwrap();
    assert_eq!((early.hook, early.priority), (Hook::Forward, -7));
    // Hooks of devices are not listed.
    assert_eq!(client.hooks(Family::Netdev, Hook::Ingress).unwrap(), []);
}
