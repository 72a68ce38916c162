//! Authenticates and dispatches requests, and injects faults into responses.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request as HttpRequest, State as Shared};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::delete::delete;
use crate::faults::{CutAfter, Disconnect, Layer};
use crate::kind::{Kind, Part};
use crate::list::{Scope, Shown, list};
use crate::listener::Peer;
use crate::query::{Query, Target};
use crate::requests::Request;
use crate::state::State;
use crate::status::{StatusError, json as json_answer};
use crate::watch::watch;
use crate::write;

/// Largest request body, in bytes.
const BODY_LIMIT: usize = 3 << 20;
/// Longest delay of a response.
const LONGEST_DELAY: Duration = Duration::from_secs(86_400);
/// Major and minor version of Kubernetes that the server reports.
const VERSION: (&str, &str) = ("1", "36");

/// Answers a request.
pub(crate) async fn answer(
    Shared(state): Shared<Arc<State>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: HttpRequest,
) -> Response {
    peer.link.cut_after(None);
    let failed = |error: StatusError| error.response();
    let mut response = decide(&state, &peer, request).await.unwrap_or_else(failed);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    let audit = state.with_random(|random| format!("{:016x}{:016x}", random.next(), random.next()));
    let audit = audit.parse().expect("digits are ASCII");
    headers.insert(HeaderName::from_static("audit-id"), audit);
    response
}

async fn decide(
    state: &Arc<State>,
    peer: &Peer,
    request: HttpRequest,
) -> Result<Response, StatusError> {
    if !is_authenticated(state, peer, request.headers()) {
        return Err(StatusError::unauthorized());
    }
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let Some(target) = Target::parse(request.uri().path()) else {
        return Ok(discovery(request.uri().path()));
    };
    let verb = verb(request.method(), &target, &query).ok_or_else(StatusError::not_allowed)?;
    let user_agent = text(request.headers(), &USER_AGENT).to_owned();
    state.log(Request::new(verb, &target, &query, user_agent));
    inject_faults(state, verb, &target, peer)?;
    delay(state, target.kind()).await;

    let content_type = text(request.headers(), &CONTENT_TYPE).to_owned();
    let body = to_bytes(request.into_body(), BODY_LIMIT)
        .await
        .map_err(|_| StatusError::new(413, "RequestEntityTooLarge", "the body is too long"))?;
    match target {
        Target::Collection(kind, namespace) if matches!(verb, "list" | "watch") => {
            let scope = Scope::parse(kind, namespace, &query)?;
            if verb == "watch" {
                let mut response = Response::new(Body::from_stream(watch(state, scope, &query)?));
                let kind = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                return Ok(response);
            }
            let store = state.store();
            let shown = Shown {
                any: Some(state.stale(&store, kind)),
                newest: Some(state.outdated(&store, kind)),
            };
            let listing = list(&store, &scope, &query, shown)?;
            drop(store);
            Ok(json_answer(StatusCode::OK, listing.text()))
        }
        Target::Object(kind, key) | Target::Status(kind, key) if verb == "get" => {
            write::get(state, kind, &key)
        }
        target => {
            let kind = target.kind();
            let answer = change(state, target, verb, &content_type, &body)?;
            lose_response(state, kind, peer);
            Ok(answer)
        }
    }
}

/// Processes a write.
fn change(
    state: &State,
    target: Target,
    verb: &str,
    content_type: &str,
    body: &[u8],
) -> Result<Response, StatusError> {
    let (kind, key, part) = match target {
        Target::Collection(kind, namespace) => return write::create(state, kind, namespace, body),
        Target::Object(kind, key) => (kind, key, Part::Rest),
        Target::Status(kind, key) => (kind, key, Part::Status),
    };
    match verb {
        "update" => write::update(state, kind, &key, part, body),
        "patch" => write::patch(state, kind, &key, part, content_type, body),
        _ => delete(state, kind, &key, body),
    }
}

/// Returns whether the client has a valid certificate or token.
fn is_authenticated(state: &State, peer: &Peer, headers: &HeaderMap) -> bool {
    let token = text(headers, &AUTHORIZATION).strip_prefix("Bearer ");
    match token {
        Some(token) => token == state.token(),
        None => peer.certified,
    }
}

fn verb(method: &Method, target: &Target, query: &Query) -> Option<&'static str> {
    match (method, target) {
        (&Method::GET, Target::Collection(..)) if query.is_true("watch") => Some("watch"),
        (&Method::GET, Target::Collection(..)) => Some("list"),
        (&Method::POST, Target::Collection(..)) => Some("create"),
        (&Method::GET, Target::Object(..) | Target::Status(..)) => Some("get"),
        (&Method::PUT, Target::Object(..) | Target::Status(..)) => Some("update"),
        (&Method::PATCH, Target::Object(..) | Target::Status(..)) => Some("patch"),
        (&Method::DELETE, Target::Object(..)) => Some("delete"),
        _ => None,
    }
}

/// Injects all faults of a request except delays.
fn inject_faults(
    state: &State,
    verb: &str,
    target: &Target,
    peer: &Peer,
) -> Result<(), StatusError> {
    let kind = target.kind();
    state.change_faults_quietly(|faults| {
        if !faults.concern(kind) {
            return Ok(());
        }
        if faults
            .forbidden
            .iter()
            .any(|plural| plural == kind.plural())
        {
            return Err(StatusError::forbidden(kind, verb));
        }
        if let Some(answer) = faults.error_response.as_mut() {
            answer.times = answer.times.saturating_sub(1);
            let mut error = error(answer.code);
            error.retry_after = answer.retry_after;
            faults.error_response.take_if(|answer| answer.times == 0);
            return Err(error);
        }
        if matches!(verb, "list" | "watch") {
            peer.link.cut_after(faults.cut_after.take());
        } else if verb != "get" && faults.conflicts > 0 {
            faults.conflicts -= 1;
            return Err(error(409));
        }
        Ok(())
    })
}

/// Closes the connection if the response must get lost.
fn lose_response(state: &State, kind: Kind, peer: &Peer) {
    state.change_faults_quietly(|faults| {
        if faults.concern(kind) && faults.lost_responses > 0 {
            faults.lost_responses -= 1;
            peer.link.cut_after(Some(CutAfter {
                bytes: 0,
                layer: Layer::Http,
                disconnect: Disconnect::Close,
            }));
        }
    });
}

/// Waits for the configured delay, which may change during the wait.
async fn delay(state: &State, kind: Kind) {
    let began = Instant::now();
    let mut changed = state.subscribe();
    loop {
        changed.borrow_and_update();
        let until = began + state.faults(kind).delay.min(LONGEST_DELAY);
        if timeout_at(until, changed.changed()).await.is_err() {
            return;
        }
    }
}

fn error(code: u16) -> StatusError {
    match code {
        401 => StatusError::unauthorized(),
        409 => StatusError::new(409, "Conflict", "the object has been modified"),
        410 => StatusError::new(410, "Expired", "the resource version is too old"),
        429 => StatusError::new(429, "TooManyRequests", "too many requests, try again later"),
        500 => StatusError::new(500, "InternalError", "an error on the server"),
        503 => StatusError::new(503, "ServiceUnavailable", "the server is not ready"),
        504 => StatusError::new(504, "Timeout", "the request did not finish in time"),
        code => StatusError::new(code, "", "the request was rejected"),
    }
}

/// Answers discovery requests, and unknown paths with 404.
fn discovery(path: &str) -> Response {
    let path = path.trim_matches('/');
    let text = match path {
        "version" => json!({
            "major": VERSION.0,
            "minor": VERSION.1,
            "gitVersion": format!("v{}.{}.0", VERSION.0, VERSION.1),
            "platform": "linux/amd64",
        }),
        "healthz" | "livez" | "readyz" => return plain(StatusCode::OK, "ok"),
        "api" => json!({ "kind": "APIVersions", "versions": ["v1"] }),
        "apis" => json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups() }),
        _ => {
            let api_version = ["apis/", "api/"]
                .into_iter()
                .find_map(|top| path.strip_prefix(top));
            let resources: Vec<_> = Kind::all()
                .filter(|kind| Some(kind.api_version()) == api_version)
                .map(resource)
                .collect();
            if resources.is_empty() {
                return plain(StatusCode::NOT_FOUND, "404 page not found\n");
            }
            json!({
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": api_version,
                "resources": resources,
            })
        }
    };
    json_answer(StatusCode::OK, text.to_string().into_bytes())
}

fn groups() -> Vec<serde_json::Value> {
    let mut kinds: Vec<Kind> = Kind::all()
        .filter(|kind| !kind.group().is_empty())
        .collect();
    kinds.dedup_by_key(|kind| kind.api_version());
    kinds
        .into_iter()
        .map(|kind| {
            let version = json!({ "groupVersion": kind.api_version(), "version": "v1" });
            json!({ "name": kind.group(), "versions": [version], "preferredVersion": version })
        })
        .collect()
}

fn resource(kind: Kind) -> serde_json::Value {
    json!({
        "name": kind.plural(),
        "singularName": kind.name().to_lowercase(),
        "namespaced": kind.namespaced(),
        "kind": kind.name(),
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    })
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}
