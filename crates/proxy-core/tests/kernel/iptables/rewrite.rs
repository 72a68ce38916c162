//! A shared chain that loses many rules is rewritten.

use std::collections::BTreeSet;
use std::process::Command;

use proxy_core::{Event, Family};
use testkit::netns::Netns;
use vipline_iptables::{Chain, ChainName, Contents, Object, Position, SharedRule, TableName};
use vipline_reconcile::{Edit, Target as _};
use vipline_service_model::{ObjectName, api};

use super::chains::assert_programmed;
use super::{Access, Proxy, assert_restart_writes_nothing};
use crate::fixtures::{self, web_with};

/// Number of external IPs of the large Service.
const ADDRESSES: u16 = 300;

/// Returns a Service with many external IPs, with its slices.
fn large() -> Vec<Event> {
    let builder = web_with("10.96.0.99", 2);
    let mut service = builder.service();
    service.metadata.name = "large".into();
    let addresses = (0..ADDRESSES).map(|number| {
        let [high, low] = number.to_be_bytes();
        format!("203.0.{high}.{low}")
    });
    service.spec.external_ips = addresses.collect();
    let slices = builder.slices().into_iter().map(|mut slice| {
        let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
        slice.metadata.name = format!("large-{}", slice.metadata.name);
        slice.metadata.labels.insert(label, "large".into());
        Event::from(slice)
    });
    [service.into()].into_iter().chain(slices).collect()
}

/// Returns the handles of the rules of KUBE-SERVICES in table nat of nf_tables.
fn handles() -> BTreeSet<u64> {
    let mut program = Command::new("nft");
    let output = program.args(["-a", "list", "chain", "ip", "nat", "KUBE-SERVICES"]);
    let output = output.output().expect("nft is installed");
    let text = String::from_utf8(output.stdout).expect("rules are text");
    let rules = text.lines().filter(|line| line.contains("counter"));
    let handle = |line: &str| line.rsplit_once("# handle ")?.1.parse().ok();
    rules.filter_map(handle).collect()
}

#[test]
fn the_rules_of_other_services_stay_when_a_large_service_is_removed_at_once() {
    let mut config = fixtures::config();
    config.iptables.nfacct = false;
    let other = || web_with("10.96.0.10", 1).events();
    for access in Access::ALL {
        let is_legacy = access == Access::Programs(vipline_iptables::Variant::Legacy);
        Netns::new().expect("a network namespace").run(|| {
            let mut proxy = Proxy::start(config.clone(), access, large());
            proxy.sync();
            // Its rule is before those of the large Service.
            proxy.change(other()).expect("a sync is due");
            let before = if is_legacy {
                BTreeSet::new()
            } else {
                handles()
            };
            assert!(is_legacy || before.len() > usize::from(ADDRESSES));
            let removed = ObjectName::new("default", "large");
            let report = proxy.change([Event::ServiceDeleted(removed)]);
            let report = report.expect("a sync is due");
            assert!(report.is_success() && report.is_complete, "{report}");
            assert_programmed(&mut proxy.engine, access.variant(), "after the removal");
            // Even the rules that stay were written again.
            assert!(is_legacy || handles().is_disjoint(&before), "{access:?}");
            assert_eq!(is_legacy, handles().is_empty(), "{access:?}");
            let events: Vec<_> = large().into_iter().skip(1).chain(other()).collect();
            assert_restart_writes_nothing(&config, access, &events);
        });
    }
}

fn rule(text: &str) -> Object {
    Object::from(SharedRule {
        table: TableName::NAT,
        chain: ChainName::new("KUBE-SERVICES").expect("a chain"),
        position: Position::Head,
        occurrence: 0,
        rule: text.into(),
    })
}

#[test]
fn a_rejected_rule_is_isolated_from_the_rewrite_of_its_chain() {
    let number = |number: usize| rule(&format!("-d 10.96.1.{number}/32 -j RETURN"));
    let chain = |name: &str| (TableName::new("nat"), ChainName::new(name));
    let made = |name: &str, contents| match chain(name) {
        (Ok(table), Ok(name)) => Object::from(Chain::new(table, name).with_contents(contents)),
        _ => panic!("a table and a chain"),
    };
    for access in Access::ALL {
        Netns::new().expect("a network namespace").run(|| {
            let mut kernel = access.kernel(Family::V4);
            let installed = (1..=200).map(number);
            let shared = made("KUBE-SERVICES", Contents::SharedRules);
            let edits: Vec<_> = [shared]
                .into_iter()
                .chain(installed)
                .map(Edit::Add)
                .collect();
            assert_eq!(kernel.commit(&edits).expect("valid edits"), []);

            let mut edits: Vec<_> = (1..=150).map(|it| Edit::Remove(number(it))).collect();
            // Enough chains that the programs commit several sections, of which the last fails.
            let chains = (0..200).map(|it| format!("KUBE-SVC-A{it:015}"));
            let chains: Vec<_> = chains.collect();
            let empty = || Contents::Rules([""; 0].into_iter().collect());
            edits.extend(chains.iter().map(|it| Edit::Add(made(it, empty()))));
            edits.push(Edit::Add(rule("-d 10.96.2.1/32 -j RETURN")));
            edits.push(Edit::Add(rule("-d 10.96.2.2/32 -j KUBE-SVC-MISSING")));
            let rejections = kernel.commit(&edits).expect("the rest is valid");
            let rejected: Vec<_> = rejections.iter().map(|it| it.index).collect();
            assert_eq!(rejected, [edits.len() - 1], "{access:?}: {rejections:?}");

            let dumped = kernel.dump().expect("a dump");
            let texts = dumped.iter().filter_map(|object| match object {
                Object::SharedRule(rule) => Some((rule.rule.to_string(), rule.occurrence)),
                Object::Chain(_) => None,
            });
            let texts: BTreeSet<_> = texts.collect();
            let mut expected: BTreeSet<_> = (151..=200)
                .map(|it| (format!("-d 10.96.1.{it}/32 -j RETURN"), 0))
                .collect();
            expected.insert(("-d 10.96.2.1/32 -j RETURN".to_owned(), 0));
            assert_eq!(texts, expected, "{access:?}");
        });
    }
}
