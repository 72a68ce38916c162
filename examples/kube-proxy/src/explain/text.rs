//! Explanations for people.

use std::fmt::Write as _;

use super::answer::{
    Answer, Endpoint, Explanation, Outcome, Path, Probe, Reply, Side, Step, short,
};
use super::sentence::line;

/// Styles of a terminal (ECMA-48), or empty texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Styles {
    bold: &'static str,
    good: &'static str,
    bad: &'static str,
    dim: &'static str,
    reset: &'static str,
}

impl Styles {
    /// Returns the styles, or none without color.
    pub(super) fn new(has_color: bool) -> Self {
        match has_color {
            true => Self {
                bold: "\x1b[1m",
                good: "\x1b[32m",
                bad: "\x1b[31m",
                dim: "\x1b[2m",
                reset: "\x1b[0m",
            },
            false => Self {
                bold: "",
                good: "",
                bad: "",
                dim: "",
                reset: "",
            },
        }
    }

    fn of(self, outcome: Outcome) -> &'static str {
        match outcome {
            Outcome::Reachable => self.good,
            _ => self.bad,
        }
    }
}

/// Returns an explanation as text.
pub(super) fn text(explanation: &Explanation, styles: Styles) -> String {
    let mut text = String::new();
    for answer in explanation.answers() {
        write_answer(&mut text, answer, styles);
        if matches!(explanation, Explanation::Service(_)) {
            let color = styles.of(answer.outcome);
            let _ = writeln!(text, "{color}{}{}", answer.sentence, styles.reset);
        }
        text.push('\n');
    }
    let Styles { bold, reset, .. } = styles;
    let (color, sentence) = match explanation {
        Explanation::Connection(answer) => (styles.of(answer.outcome), &answer.sentence),
        Explanation::Service(answer) => (styles.of(answer.outcome), &answer.sentence),
    };
    let _ = writeln!(text, "{bold}{color}{sentence}{reset}");
    text
}

fn write_answer(out: &mut String, answer: &Answer, styles: Styles) {
    let Styles {
        bold, dim, reset, ..
    } = styles;
    let question = &answer.question;
    let _ = writeln!(
        out,
        "{bold}{} {} from {} ({}){reset}, node {}, mode {}",
        question.protocol,
        question.destination,
        question.source,
        question.from,
        answer.node,
        answer.mode
    );
    if let Some(service) = &answer.service {
        let _ = writeln!(
            out,
            "service    {}/{}{}, {}; internalTrafficPolicy {}, externalTrafficPolicy {}{}",
            service.namespace,
            service.name,
            match &*service.port {
                "" => String::new(),
                port => format!(":{port}"),
            },
            service.address,
            service.internal_traffic_policy,
            service.external_traffic_policy,
            match service.affinity_seconds {
                Some(seconds) => format!(", affinity {seconds} s"),
                None => String::new(),
            }
        );
        if !service.source_ranges.is_empty() {
            let ranges = service.source_ranges.join(", ");
            let _ = writeln!(out, "sources    {ranges}");
        }
    }
    if !answer.rivals.is_empty() {
        let _ = writeln!(
            out,
            "contested  also claimed by {}",
            answer.rivals.join(", ")
        );
    }
    for endpoint in &answer.endpoints {
        write_endpoint(out, endpoint, "");
    }
    for endpoint in &answer.other_endpoints {
        write_endpoint(out, endpoint, dim);
        out.push_str(reset);
    }
    for affinity in &answer.affinity {
        let _ = writeln!(out, "affinity   {affinity}");
    }
    for flow in &answer.conntrack {
        let _ = writeln!(out, "conntrack  {flow}");
    }
    for assumed in &answer.assumed {
        let _ = writeln!(out, "assumed    {assumed}");
    }
    for probe in &answer.probes {
        let Probe {
            address, result, ..
        } = probe;
        let _ = writeln!(out, "probe      {address} {result}");
    }
    write_sides(out, answer, styles);
}

fn write_endpoint(out: &mut String, endpoint: &Endpoint, style: &str) {
    let condition = match (endpoint.ready, endpoint.serving, endpoint.terminating) {
        (None, ..) => "unknown",
        (Some(true), _, Some(true)) => "ready, terminating",
        (Some(true), ..) => "ready",
        (_, Some(true), Some(true)) => "serving, terminating",
        (_, _, Some(true)) => "terminating",
        _ => "not ready",
    };
    let node = endpoint.node.as_deref().unwrap_or("-");
    let zone = endpoint.zone.as_deref().unwrap_or("-");
    let here = if endpoint.local { ", this node" } else { "" };
    let _ = writeln!(
        out,
        "{style}endpoint   {}  probability {}, {condition}, node {node}{here}, zone {zone}",
        endpoint.address,
        short(endpoint.probability, endpoint.fraction.as_deref())
    );
}

/// Writes the paths of both sides, those of one verdict beside each other.
fn write_sides(out: &mut String, answer: &Answer, styles: Styles) {
    let Styles { bold, reset, .. } = styles;
    let heading = match (&answer.kernel, &answer.kernel_note) {
        (Some(_), unread) => {
            let unread = unread.iter().map(|it| format!("; {it}"));
            let legend = "path (= plan and kernel, < plan only, > kernel only)";
            format!("{legend}{}", unread.collect::<String>())
        }
        (None, Some(note)) => format!("path by the plan; kernel not read: {note}"),
        (None, None) => "path by the plan".to_owned(),
    };
    let _ = writeln!(out, "{bold}{heading}{reset}");
    for (name, side) in [
        ("plan", Some(&answer.plan)),
        ("kernel", answer.kernel.as_ref()),
    ] {
        if let Some(error) = side.and_then(|side| side.error.as_ref()) {
            let _ = writeln!(out, "  {name}: cannot be evaluated: {error}");
        }
    }
    let shown = shown(&answer.plan);
    match answer.kernel.as_ref().map(self::shown) {
        None => shown.iter().for_each(|path| write_path(out, path, ' ')),
        Some(kernel) => {
            let all = shown.len().max(kernel.len());
            for index in 0..all {
                match (shown.get(index), kernel.get(index)) {
                    (Some(plan), Some(kernel)) => write_both(out, plan, kernel),
                    (Some(plan), None) => write_path(out, plan, '<'),
                    (None, Some(kernel)) => write_path(out, kernel, '>'),
                    (None, None) => {}
                }
            }
        }
    }
}

/// Returns the paths to show: the most probable one to an endpoint, and all others.
fn shown(side: &Side) -> Vec<&Path> {
    let is_reached = |path: &&Path| path.end.starts_with("to endpoint");
    let first = side.paths.iter().find(is_reached);
    let others = side.paths.iter().filter(|path| !is_reached(path));
    first.into_iter().chain(others).collect()
}

fn write_path(out: &mut String, path: &Path, mark: char) {
    for step in &path.steps {
        write_step(out, step, mark);
    }
    let _ = writeln!(out, "  {mark} {}", end(path));
}

/// Returns the end of a path in words, with the reply of the endpoint if it is lost.
fn end(path: &Path) -> String {
    let masqueraded = if path.masqueraded {
        ", masqueraded"
    } else {
        ""
    };
    let decided = match path.end.starts_with("to endpoint") {
        true => None,
        false => path.deciding(),
    };
    let decided = decided.map(|step| format!(", decided by {}", line(step)));
    let reply = match &path.reply {
        Some(Reply::Lost { reason, .. }) => format!(", replies are lost: {reason}"),
        Some(Reply::Unknown { reason }) => format!(", replies cannot be evaluated: {reason}"),
        Some(Reply::Passes) | None => String::new(),
    };
    format!(
        "{}{masqueraded}{}{reply}",
        path.end,
        decided.unwrap_or_default()
    )
}

fn write_step(out: &mut String, step: &Step, mark: char) {
    let _ = writeln!(out, "  {mark} {}", line(step));
    for element in &step.elements {
        let _ = writeln!(out, "  {mark}     {element}");
    }
}

/// Writes two paths as a difference of their steps.
fn write_both(out: &mut String, plan: &Path, kernel: &Path) {
    let keys = |path: &Path| -> Vec<(String, String, Vec<String>)> {
        let steps = path.steps.iter().map(Step::comparable);
        let owned = steps.map(|(place, text, it)| (place.to_owned(), text, it.to_vec()));
        owned.collect()
    };
    let (ours, theirs) = (keys(plan), keys(kernel));
    let (mut at, mut next) = (0, 0);
    while at < ours.len() || next < theirs.len() {
        let found = ours.get(at).and_then(|key| {
            let rest = theirs.get(next..).unwrap_or_default();
            rest.iter().position(|other| other == key)
        });
        match found {
            Some(skipped) => {
                for step in kernel.steps.iter().skip(next).take(skipped) {
                    write_step(out, step, '>');
                }
                next += skipped;
                if let Some(step) = kernel.steps.get(next) {
                    write_step(out, step, '=');
                }
                (at, next) = (at + 1, next + 1);
            }
            None if at < ours.len() => {
                if let Some(step) = plan.steps.get(at) {
                    write_step(out, step, '<');
                }
                at += 1;
            }
            None => {
                for step in kernel.steps.iter().skip(next) {
                    write_step(out, step, '>');
                }
                next = theirs.len();
            }
        }
    }
    match (end(plan), end(kernel)) {
        (plan, kernel) if plan == kernel => drop(writeln!(out, "  = {plan}")),
        (plan, kernel) => drop(writeln!(out, "  < {plan}\n  > {kernel}")),
    }
}
