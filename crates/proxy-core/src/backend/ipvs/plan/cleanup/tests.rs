//! Tests of the removal of modes iptables and ipvs.

use vipline_ipset::{Command, Commands, SetDump};

use super::servers::tests::services;
use super::*;
use crate::Mode;
use crate::backend::iptables::plan::cleanup::{Saved, SavedRules};
use crate::cleanup::names::{is_chain, jumps};
use crate::cleanup::{Scope, iptables_names, plan};

/// Output of `ipset save`, ipset 7.17.
const SAVED: &str = include_str!("captures/ipset.txt");

/// Returns the sets of kube-proxy in the output of `ipset save`.
pub(in crate::backend::ipvs) fn sets(saved: &str) -> Sets {
    let commands = Commands::parse(saved, &[]).unwrap();
    let mut found: Vec<SetDump> = Vec::new();
    for command in commands.as_slice() {
        match command {
            Command::Create(set, _) => found.push(SetDump::new((**set).clone())),
            Command::Add(entry, _) => {
                let mut sets = found.iter_mut();
                let set = sets.find(|listed| listed.set.name == entry.set).unwrap();
                set.entries.push((**entry).clone());
            }
            _ => {}
        }
    }
    let mut sets = Sets::default();
    sets.extend(
        found
            .into_iter()
            .filter(|listed| names::is_set(listed.set.name.as_str())),
    );
    sets
}

#[test]
fn upstreams_sets_of_both_families_are_removed() {
    let shown: Vec<_> = set_steps(&sets(SAVED)).map(|set| set.to_string()).collect();
    let expected = [
        "ipset destroy KUBE-6-LOAD-BALANCER-SOURCE-CID",
        "ipset destroy KUBE-CLUSTER-IP",
        "ipset destroy KUBE-NODE-PORT-TCP",
    ];
    assert_eq!(shown, expected);
}

/// Plans the removal of rules and of objects of mode ipvs.
fn planned(rules: Vec<Saved>, ipvs: Found) -> Removal {
    let names = iptables_names(Scope::AllModes);
    plan(
        &[Box::new(SavedRules { names, rules }), Box::new(ipvs)],
        &[],
    )
}

#[test]
fn rules_are_removed_before_the_sets_that_they_use() {
    let rules = vec![Saved {
        restore: "iptables-nft-restore".to_owned(),
        text: "*filter\n:KUBE-IPVS-FILTER - [0:0]\nCOMMIT\n".to_owned(),
        over_netlink: None,
    }];
    let ipvs = Found {
        servers: services("-A -t 10.96.0.20:80 -s rr\n-A -t 10.96.0.30:80 -s rr\n"),
        link: Some(vec!["10.96.0.20".parse().unwrap()]),
        sets: sets("create KUBE-IPVS-IPS hash:ip family inet\n"),
    };
    let Removal { steps, stays, .. } = planned(rules, ipvs);
    let shown: String = steps.iter().map(|step| format!("{step}\n")).collect();
    assert_eq!(
        shown,
        "iptables-nft-restore --noflush --wait 5 <<'END'\n*filter\n:KUBE-IPVS-FILTER - [0:0]\n\
         -X KUBE-IPVS-FILTER\nCOMMIT\nEND\nipvsadm -D -t 10.96.0.20:80\n\
         ip link delete kube-ipvs0\nipset destroy KUBE-IPVS-IPS\n"
    );
    assert_eq!(stays.len(), 1, "{stays:?}");
    let nothing = planned(Vec::new(), Found::default());
    assert!(nothing.steps.is_empty() && nothing.stays.is_empty());
}

#[test]
fn chains_are_identified_by_full_name_and_table() {
    let all = iptables_names(Scope::AllModes);
    for (table, name) in [
        ("nat", "KUBE-SERVICES"),
        ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y"),
        ("nat", "KUBE-SEP-SXIVWICOYRO3J4NJ"),
        ("filter", "KUBE-IPVS-OUT-FILTER"),
        ("mangle", "KUBE-PROXY-CANARY"),
    ] {
        assert!(is_chain(&all, table, name), "{table} {name}");
    }
    for (table, name) in [
        ("nat", "KUBE-SVC-MINE"),
        ("nat", "KUBE-SVC-npx46m4ptmtkrn6y"),
        ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y2"),
        ("filter", "KUBE-SVC-NPX46M4PTMTKRN6Y"),
        ("filter", "KUBE-FIREWALL"),
        ("filter", "KUBE-KUBELET-CANARY"),
        ("mangle", "KUBE-SERVICES"),
        ("nat", "MY-KUBE-SERVICES"),
    ] {
        assert!(!is_chain(&all, table, name), "{table} {name}");
    }
}

/// Returns whether modes iptables and ipvs both create a chain.
fn is_shared(table: &str, name: &str) -> bool {
    let mut all = iptables_names(Scope::AllModes).into_iter();
    all.any(|names| names.modes == [Mode::Iptables, Mode::Ipvs] && names.has_chain(table, name))
}

#[test]
fn every_jump_leads_to_a_chain_that_is_removed() {
    for scope in [
        Scope::AllModes,
        Scope::AllExcept(Mode::Nftables),
        Scope::AllExcept(Mode::Iptables),
        Scope::AllExcept(Mode::Ipvs),
    ] {
        let names = iptables_names(scope);
        for jump in jumps(&names) {
            let within = |chain| is_chain(&names, jump.table, chain);
            // Chains of both modes stay, and their jumps may stay.
            let stays = is_shared(jump.table, jump.to);
            assert!(within(jump.to) || stays, "{scope:?} {jump:?}");
            assert!(!within(jump.from), "{scope:?} {jump:?}");
        }
    }
}

#[test]
fn objects_of_a_mode_are_not_leftovers_for_it() {
    let chains = [
        ("nat", "KUBE-SERVICES", [false, false, true]),
        ("filter", "KUBE-PROXY-FIREWALL", [false, false, true]),
        ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y", [false, true, true]),
        ("filter", "KUBE-SERVICES", [false, true, true]),
        ("nat", "KUBE-LOAD-BALANCER", [true, false, true]),
        ("filter", "KUBE-NODE-PORT", [true, false, true]),
    ];
    let scopes = [Mode::Iptables, Mode::Ipvs, Mode::Nftables].map(Scope::AllExcept);
    for (table, chain, expected) in chains {
        let in_the_way = scopes.map(|scope| is_chain(&iptables_names(scope), table, chain));
        assert_eq!(in_the_way, expected, "{table} {chain}");
    }
    let comments = |mode| {
        let names = iptables_names(Scope::AllExcept(mode));
        let comments: Vec<_> = jumps(&names).map(|jump| jump.comment).collect();
        comments
    };
    let portals = "kubernetes service portals";
    assert!(!comments(Mode::Iptables).contains(&portals));
    assert_eq!(comments(Mode::Iptables).len(), 5);
    assert_eq!(comments(Mode::Ipvs).len(), 8);
    assert_eq!(comments(Mode::Nftables).len(), 17);
}
