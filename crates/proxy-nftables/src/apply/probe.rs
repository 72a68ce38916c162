//! Check of the kernel's support for the rules.

use std::collections::BTreeMap;

use vipline_netlink::Errno;
use vipline_nftables::expr::Expr;
use vipline_nftables::{
    Chain, Client, Error, Name, Object, RejectedOperation, Rule, Subject, Table as NftTable,
    TableFlags, TableId, Transaction,
};
use vipline_reconcile::Edit;
use vipline_service_model::{Family, NodeView};

use crate::Planner;
use crate::plan::affinity::chains_of_affinity;
use crate::plan::table::Table;
use proxy_engine::{Config, Context, MissingExtension, Planner as _};

/// A table flag that the kernel always rejects.
const IMPOSSIBLE: TableFlags = TableFlags::from_bits_retain(1 << 31);

/// The expressions that are modules, with their kernel options and modules in IPv4 and IPv6.
/// All others are part of nf_tables.
const MODULES: [(&str, [(&str, &str); 2]); 7] = [
    ("ct", [("CONFIG_NFT_CT", "nft_ct"); 2]),
    (
        "fib",
        [
            ("CONFIG_NFT_FIB_IPV4", "nft_fib_ipv4"),
            ("CONFIG_NFT_FIB_IPV6", "nft_fib_ipv6"),
        ],
    ),
    ("hash", [("CONFIG_NFT_HASH", "nft_hash"); 2]),
    ("masq", [("CONFIG_NFT_MASQ", "nft_masq"); 2]),
    ("nat", [("CONFIG_NFT_NAT", "nft_nat"); 2]),
    ("numgen", [("CONFIG_NFT_NUMGEN", "nft_numgen"); 2]),
    (
        "reject",
        [
            ("CONFIG_NFT_REJECT_IPV4", "nft_reject_ipv4"),
            ("CONFIG_NFT_REJECT_IPV6", "nft_reject_ipv6"),
        ],
    ),
];

/// Checks that the kernel supports all rules that do not depend on Services.
///
/// The transaction contains an invalid table. So the kernel checks all operations and
/// applies none.
///
/// All Services use these rules, so a kernel without one of their expressions is not supported.
pub fn probe(cx: &Context) -> Result<(), proxy_engine::Error> {
    probe_base(cx.family, Planner.base(cx))
}

fn probe_base(family: Family, base: Vec<Object>) -> Result<(), proxy_engine::Error> {
    let mut client = Client::open()?;
    let edits = edits(&mut client, base.clone())?;
    let (rejected, more) = refused(&mut client, &edits)?;
    let operations = rejected
        .iter()
        .filter(|operation| !is_deliberate(operation));
    let mut reasons: Vec<_> = operations.map(ToString::to_string).collect();
    match more {
        Some(0) => {}
        Some(more) => reasons.push(format!("and {more} more")),
        None => reasons.push("and more, whose acknowledgments were lost".to_owned()),
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let missing = missing_modules(&mut client, family, &exprs(&base))?;
    if !missing.is_empty() {
        let named = missing.iter().map(|it| {
            let Module { option, module, .. } = it;
            format!("{option} is off, or module {module} is missing")
        });
        reasons = named.collect();
    }
    Err(proxy_engine::Error::Unsupported {
        mode: "nftables",
        family,
        reasons: reasons.join("; "),
    })
}

/// Returns what the kernel lacks for chains that exist only while Services need them.
///
/// The base rules work without it, and so do all other Services.
pub fn missing_extensions(family: Family) -> Result<Vec<MissingExtension>, proxy_engine::Error> {
    let mut client = Client::open()?;
    let base = Planner.base(&Context::new(
        &Config::default(),
        &NodeView::default(),
        [],
        family,
    ));
    let base = exprs(&base);
    let chains = chains_of_affinity(Table::of(family));
    let mut only_here = exprs(&chains);
    only_here.retain(|name, _| !base.contains_key(name));
    let missing = missing_modules(&mut client, family, &only_here)?;
    let affected = Some("Services with session affinity");
    let described = missing
        .into_iter()
        .map(|it| MissingExtension::new(it.name, it.option, affected));
    Ok(described.collect())
}

/// Sends a transaction with an invalid table. Returns the operations that the kernel rejects, and
/// the number of further ones, if it is known.
fn refused(
    client: &mut Client,
    edits: &[Edit<Object>],
) -> Result<(Vec<RejectedOperation>, Option<usize>), proxy_engine::Error> {
    match client.commit(&Transaction::from_edits(edits)) {
        Err(Error::Rejected { rejected, more, .. }) => Ok((rejected, more)),
        Err(error) => Err(error.into()),
        Ok(()) => Err(proxy_engine::Error::ProbeAccepted),
    }
}

/// An expression that the kernel lacks.
struct Module {
    name: &'static str,
    option: &'static str,
    module: &'static str,
}

/// Returns the expressions of chains, one of each name.
fn exprs(objects: &[Object]) -> BTreeMap<&str, &Expr> {
    let mut found = BTreeMap::new();
    let chains = objects.iter().filter_map(|object| match object {
        Object::Chain(chain) => Some(chain),
        _ => None,
    });
    for expr in chains.flat_map(|chain| chain.rules.iter().flat_map(|rule| &rule.exprs)) {
        found.entry(expr.name()).or_insert(expr);
    }
    found
}

/// Returns the expressions in modules that the kernel lacks.
///
/// The kernel rejects a rule with an unknown expression with ENOENT, which is also the error of
/// a rule about a chain or a set that was rejected before, and it does not say which
/// expression it means. So each expression is sent alone, in a table of its own.
fn missing_modules(
    client: &mut Client,
    family: Family,
    found: &BTreeMap<&str, &Expr>,
) -> Result<Vec<Module>, proxy_engine::Error> {
    let mut missing = Vec::new();
    for (name, options) in MODULES {
        let Some(&expr) = found.get(name) else {
            continue;
        };
        let id = TableId::new(family.into(), probe_name());
        let chain =
            Chain::new(id.clone(), probe_name()).with_rules([Rule::from_exprs([expr.clone()])]);
        let edits = [
            Edit::Add(NftTable::new(id).into()),
            Edit::Add(chain.into()),
            Edit::Add(impossible(family.into()).into()),
        ];
        let (rejected, _) = refused(client, &edits)?;
        let is_unknown = |it: &RejectedOperation| {
            it.errno == Errno::NOENT && matches!(it.request.subject, Subject::Rule(..))
        };
        if rejected.iter().any(is_unknown) {
            let (option, module) = match family {
                Family::V4 => options[0],
                Family::V6 => options[1],
            };
            missing.push(Module {
                name,
                option,
                module,
            });
        }
    }
    Ok(missing)
}

fn probe_name() -> Name {
    Name::new("kube-proxy-probe").expect("it is a name")
}

/// Returns a table that the kernel rejects, so that it applies nothing.
fn impossible(family: vipline_nftables::Family) -> NftTable {
    let name = Name::new("kube-proxy-impossible").expect("it is a name");
    let mut table = NftTable::new(TableId::new(family, name));
    table.flags = IMPOSSIBLE;
    table
}

/// Returns edits that replace the existing table by `objects` and add an
/// invalid table.
fn edits(client: &mut Client, objects: Vec<Object>) -> Result<Vec<Edit<Object>>, Error> {
    let mut edits = Vec::new();
    for object in objects {
        if let Object::Table(table) = &object {
            let id = table.id.clone();
            if client.table(&id)?.is_some() {
                edits.push(Edit::Remove(NftTable::new(id.clone()).into()));
            }
            edits.push(Edit::Add(impossible(id.family).into()));
        }
        edits.push(Edit::Add(object));
    }
    Ok(edits)
}

fn is_deliberate(refused: &RejectedOperation) -> bool {
    let Subject::Object(object) = &refused.request.subject else {
        return false;
    };
    matches!(&**object, Object::Table(table) if table.flags == IMPOSSIBLE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use testkit::netns::Netns;
    use vipline_nftables::expr::{Cmp, CmpOp, Register};
    use vipline_nftables::{Bytes, Family as Nft};

    use super::*;
    use crate::plan::tests::rules_of_all_kinds;

    fn context() -> Context {
        let mut node = NodeView::default();
        node.addresses = vec![IpAddr::from([192, 0, 2, 1])];
        Context::new(&Config::default(), &node, [], Family::V4)
    }

    #[test]
    fn a_probe_of_a_capable_kernel_changes_nothing() {
        let netns = Netns::new().unwrap();
        let (before, response, after) = netns.run(|| {
            let mut client = Client::open().unwrap();
            let before = client.generation().unwrap();
            let response = probe(&context());
            (before, response, client.generation().unwrap())
        });
        response.unwrap();
        assert_eq!(before, after, "nothing was committed");
    }

    #[test]
    fn existing_rules_do_not_affect_the_probe_and_stay() {
        let netns = Netns::new().unwrap();
        netns.run(|| {
            let mut client = Client::open().unwrap();
            let base = Planner.base(&context());
            let edits: Vec<_> = base.iter().cloned().map(Edit::Add).collect();
            client.commit(&Transaction::from_edits(&edits)).unwrap();
            let id = TableId::new(Nft::Ip, Name::new("kube-proxy").unwrap());
            let before = client.dump(&id).unwrap();
            probe(&context()).unwrap();
            let after = client.dump(&id).unwrap();
            assert!(before.into_objects().eq(after.into_objects()));
        });
    }

    /// The expressions of `nf_tables.ko`, which no kernel with nf_tables lacks.
    const BUILT_IN: [&str; 7] = [
        "bitwise",
        "cmp",
        "dynset",
        "immediate",
        "lookup",
        "meta",
        "payload",
    ];

    #[test]
    fn each_expression_of_any_rule_is_asked_for_or_is_in_every_kernel() {
        let mut all = BTreeSet::new();
        for family in Family::ALL {
            let chains = rules_of_all_kinds(family);
            all.extend(exprs(&chains).into_keys().map(str::to_owned));
        }
        let modules = MODULES.map(|(name, _)| name);
        let is_known = |name: &str| modules.contains(&name) || BUILT_IN.contains(&name);
        let unknown: Vec<_> = all.iter().filter(|name| !is_known(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        for name in modules.into_iter().chain(BUILT_IN) {
            assert!(all.contains(name), "no rule has {name}");
        }
    }

    #[test]
    fn a_capable_kernel_lacks_no_module() {
        let netns = Netns::new().unwrap();
        netns.run(|| {
            for family in Family::ALL {
                let cx = Context::new(&Config::default(), &NodeView::default(), [], family);
                let base = Planner.base(&cx);
                let mut client = Client::open().unwrap();
                let before = client.generation().unwrap();
                let missing = missing_modules(&mut client, family, &exprs(&base)).unwrap();
                assert_eq!(missing.len(), 0);
                assert_eq!(missing_extensions(family).unwrap(), []);
                assert_eq!(
                    client.generation().unwrap(),
                    before,
                    "nothing was committed"
                );
            }
        });
    }

    #[test]
    fn rejected_operations_are_named() {
        let netns = Netns::new().unwrap();
        let error = netns.run(|| {
            // No register has as many bytes.
            let too_long = Cmp {
                source: Register::word(0),
                op: CmpOp::Eq,
                data: Bytes::repeat(0, 65),
            };
            let id = TableId::new(Nft::Ip, Name::new("kube-proxy").unwrap());
            let chain = Chain::new(id, Name::new("refused").unwrap())
                .with_rules([Rule::from_exprs([too_long.into()])]);
            let mut base = Planner.base(&context());
            base.push(chain.into());
            probe_base(Family::V4, base).unwrap_err().to_string()
        });
        let start = "the kernel does not support mode nftables for IPv4: add rule ip kube-proxy ";
        assert!(error.starts_with(start), "{error}");
    }
}
