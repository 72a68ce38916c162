//! Evaluation of a base chain and of the chains to which it jumps.

use std::sync::Arc;

use vipline_nftables::{Name, Policy, Verdict};

use super::cause::{Cause, MAX_JUMPS, MAX_RULES};
use super::error::Error;
use super::expr;
use super::index::Installed;
use super::outcome::Disposition;
use super::trace::{Event, RuleResult};
use super::walk::{Flow, Walk};

/// Chains to return to, with the next rule of each.
type Stack = Vec<(Arc<Installed>, usize)>;

/// Evaluates a base chain. Returns `None` if it accepts the packet.
pub(super) fn run(
    walk: &mut Walk<'_>,
    base: &Arc<Installed>,
) -> Result<Option<Disposition>, Error> {
    let (mut stack, mut chain, mut next) = (Stack::new(), Arc::clone(base), 0);
    loop {
        if next >= chain.chain.rules.len() {
            let Some(caller) = stack.pop() else {
                return Ok(apply_policy(walk, base));
            };
            (chain, next) = caller;
            continue;
        }
        let at = next;
        next += 1;
        let verdict = match run_rule(walk, &chain, at)? {
            Flow::Next | Flow::Break => continue,
            Flow::End(disposition) => return Ok(Some(disposition)),
            Flow::Verdict(verdict) => verdict,
        };
        match verdict {
            Verdict::Accept => return Ok(None),
            Verdict::Drop => return Ok(Some(Disposition::Dropped)),
            Verdict::Continue | Verdict::Break => {}
            Verdict::Return => next = usize::MAX,
            Verdict::Jump(target) => {
                let target = find(walk, &chain, at, &target)?;
                if stack.len() >= MAX_JUMPS {
                    return Err(error(walk, Cause::Jumps));
                }
                stack.push((chain, next));
                (chain, next) = (target, 0);
            }
            Verdict::Goto(target) => {
                (chain, next) = (find(walk, &chain, at, &target)?, 0);
            }
            Verdict::Other(code) => {
                let cause = Cause::unsupported(format_args!("verdict {code}"));
                return Err(error(walk, cause));
            }
            other => {
                let cause = Cause::unsupported(format_args!("verdict {other}"));
                return Err(error(walk, cause));
            }
        }
    }
}

/// Applies the policy of a base chain.
fn apply_policy(walk: &mut Walk<'_>, base: &Installed) -> Option<Disposition> {
    let policy = base.chain.base.as_ref().map(|base| base.policy)?;
    walk.trace.events.push(Event::Policy {
        hook: walk.place.hook,
        table: base.chain.table.clone(),
        chain: base.chain.name.clone(),
        policy,
    });
    match policy {
        Policy::Accept => None,
        Policy::Drop => Some(Disposition::Dropped),
    }
}

fn find(
    walk: &mut Walk<'_>,
    chain: &Installed,
    rule: usize,
    target: &Name,
) -> Result<Arc<Installed>, Error> {
    let found = walk.index.chain(chain, rule, target);
    found.map_err(|cause| error(walk, cause))
}

/// Evaluates a rule and records the result.
fn run_rule(walk: &mut Walk<'_>, chain: &Arc<Installed>, at: usize) -> Result<Flow, Error> {
    *walk.visited += 1;
    if *walk.visited > MAX_RULES {
        return Err(Cause::Rules.into());
    }
    walk.enter_rule(chain, at);
    let exprs = chain.chain.rules.get(at).map_or(&[][..], |it| &it.exprs);
    let mut flow = Flow::Next;
    for (number, expr) in exprs.iter().enumerate() {
        let rest = exprs.get(number + 1..).unwrap_or(&[]);
        let result = expr::evaluate(walk, expr, rest);
        if let Some(step) = walk.step() {
            step.executed = number + 1;
        }
        flow = result.map_err(|cause| Error {
            expression: Some(expr.name().to_owned()),
            ..error(walk, cause)
        })?;
        match flow {
            Flow::Next | Flow::Verdict(Verdict::Continue) => flow = Flow::Next,
            _ => break,
        }
    }
    let result = match &flow {
        Flow::Next => RuleResult::Match,
        Flow::Break | Flow::Verdict(Verdict::Break) => RuleResult::NoMatch,
        Flow::Verdict(verdict) => RuleResult::Verdict(verdict.clone()),
        Flow::End(_) => RuleResult::End,
    };
    if let Some(step) = walk.step() {
        step.result = result;
    }
    Ok(flow)
}

/// Creates an error that names the current rule.
fn error(walk: &mut Walk<'_>, cause: Cause) -> Error {
    Error {
        rule: walk.step().map(|step| Box::new(step.clone())),
        ..Error::from(cause)
    }
}
