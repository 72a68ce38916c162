//! A strict parser of Prometheus' text format.

use std::collections::BTreeMap;

type Labels<'a> = Vec<(&'a str, &'a str)>;

type Sample<'a> = (&'a str, Labels<'a>, f64);

/// A metric of a page.
#[derive(Default)]
struct Read<'a> {
    name: &'a str,
    kind: &'a str,
    /// Samples in the order of the page: name, labels and value.
    samples: Vec<Sample<'a>>,
}

/// Panics if a page is malformed or inconsistent.
pub(super) fn check(page: &str) {
    let metrics = read(page);
    let mut names: Vec<_> = metrics.iter().map(|metric| metric.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), metrics.len(), "a metric is there twice");
    for metric in &metrics {
        metric.check();
    }
}

fn read(page: &str) -> Vec<Read<'_>> {
    assert!(page.ends_with('\n'), "the last line does not end");
    let mut metrics = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").expect(line);
        let (name, _) = help.split_once(' ').expect(line);
        let line = lines.next().expect("a type after the help");
        let kind = line.strip_prefix("# TYPE ").expect(line);
        let (typed, kind) = kind.split_once(' ').expect(line);
        assert_eq!(name, typed, "{line}");
        let mut metric = Read {
            name,
            kind,
            samples: Vec::new(),
        };
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            metric.samples.push(sample(line));
        }
        metrics.push(metric);
    }
    metrics
}

fn sample(line: &str) -> Sample<'_> {
    let end = line.find(['{', ' ']).expect(line);
    let (name, rest) = line.split_at(end);
    let (labels, value) = match rest.strip_prefix('{') {
        None => (Vec::new(), rest),
        Some(rest) => labels(rest),
    };
    for name in labels.iter().map(|(name, _)| *name).chain([name]) {
        let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
        assert!(!name.is_empty() && name.chars().all(is_word), "{line}");
        assert!(
            !name.starts_with(|char: char| char.is_ascii_digit()),
            "{line}"
        );
    }
    let value = value.strip_prefix(' ').expect(line);
    assert!(!value.contains(' '), "a time is with {line}");
    (name, labels, value.parse().expect(line))
}

/// Parses labels and returns the rest of the line.
fn labels(mut rest: &str) -> (Labels<'_>, &str) {
    let mut labels = Vec::new();
    loop {
        let (name, value) = rest.split_once("=\"").expect(rest);
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().expect("a quote at the end") {
                (end, '"') => break end,
                (_, '\\') => {
                    let escaped = chars.next().map(|(_, char)| char);
                    assert!(matches!(escaped, Some('\\' | '"' | 'n')), "{value}");
                }
                _ => {}
            }
        };
        labels.push((name, &value[..end]));
        rest = &value[end + 1..];
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return (labels, rest.strip_prefix('}').expect(rest)),
        }
    }
}

impl Read<'_> {
    fn check(&self) {
        let mut seen = BTreeMap::new();
        for (name, labels, value) in &self.samples {
            let mut sorted = labels.clone();
            sorted.sort_unstable();
            let twice = seen.insert((*name, sorted), ());
            assert_eq!(twice, None, "{name} {labels:?} is there twice");
            let is_whole = value.fract() == 0.0 && *value >= 0.0;
            match self.kind {
                "gauge" => assert_eq!(*name, self.name),
                "counter" => {
                    assert_eq!(*name, self.name);
                    assert!(name.ends_with("_total"), "{name} counts");
                    assert!(*value >= 0.0, "{name} {labels:?} is {value}");
                }
                "histogram" if *name == format!("{}_sum", self.name) => {}
                "histogram" => assert!(is_whole, "{name} {labels:?} is {value}"),
                kind => panic!("{name} is a {kind}"),
            }
        }
        if self.kind == "histogram" {
            self.check_histograms();
        }
    }

    /// Checks that each histogram has buckets, sum and count, and that the
    /// buckets grow up to the count.
    fn check_histograms(&self) {
        let mut samples = self.samples.iter().map(|(name, labels, value)| {
            let end = name.strip_prefix(self.name).expect(name);
            (end.to_owned(), labels.clone(), *value)
        });
        let mut below: Option<(f64, f64)> = None;
        let mut owner = Vec::new();
        while let Some((end, mut labels, value)) = samples.next() {
            assert_eq!(end, "_bucket", "{}", self.name);
            let (label, bound) = labels.pop().expect("a bound");
            assert_eq!(label, "le");
            let bound: f64 = bound.parse().unwrap();
            if let Some((lower, count)) = below {
                assert_eq!(owner, labels, "{}", self.name);
                assert!(lower < bound, "{} {labels:?} {bound}", self.name);
                assert!(count <= value, "{} {labels:?} {bound}", self.name);
            }
            below = Some((bound, value));
            if bound == f64::INFINITY {
                let (end, sum_labels, _) = samples.next().expect("a sum");
                assert_eq!((&*end, &sum_labels), ("_sum", &labels));
                let count = samples.next().expect("a count");
                assert_eq!(count, ("_count".to_owned(), labels.clone(), value));
                below = None;
            }
            owner = labels;
        }
        assert_eq!(below, None, "{} has no last bucket", self.name);
    }
}

#[test]
fn malformed_pages_are_detected() {
    let counter = "# HELP a_total H.\n# TYPE a_total counter\n";
    let histogram = "# HELP h H.\n# TYPE h histogram\n";
    let ends = "h_sum 1\nh_count 2\n";
    check(&format!(
        "{counter}a_total{{b=\"\\\"\\\\\\n,}}\",c=\"\"}} 1e+06\n"
    ));
    check(&format!(
        "{histogram}h_bucket{{le=\"1\"}} 1\nh_bucket{{le=\"+Inf\"}} 2\n{ends}"
    ));
    for page in [
        format!("{counter}a_total 1"),
        format!("{counter}{counter}a_total 1\n"),
        format!("{counter}b_total 1\n"),
        format!("{counter}a_total -1\n"),
        format!("{counter}a_total 1 5\n"),
        format!("{counter}a_total 1\na_total 1\n"),
        format!("{counter}a_total{{b=\"1\",c=\"\"}} 1\na_total{{c=\"\",b=\"1\"}} 2\n"),
        format!("{counter}a_total{{b=\"\\t\"}} 1\n"),
        format!("{counter}a_total{{b=\"1\" 1\n"),
        format!("{counter}a_total{{1b=\"1\"}} 1\n"),
        "a_total 1\n".to_owned(),
        "# HELP a H.\n# TYPE a counter\na 1\n".to_owned(),
        "# HELP a H.\n# TYPE b gauge\nb 1\n".to_owned(),
        format!("{histogram}h_bucket{{le=\"1\"}} 1\n{ends}"),
        format!("{histogram}h_bucket{{le=\"1\"}} 3\nh_bucket{{le=\"+Inf\"}} 2\n{ends}"),
        format!("{histogram}h_bucket{{le=\"1\"}} 1\nh_bucket{{le=\"+Inf\"}} 3\n{ends}"),
        format!(
            "{histogram}h_bucket{{le=\"2\"}} 1\nh_bucket{{le=\"1\"}} 1\nh_bucket{{le=\"+Inf\"}} 2\n{ends}"
        ),
        format!("{histogram}h_bucket{{le=\"+Inf\"}} 2\nh_count 2\n"),
    ] {
        let checked = std::panic::catch_unwind(|| check(&page));
        assert!(checked.is_err(), "{page}");
    }
}
