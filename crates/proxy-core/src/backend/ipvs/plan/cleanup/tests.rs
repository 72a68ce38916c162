//! Tests of the removal of modes iptables and ipvs.

use vipline_ipset::{Command, Commands, SetDump};

use super::servers::tests::services;
use super::*;
use crate::backend::iptables::plan::cleanup::{Saved, SavedRules};
use crate::cleanup::names::Selection;
use crate::cleanup::{Scope, plan};
use crate::{IptablesBackend, Mode, owned};

/// Selects the chains and jumps of all modes.
const ALL: Selection = Selection::new(Scope::AllModes, false);

/// Selects what a mode leaves, in the variant of iptables that it uses.
fn except(mode: Mode) -> Selection {
    Selection::new(Scope::AllExcept(mode, IptablesBackend::Programs), true)
}

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
    plan(&[Box::new(SavedRules(rules)), Box::new(ipvs)], &[])
}

#[test]
fn rules_are_removed_before_the_sets_that_they_use() {
    let rules = vec![Saved {
        restore: "iptables-nft-restore".to_owned(),
        text: "*filter\n:KUBE-IPVS-FILTER - [0:0]\nCOMMIT\n".to_owned(),
        over_netlink: None,
        selection: ALL,
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
fn every_jump_leads_to_a_chain_that_is_removed() {
    let modes = [Mode::Nftables, Mode::Iptables, Mode::Ipvs].map(except);
    for selection in modes.into_iter().chain([ALL]) {
        for jump in selection.jumps() {
            let to = owned::find(jump.table, jump.to).expect(jump.to);
            // Chains of both modes stay, and their jumps may stay.
            let stays = to.modes == [Mode::Iptables, Mode::Ipvs];
            assert!(
                selection.has_chain(jump.table, jump.to) || stays,
                "{jump:?}"
            );
            assert!(!selection.has_chain(jump.table, jump.from), "{jump:?}");
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
    let selections = [Mode::Iptables, Mode::Ipvs, Mode::Nftables].map(except);
    for (table, chain, expected) in chains {
        let in_the_way = selections.map(|selection| selection.has_chain(table, chain));
        assert_eq!(in_the_way, expected, "{table} {chain}");
    }
    let comments = |mode| {
        let comments: Vec<_> = except(mode).jumps().map(|jump| jump.comment).collect();
        comments
    };
    let portals = "kubernetes service portals";
    assert!(!comments(Mode::Iptables).contains(&portals));
    assert_eq!(comments(Mode::Iptables).len(), 10);
    assert_eq!(comments(Mode::Ipvs).len(), 14);
    assert_eq!(comments(Mode::Nftables).len(), 23);
}

#[test]
fn all_chains_of_a_mode_in_the_variant_that_it_does_not_use_are_leftovers() {
    for mode in [Mode::Iptables, Mode::Ipvs] {
        let scope = Scope::AllExcept(mode, IptablesBackend::Programs);
        let elsewhere = Selection::new(scope, false);
        for (table, chain) in [
            ("nat", "KUBE-SERVICES"),
            ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y"),
            ("nat", "KUBE-LOAD-BALANCER"),
            ("nat", "KUBE-PORTALS-HOST"),
        ] {
            assert!(elsewhere.has_chain(table, chain), "{mode} {table} {chain}");
        }
        // The kubelet has its chains in both variants.
        for (table, chain) in [("nat", "KUBE-MARK-DROP"), ("filter", "KUBE-FIREWALL")] {
            assert!(!elsewhere.has_chain(table, chain), "{mode} {table} {chain}");
        }
        assert_eq!(elsewhere.jumps().count(), owned::JUMPS.len());
    }
}
