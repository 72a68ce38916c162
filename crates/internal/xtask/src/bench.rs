//! Runs benchmarks, collects their figures in one file, and prints a table.
//!
//! A benchmark writes its figures to `target/bench/NAME.json`, one [`Figure`] per
//! line.
//! All benchmarks run to their end. The task fails afterwards if a figure exceeds its
//! limit, or if a benchmark failed.
//! Benchmarks that need another kernel than the host's run in a guest.

use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fmt, fs};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::cargo::{cargo, image_build, metadata};
use crate::process::execute;
use crate::tools::{self, Tool};
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

/// Benchmarks that start a program: the variable with its path, its package, and the
/// tools of the benchmark.
///
/// The program is built as for images.
const PROGRAM_BENCHES: [(&str, &str, &str, &[Tool]); 2] = [
    ("api", "KUBE_PROXY", "kube-proxy", &[]),
    ("dns", "CLUSTER_DNS", "cluster-dns", tools::DNS_BENCH_TOOLS),
];

/// Benchmarks that run in a guest; on the host they do nothing.
const GUEST_BENCHES: [&str; 1] = ["ipvs"];

/// The comparison with other crates, which is a workspace of its own.
pub(crate) const PEERS: &str = "peers";

/// Compares our crates with other crates and programs. `cold` also measures builds.
pub(crate) fn peers(cold: bool) -> Result<()> {
    let manifest = ["--manifest-path", "benches/peers/Cargo.toml"];
    let mut run = cargo(["run", "--release", "--locked", "--quiet"]);
    run.args(manifest).args(["--package", "peers", "--"]);
    run.args(cold.then_some("--cold"));
    execute(&mut run)
}

/// Runs the benchmarks whose names contain `filter`.
///
/// `services` is the number of Services of benchmarks that support another size.
pub(crate) fn run(filter: &str, services: Option<u32>) -> Result<()> {
    let runner = Runner::new(filter, services)?;
    let names = names()?.into_iter().filter(|name| name.contains(filter));
    let names: Vec<_> = names.collect();
    ensure!(!names.is_empty(), "no benchmark is named *{filter}*");
    let mut failures = Vec::new();
    for name in names {
        let start = Instant::now();
        failures.extend(runner.run(&name));
        eprintln!("{name}: {} s", start.elapsed().as_secs());
    }
    let figures = figures(&runner.folder)?;
    fs::write(&runner.file, serde_json::to_string_pretty(&figures)?)?;
    print!("{}", table(&figures));
    println!("written to {}", runner.file.display());
    conclude(&figures, &failures)
}

/// Returns the names of all benchmarks, in alphabetical order.
fn names() -> Result<Vec<String>> {
    let packages = metadata()?.packages.into_iter();
    let packages = packages.filter(|package| package.name == "benches");
    let mut names: Vec<_> = packages.flat_map(|package| package.benches()).collect();
    names.sort();
    Ok(names)
}

/// Returns an error with all exceeded limits and all failures, if there are any.
fn conclude(figures: &[Figure], failures: &[String]) -> Result<()> {
    let exceeded = figures.iter().filter(|figure| figure.exceeds());
    let lines: Vec<_> = exceeded
        .map(Figure::to_string)
        .chain(failures.iter().cloned())
        .collect();
    match lines.is_empty() {
        true => Ok(()),
        false => bail!(
            "{} of {} figures exceed their limit, {} benchmarks failed:\n  {}",
            lines.len() - failures.len(),
            figures.len(),
            failures.len(),
            lines.join("\n  ")
        ),
    }
}

/// Settings of all benchmarks of a run.
struct Runner {
    /// Folder for the figures.
    folder: PathBuf,
    /// File with all figures.
    file: PathBuf,
    /// Target directory of the workspace.
    target: PathBuf,
    /// Environment of the benchmarks.
    variables: Vec<(&'static str, PathBuf)>,
}

impl Runner {
    /// Builds the benchmarks and empties the folder for their figures.
    fn new(filter: &str, services: Option<u32>) -> Result<Self> {
        let target = metadata()?.target_directory;
        let folder = target.join("bench");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let chosen = format!("*{filter}*");
        let mut build = cargo(["bench", "--package", "benches", "--no-run"]);
        execute(build.args(["--bench", &chosen]))?;
        let mut variables = vec![("BENCH_FIGURES", folder.clone())];
        for (name, variable, package, tools) in PROGRAM_BENCHES {
            if name.contains(filter) {
                tools::install(tools)?;
                variables.push((variable, image_build(package)?));
            }
        }
        let services = services.map(|services| services.to_string().into());
        variables.extend(services.map(|services| ("BENCH_SERVICES", services)));
        Ok(Self {
            file: target.join("bench.json"),
            folder,
            target,
            variables,
        })
    }

    /// Runs a benchmark, and returns a description of its failure.
    ///
    /// An exceeded limit is no failure.
    fn run(&self, name: &str) -> Option<String> {
        let file = self.folder.join(format!("{name}.json"));
        let done = match GUEST_BENCHES.contains(&name) {
            true => vm::bench(name, &self.target).and_then(|figures| {
                ensure!(!figures.is_empty(), "no figures of the guest");
                Ok(fs::write(&file, figures)?)
            }),
            false => {
                let mut bench = cargo(["bench", "--package", "benches", "--bench", name]);
                execute(bench.envs(self.variables.iter().cloned()))
            }
        };
        let error = done.err().filter(|_| !exceeds_limits(&file))?;
        Some(format!("{name}: {error:#}"))
    }
}

/// Returns whether a figure in the file of a benchmark exceeds its limit.
///
/// A benchmark writes its figures at its end, and then fails because of such a figure.
fn exceeds_limits(file: &Path) -> bool {
    read(file).is_ok_and(|figures| figures.iter().any(Figure::exceeds))
}

impl Figure {
    fn exceeds(&self) -> bool {
        self.limit.is_some_and(|limit| self.value > limit)
    }
}

/// Formats as `load, 10 x 5: 1.600 x floor, limit 1.5`.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.measure)?;
        if !self.size.is_empty() {
            write!(f, ", {}", self.size)?;
        }
        write!(f, ": {:.3} {}", self.value, self.unit)?;
        match self.limit {
            Some(limit) => write!(f, ", limit {limit}"),
            None => Ok(()),
        }
    }
}

/// Reads the files of all benchmarks, sorted by name.
fn figures(folder: &Path) -> Result<Vec<Figure>> {
    let mut files: Vec<_> = fs::read_dir(folder)?
        .map(|file| file.map(|file| file.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let figures: Result<Vec<_>> = files.iter().map(|file| read(file)).collect();
    Ok(figures?.into_iter().flatten().collect())
}

/// Reads the file of a benchmark.
fn read(file: &Path) -> Result<Vec<Figure>> {
    let text = fs::read_to_string(file)?;
    let lines = (1..).zip(text.lines());
    let figures = lines.map(|(number, line)| {
        let place = || format!("{}:{number}", file.display());
        serde_json::from_str(line).with_context(place)
    });
    figures.collect()
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
    fn the_error_of_a_run_lists_exceeded_limits_and_failures() {
        let figure = |value| Figure {
            measure: "load".into(),
            size: "10 x 5".into(),
            value,
            unit: "x floor".into(),
            limit: Some(1.5),
        };
        let figures = [figure(1.6), figure(1.4)];
        let error = conclude(&figures, &["sets: exit status: 1".into()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "1 of 2 figures exceed their limit, 1 benchmarks failed:\n  \
             load, 10 x 5: 1.600 x floor, limit 1.5\n  \
             sets: exit status: 1"
        );
        assert!(conclude(&figures[1..], &[]).is_ok());
    }

    #[test]
    fn only_a_figure_above_its_limit_explains_a_failure() {
        let directory = Directory::new().unwrap();
        let exceeds = |value| {
            let line = format!(r#"{{"measure":"a","value":{value},"unit":"x","limit":1}}"#);
            directory.write("a.json", &line).unwrap();
            exceeds_limits(&directory.path().join("a.json"))
        };
        assert!(exceeds(1.1));
        assert!(!exceeds(1.0));
        assert!(!exceeds_limits(&directory.path().join("none.json")));
    }

    #[test]
    fn every_benchmark_has_a_name() {
        let names = names().unwrap();
        let programs = PROGRAM_BENCHES.map(|(name, ..)| name);
        for name in GUEST_BENCHES.into_iter().chain(programs) {
            assert!(names.iter().any(|each| each == name), "{names:?}");
        }
    }

    #[test]
    fn the_error_for_an_invalid_line_names_file_and_line() {
        let directory = Directory::new().unwrap();
        directory.write("odd.json", "{\"value\": 1}\n").unwrap();
        let error = figures(directory.path()).unwrap_err();
        assert!(format!("{error:#}").contains("odd.json:1"), "{error:#}");
    }
}
