//! Preparation of the process and the node: OOM score, limits, sysctls and
//! kernel features.

use std::fs;

use anyhow::{Context as _, Result};
use proxy_core::backend::nftables::Planner;
use proxy_core::interfaces;
use proxy_core::{Context, Family, Mode, Planner as _};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};
use vipline_ipset as ipset;
use vipline_ipvs::{self as ipvs, Timeouts};
use vipline_nftables::{
    Client, Error, Name, Object, RejectedOperation, Subject, Table, TableFlags, TableId,
    Transaction,
};
use vipline_reconcile::Edit;
use vipline_service_model::NodeView;

use crate::config::Ipvs;
use crate::failure::{Failure, chain};
use crate::node;
use crate::settings::Settings;
use crate::sysctl;

/// OOM score adjustment of this process.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// A table flag that the kernel always rejects.
const IMPOSSIBLE: TableFlags = TableFlags::from_bits_retain(1 << 31);

/// Sets the OOM score adjustment.
///
/// A value below the initial one requires CAP_SYS_RESOURCE. An error is a
/// warning.
pub fn adjust_oom_score(score: i32) {
    if let Err(error) = write_oom_score(score) {
        warn!("{error:#}");
    }
}

fn write_oom_score(score: i32) -> Result<()> {
    let context = || format!("set {OOM_SCORE} to {score}");
    let present = fs::read_to_string(OOM_SCORE).with_context(context)?;
    if present.trim() != score.to_string() {
        fs::write(OOM_SCORE, score.to_string()).with_context(context)?;
    }
    Ok(())
}

/// Raises the soft limit of open files to the hard limit, as Go programs do,
/// and returns the limit in force.
pub fn raise_descriptor_limit() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit = raised,
        Err(error) => warn!(
            "RLIMIT_NOFILE cannot be raised, using {:?}: {error}",
            limit.current
        ),
    }
    let current = limit.current.and_then(|limit| usize::try_from(limit).ok());
    current.unwrap_or(usize::MAX)
}

/// Returns the settings of mode iptables if the kernel does not support mode
/// ipvs, otherwise the settings unchanged.
pub fn choose(mut settings: Settings) -> Settings {
    if settings.config.mode != Mode::Ipvs {
        return settings;
    }
    match (lack_of_ipvs(), settings.fallback.take()) {
        (Some(reason), Some(instead)) => {
            let (mode, other) = (settings.config.mode, instead.config.mode);
            warn!("Can't use {mode} mode: {reason}; using {other} mode instead");
            *instead
        }
        _ => settings,
    }
}

/// Returns the kernel feature that is missing for mode ipvs, if any. Makes the
/// kernel load the modules.
///
/// Other errors are reported when the engine opens.
fn lack_of_ipvs() -> Option<String> {
    if let Err(error @ ipvs::Error::Unsupported { .. }) = ipvs::Client::open() {
        return Some(error.to_string());
    }
    match ipset::Client::open() {
        Err(error @ ipset::Error::Unsupported { .. }) => Some(error.to_string()),
        _ => None,
    }
}

/// Sets sysctls and timeouts of the mode before the first sync.
///
/// # Errors
///
/// A sysctl cannot be set.
pub fn prepare_mode(settings: &Settings) -> Result<(), Failure> {
    let config = &settings.config;
    match config.mode {
        Mode::Iptables if config.families.contains(&Family::V4) && config.serves_localhost() => {
            sysctl::set(&[sysctl::ROUTE_LOCALNET])
        }
        Mode::Ipvs => {
            let ipvs = &settings.configuration.ipvs;
            sysctl::set(&sysctl::ipvs(&node::release(), ipvs.strict_arp))?;
            set_timeouts(&timeouts(ipvs));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the configured timeouts. Zero leaves a timeout unchanged.
fn timeouts(ipvs: &Ipvs) -> Timeouts {
    Timeouts {
        tcp: ipvs.tcp_timeout.positive(),
        tcp_fin: ipvs.tcp_fin_timeout.positive(),
        udp: ipvs.udp_timeout.positive(),
    }
}

/// Sets the timeouts of IPVS. An error is a warning.
fn set_timeouts(timeouts: &Timeouts) {
    if *timeouts == Timeouts::default() {
        return;
    }
    let set = ipvs::Client::open().and_then(|mut client| client.set_timeouts(timeouts));
    if let Err(error) = set {
        warn!(
            "IPVS timeouts cannot be set and stay unchanged: {}",
            chain(&error)
        );
    }
}

/// `--init-only`: does the steps that need more than CAP_NET_ADMIN, and checks
/// that the kernel supports the mode.
///
/// All modes set the configured conntrack sysctls. Modes iptables and ipvs set
/// their own sysctls, and mode ipvs its timeouts. Mode nftables needs no more,
/// but its check makes the kernel load its modules.
///
/// # Errors
///
/// A sysctl cannot be set, or the kernel does not support the mode.
pub fn init_only(settings: &Settings) -> Result<(), Failure> {
    let mode = settings.config.mode;
    sysctl::conntrack::set(&settings.configuration.conntrack);
    prepare_mode(settings)?;
    if mode != Mode::Nftables {
        info!(%mode, "the node is prepared");
        return Ok(());
    }
    for family in interfaces::families() {
        let node = NodeView::default();
        let cx = Context::new(&settings.config, &node, [], family);
        probe_nftables(&cx)?;
        info!(%mode, %family, "the kernel supports the mode");
    }
    Ok(())
}

/// Checks that the kernel supports all rules that do not depend on Services.
///
/// The transaction contains an invalid table. So the kernel checks all
/// operations and applies none.
fn probe_nftables(cx: &Context) -> Result<(), Failure> {
    let response = Client::open().and_then(|mut client| {
        let edits = edits(&mut client, Planner::base(cx))?;
        client.commit(&Transaction::from_edits(&edits))
    });
    let (rejected, more) = match response {
        Err(Error::Rejected { rejected, more }) => (rejected, more),
        Err(error) => return Err(Failure::machine(error)),
        Ok(()) => {
            return Err(Failure::machine(
                "the kernel accepted an invalid table; the check is not possible",
            ));
        }
    };
    let operations = rejected
        .iter()
        .filter(|operation| !is_deliberate(operation));
    let mut reasons: Vec<_> = operations.map(ToString::to_string).collect();
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let (family, reasons) = (cx.family, reasons.join("; "));
    Err(Failure::machine(format_args!(
        "the kernel does not support mode nftables for {family}: {reasons}"
    )))
}

/// Returns edits that replace the existing table by `objects` and add an
/// invalid table.
fn edits(client: &mut Client, objects: Vec<Object>) -> Result<Vec<Edit<Object>>, Error> {
    let mut edits = Vec::new();
    for object in objects {
        if let Object::Table(table) = &object {
            let id = table.id.clone();
            if !client.dump(std::slice::from_ref(&id))?.is_empty() {
                edits.push(Edit::Remove(Table::new(id.clone()).into()));
            }
            let name = Name::new("kube-proxy-probe").expect("it is a name");
            let mut impossible = Table::new(TableId::new(id.family, name));
            impossible.flags = IMPOSSIBLE;
            edits.push(Edit::Add(impossible.into()));
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
    use std::net::IpAddr;

    use proxy_core::{Config, Family};
    use testkit::netns::Netns;
    use vipline_nftables::Family as Nft;

    use super::*;

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
            let response = probe_nftables(&context());
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
            let base = Planner::base(&context());
            let edits: Vec<_> = base.iter().cloned().map(Edit::Add).collect();
            client.commit(&Transaction::from_edits(&edits)).unwrap();
            let id = TableId::new(Nft::Ip, Name::new("kube-proxy").unwrap());
            let before = client.dump(std::slice::from_ref(&id)).unwrap();
            probe_nftables(&context()).unwrap();
            let after = client.dump(std::slice::from_ref(&id)).unwrap();
            assert!(before.into_objects().eq(after.into_objects()));
        });
    }

    #[test]
    fn rejected_operations_are_named() {
        let netns = Netns::new().unwrap();
        let error = netns.run(|| {
            let mut cx = context();
            cx.local = Some(vipline_service_model::LocalTraffic::Interface(
                "a-name-too-long-for-any-interface".into(),
            ));
            probe_nftables(&cx).unwrap_err().to_string()
        });
        let start = "the kernel does not support mode nftables for IPv4: add rule ip kube-proxy ";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn an_invalid_oom_score_is_an_error_with_its_value() {
        let present = fs::read_to_string(OOM_SCORE).unwrap();
        write_oom_score(present.trim().parse().unwrap()).unwrap();
        let error = format!("{:#}", write_oom_score(1001).unwrap_err());
        assert!(error.contains("to 1001: "), "{error}");
    }
}
