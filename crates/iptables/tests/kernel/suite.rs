//! Results of iptables' extension tests are those of the installed programs.

#[path = "../suite/cases.rs"]
pub(crate) mod cases;

use std::collections::{BTreeMap, BTreeSet};

use cases::{Case, cases};
use vipline_iptables::{
    ChainName, Client, Error, Family, Reason, Rule, SingleCommands, TableName, Variant,
};

use crate::lab::Lab;
use crate::rules::{ipvs, saved};

/// Rules with another result in iptables 1.8.9 or on this host.
pub(crate) const VERSIONS: &str = include_str!("../suite/versions");

/// Estimators of the rules with match `rateest`.
pub(crate) const ESTIMATORS: &str = "\
*filter
:ESTIMATORS - [0:0]
-A ESTIMATORS -j RATEEST --rateest-name RE1 --rateest-interval 250ms --rateest-ewmalog 500ms
-A ESTIMATORS -j RATEEST --rateest-name RE2 --rateest-interval 1s --rateest-ewmalog 64s
COMMIT
";

/// Extensions that the kernel of the host may lack. The test `vm` has the rules of the suite
/// with match `ipvs`. No kernel of the tests has LED: the test `suite` parses and prints it.
const MAYBE_LACKING: [&str; 2] = [ipvs::NAME, "LED"];

/// Returns whether the kernel refuses rules that iptables accepts.
fn lacks(case: &Case) -> bool {
    let document = format!(
        "*{}\n:RULES - [0:0]\n-A RULES {}\nCOMMIT\n",
        case.table, case.text
    );
    let mut lab = Lab::new(case.family, Variant::Legacy);
    lab.restore(&document).is_err()
}

#[test]
fn rules_of_the_suite_are_saved_like_their_saved_form() {
    let others: BTreeSet<_> = VERSIONS.lines().collect();
    let mut tables: BTreeMap<_, (Vec<_>, Vec<_>)> = BTreeMap::new();
    for case in cases() {
        let Some(form) = case.saved else { continue };
        assert!(!case.chains.is_empty(), "{}", case.text);
        let is_lacking = MAYBE_LACKING.contains(&case.extension) && lacks(&case);
        if !others.contains(case.text) && !is_lacking {
            let (texts, forms) = tables
                .entry((case.family.to_string(), case.table))
                .or_default();
            texts.push(case);
            forms.push(form);
        }
    }
    for ((_, table), (cases, forms)) in tables {
        let texts: Vec<_> = cases.iter().map(|case| case.text).collect();
        for variant in Variant::ALL {
            let family = cases[0].family;
            let saved = saved(family, variant, table, &texts);
            for ((saved, form), text) in saved.iter().zip(&forms).zip(&texts) {
                assert_eq!(saved, form, "{family} {variant}: {text}");
            }
            assert_eq!(saved.len(), forms.len(), "{family} {variant} {table}");
        }
    }
}

/// Rules that iptables refuses because an object does not exist, with the object.
const MISSING_OBJECTS: [(&str, &str); 3] = [
    ("-m nfacct --nfacct-name wrong", "wrong"),
    ("-m set --match-set foo src,dst", "foo"),
    ("-j SET --add-set foo src,dst", "foo"),
];

fn forward(table: &str) -> (TableName, ChainName) {
    let table = TableName::new(table).unwrap();
    (table, ChainName::FORWARD)
}

/// Returns the error of `append`, which must not change a rule.
fn refused(
    family: Family,
    variant: Variant,
    append: impl FnOnce(&mut Client) -> Error + Send,
) -> Error {
    let mut lab = Lab::new(family, variant);
    let Lab { netns, client, .. } = &mut lab;
    let error = netns.run(|| append(client));
    assert!(!lab.rules().contains("-A"), "{error}");
    error
}

#[test]
fn rules_with_missing_objects_are_refused_with_the_object() {
    let (filter, chain) = forward("filter");
    let mut count = 0;
    for case in cases() {
        let object = MISSING_OBJECTS.iter().find(|(text, _)| *text == case.text);
        let Some((text, object)) = object else {
            continue;
        };
        assert_eq!(case.saved, None, "{text}");
        count += 1;
        let rule = Rule::parse(text).unwrap();
        for variant in Variant::ALL {
            let error = refused(case.family, variant, |client| {
                client.append(filter, chain, &rule).unwrap_err()
            });
            let reason = match *object {
                "foo" => Reason::MissingSet,
                _ => Reason::MissingChain,
            };
            assert_eq!(error.reason(), Some(reason), "{error}");
            assert!(error.to_string().contains(object), "{error}");
            let document = format!("*filter\n-A FORWARD {text}\nCOMMIT\n");
            let error = refused(case.family, variant, |client| {
                client.restore(&document).unwrap_err()
            });
            // The legacy variant reports only the line of COMMIT if the kernel refuses.
            let is_named = (variant, *object) != (Variant::Legacy, "wrong");
            assert_eq!(error.to_string().contains(object), is_named, "{error}");
        }
    }
    assert_eq!(count, 6);
}

#[cfg(feature = "nft")]
#[test]
fn the_client_over_netlink_names_missing_objects() {
    use vipline_iptables::nft;
    use vipline_netlink::Errno;

    let (filter, chain) = forward("filter");
    for family in Family::ALL {
        for (text, object) in MISSING_OBJECTS {
            let lab = Lab::new(family, Variant::Nft);
            let rule = Rule::parse(text).unwrap();
            let error = lab.netns.run(|| {
                let mut client = nft::Client::open(family).unwrap();
                client.append(filter, chain, &rule).unwrap_err()
            });
            match &error {
                nft::Error::NotEncoded { reason, .. } => {
                    let unsupported = reason.downcast_ref::<nft::Unsupported>().unwrap();
                    assert_eq!(unsupported.missing_set(), Some(object));
                }
                error => assert_eq!(error.errno(), Some(Errno::NOENT), "{error}"),
            }
            let named = format!("table filter: -A FORWARD {rule}: ");
            assert!(error.to_string().starts_with(&named), "{error}");
        }
    }
}

#[test]
fn the_legacy_variant_alone_refuses_tcpmss_without_syn() {
    let (mangle, chain) = forward("mangle");
    let accepted = [
        "-p tcp -m tcp --tcp-flags SYN SYN -j TCPMSS --set-mss 42",
        "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j TCPMSS --clamp-mss-to-pmtu",
        "-p tcp -m comment --comment x -m tcp --tcp-flags SYN,ACK SYN,ACK -j TCPMSS --set-mss 42",
    ];
    let refused = [
        "-p tcp -j TCPMSS --set-mss 42",
        "-p tcp -j TCPMSS --clamp-mss-to-pmtu",
        "-p tcp -m tcp --dport 80 -j TCPMSS --set-mss 42",
        "-p tcp -m tcp ! --tcp-flags SYN SYN -j TCPMSS --set-mss 42",
        "-p tcp -m tcp --tcp-flags SYN NONE -j TCPMSS --set-mss 42",
    ];
    for mut lab in Lab::all() {
        let variant = lab.variant;
        let Lab { netns, client, .. } = &mut lab;
        for text in accepted.iter().chain(&refused) {
            let rule = Rule::parse(text).unwrap();
            let result = netns.run(|| client.append(mangle, chain, &rule));
            let is_refused = variant == Variant::Legacy && refused.contains(text);
            assert_eq!(result.is_err(), is_refused, "{variant} {text}");
            let checked = rule.check_variant(variant);
            assert_eq!(checked.is_err(), is_refused, "{variant} {text}");
        }
    }
}
