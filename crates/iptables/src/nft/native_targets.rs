//! Targets that iptables-nft writes as verdicts and expressions of nf_tables.

use vipline_nftables::expr::{Access, Expr, Immediate, Log, LogFlags, Meta, MetaKey, Register};
use vipline_nftables::{Data, Name, Verdict};

use super::native::Exprs;
use crate::ChainName;
use crate::options::field::Text;
use crate::targets::{Nflog, Target};

/// The register of target TRACE.
const REGISTER: Register = Register::word(1);

/// Returns the verdict of a target, if it is one.
pub(super) fn verdict(target: &Target<'_>) -> Option<Verdict> {
    let name = |chain: &ChainName| Name::new(chain.as_str()).ok();
    Some(match target {
        Target::Accept => Verdict::Accept,
        Target::Drop => Verdict::Drop,
        Target::Return => Verdict::Return,
        Target::Jump(chain) => Verdict::Jump(name(chain)?),
        Target::Goto(chain) => Verdict::Goto(name(chain)?),
        _ => return None,
    })
}

/// Returns the target of a verdict. Returns `None` if iptables has no such target.
pub(super) fn from_verdict(verdict: &Verdict) -> Option<Target<'static>> {
    let name = |chain: &Name| ChainName::new(chain.as_str()).ok();
    Some(match verdict {
        Verdict::Accept => Target::Accept,
        Verdict::Drop => Target::Drop,
        Verdict::Return => Target::Return,
        Verdict::Jump(chain) => Target::Jump(name(chain)?),
        Verdict::Goto(chain) => Target::Goto(name(chain)?),
        _ => return None,
    })
}

/// Appends the expressions of a target. Returns whether it has such expressions.
///
/// The nft variant has no option `--nflog-range`, which the kernel ignores.
pub(super) fn put(out: &mut Exprs, target: &Target<'_>) -> Option<bool> {
    match target {
        Target::Nflog(it) => out.push(nflog(it)?.into()),
        Target::Trace => out.extend(trace()),
        _ => return Some(false),
    }
    Some(true)
}

/// Reads a target from the first expressions. Returns the rest.
pub(super) fn read(exprs: &[Expr]) -> Option<(Target<'static>, &[Expr])> {
    match exprs {
        [Expr::Log(log), rest @ ..] => Some((read_nflog(log)?.into(), rest)),
        [first, second, rest @ ..] if [first, second] == trace().each_ref() => {
            Some((Target::Trace, rest))
        }
        _ => None,
    }
}

fn trace() -> [Expr; 2] {
    let data = Data::Value([1].into());
    let destination = REGISTER;
    let access = Access::Store(REGISTER);
    let key = MetaKey::Nftrace;
    [
        Immediate { destination, data }.into(),
        Meta { key, access }.into(),
    ]
}

fn nflog(it: &Nflog<'_>) -> Option<Log> {
    let prefix = match &it.prefix {
        Some(Text(prefix)) if !prefix.is_empty() => Some(Name::new(prefix).ok()?),
        _ => None,
    };
    Some(Log {
        prefix,
        group: Some(it.group.unwrap_or(0)),
        snaplen: it.size,
        queue_threshold: it.threshold,
        level: None,
        flags: LogFlags::empty(),
    })
}

fn read_nflog(log: &Log) -> Option<Nflog<'static>> {
    let group = log.group?;
    Some(Nflog {
        prefix: log.prefix.as_ref().map(|it| Text::from(it.to_string())),
        group: Some(group).filter(|group| *group != 0),
        range: None,
        size: log.snaplen,
        threshold: log.queue_threshold,
    })
}
