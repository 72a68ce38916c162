//! A tower layer that records the metrics of requests to the API server.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Body;
use hyper::{Method, Request, Response, Uri};
use tower::{Layer, Service};

use super::observer::{Observer, RequestEvent};

/// Layer that records every request, its response code and its duration.
#[derive(Clone, Debug)]
pub(crate) struct RequestMetricsLayer {
    observer: Arc<dyn Observer>,
    host: Arc<str>,
}

/// Service that records every request that it sends.
#[derive(Clone, Debug)]
pub(crate) struct RequestMetricsService<S> {
    inner: S,
    metrics: RequestMetricsLayer,
}

/// A request in flight. Its duration ends when this value is dropped.
struct Sent {
    metrics: RequestMetricsLayer,
    method: Method,
    is_watch: bool,
    is_answered: bool,
    start: Instant,
}

impl RequestMetricsLayer {
    /// Creates a layer for requests to a host.
    pub(crate) fn new(observer: Arc<dyn Observer>, host: Arc<str>) -> Self {
        Self { observer, host }
    }
}

impl<S> Layer<S> for RequestMetricsLayer {
    type Service = RequestMetricsService<S>;

    fn layer(&self, inner: S) -> RequestMetricsService<S> {
        let metrics = self.clone();
        RequestMetricsService { inner, metrics }
    }
}

impl<S, Q, A> Service<Request<Q>> for RequestMetricsService<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    S::Future: Send + 'static,
    A: Body + Send + 'static,
{
    type Response = Response<UnsyncBoxBody<A::Data, A::Error>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let mut sent = Sent {
            metrics: self.metrics.clone(),
            method: request.method().clone(),
            is_watch: is_watch(request.uri()),
            is_answered: false,
            start: Instant::now(),
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            sent.is_answered = true;
            sent.record(RequestEvent::Response(answer.status().as_u16()));
            Ok(answer.map(|body| {
                // A request ends when its body was read.
                body.map_frame(move |frame| {
                    let _held = &sent;
                    frame
                })
                .boxed_unsync()
            }))
        })
    }
}

impl Sent {
    fn record(&self, what: RequestEvent) {
        let RequestMetricsLayer { observer, host } = &self.metrics;
        observer.request(host, self.method.as_str(), what);
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if !self.is_answered {
            self.record(RequestEvent::Failed);
        }
        // The duration of a watch does not measure the server.
        if !self.is_watch {
            self.record(RequestEvent::Finished(self.start.elapsed()));
        }
    }
}

fn is_watch(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| pair == "watch=true")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::api::observer::tests::Recorded;

    type Answer = BoxFuture<'static, Result<Response<String>, ()>>;

    /// A server that gives every request the same response.
    struct Server(fn() -> Answer);

    impl Service<Request<()>> for Server {
        type Response = Response<String>;
        type Error = ();
        type Future = Answer;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Answer {
            (self.0)()
        }
    }

    struct Client {
        recorded: Arc<Recorded>,
        service: RequestMetricsService<Server>,
    }

    impl Client {
        fn of(server: fn() -> Answer) -> Self {
            let recorded = Arc::new(Recorded::default());
            let observer: Arc<dyn Observer> = recorded.clone();
            let metrics = RequestMetricsLayer::new(observer, "h:1".into());
            let service = metrics.layer(Server(server));
            Self { recorded, service }
        }

        fn ask(
            &mut self,
            path: &str,
        ) -> <RequestMetricsService<Server> as Service<Request<()>>>::Future {
            self.service.call(Request::get(path).body(()).unwrap())
        }

        /// Returns the results of requests, and the number of finished requests.
        fn shown(&self) -> (Vec<RequestEvent>, usize) {
            let mut results = Vec::new();
            let mut finished = 0;
            for (host, method, event) in &self.recorded.reports().requests {
                assert_eq!((&**host, &**method), ("h:1", "GET"));
                match event {
                    RequestEvent::Finished(_) => finished += 1,
                    event => results.push(*event),
                }
            }
            (results, finished)
        }
    }

    fn answer() -> Answer {
        let answer = Response::builder().status(410).body("gone".to_owned());
        futures_util::future::ready(Ok(answer.unwrap())).boxed()
    }

    const ANSWERED: RequestEvent = RequestEvent::Response(410);

    #[test]
    fn a_request_has_a_code_when_its_response_begins_and_a_duration_when_its_body_is_read() {
        let mut client = Client::of(answer);
        let answer = client.ask("/api/v1/services?limit=500").now_or_never();
        assert_eq!(client.shown(), (vec![ANSWERED], 0));
        let body = answer.unwrap().unwrap().into_body();
        let text = body.collect().now_or_never().unwrap().unwrap();
        assert_eq!(text.to_bytes(), "gone");
        assert_eq!(client.shown(), (vec![ANSWERED], 1));
    }

    #[test]
    fn a_watch_has_no_duration() {
        let mut client = Client::of(answer);
        let watch = client.ask("/api/v1/services?limit=500&watch=true");
        drop(watch.now_or_never());
        assert_eq!(client.shown(), (vec![ANSWERED], 0));
    }

    #[test]
    fn a_request_that_fails_has_no_code() {
        let mut client = Client::of(|| futures_util::future::ready(Err(())).boxed());
        assert!(client.ask("/").now_or_never().unwrap().is_err());
        assert_eq!(client.shown(), (vec![RequestEvent::Failed], 1));
    }

    #[test]
    fn a_request_that_is_given_up_has_no_code() {
        let mut client = Client::of(|| futures_util::future::pending().boxed());
        assert!(client.ask("/").now_or_never().is_none());
        assert_eq!(client.shown(), (vec![RequestEvent::Failed], 1));
    }
}
