//! The tables of one family, over the programs of iptables.

use vipline_iptables::{Client, Error, Line, Restore, Rule, TableName, Variant};
use vipline_nftables::{self as nftables, Generation};
use vipline_reconcile::Attempt;
use vipline_service_model::Family;

use super::batch::Batch;
use super::installed::Installed;
use super::own_commits::{Run, Trace};
use super::rejections;

/// Maximum number of chains and entries in a section of a document for the nft variant,
/// whose time per object grows with the size of the section.
const SECTION: usize = 150;

/// Reads our chains and the jumps to them from a table. Ignores lines that cannot be
/// parsed.
pub(super) fn read(
    client: &mut Client,
    family: Family,
    table: TableName,
    installed: &mut Installed,
) -> Result<(), Error> {
    client.save_lines(table, |line| {
        match Line::parse(line) {
            Ok(Line::Chain(chain)) => installed.declare(table, chain.name()),
            Ok(Line::Rule(rule)) => {
                let spec = rule.spec();
                installed.add(table, rule.chain(), || Some(normalized(family, spec)));
            }
            _ => {}
        }
        Ok::<_, Error>(())
    })
}

/// Converts a rule to our own notation.
fn normalized(family: Family, spec: &str) -> String {
    match Rule::parse(spec) {
        Ok(rule) => rule.for_family(family).to_string(),
        Err(_) => spec.to_owned(),
    }
}

/// Returns whether a table has a chain.
pub(super) fn has_chain(client: &mut Client, table: TableName, chain: &str) -> Result<bool, Error> {
    let declared = format!(":{chain} ");
    let mut is_present = false;
    client.save_lines(table, |line| {
        is_present |= line.starts_with(&declared);
        Ok::<_, Error>(())
    })?;
    Ok(is_present)
}

/// Returns the generation of nf_tables. `None` for the legacy variant.
///
/// Also `None` after a failure, whose only consequence is an additional dump.
pub(super) fn generation(client: &Client) -> Option<Generation> {
    if client.variant() != Variant::Nft {
        return None;
    }
    let generation = nftables::Client::open().and_then(|mut client| client.generation());
    generation.ok()
}

/// Restores a document with a batch.
pub(super) fn attempt(
    client: &mut Client,
    trace: &Trace,
    batch: &Batch<'_>,
) -> Result<Attempt, Error> {
    let restore = Restore::in_sections(batch.edits(), section(client));
    let sections = u32::try_from(restore.sections()).unwrap_or(u32::MAX);
    let before = generation(client);
    let done = client.restore(&restore);
    let program = (before, generation(client), client.last_restore_pid());
    if let (Some(before), Some(after), Some(process)) = program {
        trace.own.record(Run {
            before,
            after,
            process,
            commits: sections,
        });
    }
    let (commits, attempt) = match done {
        Ok(()) => (restore.sections(), Ok(Attempt::Applied)),
        Err(error) => refused(batch, &restore, error),
    };
    let commits = u32::try_from(commits).unwrap_or(u32::MAX);
    trace.commit_counter.committed(commits);
    attempt
}

/// Returns the maximum size of a section of a document.
///
/// The nft variant searches each name in the whole section. The legacy variant reads
/// and writes a whole table for each section.
fn section(client: &Client) -> usize {
    match client.variant() {
        Variant::Nft => SECTION,
        _ => usize::MAX,
    }
}

/// Returns the number of committed sections and the rejected edits.
fn refused(
    batch: &Batch<'_>,
    restore: &Restore<'_>,
    error: Error,
) -> (usize, Result<Attempt, Error>) {
    let Error::Rejected {
        line: Some(line),
        message,
        ..
    } = &error
    else {
        return (0, Err(error));
    };
    let applied = batch.applied(restore.objects_of(line.commits));
    let (text, reason) = (line.text.as_deref(), rejections::reason(message));
    let attempt = rejections::attempt(batch.all, batch.selected, applied, text, reason);
    (line.commits, attempt.ok_or(error))
}
