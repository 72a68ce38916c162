//! Mode ipvs with a kernel without IPVS, and the removal of its objects.
//!
//! The guest tests of proxy-core and of this crate cover mode ipvs with IPVS.

mod deploy;

use serde_json::Value;

use crate::health::{METRICS, get_in, metric_in};
use crate::stage::{Outcome, Stage, service, slice, wait_until};

/// Rules of mode ipvs that mode iptables does not overwrite.
const RULES: &str = "iptables-restore --noflush <<'END'
*nat
:KUBE-LOAD-BALANCER - [0:0]
:KUBE-NODE-PORT - [0:0]
-A KUBE-LOAD-BALANCER -m set --match-set KUBE-LOAD-BALANCER dst,dst -j ACCEPT
COMMIT
*filter
:KUBE-IPVS-FILTER - [0:0]
-A INPUT -m comment --comment \"kubernetes ipvs access filter\" -j KUBE-IPVS-FILTER
-A KUBE-IPVS-FILTER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN
COMMIT
END
";

/// Sets and the link. The type of the link is veth because some kernels lack type
/// dummy.
const OTHERS: &str = "ipset create KUBE-LOAD-BALANCER hash:ip,port
ipset create KUBE-CLUSTER-IP hash:ip,port
ipset create MINE hash:ip
ip link add kube-ipvs0 type veth peer name mine
";

/// The warning if the kernel lacks IPVS.
const FALLBACK: &str = "Can't use ipvs mode: the kernel lacks IPVS: load the module ip_vs; \
                       using iptables mode instead";

/// Returns a stage of a mode with a Service of three endpoints.
fn stage(mode: &'static str) -> Stage {
    let web = service("web", "10.96.0.10") + &slice("web", 1, 3);
    let path = std::env::var("PATH").unwrap();
    Stage::with(&[("web.yaml", &web)]).in_mode(mode, path)
}

/// Returns whether the kernel has IPVS, so there is no fallback.
fn has_ipvs() -> bool {
    vipline_ipvs::Client::open().is_ok()
}

fn shell(stage: &Stage, script: &str) -> String {
    let mut command = stage.command("sh");
    command.args(["-e", "-c", script]);
    let outcome = Outcome::from(stage.netns.run(|| command.output()).unwrap());
    assert_eq!(outcome.code, 0, "{script}: {outcome:?}");
    outcome.stdout
}

#[test]
fn mode_iptables_is_used_and_reported_without_ipvs_in_the_kernel() {
    if has_ipvs() {
        return;
    }
    let stage = stage("ipvs");
    let proxy = stage.start_with("--iptables-sync-period 17s");
    let output = proxy.output();
    assert_eq!(output.matches(FALLBACK).count(), 1, "{output}");
    assert!(output.contains("mode=iptables"), "{output}");
    let rules = shell(&stage, "iptables-save");
    assert!(rules.contains("10.244.1.3:8080"), "{rules}");
    assert!(!rules.contains("KUBE-IPVS-FILTER"), "{rules}");
    let route = shell(&stage, "cat /proc/sys/net/ipv4/conf/all/route_localnet");
    assert_eq!(route, "1\n");

    let page = |path| get_in(&stage.netns, METRICS, path).body;
    assert_eq!(page("/proxyMode"), "iptables");
    let configuration: Value = serde_json::from_str(&page("/configz")).unwrap();
    let configuration = &configuration["kubeproxy.config.k8s.io"];
    assert_eq!(configuration["mode"], "iptables");
    assert_eq!(configuration["iptables"]["syncPeriod"], "17s");
    let partial = "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total\
                   {ip_family=\"IPv4\"}";
    assert_eq!(metric_in(&stage.netns, partial), Some(0.0));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn every_command_except_render_falls_back_to_mode_iptables() {
    if has_ipvs() {
        return;
    }
    let stage = stage("ipvs");
    for (line, code) in [("--init-only", 0), ("diff", 1), ("--oneshot -o json", 0)] {
        let outcome = stage.run(line);
        assert_eq!(outcome.code, code, "{line}: {outcome:?}");
        assert!(outcome.stderr.contains(FALLBACK), "{line}: {outcome:?}");
        if line.contains("json") {
            let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
            assert_eq!(report["mode"], "iptables");
        }
    }
    let outcome = stage.run("render");
    assert_eq!((outcome.code, &*outcome.stderr), (0, ""), "{outcome:?}");
    assert!(outcome.stdout.contains("10.96.0.10:80"), "{outcome:?}");
}

#[test]
fn mode_iptables_removes_the_objects_of_mode_ipvs_and_none_of_its_own() {
    let stage = stage("iptables");
    stage.oneshot();
    let state = || {
        let sets = "; ipset save | grep -o 'create [^ ]*'; cut -d: -f1 /proc/net/dev";
        let saved = shell(&stage, &format!("iptables-save; ip6tables-save{sets}"));
        let lines = saved.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.map(|line| line.split(" [").next().unwrap_or(line));
        let mut lines: Vec<_> = lines.map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    shell(&stage, "ipset create MINE hash:ip");
    let own = state();
    shell(&stage, &OTHERS.replace("ipset create MINE hash:ip\n", ""));
    shell(&stage, RULES);
    assert_ne!(state(), own);
    let proxy = stage.start();
    let message = "removed leftovers of other modes: ";
    wait_until(message, || proxy.output().contains(message));
    assert_eq!(state(), own, "{}", proxy.output());
    let output = proxy.output();
    assert!(!output.contains("cannot be removed"), "{output}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn an_unknown_scheduler_is_rejected() {
    let outcome = stage("ipvs").run("--oneshot --ipvs-scheduler fastest");
    assert_eq!((outcome.code, &*outcome.stdout), (2, ""), "{outcome:?}");
    assert!(outcome.stderr.contains("--ipvs-scheduler"), "{outcome:?}");
    assert!(outcome.stderr.contains("rr, wrr, lc"), "{outcome:?}");
}
