//! The jobs by conntrack, whose one function lists all flows.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use conntrack::Conntrack;
use jobs::{Outcome, expect};

fn main() -> ExitCode {
    jobs::main(|job, _| match job {
        jobs::LIST_FLOWS => Some(list_flows()),
        _ => None,
    })
}

fn list_flows() -> Outcome<()> {
    let flows = Conntrack::connect().and_then(|connection| connection.dump());
    expect(flows.map_err(|error| error.to_string())?.len(), jobs::FLOWS)
}
