//! Measured figures and their limits.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fmt, fs, io};

use serde::Serialize;

/// A measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of the measurement, such as `nftables: full load`.
    pub measure: String,
    /// Size of the input, such as `10000 x 5`.
    pub size: String,
    /// Result.
    pub value: f64,
    /// Unit of the result, such as `ms`, `x floor`, `sendmsg`.
    pub unit: String,
    /// Highest allowed value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

impl Figure {
    fn is_met(&self) -> bool {
        self.limit.is_none_or(|limit| self.value <= limit)
    }
}

/// Figures of a benchmark, printed when added and written to a file at the end.
#[derive(Debug, Default)]
pub struct Figures(Vec<Figure>);

impl Figures {
    /// Creates an empty list, and prints the table head.
    ///
    /// # Errors
    ///
    /// If standard output is closed.
    pub fn new() -> io::Result<Self> {
        writeln!(
            io::stdout(),
            "{:<46} {:<12} {:>10} {:<16} {:>8} ok",
            "measure",
            "size",
            "figure",
            "",
            "must"
        )?;
        Ok(Self::default())
    }

    /// Adds and prints a figure.
    ///
    /// # Errors
    ///
    /// If standard output is closed.
    pub fn push(
        &mut self,
        measure: &str,
        size: impl ToString,
        (value, unit): (f64, &str),
        limit: impl Into<Option<f64>>,
    ) -> io::Result<()> {
        let figure = Figure {
            measure: measure.to_owned(),
            size: size.to_string(),
            value,
            unit: unit.to_owned(),
            limit: limit.into(),
        };
        let (must, verdict) = match figure.limit {
            None => (String::new(), ""),
            Some(limit) => (
                limit.to_string(),
                if figure.is_met() { "yes" } else { "NO" },
            ),
        };
        let Figure {
            measure,
            size,
            value,
            unit,
            ..
        } = &figure;
        writeln!(
            io::stdout(),
            "{measure:<46} {size:<12} {value:>10.3} {unit:<16} {must:>8} {verdict}"
        )?;
        self.0.push(figure);
        Ok(())
    }

    /// Writes the figures to the folder `BENCH_FIGURES`, if set.
    ///
    /// Returns the number of exceeded limits.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn finish(self, name: &str) -> io::Result<usize> {
        if let Some(folder) = env::var_os("BENCH_FIGURES") {
            let mut file = fs::File::create(PathBuf::from(folder).join(format!("{name}.json")))?;
            for figure in &self.0 {
                writeln!(file, "{}", serde_json::to_string(figure)?)?;
            }
        }
        Ok(self.0.iter().filter(|figure| !figure.is_met()).count())
    }
}

/// Returns the exit code of a benchmark: failure on exceeded limits and on errors.
pub fn conclude(missed: Result<usize, impl fmt::Display>) -> ExitCode {
    match missed {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            eprintln!("{missed} figures are missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the value that `percent` % of the samples do not exceed.
///
/// # Panics
///
/// If `samples` is empty or contains a NaN.
pub fn percentile<T: Copy + PartialOrd>(samples: &[T], percent: usize) -> T {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(|a, b| a.partial_cmp(b).expect("no sample is NaN"));
    let last = sorted.len().checked_sub(1).expect("at least one sample");
    sorted[(sorted.len() * percent / 100).min(last)]
}

/// Returns a time in milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_sample_that_this_share_does_not_exceed() {
        let samples: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&samples, 0), Duration::from_millis(1));
        assert_eq!(percentile(&samples, 50), Duration::from_millis(51));
        assert_eq!(percentile(&samples, 99), Duration::from_millis(100));
        assert_eq!(percentile(&samples, 100), Duration::from_millis(100));
        let median: f64 = percentile(&[1.5, 3.0, -2.0], 50);
        assert!((median - 1.5).abs() < f64::EPSILON);
    }

    #[test]
    fn figures_above_their_limit_are_counted() {
        let mut figures = Figures::new().unwrap();
        figures.push("a", "", (1.0, "ms"), 1.0).unwrap();
        figures.push("b", "", (1.1, "ms"), 1.0).unwrap();
        figures.push("c", "", (9.0, "ms"), None).unwrap();
        assert_eq!(figures.finish("test").unwrap(), 1);
    }
}
