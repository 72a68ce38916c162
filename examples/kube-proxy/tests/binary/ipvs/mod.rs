//! Mode ipvs, as far as a kernel without IPVS has it, and what is left of it.
//!
//! What such a kernel cannot show is shown by the tests of proxy-core that run in
//! a virtual machine.

mod deploy;

use serde_json::Value;

use crate::health::{METRICS, ask_in, metric_in};
use crate::stage::{Said, Stage, service, slice, until};

/// Rules of mode ipvs that mode iptables does not write over.
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

/// Sets and the link, which is of another type, for not every kernel has dummies.
const OTHERS: &str = "ipset create KUBE-LOAD-BALANCER hash:ip,port
ipset create KUBE-CLUSTER-IP hash:ip,port
ipset create MINE hash:ip
ip link add kube-ipvs0 type veth peer name mine
";

/// What is told where the kernel cannot do the mode.
const INSTEAD: &str = "Can't use ipvs mode: the kernel lacks IPVS: load the module ip_vs; \
                       using iptables mode instead";

/// Returns a stage of a mode with a Service of three endpoints.
fn stage(mode: &'static str) -> Stage {
    let web = service("web", "10.96.0.10") + &slice("web", 1, 3);
    let path = std::env::var("PATH").unwrap();
    Stage::with(&[("web.yaml", &web)]).in_mode(mode, path)
}

/// Tells whether the kernel that the tests run on has IPVS, so that there is
/// nothing to do instead.
fn has_ipvs() -> bool {
    vipline_ipvs::Client::open().is_ok()
}

fn shell(stage: &Stage, script: &str) -> String {
    let mut command = stage.command("sh");
    command.args(["-e", "-c", script]);
    let said = Said::of(stage.netns.run(|| command.output()).unwrap());
    assert_eq!(said.code, 0, "{script}: {said:?}");
    said.stdout
}

#[test]
fn without_ipvs_in_the_kernel_mode_iptables_is_used_and_shown() {
    if has_ipvs() {
        return;
    }
    let stage = stage("ipvs");
    let proxy = stage.start_with("--iptables-sync-period 17s");
    let output = proxy.output();
    assert_eq!(output.matches(INSTEAD).count(), 1, "{output}");
    assert!(output.contains("mode=iptables"), "{output}");
    let rules = shell(&stage, "iptables-save");
    assert!(rules.contains("10.244.1.3:8080"), "{rules}");
    assert!(!rules.contains("KUBE-IPVS-FILTER"), "{rules}");
    let route = shell(&stage, "cat /proc/sys/net/ipv4/conf/all/route_localnet");
    assert_eq!(route, "1\n");

    let page = |path| ask_in(&stage.netns, METRICS, path).body;
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
fn every_command_but_render_does_so() {
    if has_ipvs() {
        return;
    }
    let stage = stage("ipvs");
    for (line, code) in [("--init-only", 0), ("diff", 1), ("--oneshot -o json", 0)] {
        let said = stage.say(line);
        assert_eq!(said.code, code, "{line}: {said:?}");
        assert!(said.stderr.contains(INSTEAD), "{line}: {said:?}");
        if line.contains("json") {
            let report: Value = serde_json::from_str(&said.stdout).unwrap();
            assert_eq!(report["mode"], "iptables");
        }
    }
    let said = stage.say("render");
    assert_eq!((said.code, &*said.stderr), (0, ""), "{said:?}");
    assert!(said.stdout.contains("10.96.0.10:80"), "{said:?}");
}

#[test]
fn mode_iptables_removes_what_it_left_and_nothing_of_its_own() {
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
    let told = "removed leftovers of other modes: ";
    until(told, || proxy.output().contains(told));
    assert_eq!(state(), own, "{}", proxy.output());
    let output = proxy.output();
    assert!(!output.contains("cannot be removed"), "{output}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_scheduler_that_there_is_not_is_bad_input() {
    let said = stage("ipvs").say("--oneshot --ipvs-scheduler fastest");
    assert_eq!((said.code, &*said.stdout), (2, ""), "{said:?}");
    assert!(said.stderr.contains("--ipvs-scheduler"), "{said:?}");
    assert!(said.stderr.contains("rr, wrr, lc"), "{said:?}");
}
