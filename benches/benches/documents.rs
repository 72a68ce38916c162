//! Figures of parsing and printing the output of `iptables-save`.
//!
//! Needs no kernel. Each figure is the processor time of the fastest round, on which
//! other processes have little influence.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use benches::cluster::Size;
use benches::figure::{Figures, conclude, ms};
use benches::save::save;
use benches::time::Time;
use vipline_iptables::{Rule, Tables};

type Outcome<T> = Result<T, Box<dyn Error>>;

const TYPICAL: Size = Size::new(10_000, 5);

/// Number of rounds.
const ROUNDS: usize = 31;

/// Limit of the time per megabyte, in ms. 5 ms/MB are 200 MB/s.
const LIMIT: f64 = 5.0;

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let text = save(TYPICAL)?;
    let tables = Tables::parse(&text)?;
    let rules: Vec<Rule<'_>> = rules(&tables).collect::<Result<_, _>>()?;
    let mut out = String::with_capacity(text.len());

    let mut figures = Figures::new()?;
    let mut push = |measure: &str, limit: Option<f64>, time: Duration| {
        let value = ms(time) * 1e6 / text.len() as f64;
        figures.push(measure, TYPICAL, (value, "ms/MB"), limit)
    };
    push("iptables: floor, copy", None, quickest(|| text.clone()))?;
    let lines = || text.lines().map(str::len).max();
    push("iptables: floor, lines", None, quickest(lines))?;
    let parse = quickest(|| Tables::parse(&text));
    push("iptables: parse a save", Some(LIMIT), parse)?;
    let print = quickest(|| {
        out.clear();
        write!(out, "{tables}")
    });
    push("iptables: print a save", Some(LIMIT), print)?;
    let parse = quickest(|| self::rules(&tables).filter(Result::is_ok).count());
    push("iptables: parse the rules of a save", Some(LIMIT), parse)?;
    let print = quickest(|| {
        out.clear();
        rules.iter().try_for_each(|rule| writeln!(out, "{rule}"))
    });
    push("iptables: print the rules of a save", Some(LIMIT), print)?;
    Ok(figures.finish("documents")?)
}

/// Returns the typed rules of all tables.
fn rules<'a>(
    tables: &Tables<'a>,
) -> impl Iterator<Item = Result<Rule<'a>, vipline_iptables::ParseError>> {
    let lines = tables.iter().flat_map(|table| table.rules());
    lines.map(|line| line.rule())
}

/// Returns the time of the fastest round.
fn quickest<T>(mut work: impl FnMut() -> T) -> Duration {
    let round = |_| {
        let (time, value) = Time::of(|| black_box(work()));
        drop(value);
        time.processor
    };
    (0..ROUNDS).map(round).min().unwrap_or_default()
}
