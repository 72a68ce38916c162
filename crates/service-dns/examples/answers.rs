//! Answers questions about the Services of a cluster, without a server.
//!
//! ```sh
//! kubectl get services,endpointslices --all-namespaces --output json |
//!     cargo run --example answers -- web.shop.svc.cluster.local SRV
//! ```

use std::error::Error;
use std::io;

use serde::Deserialize;
use serde_json::Value;
use vipline_service_dns::service_model::{Event, api};
use vipline_service_dns::{Options, Question, Zone};

/// The output of `kubectl get --output json`.
#[derive(Deserialize)]
struct List {
    items: Vec<Value>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let questions: Vec<String> = std::env::args().skip(1).collect();
    let questions: Vec<&str> = questions.iter().map(|word| &**word).collect();
    run(
        &io::read_to_string(io::stdin())?,
        &questions,
        &mut io::stdout(),
    )
}

/// Writes the answers to questions: names, each with a type.
pub(crate) fn run(
    json: &str,
    questions: &[&str],
    out: &mut impl io::Write,
) -> Result<(), Box<dyn Error>> {
    let mut zone = Zone::new(Options::new("cluster.local".parse()?));
    let list: List = serde_json::from_str(json)?;
    for object in list.items {
        for warning in zone.apply(&event(object)?) {
            writeln!(out, "; {warning}")?;
        }
    }
    zone.apply(&Event::Synced);
    for question in questions.chunks(2) {
        let [name, record_type] = question else {
            return Err("usage: answers [NAME TYPE]...".into());
        };
        let question = Question::new(name.parse()?, record_type.parse()?);
        let Some(answer) = zone.answer(&question, 0) else {
            writeln!(out, "; {name} {record_type}: another zone")?;
            continue;
        };
        writeln!(out, "; {name} {record_type}: {}", answer.code)?;
        for record in answer.answers.iter().chain(&answer.authorities) {
            writeln!(out, "{record}")?;
        }
        for record in &answer.additionals {
            writeln!(out, "{record} ; additional")?;
        }
    }
    Ok(())
}

/// Converts an object to the event that applies it.
fn event(object: Value) -> Result<Event, Box<dyn Error>> {
    use serde_json::from_value;
    Ok(match object["kind"].as_str() {
        Some("Service") => from_value::<api::Service>(object)?.into(),
        Some("EndpointSlice") => from_value::<api::EndpointSlice>(object)?.into(),
        kind => return Err(format!("unexpected kind {kind:?}").into()),
    })
}
