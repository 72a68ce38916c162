//! Counts what a client asks its server: every request, and how it ends.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Body;
use hyper::{Method, Request, Response, Uri};
use tower::{Layer, Service};

use crate::telemetry::{Asked, Telemetry};

/// Makes a client count what it asks.
#[derive(Clone, Debug)]
pub struct Counting {
    telemetry: Telemetry,
    host: Arc<str>,
}

/// Sends requests, and counts them.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    counting: Counting,
}

/// A request that was sent; it ends when this is dropped.
struct Sent {
    counting: Counting,
    method: Method,
    is_watch: bool,
    is_answered: bool,
    start: Instant,
}

impl Counting {
    /// Returns what counts the requests to a server.
    pub fn new(telemetry: Telemetry, host: Arc<str>) -> Self {
        Self { telemetry, host }
    }
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        let counting = self.clone();
        Counted { inner, counting }
    }
}

impl<S, Q, A> Service<Request<Q>> for Counted<S>
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
            counting: self.counting.clone(),
            method: request.method().clone(),
            is_watch: is_watch(request.uri()),
            is_answered: false,
            start: Instant::now(),
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            sent.is_answered = true;
            sent.note(Asked::Answered(answer.status().as_u16()));
            Ok(answer.map(|body| {
                // A request ends with the last that is read of its answer.
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
    fn note(&self, what: Asked) {
        let Counting { telemetry, host } = &self.counting;
        telemetry.asked(host, self.method.as_str(), what);
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if !self.is_answered {
            self.note(Asked::Failed);
        }
        // How long a watch lasts says nothing of the server.
        if !self.is_watch {
            self.note(Asked::Took(self.start.elapsed()));
        }
    }
}

fn is_watch(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| pair == "watch=true")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use proxy_core::{Family, Mode};

    use super::*;
    use crate::config::Gates;

    type Answer = BoxFuture<'static, Result<Response<String>, ()>>;

    /// A server that answers everything alike.
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
        telemetry: Telemetry,
        service: Counted<Server>,
    }

    impl Client {
        fn of(server: fn() -> Answer) -> Self {
            let telemetry = Telemetry::new(Mode::Nftables, &[Family::V4], Duration::MAX);
            let counting = Counting::new(telemetry.clone(), "h:1".into());
            let service = counting.layer(Server(server));
            Self { telemetry, service }
        }

        fn ask(&mut self, path: &str) -> <Counted<Server> as Service<Request<()>>>::Future {
            self.service.call(Request::get(path).body(()).unwrap())
        }

        /// Returns the answers by code, and how many requests are over.
        fn shown(&self) -> (Vec<String>, String) {
            let page = self.telemetry.metrics(&Gates::default());
            let of = |start: &str| {
                let lines = page.lines().filter_map(|line| line.strip_prefix(start));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            let over = of("rest_client_request_duration_seconds_count{host=\"h:1\",verb=\"GET\"} ");
            (of("rest_client_requests_total"), over.concat())
        }
    }

    fn answer() -> Answer {
        let answer = Response::builder().status(410).body("gone".to_owned());
        futures_util::future::ready(Ok(answer.unwrap())).boxed()
    }

    const ANSWERED: &str = "{code=\"410\",host=\"h:1\",method=\"GET\"} 1";
    const FAILED: &str = "{code=\"<error>\",host=\"h:1\",method=\"GET\"} 1";

    #[test]
    fn a_request_has_a_code_when_its_answer_begins_and_a_time_when_it_is_read() {
        let mut client = Client::of(answer);
        let answer = client.ask("/api/v1/services?limit=500").now_or_never();
        assert_eq!(client.shown(), (vec![ANSWERED.to_owned()], "0".to_owned()));
        let body = answer.unwrap().unwrap().into_body();
        let text = body.collect().now_or_never().unwrap().unwrap();
        assert_eq!(text.to_bytes(), "gone");
        assert_eq!(client.shown(), (vec![ANSWERED.to_owned()], "1".to_owned()));
    }

    #[test]
    fn a_watch_has_no_time() {
        let mut client = Client::of(answer);
        let watch = client.ask("/api/v1/services?limit=500&watch=true");
        drop(watch.now_or_never());
        assert_eq!(client.shown(), (vec![ANSWERED.to_owned()], "0".to_owned()));
    }

    #[test]
    fn a_request_that_fails_has_no_code() {
        let mut client = Client::of(|| futures_util::future::ready(Err(())).boxed());
        assert!(client.ask("/").now_or_never().unwrap().is_err());
        assert_eq!(client.shown(), (vec![FAILED.to_owned()], "1".to_owned()));
    }

    #[test]
    fn a_request_that_is_given_up_has_no_code() {
        let mut client = Client::of(|| futures_util::future::pending().boxed());
        assert!(client.ask("/").now_or_never().is_none());
        assert_eq!(client.shown(), (vec![FAILED.to_owned()], "1".to_owned()));
    }
}
