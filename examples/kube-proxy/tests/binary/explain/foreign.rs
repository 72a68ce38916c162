//! Rules of other programs: those that cannot be evaluated, and those that drop, translate,
//! mark or exempt the packet.

use serde_json::{Value, json as value};

use super::json;
use super::kernel::web;
use crate::stage::Stage;

/// Endpoints of the Service.
const ENDPOINTS: [&str; 2] = ["10.244.1.1:8080", "10.244.1.2:8080"];

/// Returns the answer about the Service from a source, with rules of another program in a
/// base chain.
fn with_rules(stage: &Stage, from: &str, chain: &str, rules: &str) -> Value {
    stage.load(&format!(
        "table ip firewall {{\nchain base {{\ntype {chain}\n{rules}\n}}\n}}\n"
    ));
    let answer = answer(stage, from);
    stage.load("delete table ip firewall\n");
    answer
}

fn answer(stage: &Stage, from: &str) -> Value {
    let line = format!("explain tcp 10.96.0.10:80 --from {from} -o json");
    json(&stage.run(&line))
}

/// Returns the addresses and fractions of a list of endpoints.
fn chances(list: &Value) -> Vec<(&str, &str)> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let each = list.iter().map(|it| {
        let address = it["address"].as_str().unwrap();
        (address, it["fraction"].as_str().unwrap())
    });
    each.collect()
}

#[test]
fn a_kernel_that_cannot_be_evaluated_is_unknown_and_the_sentence_has_the_plan() {
    let stage = web();
    stage.oneshot();
    for (rule, expression) in [
        ("ether saddr 00:11:22:33:44:55 drop", "meta"),
        ("meta length 1-100 drop", "meta"),
    ] {
        let chain = "filter hook forward priority -150";
        let answer = with_rules(&stage, "198.51.100.7", chain, rule);
        assert_eq!(answer["outcome"], "unknown", "{answer:#}");
        assert_eq!(answer["kernel"]["outcome"], "unknown", "{answer:#}");
        assert_eq!(answer["plan"]["outcome"], "reachable", "{answer:#}");
        assert_eq!(answer["agrees"], Value::Null, "{answer:#}");
        let expected = ENDPOINTS.map(|it| (it, "1/2"));
        assert_eq!(chances(&answer["endpoints"]), expected, "{answer:#}");
        let error = answer["kernel"]["error"].as_str().unwrap();
        assert!(
            error.starts_with("forward ip firewall base handle "),
            "{error}"
        );
        assert!(
            error.contains(&format!(": expression {expression}: ")),
            "{error}"
        );
        let expected = format!(
            "Unknown: the rules of the kernel cannot be evaluated: {error}. By the plan, works \
             for the first packet: 10.96.0.10:80 is the cluster IP of default/web, and leads to \
             one of 2 endpoints, each with probability 1/2, source address masqueraded."
        );
        assert_eq!(answer["sentence"], expected);
        assert_eq!(
            answer["reason"],
            format!("the rules of the kernel cannot be evaluated: {error}")
        );
    }
}

#[test]
fn all_connections_of_a_service_may_be_unknown() {
    let stage = web();
    stage.oneshot();
    stage.load(
        "table ip firewall {\nchain base {\ntype filter hook forward priority -150\n\
         ether saddr 00:11:22:33:44:55 drop\n}\n}\n",
    );
    let answer = json(&stage.run("explain service default/web --from 198.51.100.7 -o json"));
    assert_eq!(answer["outcome"], "unknown", "{answer:#}");
    let sentence = answer["sentence"].as_str().unwrap();
    let begin = "1 of 1 connection to Service default/web is unknown. The first, from \
                 198.51.100.7 (outside): Unknown: ";
    assert!(sentence.starts_with(begin), "{sentence}");
}

#[test]
fn a_table_whose_name_begins_with_kube_may_be_of_another_program() {
    let stage = web();
    stage.oneshot();
    stage.load(
        "table inet kube-network-policies {\nchain forward {\n\
         type filter hook forward priority 10\nip daddr 10.244.1.0/24 drop\n}\n}\n",
    );
    let answer = answer(&stage, "198.51.100.7");
    assert_eq!(answer["outcome"], "dropped", "{answer:#}");
    assert_eq!(answer["kernel"]["paths"][0]["foreign"], true, "{answer:#}");
    let sentence = answer["sentence"].as_str().unwrap();
    let expected = "by a rule of another program, which the proxy does not change: forward inet \
                    kube-network-policies forward handle";
    assert!(sentence.contains(expected), "{sentence}");
}

#[test]
fn no_repair_is_promised_if_a_rule_of_another_program_takes_part() {
    let stage = web();
    stage.oneshot();
    for (chain, rule, effect) in [
        (
            "nat hook postrouting priority 90",
            "masquerade",
            "translates the packet",
        ),
        (
            "nat hook postrouting priority 90",
            "snat to 10.244.1.253",
            "translates the packet",
        ),
        (
            "filter hook prerouting priority -150",
            "meta mark set 0x00004000",
            "sets the mark",
        ),
        (
            "filter hook prerouting priority -300",
            "notrack",
            "changes connection tracking",
        ),
    ] {
        let answer = with_rules(&stage, "10.244.1.5", chain, rule);
        assert_eq!(answer["agrees"], false, "{rule}: {answer:#}");
        let sentence = answer["sentence"].as_str().unwrap();
        let begin = "Kernel and plan disagree about 10.96.0.10:80: in the kernel ";
        assert!(sentence.starts_with(begin), "{rule}: {sentence}");
        assert!(
            sentence.contains(&format!("A rule of another program {effect}: ")),
            "{rule}: {sentence}"
        );
        assert!(
            sentence.contains("ip firewall base handle"),
            "{rule}: {sentence}"
        );
        assert!(sentence.contains(rule), "{sentence}");
        let is_accepted = sentence.contains("policy accept");
        assert!(
            !is_accepted,
            "an accepted packet is not dropped: {sentence}"
        );
        assert!(
            !sentence.contains("A running proxy repairs such differences"),
            "{rule}: {sentence}"
        );
    }
}

#[test]
fn an_address_that_is_no_endpoint_is_elsewhere() {
    let stage = web();
    stage.oneshot();
    let chain = "nat hook prerouting priority -110";
    let rule = "tcp dport 80 dnat to 10.244.1.250:9";
    let answer = with_rules(&stage, "198.51.100.7", chain, rule);
    assert_eq!(answer["outcome"], "elsewhere", "{answer:#}");
    assert_eq!(answer["endpoints"], value!([]), "{answer:#}");
    assert_eq!(answer["kernel"]["endpoints"], value!([]), "{answer:#}");
    let elsewhere = chances(&answer["kernel"]["elsewhere"]);
    assert_eq!(elsewhere, [("10.244.1.250:9", "1")]);
    let sentence = answer["sentence"].as_str().unwrap();
    let begin = "Leads elsewhere: 10.96.0.10:80 leads to 10.244.1.250:9, which is no endpoint of \
                 default/web, by a rule of another program, which the proxy does not change: \
                 prerouting ip firewall base handle";
    assert!(sentence.starts_with(begin), "{sentence}");
    assert!(sentence.contains("dnat to 10.244.1.250:9"), "{sentence}");

    let written = "tcp dport 80 ip daddr set 10.244.1.250";
    let filter = "filter hook prerouting priority -150";
    let answer = with_rules(&stage, "198.51.100.7", filter, written);
    assert_eq!(answer["outcome"], "elsewhere", "{answer:#}");
    let sentence = answer["sentence"].as_str().unwrap();
    let begin = "Leads elsewhere: 10.96.0.10:80 leads to 10.244.1.250:80, which is no endpoint of";
    assert!(sentence.starts_with(begin), "{sentence}");

    let range = "tcp dport 80 dnat to 10.244.1.250-10.244.1.255";
    let answer = with_rules(&stage, "198.51.100.7", chain, range);
    let sentence = answer["sentence"].as_str().unwrap();
    let part = "10.244.1.253:80 with probability 1/6 and 2 more, which are no endpoints of";
    assert!(sentence.contains(part), "{sentence}");

    let part = "tcp dport 80 numgen random mod 2 0 dnat to 10.244.1.250:9";
    let answer = with_rules(&stage, "198.51.100.7", chain, part);
    assert_eq!(answer["outcome"], "elsewhere", "{answer:#}");
    let endpoints = ENDPOINTS.map(|it| (it, "1/4"));
    assert_eq!(chances(&answer["endpoints"]), endpoints, "{answer:#}");
    let sentence = answer["sentence"].as_str().unwrap();
    let part = "10.96.0.10:80 leads to 10.244.1.250:9 with probability 1/2, which is no endpoint";
    assert!(sentence.contains(part), "{sentence}");
}

#[test]
fn the_proxy_repairs_its_own_rule_that_leads_elsewhere() {
    let stage = web();
    stage.oneshot();
    let key = "10.96.0.10 . tcp . 80 . 1";
    stage.load(&format!(
        "delete element ip kube-proxy backends-2 {{ {key} }}\n\
         add element ip kube-proxy backends-2 {{ {key} : 10.244.1.99 . 8080 }}\n"
    ));
    let answer = answer(&stage, "198.51.100.7");
    assert_eq!(answer["outcome"], "elsewhere", "{answer:#}");
    let sentence = answer["sentence"].as_str().unwrap();
    assert!(
        sentence.contains("it leads to 10.244.1.1:8080 and to 10.244.1.99:8080 with probability 1/2 (no endpoint of default/web)"),
        "{sentence}"
    );
    assert!(!sentence.contains("another program"), "{sentence}");
    assert!(sentence.contains("A running proxy repairs"), "{sentence}");
}

#[test]
fn an_address_without_a_service_may_lead_elsewhere() {
    let stage = web();
    stage.oneshot();
    stage.load(
        "table ip host-ports {\nchain base {\ntype nat hook prerouting priority -110\n\
         tcp dport 8080 dnat to 10.244.1.7:80\n}\n}\n",
    );
    let line = "explain tcp 192.168.0.5:8080 --from 198.51.100.7 -o json";
    let answer = json(&stage.run(line));
    assert_eq!(answer["outcome"], "elsewhere", "{answer:#}");
    let sentence = answer["sentence"].as_str().unwrap();
    let begin = "Leads elsewhere: 192.168.0.5:8080 leads to 10.244.1.7:80 by a rule of another \
                 program, which the proxy does not change: prerouting ip host-ports base handle";
    assert!(sentence.starts_with(begin), "{sentence}");
}
