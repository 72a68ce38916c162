//! What the mode asks of the node besides rules, and what other modes left.

use std::net::TcpStream;
use std::time::Duration;

use super::{Node, VARIANTS, ip, with_sysctls_read_only};
use crate::health::metric_in;
use crate::stage::{Stage, service, slice, until};

fn routes_localnet(node: &Node) -> bool {
    node.shell("cat /proc/sys/net/ipv4/conf/all/route_localnet") == "1\n"
}

#[test]
fn the_kernel_routes_to_loopback_once_it_has_to() {
    let node = Node::web("nft");
    for line in [
        "render",
        "diff",
        "--oneshot --iptables-localhost-nodeports=false",
    ] {
        node.stage.say(line);
        assert!(!routes_localnet(&node), "{line}");
    }
    let within = "--oneshot --nodeport-addresses 192.0.2.0/24,fd00::/64";
    assert_eq!(node.stage.say(within).code, 0);
    assert!(!routes_localnet(&node), "node ports are elsewhere");
    assert_eq!(node.stage.say("--oneshot").code, 0);
    assert!(routes_localnet(&node));
}

#[test]
fn init_only_prepares_the_kernel_and_writes_no_rule() {
    let node = Node::web("nft");
    let said = node.stage.say("--init-only");
    assert_eq!((said.code, &*said.stdout), (0, ""), "{said:?}");
    assert!(routes_localnet(&node));
    assert_eq!(node.rules(), "");
    // What needs more privilege is done then.
    let said = node
        .stage
        .say_through(&with_sysctls_read_only(), "--oneshot");
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn a_setting_that_cannot_be_written_ends_it_before_the_first_rule() {
    let node = Node::web("nft");
    for line in ["", "--oneshot", "--init-only"] {
        let said = node.stage.say_through(&with_sysctls_read_only(), line);
        assert_eq!((said.code, &*said.stdout), (1, ""), "{said:?}");
        let errors = said.stderr.lines().filter(|line| line.contains("ERROR"));
        let errors: Vec<_> = errors.collect();
        assert_eq!(errors.len(), 1, "{said:?}");
        for words in [
            "/proc/sys/net/ipv4/conf/all/route_localnet",
            "Read-only file system (os error 30)",
            "--init-only",
            "--iptables-localhost-nodeports=false",
        ] {
            assert!(errors[0].contains(words), "{words}: {said:?}");
        }
    }
    assert_eq!(node.rules(), "");
    let without = "--oneshot --iptables-localhost-nodeports=false";
    let said = node.stage.say_through(&with_sysctls_read_only(), without);
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn packets_are_dropped_unless_conntrack_is_liberal() {
    let drops = |node: &Node| {
        node.rules()
            .contains("-A KUBE-FORWARD -m conntrack --ctstate INVALID")
    };
    let node = Node::web("nft");
    node.stage.oneshot();
    assert!(drops(&node), "{}", node.rules());
    node.shell("echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal");
    assert_eq!(node.stage.say("diff").code, 1);
    node.stage.oneshot();
    assert!(!drops(&node), "{}", node.rules());
}

#[test]
fn conntrack_that_is_configured_as_liberal_takes_effect_at_the_first_sync() {
    let liberal = "--conntrack-tcp-be-liberal";
    let node = Node::web("nft");
    let is_liberal = || {
        let value = node.shell("cat /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal");
        value.trim() != "0"
    };
    let said = node.stage.say(&format!("diff {liberal}"));
    assert!(said.stdout.contains("-A KUBE-FORWARD"), "{said:?}");
    assert!(!said.stdout.contains("INVALID"), "{said:?}");
    assert!(!is_liberal(), "a difference changes nothing");
    let said = node.stage.say(&format!("--oneshot {liberal}"));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(is_liberal());
    assert!(!node.rules().contains("INVALID"), "{}", node.rules());
    assert_eq!(node.stage.say(&format!("diff {liberal}")).code, 0);
}

#[test]
fn node_ports_are_served_on_addresses_that_come_and_go() {
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
            until("the new address", || is_served(rule));
            ip(node.netns(), &format!("address delete {address} dev lo"));
            until("the address is gone", || !is_served(rule));
        }
        ip(node.netns(), "address add 192.0.2.8/24 dev lo");
        until("the new address", || is_served("192.0.2.8/32"));
        assert!(proxy.terminate().unwrap().success());
        let again = "diff --nodeport-addresses 192.0.2.0/24,2001:db8::/64";
        assert_eq!(node.stage.say(again).code, 0);
    }
}

#[test]
fn a_start_removes_what_the_other_mode_left_and_nothing_of_its_own() {
    for variant in VARIANTS {
        let node = Node::web(variant);
        let told = "removed leftovers of other modes: ";
        let said = node.stage.say("--oneshot");
        assert_eq!(said.code, 0, "{said:?}");
        let own = node.sorted();
        let nftables = Stage::with(&[(
            "web.yaml",
            &(service("web", "10.96.0.10") + &slice("web", 1, 3)),
        )]);
        nftables.oneshot();
        let listed = nftables.ruleset();
        node.stage.load(&listed);
        let proxy = node.stage.start();
        until(told, || proxy.output().contains(told));
        let output = proxy.output();
        let position = |words: &str| output.find(words).unwrap();
        assert!(position("synced") < position(told), "{output}");
        let left = node.stage.nft(&["list", "table", "ip", "kube-proxy"]);
        assert_eq!((left.code, &*left.stdout), (1, ""), "{left:?}");
        assert_eq!(node.sorted(), own, "{variant}");
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn mode_nftables_takes_the_place_of_it() {
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
        let told = "removed leftovers of other modes: ";
        until(told, || proxy.output().contains(told));
        until("the chains", || {
            let save = format!("iptables-{variant}-save");
            !node.shell(&save).contains("KUBE-SVC-")
        });
        let own = node.stage.nft(&["list", "table", "ip", "kube-proxy"]);
        assert!(own.stdout.contains("10.244.1.3 "), "{own:?}");
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn packets_to_loopback_addresses_are_counted_where_dashboards_look() {
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
        until("the counter", || counted() == Some(0.0));
        // There is no route to the endpoint, but the rules have led there then.
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
