//! A proxy for a kernel of its own: manifests on stdin, rules on stdout.
//!
//! Run without privileges:
//!
//! ```sh
//! cargo run -p vipline-kube-source --example tiny-proxy < examples/kube-proxy/demo/front.yaml
//! ```
//!
//! A proxy for another kernel, such as a switch, writes its own `Target`, and its own
//! `Planner` if its objects are different. A proxy that continues calls `apply` for each
//! change, and `poll` after changes and at `next_deadline`. [The example
//! `rules`](rules.rs) supports all modes.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use proxy_core::backend::nftables::Planner;
use proxy_core::nftables::{Object, Transaction};
use proxy_core::reconcile::{Edit, Rejection, Target};
use proxy_core::{Engine, EngineConfig};
use vipline_kube_source::manifests::parse::events;

/// A kernel that writes changes as a script for `nft -f`.
struct Script<W>(W);

impl<W: Write> Target for Script<W> {
    type Object = Object;
    type Error = io::Error;

    fn dump(&mut self) -> io::Result<Vec<Object>> {
        Ok(Vec::new())
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> io::Result<Vec<Rejection>> {
        write!(self.0, "{}", Transaction::from_edits(edits))?;
        Ok(Vec::new())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&io::read_to_string(io::stdin())?, io::stdout)
}

/// Writes the rules of the manifests.
pub(crate) fn run<W>(manifests: &str, out: impl Fn() -> W) -> Result<(), Box<dyn Error>>
where
    W: Write + Send + 'static,
{
    let config = EngineConfig::new("node-1");
    let mut engine = Engine::with_kernels(config, Planner, |_| Script(out()));
    for event in events(manifests)? {
        engine.apply(event);
    }
    let report = engine.poll(Duration::ZERO).ok_or("no sync is due")?;
    report.into_result()?;
    Ok(())
}
