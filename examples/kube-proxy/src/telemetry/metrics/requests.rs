//! Metrics of requests to the API server, as client-go has them.

use std::collections::BTreeMap;

use vipline_kube_source::api::RequestEvent;

use daemon::metrics::Histogram;
use daemon::metrics::{Page, Type, float};

/// Upstream's buckets for the duration of requests, in seconds.
const TIMES: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// Counts of all requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// Groups by host and method.
    groups: BTreeMap<(String, String), Group>,
}

/// Requests with one method to one host.
#[derive(Clone, Debug)]
struct Group {
    /// Number of requests by status code. `None`: no response.
    codes: BTreeMap<Option<u16>, u64>,
    took: Histogram,
    waited: Histogram,
}

impl Requests {
    /// Records an event of a request.
    pub(crate) fn record(&mut self, host: &str, method: &str, what: RequestEvent) {
        let key = (host.to_owned(), method.to_owned());
        let group = self.groups.entry(key).or_default();
        match what {
            RequestEvent::RateLimited(time) => group.waited.observe_time(time),
            RequestEvent::Response(code) => *group.codes.entry(Some(code)).or_default() += 1,
            RequestEvent::Failed => *group.codes.entry(None).or_default() += 1,
            RequestEvent::Finished(time) => group.took.observe_time(time),
        }
    }

    /// Adds the metrics of client-go.
    pub(super) fn add_to(&self, page: &mut Page) {
        let mut metric = page.add(
            "rest_client_requests_total",
            Type::Counter,
            "[ALPHA] Requests to the API server by status code",
        );
        for ((host, method), group) in &self.groups {
            for (code, &count) in &group.codes {
                let code = code.map_or("<error>".to_owned(), |code| code.to_string());
                let labels = [("code", &*code), ("host", host), ("method", method)];
                metric.value(&labels, float(count));
            }
        }
        self.add_times(
            page,
            "rest_client_request_duration_seconds",
            "[ALPHA] Duration of requests to the API server except watches, in seconds",
            |group| &group.took,
        );
        self.add_times(
            page,
            "rest_client_rate_limiter_duration_seconds",
            "[ALPHA] Time that requests to the API server waited for the rate limit, in seconds",
            |group| &group.waited,
        );
    }

    fn add_times(
        &self,
        page: &mut Page,
        name: &'static str,
        help: &str,
        times: impl Fn(&Group) -> &Histogram,
    ) {
        let mut metric = page.add(name, Type::Histogram, help);
        for ((host, method), group) in &self.groups {
            metric.histogram(&[("host", host), ("verb", method)], times(group));
        }
    }
}

impl Default for Group {
    fn default() -> Self {
        Self {
            codes: BTreeMap::new(),
            took: Histogram::new(&TIMES),
            waited: Histogram::new(&TIMES),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn requests_are_shown_by_code_and_time() {
        let mut requests = Requests::default();
        for what in [
            RequestEvent::RateLimited(Duration::from_millis(100)),
            RequestEvent::Response(200),
            RequestEvent::Finished(Duration::from_secs(3)),
            RequestEvent::Response(200),
            RequestEvent::Failed,
        ] {
            requests.record("h:1", "GET", what);
        }
        let mut page = Page::default();
        requests.add_to(&mut page);
        let page = page.finish();
        for line in [
            "requests_total{code=\"200\",host=\"h:1\",method=\"GET\"} 2",
            "requests_total{code=\"<error>\",host=\"h:1\",method=\"GET\"} 1",
            "request_duration_seconds_bucket{host=\"h:1\",verb=\"GET\",le=\"2\"} 0",
            "request_duration_seconds_bucket{host=\"h:1\",verb=\"GET\",le=\"4\"} 1",
            "request_duration_seconds_sum{host=\"h:1\",verb=\"GET\"} 3",
            "rate_limiter_duration_seconds_bucket{host=\"h:1\",verb=\"GET\",le=\"0.1\"} 1",
            "rate_limiter_duration_seconds_sum{host=\"h:1\",verb=\"GET\"} 0.1",
        ] {
            let line = format!("rest_client_{line}");
            assert!(page.lines().any(|shown| shown == line), "{line}\n{page}");
        }
    }
}
