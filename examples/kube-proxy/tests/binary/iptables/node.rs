//! Node settings of mode iptables, and the removal of objects of other modes.

use std::net::TcpStream;
use std::time::Duration;

use super::{Node, VARIANTS, ip, with_sysctls_read_only};
use crate::health::metric_in;
use crate::stage::{Stage, service, slice, wait_until};

fn routes_localnet(node: &Node) -> bool {
    node.shell("cat /proc/sys/net/ipv4/conf/all/route_localnet") == "1\n"
}

#[test]
fn route_localnet_is_set_only_when_needed() {
    let node = Node::web("nft");
    for line in [
        "render",
        "diff",
        "--oneshot --iptables-localhost-nodeports=false",
    ] {
        node.stage.run(line);
        assert!(!routes_localnet(&node), "{line}");
    }
    let within = "--oneshot --nodeport-addresses 192.0.2.0/24,fd00::/64";
    assert_eq!(node.stage.run(within).code, 0);
    assert!(!routes_localnet(&node), "node ports are elsewhere");
    assert_eq!(node.stage.run("--oneshot").code, 0);
    assert!(routes_localnet(&node));
}

#[test]
fn init_only_prepares_the_kernel_and_writes_no_rule() {
    let node = Node::web("nft");
    let outcome = node.stage.run("--init-only");
    assert_eq!((outcome.code, &*outcome.stdout), (0, ""), "{outcome:?}");
    assert!(routes_localnet(&node));
    assert_eq!(node.rules(), "");
    // The privileged steps are done, so a start with read-only sysctls succeeds.
    let outcome = node
        .stage
        .run_through(&with_sysctls_read_only(), "--oneshot");
    assert_eq!(outcome.code, 0, "{outcome:?}");
}

#[test]
fn an_unwritable_sysctl_is_fatal_before_the_first_rule() {
    let node = Node::web("nft");
    for line in ["", "--oneshot", "--init-only"] {
        let outcome = node.stage.run_through(&with_sysctls_read_only(), line);
        assert_eq!((outcome.code, &*outcome.stdout), (1, ""), "{outcome:?}");
        let errors = outcome.stderr.lines().filter(|line| line.contains("ERROR"));
        let errors: Vec<_> = errors.collect();
        assert_eq!(errors.len(), 1, "{outcome:?}");
        for words in [
            "/proc/sys/net/ipv4/conf/all/route_localnet",
            "Read-only file system (os error 30); /proc/sys is read-only in this container",
            "--iptables-localhost-nodeports=false",
        ] {
            assert!(errors[0].contains(words), "{words}: {outcome:?}");
        }
    }
    assert_eq!(node.rules(), "");
    let without = "--oneshot --iptables-localhost-nodeports=false";
    let outcome = node.stage.run_through(&with_sysctls_read_only(), without);
    assert_eq!(outcome.code, 0, "{outcome:?}");
}

#[test]
fn invalid_packets_are_dropped_unless_conntrack_is_liberal() {
    let drops = |node: &Node| {
        node.rules()
            .contains("-A KUBE-FORWARD -m conntrack --ctstate INVALID")
    };
    let node = Node::web("nft");
    node.stage.oneshot();
    assert!(drops(&node), "{}", node.rules());
    node.shell("echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal");
    assert_eq!(node.stage.run("diff").code, 1);
    node.stage.oneshot();
    assert!(!drops(&node), "{}", node.rules());
}

#[test]
fn liberal_conntrack_takes_effect_at_the_first_sync() {
    let liberal = "--conntrack-tcp-be-liberal";
    let node = Node::web("nft");
    let is_liberal = || {
        let value = node.shell("cat /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal");
        value.trim() != "0"
    };
    let outcome = node.stage.run(&format!("diff {liberal}"));
    assert!(outcome.stdout.contains("-A KUBE-FORWARD"), "{outcome:?}");
    assert!(!outcome.stdout.contains("INVALID"), "{outcome:?}");
    assert!(!is_liberal(), "a difference changes nothing");
    let outcome = node.stage.run(&format!("--oneshot {liberal}"));
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(is_liberal());
    assert!(!node.rules().contains("INVALID"), "{}", node.rules());
    assert_eq!(node.stage.run(&format!("diff {liberal}")).code, 0);
}

#[test]
fn node_ports_follow_added_and_removed_addresses() {
    for variant in VARIANTS {
        let node = Node::web(variant);
        let proxy = node
            .stage
            .start_with("--nodeport-addresses 192.0.2.0/24,2001:db8::/64");
        let is_served = |address: &str| {
            let rule = format!("-A KUBE-SERVICES -d {address} ");
            let rules = node.rules();
            let mut lines = rules.lines().filter(|line| line.starts_with(&rule));
            lines.any(|line| line.ends_with("-j KUBE-NODEPORTS"))
        };
        for (address, rule) in [
            ("192.0.2.7/24", "192.0.2.7/32"),
            ("2001:db8::7/64", "2001:db8::7/128"),
        ] {
            assert!(!is_served(rule));
            ip(node.netns(), &format!("address add {address} dev lo"));
            wait_until("the new address", || is_served(rule));
            ip(node.netns(), &format!("address delete {address} dev lo"));
            wait_until("the address is gone", || !is_served(rule));
        }
        ip(node.netns(), "address add 192.0.2.8/24 dev lo");
        wait_until("the new address", || is_served("192.0.2.8/32"));
        assert!(proxy.terminate().unwrap().success());
        let again = "diff --nodeport-addresses 192.0.2.0/24,2001:db8::/64";
        assert_eq!(node.stage.run(again).code, 0);
    }
}

#[test]
fn a_start_removes_the_objects_of_the_other_mode_and_none_of_its_own() {
    for variant in VARIANTS {
        let node = Node::web(variant);
        let message = "removed leftovers of other modes: ";
        let outcome = node.stage.run("--oneshot");
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let own = node.sorted_rules();
        let nftables = Stage::with(&[(
            "web.yaml",
            &(service("web", "10.96.0.10") + &slice("web", 1, 3)),
        )]);
        nftables.oneshot();
        let listed = nftables.ruleset();
        node.stage.load(&listed);
        let proxy = node.stage.start();
        wait_until(message, || proxy.output().contains(message));
        let output = proxy.output();
        let position = |words: &str| output.find(words).unwrap();
        assert!(position("synced") < position(message), "{output}");
        let left = node.stage.nft(&["list", "table", "ip", "kube-proxy"]);
        assert_eq!((left.code, &*left.stdout), (1, ""), "{left:?}");
        assert_eq!(node.sorted_rules(), own, "{variant}");
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn mode_nftables_replaces_mode_iptables() {
    for variant in VARIANTS {
        let node = Node::web(variant);
        node.stage.oneshot();
        let path = std::env::var("PATH").unwrap();
        let Node { stage, variant } = node;
        let node = Node {
            stage: stage.in_mode("nftables", path),
            variant,
        };
        let proxy = node.stage.start();
        let message = "removed leftovers of other modes: ";
        wait_until(message, || proxy.output().contains(message));
        wait_until("the chains", || {
            let save = format!("iptables-{variant}-save");
            !node.shell(&save).contains("KUBE-SVC-")
        });
        let own = node.stage.nft(&["list", "table", "ip", "kube-proxy"]);
        assert!(own.stdout.contains("10.244.1.3 "), "{own:?}");
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn node_port_packets_to_loopback_addresses_are_counted_in_the_metric_of_upstream() {
    let web = service("web", "10.96.0.10").replace(
        "  ports:\n  - port: 80\n",
        "  type: NodePort\n  ports:\n  - port: 80\n    nodePort: 30080\n",
    );
    for variant in VARIANTS {
        let node = Node::with(
            variant,
            &[("web.yaml", &(web.clone() + &slice("web", 1, 3)))],
        );
        let proxy = node.stage.start();
        let counted = || {
            let name = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total";
            metric_in(node.netns(), name)
        };
        wait_until("the counter", || counted() == Some(0.0));
        // The connection fails for lack of a route to the endpoint, but the rules have
        // matched the packet.
        let address = ([127, 0, 0, 1], 30080).into();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        assert!(node.netns().run(connect).is_err());
        assert_eq!(counted(), Some(1.0), "{variant}: {}", node.rules());
        let rules = metric_in(
            node.netns(),
            "kubeproxy_sync_proxy_rules_iptables_total{ip_family=\"IPv4\",table=\"nat\"}",
        );
        assert!(rules.unwrap() > 10.0, "{rules:?}");
        assert!(proxy.terminate().unwrap().success());
    }
}
