//! Prometheus' text format, as Go programs write it.
//!
//! The version is 0.0.4: without `# EOF`, and the name of a counter in `# TYPE`
//! is that of its samples. Numbers have Go's default format.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::histogram::Histogram;

/// Content type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of a metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Type {
    /// A monotonic count.
    Counter,
    /// A value that can rise and fall.
    Gauge,
    /// Counts of values by size.
    Histogram,
}

/// Label names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page of metrics.
#[derive(Debug, Default)]
pub struct Page {
    metrics: BTreeMap<&'static str, String>,
}

/// A metric of a page.
pub struct Metric<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl Page {
    /// Adds a metric with its `HELP` text.
    pub fn add(&mut self, name: &'static str, kind: Type, help: &str) -> Metric<'_> {
        let kind = match kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        let text = self.metrics.entry(name).or_default();
        *text = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Metric { name, text }
    }

    /// Returns the page, sorted by metric name.
    pub fn finish(self) -> String {
        let texts: Vec<String> = self.metrics.into_values().collect();
        texts.concat()
    }
}

impl Metric<'_> {
    /// Adds a sample.
    pub fn value(&mut self, labels: Labels<'_>, value: f64) {
        self.sample("", labels, value);
    }

    /// Adds the samples of a histogram.
    pub fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        self.buckets(labels, histogram.buckets(), histogram.sum());
    }

    /// Adds the samples of a histogram with these bounds and cumulative counts. The last
    /// bound is infinite.
    pub fn buckets(
        &mut self,
        labels: Labels<'_>,
        buckets: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        let mut total = 0;
        for (bound, count) in buckets {
            let bound = number(bound);
            let labels = [labels, &[("le", &bound)]].concat();
            self.sample("_bucket", &labels, float(count));
            total = count;
        }
        self.sample("_sum", labels, sum);
        self.sample("_count", labels, float(total));
    }

    fn sample(&mut self, suffix: &str, labels: Labels<'_>, value: f64) {
        let (name, value) = (self.name, number(value));
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        writeln!(self.text, "{name}{suffix}{labels} {value}")
            .expect("writing to a string succeeds");
    }
}

/// Converts a count to a float, as all values of the format are.
#[allow(clippy::cast_precision_loss, reason = "that is the format")]
pub fn float(count: impl TryInto<u64>) -> f64 {
    count.try_into().unwrap_or(u64::MAX) as f64
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', r#"\""#)
        .replace('\n', r"\n")
}

/// Formats a number with the fewest digits that identify it. Numbers from
/// 1,000,000 and below 0.0001 have an exponent.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    // The exponent has a sign and at least two digits.
    match exponent.parse() {
        Ok(exponent @ ..-4) => format!("{digits}e-{:02}", i32::abs(exponent)),
        Ok(exponent @ 6..) => format!("{digits}e+{exponent:02}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_as_in_go() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.001, "0.001"),
            (16.384, "16.384"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.000_012_5, "1.25e-05"),
            (123_456.0, "123456"),
            (999_999.5, "999999.5"),
            (1_000_000.0, "1e+06"),
            (1_763_742_812.25, "1.76374281225e+09"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_page_is_ordered_by_name_and_ends_with_its_last_metric() {
        let mut page = Page::default();
        let mut histogram = Histogram::new(&[0.5]);
        histogram.observe(0.25);
        let mut metric = page.add("b_seconds", Type::Histogram, "Times.");
        metric.histogram(&[("ip_family", "IPv4")], &histogram);
        page.add("a_total", Type::Counter, "How many.")
            .value(&[], 3.0);
        let mut metric = page.add("c", Type::Gauge, "A value.");
        metric.value(&[("a", "quote \" slash \\ line\n"), ("b", "")], -2.0);
        let expected = r#"# HELP a_total How many.
# TYPE a_total counter
a_total 3
# HELP b_seconds Times.
# TYPE b_seconds histogram
b_seconds_bucket{ip_family="IPv4",le="0.5"} 1
b_seconds_bucket{ip_family="IPv4",le="+Inf"} 1
b_seconds_sum{ip_family="IPv4"} 0.25
b_seconds_count{ip_family="IPv4"} 1
# HELP c A value.
# TYPE c gauge
c{a="quote \" slash \\ line\n",b=""} -2
"#;
        assert_eq!(page.finish(), expected);
    }
}
