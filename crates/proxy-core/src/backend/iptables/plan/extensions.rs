//! The matches and targets of xtables that the rules of modes iptables and ipvs use, with the
//! kernel options that have them.
//!
//! Each is checked before the first sync with a rule of its own, so that a kernel without it is
//! named by its option. Otherwise every sync would fail with "No such file or directory"
//! about one rule among thousands.

use vipline_iptables::Rule;
use vipline_service_model::Family;

use super::names;
use crate::{MissingExtension, Mode};

/// A match or target.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Extension {
    /// Its name in rules and in messages of the programs.
    pub(in crate::backend) name: &'static str,
    /// A rule that uses it and nothing else that a kernel may lack.
    rule: fn(Family) -> &'static str,
    option: fn(Family) -> &'static str,
    /// What does not work without it, in each mode. `None`: the mode as a whole.
    iptables: Use,
    ipvs: Use,
}

/// How a mode uses an extension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    Never,
    /// Rules of all Services, or of nearly all of them, need it.
    Always,
    /// Only these need it; the kernel rejects their rules, and all others are served.
    By(&'static str),
}

use Use::{Always, By, Never};

const ALL: [Extension; 9] = [
    Extension {
        name: "comment",
        rule: |_| "-m comment --comment probe -j RETURN",
        option: |_| "CONFIG_NETFILTER_XT_MATCH_COMMENT",
        iptables: Always,
        ipvs: Always,
    },
    Extension {
        name: "conntrack",
        rule: |_| "-m conntrack --ctstate NEW -j RETURN",
        option: |_| "CONFIG_NETFILTER_XT_MATCH_CONNTRACK",
        iptables: Always,
        ipvs: Always,
    },
    Extension {
        name: "MARK",
        rule: |_| "-j MARK --set-xmark 0x4000/0x4000",
        option: |_| "CONFIG_NETFILTER_XT_MARK",
        iptables: Always,
        ipvs: Always,
    },
    Extension {
        name: "MASQUERADE",
        rule: |_| "-j MASQUERADE",
        option: |_| "CONFIG_NETFILTER_XT_TARGET_MASQUERADE",
        iptables: Always,
        ipvs: Always,
    },
    Extension {
        name: "DNAT",
        rule: |family| match family {
            Family::V4 => "-p tcp -j DNAT --to-destination 192.0.2.1:80",
            Family::V6 => "-p tcp -j DNAT --to-destination [2001:db8::1]:80",
        },
        option: |_| "CONFIG_NETFILTER_XT_NAT",
        iptables: Always,
        ipvs: Never,
    },
    // Each Service with more than one endpoint.
    Extension {
        name: "statistic",
        rule: |_| "-m statistic --mode random --probability 0.50000000000 -j RETURN",
        option: |_| "CONFIG_NETFILTER_XT_MATCH_STATISTIC",
        iptables: Always,
        ipvs: Never,
    },
    Extension {
        name: "addrtype",
        rule: |_| "-m addrtype --dst-type LOCAL -j RETURN",
        option: |_| "CONFIG_NETFILTER_XT_MATCH_ADDRTYPE",
        iptables: By("node ports, and external addresses with policy Local"),
        ipvs: Always,
    },
    Extension {
        name: "recent",
        rule: |_| "-m recent --set --name KUBE-PROXY-PROBE -j RETURN",
        option: |_| "CONFIG_NETFILTER_XT_MATCH_RECENT",
        iptables: By("Services with session affinity"),
        ipvs: Never,
    },
    Extension {
        name: "REJECT",
        rule: |_| "-j REJECT",
        option: |family| match family {
            Family::V4 => "CONFIG_IP_NF_TARGET_REJECT",
            Family::V6 => "CONFIG_IP6_NF_TARGET_REJECT",
        },
        iptables: By("the refusal of connections to Services without endpoints"),
        ipvs: Always,
    },
];

/// Returns the extensions that a mode uses.
pub(in crate::backend) fn of(mode: Mode) -> impl Iterator<Item = Extension> {
    ALL.into_iter().filter(move |it| it.use_of(mode) != Never)
}

impl Extension {
    fn use_of(&self, mode: Mode) -> Use {
        match mode {
            Mode::Ipvs => self.ipvs,
            _ => self.iptables,
        }
    }

    /// Returns whether a mode works for no Service, or for nearly none, without the extension.
    pub(in crate::backend) fn is_required(&self, mode: Mode) -> bool {
        self.use_of(mode) == Always
    }

    /// Returns the rule of the check.
    pub(in crate::backend) fn rule(&self, family: Family) -> Rule<'static> {
        let rule = Rule::parse((self.rule)(family)).expect("the rules in this file are valid");
        rule.for_family(family)
    }

    /// Describes a kernel without the extension.
    pub(in crate::backend) fn missing(&self, mode: Mode, family: Family) -> MissingExtension {
        let affected = match self.use_of(mode) {
            By(affected) => Some(affected),
            Always | Never => None,
        };
        MissingExtension::new(self.name, (self.option)(family), affected)
    }
}

/// Returns a document for `iptables-restore --test` with the rules of extensions.
pub(in crate::backend) fn document(extensions: &[Extension], family: Family) -> String {
    let rules = extensions.iter().map(|it| it.rule(family).to_string());
    test_document(names::NAT, rules)
}

/// Returns a document with rules in a chain of its own, which a test does not create.
pub(in crate::backend) fn test_document(
    table: &str,
    rules: impl Iterator<Item = String>,
) -> String {
    let rules: String = rules
        .map(|rule| format!("-A KUBE-PROXY-PROBE {rule}\n"))
        .collect();
    format!("*{table}\n:KUBE-PROXY-PROBE - [0:0]\n{rules}COMMIT\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_document_still_opens_the_table() {
        let text = document(&[], Family::V4);
        assert_eq!(text, "*nat\n:KUBE-PROXY-PROBE - [0:0]\nCOMMIT\n");
    }

    #[test]
    fn each_rule_uses_its_extension_in_both_families() {
        for family in Family::ALL {
            for extension in ALL {
                let text = extension.rule(family).to_string();
                assert!(text.contains(extension.name), "{text}");
            }
        }
    }

    #[test]
    fn a_missing_extension_is_named_with_its_option() {
        let extension = of(Mode::Iptables).find(|it| it.name == "recent").unwrap();
        let missing = extension.missing(Mode::Iptables, Family::V4);
        assert_eq!(
            missing.to_string(),
            "CONFIG_NETFILTER_XT_MATCH_RECENT (recent) is off, or its module is missing"
        );
        assert_eq!(missing.affected, Some("Services with session affinity"));
        assert!(!of(Mode::Ipvs).any(|it| it.name == "recent"));
    }
}
