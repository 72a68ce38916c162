//! Requests to the API server.
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::fmt::{self, Debug};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service as ServiceObject;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::config::Kubeconfig;
use kube::core::{ObjectList, Request as Resource};
use kube::{Config, ResourceExt};
use serde_json::Value;
use tokio::time::timeout;
use vipline_service_ip::{AddressRange, Family, OwnerRef};

use crate::error::chain;
use crate::service_cidr::Edit;
use crate::{
    Cause, Error, IpAddress, Service, ServiceCidr, default_cidr, ip_address, service_cidr,
};

/// Connection timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Default request timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Page size of list requests.
const PAGE_SIZE: u32 = 500;

/// Maximum number of attempts of a list with expired continue tokens.
const LIST_ATTEMPTS: usize = 4;

/// A kind of API object.
trait Object:
    kube::Resource<DynamicType = ()>
    + k8s_openapi::Resource
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + 'static
{
    /// Plural of the kind.
    const PLURAL: &'static str;
}

impl Object for IPAddress {
    const PLURAL: &'static str = "IPAddresses";
}

impl Object for ServiceCIDR {
    const PLURAL: &'static str = "ServiceCIDRs";
}

impl Object for ServiceObject {
    const PLURAL: &'static str = "Services";
}

/// A list of objects, each parsed separately.
pub(crate) struct Listed<T> {
    /// Parsed objects.
    pub(crate) objects: Vec<T>,
    /// Objects that cannot be parsed.
    pub(crate) unreadable: Vec<Unreadable>,
}

/// An object that cannot be parsed.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    /// Name of the object.
    pub(crate) name: Box<str>,
    /// Error with kind and name of the object.
    pub(crate) error: Error,
}

impl<T> Listed<T> {
    fn push(&mut self, parsed: Result<T, Unreadable>) {
        match parsed {
            Ok(object) => self.objects.push(object),
            Err(unreadable) => self.unreadable.push(unreadable),
        }
    }
}

impl<T> FromIterator<Result<T, Unreadable>> for Listed<T> {
    fn from_iter<I: IntoIterator<Item = Result<T, Unreadable>>>(objects: I) -> Self {
        let mut listed = Self {
            objects: Vec::new(),
            unreadable: Vec::new(),
        };
        for object in objects {
            listed.push(object);
        }
        listed
    }
}

/// Parses an object of a list.
fn parse<K: Object, T>(object: Value) -> Result<T, Unreadable>
where
    T: TryFrom<K, Error = Error>,
{
    let text = |field| {
        let text = object["metadata"][field].as_str();
        text.unwrap_or_default().to_owned()
    };
    let (namespace, name) = (text("namespace"), text("name"));
    let parsed = serde_json::from_value::<K>(object).map_err(|error| chain(&error));
    let parsed = parsed.and_then(|object| object.try_into().map_err(|error| chain(&error)));
    parsed.map_err(|why| Unreadable::new::<K>(&namespace, &name, why))
}

impl Unreadable {
    pub(crate) fn new<K: k8s_openapi::Resource>(
        namespace: &str,
        name: &str,
        why: Box<str>,
    ) -> Self {
        let slash = if namespace.is_empty() { "" } else { "/" };
        let object = format!("{} {namespace}{slash}{name}", K::KIND);
        Self {
            name: name.into(),
            error: unreadable(object, why),
        }
    }
}

/// Adds the errors of invalid ranges. Such a ServiceCIDR is in both lists.
pub(crate) fn with_invalid_ranges(mut listed: Listed<ServiceCidr>) -> Listed<ServiceCidr> {
    for cidr in &listed.objects {
        let errors = cidr.unreadable.iter().map(|error| Unreadable {
            name: cidr.name.clone(),
            error: unreadable(named_cidr(&cidr.name), chain(error)),
        });
        listed.unreadable.extend(errors);
    }
    listed
}

/// A client of the API server.
///
/// A clone shares the connections. [`blocking::Client`](crate::blocking::Client) has the
/// same methods for threads without an async runtime.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    /// Request timeout.
    timeout: Duration,
}

impl Client {
    /// Returns a client that uses an existing one.
    ///
    /// The client must not repeat requests by itself: a repeated request may have been
    /// applied before. Set [`kube::Config::default_retry`] to false.
    #[must_use]
    pub const fn new(kube: kube::Client) -> Self {
        Self {
            kube,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Returns a client for a kubeconfig, or for the Service account of the pod.
    ///
    /// Does not send a request. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`Cause::Configuration`]: the credentials cannot be read or used.
    pub fn open(kubeconfig: Option<&Path>) -> Result<Self, Error> {
        let wrong = |why| configuration_error(kubeconfig, why);
        let mut config = config(kubeconfig).map_err(wrong)?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.default_retry = false;
        let kube = kube::Client::try_from(config).map_err(|error| wrong(chain(&error)))?;
        Ok(Self::new(kube))
    }

    /// Sets the request timeout. Default: 60 s.
    ///
    /// The server may still apply a request after the timeout.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns all IPAddresses, or with a family those without the label of the other
    /// family. The label may be missing.
    pub(crate) async fn addresses(
        &self,
        family: Option<Family>,
    ) -> Result<Listed<IpAddress>, Error> {
        let label =
            |family: Family| format!("{}!={}", ip_address::FAMILY_LABEL, family.other().as_str());
        let labels = family.map(label);
        self.list::<IPAddress, _>(labels.as_deref()).await
    }

    /// Returns all ServiceCIDRs. A ServiceCIDR with an invalid range is in both lists.
    pub(crate) async fn service_cidrs(&self) -> Result<Listed<ServiceCidr>, Error> {
        let listed = self.list::<ServiceCIDR, _>(None).await;
        listed.map(with_invalid_ranges)
    }

    /// Returns all Services.
    ///
    /// A Service that cannot be parsed is an error: its addresses are unknown, and must
    /// not be released.
    pub(crate) async fn services(&self) -> Result<Vec<Service>, Error> {
        let listed = self.list::<ServiceObject, _>(None).await?;
        match listed.unreadable.into_iter().next() {
            Some(unreadable) => Err(unreadable.error),
            None => Ok(listed.objects),
        }
    }

    /// Creates the IPAddress of an owner and returns its UID.
    pub(crate) async fn create_address(
        &self,
        ip: IpAddr,
        owner: &OwnerRef,
        manager: &str,
    ) -> Result<Box<str>, Error> {
        let api = self.all::<IPAddress>();
        let object = ip_address::object(ip, owner, manager);
        let params = PostParams::default();
        let name = named_address(ip);
        let created = self
            .send("create", &name, api.create(&params, &object))
            .await?;
        let unreadable = || Cause::Unreadable("missing uid".into());
        let uid = created.metadata.uid.map(Into::into);
        uid.ok_or_else(|| Error::new("create", &name, unreadable()))
    }

    /// Deletes an IPAddress if UID and version match.
    pub(crate) async fn delete_address(
        &self,
        ip: IpAddr,
        uid: &str,
        version: Option<&str>,
    ) -> Result<(), Error> {
        let api = self.all::<IPAddress>();
        let params = DeleteParams::default().preconditions(Preconditions {
            resource_version: version.map(Into::into),
            uid: Some(uid.into()),
        });
        let name = ip.to_string();
        let deleted = api.delete(&name, &params);
        let object = named_address(ip);
        self.send("delete", &object, deleted).await.map(drop)
    }

    /// Sets the labels of an IPAddress.
    pub(crate) async fn label_address(&self, ip: IpAddr, version: &str) -> Result<(), Error> {
        let api = self.all::<IPAddress>();
        let patch = Patch::Merge(ip_address::label_patch(ip, version));
        let (name, params) = (ip.to_string(), PatchParams::default());
        let patched = api.patch(&name, &params, &patch);
        let object = named_address(ip);
        self.send("change", &object, patched).await.map(drop)
    }

    /// Creates the default ServiceCIDR, see [`default_cidr::Plan::Create`].
    ///
    /// # Errors
    ///
    /// An [`Error`] with the failed request.
    pub async fn create_default_cidr(&self, ranges: &[AddressRange]) -> Result<(), Error> {
        let api = self.all::<ServiceCIDR>();
        let object = service_cidr::object(default_cidr::NAME, ranges);
        let (name, params) = (named_cidr(default_cidr::NAME), PostParams::default());
        let created = api.create(&params, &object);
        self.send("create", &name, created).await.map(drop)
    }

    /// Applies an edit of a [lifecycle plan](crate::lifecycle::plan) or of
    /// [`default_cidr::Plan::Edit`]: patches a ServiceCIDR and then its status.
    ///
    /// # Errors
    ///
    /// An [`Error`] with the failed request. After [`Error::is_conflict`], plan again.
    pub async fn edit(&self, edit: &Edit) -> Result<(), Error> {
        let api = self.all::<ServiceCIDR>();
        let (object, params) = (named_cidr(&edit.name), PatchParams::default());
        let mut version = edit.version.to_string();
        if let Some(patch) = edit.patch().map(Patch::Merge) {
            let patched = api.patch(&edit.name, &params, &patch);
            let patched = self.send("change", &object, patched).await?;
            version = patched.resource_version().unwrap_or_default();
        }
        if let Some(patch) = edit.status(&version).map(Patch::<Value>::Merge) {
            let patched = api.patch_status(&edit.name, &params, &patch);
            self.send("change the status of", &object, patched).await?;
        }
        Ok(())
    }

    /// Returns the objects of a kind, optionally with a label selector.
    async fn list<K, T>(&self, labels: Option<&str>) -> Result<Listed<T>, Error>
    where
        K: Object,
        T: TryFrom<K, Error = Error>,
    {
        let mut lists = 1..LIST_ATTEMPTS;
        loop {
            match self.pages::<K, T>(labels).await {
                Err(error) if error.is_expired() && lists.next().is_some() => {}
                listed => return listed,
            }
        }
    }

    async fn pages<K, T>(&self, labels: Option<&str>) -> Result<Listed<T>, Error>
    where
        K: Object,
        T: TryFrom<K, Error = Error>,
    {
        let resource = Resource::new(K::url_path(&(), None));
        let mut params = ListParams::default().limit(PAGE_SIZE);
        params.label_selector = labels.map(Into::into);
        let mut listed = Listed {
            objects: Vec::new(),
            unreadable: Vec::new(),
        };
        loop {
            let page = async {
                let request = resource.list(&params).map_err(kube::Error::BuildRequest)?;
                self.kube.request::<ObjectList<Value>>(request).await
            };
            let page = self.send("list", K::PLURAL, page).await?;
            for object in page.items {
                listed.push(parse::<K, T>(object));
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(listed);
            }
        }
    }

    fn all<K: Object>(&self) -> Api<K> {
        Api::all(self.kube.clone())
    }

    /// Sends a request and waits for the response.
    async fn send<T>(
        &self,
        operation: &'static str,
        object: &str,
        request: impl Future<Output = kube::Result<T>> + Send,
    ) -> Result<T, Error> {
        let cause = match timeout(self.timeout, request).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Cause::of_request(error),
            Err(_) => Cause::NoResponse(format!("timeout after {:?}", self.timeout).into()),
        };
        Err(Error::new(operation, object, cause))
    }
}

impl Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Returns the error of credentials that cannot be read or used.
pub(crate) fn configuration_error(kubeconfig: Option<&Path>, why: Box<str>) -> Error {
    let object = kubeconfig.map_or_else(
        || "credentials of the pod".to_owned(),
        |path| path.display().to_string(),
    );
    Error::new("read", object, Cause::Configuration(why))
}

fn config(kubeconfig: Option<&Path>) -> Result<Config, Box<str>> {
    let Some(path) = kubeconfig else {
        return Config::incluster().map_err(|error| chain(&error));
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| chain(&error))?;
    let mut clusters = kubeconfig.clusters.iter().flat_map(|named| &named.cluster);
    let has_proxy = clusters.any(|cluster| cluster.proxy_url.is_some());
    let mut config = Config::try_from(kubeconfig).map_err(|error| chain(&error))?;
    if !has_proxy {
        // A library must not use proxy settings of the environment.
        config.proxy_url = None;
    }
    Ok(config)
}

fn unreadable(object: String, why: Box<str>) -> Error {
    Error::new("read", object, Cause::Unreadable(why))
}

fn named_address(ip: IpAddr) -> String {
    format!("IPAddress {ip}")
}

fn named_cidr(name: &str) -> String {
    format!("ServiceCIDR {name}")
}
