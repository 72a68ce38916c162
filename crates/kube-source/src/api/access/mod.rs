//! Access to the API server: by a kubeconfig, an address, or the service
//! account of the pod.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::env;
use std::error::Error as StdError;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use hyper::{Method, Uri};
use k8s_openapi::jiff;
use kube::Client;
use kube::config::AuthInfo;
use tokio::task::spawn_blocking;
use vipline_service_model::Timestamp;

use super::backoff::TokenBucket;
use super::bearer::Bearer;
use super::connector;
use super::exec_plugin::RunningPlugin;
use super::http_proxy::{InvalidProxy, ProxyEnvironment};
use super::kubeconfig;
use super::observer::{Observer, Report, RequestEvent};
use super::request;
use super::request_metrics::RequestMetricsLayer;

/// Rate limit of a client that sets none.
const DEFAULT_QPS: f32 = 5.0;
const DEFAULT_BURST: i32 = 10;

/// Connect timeout.
const CONNECT: Duration = Duration::from_secs(10);

/// Minimum interval of reading the credentials while requests fail.
const RENEWAL: Duration = Duration::from_secs(5);

/// Maximum run time of an exec plugin.
const PLUGIN: Duration = Duration::from_secs(30);

/// Credentials of an exec plugin are renewed this many seconds before they
/// expire.
const EXPIRY: i64 = 60;

/// Address and credentials of an API server, and the rate limit of requests.
///
/// Without kubeconfig and server, the service account of the pod is used. The rules are
/// those of client-go: [the list of fields] names the differences.
///
/// [the list of fields]: https://github.com/vipline/vipline/blob/main/crates/kube-source/KUBECONFIG.md
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Access {
    /// Path of the kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// URL, or `host:port`, of the server. Replaces the address in the kubeconfig.
    pub server: Option<String>,
    /// Average number of requests per second. As in client-go, zero is the default, and a
    /// negative number disables the limit.
    pub qps: f32,
    /// Maximum number of requests without a delay. As in client-go, zero is the default. A
    /// negative number counts as 1.
    pub burst: i32,
    /// Whether objects may be listed within their watch (`sendInitialEvents`), which costs
    /// an API server less memory than pages of a list. Disable it for a server that
    /// accepts such a request and answers it wrongly; a server that rejects it is
    /// recognized.
    pub watch_lists: bool,
}

/// No kubeconfig and no server, 5 requests per second and a burst of 10, and lists within
/// watches, as in client-go.
impl Default for Access {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            server: None,
            qps: DEFAULT_QPS,
            burst: DEFAULT_BURST,
            watch_lists: true,
        }
    }
}

impl Access {
    /// Returns requests per second and burst.
    fn limit(&self) -> (f64, u32) {
        let qps = match self.qps == 0.0 {
            true => DEFAULT_QPS,
            false => self.qps,
        };
        let burst = match self.burst {
            0 => DEFAULT_BURST,
            burst => burst,
        };
        (qps.into(), u32::try_from(burst).unwrap_or(0))
    }
}

/// A rate-limited client that reads its credentials again when files change or
/// requests fail.
///
/// One task at a time reads credentials, on a blocking thread, because an exec
/// plugin may hang.
pub(crate) struct Connection {
    opener: Opener,
    start: Instant,
    state: Mutex<State>,
    /// Locked while the credentials are read.
    turn: tokio::sync::Mutex<()>,
}

struct State {
    opened: Option<Opened>,
    /// Time of the last read of the credentials.
    read: Instant,
    /// Whether a request failed after the last read.
    is_suspect: bool,
    bucket: TokenBucket,
}

/// A client and the credentials that it was created with.
#[derive(Clone)]
struct Opened {
    client: Client,
    host: Arc<str>,
    /// URL of the server, without credentials.
    url: Arc<str>,
    expires: Option<Timestamp>,
}

/// Reads credentials and creates clients.
#[derive(Clone)]
struct Opener {
    access: Access,
    observer: Arc<dyn Observer>,
    plugin: RunningPlugin,
}

impl Connection {
    /// Reads the credentials. Sends no request.
    ///
    /// Must be called within a Tokio runtime. An exec plugin runs before the
    /// first request.
    ///
    /// # Errors
    ///
    /// The kubeconfig, the address or the environment is invalid.
    pub(crate) fn open(
        access: &Access,
        observer: Arc<dyn Observer>,
        plugin: RunningPlugin,
    ) -> Result<Self, request::Error> {
        let opener = Opener {
            access: access.clone(),
            observer,
            plugin,
        };
        let config = opener.config().map_err(request::Error::InvalidAccess)?;
        let opened = match config.auth_info.exec {
            Some(_) => None,
            None => Some(opener.open(config).map_err(request::Error::InvalidAccess)?),
        };
        let start = Instant::now();
        let (qps, burst) = access.limit();
        let state = State {
            opened,
            read: start,
            is_suspect: false,
            bucket: TokenBucket::new(qps, burst),
        };
        Ok(Self {
            opener,
            start,
            state: Mutex::new(state),
            turn: tokio::sync::Mutex::new(()),
        })
    }

    /// Returns the client when the rate limit permits a request with `method`.
    ///
    /// # Errors
    ///
    /// Returns [`request::Error::NoCredentials`] if there are none.
    pub(crate) async fn client(&self, method: &Method) -> Result<Client, request::Error> {
        let wait = self.with(|state| state.bucket.take(self.start.elapsed()));
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let Opened { client, host, .. } = match self.usable() {
            Some(opened) => opened,
            None => self.read().await?,
        };
        self.opener
            .observer
            .request(&host, method.as_str(), RequestEvent::RateLimited(wait));
        Ok(client)
    }

    /// Describes an error with the address of the server: a wrong or dead address is the
    /// most frequent reason.
    pub(crate) fn describe(&self, error: &request::Error) -> String {
        let url = |state: &mut State| state.opened.as_ref().map(|opened| Arc::clone(&opened.url));
        match (error, self.with(url)) {
            (request::Error::NoCredentials(_), _) | (_, None) => error.to_string(),
            (_, Some(url)) => format!("API server {url}: {error}"),
        }
    }

    /// Returns whether objects may be listed within their watch.
    pub(crate) fn allows_watch_lists(&self) -> bool {
        self.opener.access.watch_lists
    }

    /// Returns the observer of the requests.
    pub(crate) fn observer(&self) -> &Arc<dyn Observer> {
        &self.opener.observer
    }

    /// Requests that the credentials are read again before the next request,
    /// because a request failed.
    pub(crate) fn renew(&self) {
        let now = Instant::now();
        self.with(|state| {
            state.is_suspect |= now.saturating_duration_since(state.read) >= RENEWAL;
        });
    }

    /// Returns the client, unless its credentials must be read again.
    fn usable(&self) -> Option<Opened> {
        let soon = jiff::Timestamp::now().as_second().saturating_add(EXPIRY);
        self.with(|state| {
            let opened = state.opened.clone().filter(|_| !state.is_suspect);
            // Short-lived credentials are not read again for each request.
            let is_new = state.read.elapsed() < RENEWAL;
            opened.filter(|opened| is_new || opened.expires.is_none_or(|at| at.seconds > soon))
        })
    }

    /// Reads the credentials on a blocking thread.
    async fn read(&self) -> Result<Opened, request::Error> {
        let _turn = self.turn.lock().await;
        if let Some(opened) = self.usable() {
            return Ok(opened);
        }
        let opener = self.opener.clone();
        let read = spawn_blocking(move || opener.open(opener.config()?)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        self.with(|state| {
            state.read = Instant::now();
            state.is_suspect = false;
            match (read, &state.opened) {
                (Ok(opened), _) => {
                    state.opened = Some(opened.clone());
                    Ok(opened)
                }
                (Err(reason), Some(former)) => {
                    let report = Report::CredentialsNotRenewed { reason };
                    self.opener.observer.report(&report);
                    Ok(former.clone())
                }
                (Err(reason), None) => Err(request::Error::NoCredentials(reason)),
            }
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns a random number.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

impl Opener {
    /// Returns the client configuration, including its proxy.
    fn config(&self) -> Result<kube::Config, String> {
        let mut config = server(&self.access)?;
        if config.proxy_url.is_none() {
            let environment = ProxyEnvironment::read(|name| env::var(name).ok());
            config.proxy_url = environment.proxy(&config.cluster_url).unwrap_or_else(
                |InvalidProxy { variable }| {
                    self.observer.report(&Report::InvalidProxy { variable });
                    None
                },
            );
        }
        Ok(config)
    }

    /// Creates a client. Runs the exec plugin of the configuration, if any.
    fn open(&self, mut config: kube::Config) -> Result<Opened, String> {
        config.connect_timeout = Some(CONNECT);
        let expires = self.use_plugin(&mut config.auth_info)?;
        let url: Arc<str> = without_credentials(&config.cluster_url).into();
        let (token, file) = kubeconfig::take_token(&mut config.auth_info);
        let bearer = Bearer::open(token.as_deref(), file.map(PathBuf::from));
        let bearer = bearer.map_err(|reason| match &self.access.kubeconfig {
            Some(path) => format!("{}: {reason}", path.display()),
            None => reason,
        })?;
        let host: Arc<str> = host(&config.cluster_url).into();
        let metrics = RequestMetricsLayer::new(Arc::clone(&self.observer), Arc::clone(&host));
        let client = connector::client(&config, bearer, &metrics);
        let client = client.map_err(|reason| format!("{url}: {reason}"))?;
        Ok(Opened {
            client,
            host,
            url,
            expires,
        })
    }

    /// Runs the exec plugin, if any, and stores the credentials in `auth`. Returns
    /// when they expire.
    ///
    /// Credentials in the kubeconfig itself take precedence.
    fn use_plugin(&self, auth: &mut AuthInfo) -> Result<Option<Timestamp>, String> {
        let Some(exec) = auth.exec.take() else {
            return Ok(None);
        };
        if auth.token.is_some() || auth.token_file.is_some() {
            return Ok(None);
        }
        let printed = self.plugin.run(&exec, PLUGIN)?;
        auth.token = printed.token.map(Into::into);
        if let (Some(certificate), Some(key)) =
            (printed.client_certificate_data, printed.client_key_data)
        {
            auth.client_certificate = None;
            auth.client_key = None;
            auth.client_certificate_data = Some(BASE64.encode(certificate.as_bytes()));
            auth.client_key_data = Some(BASE64.encode(key.as_bytes()).into());
        }
        let expires = printed.expiration_timestamp;
        Ok(expires.and_then(|text| Timestamp::parse(&text)))
    }
}

/// Returns scheme, host, port and path of a URL.
fn without_credentials(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let path = url.path().trim_end_matches('/');
    format!("{scheme}://{}{path}", host(url))
}

/// Returns host and port of a URL. The port is left out if the URL has none.
fn host(address: &Uri) -> String {
    let host = address.host().unwrap_or_default();
    match address.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn server(access: &Access) -> Result<kube::Config, String> {
    match (&access.kubeconfig, &access.server) {
        (Some(path), server) => kubeconfig::from_file(path, server.as_deref()),
        (None, Some(server)) => Ok(kube::Config::new(address("--master", server, false)?)),
        (None, None) => kubeconfig::from_pod(),
    }
}

/// Parses an address: a URL, or `host:port`, which `is_secure` makes a URL of HTTPS.
pub(super) fn address(label: &str, text: &str, is_secure: bool) -> Result<Uri, String> {
    let scheme = if is_secure { "https" } else { "http" };
    let address = match text.contains("://") {
        true => text.to_owned(),
        false => format!("{scheme}://{text}"),
    };
    let wrong = |reason: &dyn std::fmt::Display| format!("{label}: {text:?}: {reason}");
    let address: Uri = address
        .parse()
        .map_err(|error| wrong(&error_chain(&error)))?;
    match address.scheme_str() {
        Some("http" | "https") => Ok(address),
        _ => Err(wrong(&"the scheme must be http or https")),
    }
}

/// Returns an error with all causes that its own text does not contain.
pub(crate) fn error_chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
