//! How the API server is reached: by a kubeconfig, an address, or as a pod.

use std::env;
use std::error::Error as StdError;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use hyper::{Method, Uri};
use kube::Client;
use kube::config::{AuthInfo, Kubeconfig, KubeconfigError};
use tokio::task::spawn_blocking;
use tracing::{debug, warn};
use vipline_service_model::Timestamp;

use super::asking::Error;
use super::backoff::Bucket;
use super::connector;
use super::counting::Counting;
use super::exec_plugin;
use super::http_proxy::{InvalidProxy, ProxyEnvironment};
use crate::failure::Failure;
use crate::settings::Access;
use crate::telemetry::{Asked, Telemetry, clock};

/// How long it may take to connect to the server.
const CONNECT: Duration = Duration::from_secs(10);

/// How often credentials are read again at most, while the server is refusing
/// or out of reach.
const RENEWAL: Duration = Duration::from_secs(5);

/// The `proxy-url` of a cluster without one.
///
/// Otherwise the kube crate reads `HTTPS_PROXY` by rules that are not Go's.
const NO_PROXY_URL: &str = "http://none.invalid/";

/// The maximum run time of an exec plugin.
const PLUGIN: Duration = Duration::from_secs(30);

/// How long before their end credentials of a plugin are renewed, in seconds.
const EXPIRY: i64 = 60;

/// A client whose credentials follow their files, with a limit of requests.
///
/// Credentials are read at most by one task at a time, and never by a thread of
/// the runtime: an exec plugin may hang.
pub struct Connection {
    access: Access,
    telemetry: Telemetry,
    start: Instant,
    state: Mutex<State>,
    /// The turn to read credentials.
    turn: tokio::sync::Mutex<()>,
}

struct State {
    opened: Option<Opened>,
    /// When the credentials were read.
    read: Instant,
    /// Whether a request failed since then.
    is_suspect: bool,
    bucket: Bucket,
}

/// A client with the credentials of a point in time.
#[derive(Clone)]
struct Opened {
    client: Client,
    host: Arc<str>,
    expires: Option<Timestamp>,
}

impl Connection {
    /// Reads the credentials; nothing is sent yet.
    ///
    /// It must be called within a runtime. An exec plugin runs before the first
    /// request.
    ///
    /// # Errors
    ///
    /// What is wrong with the files or the environment.
    pub fn open(access: &Access, telemetry: &Telemetry) -> Result<Self, Failure> {
        let config = config(access).map_err(Failure::input)?;
        let opened = match config.auth_info.exec {
            Some(_) => None,
            None => Some(open(config, telemetry).map_err(Failure::input)?),
        };
        let start = Instant::now();
        let burst = u32::try_from(access.burst).unwrap_or(0);
        let state = State {
            opened,
            read: start,
            is_suspect: false,
            bucket: Bucket::new(f64::from(access.qps), burst),
        };
        Ok(Self {
            access: access.clone(),
            telemetry: telemetry.clone(),
            start,
            state: Mutex::new(state),
            turn: tokio::sync::Mutex::new(()),
        })
    }

    /// Returns the client, once another request, with this method, is within the limit.
    ///
    /// # Errors
    ///
    /// There are no credentials.
    pub async fn client(&self, method: &Method) -> Result<Client, Error> {
        let wait = self.with(|state| state.bucket.take(self.start.elapsed()));
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let Opened { client, host, .. } = match self.usable() {
            Some(opened) => opened,
            None => self.read().await?,
        };
        self.telemetry
            .asked(&host, method.as_str(), Asked::Waited(wait));
        Ok(client)
    }

    /// Has the credentials read again before the next request: a request failed.
    pub fn renew(&self) {
        let now = Instant::now();
        self.with(|state| {
            state.is_suspect |= now.saturating_duration_since(state.read) >= RENEWAL;
        });
    }

    /// Returns a client whose credentials need not be read again.
    fn usable(&self) -> Option<Opened> {
        let soon = clock().seconds.saturating_add(EXPIRY);
        self.with(|state| {
            let opened = state.opened.clone().filter(|_| !state.is_suspect);
            // Credentials with a short life are not read again for each request.
            let is_new = state.read.elapsed() < RENEWAL;
            opened.filter(|opened| is_new || opened.expires.is_none_or(|at| at.seconds > soon))
        })
    }

    /// Reads the credentials on a thread that may wait.
    async fn read(&self) -> Result<Opened, Error> {
        let _turn = self.turn.lock().await;
        if let Some(opened) = self.usable() {
            return Ok(opened);
        }
        let (access, telemetry) = (self.access.clone(), self.telemetry.clone());
        let read = spawn_blocking(move || open(config(&access)?, &telemetry)).await;
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
                    debug!("the former credentials stay: {reason}");
                    Ok(former.clone())
                }
                (Err(reason), None) => Err(Error::Unreachable(reason)),
            }
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns a number by chance.
pub fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Returns a client of a configuration, whose exec plugin runs now.
fn open(mut config: kube::Config, telemetry: &Telemetry) -> Result<Opened, String> {
    config.connect_timeout = Some(CONNECT);
    let expires = use_plugin(&mut config.auth_info)?;
    let place = config.cluster_url.to_string();
    let host: Arc<str> = host(&config.cluster_url).into();
    let counting = Counting::new(telemetry.clone(), Arc::clone(&host));
    let client = connector::client(&config, &counting);
    let client = client.map_err(|reason| format!("{place}: {reason}"))?;
    Ok(Opened {
        client,
        host,
        expires,
    })
}

/// Replaces an exec plugin by the credentials that it prints; returns when they
/// expire.
///
/// Credentials in the kubeconfig itself take precedence.
fn use_plugin(auth: &mut AuthInfo) -> Result<Option<Timestamp>, String> {
    let Some(exec) = auth.exec.take() else {
        return Ok(None);
    };
    if auth.token.is_some() || auth.token_file.is_some() {
        return Ok(None);
    }
    let printed = exec_plugin::run(&exec, PLUGIN)?;
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

/// Returns the server of an address, with the port if there is one.
fn host(address: &Uri) -> String {
    let host = address.host().unwrap_or_default();
    match address.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Returns the configuration of a client, with its proxy.
fn config(access: &Access) -> Result<kube::Config, String> {
    let mut config = server(access)?;
    if config.proxy_url.is_none() {
        let environment = ProxyEnvironment::read(|name| env::var(name).ok());
        config.proxy_url =
            environment
                .proxy(&config.cluster_url)
                .unwrap_or_else(|InvalidProxy { variable }| {
                    warn!("{variable} is no URL of a proxy and has no effect");
                    None
                });
    }
    Ok(config)
}

fn server(access: &Access) -> Result<kube::Config, String> {
    let mut config = match (&access.kubeconfig, &access.master) {
        (Some(path), _) => from_file(path)?,
        (None, Some(master)) => return Ok(kube::Config::new(address("--master", master, false)?)),
        (None, None) => kube::Config::incluster().map_err(|error| {
            let missing = "neither --kubeconfig nor --master is given, and this is no pod";
            format!("{missing}: {}", words(&error))
        })?,
    };
    if let Some(master) = &access.master {
        config.cluster_url = address("--master", master, is_secure(&config))?;
    }
    Ok(config)
}

fn from_file(path: &Path) -> Result<kube::Config, String> {
    let named = |error: &dyn StdError| format!("{}: {}", path.display(), words(error));
    let mut kubeconfig = Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(error, _) => named(&error),
        error => named(&error),
    })?;
    for cluster in kubeconfig
        .clusters
        .iter_mut()
        .flat_map(|named| &mut named.cluster)
    {
        let url = cluster.proxy_url.take().filter(|url| !url.is_empty());
        cluster.proxy_url = Some(url.unwrap_or_else(|| NO_PROXY_URL.to_owned()));
    }
    let mut config = kube::Config::try_from(kubeconfig).map_err(|error| named(&error))?;
    let url = config.proxy_url.take();
    config.proxy_url = url.filter(|url| *url != NO_PROXY_URL);
    match config.proxy_url.as_ref().and_then(Uri::scheme_str) {
        Some(scheme) if !matches!(scheme, "http" | "https" | "socks5") => Err(format!(
            "{}: proxy-url: unsupported scheme {scheme:?}, must be http, https, or socks5",
            path.display()
        )),
        _ => Ok(config),
    }
}

/// Tells whether credentials ask for encryption where the address does not say.
fn is_secure(config: &kube::Config) -> bool {
    let auth = &config.auth_info;
    config.root_cert.is_some()
        || config.root_cert_file.is_some()
        || config.accept_invalid_certs
        || auth.client_certificate.is_some()
        || auth.client_certificate_data.is_some()
}

fn address<T>(flag: &str, text: &str, is_secure: bool) -> Result<T, String>
where
    T: std::str::FromStr<Err: StdError + 'static>,
{
    let scheme = if is_secure { "https" } else { "http" };
    let address = match text.contains("://") {
        true => text.to_owned(),
        false => format!("{scheme}://{text}"),
    };
    let read = address.parse();
    read.map_err(|error| format!("{flag}: {text:?}: {}", words(&error)))
}

/// Returns an error with those of its causes that it does not tell itself.
pub fn words(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proxy_core::{Family, Mode};
    use testkit::leftovers::Directory;

    use super::*;

    fn access(kubeconfig: Option<&Path>, master: Option<&str>) -> Access {
        Access {
            kubeconfig: kubeconfig.map(Into::into),
            master: master.map(Into::into),
            qps: 5.0,
            burst: 10,
            content_type: String::new(),
            accept_content_types: String::new(),
        }
    }

    fn url(access: &Access) -> String {
        config(access).unwrap().cluster_url.to_string()
    }

    const KUBECONFIG: &str = "
clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443', insecure-skip-tls-verify: true}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
users: [{name: u, user: {client-certificate: missing.crt, client-key: missing.key}}]
";

    #[test]
    fn the_address_of_the_flag_counts_before_that_of_the_file() {
        let folder = Directory::new().unwrap();
        let path = folder.path().join("kubeconfig");
        fs::write(&path, KUBECONFIG).unwrap();
        let file = Some(&*path);
        assert_eq!(url(&access(file, None)), "https://10.0.0.1:6443/");
        let given = Some("https://10.0.0.2:1");
        assert_eq!(url(&access(file, given)), "https://10.0.0.2:1/");
        assert_eq!(
            url(&access(file, Some("10.0.0.2:1"))),
            "https://10.0.0.2:1/"
        );
        assert_eq!(url(&access(None, Some("10.0.0.2:1"))), "http://10.0.0.2:1/");
    }

    #[test]
    fn a_server_is_named_as_its_address_names_it() {
        for (address, name) in [
            ("https://user:secret@10.0.0.1:6443/path", "10.0.0.1:6443"),
            ("https://[fd00::1]:443", "[fd00::1]:443"),
            ("https://api.example", "api.example"),
        ] {
            assert_eq!(host(&address.parse().unwrap()), name);
        }
    }

    #[test]
    fn what_is_wrong_with_credentials_is_said_with_the_file() {
        let folder = Directory::new().unwrap();
        let path = folder.path().join("kubeconfig");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _guard = runtime.enter();
        let telemetry = Telemetry::new(Mode::Nftables, &[Family::V4], RENEWAL);
        let file = access(Some(&path), None);
        let said = || {
            config(&file)
                .and_then(|config| open(config, &telemetry))
                .err()
                .unwrap()
        };
        let missing = said();
        assert!(
            missing.starts_with(&format!("{}: ", path.display())),
            "{missing}"
        );
        assert!(missing.contains("No such file"), "{missing}");
        fs::write(&path, "current-context: x\nclusters: 7\n").unwrap();
        assert!(said().contains("kubeconfig: failed to parse"), "{}", said());
        fs::write(&path, KUBECONFIG.replace("cluster: c", "cluster: d")).unwrap();
        assert!(
            said().contains("failed to load the cluster of context: d"),
            "{}",
            said()
        );
        fs::write(&path, KUBECONFIG).unwrap();
        let certificate = said();
        assert!(certificate.contains("missing.crt"), "{certificate}");
        assert!(certificate.contains("No such file"), "{certificate}");
        let bad = config(&access(None, Some("http://a b"))).unwrap_err();
        assert!(bad.starts_with("--master: \"http://a b\": "), "{bad}");
    }
}
