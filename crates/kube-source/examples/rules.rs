//! The rules of manifests in any mode: manifests on stdin, rules on stdout.
//!
//! Run without privileges, with `nftables`, `iptables` or `ipvs` as the mode:
//!
//! ```sh
//! cargo run -p vipline-kube-source --example rules nftables < examples/kube-proxy/demo/front.yaml
//! ```
//!
//! The output is the script with which the tool of the mode creates all rules.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use proxy_core::backend::{Planner, iptables, ipvs, nftables};
use proxy_core::reconcile::{Edit, Rejection, Target};
use proxy_core::{Config, Engine, Family, Mode};
use vipline_kube_source::manifests::parse::events;

fn main() -> Result<(), Box<dyn Error>> {
    let mode = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "nftables".to_owned());
    let manifests = io::read_to_string(io::stdin())?;
    run(mode.parse()?, &manifests, io::stdout)
}

/// Writes the rules of the manifests.
pub(crate) fn run<W: Write + Send + 'static>(
    mode: Mode,
    manifests: &str,
    out: impl Fn() -> W,
) -> Result<(), Box<dyn Error>> {
    let config = Config::new("node-1").with_mode(mode);
    let mut engine = match mode {
        Mode::Iptables => engine::<iptables::Planner, W>(config, out),
        Mode::Ipvs => engine::<ipvs::Planner, W>(config, out),
        _ => engine::<nftables::Planner, W>(config, out),
    };
    for event in events(manifests)? {
        engine.apply(event);
    }
    let report = engine.poll(Duration::ZERO).ok_or("no sync is due")?;
    report.into_result()?;
    Ok(())
}

fn engine<P, W>(config: Config, out: impl Fn() -> W) -> Engine
where
    P: Planner<Object: Send + Sync> + for<'a> From<&'a Config>,
    W: Write + Send + 'static,
{
    let planner = P::from(&config);
    Engine::with_kernels(config.engine, planner, |family| Script::<P, W> {
        family,
        installed: Vec::new(),
        out: out(),
    })
}

/// A kernel that writes the changes of its rules as a script.
struct Script<P: Planner, W> {
    family: Family,
    installed: Vec<P::Object>,
    out: W,
}

impl<P: Planner, W: Write> Target for Script<P, W> {
    type Object = P::Object;
    type Error = io::Error;

    fn dump(&mut self) -> io::Result<Vec<P::Object>> {
        Ok(self.installed.clone())
    }

    fn commit(&mut self, edits: &[Edit<P::Object>]) -> io::Result<Vec<Rejection>> {
        // The first commit of a new kernel only adds objects.
        self.installed
            .extend(edits.iter().map(|edit| edit.object().clone()));
        let script = P::script(self.family, edits.to_vec(), self.installed.iter());
        writeln!(self.out, "# {}\n{script}", self.family)?;
        Ok(Vec::new())
    }
}
