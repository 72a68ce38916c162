//! `explain`: why a connection or a Service works or does not.
//!
//! - `inquiry`: the reason by the objects (`proxy_core::reason`) and the evaluations of plan
//!   and kernel (`side`), joined in an [`Answer`](answer::Answer); `sentence`: its sentences;
//! - `limits`: limits that rules ask for; `reply`: the first reply of an endpoint; `stale`:
//!   entries of connection tracking;
//! - `owner`: chains of a kube-proxy; `effect`: rules that change a packet;
//! - `subject`: the questions about a Service;
//! - `assumptions`: settings of the running proxy; `probe`: connections from this node;
//! - `observed`: state of the kernel, or of a saved dump;
//! - `text`, `dot`: output; JSON is the form of `answer`;
//! - [`page`]: the same over HTTP.

pub mod answer;

mod inquiry;

mod owner;

mod effect;

mod side;

mod limits;

mod reply;

mod stale;

mod assumptions;

mod probe;

mod sentence;

mod subject;

mod text;

mod dot;

mod observed;

pub mod page;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use proxy_core::evaluate::read_kernel;

use crate::cli::{ExplainArgs, Format};
use crate::failure::{Failure, chain};
use crate::output::print;
use crate::process;
use crate::settings::{Settings, Source};
use crate::setup::Setup;
use answer::{Explanation, Outcome};
pub(crate) use assumptions::complete;
use observed::Observed;
use subject::Inquirer;
use text::Styles;

/// Prints an explanation. `assumed` is what was assumed about the settings. The exit code is 0 if the destination is reachable, 2 if the result
/// is unknown, otherwise 1.
///
/// # Errors
///
/// The arguments or objects are invalid, or the kernel cannot be read.
pub fn explain(
    settings: Settings,
    args: &ExplainArgs,
    assumed: Vec<String>,
) -> Result<ExitCode, Failure> {
    let subject = args.subject().map_err(Failure::input)?;
    let (mut setup, observed) = open(settings, args)?;
    let families = setup.engine.config().families.clone();
    let plans = families.into_iter().filter_map(|family| {
        let rules = setup.engine.desired_rules(family)?;
        Some((family, Arc::new(rules)))
    });
    let plans = plans.collect();
    let inquirer = Inquirer {
        config: setup.settings().config.clone(),
        plans,
        from: args.from,
        from_node: args.from_node,
        interface: args.interface.clone(),
    };
    let prepared = inquirer.prepare(&setup.engine, &observed.host, &subject);
    let mut explanation = prepared.map_err(Failure::input)?.finish(&observed);
    for answer in explanation.answers_mut() {
        answer.assumed.extend(assumed.iter().cloned());
    }
    if args.probe {
        probe::run(&mut explanation);
    }
    let has_color = std::io::stdout().is_terminal();
    print(&show(&explanation, args.output, has_color)?)?;
    Ok(match explanation.outcome() {
        Outcome::Reachable => ExitCode::SUCCESS,
        Outcome::Elsewhere | Outcome::Refused | Outcome::Dropped => ExitCode::FAILURE,
        Outcome::Unknown => ExitCode::from(2),
    })
}

/// Returns an explanation in a format.
///
/// # Errors
///
/// The explanation cannot be written as JSON.
fn show(explanation: &Explanation, format: Format, has_color: bool) -> Result<String, Failure> {
    match format {
        Format::Text => Ok(text::text(explanation, Styles::new(has_color))),
        Format::Dot => Ok(dot::dot(explanation)),
        Format::Json => serde_json::to_string_pretty(explanation)
            .map(|text| text + "\n")
            .map_err(Failure::machine),
    }
}

/// Opens the objects, and the state of the kernel.
///
/// With an API server the kernel is read. With manifests it is read if it has the rules of a
/// proxy in the same mode.
fn open(settings: Settings, args: &ExplainArgs) -> Result<(Setup, Observed), Failure> {
    if args.plan_only {
        return planned(&settings, None);
    }
    if let Some(path) = &args.kernel_dump {
        let observed = Observed::load(path, &settings.config)?;
        let mut setup = Setup::explain_plan(&settings)?;
        setup.engine.plan_changes();
        return Ok((setup, observed));
    }
    match settings.source {
        Source::Manifests(_) => match Observed::probe(&settings) {
            Ok(()) => {}
            Err(note) => return planned(&settings, Some(note)),
        },
        Source::Api(_) => {}
    }
    let mut setup = Setup::explain(process::choose(settings))?;
    setup.engine.plan_changes();
    let observed = Observed::read(&setup.settings().config).map_err(Failure::machine)?;
    let observed = observed.with_rejections(setup.settings());
    Ok((setup, observed))
}

/// `save-kernel`: prints the state of the kernel.
///
/// # Errors
///
/// The kernel cannot be read.
pub fn save_kernel() -> Result<(), Failure> {
    let state = read_kernel().map_err(|error| Failure::machine(chain(&error)))?;
    print(&state.to_string())
}

/// Opens the objects alone.
fn planned(settings: &Settings, note: Option<String>) -> Result<(Setup, Observed), Failure> {
    let mut setup = Setup::explain_plan(settings)?;
    setup.engine.plan_changes();
    let host = setup.engine.assumed_host();
    Ok((setup, Observed::planned(host, note)))
}
