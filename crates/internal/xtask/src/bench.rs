//! Runs benchmarks, collects their figures in one file, and prints a table.
//!
//! A benchmark writes its figures to `target/bench/NAME.json`, one [`Figure`] per
//! line.
//! The task fails if a figure exceeds its limit.
//! Benchmarks that need another kernel than the host's run in a guest.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::cargo::{cargo, metadata, release_build};
use crate::process::execute;
use crate::vm;

/// One line of a benchmark's file.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    /// Name of the measurement, such as `nftables: full load`.
    measure: String,
    /// Size of the input, such as `10000 x 5`. Default: empty.
    #[serde(default)]
    size: String,
    /// Result.
    value: f64,
    /// Unit of the result, such as `ms`, `x floor`, `sendmsg`.
    unit: String,
    /// Highest allowed value. Default: none.
    #[serde(default)]
    limit: Option<f64>,
}

/// The benchmark that starts kube-proxy; `KUBE_PROXY` is the path of its release build.
const PROGRAM_BENCH: &str = "api";

/// Benchmarks that run in a guest; on the host they do nothing.
const GUEST_BENCHES: [&str; 1] = ["ipvs"];

/// Runs the benchmarks whose names contain `filter`.
pub(crate) fn run(filter: &str) -> Result<()> {
    let target = metadata()?.target_directory;
    let folder = target.join("bench");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let chosen = format!("*{filter}*");
    let mut bench = cargo(["bench", "--package", "benches", "--bench", &chosen]);
    bench.env("BENCH_FIGURES", &folder);
    if PROGRAM_BENCH.contains(filter) {
        bench.env("KUBE_PROXY", release_build()?);
    }
    execute(&mut bench)?;
    for name in GUEST_BENCHES
        .into_iter()
        .filter(|name| name.contains(filter))
    {
        let figures = vm::bench(name, &target)?;
        ensure!(!figures.is_empty(), "{name} wrote no figures in the guest");
        fs::write(folder.join(format!("{name}.json")), figures)?;
    }
    let figures = figures(&folder)?;
    let file = target.join("bench.json");
    fs::write(&file, serde_json::to_string_pretty(&figures)?)?;
    print!("{}", table(&figures));
    println!("written to {}", file.display());
    match figures.iter().filter(|figure| figure.exceeds()).count() {
        0 => Ok(()),
        count => bail!("{count} of {} figures exceed their limit", figures.len()),
    }
}

impl Figure {
    fn exceeds(&self) -> bool {
        self.limit.is_some_and(|limit| self.value > limit)
    }
}

/// Reads the files of all benchmarks, sorted by name.
fn figures(folder: &Path) -> Result<Vec<Figure>> {
    let mut files: Vec<_> = fs::read_dir(folder)?
        .map(|file| file.map(|file| file.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let mut figures = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        for (number, line) in (1..).zip(text.lines()) {
            let place = || format!("{}:{number}", file.display());
            figures.push(serde_json::from_str(line).with_context(place)?);
        }
    }
    Ok(figures)
}

fn table(figures: &[Figure]) -> String {
    let mut text = format!(
        "\n{:<52} {:<12} {:>12} {:<10} {:>10}\n",
        "measure", "size", "value", "unit", "limit"
    );
    for figure in figures {
        let limit = figure
            .limit
            .map_or_else(String::new, |limit| format!("{limit}"));
        let mark = if figure.exceeds() { "  EXCEEDED" } else { "" };
        text += &format!(
            "{:<52} {:<12} {:>12.3} {:<10} {limit:>10}{mark}\n",
            figure.measure, figure.size, figure.value, figure.unit
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::scoped::Directory;

    #[test]
    fn figures_are_collected_and_an_exceeded_limit_is_marked() {
        let directory = Directory::new().unwrap();
        directory
            .write(
                "load.json",
                "{\"measure\":\"load\",\"size\":\"10 x 5\",\"value\":1.4,\"unit\":\"x floor\",\"limit\":1.5}\n\
                 {\"measure\":\"change\",\"value\":2,\"unit\":\"sendmsg\",\"limit\":1}\n",
            )
            .unwrap();
        let figures = figures(directory.path()).unwrap();
        assert_eq!(figures.len(), 2);
        assert_eq!(figures.iter().filter(|figure| figure.exceeds()).count(), 1);
        let table = table(&figures);
        assert!(table.lines().nth(2).unwrap().starts_with("load"));
        assert!(table.lines().nth(3).unwrap().ends_with("EXCEEDED"));
    }

    #[test]
    fn the_error_for_an_invalid_line_names_file_and_line() {
        let directory = Directory::new().unwrap();
        directory.write("odd.json", "{\"value\": 1}\n").unwrap();
        let error = figures(directory.path()).unwrap_err();
        assert!(format!("{error:#}").contains("odd.json:1"), "{error:#}");
    }
}
