//! Kubeconfig files and the service account of a pod, by the rules of client-go.
//!
//! `kube` parses the file and resolves its relative paths. What it accepts, takes precedence of,
//! or sends differs from client-go in many fields: an administrator whose file works with
//! kubectl and with the kube-proxy of Kubernetes must not meet another rule here. So this
//! file selects the cluster and the user of the current context, checks them, and hands
//! `kube` a kubeconfig with nothing else. `KUBECONFIG.md` in the folder of the crate has
//! the fields one by one.
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::env;
use std::error::Error as StdError;
use std::net::IpAddr;
use std::path::Path;

use hyper::Uri;
use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::access::{address, error_chain};

/// Placeholder `proxy-url` of a cluster without one.
///
/// It keeps kube from reading `HTTPS_PROXY`, whose rules in kube differ from
/// Go's.
const NO_PROXY_URL: &str = "http://none.invalid/";

/// Folder of the service account in a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The only name in the kubeconfig that `kube` gets.
const NAME: &str = "selected";

/// Reads the current context of a file. `server` replaces the address in the file.
pub(super) fn from_file(path: &Path, server: Option<&str>) -> Result<kube::Config, String> {
    let named = |reason: String| format!("{}: {reason}", path.display());
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(error, _) => named(error_chain(&error)),
        error => named(error_chain(&error)),
    })?;
    check_file(&kubeconfig).map_err(named)?;
    // `kube` resolves an empty path to the folder of the file.
    let folder = path.parent().map(|folder| folder.join(""));
    let folder = folder.as_deref().and_then(Path::to_str).unwrap_or_default();
    let selected = Selected::new(&kubeconfig, folder, server.is_some()).map_err(named)?;
    selected.config(server).map_err(named)
}

/// Reads the service account of the pod.
pub(super) fn from_pod() -> Result<kube::Config, String> {
    let missing = "neither --kubeconfig nor --master is set, and this is not a pod";
    let variable = |name: &str| {
        let value = env::var(name).ok().filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("{missing}: the variable {name} is not set"))
    };
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    let host = match host.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host,
    };
    let file = |name: &str| Value::from(format!("{SERVICE_ACCOUNT}/{name}"));
    let selected = Selected {
        cluster: fields([("certificate-authority", file("ca.crt"))]),
        cluster_name: "of the pod".to_owned(),
        user: fields([("tokenFile", file("token"))]),
        user_name: "of the pod".to_owned(),
    };
    let named = |reason| format!("service account: {reason}");
    let server = format!("https://{host}:{port}");
    selected.config(Some(&server)).map_err(named)
}

/// Checks what concerns the whole file.
fn check_file(kubeconfig: &Kubeconfig) -> Result<(), String> {
    for (field, value, expected) in [
        ("kind", &kubeconfig.kind, "Config"),
        ("apiVersion", &kubeconfig.api_version, "v1"),
    ] {
        match value.as_deref() {
            None | Some("") => {}
            Some(value) if value == expected => {}
            Some(value) => return Err(format!("{field}: {value:?}, must be {expected:?}")),
        }
    }
    let clusters = kubeconfig.clusters.iter().map(|named| &named.name);
    let contexts = kubeconfig.contexts.iter().map(|named| &named.name);
    let users = kubeconfig.auth_infos.iter().map(|named| &named.name);
    unique("clusters", clusters)?;
    unique("contexts", contexts)?;
    unique("users", users)
}

fn unique<'a>(field: &str, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut names: Vec<_> = names.collect();
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{field}: the name {:?} occurs twice", pair[0])),
        None => Ok(()),
    }
}

/// The cluster and the user of the current context.
struct Selected {
    cluster: Fields,
    cluster_name: String,
    user: Fields,
    user_name: String,
}

impl Selected {
    /// Selects the current context. Without one, a file still serves if the address is
    /// known, as in client-go: with neither a CA nor credentials.
    fn new(kubeconfig: &Kubeconfig, folder: &str, has_server: bool) -> Result<Self, String> {
        let context = match kubeconfig.current_context.as_deref() {
            None | Some("") if has_server => Context::default(),
            None | Some("") => return Err("current-context: missing".to_owned()),
            Some(name) => {
                let mut contexts = kubeconfig.contexts.iter();
                let found = contexts.find(|named| named.name == name);
                let absent = || format!("current-context: there is no context {name:?}");
                found
                    .ok_or_else(absent)?
                    .context
                    .clone()
                    .unwrap_or_default()
            }
        };
        let cluster_name = context.cluster;
        let mut clusters = kubeconfig.clusters.iter();
        let cluster = match clusters.find(|named| named.name == cluster_name) {
            Some(found) => found.cluster.clone().unwrap_or_default(),
            None if cluster_name.is_empty() && has_server => Cluster::default(),
            None => return Err(format!("contexts: there is no cluster {cluster_name:?}")),
        };
        let user_name = context.user.unwrap_or_default();
        // As in client-go, a user that does not exist has no credentials.
        let mut users = kubeconfig.auth_infos.iter();
        let user = users.find(|named| named.name == user_name);
        let user = user.and_then(|named| named.auth_info.clone());
        Ok(Self {
            cluster: Fields::of(&cluster, folder),
            cluster_name,
            user: Fields::of(&user.unwrap_or_default(), folder),
            user_name,
        })
    }

    /// Checks the fields and creates a client configuration.
    fn config(mut self, server: Option<&str>) -> Result<kube::Config, String> {
        let own_server = self.cluster.text("server").map(str::to_owned);
        let (label, server) = match (server, own_server) {
            (Some(server), _) => {
                // It is the name of the server in the file.
                self.cluster.remove("tls-server-name");
                ("--master".to_owned(), server.to_owned())
            }
            (None, Some(server)) => (self.of_cluster("server"), server),
            (None, None) => return Err(format!("{}: missing", self.of_cluster("server"))),
        };
        let url: Uri = address(&label, &server, self.is_secure())?;
        self.check_cluster()?;
        self.check_user()?;
        if url.scheme_str() == Some("https") {
            self.check_trust()?;
        } else {
            // As in client-go, credentials never travel in clear text.
            self.user.retain_impersonation();
            self.cluster.retain(&["proxy-url"]);
        }
        let authority = self.cluster.text("certificate-authority").map(Into::into);
        let server = url.to_string();
        self.cluster
            .set("server", server.trim_end_matches('/').to_owned());
        if !self.cluster.has("proxy-url") {
            self.cluster.set("proxy-url", NO_PROXY_URL.to_owned());
        }
        let mut config = self.into_config()?;
        config.proxy_url = config.proxy_url.filter(|url| *url != NO_PROXY_URL);
        // New connections trust a new CA within a minute, as since client-go 1.36.
        config.root_cert_file = authority;
        if config.accept_invalid_certs && config.root_cert.is_none() {
            // kube then does not open the trust store of the system, which images may lack.
            config.root_cert = Some(Vec::new());
        }
        if let Some(exec) = &mut config.auth_info.exec
            && let Some(cluster) = &mut exec.cluster
        {
            cluster.proxy_url = cluster.proxy_url.take().filter(|url| url != NO_PROXY_URL);
        }
        Ok(config)
    }

    /// Returns whether the fields imply TLS for an address without a scheme.
    fn is_secure(&self) -> bool {
        let of_cluster = [
            "certificate-authority",
            "certificate-authority-data",
            "insecure-skip-tls-verify",
        ];
        let of_user = ["client-certificate", "client-certificate-data"];
        of_cluster.iter().any(|field| self.cluster.has(field))
            || of_user.iter().any(|field| self.user.has(field))
    }

    fn check_cluster(&self) -> Result<(), String> {
        let proxy = self.cluster.text("proxy-url").unwrap_or_default();
        let scheme = proxy.split_once("://").map(|(scheme, _)| scheme);
        if let Some(scheme) = scheme.filter(|it| !matches!(*it, "http" | "https" | "socks5")) {
            let field = self.of_cluster("proxy-url");
            return Err(format!(
                "{field}: unsupported scheme {scheme:?}, must be http, https, or socks5"
            ));
        }
        exclusive(&self.cluster, "certificate-authority").map_err(|it| self.of_cluster(&it))
    }

    /// Checks how the certificate of the server is verified.
    fn check_trust(&self) -> Result<(), String> {
        let authority = ["certificate-authority", "certificate-authority-data"];
        let given = authority.iter().find(|field| self.cluster.has(field));
        match given {
            Some(field) if self.cluster.has("insecure-skip-tls-verify") => {
                Err(self.of_cluster(&format!(
                    "{field} and insecure-skip-tls-verify are both set; \
                     remove insecure-skip-tls-verify to verify the server"
                )))
            }
            _ => Ok(()),
        }
    }

    fn check_user(&mut self) -> Result<(), String> {
        self.check_certificate().map_err(|it| self.of_user(&it))?;
        self.check_methods().map_err(|it| self.of_user(&it))?;
        check_exec(&self.user).map_err(|it| self.of_user(&it))?;
        let impersonated = ["as-uid", "as-groups", "as-user-extra"];
        match impersonated.iter().find(|field| self.user.has(field)) {
            Some(field) if !self.user.has("as") => Err(self.of_user(&format!(
                "{field} requires the user to impersonate, in field as"
            ))),
            _ => Ok(()),
        }
    }

    fn check_certificate(&mut self) -> Result<(), String> {
        let user = &mut self.user;
        if !user.has("client-certificate") && !user.has("client-certificate-data") {
            // As in client-go, a key without a certificate is unused.
            user.remove("client-key");
            user.remove("client-key-data");
            return Ok(());
        }
        exclusive(user, "client-certificate")?;
        exclusive(user, "client-key")?;
        match user.has("client-key") || user.has("client-key-data") {
            true => Ok(()),
            false => Err("client-certificate requires client-key or client-key-data".to_owned()),
        }
    }

    /// Refuses more than one kind of credentials in the header `Authorization`.
    fn check_methods(&self) -> Result<(), String> {
        let user = &self.user;
        let has_token = user.has("token") || user.has("tokenFile");
        if has_token && user.has("password") {
            return Err("a token and a password are both set; remove one of them".to_owned());
        }
        if user.has("auth-provider") {
            // kube-proxy of Kubernetes has no provider either. kube would run `gcloud`.
            return Err("auth-provider is not supported; use an exec plugin".to_owned());
        }
        Ok(())
    }

    fn of_cluster(&self, reason: &str) -> String {
        format!("cluster {:?}: {reason}", self.cluster_name)
    }

    fn of_user(&self, reason: &str) -> String {
        format!("user {:?}: {reason}", self.user_name)
    }

    fn into_config(self) -> Result<kube::Config, String> {
        let has_authority = ["certificate-authority", "certificate-authority-data"]
            .iter()
            .any(|field| self.cluster.has(field));
        let empty = self.of_cluster("the certificate authority has no certificate in PEM");
        let cluster: Cluster = self.cluster.parse()?;
        let user: AuthInfo = self.user.parse()?;
        let config = kube::Config::try_from(Kubeconfig {
            clusters: vec![NamedCluster {
                name: NAME.to_owned(),
                cluster: Some(cluster),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: NAME.to_owned(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: NAME.to_owned(),
                context: Some(Context {
                    cluster: NAME.to_owned(),
                    user: Some(NAME.to_owned()),
                    ..Context::default()
                }),
                ..NamedContext::default()
            }],
            current_context: Some(NAME.to_owned()),
            ..Kubeconfig::default()
        });
        let config = config.map_err(|error| error_chain(&error))?;
        match &config.root_cert {
            Some(certificates) if certificates.is_empty() && has_authority => Err(empty),
            _ => Ok(config),
        }
    }
}

/// Refuses a field together with its variant for inline data. client-go says which one
/// would apply, and refuses nevertheless.
fn exclusive(fields: &Fields, field: &str) -> Result<(), String> {
    let data = format!("{field}-data");
    match fields.has(field) && fields.has(&data) {
        true => Err(format!(
            "{field} and {data} are both set; remove one of them"
        )),
        false => Ok(()),
    }
}

/// Checks the exec plugin, if any.
fn check_exec(user: &Fields) -> Result<(), String> {
    let Some(exec) = user.0.get("exec") else {
        return Ok(());
    };
    let text = |field: &str| exec.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("command").is_empty() {
        return Err("exec: command: missing".to_owned());
    }
    match text("apiVersion") {
        "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1" => {}
        version => {
            return Err(format!(
                "exec: apiVersion: {version:?}, must be client.authentication.k8s.io/v1 or \
                 client.authentication.k8s.io/v1beta1"
            ));
        }
    }
    if text("interactiveMode") == "Always" {
        return Err("exec: interactiveMode: Always, but there is no terminal".to_owned());
    }
    let variables = exec.get("env").and_then(Value::as_array);
    let nameless = |variable: &Value| {
        let name = variable.get("name").and_then(Value::as_str);
        name.unwrap_or_default().is_empty()
    };
    match variables.is_some_and(|variables| variables.iter().any(nameless)) {
        true => Err("exec: env: a variable has no name".to_owned()),
        false => Ok(()),
    }
}

/// The fields of a cluster or user that are set. As in Go, an empty text, `false` and an
/// empty list are not.
struct Fields(Map<String, Value>);

fn fields<const N: usize>(values: [(&str, Value); N]) -> Fields {
    let values = values.map(|(name, value)| (name.to_owned(), value));
    Fields(values.into_iter().collect())
}

impl Fields {
    fn of(value: &impl Serialize, folder: &str) -> Self {
        let mut fields = match serde_json::to_value(value) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        fields.retain(|_, value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty() && text != folder,
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !members.is_empty(),
            Value::Bool(true) | Value::Number(_) => true,
        });
        for (name, value) in &mut fields {
            // Go's decoder of base64 skips line breaks, which `|` of YAML keeps.
            if let Value::String(text) = value
                && name.ends_with("-data")
            {
                text.retain(|character| !matches!(character, '\n' | '\r'));
            }
        }
        Self(fields)
    }

    fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.as_str()
    }

    fn set(&mut self, field: &str, value: String) {
        self.0.insert(field.to_owned(), value.into());
    }

    fn remove(&mut self, field: &str) {
        self.0.remove(field);
    }

    fn retain(&mut self, kept: &[&str]) {
        self.0.retain(|field, _| kept.contains(&&**field));
    }

    fn retain_impersonation(&mut self) {
        self.retain(&["as", "as-uid", "as-groups", "as-user-extra"]);
    }

    fn parse<T: serde::de::DeserializeOwned>(self) -> Result<T, String> {
        let read = serde_json::from_value(Value::Object(self.0));
        read.map_err(|error| error_chain(&error as &dyn StdError))
    }
}

/// Takes the token and the file of the token from credentials. `kube` hides the token from
/// readers, but not from serializers.
pub(super) fn take_token(auth: &mut AuthInfo) -> (Option<String>, Option<String>) {
    let token = auth.token.is_some().then(|| Fields::of(auth, ""));
    let token = token.and_then(|fields| fields.text("token").map(str::to_owned));
    auth.token = None;
    (token, auth.token_file.take())
}
