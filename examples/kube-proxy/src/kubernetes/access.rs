//! How the API server is reached: by a kubeconfig, an address, or as a pod.

use std::error::Error as StdError;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::{Method, Uri};
use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{Kubeconfig, KubeconfigError};
use tracing::debug;

use super::backoff::Bucket;
use super::counting::Counting;
use crate::failure::Failure;
use crate::settings::Access;
use crate::telemetry::{Asked, Telemetry};

/// How long it may take to connect to the server.
const CONNECT: Duration = Duration::from_secs(10);

/// How often credentials are read again at most, while the server is refusing
/// or out of reach.
const RENEWAL: Duration = Duration::from_secs(5);

/// A client whose credentials follow their files, with a limit of requests.
pub struct Connection {
    access: Access,
    telemetry: Telemetry,
    start: Instant,
    state: Mutex<State>,
}

struct State {
    client: Client,
    host: Arc<str>,
    /// When the credentials were read.
    read: Instant,
    bucket: Bucket,
}

impl Connection {
    /// Reads the credentials; nothing is sent yet.
    ///
    /// It must be called within a runtime.
    ///
    /// # Errors
    ///
    /// What is wrong with the files or the environment.
    pub fn open(access: &Access, telemetry: &Telemetry) -> Result<Self, Failure> {
        let (client, host) = client(access, telemetry).map_err(Failure::input)?;
        let start = Instant::now();
        let burst = u32::try_from(access.burst).unwrap_or(0);
        let state = State {
            client,
            host,
            read: start,
            bucket: Bucket::new(f64::from(access.qps), burst),
        };
        Ok(Self {
            access: access.clone(),
            telemetry: telemetry.clone(),
            start,
            state: Mutex::new(state),
        })
    }

    /// Returns the client, once another request, with this method, is within the limit.
    pub async fn client(&self, method: &Method) -> Client {
        let (client, host, wait) = self.with(|state| {
            let wait = state.bucket.take(self.start.elapsed());
            (state.client.clone(), Arc::clone(&state.host), wait)
        });
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        self.telemetry
            .asked(&host, method.as_str(), Asked::Waited(wait));
        client
    }

    /// Reads the credentials again: a request failed, and they may be others by now.
    pub fn renew(&self) {
        let now = Instant::now();
        let is_due = self.with(|state| {
            let is_due = now.saturating_duration_since(state.read) >= RENEWAL;
            if is_due {
                state.read = now;
            }
            is_due
        });
        if !is_due {
            return;
        }
        match client(&self.access, &self.telemetry) {
            Ok((client, host)) => self.with(|state| {
                state.client = client;
                state.host = host;
            }),
            Err(reason) => debug!("the former credentials stay: {reason}"),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns a number by chance.
pub fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Returns a client, and the server that it asks.
fn client(access: &Access, telemetry: &Telemetry) -> Result<(Client, Arc<str>), String> {
    let mut config = config(access)?;
    config.connect_timeout = Some(CONNECT);
    // Whoever asks tries again by rules of his own.
    config.default_retry = false;
    let place = config.cluster_url.to_string();
    let host: Arc<str> = host(&config.cluster_url).into();
    let builder = ClientBuilder::try_from(config);
    let builder = builder.map_err(|error| format!("{place}: {}", words(&error)))?;
    let counting = Counting::new(telemetry.clone(), Arc::clone(&host));
    Ok((builder.with_layer(&counting).build(), host))
}

/// Returns the server of an address, with the port if there is one.
fn host(address: &Uri) -> String {
    let host = address.host().unwrap_or_default();
    match address.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn config(access: &Access) -> Result<kube::Config, String> {
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
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(error, _) => named(&error),
        error => named(&error),
    })?;
    let mut clusters = kubeconfig.clusters.iter().flat_map(|named| &named.cluster);
    let has_proxy = clusters.any(|cluster| cluster.proxy_url.is_some());
    let mut config = kube::Config::try_from(kubeconfig).map_err(|error| named(&error))?;
    if !has_proxy {
        // What the environment says of proxies is meant for others.
        config.proxy_url = None;
    }
    Ok(config)
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
        let said = || client(&file, &telemetry).err().unwrap();
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
