//! The tables of one family in nf_tables, over netlink.

use vipline_iptables::TableName;
use vipline_iptables::nft::{Client, Error, RejectedOperation, Saved};
use vipline_reconcile::Attempt;
use vipline_service_model::Family;

use super::batch::Batch;
use super::installed::Installed;
use super::own_commits::Trace;
use super::rejections;
use crate::backend::iptables::plan::layout::Layout;
use crate::backend::iptables::plan::names;

/// `EMLINK` of `asm-generic/errno-base.h`: a jump closes a loop. The kernel then rejects
/// all later jumps of the batch, too.
const EMLINK: i32 = 31;

/// Reads our chains and the jumps to them.
pub(super) fn read(
    client: &mut Client,
    family: Family,
    layout: Layout,
    tables: &[TableName],
) -> Result<Installed, Error> {
    let start = || Installed::new(layout);
    let (installed, _) = client.dump(tables, start, |installed, saved| match saved {
        Saved::Chain(chain) => installed.declare(chain.table, chain.name),
        Saved::Rule(rule) => {
            let text = || Some(rule.rule()?.for_family(family).to_string());
            installed.add(rule.table, rule.chain, text);
        }
    })?;
    Ok(installed)
}

/// Returns tables as `iptables-save` prints them, without rules that are unknown.
pub(super) fn save(family: Family, tables: &[&str]) -> Result<String, Error> {
    let mut client = Client::open(family)?;
    let names: Vec<_> = tables.iter().map(|name| names::table(name)).collect();
    let start = || vec![(String::new(), String::new()); names.len()];
    let place = |table| names.iter().position(|name| *name == table);
    let (saved, _) = client.dump(&names, start, |saved, one| match one {
        Saved::Chain(chain) => {
            let Some(place) = place(chain.table) else {
                return;
            };
            let policy = chain.policy.map(|policy| policy.to_string());
            let policy = policy.as_deref().unwrap_or("-");
            saved[place].0 += &format!(":{} {policy} [0:0]\n", chain.name);
        }
        Saved::Rule(rule) => {
            if let (Some(place), Some(text)) = (place(rule.table), rule.rule()) {
                let text = text.for_family(family);
                saved[place].1 += &format!("-A {} {text}\n", rule.chain);
            }
        }
    })?;
    let tables = names.iter().zip(saved);
    let text = tables.map(|(name, (chains, rules))| format!("*{name}\n{chains}{rules}COMMIT\n"));
    Ok(text.collect())
}

/// Commits a batch in one transaction.
pub(super) fn attempt(
    client: &mut Client,
    trace: &Trace,
    batch: &Batch<'_>,
) -> Result<Attempt, Error> {
    let edits = batch.edits();
    let Err(error) = client.commit(edits) else {
        trace.commit_counter.committed(u32::from(!edits.is_empty()));
        return Ok(Attempt::Applied);
    };
    rejection(batch, &error).ok_or(error)
}

/// Returns the rejected edits of a batch. `None` if the error is not about single edits,
/// or if the rules of all Services need an object.
fn rejection(batch: &Batch<'_>, error: &Error) -> Option<Attempt> {
    let (named, reason) = match error {
        Error::Rejected { rejected, .. } => {
            let reason = |one: &RejectedOperation| rejections::reason_of(Some(one.errno.0), one);
            let first = rejected.first()?;
            let mut loops = 0;
            let mut is_consequence = |one: &RejectedOperation| {
                loops += usize::from(one.errno.0 == EMLINK);
                one.errno.0 == EMLINK && loops > 1
            };
            let named = rejected.iter().filter(|one| !is_consequence(one));
            let named = named.filter_map(|one| {
                let index = batch.origin(one.request.edit?)?;
                Some((index, reason(one)))
            });
            (named.collect(), reason(first))
        }
        Error::NotEncoded { request, .. } => {
            let reason = rejections::reason_of(None, error);
            let named = batch.origin(request.edit?);
            let named = named.map(|index| (index, reason.clone()));
            (named.into_iter().collect(), reason)
        }
        _ => return None,
    };
    rejections::rejected(batch.all, Vec::new(), named, reason)
}
